//! Writing a code object: sections laid out the way lld does, then headers.
//!
//! File order: ELF header, program headers, note, dynsym, gnu.hash, hash, dynstr, rodata (descriptors) | text |
//! dynamic | extra sections (page aligned, not loaded), symtab, strtab, shstrtab, section headers. The three loaded
//! parts get addresses `file offset`, `+ 0x1000`, `+ 0x2000`, so that no page has two protections.

use super::family::EF_MACH;
use super::{Abi, CodeObject, Descriptor, Error, Family, metadata};
use std::io::{self, Write};

const PAGE: u64 = 0x1000;
const EHDR: u64 = 64;
const PHDR: u64 = 56;
const SYM: u64 = 24;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_HASH: u32 = 5;
const SHT_DYNAMIC: u32 = 6;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;

const FUNC: u8 = 2;
const OBJECT: u8 = 1;

/// A string table under construction.
#[derive(Default)]
struct Strings(Vec<u8>);

impl Strings {
    fn new() -> Strings {
        Strings(vec![0])
    }
    fn add(&mut self, s: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(s.as_bytes());
        self.0.push(0);
        at
    }
}

struct Sym {
    name: String,
    value: u64,
    size: u64,
    kind: u8,
    section: u16,
}

struct Shdr {
    name: &'static str,
    kind: u32,
    flags: u64,
    addr: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

/// The SysV ABI's symbol hash.
fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |h, b| {
        let h = (h << 4).wrapping_add(u32::from(b));
        let g = h & 0xf000_0000;
        (h ^ g >> 24) & !g
    })
}

/// GNU's symbol hash.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381u32, |h, b| h.wrapping_mul(33).wrapping_add(u32::from(b)))
}

fn push32(v: &mut Vec<u8>, words: &[u32]) {
    for w in words {
        v.extend_from_slice(&w.to_le_bytes());
    }
}

fn push64(v: &mut Vec<u8>, words: &[u64]) {
    for w in words {
        v.extend_from_slice(&w.to_le_bytes());
    }
}

/// Bytes written so far are known, so sections can be aligned while streaming.
struct Out<'w> {
    to: &'w mut dyn Write,
    at: u64,
}

impl Out<'_> {
    fn bytes(&mut self, b: &[u8]) -> io::Result<()> {
        self.to.write_all(b)?;
        self.at += b.len() as u64;
        Ok(())
    }
    fn pad_to(&mut self, offset: u64) -> io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        debug_assert!(offset >= self.at);
        while self.at < offset {
            let n = (offset - self.at).min(4096) as usize;
            self.bytes(&ZEROS[..n])?;
        }
        Ok(())
    }
}

fn symbol_bytes(syms: &[Sym], names: &mut Strings) -> Vec<u8> {
    const GLOBAL: u8 = 1 << 4;
    const PROTECTED: u8 = 3;
    let mut v = vec![0; SYM as usize];
    for s in syms {
        push32(&mut v, &[names.add(&s.name)]);
        v.extend_from_slice(&[GLOBAL | s.kind, PROTECTED]);
        v.extend_from_slice(&s.section.to_le_bytes());
        push64(&mut v, &[s.value, s.size]);
    }
    v
}

