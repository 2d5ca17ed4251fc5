//! Micro-operations: a common head, which every handler reads, and a payload of what few instructions need.

use super::element::Typed;
use super::lanes::{CHUNK, LaneFn, Rows, Ty};
pub use super::operand::{Kind, Src};
use super::sem::Form;
use super::sem::round::Rounded;
use super::wave::{Ctl, SINK, Wave};
use barewave_isa::action::{Atomic, Elem, Scaled};
use barewave_isa::matrix::{Column, Shape};

/// A handler: executes one micro-operation.
pub type Run = unsafe fn(&mut Wave, &UOp) -> Ctl;

/// Executes a run of micro-operations of one kind.
pub type Batch = unsafe fn(&mut Wave, &[UOp]);

/// Description of a memory access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Bytes per lane in memory.
    pub bytes: u8,
    /// See `exec::vmem`: sign extension, d16, returns, ...
    pub flags: u16,
    /// Which atomic.
    pub atomic: Atomic,
    /// What is accessed.
    pub space: Space,
}

impl Default for Access {
    fn default() -> Self {
        Access { bytes: 0, flags: 0, atomic: Atomic::Swap, space: Space::None }
    }
}

/// Memory that an instruction accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Space {
    /// None.
    #[default]
    None,
    /// `global_*`.
    Global,
    /// `buffer_*`.
    Buffer,
    /// `flat_*`.
    Flat,
    /// `scratch_*`.
    Scratch,
    /// LDS by lane address; `second` tells of an element at a second offset.
    Lds {
        /// There is a second element, at `UOp::dst2`.
        second: bool,
    },
    /// Scalar loads.
    Scalar,
}

/// Data-parallel modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dpp {
    /// DPP16: control, row mask, bank mask, bound_ctrl, fetch inactive.
    Ctrl(u16, u8, u8, bool, bool),
    /// DPP8: selects, fetch inactive.
    Dpp8(u32, bool),
}

/// Sub-dword addressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdwa {
    /// Selects of the sources.
    pub src: [u8; 2],
    /// Select of the destination.
    pub dst: u8,
    /// What happens to the rest of the destination.
    pub unused: u8,
}

/// Modifiers and types of a vector instruction that needs the general path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext {
    /// Bits per source.
    pub neg: u8,
    /// Bits per source.
    pub neg_hi: u8,
    /// Bits per source.
    pub abs: u8,
    /// Bits per source.
    pub sext: u8,
    /// Bits per source, bit 3 the destination.
    pub op_sel: u8,
    /// Bits per source.
    pub op_sel_hi: u8,
    /// Clamp.
    pub clamp: bool,
    /// Output modifier.
    pub omod: u8,
    /// Lane permutation of source 0.
    pub dpp: Option<Dpp>,
    /// Sub-dword selects.
    pub sdwa: Option<Sdwa>,
    /// Sources are f32 or f16 by `op_sel_hi` (v_fma_mix, v_mad_mix).
    pub mix: bool,
    /// A 16-bit result leaves the other half of its register alone.
    pub keep_half: bool,
}

impl Ext {
    /// No modifiers.
    pub const NONE: Ext = Ext {
        neg: 0,
        neg_hi: 0,
        abs: 0,
        sext: 0,
        op_sel: 0,
        op_sel_hi: 7,
        clamp: false,
        omod: 0,
        dpp: None,
        sdwa: None,
        mix: false,
        keep_half: false,
    };
}

/// A decoded instruction, ready to run.
#[derive(Clone)]
pub struct UOp {
    /// Handler.
    pub run: Run,
    /// Lane kernel of vector instructions.
    pub kernel: LaneFn,
    /// How the rows of its operands are laid out.
    pub rows: &'static Rows,
    /// Sources.
    pub src: [Src; 4],
    /// Destination: element offset of a row, or scalar index.
    pub dst: u32,
    /// Second destination (scalar index), where there is one; operations of the loop that a branch with [`WAITS`] ends.
    pub dst2: u32,
    /// Offset, immediate, or index of the micro-operation to jump to.
    pub imm: i64,
    /// Byte address in the program.
    pub pc: u32,
    /// Bytes of the instruction.
    pub len: u8,
    /// Sources in use.
    pub n: u8,
    /// Length of the run of multiply-adds that starts here ([`Batch`]).
    pub batch: u16,
    /// Lane bits in and out.
    pub form: Form,
    /// Needs the general path when MODE is not the usual one.
    pub float: bool,
    /// Types of up to three sources and of the result.
    pub types: [Ty; 4],
    /// Memory access.
    pub access: Access,
    /// Handler that a wrapping handler (register indexing, GDS) calls.
    pub inner: Option<Run>,
    /// What MODE's rounding mode governs.
    pub round: Option<Rounded>,
    /// What only this kind of instruction needs.
    pub payload: Payload,
}

