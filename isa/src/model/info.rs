//! What passes and the emulator ask about an instruction: everything comes from its table row.

use crate::{Op, Reg, Traits};

/// A wait counter: the hardware counts outstanding operations of a kind, `s_waitcnt` & co. wait until few enough remain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Counter {
    /// `vmcnt` (gfx8-11: vector memory; loads only from gfx10 on), `loadcnt` (gfx12).
    Vm,
    /// `lgkmcnt` (gfx8-11: LDS, GDS, constant, message), `dscnt` (gfx12).
    Lgkm,
    /// `expcnt`.
    Exp,
    /// `vscnt` (gfx10, gfx11), `storecnt` (gfx12).
    Vs,
    /// `samplecnt` (gfx12).
    Sample,
    /// `bvhcnt` (gfx12).
    Bvh,
    /// `kmcnt` (gfx12: scalar memory and messages).
    Km,
    /// `xcnt` (gfx1250).
    X,
}

/// Bits of a wait counter on a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterInfo {
    /// Which.
    pub counter: Counter,
    /// Largest value the counter (and the wait) can hold.
    pub max: u8,
}

/// The unit that executes an instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Pipe {
    /// Scalar ALU.
    Salu,
    /// Scalar memory.
    Smem,
    /// Vector ALU.
    Valu,
    /// Transcendental unit (quarter rate; a unit of its own on RDNA).
    Trans,
    /// Matrix unit.
    Matrix,
    /// Local data share (and GDS).
    Lds,
    /// Vector memory: buffer, flat, global, scratch, image.
    Vmem,
    /// Branches, barriers, messages, waits, hints.
    Branch,
    /// Exports and parameter loads.
    Export,
}

/// What a register operand or constant may be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Class(pub u16);

impl Class {
    /// A VGPR.
    pub const VGPR: Class = Class(1);
    /// An AGPR.
    pub const AGPR: Class = Class(2);
    /// An SGPR (with VCC, TTMP, FLAT_SCRATCH, XNACK_MASK where the target has them).
    pub const SGPR: Class = Class(4);
    /// M0.
    pub const M0: Class = Class(8);
    /// EXEC.
    pub const EXEC: Class = Class(16);
    /// NULL.
    pub const NULL: Class = Class(32);
    /// Inline constants.
    pub const INLINE: Class = Class(64);
    /// A literal that follows the instruction.
    pub const LITERAL: Class = Class(128);
    /// Read-only special sources (SCC, apertures, VCCZ ...).
    pub const SPECIAL: Class = Class(256);
    /// A plain number in a field (simm16, branch distance, hardware register id).
    pub const FIELD: Class = Class(512);
    /// The word `off`.
    pub const OFF: Class = Class(1024);
    /// True when every bit of `other` is in `self`.
    #[inline]
    pub const fn contains(self, other: Class) -> bool {
        self.0 & other.0 == other.0
    }
    /// Union.
    #[inline]
    pub const fn or(self, other: Class) -> Class {
        Class(self.0 | other.0)
    }
}

/// How an operand's bits are understood: decides inline constants and how literals are widened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Type {
    #[default]
    B32,
    F16,
    Bf16,
    F32,
    F64,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    B16,
    B64,
    /// Two halves in 32 bits.
    PkF16,
    PkBf16,
    PkI16,
    /// Two f32 in 64 bits.
    PkF32,
    /// Wider than 64 bits, or opaque.
    Wide,
}

/// One explicit operand of an instruction on a target: the union over its encodings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// LLVM's name: `vdst`, `src0`, `vaddr`, `saddr`, `data0`, `simm16`, ...
    pub name: &'static str,
    /// What may stand here.
    pub class: Class,
    /// Width in bits.
    pub bits: u16,
    /// Understanding of constants.
    pub ty: Type,
    /// First register must be a multiple of this (SGPR tuples: 2 or 4; gfx90a+ VGPR tuples: 2; else 1).
    pub align: u8,
    /// Destinations only: also read (tied accumulator, partial write).
    pub read: bool,
}

impl Slot {
    /// Width in dwords, rounded up.
    pub const fn dwords(&self) -> u8 {
        self.bits.div_ceil(32) as u8
    }
}

/// Yes/no properties of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u32);

