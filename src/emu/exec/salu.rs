//! Scalar ALU: arithmetic, logic, compares, mask instructions of EXEC.
//!
//! One function per instruction, written as a body over typed operands; the macro [`s!`] adds reading and writing.
//!
//! Source: chapter "Scalar ALU Operations" and the SOP2, SOPK, SOP1 and SOPC pseudocode of the "Vega" and "RDNA2" manuals;
//! floating-point instructions "RDNA4" ("RDNA3.5").

// `lg` is "ordered and unequal", which `!=` is not for NaN.
#![allow(clippy::double_comparisons)]

use crate::lanes::{F16, Ty};
use crate::numeric::*;
use crate::sem::round;
use crate::uop::{Kind, Run, Src, UOp};
use crate::wave::{Ctl, EXEC, M0, SCC, SINK, Wave};
use barewave_isa::action::{Action, Comparison, Number, Salu};
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// A type that scalar operands are read as.
trait Scalar: Copy {
    fn read(w: &Wave, s: &Src) -> Self;
    fn write(self, w: &mut Wave, at: usize);
}

macro_rules! scalar32 {
    ($($t:ty: |$r:ident| $from:expr, |$v:ident| $to:expr;)*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn read(w: &Wave, s: &Src) -> Self {
                let $r = w.r32(s);
                $from
            }
            #[inline(always)]
            fn write(self, w: &mut Wave, at: usize) {
                let $v = self;
                w.s[at] = $to;
            }
        }
    )*};
}
scalar32! {
    u32: |r| r, |v| v;
    i32: |r| r as i32, |v| v as u32;
    f32: |r| f32::from_bits(r), |v| v.to_bits();
    F16: |r| F16(r as u16), |v| v.0 as u32;
}
impl Scalar for u64 {
    #[inline(always)]
    fn read(w: &Wave, s: &Src) -> Self {
        w.r64(s)
    }
    #[inline(always)]
    fn write(self, w: &mut Wave, at: usize) {
        w.set_pair(at, self);
    }
}
impl Scalar for i64 {
    #[inline(always)]
    fn read(w: &Wave, s: &Src) -> Self {
        w.r64(s) as i64
    }
    #[inline(always)]
    fn write(self, w: &mut Wave, at: usize) {
        w.set_pair(at, self as u64);
    }
}
/// No destination.
struct Nothing;
impl Nothing {
    #[inline(always)]
    fn write(self, _w: &mut Wave, _at: usize) {}
}

/// `s!(|w, a: u32, b: u32| -> u32 { ... })` becomes a handler: operands read, body run, result written.
macro_rules! s {
    (|$w:ident $(, $a:ident: $A:ty)*| -> $D:ty { $($body:tt)* }) => {{
        #[allow(unused_mut, unused_variables, unused_assignments)]
        unsafe fn f($w: &mut Wave, op: &UOp) -> Ctl {
            let mut i = 0;
            $(
                let $a = <$A as Scalar>::read($w, &op.src[i]);
                i += 1;
            )*
            let r: $D = { $($body)* };
            r.write($w, op.dst as usize);
            Ctl::Next
        }
        f as Run
    }};
}

/// Offset and width fields of a bit-field extract.
fn field(b: u32) -> (u32, u32) {
    (b & 31, b >> 16 & 0x7f)
}

fn s_bfe_u32(a: u32, b: u32) -> u32 {
    let (offset, width) = field(b);
    let x = a >> offset;
    if width >= 32 { x } else { x & ((1u32 << width) - 1) }
}
fn s_bfe_i32(a: u32, b: u32) -> i32 {
    let (offset, width) = field(b);
    if width == 0 {
        return 0;
    }
    let x = (a as i32) >> offset;
    if width >= 32 { x } else { x << (32 - width) >> (32 - width) }
}
fn s_bfe_u64(a: u64, b: u32) -> u64 {
    let (offset, width) = (b & 63, b >> 16 & 0x7f);
    let x = a >> offset;
    if width >= 64 { x } else { x & ((1u64 << width) - 1) }
}
fn s_bfe_i64(a: u64, b: u32) -> i64 {
    let (offset, width) = (b & 63, b >> 16 & 0x7f);
    if width == 0 {
        return 0;
    }
    let x = (a as i64) >> offset;
    if width >= 64 { x } else { x << (64 - width) >> (64 - width) }
}
fn flbit_signed(x: i64, bits: u32) -> u32 {
    let y = x ^ (x >> 63);
    if y == 0 { u32::MAX } else { (y as u64).leading_zeros() - (64 - bits) }
}
fn quad_mask(x: u64) -> u64 {
    (0..16).fold(0, |m, i| m | (((x >> (4 * i) & 15 != 0) as u64) << i))
}
fn whole_quads(x: u64) -> u64 {
    (0..16).fold(0, |m, i| m | if x >> (4 * i) & 15 != 0 { 15 << (4 * i) } else { 0 })
}
fn replicate(x: u32) -> u64 {
    (0..32).fold(0, |m, i| m | ((x >> i & 1) as u64 * 3) << (2 * i))
}

