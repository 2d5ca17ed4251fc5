//! Target ids: an architecture with features that code and device must agree on (`gfx90a:sramecc+:xnack-`).
//!
//! A device reports whether XNACK (retry of page faults) and SRAM ECC are on. Code is compiled for on, off, or any; the
//! choice stands in the code object's `e_flags` (LLVM's AMDGPU usage guide, "Target ID", EF_AMDGPU_FEATURE_*_V4).

use crate::codeobj::ElfFile;
use std::fmt;
use std::str::FromStr;

/// An architecture and the state of its features; a feature that is not named does not exist or is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetId {
    /// Processor (`gfx90a`).
    pub processor: String,
    /// SRAM ECC on or off.
    pub sramecc: Option<bool>,
    /// XNACK on or off.
    pub xnack: Option<bool>,
}

/// Code and device disagree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the code object needs {feature} {needed}, the device is {device}: {advice}")]
pub struct Mismatch {
    feature: &'static str,
    needed: &'static str,
    device: String,
    advice: String,
}

/// A target id that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not a target id such as gfx90a:sramecc+:xnack-")]
pub struct BadTargetId(String);

impl FromStr for TargetId {
    type Err = BadTargetId;

    fn from_str(text: &str) -> Result<TargetId, BadTargetId> {
        let bad = || BadTargetId(text.to_string());
        let mut parts = text.split(':');
        let processor = parts.next().filter(|p| p.starts_with("gfx")).ok_or_else(bad)?.to_string();
        let mut id = TargetId { processor, sramecc: None, xnack: None };
        for part in parts {
            let on = match part.chars().last() {
                Some('+') => true,
                Some('-') => false,
                _ => return Err(bad()),
            };
            match &part[..part.len() - 1] {
                "sramecc" => id.sramecc = Some(on),
                "xnack" => id.xnack = Some(on),
                // Features that later drivers may add say nothing about our code.
                _ => {}
            }
        }
        Ok(id)
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.processor)?;
        for (name, state) in [("sramecc", self.sramecc), ("xnack", self.xnack)] {
            if let Some(on) = state {
                write!(f, ":{name}{}", if on { '+' } else { '-' })?;
            }
        }
        Ok(())
    }
}

/// `(name, first bit in e_flags)`: the two bits say 0 none, 1 any, 2 off, 3 on.
const FEATURES: [(&str, u32); 2] = [("xnack", 8), ("sramecc", 10)];

impl TargetId {
    fn state(&self, feature: &str) -> Option<bool> {
        if feature == "xnack" { self.xnack } else { self.sramecc }
    }

    /// What a device of a target reports by default, as AMD's drivers do: ECC on, XNACK off, where the target's code
    /// objects have these features (`elf_features` of its table).
    pub fn usual(processor: &str, elf_features: u32) -> TargetId {
        let has = |shift: u32| elf_features >> shift & 3 != 0;
        let of = |shift, on| has(shift).then_some(on);
        TargetId { processor: processor.to_string(), sramecc: of(10, true), xnack: of(8, false) }
    }

    /// Checks the features that a code object asks for. The processors are compared elsewhere.
    pub fn check(&self, code: &ElfFile) -> Result<(), Mismatch> {
        // Code objects of version 2 and 3 have other bits.
        if code.version < 4 {
            return Ok(());
        }
        for (feature, shift) in FEATURES {
            let (needed, sign) = match code.e_flags >> shift & 3 {
                2 => (false, '-'),
                3 => (true, '+'),
                _ => continue,
            };
            if self.state(feature) != Some(needed) && !(self.state(feature).is_none() && !needed) {
                let advice = match self.state(feature) {
                    None => {
                        format!("the device has no {feature}; recompile for {} without {feature}{sign}", self.processor)
                    }
                    Some(_) if feature == "xnack" => format!(
                        "recompile for {} (any), or start the process with HSA_XNACK={}",
                        self.processor,
                        u8::from(needed)
                    ),
                    Some(_) => format!("recompile for {} (any)", self.processor),
                };
                let needed = if needed { "on" } else { "off" };
                return Err(Mismatch { feature, needed, device: self.to_string(), advice });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codeobj::{Abi, CodeObject, Kernel};
    use barewave_isa::Target;

    fn code(target: Target, feature_bits: u32) -> ElfFile {
        let kernel = Kernel::new(target, "k", vec![0, 0, 0x81, 0xbf]);
        let object = CodeObject { target, abi: Abi::V5, kernels: vec![kernel], sections: vec![] };
        let mut bytes = object.to_bytes().unwrap();
        let flags = target.info().elf_mach | feature_bits;
        bytes[48..52].copy_from_slice(&flags.to_le_bytes());
        ElfFile::parse(&bytes).unwrap()
    }

    #[test]
    fn ids_are_read_and_printed() {
        for text in ["gfx1100", "gfx90a:sramecc+:xnack-", "gfx906:sramecc-:xnack+", "gfx900:xnack-"] {
            assert_eq!(text.parse::<TargetId>().unwrap().to_string(), text);
        }
        assert_eq!("gfx942:new+:xnack+".parse::<TargetId>().unwrap().to_string(), "gfx942:xnack+");
        for text in ["", "sm_90", "gfx90a:", "gfx90a:xnack"] {
            assert!(text.parse::<TargetId>().is_err(), "{text}");
        }
    }

    #[test]
    fn features_must_agree() {
        let device: TargetId = "gfx90a:sramecc+:xnack-".parse().unwrap();
        for fits in [0x000, 0x500, 0xe00, 0x600, 0xd00] {
            assert_eq!(device.check(&code(Target::GFX90A, fits)), Ok(()), "{fits:#x}");
        }
        let message = |flags| device.check(&code(Target::GFX90A, flags)).unwrap_err().to_string();
        assert!(message(0x700).contains("xnack on") && message(0x700).contains("HSA_XNACK=1"), "{}", message(0x700));
        assert!(message(0x900).contains("sramecc off") && message(0x900).contains("gfx90a:sramecc+:xnack-"));
        let plain: TargetId = "gfx1100".parse().unwrap();
        assert_eq!(plain.check(&code(Target::GFX1100, 0)), Ok(()));
        assert!(plain.check(&code(Target::GFX1100, 0x300)).is_err());
    }
}