impl CodeObject<'_> {
    /// The whole file in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut v = Vec::new();
        self.write_to(&mut v)?;
        Ok(v)
    }

    /// Streams the file: extra sections are written from where they lie.
    ///
    /// Fails when a kernel does not fit the target (too many registers, wrong wave size, code that is not a whole
    /// number of dwords, two kernels of one name) or when `to` fails.
    pub fn write_to(&self, to: &mut dyn Write) -> Result<(), Error> {
        let info = self.target.info();
        let mach = info.elf_mach & EF_MACH;
        let family =
            Family::of_mach(mach).ok_or_else(|| Error::NotAmdgpu(format!("no ELF machine for {}", info.name)))?;
        let mut names: Vec<&str> = self.kernels.iter().map(|k| k.name.as_str()).collect();
        names.sort_unstable();
        if let Some(w) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::Kernel { kernel: w[0].into(), what: "defined twice".into() });
        }

        // Code and descriptors.
        let mut text = Vec::new();
        let mut starts = Vec::new();
        for k in &self.kernels {
            if k.code.len() % 4 != 0 || k.code.is_empty() {
                return Err(Error::Kernel { kernel: k.name.clone(), what: format!("code of {} bytes", k.code.len()) });
            }
            let filler = family.prefetch_padding().map_or(0, |p| p.0);
            while text.len() % 256 != 0 {
                push32(&mut text, &[filler]);
            }
            starts.push(text.len() as u64);
            text.extend_from_slice(&k.code);
        }
        if let Some((word, bytes)) = family.prefetch_padding() {
            let end = text.len().next_multiple_of(family.icache_line() as usize) + bytes as usize;
            while text.len() < end {
                push32(&mut text, &[word]);
            }
        }
        let descriptors =
            self.kernels.iter().map(|k| Descriptor::for_kernel(k, mach)).collect::<Result<Vec<_>, _>>()?;

        // Sizes and places of the loaded sections.
        let note = {
            let desc = metadata::build(self.abi, info.name, mach, &self.kernels);
            let mut v = Vec::new();
            push32(&mut v, &[7, desc.len() as u32, 32]);
            v.extend_from_slice(b"AMDGPU\0\0");
            v.extend_from_slice(&desc);
            v.resize(v.len().next_multiple_of(4), 0);
            v
        };
        let count = self.kernels.len() as u64 * 2;
        let at_note = EHDR + 8 * PHDR;
        let at_dynsym = (at_note + note.len() as u64).next_multiple_of(8);
        let dynsym_size = (count + 1) * SYM;
        let at_gnu = at_dynsym + dynsym_size;
        let gnu_size = 16 + 8 + 4 + 4 * count;
        let at_hash = (at_gnu + gnu_size).next_multiple_of(4);
        let hash_size = 4 * (2 + 2 * (count + 1));
        let at_dynstr = at_hash + hash_size;
        let dynstr_size = 1 + self.kernels.iter().map(|k| 2 * k.name.len() as u64 + 5).sum::<u64>();
        let at_rodata = (at_dynstr + dynstr_size).next_multiple_of(64);
        let rodata_size = 64 * self.kernels.len() as u64;
        let at_text = (at_rodata + rodata_size).next_multiple_of(256);
        let text_addr = at_text + PAGE;
        let at_dynamic = (at_text + text.len() as u64).next_multiple_of(8);
        let dynamic_addr = at_dynamic + 2 * PAGE;
        let dynamic_size = 7 * 16;
        let relro_end = (dynamic_addr + dynamic_size).next_multiple_of(PAGE);

        // Symbols; .rodata is section 6 and .text section 7.
        let mut syms = Vec::new();
        for (i, k) in self.kernels.iter().enumerate() {
            let value = text_addr + starts[i];
            syms.push(Sym { name: k.name.clone(), value, size: k.code.len() as u64, kind: FUNC, section: 7 });
            let value = at_rodata + 64 * i as u64;
            syms.push(Sym { name: format!("{}.kd", k.name), value, size: 64, kind: OBJECT, section: 6 });
        }
        let mut dynstr = Strings::new();
        let dynsym = symbol_bytes(&syms, &mut dynstr);
        debug_assert_eq!(dynstr.0.len() as u64, dynstr_size);
        let gnu = gnu_hash_section(&syms);
        let hash = sysv_hash_section(&syms);
        let mut rodata = Vec::new();
        for (i, d) in descriptors.iter().enumerate() {
            let entry_offset = (text_addr + starts[i]) as i64 - (at_rodata + 64 * i as u64) as i64;
            rodata.extend_from_slice(&Descriptor { entry_offset, ..*d }.to_bytes());
        }
        let mut dynamic = Vec::new();
        let tags =
            [(6, at_dynsym), (11, SYM), (5, at_dynstr), (10, dynstr_size), (0x6fff_fef5, at_gnu), (4, at_hash), (0, 0)];
        for (tag, value) in tags {
            push64(&mut dynamic, &[tag, value]);
        }

        // Headers of the fixed sections, in file order.
        let sh = |name, kind, flags, addr, offset, size: u64, link, info, align, entry| Shdr {
            name,
            kind,
            flags,
            addr,
            offset,
            size,
            link,
            info,
            align,
            entry,
        };
        let relro_size = relro_end - dynamic_addr - dynamic_size;
        let at_relro = at_dynamic + dynamic_size;
        let text_size = text.len() as u64;
        #[rustfmt::skip]
        let mut headers = vec![
            sh(".note",          SHT_NOTE,     2, at_note,      at_note,    note.len() as u64, 0, 0, 4,   0),
            sh(".dynsym",        SHT_DYNSYM,   2, at_dynsym,    at_dynsym,  dynsym_size,       5, 1, 8,   SYM),
            sh(".gnu.hash",      SHT_GNU_HASH, 2, at_gnu,       at_gnu,     gnu_size,          2, 0, 8,   0),
            sh(".hash",          SHT_HASH,     2, at_hash,      at_hash,    hash_size,         2, 0, 4,   4),
            sh(".dynstr",        SHT_STRTAB,   2, at_dynstr,    at_dynstr,  dynstr_size,       0, 0, 1,   0),
            sh(".rodata",        SHT_PROGBITS, 2, at_rodata,    at_rodata,  rodata_size,       0, 0, 64,  0),
            sh(".text",          SHT_PROGBITS, 6, text_addr,    at_text,    text_size,         0, 0, 256, 0),
            sh(".dynamic",       SHT_DYNAMIC,  3, dynamic_addr, at_dynamic, dynamic_size,      5, 0, 8,   16),
            sh(".relro_padding", SHT_NOBITS,   3, dynamic_addr + dynamic_size, at_relro, relro_size, 0, 0, 1, 0),
        ];
        let mut strtab = Strings::new();
        let symtab = symbol_bytes(&syms, &mut strtab);
        let symtab_index = headers.len() as u32 + 1 + self.sections.len() as u32;

        // Places of what is not loaded.
        let mut at = at_relro;
        let mut extra = Vec::new();
        for s in &self.sections {
            at = at.next_multiple_of(PAGE);
            extra.push(at);
            at += s.data.len() as u64;
        }
        let at_symtab = at.next_multiple_of(8);
        let at_strtab = at_symtab + symtab.len() as u64;
        let at_shstrtab = at_strtab + strtab.0.len() as u64;
        let symtab_size = symtab.len() as u64;
        let strtab_size = strtab.0.len() as u64;
        let mut shstr = Strings::new();
        let mut table = vec![0; 64];
        let mut header = |h: &Shdr, name: &str| {
            push32(&mut table, &[shstr.add(name), h.kind]);
            push64(&mut table, &[h.flags, h.addr, h.offset, h.size]);
            push32(&mut table, &[h.link, h.info]);
            push64(&mut table, &[h.align, h.entry]);
        };
        for h in &headers {
            header(h, h.name);
        }
        for (s, &at) in self.sections.iter().zip(&extra) {
            header(&sh("", SHT_PROGBITS, 0, 0, at, s.data.len() as u64, 0, 0, PAGE, 0), &s.name);
        }
        headers.clear();
        header(&sh("", SHT_SYMTAB, 0, 0, at_symtab, symtab_size, symtab_index + 1, 1, 8, SYM), ".symtab");
        header(&sh("", SHT_STRTAB, 0, 0, at_strtab, strtab_size, 0, 0, 1, 0), ".strtab");
        // The table of section names counts itself.
        let shstr_size = shstr.0.len() as u64 + ".shstrtab".len() as u64 + 1;
        let name = shstr.add(".shstrtab");
        push32(&mut table, &[name, SHT_STRTAB]);
        push64(&mut table, &[0, 0, at_shstrtab, shstr_size]);
        push32(&mut table, &[0, 0]);
        push64(&mut table, &[1, 0]);
        let at_table = (at_shstrtab + shstr_size).next_multiple_of(8);
        let sections = (table.len() / 64) as u16;

        let mut out = Out { to, at: 0 };
        out.bytes(&elf_header(self.abi, info.elf_mach | info.elf_features, at_table, sections))?;
        let mut ph = Vec::new();
        let mut phdr = |kind: u32, flags: u32, offset: u64, addr: u64, file: u64, mem: u64, align: u64| {
            push32(&mut ph, &[kind, flags]);
            push64(&mut ph, &[offset, addr, addr, file, mem, align]);
        };
        let (r, w, x) = (4, 2, 1);
        let head = at_rodata + rodata_size;
        phdr(6, r, EHDR, EHDR, 8 * PHDR, 8 * PHDR, 8);
        phdr(1, r, 0, 0, head, head, PAGE);
        phdr(1, r | x, at_text, text_addr, text_size, text_size, PAGE);
        phdr(1, r | w, at_dynamic, dynamic_addr, dynamic_size, relro_end - dynamic_addr, PAGE);
        phdr(2, r | w, at_dynamic, dynamic_addr, dynamic_size, dynamic_size, 8);
        phdr(0x6474_e552, r, at_dynamic, dynamic_addr, dynamic_size, relro_end - dynamic_addr, 1);
        phdr(0x6474_e551, r | w, 0, 0, 0, 0, 0);
        phdr(4, r, at_note, at_note, note.len() as u64, note.len() as u64, 4);
        out.bytes(&ph)?;
        for (at, bytes) in [
            (at_note, &note),
            (at_dynsym, &dynsym),
            (at_gnu, &gnu),
            (at_hash, &hash),
            (at_dynstr, &dynstr.0),
            (at_rodata, &rodata),
            (at_text, &text),
            (at_dynamic, &dynamic),
        ] {
            out.pad_to(at)?;
            out.bytes(bytes)?;
        }
        for (s, &at) in self.sections.iter().zip(&extra) {
            out.pad_to(at)?;
            out.bytes(&s.data)?;
        }
        for (at, bytes) in [(at_symtab, &symtab), (at_strtab, &strtab.0), (at_shstrtab, &shstr.0), (at_table, &table)] {
            out.pad_to(at)?;
            out.bytes(bytes)?;
        }
        out.to.flush()?;
        Ok(())
    }
}