/// A body that writes SCC = result is not zero.
macro_rules! logic {
    (u32, $e:expr) => {
        s!(|w, a: u32, b: u32| -> u32 {
            let f: fn(u32, u32) -> u32 = $e;
            let r = f(a, b);
            w.set_scc(r != 0);
            r
        })
    };
    (u64, $e:expr) => {
        s!(|w, a: u64, b: u64| -> u64 {
            let f: fn(u64, u64) -> u64 = $e;
            let r = f(a, b);
            w.set_scc(r != 0);
            r
        })
    };
}
/// `s_<op>_saveexec`: the old EXEC is the result, EXEC becomes `f(source, EXEC)`.
macro_rules! saveexec {
    (32, $e:expr) => {
        s!(|w, a: u32| -> u32 {
            let f: fn(u32, u32) -> u32 = $e;
            let old = w.s[EXEC];
            w.s[EXEC] = f(a, old);
            w.set_scc(w.s[EXEC] != 0);
            old
        })
    };
    (64, $e:expr) => {
        s!(|w, a: u64| -> u64 {
            let f: fn(u64, u64) -> u64 = $e;
            let old = w.pair(EXEC);
            let new = f(a, old);
            w.set_pair(EXEC, new);
            w.set_scc(new != 0);
            old
        })
    };
}
/// `s_<op>_wrexec`: EXEC and the result become `f(source, EXEC)`.
macro_rules! wrexec {
    (32, $e:expr) => {
        s!(|w, a: u32| -> u32 {
            let f: fn(u32, u32) -> u32 = $e;
            let new = f(a, w.s[EXEC]);
            w.s[EXEC] = new;
            w.set_scc(new != 0);
            new
        })
    };
    (64, $e:expr) => {
        s!(|w, a: u64| -> u64 {
            let f: fn(u64, u64) -> u64 = $e;
            let new = f(a, w.pair(EXEC));
            w.set_pair(EXEC, new);
            w.set_scc(new != 0);
            new
        })
    };
}
/// True when the relation holds between two numbers that compare as said.
#[inline(always)]
fn holds(relation: Comparison, order: Option<Ordering>) -> bool {
    use Comparison::*;
    let (lt, eq, gt) = (order == Some(Less), order == Some(Equal), order == Some(Greater));
    match relation {
        False => false,
        Lt => lt,
        Eq => eq,
        Le => lt || eq,
        Gt => gt,
        Lg => lt || gt,
        Ge => gt || eq,
        Ordered => order.is_some(),
        Unordered => order.is_none(),
        Nge => !(gt || eq),
        Nlg => !(lt || gt),
        Ngt => !gt,
        Nle => !(lt || eq),
        Neq | Ne => !eq,
        Nlt => !lt,
        True | Tru => true,
    }
}

/// Handler of a compare.
#[rustfmt::skip]
pub fn compare(relation: Comparison, number: Number) -> Run {
    macro_rules! all {
        ($T:ty, |$x:ident| $value:expr, $($r:ident)*) => {
            match relation {
                $(Comparison::$r => s!(|w, a: $T, b: $T| -> Nothing {
                    let number = |$x: $T| $value;
                    w.set_scc(holds(Comparison::$r, number(a).partial_cmp(&number(b))));
                    Nothing
                }),)*
            }
        };
        ($T:ty, |$x:ident| $value:expr) => {
            all!($T, |$x| $value, False Lt Eq Le Gt Ne Lg Ge Ordered Unordered Nge Nlg Ngt Nle Neq Nlt True Tru)
        };
    }
    match number {
        Number::I16 | Number::I32 => all!(i32, |x| x),
        Number::U16 | Number::U32 => all!(u32, |x| x),
        Number::I64 => all!(i64, |x| x),
        Number::U64 => all!(u64, |x| x),
        Number::F16 => all!(F16, |x| f16_to_f32(x)),
        Number::F32 => all!(f32, |x| x),
        Number::F64 => all!(u64, |x| f64::from_bits(x)),
    }
}

