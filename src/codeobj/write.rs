//! Writing a code object of compiled kernels: code, descriptors, metadata and symbols, handed to the layout.

use super::elf::{self, push32};
use super::family::EF_MACH;
use super::link::{Access, Fixup, Home, Image, LinkSymbol, Loaded};
use super::{CodeObject, Descriptor, Error, Family, metadata};
use barewave_isa::RelocationKind;
use std::io::Write;

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
        const RODATA: usize = 0;
        const TEXT: usize = 1;
        let info = self.target.info();
        let mach = info.elf_mach & EF_MACH;
        let family =
            Family::of_mach(mach).ok_or_else(|| Error::NotAmdgpu(format!("no ELF machine for {}", info.name)))?;
        let mut names: Vec<&str> = self.kernels.iter().map(|k| k.name.as_str()).collect();
        names.sort_unstable();
        if let Some(w) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::Kernel { kernel: w[0].into(), what: "defined twice".into() });
        }
        let (mut text, mut rodata, mut symbols, mut fixups) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for k in &self.kernels {
            if k.code.len() % 4 != 0 || k.code.is_empty() {
                return Err(Error::Kernel { kernel: k.name.clone(), what: format!("code of {} bytes", k.code.len()) });
            }
            let filler = family.prefetch_padding().map_or(0, |p| p.0);
            while text.len() % 256 != 0 {
                push32(&mut text, &[filler]);
            }
            let symbol = |name: String, section: usize, value: usize, size: usize, kind: u8| LinkSymbol {
                name,
                home: Home::Section(section),
                value: value as u64,
                size: size as u64,
                kind,
                binding: elf::STB_GLOBAL,
                visibility: elf::STV_PROTECTED,
            };
            let code = symbol(k.name.clone(), TEXT, text.len(), k.code.len(), elf::STT_FUNC);
            let descriptor = symbol(format!("{}.kd", k.name), RODATA, rodata.len(), Descriptor::SIZE, elf::STT_OBJECT);
            let entry = Descriptor::ENTRY_AT as u64;
            fixups.push(Fixup {
                section: RODATA,
                offset: rodata.len() as u64 + entry,
                symbol: symbols.len(),
                kind: RelocationKind::Rel64,
                addend: entry as i64,
            });
            symbols.extend([code, descriptor]);
            text.extend_from_slice(&k.code);
            rodata.extend_from_slice(&Descriptor::for_kernel(k, mach)?.to_bytes());
        }
        if let Some((word, bytes)) = family.prefetch_padding() {
            let end = text.len().next_multiple_of(family.icache_line() as usize) + bytes as usize;
            while text.len() < end {
                push32(&mut text, &[word]);
            }
        }
        let loaded =
            |name: &str, access, align, bytes| Loaded { name: name.into(), access, align, bytes, zeros: false };
        let abi = self.abi.of(self.target);
        let image = Image {
            abi,
            e_flags: info.elf_machine() | info.elf_features,
            metadata: Some(metadata::build(abi, info.name, mach, &self.kernels)),
            sections: vec![loaded(".rodata", Access::Read, 64, rodata), loaded(".text", Access::Execute, 256, text)],
            symbols,
            fixups,
            extra: &self.sections,
        };
        image.write_to(to)
    }
}
