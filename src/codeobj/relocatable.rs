//! Relocatable objects, what compilers and assemblers write before linking (`-c`, `llvm-mc -filetype=obj`): their
//! loaded sections, symbols and relocations become an [`Image`], which is laid out like any other code object.

use super::link::{Access, Fixup, Home, Image, LinkSymbol, Loaded};
use super::read::{Names, metadata_note, range};
use super::{Abi, Error, elf};
use barewave_isa::RelocationKind;
use goblin::elf::Elf;
use goblin::elf::header::{EM_AMDGPU, ET_REL};
use std::collections::BTreeMap;

/// Most bytes of zeros (`.bss`) that an object may ask for.
const MOST_ZEROS: u64 = 1 << 30;
/// Most bytes that its sections may take beyond its own size: room for what aligns them. Sections that overlap would
/// otherwise multiply.
const MOST_PADDING: u64 = 1 << 26;

/// True for a relocatable object of this architecture.
pub(super) fn is_relocatable(bytes: &[u8]) -> bool {
    let half = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    bytes.starts_with(b"\x7fELF\x02\x01") && half(16) == Some(ET_REL) && half(18) == Some(EM_AMDGPU)
}

/// Links a relocatable object alone. Fails naming section or symbol when the file is malformed, of code object version 3
/// or older, or needs what it does not define.
pub fn link_relocatable(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let file = Elf::parse(bytes).map_err(|e| Error::Elf(e.to_string()))?;
    let abi = match file.header.e_ident[8] {
        2 => Abi::V4,
        // a bare assembler leaves the version out
        0 | 3 => Abi::V5,
        4 => Abi::V6,
        v => return Err(Error::NotAmdgpu(format!("a relocatable object of ELF ABI version {v} cannot be linked"))),
    };

    // Place of each section that is loaded, by its number in the file.
    let mut place = BTreeMap::new();
    let (mut sections, mut metadata) = (Vec::new(), None);
    let mut names = Names::new(bytes.len());
    let (mut left, mut zeros_left) = (bytes.len() as u64 + MOST_PADDING, MOST_ZEROS);
    for (i, h) in file.section_headers.iter().enumerate().filter(|(_, h)| h.sh_flags & elf::SHF_ALLOC != 0) {
        let name = names.copy(file.shdr_strtab.get_at(h.sh_name))?;
        let zeros = h.sh_type == elf::SHT_NOBITS;
        let align = h.sh_addralign.max(1);
        let left = if zeros { &mut zeros_left } else { &mut left };
        match left.checked_sub(h.sh_size).and_then(|l| l.checked_sub(align)) {
            Some(rest) if align.is_power_of_two() => *left = rest,
            Some(_) => return Err(Error::malformed(format!("an alignment of {align:#x} bytes"), name)),
            None => {
                let what = format!("more than a file like this holds: {:#x} bytes aligned to {align:#x}", h.sh_size);
                return Err(Error::malformed(what, name));
            }
        }
        let contents = match zeros {
            true => vec![0; h.sh_size as usize],
            false => bytes[range(bytes, h.sh_offset, h.sh_size, &format!("section `{name}`"))?].to_vec(),
        };
        if h.sh_type == elf::SHT_NOTE {
            metadata = metadata.or(metadata_note(&contents).map(<[u8]>::to_vec));
            continue;
        }
        if contents.is_empty() {
            continue;
        }
        let access = match (h.sh_flags & elf::SHF_EXEC != 0, h.sh_flags & elf::SHF_WRITE != 0) {
            (true, _) => Access::Execute,
            (_, true) => Access::Write,
            _ => Access::Read,
        };
        place.insert(i, sections.len());
        sections.push(Loaded { name, access, align, bytes: contents, zeros });
    }

    // Symbols; none in place of those that lie in sections that are left out.
    let mut symbols = Vec::new();
    let mut index = Vec::new();
    for s in file.syms.iter() {
        let name = names.copy(file.strtab.get_at(s.st_name))?;
        let home = match (s.st_shndx, place.get(&s.st_shndx)) {
            (0, _) => Some(Home::Undefined),
            (n, _) if n == usize::from(elf::SHN_ABS) => Some(Home::Absolute),
            (_, place) => place.map(|&i| Home::Section(i)),
        };
        let section = s.st_type() == goblin::elf::sym::STT_SECTION;
        let Some(home) = home.filter(|_| section || !name.is_empty()) else {
            index.push(None);
            continue;
        };
        index.push(Some(symbols.len()));
        symbols.push(LinkSymbol {
            // symbols of sections serve relocations only
            name: if section { ".L".to_owned() } else { name },
            home,
            value: s.st_value,
            size: s.st_size,
            kind: if section { elf::STT_NOTYPE } else { s.st_type() },
            binding: s.st_bind(),
            visibility: s.st_other & 3,
        });
    }

    let mut fixups = Vec::new();
    for (table, list) in &file.shdr_relocs {
        let target = file.section_headers.get(*table).map_or(0, |h| h.sh_info as usize);
        let Some(&section) = place.get(&target) else { continue };
        for r in list.iter() {
            let at = || format!("{}+{:#x}", sections[section].name, r.r_offset);
            let kind = kind(r.r_type).ok_or_else(|| Error::malformed(format!("relocation type {}", r.r_type), at()))?;
            let symbol = index.get(r.r_sym).copied().flatten();
            let symbol = symbol.ok_or_else(|| Error::malformed("a relocation against what is not loaded", at()))?;
            fixups.push(Fixup { section, offset: r.r_offset, symbol, kind, addend: r.r_addend.unwrap_or(0) });
        }
    }
    let mut image = Image { abi, e_flags: file.header.e_flags, metadata, sections, symbols, fixups, extra: &[] };
    image.drop_unused();
    let mut out = Vec::new();
    image.write_to(&mut out)?;
    Ok(out)
}

/// `R_AMDGPU_*` by number. Source: LLVM's "User Guide for AMDGPU Backend", relocation records.
fn kind(number: u32) -> Option<RelocationKind> {
    use RelocationKind::*;
    Some(match number {
        1 => Abs32Lo,
        2 => Abs32Hi,
        3 => Abs64,
        4 => Rel32,
        5 => Rel64,
        6 => Abs32,
        8 => GotPcRel32Lo,
        9 => GotPcRel32Hi,
        10 => Rel32Lo,
        11 => Rel32Hi,
        14 => Rel16,
        _ => return None,
    })
}
