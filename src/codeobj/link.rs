//! Layout of a code object in memory and in the file, as lld lays out a shared object, and its relocations.
//!
//! File order: header, program headers, note, dynsym, gnu.hash, hash, dynstr, rela.dyn, read-only sections | code |
//! dynamic | global offset table, data | extra sections (page aligned, not loaded), symtab, strtab, shstrtab, section
//! headers. Each loaded part gets addresses one page further from its file offset than the part before, so that no page
//! has two protections and none is stored twice.
//!
//! Relocations whose value follows from the layout are applied here; addresses that only a loader knows become dynamic
//! relocations.

use super::elf::{self, Out, Shdr, Strings, Sym, push32, push64};
use super::{Abi, Contents, Error, Section};
use barewave_isa::RelocationKind;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

const PAGE: u64 = 0x1000;
/// Most sections of a file: their numbers have 16 bits, the last 256 are taken, and up to 15 sections are our own.
const MOST_SECTIONS: usize = 0xff00 - 15;

/// Which part of the address space a section belongs to, in order of address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Access {
    Read,
    Execute,
    Write,
}

/// A section that is loaded.
pub(super) struct Loaded {
    pub name: String,
    pub access: Access,
    /// Bytes, a power of two.
    pub align: u64,
    pub bytes: Vec<u8>,
    /// It is `bytes.len()` zeros and takes no space in the file.
    pub zeros: bool,
}

/// What a symbol's value means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// Another file defines it.
    Undefined,
    /// A plain number.
    Absolute,
    /// An offset in a section.
    Section(usize),
}

pub(super) struct LinkSymbol {
    pub name: String,
    pub home: Home,
    pub value: u64,
    pub size: u64,
    /// STT_*.
    pub kind: u8,
    /// STB_*.
    pub binding: u8,
    /// STV_*.
    pub visibility: u8,
}

impl LinkSymbol {
    fn exported(&self) -> bool {
        self.binding != elf::STB_LOCAL && self.visibility != elf::STV_HIDDEN
    }
}

/// A place that gets its value from a symbol's address.
pub(super) struct Fixup {
    pub section: usize,
    pub offset: u64,
    /// Index into the image's symbols.
    pub symbol: usize,
    pub kind: RelocationKind,
    pub addend: i64,
}

/// Everything that goes into the file.
pub(super) struct Image<'a> {
    pub abi: Abi,
    pub e_flags: u32,
    /// Metadata: the contents of the note.
    pub metadata: Option<Vec<u8>>,
    pub sections: Vec<Loaded>,
    pub symbols: Vec<LinkSymbol>,
    pub fixups: Vec<Fixup>,
    pub extra: &'a [Section<'a>],
}

/// `R_AMDGPU_*` of the dynamic relocations that we write.
const R_ABS64: u64 = 3;
const R_RELATIVE64: u64 = 13;

/// A section with its place.
struct Placed {
    name: String,
    kind: u32,
    flags: u64,
    addr: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
    bytes: Vec<u8>,
}

