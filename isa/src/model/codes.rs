//! Source and destination codes of scalar registers and inline constants, per generation.

use crate::model::generated::TARGET_CODES;
use crate::{Reg, Target, Type};
use std::sync::OnceLock;

/// Which map of codes a target uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Codes {
    Gfx8,
    Gfx9,
    Gfx10,
    Gfx11,
    Gfx12,
    Gfx1250,
}

impl Target {
    pub(crate) fn codes(self) -> Codes {
        TARGET_CODES.get(self.index()).copied().unwrap_or(Codes::Gfx9)
    }
}

/// Codes of the special registers of each map, by distance from the first; 0 for those it lacks.
static SPECIAL: OnceLock<[[u8; 32]; 6]> = OnceLock::new();

fn specials() -> [[u8; 32]; 6] {
    [Codes::Gfx8, Codes::Gfx9, Codes::Gfx10, Codes::Gfx11, Codes::Gfx12, Codes::Gfx1250].map(|codes| {
        let mut out = [0; 32];
        for code in (102..=254u8).rev() {
            let reg = codes.register(u64::from(code)).filter(|r| r.0 >= Reg::VCC_LO.0);
            let wide = u64::from(code);
            if wide >= codes.sgprs()
                && codes.owns(wide)
                && let Some(slot) = reg.and_then(|r| out.get_mut(usize::from(r.0 - Reg::VCC_LO.0)))
            {
                *slot = code;
            }
        }
        out
    })
}

impl Codes {
    /// Number of plain SGPRs.
    pub fn sgprs(self) -> u64 {
        if self >= Codes::Gfx10 { 106 } else { 102 }
    }

    /// Code that stands for `off` in scalar address fields.
    pub fn off(self) -> u64 {
        match self {
            Codes::Gfx8 | Codes::Gfx9 => 127,
            Codes::Gfx10 => 125,
            _ => 124,
        }
    }

    /// True when a code stands for a literal of 64 bits; where one does, literals of 32 bits are sign-extended.
    pub fn is_long_literal(self, code: u64) -> bool {
        code == 254 && self.has_long_literals()
    }

    /// Literals of 64 bits exist.
    pub fn has_long_literals(self) -> bool {
        self == Codes::Gfx1250
    }

    /// Codes that stand for no scalar address of scratch: beside a vector address, and alone.
    pub fn scratch_off(self) -> (u64, Option<u64>) {
        (self.off(), (self == Codes::Gfx10).then_some(127))
    }

    /// True when a code stands for no scalar address of scratch.
    pub fn is_scratch_off(self, code: u64) -> bool {
        let (beside, alone) = self.scratch_off();
        code == beside || alone == Some(code)
    }

    /// The code that an encoder writes for no offset register of scalar memory.
    pub fn smem_off(self) -> u64 {
        match self {
            Codes::Gfx10 => 125,
            _ => self.off(),
        }
    }

    /// Number of trap registers.
    pub fn ttmps(self) -> u16 {
        if self == Codes::Gfx8 { 12 } else { 16 }
    }

    /// True when assembly can name the register: gfx8 has XNACK_MASK as a code only.
    pub fn names(self, reg: Reg) -> bool {
        self != Codes::Gfx8 || !matches!(reg, Reg::XNACK_MASK_LO | Reg::XNACK_MASK_HI)
    }

    /// The scalar register of a code 0 to 127, or a special source up to 255.
    pub fn register(self, code: u64) -> Option<Reg> {
        let c = u16::try_from(code).ok()?;
        if code < self.sgprs() {
            return Some(Reg::s(c));
        }
        Some(match (self, c) {
            (Codes::Gfx8 | Codes::Gfx9, 102) => Reg::FLAT_SCRATCH_LO,
            (Codes::Gfx8 | Codes::Gfx9, 103) => Reg::FLAT_SCRATCH_HI,
            (Codes::Gfx8 | Codes::Gfx9, 104) => Reg::XNACK_MASK_LO,
            (Codes::Gfx8 | Codes::Gfx9, 105) => Reg::XNACK_MASK_HI,
            (_, 106) => Reg::VCC_LO,
            (_, 107) => Reg::VCC_HI,
            (Codes::Gfx8, 108) => Reg::TBA_LO,
            (Codes::Gfx8, 109) => Reg::TBA_HI,
            (Codes::Gfx8, 110) => Reg::TMA_LO,
            (Codes::Gfx8, 111) => Reg::TMA_HI,
            (Codes::Gfx8, 112..=123) => Reg::ttmp(c - 112),
            (_, 108..=123) => Reg::ttmp(c - 108),
            (Codes::Gfx8 | Codes::Gfx9 | Codes::Gfx10, 124) => Reg::M0,
            (Codes::Gfx10, 125) => Reg::NULL,
            (Codes::Gfx8 | Codes::Gfx9, 125) => Reg::NULL,
            (_, 124) => Reg::NULL,
            (_, 125) => Reg::M0,
            (_, 126) => Reg::EXEC_LO,
            (_, 127) => Reg::EXEC_HI,
            (_, 230) => Reg::FLAT_SCRATCH_BASE_LO,
            (_, 231) => Reg::FLAT_SCRATCH_BASE_HI,
            (_, 235) => Reg::SHARED_BASE,
            (_, 236) => Reg::SHARED_LIMIT,
            (_, 237) => Reg::PRIVATE_BASE,
            (_, 238) => Reg::PRIVATE_LIMIT,
            (_, 239) => Reg::POPS_EXITING_WAVE_ID,
            (_, 251) => Reg::VCCZ,
            (_, 252) => Reg::EXECZ,
            (_, 253) => Reg::SCC,
            (Codes::Gfx1250, 254) => return None,
            (_, 254) => Reg::LDS_DIRECT,
            _ => return None,
        })
    }

