//! What each vector instruction computes: one row per operation, one scalar function per row.
//!
//! Rows are found by what the tables say that the operation does ([`barewave_isa::Op::action`]); a meaning that has none is
//! an error of the compiler. A function sees its operands after
//! all source modifiers and gives the result before `omod` and `clamp`; those, DPP, SDWA and `op_sel` are applied
//! around it by `exec::valu`, the same for all instructions.

pub mod agree;
mod clamp;
mod cmp;
mod cvt;
mod float;
pub mod fp8;
mod int;
mod packed;
pub mod round;
pub mod small;

use super::lanes::{Kernel, Ty};
use barewave_isa::Op;
use barewave_isa::action::Action;
use std::sync::OnceLock;

/// How a kernel's result and lane bits are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Lane values in, lane value out.
    Map,
    /// Lane bits out, to VCC or an SGPR pair.
    Compare,
    /// As `Compare`, to EXEC too (gfx10 on: to EXEC only).
    CompareExec,
    /// A lane bit comes in, from VCC or an SGPR pair (the last source).
    BitIn,
    /// A lane bit goes out.
    BitOut,
    /// Both.
    BitInOut,
    /// VCC comes in without being an operand (`v_div_fmas`).
    VccIn,
}

/// Semantics of one vector instruction.
#[derive(Clone, Copy)]
pub struct Sem {
    /// The compiled function.
    pub kernel: Kernel,
    /// Types of the sources.
    pub src: [Ty; 3],
    /// Type of the destination.
    pub dst: Ty,
    /// Lane bits in and out.
    pub form: Form,
    /// Follows the MODE register's denormal settings.
    pub float: bool,
    /// Flushes f32 denormals whatever MODE says (v_mad_f32, v_mac_f32).
    pub flush: bool,
    /// Quiets signalling NaNs where MODE does not ask for IEEE's treatment: minimum and maximum.
    pub quiets: bool,
    /// Sources are singles or halves, as `op_sel_hi` says.
    pub mix: Mix,
    /// What MODE's rounding mode governs.
    pub round: Option<round::Rounded>,
}

/// Mixed precision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// No.
    No,
    /// The result is a single or goes to the low half.
    Low,
    /// The result goes to the high half.
    High,
}

impl Sem {
    /// Number of sources.
    pub fn sources(&self) -> usize {
        self.src.iter().filter(|t| **t != Ty::None).count()
    }
    const fn flushing(mut self) -> Sem {
        self.flush = true;
        self
    }
    const fn quieting(mut self) -> Sem {
        self.quiets = true;
        self
    }
    const fn mixing(mut self, mix: Mix) -> Sem {
        self.mix = mix;
        self
    }
    /// A float type that is only moved.
    const fn raw(mut self) -> Sem {
        self.float = false;
        self
    }
}

const fn any_float(types: &[Ty]) -> bool {
    let mut i = 0;
    while i < types.len() {
        match types[i] {
            Ty::F32 | Ty::F64 | Ty::F16 | Ty::Bf16 | Ty::PkF16 | Ty::PkBf16 | Ty::PkF32 => return true,
            _ => {}
        }
        i += 1;
    }
    false
}

/// A row: `m!(|a: f32, b: f32| -> f32 { a + b })` becomes a [`Sem`] whose kernel maps the function over all lanes.
macro_rules! m {
    (|$a:ident: $A:ty| -> $D:ty { $($body:tt)* }) => {
        m!(@ $A, No, No, $D, |$a: $A, _b: No, _c: No| -> $D { $($body)* })
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty| -> $D:ty { $($body:tt)* }) => {
        m!(@ $A, $B, No, $D, |$a: $A, $b: $B, _c: No| -> $D { $($body)* })
    };
    (|$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $D:ty { $($body:tt)* }) => {
        m!(@ $A, $B, $C, $D, |$a: $A, $b: $B, $c: $C| -> $D { $($body)* })
    };
    (@ $A:ty, $B:ty, $C:ty, $D:ty, $f:expr) => {
        $crate::sem::Sem {
            // SAFETY: passed on to the kernel's caller.
            kernel: $crate::lanes::kernel!(|x| unsafe { $crate::lanes::map::<$A, $B, $C, $D>(x, $f) }),
            src: [<$A as Lane>::TY, <$B as Lane>::TY, <$C as Lane>::TY],
            dst: <$D as Lane>::TY,
            form: $crate::sem::Form::Map,
            float: $crate::sem::any_float(&[<$A as Lane>::TY, <$B as Lane>::TY, <$C as Lane>::TY, <$D as Lane>::TY]),
            flush: false,
            quiets: false,
            mix: $crate::sem::Mix::No,
            round: None,
        }
    };
}