/// What few instructions need.
#[derive(Clone)]
pub enum Payload {
    /// Nothing.
    None,
    /// Modifiers.
    Modifiers(Box<Ext>),
    /// Matrix instruction.
    Matrix(Box<Matrix>),
    /// The halves of a VOPD pair.
    Dual(Box<[UOp; 2]>),
    /// Scaled conversion, and its modifiers.
    Scaled(&'static Scaled, Box<Ext>),
    /// Typed buffer access.
    Typed(Box<Typed>),
}

impl UOp {
    /// The modifiers, if there are any.
    #[inline(always)]
    pub fn ext(&self) -> Option<&Ext> {
        match &self.payload {
            Payload::Modifiers(e) | Payload::Scaled(_, e) => Some(e),
            _ => None,
        }
    }
}

/// Executes a matrix instruction.
pub type Execute = unsafe fn(&mut Wave, &UOp, &Matrix);

/// Scales of an operand: one byte of a register per lane.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The register.
    pub src: Src,
    /// Which byte.
    pub byte: u32,
}

/// A decoded matrix instruction.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Sizes.
    pub shape: Shape,
    /// Columns of A (of a sparse one: the stored elements).
    pub a: Vec<Column>,
    /// Rows of B.
    pub b: Vec<Column>,
    /// Rows of D.
    pub d: Vec<Column>,
    /// Indices of a sparse A.
    pub indices: Vec<Column>,
    /// Type of A.
    pub a_type: Elem,
    /// Type of B.
    pub b_type: Elem,
    /// Type of C and D.
    pub d_type: Elem,
    /// CBSZ.
    pub cbsz: usize,
    /// ABID.
    pub abid: usize,
    /// BLGP.
    pub blgp: usize,
    /// CBSZ, ABID and BLGP mean broadcasts.
    pub broadcasts: bool,
    /// Signs of the low halves.
    pub neg: u8,
    /// Signs of the high halves.
    pub neg_hi: u8,
    /// fp8 formats are AMD's FNUZ ones.
    pub fnuz: bool,
    /// Integers saturate.
    pub clamp: bool,
    /// Scales of A and B.
    pub scales: Option<[Scale; 2]>,
    /// The multiplication, compiled for the host.
    pub execute: Execute,
}

/// `access.flags` of branches to what [`UOp::imm`] says.
pub const BRANCH: u16 = 1 << 14;
/// `access.flags` of branches that loops jump back by in which a wave waits for what others leave in memory.
pub const WAITS: u16 = 1 << 15;

unsafe fn none(_: *mut u32, _: *const u32, _: *const u32, _: *const u32, _: u64, _: &Rows) -> u64 {
    0
}

/// An operation without operands.
pub fn blank(run: Run, pc: u32, len: u8) -> UOp {
    UOp {
        run,
        kernel: none,
        rows: rows(&[Src::default(); 4], 64),
        batch: 0,
        src: [Src::default(); 4],
        dst: SINK,
        dst2: SINK,
        imm: 0,
        pc,
        len,
        n: 0,
        form: Form::Map,
        float: false,
        types: [Ty::None; 4],
        access: Default::default(),
        inner: None,
        round: None,
        payload: Payload::None,
    }
}

/// Row layouts by wave size (32, 64) and by which sources are registers (a bit each); the others are one repeated chunk.
static ROWS: [[Rows; 8]; 2] = {
    const fn layout(lanes: usize, registers: usize) -> Rows {
        let mut r = Rows::registers(lanes);
        let mut i = 0;
        while i < 3 {
            if registers >> i & 1 == 0 {
                (r.stride[i], r.src_hi[i]) = (0, CHUNK);
            }
            i += 1;
        }
        r
    }
    const fn all(lanes: usize) -> [Rows; 8] {
        let l = lanes;
        [layout(l, 0), layout(l, 1), layout(l, 2), layout(l, 3), layout(l, 4), layout(l, 5), layout(l, 6), layout(l, 7)]
    }
    [all(32), all(64)]
};

/// The layout of an operation's rows in waves of `lanes` lanes.
pub fn rows(src: &[Src; 4], lanes: usize) -> &'static Rows {
    let registers = (0..3).filter(|&i| src[i].kind == Kind::Vector).fold(0, |bits, i| bits | 1 << i);
    &ROWS[usize::from(lanes == 64)][registers]
}
