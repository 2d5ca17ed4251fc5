//! From an assembled source to a code object: descriptors from directives, metadata from YAML, then the layout.

use super::elf;
use super::family::EF_MACH;
use super::link::{Access, Fixup, Home, Image, LinkSymbol, Loaded};
use super::target_id::TargetId;
use super::{Abi, Descriptor, Error, Family, yaml};
use barewave_isa::{Assembly, Mode, SymbolType, Target, Visibility};
use std::collections::BTreeMap;

/// Links an assembled source into a code object that a runtime loads.
///
/// `abi` is the code object version where the source does not give one. Fails naming the kernel, line or symbol when a
/// directive does not fit the target, the metadata is no YAML, or a symbol is missing.
pub fn link_assembly(target: Target, mode: Mode, source: &Assembly, abi: Abi) -> Result<Vec<u8>, Error> {
    let info = target.info();
    let family = Family::of_mach(info.elf_mach & EF_MACH)
        .ok_or_else(|| Error::NotAmdgpu(format!("no ELF machine for {}", info.name)))?;
    let abi = match source.code_object_version {
        None => abi.of(target),
        Some(4) => Abi::V4,
        Some(5) => Abi::V5,
        Some(6) => Abi::V6,
        Some(v) => {
            return Err(Error::NotAmdgpu(format!("code object version {v} cannot be written: 4, 5 or 6")));
        }
    };
    let id = match &source.target_id {
        Some(text) => TargetId::parse(text).map_err(|e| Error::NotAmdgpu(e.to_string()))?,
        None => TargetId::default(),
    };

    // Sections that are loaded; the rest (debug information, resource listings) does not reach a code object.
    let mut place = BTreeMap::new();
    let mut sections = Vec::new();
    for (i, s) in source.sections.iter().enumerate().filter(|(_, s)| s.loaded) {
        if s.bytes.is_empty() && s.relocations.is_empty() {
            continue;
        }
        place.insert(i, sections.len());
        let access = match (s.executable, s.writable) {
            (true, _) => Access::Execute,
            (_, true) => Access::Write,
            _ => Access::Read,
        };
        sections.push(Loaded {
            name: s.name.clone(),
            access,
            align: s.align.max(1),
            bytes: s.bytes.clone(),
            zeros: s.zeros,
        });
    }
    for k in &source.kernels {
        let d = Descriptor::from_directives(k, family, mode, id.may_need_xnack(info.elf_features))?;
        let at = place.get(&k.place.0).and_then(|&i| sections.get_mut(i));
        let bytes =
            at.and_then(|s: &mut Loaded| s.bytes.get_mut(k.place.1 as usize..k.place.1 as usize + Descriptor::SIZE));
        let Some(bytes) = bytes else {
            let what = "its descriptor lies in a section that is not loaded: put .amdhsa_kernel into .rodata".into();
            return Err(Error::Kernel { kernel: k.name.clone(), what });
        };
        bytes.copy_from_slice(&d.to_bytes());
    }

    let mut symbols = Vec::new();
    let mut index = BTreeMap::new();
    for s in source.symbols.values() {
        let home = match (s.defined, s.section) {
            (false, _) => Home::Undefined,
            (true, None) => Home::Absolute,
            (true, Some(i)) => match place.get(&i) {
                Some(&i) => Home::Section(i),
                // A label in a section that is left out.
                None => continue,
            },
        };
        // A descriptor is as visible as its kernel, and nobody may replace a kernel.
        let kernel = s.name.strip_suffix(".kd").and_then(|k| source.symbols.get(k)).filter(|_| s.size == 64);
        let owner = kernel.unwrap_or(s);
        let is_kernel = kernel.is_some() || source.kernels.iter().any(|k| k.name == s.name);
        let global = owner.global || home == Home::Undefined || is_kernel;
        index.insert(s.name.as_str(), symbols.len());
        symbols.push(LinkSymbol {
            name: s.name.clone(),
            home,
            value: s.value as u64,
            size: s.size,
            kind: match s.kind {
                SymbolType::None => elf::STT_NOTYPE,
                SymbolType::Function => elf::STT_FUNC,
                SymbolType::Object => elf::STT_OBJECT,
            },
            binding: match (global, owner.weak) {
                (false, _) => elf::STB_LOCAL,
                (true, false) => elf::STB_GLOBAL,
                (true, true) => elf::STB_WEAK,
            },
            visibility: match owner.visibility {
                Visibility::Default if is_kernel => elf::STV_PROTECTED,
                Visibility::Default => elf::STV_DEFAULT,
                Visibility::Protected => elf::STV_PROTECTED,
                Visibility::Hidden => elf::STV_HIDDEN,
            },
        });
    }
    let mut fixups = Vec::new();
    for (i, s) in source.sections.iter().enumerate() {
        let Some(&section) = place.get(&i) else { continue };
        for r in &s.relocations {
            let Some(&symbol) = index.get(r.symbol.as_str()) else {
                let what = format!("`{}` lies in a section that is not loaded", r.symbol);
                return Err(Error::Malformed { what, at: format!("{}+{:#x}", s.name, r.offset) });
            };
            fixups.push(Fixup { section, offset: r.offset, symbol, kind: r.kind, addend: r.addend });
        }
    }
    let metadata = source.metadata.as_deref().map(yaml::to_msgpack).transpose()?;
    let e_flags = id.e_flags(info.elf_machine(), info.elf_features);
    let mut out = Vec::new();
    let mut image = Image { abi, e_flags, metadata, sections, symbols, fixups, extra: &[] };
    image.drop_unused();
    image.write_to(&mut out)?;
    Ok(out)
}
