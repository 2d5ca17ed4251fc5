//! Target ids: `amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-`, in text and in the `e_flags` of a file.
//!
//! A feature that the id leaves out may be on or off: the code runs either way. Source: LLVM's AMDGPU usage guide.

use barewave_isa::Target;

/// Processor and the features that code depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TargetId {
    /// LLVM's processor name.
    pub processor: String,
    /// XNACK replay must be on or off; none when the code runs with either.
    pub xnack: Option<bool>,
    /// SRAM ECC must be on or off; none when the code runs with either.
    pub sramecc: Option<bool>,
}

/// Why a text is no target id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetIdError {
    /// A feature without a sign.
    #[error("`{feature}` in target id `{id}` must end with + or -")]
    NoSign {
        /// The feature.
        feature: String,
        /// The whole text.
        id: String,
    },
    /// A feature that there is not.
    #[error("unknown feature `{feature}` in target id `{id}`: xnack or sramecc")]
    Feature {
        /// The feature.
        feature: String,
        /// The whole text.
        id: String,
    },
}

/// Why code cannot run on a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    /// It is for another processor.
    #[error("the code is for {code}, the device is {device}")]
    Processor {
        /// What the code is for.
        code: String,
        /// What the device is.
        device: String,
    },
    /// It needs a feature the other way.
    #[error("the code needs {feature} {}, on this device it is {}", on(*.needed), on(!.needed))]
    Feature {
        /// The feature.
        feature: &'static str,
        /// What the code needs.
        needed: bool,
    },
    /// It needs a feature that the device lacks.
    #[error("the code needs {0} on, this device has no {0}")]
    Missing(&'static str),
}

fn on(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

const XNACK_SHIFT: u32 = 8;
const SRAMECC_SHIFT: u32 = 10;
const ANY: u32 = 1;
const OFF: u32 = 2;
const ON: u32 = 3;

impl TargetId {
    /// Parses an id, with or without the triple before `--`.
    ///
    /// # Errors
    /// Names a feature that is not known, or has no sign.
    pub fn parse(text: &str) -> Result<TargetId, TargetIdError> {
        let own = text.rsplit("--").next().unwrap_or(text);
        let own = own.strip_prefix("amdgcn-amd-amdhsa-unknown-").unwrap_or(own);
        let mut parts = own.split(':');
        let mut id = TargetId { processor: parts.next().unwrap_or("").to_string(), ..TargetId::default() };
        for part in parts {
            let value = match part.as_bytes().last() {
                Some(b'+') => true,
                Some(b'-') => false,
                _ => return Err(TargetIdError::NoSign { feature: part.into(), id: text.into() }),
            };
            match &part[..part.len() - 1] {
                "xnack" => id.xnack = Some(value),
                "sramecc" => id.sramecc = Some(value),
                other => return Err(TargetIdError::Feature { feature: other.into(), id: text.into() }),
            }
        }
        Ok(id)
    }

    /// The id that a file's flags describe.
    pub fn of_flags(processor: &str, e_flags: u32) -> TargetId {
        let feature = |shift: u32| match e_flags >> shift & 3 {
            ON => Some(true),
            OFF => Some(false),
            _ => None,
        };
        TargetId { processor: processor.into(), xnack: feature(XNACK_SHIFT), sramecc: feature(SRAMECC_SHIFT) }
    }

    /// Flags of a file: `mach` is the processor's number, `any` has the features that it can switch set to "any".
    pub fn e_flags(&self, mach: u32, any: u32) -> u32 {
        let feature = |shift: u32, value: Option<bool>| match (any >> shift & 3, value) {
            (0, _) => 0,
            (_, None) => ANY << shift,
            (_, Some(false)) => OFF << shift,
            (_, Some(true)) => ON << shift,
        };
        mach | feature(XNACK_SHIFT, self.xnack) | feature(SRAMECC_SHIFT, self.sramecc)
    }

    /// True when the code may run with XNACK replay on, on a processor whose features are `any`.
    pub fn may_need_xnack(&self, any: u32) -> bool {
        any >> XNACK_SHIFT & 3 != 0 && self.xnack != Some(false)
    }

    /// What a device reports by default, as AMD's drivers do: XNACK replay off, ECC on, where code for the processor can
    /// switch them (`any` as in [`TargetId::e_flags`]).
    pub fn of_device(processor: &str, any: u32) -> TargetId {
        let of = |shift: u32, usual| (any >> shift & 3 != 0).then_some(usual);
        TargetId { processor: processor.into(), xnack: of(XNACK_SHIFT, false), sramecc: of(SRAMECC_SHIFT, true) }
    }

    /// True when code for the processor runs on a device's: it is the same, or the generic one of its family.
    pub fn fits(&self, device: &TargetId) -> bool {
        let target = |name: &str| Target::parse(name).ok();
        let generic =
            || target(&device.processor).zip(target(&self.processor)).is_some_and(|(d, code)| d.runs_code_of(code));
        self.processor == device.processor || generic()
    }

    /// Why code of this id cannot run on a device of another id (whose features are all given); none when it can.
    pub fn mismatch(&self, device: &TargetId) -> Option<Mismatch> {
        if !self.fits(device) {
            return Some(Mismatch::Processor { code: self.processor.clone(), device: device.processor.clone() });
        }
        for (name, need, have) in [("xnack", self.xnack, device.xnack), ("sramecc", self.sramecc, device.sramecc)] {
            match (need, have) {
                (Some(needed), Some(have)) if needed != have => {
                    return Some(Mismatch::Feature { feature: name, needed });
                }
                (Some(true), None) => return Some(Mismatch::Missing(name)),
                _ => {}
            }
        }
        None
    }
}

impl std::fmt::Display for TargetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.processor)?;
        for (name, value) in [("sramecc", self.sramecc), ("xnack", self.xnack)] {
            if let Some(on) = value {
                write!(f, ":{name}{}", if on { '+' } else { '-' })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_code_must_agree() {
        let device = TargetId::of_device("gfx90a", 0x500);
        assert_eq!(device.to_string(), "gfx90a:sramecc+:xnack-");
        for fits in [0x000, 0x500, 0xe00, 0x600, 0xd00] {
            assert_eq!(TargetId::of_flags("gfx90a", fits).mismatch(&device), None, "{fits:#x}");
        }
        let why = |flags| TargetId::of_flags("gfx90a", flags).mismatch(&device).unwrap().to_string();
        assert_eq!(why(0x700), "the code needs xnack on, on this device it is off");
        assert_eq!(why(0x900), "the code needs sramecc off, on this device it is on");
        let plain = TargetId::of_device("gfx1100", 0);
        assert_eq!(plain.to_string(), "gfx1100");
        assert!(TargetId::of_flags("gfx1100", 0x300).mismatch(&plain).is_some());
        assert!(TargetId::of_flags("gfx1101", 0).mismatch(&plain).is_some());
        assert_eq!(TargetId::of_flags("gfx11-generic", 0).mismatch(&plain), None);
        assert!(TargetId::of_flags("gfx12-generic", 0).mismatch(&plain).is_some());
    }
}
