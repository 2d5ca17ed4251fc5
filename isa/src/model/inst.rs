//! One machine instruction with typed operands, target-independent in shape.
//!
//! Operands come in LLVM's assembly order: destinations, then sources. An operand that some encodings hold implicitly
//! (the `vcc` of a VOP2 `v_cndmask_b32`, the carry of `v_addc_co_u32`, the `vcc` a VOPC compare writes) is always
//! explicit here, so one instruction has one shape whatever encoding it ends up in; the encoder picks the shortest
//! encoding whose fixed operands agree. Tied accumulators (`v_fmac_f32`, `v_dot2c`, DPP `old`) are not repeated
//! among the sources: the slot description says that the destination is also read.

use crate::{Op, Regs};
use smallvec::SmallVec;
use std::fmt;

/// An explicit operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A register or a run of registers.
    Regs(Regs),
    /// A constant: the bit pattern the instruction is to see, truncated to the operand's width. The encoder uses an
    /// inline constant where one has these bits, else a literal. Branch targets are signed dword distances from the
    /// following instruction.
    Imm(u64),
    /// The word `off` in the place of an address register.
    Off,
}

impl Operand {
    /// The registers, if it is a register operand.
    #[inline]
    pub fn regs(self) -> Option<Regs> {
        match self {
            Operand::Regs(r) => Some(r),
            _ => None,
        }
    }
    /// An f32 constant.
    pub fn f32(x: f32) -> Operand {
        Operand::Imm(x.to_bits() as u64)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Regs(r) => r.fmt(f),
            Operand::Imm(v) => write!(f, "{v:#x}"),
            Operand::Off => f.write_str("off"),
        }
    }
}

impl From<Regs> for Operand {
    fn from(r: Regs) -> Operand {
        Operand::Regs(r)
    }
}

pub use crate::model::schema::ModName;

impl ModName {
    /// All of them with their names in the machine IR.
    pub const NAMES: [(ModName, &'static str); 64] = [
        (ModName::Neg, "neg"),
        (ModName::NegHi, "neg_hi"),
        (ModName::Abs, "abs"),
        (ModName::Sext, "sext"),
        (ModName::OpSel, "op_sel"),
        (ModName::OpSelHi, "op_sel_hi"),
        (ModName::Clamp, "clamp"),
        (ModName::Omod, "omod"),
        (ModName::Offset, "offset"),
        (ModName::Offset0, "offset0"),
        (ModName::Offset1, "offset1"),
        (ModName::Cpol, "cpol"),
        (ModName::Gds, "gds"),
        (ModName::Lds, "lds"),
        (ModName::Tfe, "tfe"),
        (ModName::Offen, "offen"),
        (ModName::Idxen, "idxen"),
        (ModName::Addr64, "addr64"),
        (ModName::Format, "format"),
        (ModName::Dmask, "dmask"),
        (ModName::Dim, "dim"),
        (ModName::Unorm, "unorm"),
        (ModName::R128, "r128"),
        (ModName::A16, "a16"),
        (ModName::D16, "d16"),
        (ModName::Lwe, "lwe"),
        (ModName::Da, "da"),
        (ModName::DppCtrl, "dpp_ctrl"),
        (ModName::RowMask, "row_mask"),
        (ModName::BankMask, "bank_mask"),
        (ModName::BoundCtrl, "bound_ctrl"),
        (ModName::Fi, "fi"),
        (ModName::Dpp8, "dpp8"),
        (ModName::DstSel, "dst_sel"),
        (ModName::DstUnused, "dst_unused"),
        (ModName::Src0Sel, "src0_sel"),
        (ModName::Src1Sel, "src1_sel"),
        (ModName::Cbsz, "cbsz"),
        (ModName::Abid, "abid"),
        (ModName::Blgp, "blgp"),
        (ModName::IndexKey, "index_key"),
        (ModName::MatrixAFmt, "matrix_afmt"),
        (ModName::MatrixBFmt, "matrix_bfmt"),
        (ModName::MatrixAScale, "matrix_ascale"),
        (ModName::MatrixBScale, "matrix_bscale"),
        (ModName::MatrixAScaleFmt, "matrix_ascale_fmt"),
        (ModName::MatrixBScaleFmt, "matrix_bscale_fmt"),
        (ModName::MatrixAReuse, "matrix_areuse"),
        (ModName::MatrixBReuse, "matrix_breuse"),
        (ModName::ScaleOpSel, "scale_op_sel"),
        (ModName::ByteSel, "byte_sel"),
        (ModName::BitOp3, "bit_op3"),
        (ModName::WaitVdst, "wait_vdst"),
        (ModName::WaitExp, "wait_exp"),
        (ModName::WaitVmVsrc, "wait_vm_vsrc"),
        (ModName::Attr, "attr"),
        (ModName::AttrChan, "attr_chan"),
        (ModName::Done, "done"),
        (ModName::Vm, "vm"),
        (ModName::Compr, "compr"),
        (ModName::En, "en"),
        (ModName::RowEn, "row_en"),
        (ModName::High, "high"),
        (ModName::Other, "other"),
    ];

    /// Name in the machine IR: the variant's in snake case.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The modifier with this name.
    pub fn by_name(name: &str) -> Option<ModName> {
        Self::NAMES.iter().find(|(_, n)| *n == name).map(|(m, _)| *m)
    }
}

/// Modifiers that differ from their default, sorted by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mods(SmallVec<[(ModName, i32); 4]>);

impl Mods {
    /// No modifier.
    pub fn new() -> Mods {
        Mods::default()
    }
    /// Value of a modifier, if it was given.
    #[inline]
    pub fn get(&self, name: ModName) -> Option<i32> {
        self.0.iter().find(|m| m.0 == name).map(|m| m.1)
    }
    /// Sets a modifier, replacing an earlier value.
    pub fn set(&mut self, name: ModName, value: i32) {
        match self.0.binary_search_by_key(&name, |m| m.0) {
            Ok(i) => self.0[i].1 = value,
            Err(i) => self.0.insert(i, (name, value)),
        }
    }
    /// Builder form of [`Mods::set`].
    pub fn with(mut self, name: ModName, value: i32) -> Mods {
        self.set(name, value);
        self
    }
    /// All given modifiers, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (ModName, i32)> + '_ {
        self.0.iter().copied()
    }
    /// True when nothing was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// Destinations, in assembly order.
    pub dsts: SmallVec<[Operand; 2]>,
    /// Sources, in assembly order.
    pub srcs: SmallVec<[Operand; 4]>,
    /// Modifiers.
    pub mods: Mods,
}

impl Inst {
    /// An instruction without modifiers.
    pub fn new(op: Op, dsts: &[Operand], srcs: &[Operand]) -> Inst {
        Inst { op, dsts: SmallVec::from_slice(dsts), srcs: SmallVec::from_slice(srcs), mods: Mods::new() }
    }
}