/// A compare: `t!(Compare, |a: f32, b: f32| a < b)`.
macro_rules! t {
    ($form:expr, |$a:ident: $A:ty, $b:ident: $B:ty| $body:expr) => {
        $crate::sem::Sem {
            // SAFETY: passed on to the kernel's caller.
            kernel: $crate::lanes::kernel!(|x| unsafe { $crate::lanes::test::<$A, $B>(x, |$a: $A, $b: $B| $body) }),
            src: [<$A as Lane>::TY, <$B as Lane>::TY, Ty::None],
            dst: Ty::None,
            form: $form,
            float: $crate::sem::any_float(&[<$A as Lane>::TY, <$B as Lane>::TY]),
            flush: false,
            quiets: false,
            mix: $crate::sem::Mix::No,
            round: None,
        }
    };
}

/// An instruction with a lane bit in or out: `c!(BitOut, |a: u32, b: u32, c: No, bit| -> u32 { (value, bit) })`.
macro_rules! c {
    ($form:ident, |$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty, $bit:ident| -> $D:ty { $($body:tt)* }) => {
        $crate::sem::Sem {
            // SAFETY: passed on to the kernel's caller.
            kernel: $crate::lanes::kernel!(|x| unsafe {
                $crate::lanes::carry::<$A, $B, $C, $D>(x, |$a: $A, $b: $B, $c: $C, $bit: bool| -> ($D, bool) {
                    $($body)*
                })
            }),
            src: [<$A as Lane>::TY, <$B as Lane>::TY, <$C as Lane>::TY],
            dst: <$D as Lane>::TY,
            form: $crate::sem::Form::$form,
            float: $crate::sem::any_float(&[<$A as Lane>::TY, <$B as Lane>::TY, <$C as Lane>::TY, <$D as Lane>::TY]),
            flush: false,
            quiets: false,
            mix: $crate::sem::Mix::No,
            round: None,
        }
    };
}

use {c, m, t};

pub use clamp::{clamped, dot_signs as clamped_dot_signs};
pub use packed::dot_signs;

/// The semantics of what works lane by lane; none of all else. `fnuz` chooses the encodings of 8-bit floats.
fn find(action: &Action, fnuz: bool) -> Option<Sem> {
    let sem = match *action {
        Action::Int(f) => int::of(f),
        Action::Float(f) => float::of(f),
        Action::Convert(f) => cvt::of(f),
        Action::Packed(f) => packed::of(f),
        Action::Float8(f) => fp8::of(f, fnuz),
        Action::Compare { relation, number, exec } => cmp::of(relation, number, exec),
        Action::Classify { number, exec } => cmp::class_of(number, exec)?,
        _ => return None,
    };
    Some(Sem { round: round::of(action), ..sem })
}

/// The semantics of a vector instruction that works lane by lane; `None` for all others. `fnuz` chooses the encodings of
/// 8-bit floats.
pub fn of(op: Op, fnuz: bool) -> Option<&'static Sem> {
    static TABLES: [OnceLock<Vec<Option<Sem>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let table =
        TABLES[usize::from(fnuz)].get_or_init(|| (0..Op::COUNT as u16).map(|i| find(Op(i).action(), fnuz)).collect());
    table.get(op.0 as usize)?.as_ref()
}
