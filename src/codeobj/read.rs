//! Reading code objects of any compiler, version 2 to 6. Every offset in the file is suspect: all slices are checked
//! and errors name the place.

use super::family::EF_MACH;
use super::{Descriptor, Error, Family, KernelMeta, TargetId, elf, metadata};
use crate::text::printable;
use barewave_isa::{Target, Visibility};
use goblin::elf::Elf;
use goblin::elf::header::{EM_AMDGPU, ET_REL};
use goblin::elf::program_header::{PT_LOAD, PT_NOTE};
use std::ops::Range;

/// A part of the file that is loaded into device memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Address relative to the load address.
    pub addr: u64,
    /// Size in memory, bytes; what lies beyond the file's part is zero.
    pub mem_size: u64,
    /// Bytes of the file.
    pub file: Range<usize>,
    /// May be executed.
    pub executable: bool,
    /// May be written.
    pub writable: bool,
}

/// What a symbol names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolKind {
    /// Code.
    Function,
    /// Data: kernel descriptors, global variables.
    Object,
    /// Anything else.
    Other,
}

/// A symbol with an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// Address relative to the load address.
    pub addr: u64,
    /// Size in bytes.
    pub size: u64,
    /// What it names.
    pub kind: SymbolKind,
    /// False for symbols that another file must define.
    pub defined: bool,
    /// It is a number, not a place.
    pub absolute: bool,
    /// Other files see it.
    pub global: bool,
    /// Other files cannot replace it (protected) or cannot see it (hidden).
    pub visibility: Visibility,
}

/// A dynamic relocation to apply after loading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// Address to patch, relative to the load address.
    pub addr: u64,
    /// `R_AMDGPU_*` number.
    pub kind: u32,
    /// Index into the file's [`ElfFile::dynamic_symbols`].
    pub symbol: usize,
    /// Addend.
    pub addend: i64,
}

/// A kernel of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelInfo {
    /// Name as given to `hipModuleGetFunction`.
    pub name: String,
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// Address of the descriptor, relative to the load address.
    pub descriptor_addr: u64,
    /// Address of the first instruction, relative to the load address.
    pub entry: u64,
    /// Size of the code, bytes, as far as the symbol tells (else 0).
    pub code_size: u64,
    /// Metadata, where the file has some.
    pub meta: Option<KernelMeta>,
}

impl KernelInfo {
    /// Bytes of kernel arguments: the descriptor's word, or the metadata's.
    pub fn kernarg_size(&self) -> u32 {
        self.descriptor.kernarg_size.max(self.meta.as_ref().map_or(0, |m| m.kernarg_size))
    }
}

/// A code object as read. Holds ranges into the file, not copies.
#[derive(Clone, Debug)]
pub struct ElfFile {
    /// EF_AMDGPU_MACH value.
    pub mach: u32,
    /// Generation.
    pub family: Family,
    /// The target, when our instruction tables know it.
    pub target: Option<Target>,
    /// Target string of the metadata (`amdgcn-amd-amdhsa--gfx942`), or empty.
    pub target_name: String,
    /// Formats of printf that its kernels refer to (`amdhsa.printf` of the metadata), as they are.
    pub formats: Vec<String>,
    /// Code object version, 2 to 6.
    pub version: u8,
    /// `e_flags` as found.
    pub e_flags: u32,
    /// What to load, in order of address.
    pub segments: Vec<Segment>,
    /// Kernels, in order of address.
    pub kernels: Vec<KernelInfo>,
    /// All symbols with a name, static table first choice, in order of address.
    pub symbols: Vec<Symbol>,
    /// The dynamic symbol table, by index.
    pub dynamic_symbols: Vec<Symbol>,
    /// Relocations to apply.
    pub relocations: Vec<Relocation>,
    /// All named sections.
    pub sections: Vec<SectionInfo>,
    /// The metadata: MessagePack (code object version 3 on).
    pub metadata: Option<Range<usize>>,
}

/// A named section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SectionInfo {
    /// Name.
    pub name: String,
    /// Address relative to the load address; 0 when it is not loaded.
    pub addr: u64,
    /// Size in memory, bytes.
    pub size: u64,
    /// Bytes of the file; empty for a section of zeros.
    pub file: Range<usize>,
    /// It is loaded.
    pub loaded: bool,
    /// It may be written.
    pub writable: bool,
    /// It holds code.
    pub executable: bool,
    /// Bytes, a power of two.
    pub align: u64,
}

const NOTE_METADATA: u32 = 32;
const STT_AMDGPU_HSA_KERNEL: u8 = 10;

