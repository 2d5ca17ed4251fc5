//! Scalar ALU: arithmetic, logic, compares, mask instructions of EXEC.
//!
//! One function per instruction, written as a body over typed operands; the macro [`s!`] adds reading and writing.
//!
//! Source: chapter "Scalar ALU Operations" and the SOP2, SOPK, SOP1 and SOPC pseudocode of the "Vega" and "RDNA2" manuals;
//! floating-point instructions "RDNA4" ("RDNA3.5").

// `lg` is "ordered and unequal", which `!=` is not for NaN.
#![allow(clippy::double_comparisons)]

use crate::lanes::F16;
use crate::numeric::*;
use crate::sem::round;
use crate::wave::{Ctl, EXEC, Kind, M0, Run, SCC, SINK, Src, UOp, Wave};

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
macro_rules! cmp {
    ($T:ty, $e:expr) => {
        s!(|w, a: $T, b: $T| -> Nothing {
            let f: fn($T, $T) -> bool = $e;
            w.set_scc(f(a, b));
            Nothing
        })
    };
}
/// As [`cmp`] for halves, compared as singles.
macro_rules! cmp16 {
    ($e:expr) => {
        s!(|w, a: F16, b: F16| -> Nothing {
            let f: fn(f32, f32) -> bool = $e;
            w.set_scc(f(f16_to_f32(a), f16_to_f32(b)));
            Nothing
        })
    };
}

fn float_compare(relation: &str) -> Option<fn(f32, f32) -> bool> {
    Some(match relation {
        "lt" => |a, b| a < b,
        "eq" => |a, b| a == b,
        "le" => |a, b| a <= b,
        "gt" => |a, b| a > b,
        "lg" => |a, b| a < b || a > b,
        "ge" => |a, b| a >= b,
        "o" => |a, b| !a.is_nan() && !b.is_nan(),
        "u" => |a, b| a.is_nan() || b.is_nan(),
        "nge" => |a, b| a.is_nan() || b.is_nan() || a < b,
        "nlg" => |a, b| a.is_nan() || b.is_nan() || a == b,
        "ngt" => |a, b| a.is_nan() || b.is_nan() || a <= b,
        "nle" => |a, b| a.is_nan() || b.is_nan() || a > b,
        "neq" => |a, b| a != b,
        "nlt" => |a, b| a.is_nan() || b.is_nan() || a >= b,
        _ => return None,
    })
}

/// Handler of a float compare: the relation is looked up when it runs, these are rare.
fn float_cmp(name: &str) -> Option<Run> {
    let rest = name.strip_prefix("s_cmp_")?;
    let (relation, ty) = rest.rsplit_once('_')?;
    float_compare(relation)?;
    macro_rules! all {
        ($($r:literal)*) => {
            match (relation, ty) {
                $(
                    ($r, "f32") => s!(|w, a: f32, b: f32| -> Nothing {
                        w.set_scc(float_compare($r).is_some_and(|f| f(a, b)));
                        Nothing
                    }),
                    ($r, "f16") => cmp16!(|a, b| float_compare($r).is_some_and(|f| f(a, b))),
                )*
                _ => return None,
            }
        };
    }
    Some(all!("lt" "eq" "le" "gt" "lg" "ge" "o" "u" "nge" "nlg" "ngt" "nle" "neq" "nlt"))
}