#[allow(missing_docs)]
impl Flags {
    pub const LOAD: Flags = Flags(1);
    pub const STORE: Flags = Flags(1 << 1);
    pub const ATOMIC: Flags = Flags(1 << 2);
    /// Result may differ with EXEC, or lanes without EXEC keep their old value.
    pub const READS_EXEC: Flags = Flags(1 << 3);
    pub const BRANCH: Flags = Flags(1 << 4);
    /// Ends a basic block.
    pub const TERMINATOR: Flags = Flags(1 << 5);
    pub const BARRIER: Flags = Flags(1 << 6);
    /// Must neither be removed nor moved across others of its kind.
    pub const SIDE_EFFECTS: Flags = Flags(1 << 7);
    pub const TRANS: Flags = Flags(1 << 8);
    pub const PACKED: Flags = Flags(1 << 9);
    pub const DOT: Flags = Flags(1 << 10);
    /// Reads other lanes (DPP, readlane, permute, matrix).
    pub const CROSS_LANE: Flags = Flags(1 << 11);
    /// First two sources may be swapped.
    pub const COMMUTATIVE: Flags = Flags(1 << 12);
    /// Matrix instruction (MFMA, SMFMAC, WMMA, SWMMAC).
    pub const MATRIX: Flags = Flags(1 << 13);
    pub const FP: Flags = Flags(1 << 14);
    /// Flat (not global, not scratch): may touch LDS, so counts on two counters.
    pub const FLAT: Flags = Flags(1 << 15);
    pub const SCRATCH: Flags = Flags(1 << 16);
    /// Reads or writes LDS.
    pub const LDS: Flags = Flags(1 << 17);
    /// VOPD pair.
    pub const DUAL: Flags = Flags(1 << 18);
    /// Writes SGPRs from the VALU (compares, readlane, carry-out).
    pub const VALU_WRITES_SGPR: Flags = Flags(1 << 19);
    /// Matrix instruction that LLVM calls XDL (f16, bf16, i8, xf32, fp8, sparse).
    pub const XDL: Flags = Flags(1 << 20);
    /// f64 matrix instruction.
    pub const DGEMM: Flags = Flags(1 << 21);
    /// Completes out of order with others of its counter (SMEM, flat).
    pub const OUT_OF_ORDER: Flags = Flags(1 << 22);
    /// Conditional on SCC/VCC/EXEC (branches, cselect, cmov).
    pub const CONDITIONAL: Flags = Flags(1 << 23);
    /// Only of use to graphics: images, ray tracing, interpolation, export, ordered counters.
    pub const GRAPHICS: Flags = Flags(1 << 24);

    /// Every property with its name in the tables.
    pub const NAMES: &'static [(Flags, &'static str)] = &[
        (Flags::LOAD, "load"),
        (Flags::STORE, "store"),
        (Flags::ATOMIC, "atomic"),
        (Flags::READS_EXEC, "reads exec"),
        (Flags::BRANCH, "branch"),
        (Flags::TERMINATOR, "terminator"),
        (Flags::BARRIER, "barrier"),
        (Flags::SIDE_EFFECTS, "side effects"),
        (Flags::TRANS, "transcendental"),
        (Flags::PACKED, "packed"),
        (Flags::DOT, "dot product"),
        (Flags::CROSS_LANE, "cross-lane"),
        (Flags::COMMUTATIVE, "commutative"),
        (Flags::MATRIX, "matrix"),
        (Flags::FP, "floating point"),
        (Flags::FLAT, "flat"),
        (Flags::SCRATCH, "scratch"),
        (Flags::LDS, "LDS"),
        (Flags::DUAL, "pair"),
        (Flags::VALU_WRITES_SGPR, "vector writes SGPR"),
        (Flags::XDL, "XDL"),
        (Flags::DGEMM, "f64 matrix"),
        (Flags::OUT_OF_ORDER, "out of order"),
        (Flags::CONDITIONAL, "conditional"),
        (Flags::GRAPHICS, "graphics"),
    ];

    /// True when every bit of `other` is set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Union.
    #[inline]
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// An instruction as one target has it.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// Which.
    pub op: Op,
    /// Its mnemonic on this target, without encoding suffix.
    pub name: &'static str,
    /// Explicit destinations.
    pub dsts: &'static [Slot],
    /// Explicit sources.
    pub srcs: &'static [Slot],
    /// Registers read besides the explicit ones (`exec`, `m0`, `scc`, `vcc`, `mode`).
    pub reads: &'static [Reg],
    /// Registers written besides the explicit ones.
    pub writes: &'static [Reg],
    /// Properties.
    pub flags: Flags,
    /// Unit that executes it.
    pub pipe: Pipe,
    /// Counters it increments at issue, decremented when it is done.
    pub counters: &'static [Counter],
    /// Cycles until a dependent instruction may use the result, and cycles the unit is busy for one wave
    /// (shader clocks, whole wave).
    pub latency: u16,
    /// Issue-to-issue cycles of the unit.
    pub busy: u16,
    /// Bytes moved per lane by a memory instruction (per wave for scalar memory), else 0.
    pub mem_bytes: u8,
    /// What all its instructions have of what rules of hazards ask.
    pub(crate) traits: Traits,
}