pub(super) fn range(bytes: &[u8], offset: u64, size: u64, what: &str) -> Result<Range<usize>, Error> {
    let end = offset.checked_add(size).filter(|&e| e <= bytes.len() as u64);
    match end {
        Some(end) => Ok(offset as usize..end as usize),
        None => Err(Error::malformed(
            format!("{what} of {size} bytes runs past the end of the file"),
            format!("offset {offset:#x}"),
        )),
    }
}

/// Copies names out of string tables, as many bytes as a file of its size may hold: names that overlap would otherwise
/// multiply.
pub(super) struct Names {
    left: usize,
}

impl Names {
    /// For a file of so many bytes. Linkers let names share their ends, which is why they may be longer than the file.
    pub fn new(file: usize) -> Names {
        Names { left: file.saturating_mul(16) }
    }

    pub fn copy(&mut self, name: Option<&str>) -> Result<String, Error> {
        let name = name.unwrap_or("");
        self.left = self.left.checked_sub(name.len()).ok_or_else(|| {
            Error::malformed("more bytes of names than a file like this holds", "the end of a string table")
        })?;
        Ok(printable(name).into_owned())
    }
}

/// The metadata note's contents, if there is one among these notes.
pub(super) fn metadata_note(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let word = |i: usize| u32::from_le_bytes([notes[i], notes[i + 1], notes[i + 2], notes[i + 3]]);
        let (name_size, desc_size, kind) = (word(0) as usize, word(4) as usize, word(8));
        let desc_at = 12usize.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let desc_end = desc_at.checked_add(desc_size)?;
        let name = notes.get(12..12usize.checked_add(name_size)?)?;
        let desc = notes.get(desc_at..desc_end)?;
        if kind == NOTE_METADATA && name == b"AMDGPU\0" {
            return Some(desc);
        }
        notes = notes.get(desc_end.checked_next_multiple_of(4)?..).unwrap_or(&[]);
    }
    None
}