/// Relative scalar moves: M0 is added to the register number.
fn moved(w: &Wave, at: u32) -> usize {
    (at as usize + w.s[M0] as usize).min(SINK as usize)
}

/// The type of scalar arithmetic whose denormals and rounding MODE governs; none of all else.
pub fn float_type(action: &Action) -> Option<Ty> {
    use Salu::*;
    match action {
        Action::Salu(AddF32 | SubF32 | MulF32 | MinF32 | MaxF32 | MinimumF32 | MaximumF32 | FmacF32) => Some(Ty::F32),
        Action::Salu(CeilF32 | FloorF32 | TruncF32 | RndneF32) => Some(Ty::F32),
        Action::Salu(AddF16 | SubF16 | MulF16 | MinF16 | MaxF16 | MinimumF16 | MaximumF16 | FmacF16) => Some(Ty::F16),
        Action::Salu(CeilF16 | FloorF16 | TruncF16 | RndneF16) => Some(Ty::F16),
        _ => None,
    }
}

/// Float arithmetic: where MODE is not the usual one, denormals are flushed and results rounded as it says; `UOp::inner`
/// is the plain handler.
///
/// # Safety
/// As every handler.
pub unsafe fn float(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(run) = op.inner else { return Ctl::Next };
    if w.plain_float {
        // SAFETY: passed on.
        return unsafe { run(w, op) };
    }
    let ty = op.types[3];
    let mut flushed = op.clone();
    let mut x = [(0, 0); 3];
    for (i, s) in flushed.src.iter_mut().enumerate().take(op.n.min(3) as usize) {
        let v = super::valu::flush_source(w.mode, false, ty, w.r32(s), 0);
        *s = Src { kind: Kind::Const, at: 0, value: v.0 as u64 };
        x[i] = v;
    }
    let at = op.dst as usize;
    match op.round {
        Some(r) if super::valu::rounds(w.mode, ty) => w.s[at] = round::lane(r, op.types, x, w.mode).0,
        _ => {
            // SAFETY: passed on.
            let ctl = unsafe { run(w, &flushed) };
            if ctl != Ctl::Next {
                return ctl;
            }
        }
    }
    w.s[at] = super::valu::flush_result(w.mode, false, ty, w.s[at], 0).0;
    Ctl::Next
}