    /// False for codes that LLVM names on every target though only some have them.
    fn owns(self, code: u64) -> bool {
        match code {
            125 => self >= Codes::Gfx10,
            230 | 231 => self == Codes::Gfx1250,
            235..=238 => self >= Codes::Gfx9,
            239 => (Codes::Gfx9..=Codes::Gfx10).contains(&self),
            251 | 252 => self < Codes::Gfx11,
            _ => true,
        }
    }

    /// The code of a scalar register or special source.
    pub fn code(self, reg: Reg) -> Option<u64> {
        let n = u64::from(reg.index());
        match reg {
            Reg(1280..1408) => (n < self.sgprs()).then_some(n),
            Reg(1408..1424) => {
                let base = if self == Codes::Gfx8 { 112 } else { 108 };
                (base + n <= 123).then_some(base + n)
            }
            _ => {
                let i = usize::from(reg.0.checked_sub(Reg::VCC_LO.0)?);
                let code = u64::from(*SPECIAL.get_or_init(specials)[self as usize].get(i)?);
                (code != 0).then_some(code)
            }
        }
    }
}

const F16: [u64; 9] = [0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118];
const BF16: [u64; 9] = [0x3f00, 0xbf00, 0x3f80, 0xbf80, 0x4000, 0xc000, 0x4080, 0xc080, 0x3e22];
const F32: [u64; 9] = [
    0x3f00_0000,
    0xbf00_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x4000_0000,
    0xc000_0000,
    0x4080_0000,
    0xc080_0000,
    0x3e22_f983,
];
const F64: [u64; 9] = [
    0x3fe0_0000_0000_0000,
    0xbfe0_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x4000_0000_0000_0000,
    0xc000_0000_0000_0000,
    0x4010_0000_0000_0000,
    0xc010_0000_0000_0000,
    0x3fc4_5f30_6dc9_c882,
];

/// Bits of an operand that its constants fill.
pub(crate) fn constant_bits(ty: Type, bits: u16) -> u32 {
    match ty {
        Type::F16 | Type::Bf16 | Type::I16 | Type::U16 | Type::B16 => 16,
        Type::PkF32 => 32,
        // longer tuples hold dwords
        Type::F64 => 64,
        _ if bits == 64 => 64,
        _ => 32,
    }
}

fn floats(ty: Type, bits: u16) -> &'static [u64; 9] {
    match ty {
        Type::F16 | Type::PkF16 | Type::I16 | Type::U16 | Type::B16 => &F16,
        Type::Bf16 | Type::PkBf16 => &BF16,
        Type::PkF32 => &F32,
        _ if bits == 64 => &F64,
        _ => &F32,
    }
}

/// The bit pattern of an inline constant code as an operand of this type sees it.
pub(crate) fn inline_value(code: u64, ty: Type, bits: u16) -> Option<u64> {
    let width = constant_bits(ty, bits);
    let keep = if width == 64 { u64::MAX } else { (1u64 << width) - 1 };
    let int = match code {
        128..=192 => (code - 128) as i64,
        193..=208 => 192 - code as i64,
        240..=248 => {
            let v = *floats(ty, bits).get(code as usize - 240)?;
            return Some(if width == 16 { v & keep } else { v });
        }
        _ => return None,
    };
    Some(int as u64 & keep)
}

/// The code of the inline constant with these bits, if there is one.
pub(crate) fn inline_code(value: u64, ty: Type, bits: u16) -> Option<u64> {
    let width = constant_bits(ty, bits);
    let keep = if width == 64 { u64::MAX } else { (1u64 << width) - 1 };
    let v = value & keep;
    let signed = ((v << (64 - width)) as i64) >> (64 - width);
    match signed {
        0..=64 => return Some(128 + signed as u64),
        -16..=-1 => return Some((192 - signed) as u64),
        _ => {}
    }
    if matches!(ty, Type::I16 | Type::U16 | Type::B16) {
        return None;
    }
    floats(ty, bits).iter().position(|&f| f & keep == v).map(|i| 240 + i as u64)
}