impl ElfFile {
    /// Reads a code object. `bytes` is the whole file (memory-mapped files are fine: only headers, symbols and
    /// metadata are touched).
    pub fn parse(bytes: &[u8]) -> Result<ElfFile, Error> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(Error::Elf("it does not start with the ELF magic number".into()));
        }
        let file_elf = Elf::parse(bytes).map_err(|e| Error::Elf(e.to_string()))?;
        if file_elf.header.e_machine != EM_AMDGPU {
            return Err(Error::NotAmdgpu(format!(
                "it is for machine {}, AMDGPU is {EM_AMDGPU}",
                file_elf.header.e_machine
            )));
        }
        if !file_elf.is_64 || !file_elf.little_endian {
            return Err(Error::NotAmdgpu("it is not 64-bit little-endian".into()));
        }
        if file_elf.header.e_type == ET_REL {
            let what = "it is a relocatable object: link it first";
            return Err(Error::NotAmdgpu(what.into()));
        }
        let e_flags = file_elf.header.e_flags;
        let mach = e_flags & EF_MACH;
        let abi_version = file_elf.header.e_ident[8];
        let version = abi_version.saturating_add(2);
        if version > 6 {
            return Err(Error::NotAmdgpu(format!("its ELF ABI version {abi_version} is unknown")));
        }
        let family = Family::of_mach(mach)
            .ok_or_else(|| Error::NotAmdgpu(format!("its e_flags {e_flags:#x} name an unknown processor")))?;

        let mut segments = Vec::new();
        let mut note = None;
        for p in &file_elf.program_headers {
            match p.p_type {
                PT_LOAD => {
                    let file = range(bytes, p.p_offset, p.p_filesz, "a loaded segment")?;
                    if p.p_filesz > p.p_memsz || p.p_vaddr.checked_add(p.p_memsz).is_none_or(|e| e > 1 << 40) {
                        let what = format!("a segment of {:#x} bytes at address {:#x}", p.p_memsz, p.p_vaddr);
                        return Err(Error::malformed(what, format!("offset {:#x}", p.p_offset)));
                    }
                    segments.push(Segment {
                        addr: p.p_vaddr,
                        mem_size: p.p_memsz,
                        file,
                        executable: p.p_flags & 1 != 0,
                        writable: p.p_flags & 2 != 0,
                    });
                }
                PT_NOTE if note.is_none() => {
                    note = metadata_note(&bytes[range(bytes, p.p_offset, p.p_filesz, "a note segment")?]);
                }
                _ => {}
            }
        }
        segments.sort_by_key(|s| s.addr);
        if let Some(w) = segments.windows(2).find(|w| w[0].addr + w[0].mem_size > w[1].addr) {
            return Err(Error::malformed("overlapping segments", format!("address {:#x}", w[1].addr)));
        }

        let mut names = Names::new(bytes.len());
        let symbol = |s: &goblin::elf::Sym, name: String| Symbol {
            name,
            addr: s.st_value,
            size: s.st_size,
            kind: match s.st_type() {
                goblin::elf::sym::STT_FUNC | STT_AMDGPU_HSA_KERNEL => SymbolKind::Function,
                goblin::elf::sym::STT_OBJECT => SymbolKind::Object,
                _ => SymbolKind::Other,
            },
            defined: s.st_shndx != 0,
            absolute: s.st_shndx == usize::from(elf::SHN_ABS),
            global: s.st_bind() != elf::STB_LOCAL,
            visibility: match s.st_other & 3 {
                elf::STV_DEFAULT => Visibility::Default,
                elf::STV_PROTECTED => Visibility::Protected,
                _ => Visibility::Hidden,
            },
        };
        let mut dynamic_symbols = Vec::new();
        for s in file_elf.dynsyms.iter() {
            dynamic_symbols.push(symbol(&s, names.copy(file_elf.dynstrtab.get_at(s.st_name))?));
        }
        let mut v2_kernels = Vec::new();
        let mut symbols: Vec<Symbol> = Vec::new();
        for s in file_elf.syms.iter() {
            let sym = symbol(&s, names.copy(file_elf.strtab.get_at(s.st_name))?);
            if s.st_type() == STT_AMDGPU_HSA_KERNEL {
                v2_kernels.push(sym.clone());
            }
            symbols.push(sym);
        }
        if symbols.is_empty() {
            symbols.clone_from(&dynamic_symbols);
        }
        symbols.retain(|s| !s.name.is_empty());
        symbols.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));

        let mut relocations = Vec::new();
        for r in file_elf.dynrelas.iter().chain(file_elf.dynrels.iter()).chain(file_elf.pltrelocs.iter()) {
            let (symbol, addend) = (r.r_sym, r.r_addend.unwrap_or(0));
            relocations.push(Relocation { addr: r.r_offset, kind: r.r_type, symbol, addend });
        }

        let mut sections = Vec::new();
        for h in &file_elf.section_headers {
            let name = names.copy(file_elf.shdr_strtab.get_at(h.sh_name))?;
            if h.sh_type == 0 || name.is_empty() {
                continue;
            }
            let file = match h.sh_type {
                elf::SHT_NOBITS => 0..0,
                _ => range(bytes, h.sh_offset, h.sh_size, &format!("section `{name}`"))?,
            };
            if h.sh_addr.checked_add(h.sh_size).is_none_or(|end| end > 1 << 40) && h.sh_flags & elf::SHF_ALLOC != 0 {
                let what = format!("section `{name}` of {:#x} bytes at address {:#x}", h.sh_size, h.sh_addr);
                return Err(Error::malformed(what, format!("offset {:#x}", h.sh_offset)));
            }
            sections.push(SectionInfo {
                name,
                addr: h.sh_addr,
                size: h.sh_size,
                file,
                loaded: h.sh_flags & elf::SHF_ALLOC != 0,
                writable: h.sh_flags & elf::SHF_WRITE != 0,
                executable: h.sh_flags & elf::SHF_EXEC != 0,
                align: if h.sh_addralign.is_power_of_two() { h.sh_addralign } else { 1 },
            });
        }
        let mut code: Vec<&SectionInfo> = sections.iter().filter(|s| s.executable && s.loaded).collect();
        code.sort_by_key(|s| s.file.start);
        if let Some(w) = code.windows(2).find(|w| w[0].file.end > w[1].file.start) {
            let what = format!("sections `{}` and `{}` of code overlap", w[0].name, w[1].name);
            return Err(Error::malformed(what, format!("offset {:#x}", w[1].file.start)));
        }
        if note.is_none() {
            let found = sections.iter().find(|s| s.name == ".note");
            note = found.and_then(|s| metadata_note(&bytes[s.file.clone()]));
        }

        let said = match note {
            Some(n) if version > 2 => metadata::parse(n)?,
            _ => metadata::Note::default(),
        };
        let mut file = ElfFile {
            mach,
            family,
            target: Target::all().find(|t| t.info().elf_mach & EF_MACH == mach),
            target_name: said.target,
            formats: said.formats,
            version,
            e_flags,
            segments,
            kernels: Vec::new(),
            symbols,
            dynamic_symbols,
            relocations,
            sections,
            metadata: note.filter(|_| version > 2).map(|n| {
                // The note is a part of the file.
                let start = n.as_ptr() as usize - bytes.as_ptr() as usize;
                start..start + n.len()
            }),
        };
        file.kernels = file.find_kernels(bytes, &v2_kernels, said.kernels)?;
        Ok(file)
    }

    fn find_kernels(&self, bytes: &[u8], v2: &[Symbol], meta: Vec<KernelMeta>) -> Result<Vec<KernelInfo>, Error> {
        let mut kernels = Vec::new();
        let mut add = |name: &str, symbol: &Symbol, size: u64, read: fn(&[u8]) -> Option<Descriptor>| {
            let at = || format!("symbol `{}`", symbol.name);
            let place = self
                .file_range(symbol.addr, size)
                .ok_or_else(|| Error::malformed("a kernel descriptor outside of the loaded segments", at()))?;
            let descriptor = read(&bytes[place]).ok_or_else(|| Error::malformed("a short kernel descriptor", at()))?;
            let entry = symbol.addr.checked_add_signed(descriptor.entry_offset);
            let entry = entry
                .filter(|&e| {
                    e % 4 == 0 && self.segments.iter().any(|s| s.executable && s.addr <= e && e < s.addr + s.mem_size)
                })
                .ok_or_else(|| {
                    let what =
                        format!("an entry point outside of the code (descriptor {:+#x})", descriptor.entry_offset);
                    Error::malformed(what, at())
                })?;
            let code = self.symbols.iter().find(|s| s.addr == entry && s.kind == SymbolKind::Function && s.size > 0);
            kernels.push(KernelInfo {
                name: name.to_owned(),
                descriptor,
                descriptor_addr: symbol.addr,
                entry,
                code_size: code.map_or(0, |s| s.size),
                meta: meta.iter().find(|m| m.symbol == symbol.name || m.name == name).cloned(),
            });
            Ok::<(), Error>(())
        };
        if self.version == 2 {
            for s in v2 {
                add(&s.name, s, 256, Descriptor::from_v2_bytes)?;
            }
        } else {
            for s in &self.symbols {
                if let Some(name) = s.name.strip_suffix(".kd")
                    && s.defined
                {
                    add(name, s, Descriptor::SIZE as u64, Descriptor::from_bytes)?;
                }
            }
        }
        kernels.sort_by(|a, b| (a.entry, &a.name).cmp(&(b.entry, &b.name)));
        Ok(kernels)
    }

    /// Bytes of the file behind `size` bytes at a loaded address; `None` when a segment does not hold them all.
    pub fn file_range(&self, addr: u64, size: u64) -> Option<Range<usize>> {
        self.segments.iter().find_map(|s| {
            let from = addr.checked_sub(s.addr)?;
            let end = from.checked_add(size)?;
            (end <= s.file.len() as u64).then(|| s.file.start + from as usize..s.file.start + end as usize)
        })
    }

    /// Processor and the features that the code depends on.
    pub fn target_id(&self) -> TargetId {
        let processor = Family::processor(self.mach).unwrap_or("an unknown processor");
        // Versions 2 and 3 have other bits there.
        TargetId::of_flags(processor, if self.version < 4 { 0 } else { self.e_flags })
    }

    /// The bytes of a kernel, from its entry to where the next one begins or its section ends.
    pub fn kernel_code<'b>(&self, bytes: &'b [u8], kernel: &KernelInfo) -> Option<&'b [u8]> {
        let holds = |s: &&SectionInfo| s.executable && (s.addr..s.addr.saturating_add(s.size)).contains(&kernel.entry);
        let s = self.sections.iter().find(holds)?;
        let next = self.kernels.iter().map(|o| o.entry).filter(|e| *e > kernel.entry).min().unwrap_or(u64::MAX);
        let (from, to) = (kernel.entry - s.addr, next.min(s.addr.saturating_add(s.size)) - s.addr);
        bytes.get(s.file.clone())?.get(from as usize..to as usize)
    }

    /// The kernel of a name.
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// Place of a named section in the file, e.g. one written as an extra section of a code object.
    pub fn section(&self, name: &str) -> Option<Range<usize>> {
        self.sections.iter().find(|s| s.name == name).map(|s| s.file.clone())
    }

    /// The symbol that covers an address, for messages: the last function that starts at or before it.
    pub fn symbol_at(&self, addr: u64) -> Option<&Symbol> {
        let n = self.symbols.partition_point(|s| s.addr <= addr);
        self.symbols[..n].iter().rev().find(|s| s.kind == SymbolKind::Function && s.defined)
    }
}
