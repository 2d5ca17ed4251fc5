//! Which values of a register field name an operand that exists.
//!
//! Codes without a meaning, register runs that leave their file, and special registers at a width that they do not have
//! make the bits no instruction. Every kind of field becomes a bit map when a table is loaded; decoding then costs one
//! look-up a field, and fields that any value suits cost nothing.

use crate::model::codes::Codes;
use crate::model::table::{FAKE16, Kind, Operand as Field, Role, Row, flag};
use crate::{Reg, RegFile};

/// One bit for each value of a field of up to nine bits.
pub(crate) type Map = [u64; 8];

/// What decides which values a field may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    kind: Kind,
    dwords: u8,
    flags: u16,
    literal: bool,
    /// A literal has 32 bits.
    narrow: bool,
    low_half: bool,
}

impl Need {
    /// The need of an operand, and none when it takes all values. `literal`: it may hold the code of a literal; `narrow`:
    /// not of one of 64 bits.
    pub fn of(o: &Field, literal: bool, narrow: bool, variant: u16, mask_dwords: u8) -> Option<Need> {
        let low_half = o.has(flag::LO128) && variant & FAKE16 != 0;
        let scalar = matches!(
            o.kind,
            Kind::Src
                | Kind::SrcAgpr
                | Kind::SrcAcc
                | Kind::SrcVgprAcc
                | Kind::Ssrc
                | Kind::Sgpr
                | Kind::SgprPair
                | Kind::SgprQuad
                | Kind::GlobalSaddr
                | Kind::FlatSaddr
                | Kind::ScratchSaddr
        );
        let one = o.segs.len() == 1 || o.kind == Kind::SrcAcc;
        if !matches!(o.role, Role::Dst | Role::Src)
            || !one
            || !(scalar || o.kind == Kind::Agpr || o.kind == Kind::Vgpr && low_half)
        {
            return None;
        }
        let dwords = if o.has(flag::MASK) { mask_dwords } else { o.bits.div_ceil(32).max(1) as u8 };
        let flags = o.flags & (flag::VGPR_ONLY | flag::NO_INLINE | flag::SCALAR_ONLY | flag::LDS_DIRECT);
        Some(Need { kind: o.kind, dwords, flags, literal, narrow, low_half })
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The values that name an operand.
    pub fn map(&self, codes: Codes) -> Map {
        let mut map = Map::default();
        for v in 0..512u64 {
            if self.accepts(codes, v) {
                map[v as usize / 64] |= 1 << (v % 64);
            }
        }
        map
    }

    fn accepts(&self, codes: Codes, v: u64) -> bool {
        // LLVM takes these wherever a source may stand
        let anywhere =
            |v: u64| matches!(v, 230 | 235..=239 | 251..=253) && self.dwords <= 2 || v == 231 && self.dwords == 1;
        let source = |v: u64| {
            if v & 256 != 0 {
                return !self.low_half || v & 128 == 0;
            }
            match v {
                _ if anywhere(v) || codes.register(v) == Some(Reg::NULL) => true,
                128..=208 | 240..=248 => !self.has(flag::VGPR_ONLY | flag::NO_INLINE),
                255 => self.literal,
                254 if codes.has_long_literals() => self.literal && !self.narrow,
                _ if self.has(flag::VGPR_ONLY) => self.has(flag::LDS_DIRECT) && v == 254,
                _ => run_exists(codes, v, self.dwords),
            }
        };
        match self.kind {
            Kind::Vgpr => v & 128 == 0,
            Kind::Agpr => v + u64::from(self.dwords) <= 256,
            Kind::Src | Kind::Ssrc => source(v),
            Kind::SrcAgpr => v & 256 != 0 || anywhere(v) || codes.register(v) == Some(Reg::NULL),
            Kind::SrcAcc => v & 256 != 0 || source(v),
            Kind::SrcVgprAcc => {
                v & 256 != 0
                    || matches!(v, 128..=208 | 240..=248) && !self.has(flag::VGPR_ONLY)
                    || (v == 255 || codes.is_long_literal(v)) && self.literal
                    || anywhere(v)
                    || codes.register(v) == Some(Reg::NULL)
            }
            Kind::SgprPair => run_exists(codes, v * 2, self.dwords),
            Kind::SgprQuad => run_exists(codes, v * 4, self.dwords),
            Kind::GlobalSaddr | Kind::FlatSaddr | Kind::ScratchSaddr => {
                let off = v == codes.off() || self.kind == Kind::ScratchSaddr && codes.is_scratch_off(v);
                off || run_exists(codes, v, self.dwords)
            }
            _ => run_exists(codes, v, self.dwords),
        }
    }
}

/// True when the operands of SDWA exist: sources in nine bits with a hole, and masks beside a bit that says VCC.
pub(crate) fn sdwa_exists(codes: Codes, row: &Row, bits: u128, wave64: bool) -> bool {
    let scalar = Need { kind: Kind::Src, dwords: 1, flags: 0, literal: false, narrow: false, low_half: false };
    row.shape().operands.iter().all(|o| {
        let v = o.get(bits);
        match o.kind {
            Kind::SrcSdwa => v & 256 == 0 || scalar.accepts(codes, v & 255),
            Kind::SdwaSdst => v & 128 == 0 || run_exists(codes, v & 127, if wave64 { 2 } else { 1 }),
            _ => true,
        }
    })
}

/// True when a run of registers from a code exists. A run that is not aligned counts as the aligned one below it.
fn run_exists(codes: Codes, code: u64, dwords: u8) -> bool {
    let Some(first) = codes.register(code) else { return false };
    let n = u64::from(first.index());
    let whole = |registers: u64| match dwords {
        0 | 1 => true,
        2 => n & !1 < registers,
        _ => (n & !3) + u64::from(dwords) <= registers,
    };
    match first.file() {
        // s[100:103] counts everywhere
        RegFile::Sgpr => whole(if dwords > 2 { 104 } else { codes.sgprs() }),
        // LLVM knows no three registers from ttmp12 on
        RegFile::Ttmp => whole(16) && (dwords != 3 || n < 12),
        _ if dwords <= 1 => true,
        _ if first == Reg::NULL => true,
        _ if dwords > 2 => false,
        _ => {
            let pairs = [Reg::FLAT_SCRATCH_LO, Reg::XNACK_MASK_LO, Reg::VCC_LO, Reg::TBA_LO, Reg::TMA_LO, Reg::EXEC_LO];
            let apertures = [Reg::SHARED_BASE, Reg::SHARED_LIMIT, Reg::PRIVATE_BASE, Reg::PRIVATE_LIMIT];
            let bits = [Reg::POPS_EXITING_WAVE_ID, Reg::VCCZ, Reg::EXECZ, Reg::SCC, Reg::FLAT_SCRATCH_BASE_LO];
            pairs.contains(&first) || apertures.contains(&first) || bits.contains(&first)
        }
    }
}