/// Relative scalar moves: M0 is added to the register number.
fn moved(w: &Wave, at: u32) -> usize {
    (at as usize + w.s[M0] as usize).min(SINK as usize)
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

/// Handler by name.
#[rustfmt::skip]
pub fn find(name: &str) -> Option<Run> {
    Some(match name {
        "s_mov_b32" | "s_movk_i32" => s!(|w, a: u32| -> u32 { a }),
        "s_mov_b64" => s!(|w, a: u64| -> u64 { a }),
        "s_cmov_b32" | "s_cmovk_i32" => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                if w.s[SCC] != 0 { w.s[op.dst as usize] = w.r32(&op.src[0]); }
                Ctl::Next
            }
            f
        }
        "s_cmov_b64" => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                if w.s[SCC] != 0 { let v = w.r64(&op.src[0]); w.set_pair(op.dst as usize, v); }
                Ctl::Next
            }
            f
        }
        "s_cselect_b32" => s!(|w, a: u32, b: u32| -> u32 { if w.s[SCC] != 0 { a } else { b } }),
        "s_cselect_b64" => s!(|w, a: u64, b: u64| -> u64 { if w.s[SCC] != 0 { a } else { b } }),
        "s_not_b32" => s!(|w, a: u32| -> u32 { w.set_scc(!a != 0); !a }),
        "s_not_b64" => s!(|w, a: u64| -> u64 { w.set_scc(!a != 0); !a }),
        "s_add_u32" => s!(|w, a: u32, b: u32| -> u32 { let (r, c) = a.overflowing_add(b); w.set_scc(c); r }),
        "s_sub_u32" => s!(|w, a: u32, b: u32| -> u32 { let (r, c) = a.overflowing_sub(b); w.set_scc(c); r }),
        "s_add_i32" => s!(|w, a: i32, b: i32| -> i32 { let (r, c) = a.overflowing_add(b); w.set_scc(c); r }),
        "s_sub_i32" => s!(|w, a: i32, b: i32| -> i32 { let (r, c) = a.overflowing_sub(b); w.set_scc(c); r }),
        "s_addc_u32" => s!(|w, a: u32, b: u32| -> u32 { let r = a as u64 + b as u64 + w.s[SCC] as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        "s_subb_u32" => s!(|w, a: u32, b: u32| -> u32 {
            let r = (a as u64).wrapping_sub(b as u64).wrapping_sub(w.s[SCC] as u64);
            w.set_scc(r >> 32 != 0);
            r as u32
        }),
        "s_add_nc_u64" => s!(|w, a: u64, b: u64| -> u64 { a.wrapping_add(b) }),
        "s_sub_nc_u64" => s!(|w, a: u64, b: u64| -> u64 { a.wrapping_sub(b) }),
        "s_mul_u64" => s!(|w, a: u64, b: u64| -> u64 { a.wrapping_mul(b) }),
        "s_mul_i32" => s!(|w, a: u32, b: u32| -> u32 { a.wrapping_mul(b) }),
        "s_mul_hi_u32" => s!(|w, a: u32, b: u32| -> u32 { ((a as u64 * b as u64) >> 32) as u32 }),
        "s_mul_hi_i32" => s!(|w, a: i32, b: i32| -> i32 { ((a as i64 * b as i64) >> 32) as i32 }),
        // The destination is a source too (appended when decoded).
        "s_addk_i32" => s!(|w, k: i32, a: i32| -> i32 { let (r, c) = a.overflowing_add(k); w.set_scc(c); r }),
        "s_mulk_i32" => s!(|w, k: u32, a: u32| -> u32 { a.wrapping_mul(k) }),
        "s_min_i32" => s!(|w, a: i32, b: i32| -> i32 { w.set_scc(a < b); a.min(b) }),
        "s_max_i32" => s!(|w, a: i32, b: i32| -> i32 { w.set_scc(a > b); a.max(b) }),
        "s_min_u32" => s!(|w, a: u32, b: u32| -> u32 { w.set_scc(a < b); a.min(b) }),
        "s_max_u32" => s!(|w, a: u32, b: u32| -> u32 { w.set_scc(a > b); a.max(b) }),
        "s_abs_i32" => s!(|w, a: i32| -> i32 { let r = a.wrapping_abs(); w.set_scc(r != 0); r }),
        "s_absdiff_i32" => s!(|w, a: i32, b: i32| -> i32 { let r = a.wrapping_sub(b).wrapping_abs(); w.set_scc(r != 0); r }),
        "s_and_b32" => logic!(u32, |a, b| a & b),
        "s_and_b64" => logic!(u64, |a, b| a & b),
        "s_or_b32" => logic!(u32, |a, b| a | b),
        "s_or_b64" => logic!(u64, |a, b| a | b),
        "s_xor_b32" => logic!(u32, |a, b| a ^ b),
        "s_xor_b64" => logic!(u64, |a, b| a ^ b),
        "s_andn2_b32" => logic!(u32, |a, b| a & !b),
        "s_andn2_b64" => logic!(u64, |a, b| a & !b),
        "s_orn2_b32" => logic!(u32, |a, b| a | !b),
        "s_orn2_b64" => logic!(u64, |a, b| a | !b),
        "s_nand_b32" => logic!(u32, |a, b| !(a & b)),
        "s_nand_b64" => logic!(u64, |a, b| !(a & b)),
        "s_nor_b32" => logic!(u32, |a, b| !(a | b)),
        "s_nor_b64" => logic!(u64, |a, b| !(a | b)),
        "s_xnor_b32" => logic!(u32, |a, b| !(a ^ b)),
        "s_xnor_b64" => logic!(u64, |a, b| !(a ^ b)),
        "s_lshl_b32" => logic!(u32, |a, b| a << (b & 31)),
        "s_lshr_b32" => logic!(u32, |a, b| a >> (b & 31)),
        "s_ashr_i32" => logic!(u32, |a, b| ((a as i32) >> (b & 31)) as u32),
        "s_lshl_b64" => s!(|w, a: u64, b: u32| -> u64 { let r = a << (b & 63); w.set_scc(r != 0); r }),
        "s_lshr_b64" => s!(|w, a: u64, b: u32| -> u64 { let r = a >> (b & 63); w.set_scc(r != 0); r }),
        "s_ashr_i64" => s!(|w, a: i64, b: u32| -> i64 { let r = a >> (b & 63); w.set_scc(r != 0); r }),
        "s_lshl1_add_u32" => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 1) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        "s_lshl2_add_u32" => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 2) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        "s_lshl3_add_u32" => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 3) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        "s_lshl4_add_u32" => s!(|w, a: u32, b: u32| -> u32 { let r = ((a as u64) << 4) + b as u64; w.set_scc(r >> 32 != 0); r as u32 }),
        "s_bfm_b32" => s!(|w, a: u32, b: u32| -> u32 { (1u32 << (a & 31)).wrapping_sub(1) << (b & 31) }),
        "s_bfm_b64" => s!(|w, a: u32, b: u32| -> u64 { (1u64 << (a & 63)).wrapping_sub(1) << (b & 63) }),
        "s_bfe_u32" => s!(|w, a: u32, b: u32| -> u32 { let r = s_bfe_u32(a, b); w.set_scc(r != 0); r }),
        "s_bfe_i32" => s!(|w, a: u32, b: u32| -> i32 { let r = s_bfe_i32(a, b); w.set_scc(r != 0); r }),
        "s_bfe_u64" => s!(|w, a: u64, b: u32| -> u64 { let r = s_bfe_u64(a, b); w.set_scc(r != 0); r }),
        "s_bfe_i64" => s!(|w, a: u64, b: u32| -> i64 { let r = s_bfe_i64(a, b); w.set_scc(r != 0); r }),
        "s_brev_b32" => s!(|w, a: u32| -> u32 { a.reverse_bits() }),
        "s_brev_b64" => s!(|w, a: u64| -> u64 { a.reverse_bits() }),
        "s_bcnt0_i32_b32" => s!(|w, a: u32| -> u32 { let r = a.count_zeros(); w.set_scc(r != 0); r }),
        "s_bcnt0_i32_b64" => s!(|w, a: u64| -> u32 { let r = a.count_zeros(); w.set_scc(r != 0); r }),
        "s_bcnt1_i32_b32" => s!(|w, a: u32| -> u32 { let r = a.count_ones(); w.set_scc(r != 0); r }),
        "s_bcnt1_i32_b64" => s!(|w, a: u64| -> u32 { let r = a.count_ones(); w.set_scc(r != 0); r }),
        "s_ff0_i32_b32" => s!(|w, a: u32| -> u32 { if a == u32::MAX { u32::MAX } else { a.trailing_ones() } }),
        "s_ff0_i32_b64" => s!(|w, a: u64| -> u32 { if a == u64::MAX { u32::MAX } else { a.trailing_ones() } }),
        "s_ff1_i32_b32" => s!(|w, a: u32| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
        "s_ff1_i32_b64" => s!(|w, a: u64| -> u32 { if a == 0 { u32::MAX } else { a.trailing_zeros() } }),
        "s_flbit_i32_b32" => s!(|w, a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        "s_flbit_i32_b64" => s!(|w, a: u64| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        "s_flbit_i32" => s!(|w, a: i32| -> u32 { flbit_signed(a as i64, 32) }),
        "s_flbit_i32_i64" => s!(|w, a: i64| -> u32 { flbit_signed(a, 64) }),
        "s_sext_i32_i8" => s!(|w, a: u32| -> i32 { a as u8 as i8 as i32 }),
        "s_sext_i32_i16" => s!(|w, a: u32| -> i32 { a as u16 as i16 as i32 }),
        "s_bitset0_b32" => s!(|w, a: u32, d: u32| -> u32 { d & !(1 << (a & 31)) }),
        "s_bitset1_b32" => s!(|w, a: u32, d: u32| -> u32 { d | 1 << (a & 31) }),
        "s_bitset0_b64" => s!(|w, a: u32, d: u64| -> u64 { d & !(1 << (a & 63)) }),
        "s_bitset1_b64" => s!(|w, a: u32, d: u64| -> u64 { d | 1 << (a & 63) }),
        "s_bitcmp0_b32" => s!(|w, a: u32, b: u32| -> Nothing { w.set_scc(a >> (b & 31) & 1 == 0); Nothing }),
        "s_bitcmp1_b32" => s!(|w, a: u32, b: u32| -> Nothing { w.set_scc(a >> (b & 31) & 1 == 1); Nothing }),
        "s_bitcmp0_b64" => s!(|w, a: u64, b: u32| -> Nothing { w.set_scc(a >> (b & 63) & 1 == 0); Nothing }),
        "s_bitcmp1_b64" => s!(|w, a: u64, b: u32| -> Nothing { w.set_scc(a >> (b & 63) & 1 == 1); Nothing }),
        "s_bitreplicate_b64_b32" => s!(|w, a: u32| -> u64 { replicate(a) }),
        "s_quadmask_b32" => s!(|w, a: u32| -> u32 { let r = quad_mask(a as u64) as u32; w.set_scc(r != 0); r }),
        "s_quadmask_b64" => s!(|w, a: u64| -> u64 { let r = quad_mask(a); w.set_scc(r != 0); r }),
        "s_wqm_b32" => s!(|w, a: u32| -> u32 { let r = whole_quads(a as u64) as u32; w.set_scc(r != 0); r }),
        "s_wqm_b64" => s!(|w, a: u64| -> u64 { let r = whole_quads(a); w.set_scc(r != 0); r }),
        "s_pack_ll_b32_b16" => s!(|w, a: u32, b: u32| -> u32 { a & 0xffff | b << 16 }),
        "s_pack_lh_b32_b16" => s!(|w, a: u32, b: u32| -> u32 { a & 0xffff | b & 0xffff_0000 }),
        "s_pack_hh_b32_b16" => s!(|w, a: u32, b: u32| -> u32 { a >> 16 | b & 0xffff_0000 }),
        "s_pack_hl_b32_b16" => s!(|w, a: u32, b: u32| -> u32 { a >> 16 | b << 16 }),
        "s_movrels_b32" => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let i = moved(w, op.src[0].at);
                w.s[op.dst as usize] = w.s[i];
                Ctl::Next
            }
            f
        }
        "s_movrels_b64" => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let v = w.pair(moved(w, op.src[0].at));
                w.set_pair(op.dst as usize, v);
                Ctl::Next
            }
            f
        }
        "s_movreld_b32" => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let i = moved(w, op.dst);
                w.s[i] = w.r32(&op.src[0]);
                Ctl::Next
            }
            f
        }
        // M0 bits 9:0 move the source, 25:16 the destination.
        "s_movrelsd_2_b32" => {
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
        "s_movreld_b64" => {
            unsafe fn f(w: &mut Wave, op: &UOp) -> Ctl {
                let v = w.r64(&op.src[0]);
                w.set_pair(moved(w, op.dst), v);
                Ctl::Next
            }
            f
        }
        "s_cmp_eq_i32" | "s_cmp_eq_u32" | "s_cmpk_eq_i32" | "s_cmpk_eq_u32" => cmp!(u32, |a, b| a == b),
        "s_cmp_lg_i32" | "s_cmp_lg_u32" | "s_cmpk_lg_i32" | "s_cmpk_lg_u32" => cmp!(u32, |a, b| a != b),
        "s_cmp_gt_i32" | "s_cmpk_gt_i32" => cmp!(i32, |a, b| a > b),
        "s_cmp_ge_i32" | "s_cmpk_ge_i32" => cmp!(i32, |a, b| a >= b),
        "s_cmp_lt_i32" | "s_cmpk_lt_i32" => cmp!(i32, |a, b| a < b),
        "s_cmp_le_i32" | "s_cmpk_le_i32" => cmp!(i32, |a, b| a <= b),
        "s_cmp_gt_u32" | "s_cmpk_gt_u32" => cmp!(u32, |a, b| a > b),
        "s_cmp_ge_u32" | "s_cmpk_ge_u32" => cmp!(u32, |a, b| a >= b),
        "s_cmp_lt_u32" | "s_cmpk_lt_u32" => cmp!(u32, |a, b| a < b),
        "s_cmp_le_u32" | "s_cmpk_le_u32" => cmp!(u32, |a, b| a <= b),
        "s_cmp_eq_u64" => cmp!(u64, |a, b| a == b),
        "s_cmp_lg_u64" => cmp!(u64, |a, b| a != b),
        "s_and_saveexec_b32" => saveexec!(32, |a, e| a & e),
        "s_and_saveexec_b64" => saveexec!(64, |a, e| a & e),
        "s_or_saveexec_b32" => saveexec!(32, |a, e| a | e),
        "s_or_saveexec_b64" => saveexec!(64, |a, e| a | e),
        "s_xor_saveexec_b32" => saveexec!(32, |a, e| a ^ e),
        "s_xor_saveexec_b64" => saveexec!(64, |a, e| a ^ e),
        "s_andn1_saveexec_b32" => saveexec!(32, |a, e| !a & e),
        "s_andn1_saveexec_b64" => saveexec!(64, |a, e| !a & e),
        "s_andn2_saveexec_b32" => saveexec!(32, |a, e| a & !e),
        "s_andn2_saveexec_b64" => saveexec!(64, |a, e| a & !e),
        "s_orn1_saveexec_b32" => saveexec!(32, |a, e| !a | e),
        "s_orn1_saveexec_b64" => saveexec!(64, |a, e| !a | e),
        "s_orn2_saveexec_b32" => saveexec!(32, |a, e| a | !e),
        "s_orn2_saveexec_b64" => saveexec!(64, |a, e| a | !e),
        "s_nand_saveexec_b32" => saveexec!(32, |a, e| !(a & e)),
        "s_nand_saveexec_b64" => saveexec!(64, |a, e| !(a & e)),
        "s_nor_saveexec_b32" => saveexec!(32, |a, e| !(a | e)),
        "s_nor_saveexec_b64" => saveexec!(64, |a, e| !(a | e)),
        "s_xnor_saveexec_b32" => saveexec!(32, |a, e| !(a ^ e)),
        "s_xnor_saveexec_b64" => saveexec!(64, |a, e| !(a ^ e)),
        "s_andn1_wrexec_b32" => wrexec!(32, |a, e| !a & e),
        "s_andn1_wrexec_b64" => wrexec!(64, |a, e| !a & e),
        "s_andn2_wrexec_b32" => wrexec!(32, |a, e| a & !e),
        "s_andn2_wrexec_b64" => wrexec!(64, |a, e| a & !e),
        "s_add_f32" => s!(|w, a: f32, b: f32| -> f32 { a + b }),
        "s_sub_f32" => s!(|w, a: f32, b: f32| -> f32 { a - b }),
        "s_mul_f32" => s!(|w, a: f32, b: f32| -> f32 { a * b }),
        "s_min_f32" => s!(|w, a: f32, b: f32| -> f32 { min_num(a, b) }),
        "s_max_f32" => s!(|w, a: f32, b: f32| -> f32 { max_num(a, b) }),
        "s_minimum_f32" => s!(|w, a: f32, b: f32| -> f32 { minimum(a, b) }),
        "s_maximum_f32" => s!(|w, a: f32, b: f32| -> f32 { maximum(a, b) }),
        "s_fmac_f32" | "s_fmaak_f32" | "s_fmamk_f32" => s!(|w, a: f32, b: f32, c: f32| -> f32 { fma(a, b, c) }),
        "s_ceil_f32" => s!(|w, a: f32| -> f32 { a.ceil() }),
        "s_floor_f32" => s!(|w, a: f32| -> f32 { a.floor() }),
        "s_trunc_f32" => s!(|w, a: f32| -> f32 { a.trunc() }),
        "s_rndne_f32" => s!(|w, a: f32| -> f32 { a.round_ties_even() }),
        "s_cvt_f32_i32" => s!(|w, a: i32| -> f32 { a as f32 }),
        "s_cvt_f32_u32" => s!(|w, a: u32| -> f32 { a as f32 }),
        "s_cvt_i32_f32" => s!(|w, a: f32| -> i32 { a as i32 }),
        "s_cvt_u32_f32" => s!(|w, a: f32| -> u32 { a as u32 }),
        "s_cvt_f16_f32" => s!(|w, a: f32| -> F16 { f32_to_f16(a) }),
        "s_cvt_f32_f16" => s!(|w, a: F16| -> f32 { f16_to_f32(a) }),
        "s_cvt_hi_f32_f16" => s!(|w, a: u32| -> f32 { f16_to_f32(F16((a >> 16) as u16)) }),
        "s_cvt_pk_rtz_f16_f32" => s!(|w, a: f32, b: f32| -> u32 { f32_to_f16_rtz(a).0 as u32 | (f32_to_f16_rtz(b).0 as u32) << 16 }),
        "s_add_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, |x, y| x + y) }),
        "s_sub_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, |x, y| x - y) }),
        "s_mul_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, |x, y| x * y) }),
        "s_min_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, min_num) }),
        "s_max_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, max_num) }),
        "s_minimum_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, minimum) }),
        "s_maximum_f16" => s!(|w, a: F16, b: F16| -> F16 { half2(a, b, maximum) }),
        "s_fmac_f16" => s!(|w, a: F16, b: F16, c: F16| -> F16 { fma16(a, b, c) }),
        "s_ceil_f16" => s!(|w, a: F16| -> F16 { half1(a, f32::ceil) }),
        "s_floor_f16" => s!(|w, a: F16| -> F16 { half1(a, f32::floor) }),
        "s_trunc_f16" => s!(|w, a: F16| -> F16 { half1(a, f32::trunc) }),
        "s_rndne_f16" => s!(|w, a: F16| -> F16 { half1(a, f32::round_ties_even) }),
        "v_s_exp_f32" => s!(|w, a: f32| -> f32 { exp2(a) }),
        "v_s_log_f32" => s!(|w, a: f32| -> f32 { log2(a) }),
        "v_s_rcp_f32" => s!(|w, a: f32| -> f32 { rcp(a) }),
        "v_s_rsq_f32" => s!(|w, a: f32| -> f32 { rsq(a) }),
        "v_s_sqrt_f32" => s!(|w, a: f32| -> f32 { sqrt(a) }),
        "v_s_exp_f16" => s!(|w, a: F16| -> F16 { exp2_16(a) }),
        "v_s_log_f16" => s!(|w, a: F16| -> F16 { log2_16(a) }),
        "v_s_rcp_f16" => s!(|w, a: F16| -> F16 { half1(a, |x| 1.0 / x) }),
        "v_s_rsq_f16" => s!(|w, a: F16| -> F16 { f64_to_f16(1.0 / (f16_to_f32(a) as f64).sqrt()) }),
        "v_s_sqrt_f16" => s!(|w, a: F16| -> F16 { half1(a, f32::sqrt) }),
        _ => return float_cmp(name),
    })
}

/// Instructions whose destination is also their last source.
pub fn reads_destination(name: &str) -> bool {
    matches!(
        name,
        "s_addk_i32"
            | "s_mulk_i32"
            | "s_bitset0_b32"
            | "s_bitset1_b32"
            | "s_bitset0_b64"
            | "s_bitset1_b64"
            | "s_fmac_f32"
            | "s_fmac_f16"
    )
}