fn elf_header(abi: Abi, e_flags: u32, at_sections: u64, sections: u16) -> Vec<u8> {
    const OSABI_AMDGPU_HSA: u8 = 64;
    let version = match abi {
        Abi::V4 => 2,
        Abi::V5 => 3,
        Abi::V6 => 4,
    };
    let mut v = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, OSABI_AMDGPU_HSA, version, 0, 0, 0, 0, 0, 0, 0];
    // ET_DYN, EM_AMDGPU.
    for half in [3u16, 224] {
        v.extend_from_slice(&half.to_le_bytes());
    }
    push32(&mut v, &[1]);
    push64(&mut v, &[0, EHDR, at_sections]);
    push32(&mut v, &[e_flags]);
    for half in [EHDR as u16, PHDR as u16, 8, 64, sections, sections - 1] {
        v.extend_from_slice(&half.to_le_bytes());
    }
    v
}

/// One bucket: lookups of a handful of kernels need no more, and symbols keep their order.
fn gnu_hash_section(syms: &[Sym]) -> Vec<u8> {
    const SHIFT: u32 = 26;
    let mut bloom = 0u64;
    for s in syms {
        let h = gnu_hash(&s.name);
        bloom |= 1 << (h % 64) | 1 << ((h >> SHIFT) % 64);
    }
    let mut v = Vec::new();
    push32(&mut v, &[1, 1, 1, SHIFT]);
    push64(&mut v, &[bloom]);
    push32(&mut v, &[u32::from(!syms.is_empty())]);
    for (i, s) in syms.iter().enumerate() {
        let last = u32::from(i + 1 == syms.len());
        push32(&mut v, &[gnu_hash(&s.name) & !1 | last]);
    }
    v
}

fn sysv_hash_section(syms: &[Sym]) -> Vec<u8> {
    let n = syms.len() as u32 + 1;
    let mut buckets = vec![0u32; n as usize];
    let mut chains = vec![0u32; n as usize];
    for (i, s) in syms.iter().enumerate() {
        let b = (sysv_hash(&s.name) % n) as usize;
        chains[i + 1] = buckets[b];
        buckets[b] = i as u32 + 1;
    }
    let mut v = Vec::new();
    push32(&mut v, &[n, n]);
    push32(&mut v, &buckets);
    push32(&mut v, &chains);
    v
}
