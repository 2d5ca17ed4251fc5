//! The pieces of an ELF64 file: numbers of the specification, tables, headers.

use super::Abi;
use std::io::{self, Write};

pub const EHDR: u64 = 64;
pub const PHDR: u64 = 56;
pub const SHDR: u64 = 64;
pub const SYM: u64 = 24;
pub const RELA: u64 = 24;

pub const SHT_PROGBITS: u32 = 1;
pub const SHT_SYMTAB: u32 = 2;
pub const SHT_STRTAB: u32 = 3;
pub const SHT_RELA: u32 = 4;
pub const SHT_HASH: u32 = 5;
pub const SHT_DYNAMIC: u32 = 6;
pub const SHT_NOTE: u32 = 7;
pub const SHT_NOBITS: u32 = 8;
pub const SHT_DYNSYM: u32 = 11;
pub const SHT_GNU_HASH: u32 = 0x6fff_fff6;
pub const SHF_WRITE: u64 = 1;
pub const SHF_ALLOC: u64 = 2;
pub const SHF_EXEC: u64 = 4;
pub const SHN_ABS: u16 = 0xfff1;

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_NOTE: u32 = 4;
pub const PT_PHDR: u32 = 6;
pub const PT_GNU_STACK: u32 = 0x6474_e551;
pub const PT_GNU_RELRO: u32 = 0x6474_e552;

pub const DT_HASH: u64 = 4;
pub const DT_STRTAB: u64 = 5;
pub const DT_SYMTAB: u64 = 6;
pub const DT_RELA: u64 = 7;
pub const DT_RELASZ: u64 = 8;
pub const DT_RELAENT: u64 = 9;
pub const DT_STRSZ: u64 = 10;
pub const DT_SYMENT: u64 = 11;
pub const DT_GNU_HASH: u64 = 0x6fff_fef5;
pub const DT_RELACOUNT: u64 = 0x6fff_fff9;

pub const STT_NOTYPE: u8 = 0;
pub const STT_OBJECT: u8 = 1;
pub const STT_FUNC: u8 = 2;
pub const STB_LOCAL: u8 = 0;
pub const STB_GLOBAL: u8 = 1;
pub const STB_WEAK: u8 = 2;
pub const STV_DEFAULT: u8 = 0;
pub const STV_HIDDEN: u8 = 2;
pub const STV_PROTECTED: u8 = 3;

/// A string table under construction.
pub struct Strings(pub Vec<u8>);

impl Strings {
    pub fn new() -> Strings {
        Strings(vec![0])
    }
    /// Adds a string and returns its offset.
    pub fn add(&mut self, s: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(s.as_bytes());
        self.0.push(0);
        at
    }
}

/// An entry of a symbol table.
pub struct Sym {
    pub name: u32,
    pub info: u8,
    pub visibility: u8,
    pub section: u16,
    pub value: u64,
    pub size: u64,
}

/// A symbol table, its empty first entry included.
pub fn symbols(list: impl Iterator<Item = Sym>) -> Vec<u8> {
    let mut v = vec![0; SYM as usize];
    for s in list {
        push32(&mut v, &[s.name]);
        v.extend_from_slice(&[s.info, s.visibility]);
        v.extend_from_slice(&s.section.to_le_bytes());
        push64(&mut v, &[s.value, s.size]);
    }
    v
}

/// A section header.
pub struct Shdr {
    pub name: u32,
    pub kind: u32,
    pub flags: u64,
    pub addr: u64,
    pub offset: u64,
    pub size: u64,
}

impl Shdr {
    pub fn push(&self, table: &mut Vec<u8>, link: u32, info: u32, align: u64, entry: u64) {
        push32(table, &[self.name, self.kind]);
        push64(table, &[self.flags, self.addr, self.offset, self.size]);
        push32(table, &[link, info]);
        push64(table, &[align, entry]);
    }
}

pub fn push32(v: &mut Vec<u8>, words: &[u32]) {
    for w in words {
        v.extend_from_slice(&w.to_le_bytes());
    }
}

pub fn push64(v: &mut Vec<u8>, words: &[u64]) {
    for w in words {
        v.extend_from_slice(&w.to_le_bytes());
    }
}

/// Bytes written so far are known, so sections can be aligned while streaming.
pub struct Out<'w> {
    pub to: &'w mut dyn Write,
    pub at: u64,
}

