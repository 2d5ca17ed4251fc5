//! What each vector instruction computes: one row per operation, one scalar function per row.
//!
//! Rows are found by what the tables say that the operation does ([`barewave_isa::Op::action`]); a meaning that has none is
//! an error of the compiler. A function sees its operands after
//! all source modifiers and gives the result before `omod` and `clamp`; those, DPP, SDWA and `op_sel` are applied
//! around it by `exec::valu`, the same for all instructions.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{CHUNK, Host, Rows};

    /// The copies of a kernel for the host's instruction sets differ in no bit, but for the payloads of NaN.
    #[test]
    fn all_instruction_sets_of_the_host_agree() {
        #[repr(C, align(64))]
        #[derive(Clone, Copy)]
        struct Row([[u32; 64]; 2]);
        let mut x = 5u32;
        let mut next = || {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            x ^ x >> 15
        };
        const ODD: [u32; 16] = [
            0,
            0x8000_0000,
            0x3f80_0000,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            1,
            0x3c00_7c00,
            0x7c00_fc00,
            0x0001_8001,
            0x7ff0_0000,
            0x3ff0_0000,
            0x007f_ffff,
            0x7f7f_ffff,
            0xbf00_0000,
            u32::MAX,
        ];
        // A result with one NaN for all.
        let canonical = |ty: Ty, lo: u32, hi: u32| -> (u32, u32) {
            let half = |h: u32, infinity: u32| if h & 0x7fff > infinity { 0x7fff } else { h };
            let single = |b: u32| if f32::from_bits(b).is_nan() { u32::MAX } else { b };
            match ty {
                Ty::F32 => (single(lo), hi),
                Ty::PkF32 => (single(lo), single(hi)),
                Ty::F64 if f64::from_bits(lo as u64 | (hi as u64) << 32).is_nan() => (u32::MAX, u32::MAX),
                Ty::F16 | Ty::PkF16 => (half(lo & 0xffff, 0x7c00) | half(lo >> 16, 0x7c00) << 16, hi),
                Ty::Bf16 | Ty::PkBf16 => (half(lo & 0xffff, 0x7f80) | half(lo >> 16, 0x7f80) << 16, hi),
                _ => (lo, hi),
            }
        };
        let best = Host::detect();
        let mut compared = 0;
        for i in 0..Op::COUNT as u16 {
            let Some(sem) = of(Op(i), false) else { continue };
            for round in 0..20 {
                let src: [Row; 3] = std::array::from_fn(|_| {
                    Row([0, 1].map(|_| {
                        std::array::from_fn(|_| {
                            let n = next();
                            match round % 4 {
                                0 => ODD[n as usize >> 3 & 15],
                                1 => n & 0x807f_ffff | (100 + (n >> 23) % 50) << 23,
                                _ => n,
                            }
                        })
                    }))
                });
                let run = |host: Host| {
                    let mut out = Row([[0; 64]; 2]);
                    let rows = Rows { carry: 0x5a5a_3c3c_0ff0_1234, ..Rows::registers(64) };
                    let p = src.each_ref().map(|r| r.0[0].as_ptr());
                    // SAFETY: rows of 64 lanes, high halves behind the low ones; the host has the instructions.
                    let f = sem.kernel.on(host);
                    let bits = unsafe { f(out.0[0].as_mut_ptr(), p[0], p[1], p[2], u64::MAX, &rows) };
                    (out, bits)
                };
                let (want, bits) = run(Host::Portable);
                for host in [Host::Avx2, Host::Avx512].into_iter().filter(|&h| h <= best) {
                    let (got, other) = run(host);
                    assert_eq!(bits, other, "{} on {host:?}", Op(i).name());
                    for l in 0..4 * CHUNK {
                        let [a, b] = [&want, &got].map(|r| canonical(sem.dst, r.0[0][l], r.0[1][l]));
                        let from = src.map(|r| (r.0[0][l], r.0[1][l]));
                        assert_eq!(a, b, "{} of {from:x?}, portable and {host:?}", Op(i).name());
                    }
                    compared += 1;
                }
            }
        }
        assert!(best == Host::Portable || compared > 5000, "{compared}");
    }
}