/// Handlers.
#[rustfmt::skip]
pub fn run(f: Salu) -> Run {
    match f {
        Salu::MovB32 => s!(|w, a: u32| -> u32 { a }),
        Salu::MovB64 => s!(|w, a: u64| -> u64 { a }),
        Salu::CmovB32 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                if w.s[SCC] != 0 { w.s[op.dst as usize] = w.r32(&op.src[0]); }
                Ctl::Next
            }
            f
        }
        Salu::CmovB64 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                if w.s[SCC] != 0 { let v = w.r64(&op.src[0]); w.set_pair(op.dst as usize, v); }
                Ctl::Next
            }
            f
        }
        Salu::CselectB32 => s!(|w, a: u32, b: u32| -> u32 { if w.s[SCC] != 0 { a } else { b } }),
        Salu::CselectB64 => s!(|w, a: u64, b: u64| -> u64 { if w.s[SCC] != 0 { a } else { b } }),
        Salu::NotB32 => s!(|w, a: u32| -> u32 { w.set_scc(!a != 0); !a }),
        Salu::NotB64 => s!(|w, a: u64| -> u64 { w.set_scc(!a != 0); !a }),
        Salu::AddU32 => s!(|w, a: u32, b: u32| -> u32 { let (r, c) = a.overflowing_add(b); w.set_scc(c); r }),
        Salu::SubU32 => s!(|w, a: u32, b: u32| -> u32 { let (r, c) = a.overflowing_sub(b); w.set_scc(c); r }),
        Salu::AddI32 => s!(|w, a: i32, b: i32| -> i32 { let (r, c) = a.overflowing_add(b); w.set_scc(c); r }),
        Salu::SubI32 => s!(|w, a: i32, b: i32| -> i32 { let (r, c) = a.overflowing_sub(b); w.set_scc(c); r }),
        Salu::AddcU32 => s!(|w, a: u32, b: u32| -> u32 { let r = a as u64 + b as u64 + w.s[SCC] as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        Salu::SubbU32 => s!(|w, a: u32, b: u32| -> u32 {
            let r = (a as u64).wrapping_sub(b as u64).wrapping_sub(w.s[SCC] as u64);
            w.set_scc(r >> 32 != 0);
            r as u32
        }),
        Salu::AddNcU64 => s!(|w, a: u64, b: u64| -> u64 { a.wrapping_add(b) }),
        Salu::SubNcU64 => s!(|w, a: u64, b: u64| -> u64 { a.wrapping_sub(b) }),
        Salu::MulU64 => s!(|w, a: u64, b: u64| -> u64 { a.wrapping_mul(b) }),
        Salu::MulI32 => s!(|w, a: u32, b: u32| -> u32 { a.wrapping_mul(b) }),
        Salu::MulHiU32 => s!(|w, a: u32, b: u32| -> u32 { ((a as u64 * b as u64) >> 32) as u32 }),
        Salu::MulHiI32 => s!(|w, a: i32, b: i32| -> i32 { ((a as i64 * b as i64) >> 32) as i32 }),
        // The destination is a source too (appended when decoded).
        Salu::AddkI32 => s!(|w, k: i32, a: i32| -> i32 { let (r, c) = a.overflowing_add(k); w.set_scc(c); r }),
        Salu::MulkI32 => s!(|w, k: u32, a: u32| -> u32 { a.wrapping_mul(k) }),
        Salu::MinI32 => s!(|w, a: i32, b: i32| -> i32 { w.set_scc(a < b); a.min(b) }),
        Salu::MaxI32 => s!(|w, a: i32, b: i32| -> i32 { w.set_scc(a > b); a.max(b) }),
        Salu::MinU32 => s!(|w, a: u32, b: u32| -> u32 { w.set_scc(a < b); a.min(b) }),
        Salu::MaxU32 => s!(|w, a: u32, b: u32| -> u32 { w.set_scc(a > b); a.max(b) }),
        Salu::AbsI32 => s!(|w, a: i32| -> i32 { let r = a.wrapping_abs(); w.set_scc(r != 0); r }),
        Salu::AbsdiffI32 => s!(|w, a: i32, b: i32| -> i32 { let r = a.wrapping_sub(b).wrapping_abs(); w.set_scc(r != 0); r }),
        Salu::AndB32 => logic!(u32, |a, b| a & b),
        Salu::AndB64 => logic!(u64, |a, b| a & b),
        Salu::OrB32 => logic!(u32, |a, b| a | b),
        Salu::OrB64 => logic!(u64, |a, b| a | b),
        Salu::XorB32 => logic!(u32, |a, b| a ^ b),
        Salu::XorB64 => logic!(u64, |a, b| a ^ b),
        Salu::Andn2B32 => logic!(u32, |a, b| a & !b),
        Salu::Andn2B64 => logic!(u64, |a, b| a & !b),
        Salu::Orn2B32 => logic!(u32, |a, b| a | !b),
        Salu::Orn2B64 => logic!(u64, |a, b| a | !b),
        Salu::NandB32 => logic!(u32, |a, b| !(a & b)),
        Salu::NandB64 => logic!(u64, |a, b| !(a & b)),
        Salu::NorB32 => logic!(u32, |a, b| !(a | b)),
        Salu::NorB64 => logic!(u64, |a, b| !(a | b)),
        Salu::XnorB32 => logic!(u32, |a, b| !(a ^ b)),
        Salu::XnorB64 => logic!(u64, |a, b| !(a ^ b)),
        Salu::LshlB32 => logic!(u32, |a, b| a << (b & 31)),
        Salu::LshrB32 => logic!(u32, |a, b| a >> (b & 31)),
        Salu::AshrI32 => logic!(u32, |a, b| ((a as i32) >> (b & 31)) as u32),
        Salu::LshlB64 => s!(|w, a: u64, b: u32| -> u64 { let r = a << (b & 63); w.set_scc(r != 0); r }),
        Salu::LshrB64 => s!(|w, a: u64, b: u32| -> u64 { let r = a >> (b & 63); w.set_scc(r != 0); r }),
        Salu::AshrI64 => s!(|w, a: i64, b: u32| -> i64 { let r = a >> (b & 63); w.set_scc(r != 0); r }),
        Salu::Lshl1AddU32 => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 1) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        Salu::Lshl2AddU32 => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 2) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        Salu::Lshl3AddU32 => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 3) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        Salu::Lshl4AddU32 => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 4) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        Salu::BfmB32 => s!(|w, a: u32, b: u32| -> u32 { (1u32 << (a & 31)).wrapping_sub(1) << (b & 31) }),
        Salu::BfmB64 => s!(|w, a: u32, b: u32| -> u64 { (1u64 << (a & 63)).wrapping_sub(1) << (b & 63) }),
        Salu::BfeU32 => s!(|w, a: u32, b: u32| -> u32 { let r = s_bfe_u32(a, b); w.set_scc(r != 0); r }),
        Salu::BfeI32 => s!(|w, a: u32, b: u32| -> i32 { let r = s_bfe_i32(a, b); w.set_scc(r != 0); r }),
        Salu::BfeU64 => s!(|w, a: u64, b: u32| -> u64 { let r = s_bfe_u64(a, b); w.set_scc(r != 0); r }),
        Salu::BfeI64 => s!(|w, a: u64, b: u32| -> i64 { let r = s_bfe_i64(a, b); w.set_scc(r != 0); r }),
        Salu::BrevB32 => s!(|w, a: u32| -> u32 { a.reverse_bits() }),
        Salu::BrevB64 => s!(|w, a: u64| -> u64 { a.reverse_bits() }),
        Salu::Bcnt0I32B32 => s!(|w, a: u32| -> u32 { let r = a.count_zeros(); w.set_scc(r != 0); r }),
        Salu::Bcnt0I32B64 => s!(|w, a: u64| -> u32 { let r = a.count_zeros(); w.set_scc(r != 0); r }),
        Salu::Bcnt1I32B32 => s!(|w, a: u32| -> u32 { let r = a.count_ones(); w.set_scc(r != 0); r }),
        Salu::Bcnt1I32B64 => s!(|w, a: u64| -> u32 { let r = a.count_ones(); w.set_scc(r != 0); r }),
        Salu::Ff0I32B32 => s!(|w, a: u32| -> u32 { if a == u32::MAX { u32::MAX } else { a.trailing_ones() } }),
        Salu::Ff0I32B64 => s!(|w, a: u64| -> u32 { if a == u64::MAX { u32::MAX } else { a.trailing_ones() } }),
        Salu::Ff1I32B32 => s!(|w, a: u32| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
        Salu::Ff1I32B64 => s!(|w, a: u64| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
        Salu::FlbitI32B32 => s!(|w, a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        Salu::FlbitI32B64 => s!(|w, a: u64| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        Salu::FlbitI32 => s!(|w, a: i32| -> u32 { flbit_signed(a as i64, 32) }),
        Salu::FlbitI32I64 => s!(|w, a: i64| -> u32 { flbit_signed(a, 64) }),
        Salu::SextI32I8 => s!(|w, a: u32| -> i32 { a as u8 as i8 as i32 }),
        Salu::SextI32I16 => s!(|w, a: u32| -> i32 { a as u16 as i16 as i32 }),
        Salu::Bitset0B32 => s!(|w, a: u32, d: u32| -> u32 { d & !(1 << (a & 31)) }),
        Salu::Bitset1B32 => s!(|w, a: u32, d: u32| -> u32 { d | 1 << (a & 31) }),
        Salu::Bitset0B64 => s!(|w, a: u32, d: u64| -> u64 { d & !(1 << (a & 63)) }),
        Salu::Bitset1B64 => s!(|w, a: u32, d: u64| -> u64 { d | 1 << (a & 63) }),
        Salu::Bitcmp0B32 => s!(|w, a: u32, b: u32| -> Nothing { w.set_scc(a >> (b & 31) & 1 == 0); Nothing }),
        Salu::Bitcmp1B32 => s!(|w, a: u32, b: u32| -> Nothing { w.set_scc(a >> (b & 31) & 1 == 1); Nothing }),
        Salu::Bitcmp0B64 => s!(|w, a: u64, b: u32| -> Nothing { w.set_scc(a >> (b & 63) & 1 == 0); Nothing }),
        Salu::Bitcmp1B64 => s!(|w, a: u64, b: u32| -> Nothing { w.set_scc(a >> (b & 63) & 1 == 1); Nothing }),
        Salu::BitreplicateB64B32 => s!(|w, a: u32| -> u64 { replicate(a) }),
        Salu::QuadmaskB32 => s!(|w, a: u32| -> u32 { let r = quad_mask(a as u64) as u32; w.set_scc(r != 0); r }),
        Salu::QuadmaskB64 => s!(|w, a: u64| -> u64 { let r = quad_mask(a); w.set_scc(r != 0); r }),
        Salu::WqmB32 => s!(|w, a: u32| -> u32 { let r = whole_quads(a as u64) as u32; w.set_scc(r != 0); r }),
        Salu::WqmB64 => s!(|w, a: u64| -> u64 { let r = whole_quads(a); w.set_scc(r != 0); r }),
        Salu::PackLlB32B16 => s!(|w, a: u32, b: u32| -> u32 { a & 0xffff | b << 16 }),
        Salu::PackLhB32B16 => s!(|w, a: u32, b: u32| -> u32 { a & 0xffff | b & 0xffff_0000 }),
        Salu::PackHhB32B16 => s!(|w, a: u32, b: u32| -> u32 { a >> 16 | b & 0xffff_0000 }),
        Salu::PackHlB32B16 => s!(|w, a: u32, b: u32| -> u32 { a >> 16 | b << 16 }),
        Salu::MovrelsB32 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let i = moved(w, op.src[0].at);
                w.s[op.dst as usize] = w.s[i];
                Ctl::Next
            }
            f
        }
        Salu::MovrelsB64 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let v = w.pair(moved(w, op.src[0].at));
                w.set_pair(op.dst as usize, v);
                Ctl::Next
            }
            f
        }
        Salu::MovreldB32 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let i = moved(w, op.dst);
                w.s[i] = w.r32(&op.src[0]);
                Ctl::Next
            }
            f
        }
        // M0 bits 9:0 move the source, 25:16 the destination.
        Salu::Movrelsd2B32 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let m0 = w.s[M0];
                let from = (op.src[0].at + (m0 & 0x3ff)) as usize;
                let to = (op.dst + (m0 >> 16 & 0x3ff)) as usize;
                if from < SINK as usize && to < SINK as usize {
                    w.s[to] = w.s[from];
                }
                Ctl::Next
            }
            f
        }
        Salu::MovreldB64 => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let v = w.r64(&op.src[0]);
                w.set_pair(moved(w, op.dst), v);
                Ctl::Next
            }
            f
        }
        Salu::AndSaveexecB32 => saveexec!(32, |a, e| a & e),
        Salu::AndSaveexecB64 => saveexec!(64, |a, e| a & e),
        Salu::OrSaveexecB32 => saveexec!(32, |a, e| a | e),
        Salu::OrSaveexecB64 => saveexec!(64, |a, e| a | e),
        Salu::XorSaveexecB32 => saveexec!(32, |a, e| a ^ e),
        Salu::XorSaveexecB64 => saveexec!(64, |a, e| a ^ e),
        Salu::Andn1SaveexecB32 => saveexec!(32, |a, e| !a & e),
        Salu::Andn1SaveexecB64 => saveexec!(64, |a, e| !a & e),
        Salu::Andn2SaveexecB32 => saveexec!(32, |a, e| a & !e),
        Salu::Andn2SaveexecB64 => saveexec!(64, |a, e| a & !e),
        Salu::Orn1SaveexecB32 => saveexec!(32, |a, e| !a | e),
        Salu::Orn1SaveexecB64 => saveexec!(64, |a, e| !a | e),
        Salu::Orn2SaveexecB32 => saveexec!(32, |a, e| a | !e),
        Salu::Orn2SaveexecB64 => saveexec!(64, |a, e| a | !e),
        Salu::NandSaveexecB32 => saveexec!(32, |a, e| !(a & e)),
        Salu::NandSaveexecB64 => saveexec!(64, |a, e| !(a & e)),
        Salu::NorSaveexecB32 => saveexec!(32, |a, e| !(a | e)),
        Salu::NorSaveexecB64 => saveexec!(64, |a, e| !(a | e)),
        Salu::XnorSaveexecB32 => saveexec!(32, |a, e| !(a ^ e)),
        Salu::XnorSaveexecB64 => saveexec!(64, |a, e| !(a ^ e)),
        Salu::Andn1WrexecB32 => wrexec!(32, |a, e| !a & e),
        Salu::Andn1WrexecB64 => wrexec!(64, |a, e| !a & e),
        Salu::Andn2WrexecB32 => wrexec!(32, |a, e| a & !e),
        Salu::Andn2WrexecB64 => wrexec!(64, |a, e| a & !e),
        Salu::AddF32 => s!(|w, a: f32, b: f32| -> f32 { a + b }),
        Salu::SubF32 => s!(|w, a: f32, b: f32| -> f32 { a - b }),
        Salu::MulF32 => s!(|w, a: f32, b: f32| -> f32 { a * b }),
        Salu::MinF32 => s!(|w, a: f32, b: f32| -> f32 { min_num(a, b) }),
        Salu::MaxF32 => s!(|w, a: f32, b: f32| -> f32 { max_num(a, b) }),
        Salu::MinimumF32 => s!(|w, a: f32, b: f32| -> f32 { minimum(a, b) }),
        Salu::MaximumF32 => s!(|w, a: f32, b: f32| -> f32 { maximum(a, b) }),
        Salu::FmacF32 => s!(|w, a: f32, b: f32, c: f32| -> f32 { fma(a, b, c) }),
        Salu::CeilF32 => s!(|w, a: f32| -> f32 { a.ceil() }),
        Salu::FloorF32 => s!(|w, a: f32| -> f32 { a.floor() }),
        Salu::TruncF32 => s!(|w, a: f32| -> f32 { a.trunc() }),
        Salu::RndneF32 => s!(|w, a: f32| -> f32 { a.round_ties_even() }),
        Salu::CvtF32I32 => s!(|w, a: i32| -> f32 { a as f32 }),
        Salu::CvtF32U32 => s!(|w, a: u32| -> f32 { a as f32 }),
        Salu::CvtI32F32 => s!(|w, a: f32| -> i32 { a as i32 }),
        Salu::CvtU32F32 => s!(|w, a: f32| -> u32 { a as u32 }),
        Salu::CvtF16F32 => s!(|w, a: f32| -> F16 { f32_to_f16(a) }),
        Salu::CvtF32F16 => s!(|w, a: F16| -> f32 { f16_to_f32(a) }),
        Salu::CvtHiF32F16 => s!(|w, a: u32| -> f32 { f16_to_f32(F16((a >> 16) as u16)) }),
        Salu::CvtPkRtzF16F32 => s!(|w, a: f32, b: f32| -> u32 { f32_to_f16_rtz(a).0 as u32 | (f32_to_f16_rtz(b).0 as u32) << 16 }),
        Salu::AddF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, |x, y| x + y) }),
        Salu::SubF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, |x, y| x - y) }),
        Salu::MulF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, |x, y| x * y) }),
        Salu::MinF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, min_num) }),
        Salu::MaxF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, max_num) }),
        Salu::MinimumF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, minimum) }),
        Salu::MaximumF16 => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, maximum) }),
        Salu::FmacF16 => s!(|w, a: F16, b: F16, c: F16| -> F16 { fma16(a, b, c) }),
        Salu::CeilF16 => s!(|w, a: F16| -> F16 { half1(a, f32::ceil) }),
        Salu::FloorF16 => s!(|w, a: F16| -> F16 { half1(a, f32::floor) }),
        Salu::TruncF16 => s!(|w, a: F16| -> F16 { half1(a, f32::trunc) }),
        Salu::RndneF16 => s!(|w, a: F16| -> F16 { half1(a, f32::round_ties_even) }),
        Salu::SExpF32 => s!(|w, a: f32| -> f32 { exp2(a) }),
        Salu::SLogF32 => s!(|w, a: f32| -> f32 { log2(a) }),
        Salu::SRcpF32 => s!(|w, a: f32| -> f32 { rcp(a) }),
        Salu::SRsqF32 => s!(|w, a: f32| -> f32 { rsq(a) }),
        Salu::SSqrtF32 => s!(|w, a: f32| -> f32 { sqrt(a) }),
        Salu::SExpF16 => s!(|w, a: F16| -> F16 { exp2_16(a) }),
        Salu::SLogF16 => s!(|w, a: F16| -> F16 { log2_16(a) }),
        Salu::SRcpF16 => s!(|w, a: F16| -> F16 { half1(a, |x| 1.0 / x) }),
        Salu::SRsqF16 => s!(|w, a: F16| -> F16 { f64_to_f16(1.0 / (f16_to_f32(a) as f64).sqrt()) }),
        Salu::SSqrtF16 => s!(|w, a: F16| -> F16 { half1(a, f32::sqrt) }),
    }
}