impl Out<'_> {
    pub fn bytes(&mut self, b: &[u8]) -> io::Result<()> {
        self.to.write_all(b)?;
        self.at += b.len() as u64;
        Ok(())
    }
    /// Bytes that are made as they are written; an error when they are not as many as was said.
    pub fn made(&mut self, make: &dyn super::MakeBytes) -> io::Result<()> {
        let mut counted = Out { to: &mut *self.to, at: 0 };
        make.write_to(&mut counted)?;
        if counted.at != make.len() as u64 {
            return Err(io::Error::other(format!("{} bytes were made, not {}", counted.at, make.len())));
        }
        self.at += counted.at;
        Ok(())
    }
    pub fn pad_to(&mut self, offset: u64) -> io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        debug_assert!(offset >= self.at);
        while self.at < offset {
            let n = (offset - self.at).min(4096) as usize;
            self.bytes(&ZEROS[..n])?;
        }
        Ok(())
    }
}

impl Write for Out<'_> {
    fn write(&mut self, b: &[u8]) -> io::Result<usize> {
        let n = self.to.write(b)?;
        self.at += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The file header of an AMDHSA code object.
pub fn header(abi: Abi, e_flags: u32, at_sections: u64, segments: u16, sections: u16) -> Vec<u8> {
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
    for half in [EHDR as u16, PHDR as u16, segments, SHDR as u16, sections, sections - 1] {
        v.extend_from_slice(&half.to_le_bytes());
    }
    v
}

/// The note that holds the metadata.
pub fn note(metadata: &[u8]) -> Vec<u8> {
    const NT_AMDGPU_METADATA: u32 = 32;
    let mut v = Vec::new();
    push32(&mut v, &[7, metadata.len() as u32, NT_AMDGPU_METADATA]);
    v.extend_from_slice(b"AMDGPU\0\0");
    v.extend_from_slice(metadata);
    v.resize(v.len().next_multiple_of(4), 0);
    v
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

/// Buckets of the GNU hash table of `n` symbols: as many as lld makes, so that layouts agree.
fn gnu_buckets(n: usize) -> u32 {
    (n as u32 / 4).max(1)
}

/// Words of its filter.
fn gnu_filter_words(n: usize) -> usize {
    (n * 12 / 64 + 1).next_power_of_two()
}

/// Size of the GNU hash table of `n` symbols, bytes.
pub fn gnu_hash_size(n: usize) -> u64 {
    16 + 8 * gnu_filter_words(n) as u64 + 4 * u64::from(gnu_buckets(n)) + 4 * n as u64
}

/// Which bucket of `n` symbols a name falls into: the dynamic symbol table must be in this order.
pub fn gnu_bucket(name: &str, n: usize) -> u32 {
    gnu_hash(name) % gnu_buckets(n)
}

/// Hash table of the symbols from index `first + 1` on, which are in order of their buckets.
pub fn gnu_hash_section(names: &[&str], first: u64) -> Vec<u8> {
    const SHIFT: u32 = 26;
    let (n, first) = (names.len(), first as u32 + 1);
    let mut filter = vec![0u64; gnu_filter_words(n)];
    let mut buckets = vec![0u32; gnu_buckets(n) as usize];
    let mut chain = Vec::new();
    for (i, s) in names.iter().enumerate() {
        let (h, bucket) = (gnu_hash(s), gnu_bucket(s, n));
        let at = (h / 64) as usize % filter.len();
        filter[at] |= 1 << (h % 64) | 1 << ((h >> SHIFT) % 64);
        if buckets[bucket as usize] == 0 {
            buckets[bucket as usize] = first + i as u32;
        }
        let last = names.get(i + 1).is_none_or(|s| gnu_bucket(s, n) != bucket);
        chain.push(h & !1 | u32::from(last));
    }
    let mut v = Vec::new();
    push32(&mut v, &[buckets.len() as u32, first, filter.len() as u32, SHIFT]);
    push64(&mut v, &filter);
    push32(&mut v, &buckets);
    push32(&mut v, &chain);
    v
}

/// Hash table of all symbols.
pub fn sysv_hash_section(names: &[&str]) -> Vec<u8> {
    let n = names.len() as u32 + 1;
    let mut buckets = vec![0u32; n as usize];
    let mut chains = vec![0u32; n as usize];
    for (i, s) in names.iter().enumerate() {
        let b = (sysv_hash(s) % n) as usize;
        chains[i + 1] = buckets[b];
        buckets[b] = i as u32 + 1;
    }
    let mut v = Vec::new();
    push32(&mut v, &[n, n]);
    push32(&mut v, &buckets);
    push32(&mut v, &chains);
    v
}