impl Image<'_> {
    /// Forgets symbols that are only declared: what is never used is not asked for.
    pub fn drop_unused(&mut self) {
        let used: BTreeSet<usize> = self.fixups.iter().map(|f| f.symbol).collect();
        let mut new = Vec::with_capacity(self.symbols.len());
        let mut kept = Vec::new();
        for (i, s) in std::mem::take(&mut self.symbols).into_iter().enumerate() {
            new.push(kept.len());
            if s.home != Home::Undefined || used.contains(&i) {
                kept.push(s);
            }
        }
        self.symbols = kept;
        self.fixups.iter_mut().for_each(|f| f.symbol = new[f.symbol]);
    }

    /// Writes the file. Fails when a symbol is missing, a distance does not fit its field, or `to` fails.
    pub fn write_to(mut self, to: &mut dyn Write) -> Result<(), Error> {
        let got = self.add_got();
        if self.sections.len() + self.extra.len() > MOST_SECTIONS {
            let what = format!("{} sections, of which an ELF file can number {MOST_SECTIONS}", self.sections.len());
            return Err(Error::malformed(what, "the section headers"));
        }
        self.sort_sections();
        let dynamic_symbols = self.dynamic_symbols();
        // Addresses that the loader fills in, and how many of them only move with the file.
        let home = |f: &Fixup| self.symbols[f.symbol].home;
        let dynamic = self.fixups.iter().filter(|f| f.kind == RelocationKind::Abs64 && home(f) != Home::Absolute);
        let (dynamic_places, relative) = dynamic
            .fold((0u64, 0u64), |(all, relative), f| (all + 1, relative + u64::from(home(f) != Home::Undefined)));

        // Sizes of the head.
        let note = self.metadata.as_deref().map(elf::note);
        let mut dynstr = Strings::new();
        let names: Vec<u32> = dynamic_symbols.iter().map(|&i| dynstr.add(&self.symbols[i].name)).collect();
        let count = dynamic_symbols.len() as u64;
        let used = |a: Access| self.sections.iter().any(|s| s.access == a);
        // PHDR, LOAD head, LOAD relro, DYNAMIC, RELRO, STACK, and what there is of code, data and note.
        let segments =
            6 + u64::from(used(Access::Execute)) + u64::from(used(Access::Write)) + u64::from(note.is_some());

        let mut placed: Vec<Placed> = Vec::new();
        let mut at = elf::EHDR + segments * elf::PHDR;
        let mut shift = 0;
        let mut head = |name: &str, kind, flags, size: u64, align: u64, entry| {
            at = at.next_multiple_of(align);
            let p = Placed {
                name: name.into(),
                kind,
                flags,
                addr: at,
                offset: at,
                size,
                link: 0,
                info: 0,
                align,
                entry,
                bytes: Vec::new(),
            };
            at += size;
            placed.push(p);
            placed.len() - 1
        };
        let alloc = elf::SHF_ALLOC;
        let i_note = note.as_ref().map(|n| head(".note", elf::SHT_NOTE, alloc, n.len() as u64, 4, 0));
        let defined = dynamic_symbols.iter().filter(|&&i| self.symbols[i].home != Home::Undefined).count();
        let i_dynsym = head(".dynsym", elf::SHT_DYNSYM, alloc, (count + 1) * elf::SYM, 8, elf::SYM);
        let i_gnu = head(".gnu.hash", elf::SHT_GNU_HASH, alloc, elf::gnu_hash_size(defined), 8, 0);
        let i_hash = head(".hash", elf::SHT_HASH, alloc, 4 * (2 + 2 * (count + 1)), 4, 4);
        let i_dynstr = head(".dynstr", elf::SHT_STRTAB, alloc, dynstr.0.len() as u64, 1, 0);
        let i_rela = (dynamic_places > 0)
            .then(|| head(".rela.dyn", elf::SHT_RELA, alloc, dynamic_places * elf::RELA, 8, elf::RELA));

        // Loaded sections; `index` is the place in `placed` of each.
        let mut index = Vec::new();
        let place = |access: Access, at: &mut u64, shift: u64, placed: &mut Vec<Placed>, index: &mut Vec<usize>| {
            for s in self.sections.iter().filter(|s| s.access == access) {
                *at = at.next_multiple_of(s.align);
                let flags = match access {
                    Access::Read => alloc,
                    Access::Execute => alloc | elf::SHF_EXEC,
                    Access::Write => alloc | elf::SHF_WRITE,
                };
                let kind = if s.zeros { elf::SHT_NOBITS } else { elf::SHT_PROGBITS };
                let size = s.bytes.len() as u64;
                index.push(placed.len());
                placed.push(Placed {
                    name: s.name.clone(),
                    kind,
                    flags,
                    addr: *at + shift,
                    offset: *at,
                    size,
                    link: 0,
                    info: 0,
                    align: s.align,
                    entry: 0,
                    bytes: Vec::new(),
                });
                if !s.zeros {
                    *at += size;
                }
            }
        };
        place(Access::Read, &mut at, shift, &mut placed, &mut index);
        let head_end = at;
        if used(Access::Execute) {
            shift += PAGE;
            place(Access::Execute, &mut at, shift, &mut placed, &mut index);
        }
        let code = placed.iter().filter(|p| p.flags & elf::SHF_EXEC != 0).map(|p| p.offset).next().unwrap_or(at);
        let code_end = at;
        let code_shift = shift;
        shift += PAGE;
        at = at.next_multiple_of(8);
        let mut tags = vec![
            (elf::DT_SYMTAB, placed[i_dynsym].addr),
            (elf::DT_SYMENT, elf::SYM),
            (elf::DT_STRTAB, placed[i_dynstr].addr),
            (elf::DT_STRSZ, placed[i_dynstr].size),
            (elf::DT_GNU_HASH, placed[i_gnu].addr),
            (elf::DT_HASH, placed[i_hash].addr),
        ];
        if let Some(i) = i_rela {
            tags.extend([
                (elf::DT_RELA, placed[i].addr),
                (elf::DT_RELASZ, placed[i].size),
                (elf::DT_RELAENT, elf::RELA),
                (elf::DT_RELACOUNT, relative),
            ]);
            placed[i].link = i_dynsym as u32 + 1;
        }
        tags.push((0, 0));
        let mut dynamic = Vec::new();
        tags.iter().for_each(|&(tag, value)| push64(&mut dynamic, &[tag, value]));
        let i_dynamic = placed.len();
        let dynamic_addr = at + shift;
        placed.push(Placed {
            name: ".dynamic".into(),
            kind: elf::SHT_DYNAMIC,
            flags: alloc | elf::SHF_WRITE,
            addr: dynamic_addr,
            offset: at,
            size: dynamic.len() as u64,
            link: i_dynstr as u32 + 1,
            info: 0,
            align: 8,
            entry: 16,
            bytes: dynamic,
        });
        at += placed[i_dynamic].size;
        let relro_end = (at + shift).next_multiple_of(PAGE);
        placed.push(Placed {
            name: ".relro_padding".into(),
            kind: elf::SHT_NOBITS,
            flags: alloc | elf::SHF_WRITE,
            addr: at + shift,
            offset: at,
            size: relro_end - at - shift,
            link: 0,
            info: 0,
            align: 1,
            entry: 0,
            bytes: Vec::new(),
        });
        let relro_shift = shift;
        let data = at;
        if used(Access::Write) {
            shift += PAGE;
            place(Access::Write, &mut at, shift, &mut placed, &mut index);
        }
        // Zeros follow the data in memory only.
        let mut memory_end = at + shift;
        for p in placed.iter_mut().filter(|p| p.kind == elf::SHT_NOBITS && p.name != ".relro_padding") {
            p.addr = memory_end.next_multiple_of(p.align);
            memory_end = p.addr + p.size;
        }

        let links =
            [(i_dynsym, i_dynstr as u32 + 1, 1), (i_gnu, i_dynsym as u32 + 1, 0), (i_hash, i_dynsym as u32 + 1, 0)];
        for (i, link, info) in links {
            (placed[i].link, placed[i].info) = (link, info);
        }

        // Values.
        let address = |s: &LinkSymbol| match s.home {
            Home::Section(i) => placed[index[i]].addr.wrapping_add(s.value),
            _ => s.value,
        };
        let rela = self.resolve(&placed, &index, &got, &dynamic_symbols, &address)?;
        let symbol = |i: usize, name: u32| {
            let s = &self.symbols[i];
            let section = match s.home {
                Home::Undefined => 0,
                Home::Absolute => elf::SHN_ABS,
                Home::Section(i) => index[i] as u16 + 1,
            };
            let info = s.binding << 4 | s.kind;
            Sym { name, info, visibility: s.visibility, section, value: address(s), size: s.size }
        };
        let dynsym = elf::symbols(dynamic_symbols.iter().zip(&names).map(|(&i, &n)| symbol(i, n)));
        let mut strtab = Strings::new();
        let (locals, globals): (Vec<usize>, Vec<usize>) = (0..self.symbols.len())
            .filter(|&i| !self.symbols[i].name.starts_with(".L"))
            .partition(|&i| self.symbols[i].binding == elf::STB_LOCAL);
        let all = locals.iter().chain(&globals);
        let symtab = elf::symbols(all.map(|&i| symbol(i, strtab.add(&self.symbols[i].name))));
        let dynamic_names: Vec<&str> = dynamic_symbols.iter().map(|&i| self.symbols[i].name.as_str()).collect();
        placed[i_gnu].bytes =
            elf::gnu_hash_section(&dynamic_names[dynamic_names.len() - defined..], count - defined as u64);
        placed[i_hash].bytes = elf::sysv_hash_section(&dynamic_names);
        placed[i_dynsym].bytes = dynsym;
        placed[i_dynstr].bytes = dynstr.0;
        if let (Some(i), Some(note)) = (i_note, note) {
            placed[i].bytes = note;
        }
        if let Some(i) = i_rela {
            placed[i].bytes = rela;
        }
        for (s, &i) in self.sections.into_iter().zip(&index) {
            if !s.zeros {
                placed[i].bytes = s.bytes;
            }
        }

        // What is not loaded.
        let symtab_index = placed.len() as u32 + 1 + self.extra.len() as u32;
        let mut shstr = Strings::new();
        let mut table = vec![0; elf::SHDR as usize];
        for p in &placed {
            let name = shstr.add(&p.name);
            let h = Shdr { name, kind: p.kind, flags: p.flags, addr: p.addr, offset: p.offset, size: p.size };
            h.push(&mut table, p.link, p.info, p.align, p.entry);
        }
        let mut extra = Vec::new();
        for s in self.extra {
            at = at.next_multiple_of(PAGE);
            let (name, size) = (shstr.add(&s.name), s.data.len() as u64);
            let h = Shdr { name, kind: elf::SHT_PROGBITS, flags: 0, addr: 0, offset: at, size };
            h.push(&mut table, 0, 0, PAGE, 0);
            extra.push(at);
            at += size;
        }
        let at_symtab = at.next_multiple_of(8);
        let at_strtab = at_symtab + symtab.len() as u64;
        let at_shstrtab = at_strtab + strtab.0.len() as u64;
        let name = shstr.add(".symtab");
        let size = symtab.len() as u64;
        let h = Shdr { name, kind: elf::SHT_SYMTAB, flags: 0, addr: 0, offset: at_symtab, size };
        h.push(&mut table, symtab_index + 1, locals.len() as u32 + 1, 8, elf::SYM);
        for (name, offset) in [(".strtab", at_strtab), (".shstrtab", at_shstrtab)] {
            let index = shstr.add(name);
            let size = if offset == at_strtab { strtab.0.len() } else { shstr.0.len() } as u64;
            let h = Shdr { name: index, kind: elf::SHT_STRTAB, flags: 0, addr: 0, offset, size };
            h.push(&mut table, 0, 0, 1, 0);
        }
        let at_table = (at_shstrtab + shstr.0.len() as u64).next_multiple_of(8);
        let sections = (table.len() as u64 / elf::SHDR) as u16;

        let mut ph = Vec::new();
        let mut phdr = |kind: u32, flags: u32, offset: u64, addr: u64, file: u64, mem: u64, align: u64| {
            push32(&mut ph, &[kind, flags]);
            push64(&mut ph, &[offset, addr, addr, file, mem, align]);
        };
        let (r, w, x) = (4, 2, 1);
        let phdrs = segments * elf::PHDR;
        phdr(elf::PT_PHDR, r, elf::EHDR, elf::EHDR, phdrs, phdrs, 8);
        phdr(elf::PT_LOAD, r, 0, 0, head_end, head_end, PAGE);
        if placed.iter().any(|p| p.flags & elf::SHF_EXEC != 0) {
            let size = code_end - code;
            phdr(elf::PT_LOAD, r | x, code, code + code_shift, size, size, PAGE);
        }
        let d = &placed[i_dynamic];
        phdr(elf::PT_LOAD, r | w, d.offset, d.addr, d.size, relro_end - d.addr, PAGE);
        if shift > relro_shift {
            let end = placed.iter().filter(|p| p.kind != elf::SHT_NOBITS && p.flags & elf::SHF_WRITE != 0);
            let end = end.map(|p| p.offset + p.size).max().unwrap_or(data);
            phdr(elf::PT_LOAD, r | w, data, data + shift, end - data, memory_end - data - shift, PAGE);
        }
        phdr(elf::PT_DYNAMIC, r | w, d.offset, d.addr, d.size, d.size, 8);
        phdr(elf::PT_GNU_RELRO, r, d.offset, d.addr, d.size, relro_end - d.addr, 1);
        phdr(elf::PT_GNU_STACK, r | w, 0, 0, 0, 0, 0);
        if let Some(i) = i_note {
            let n = &placed[i];
            phdr(elf::PT_NOTE, r, n.offset, n.addr, n.size, n.size, 4);
        }

        let mut out = Out { to, at: 0 };
        out.bytes(&elf::header(self.abi, self.e_flags, at_table, segments as u16, sections))?;
        out.bytes(&ph)?;
        for p in placed.iter().filter(|p| !p.bytes.is_empty()) {
            out.pad_to(p.offset)?;
            out.bytes(&p.bytes)?;
        }
        for (s, &at) in self.extra.iter().zip(&extra) {
            out.pad_to(at)?;
            match &s.data {
                Contents::Bytes(bytes) => out.bytes(bytes)?,
                Contents::Made(make) => out.made(*make)?,
            }
        }
        for (at, bytes) in [(at_symtab, &symtab), (at_strtab, &strtab.0), (at_shstrtab, &shstr.0), (at_table, &table)] {
            out.pad_to(at)?;
            out.bytes(bytes)?;
        }
        out.to.flush()?;
        Ok(())
    }

    /// Makes a global offset table of the symbols that are reached through one: offset of each symbol's entry.
    fn add_got(&mut self) -> BTreeMap<usize, u64> {
        let mut entries = BTreeMap::new();
        for f in &self.fixups {
            if matches!(f.kind, RelocationKind::GotPcRel32Lo | RelocationKind::GotPcRel32Hi) {
                let offset = 8 * entries.len() as u64;
                entries.entry(f.symbol).or_insert(offset);
            }
        }
        if entries.is_empty() {
            return entries;
        }
        let section = self.sections.len();
        for (&symbol, &offset) in &entries {
            self.fixups.push(Fixup { section, offset, symbol, kind: RelocationKind::Abs64, addend: 0 });
        }
        let bytes = vec![0; 8 * entries.len()];
        self.sections.push(Loaded { name: ".got".into(), access: Access::Write, align: 8, bytes, zeros: false });
        entries
    }

    /// Brings the sections into the order of the file, zeros last.
    fn sort_sections(&mut self) {
        let mut order: Vec<usize> = (0..self.sections.len()).collect();
        order.sort_by_key(|&i| (self.sections[i].access, self.sections[i].zeros));
        let mut new = vec![0; order.len()];
        for (to, &from) in order.iter().enumerate() {
            new[from] = to;
        }
        let mut old: Vec<Option<Loaded>> = std::mem::take(&mut self.sections).into_iter().map(Some).collect();
        self.sections = order.iter().filter_map(|&i| old[i].take()).collect();
        for s in &mut self.symbols {
            if let Home::Section(i) = &mut s.home {
                *i = new[*i];
            }
        }
        for f in &mut self.fixups {
            f.section = new[f.section];
        }
    }

    /// Symbols that other files see or define: undefined ones, then the others in order of their hash buckets.
    fn dynamic_symbols(&self) -> Vec<usize> {
        let mut list: Vec<usize> = (0..self.symbols.len()).filter(|&i| self.symbols[i].exported()).collect();
        let defined = list.iter().filter(|&&i| self.symbols[i].home != Home::Undefined).count();
        list.sort_by_key(|&i| match self.symbols[i].home {
            Home::Undefined => (false, 0),
            _ => (true, elf::gnu_bucket(&self.symbols[i].name, defined)),
        });
        list
    }

    /// Applies what the layout decides and returns the dynamic relocations of the rest.
    fn resolve(
        &mut self,
        placed: &[Placed],
        index: &[usize],
        got: &BTreeMap<usize, u64>,
        dynamic_symbols: &[usize],
        address: &dyn Fn(&LinkSymbol) -> u64,
    ) -> Result<Vec<u8>, Error> {
        // Relative ones come first.
        let (mut rela, mut named) = (Vec::new(), Vec::new());
        let dynamic: BTreeMap<usize, u64> = dynamic_symbols.iter().copied().zip(0..).collect();
        let got_section = self.sections.iter().position(|s| s.name == ".got");
        for f in &self.fixups {
            use RelocationKind::*;
            let symbol = &self.symbols[f.symbol];
            let bad =
                |what: String| Error::malformed(what, format!("{}+{:#x}", self.sections[f.section].name, f.offset));
            let size = match f.kind {
                Abs64 | Rel64 => 8,
                Rel16 => 2,
                _ => 4,
            };
            let field = f.offset as usize..(f.offset as usize).saturating_add(size);
            if self.sections[f.section].bytes.get(field.clone()).is_none() {
                return Err(bad("a relocation outside of its section".into()));
            }
            let p = placed[index[f.section]].addr.wrapping_add(f.offset);
            if symbol.home == Home::Undefined {
                let Some(at) = dynamic.get(&f.symbol).filter(|_| f.kind == Abs64) else {
                    return Err(bad(format!("`{}` is not defined", symbol.name)));
                };
                push64(&mut named, &[p, (at + 1) << 32 | R_ABS64, f.addend as u64]);
                continue;
            }
            let s = address(symbol).wrapping_add_signed(f.addend);
            let near = s.wrapping_sub(p);
            let far = || {
                let entry = got.get(&f.symbol).copied().unwrap_or(0);
                let table = got_section.map_or(0, |i| placed[index[i]].addr);
                (table + entry).wrapping_add_signed(f.addend).wrapping_sub(p)
            };
            let value = match f.kind {
                Abs64 if symbol.home != Home::Absolute => {
                    push64(&mut rela, &[p, R_RELATIVE64, s]);
                    continue;
                }
                Abs32 | Abs32Lo | Abs32Hi if symbol.home != Home::Absolute => {
                    let what = format!("the address of `{}` does not fit 32 bits: use rel32", symbol.name);
                    return Err(bad(what));
                }
                Abs64 | Abs32 | Abs32Lo => s,
                Abs32Hi => s >> 32,
                Rel64 => near,
                Rel32 if i32::try_from(near as i64).is_err() => {
                    return Err(bad(format!("`{}` is out of reach", symbol.name)));
                }
                Rel32 | Rel32Lo => near,
                Rel32Hi => near >> 32,
                GotPcRel32Lo => far(),
                GotPcRel32Hi => far() >> 32,
                Rel16 => {
                    let distance = (near as i64 - 4) / 4;
                    if i16::try_from(distance).is_err() || near % 4 != 0 {
                        return Err(bad(format!("`{}` is out of a branch's reach", symbol.name)));
                    }
                    distance as u64 & 0xffff
                }
            };
            self.sections[f.section].bytes[field].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        rela.extend(named);
        Ok(rela)
    }
}
