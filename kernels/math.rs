//! Elementary functions on f32, from the hardware's base-2 transcendentals and polynomials.
//!
//! Accuracy: every function of one operand is within 4 ULP of the exact result for every f32, denormal ones among
//! operands and results; `tools/ulp` measures it. The hardware's own `v_exp_f32`, `v_log_f32`, `v_rcp_f32` and
//! `v_sqrt_f32` are chosen as the core because they are within 1 ULP and an instruction each; they flush denormals, so
//! reductions around them scale, and carry the low part of each constant. A NaN operand gives a NaN.

use crate::mir::{Builder, Gen, Opnd, Part, Type};
use barewave_isa::{ModName, Mods, Regs, VCC, op};

/// `-x`.
pub(super) fn neg(b: &mut Builder, x: Opnd) -> Part {
    b.op(Gen::Xor.of(Type::B32), &[0x8000_0000u32.into(), x])
}

/// `-|x|`.
pub(super) fn minus_abs(b: &mut Builder, x: Opnd) -> Part {
    b.op(Gen::Or.of(Type::B32), &[0x8000_0000u32.into(), x])
}

/// `|x|`.
pub(super) fn abs(b: &mut Builder, x: Opnd) -> Part {
    b.op(Gen::And.of(Type::B32), &[0x7fff_ffffu32.into(), x])
}

/// `a + b`.
pub(super) fn add(b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
    b.op(Gen::Add.of(Type::F32), &[x.into(), y.into()])
}

/// `a - b`.
pub(super) fn sub(b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
    b.op(Gen::Sub.of(Type::F32), &[x.into(), y.into()])
}

/// `a * b`.
pub(super) fn mul(b: &mut Builder, x: impl Into<Opnd>, y: impl Into<Opnd>) -> Part {
    b.op(Gen::Mul.of(Type::F32), &[x.into(), y.into()])
}

/// `x y + z` of the type, f32 or f64, with the operands negated that have a bit in `negated`.
fn fma_of(b: &mut Builder, ty: Type, negated: i32, srcs: [Opnd; 3]) -> Part {
    let op = if ty == Type::F64 { op::V_FMA_F64 } else { op::V_FMA_F32 };
    b.op_with(op, &srcs, Mods::new().with(ModName::Neg, negated))
}

/// `x y - z` in f32 or f64, rounded once.
pub(super) fn product_less(b: &mut Builder, ty: Type, [x, y, z]: [Opnd; 3]) -> Part {
    fma_of(b, ty, 0b100, [x, y, z])
}

/// `z - x y` in f32 or f64, rounded once.
pub(super) fn less_product(b: &mut Builder, ty: Type, [x, y, z]: [Opnd; 3]) -> Part {
    fma_of(b, ty, 0b001, [x, y, z])
}

/// The magnitude of `x` with the sign of `s`.
pub(super) fn copysign(b: &mut Builder, x: Part, s: Opnd) -> Part {
    let mask = b.scalar(0x7fff_ffff);
    b.op(op::V_BFI_B32, &[mask.into(), x.into(), s])
}

/// `value`, or a NaN where `x` is one.
fn keep_nan(b: &mut Builder, x: Opnd, value: Part) -> Part {
    let x = as_vector(b, x);
    let nan = b.op(Gen::CmpUnordered.of(Type::F32), &[x.into(), x.into()]);
    b.select(nan, x, value)
}

pub(super) fn as_vector(b: &mut Builder, x: Opnd) -> Part {
    match x {
        Opnd::V(p) if b.is_vector(x) => p,
        _ => b.to_vector(x),
    }
}

/// Added to a number below 2^22 it leaves the nearest integer in the sum's lowest bits.
pub(super) const WHOLE: f32 = 12_582_912.0;

/// Exponents of two that results are computed with, at most: beyond, they are 0 or infinite, even times `2^64`.
const MOST_EXPONENT: f32 = 300.0;

/// `x y` and [`WHOLE`], as bits: its lowest are the nearest integer.
pub(super) fn product_and_whole(b: &mut Builder, x: Part, y: impl Into<Opnd>) -> Part {
    let (whole, sum) = (b.to_vector(WHOLE), b.v(1));
    b.emit(Gen::Fma.of(Type::F32), &[sum.into()], &[x.into(), y.into(), whole.into()]);
    sum
}

/// `n` as a float, of a sum of [`WHOLE`] and `n`.
pub(super) fn whole_part(b: &mut Builder, sum: Part) -> Part {
    add(b, -WHOLE, sum)
}

/// `n + more` as an integer, of a sum of [`WHOLE`] and `n`.
pub(super) fn exponent_of_sum(b: &mut Builder, sum: Part, more: i32) -> Part {
    b.add(sum, more.wrapping_sub_unsigned(WHOLE.to_bits()))
}

/// A sum of [`WHOLE`] and an exponent, which is taken no further than where results end; and that exponent as a float.
pub(super) fn exponent_within_reach(b: &mut Builder, sum: Part) -> (Part, Part) {
    let [lo, hi] = [-MOST_EXPONENT, MOST_EXPONENT].map(|n| b.to_vector(WHOLE + n));
    let within = b.v(1);
    b.emit(op::V_MED3_F32, &[within.into()], &[sum.into(), lo.into(), hi.into()]);
    (within, whole_part(b, within))
}

/// `e^x`.
pub(super) fn exp(b: &mut Builder, x: Opnd) -> Part {
    exp_scaled(b, x, 0)
}

/// `2^scale e^x`.
fn exp_scaled(b: &mut Builder, x: Opnd, scale: i32) -> Part {
    let (p, sum) = exp_of_rest(b, x);
    let n = exponent_of_sum(b, sum, scale);
    b.op(Gen::Ldexp.of(Type::F32), &[p.into(), n.into()])
}

/// `e^x = p 2^n`: `x = n ln 2 + f` and `p = 2^(f / ln 2)` by the hardware. Far beyond where the result overflows, or is 0 even times
/// `2^64`, `p` is infinite or 0; of a NaN it is one.
pub(super) fn exp_parts(b: &mut Builder, x: Opnd) -> (Part, Part) {
    let (p, sum) = exp_of_rest(b, x);
    (p, exponent_of_sum(b, sum, 0))
}

/// The same with the sum of [`WHOLE`] and `n`.
fn exp_of_rest(b: &mut Builder, x: Opnd) -> (Part, Part) {
    let x = as_vector(b, x);
    let log2e = b.to_vector(std::f32::consts::LOG2_E);
    let sum = product_and_whole(b, x, log2e);
    let (sum, n) = exponent_within_reach(b, sum);
    // f = x * log2e - n with the constant's low part put back.
    let f = product_less(b, Type::F32, [x.into(), log2e.into(), n.into()]);
    let f = b.fma(x, 1.925_963e-8f32, f);
    (b.op(Gen::Exp2.of(Type::F32), &[f.into()]), sum)
}

/// `e^x - 1`: `x = n ln 2 + f`, a polynomial `p = e^f - 1`, then `2^n p + (2^n - 1)`, all halved so that `2^n` does not
/// overflow before the result does.
pub(super) fn exp_minus_one(b: &mut Builder, x: Opnd) -> Part {
    let lo = b.to_vector(-30.0f32);
    let hi = b.to_vector(89.0f32);
    let c = b.op(op::V_MED3_F32, &[x, lo.into(), hi.into()]);
    let sum = product_and_whole(b, c, std::f32::consts::LOG2_E);
    let n = whole_part(b, sum);
    // ln 2 in two parts.
    let f = less_product(b, Type::F32, [n.into(), std::f32::consts::LN_2.into(), c.into()]);
    let f = b.fma(n, 1.904_654_2e-9f32, f);
    let p = polynomial(b, f, &[1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5]);
    let square = mul(b, f, f);
    let p = b.fma(square, p, f);
    let n = exponent_of_sum(b, sum, -1);
    let scale = b.op(Gen::Ldexp.of(Type::F32), &[1.0f32.into(), n.into()]);
    let whole = add(b, -0.5f32, scale);
    let half = b.fma(scale, p, whole);
    let r = add(b, half, half);
    // Where n is 0 that is p; tiny operands pass unchanged.
    let zero = b.op(Gen::CmpEq.of(Type::U32), &[(-1i32).into(), n.into()]);
    let r = b.select(zero, p, r);
    keep_nan(b, x, r)
}

/// Natural logarithm: the hardware's base-2 logarithm times ln 2 in two parts.
pub(super) fn log(b: &mut Builder, x: Opnd) -> Part {
    // Subnormal operands are scaled by 2^32 first.
    let x = as_vector(b, x);
    let small = b.op(Gen::CmpGt.of(Type::F32), &[f32::MIN_POSITIVE.into(), x.into()]);
    let scale = b.to_vector(4_294_967_296.0f32);
    let scale = b.select(small, scale, 1.0f32);
    let s = mul(b, x, scale);
    let l = b.op(Gen::Log2.of(Type::F32), &[s.into()]);
    let shift = b.to_vector(32.0f32);
    let shift = b.select(small, shift, 0.0f32);
    let l = sub(b, l, shift);
    by_ln_2(b, l)
}

/// `l ln 2`, ln 2 in two parts of one sign, so that infinities stay what they are.
fn by_ln_2(b: &mut Builder, l: Part) -> Part {
    let low = mul(b, 5.769_999e-8f32, l);
    b.fma(l, std::f32::consts::LN_2.next_down(), low)
}

/// `ln(1 + x)`: the logarithm of the rounded sum, which is 0 or no denormal, and what the rounding took.
pub(super) fn log_one_plus(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let u = add(b, 1.0f32, x);
    let l = b.op(Gen::Log2.of(Type::F32), &[u.into()]);
    let l = by_ln_2(b, l);
    let taken = add(b, -1.0f32, u);
    let lost = sub(b, x, taken);
    let r = b.op(Gen::Rcp.of(Type::F32), &[u.into()]);
    let lost = mul(b, lost, r);
    // At the pole and at infinity nothing is lost, which the median gives: nowhere else is it that much.
    let [least, most] = [-1.0, 1.0].map(|s| b.to_vector(s * 2f32.powi(-23)));
    let lost = b.op(op::V_MED3_F32, &[lost.into(), least.into(), most.into()]);
    add(b, l, lost)
}

/// `n / d` in f32 or f64, correctly rounded: scaled operands, Newton-Raphson, final fix-up of special cases.
pub(super) fn div_of(b: &mut Builder, ty: Type, n: Opnd, d: Opnd) -> Part {
    let double = ty == Type::F64;
    let (scale, fmas, fixup) = if double {
        (op::V_DIV_SCALE_F64, op::V_DIV_FMAS_F64, op::V_DIV_FIXUP_F64)
    } else {
        (op::V_DIV_SCALE_F32, op::V_DIV_FMAS_F32, op::V_DIV_FIXUP_F32)
    };
    let (n, d) = if double { (n, d) } else { (as_vector(b, n).into(), as_vector(b, d).into()) };
    let fma = |b: &mut Builder, x: Part, y: Part, z: Opnd| b.op(Gen::Fma.of(ty), &[x.into(), y.into(), z]);
    let vcc: Regs = Regs { dwords: b.function().mask_dwords(), ..VCC };
    let unused = b.mask();
    let (ds, ns) = (b.v(ty.dwords()), b.v(ty.dwords()));
    b.emit(scale, &[ds.into(), unused.into()], &[d, d, n]);
    b.emit(scale, &[ns.into(), vcc.into()], &[n, d, n]);
    let mut r = b.op(Gen::Rcp.of(ty), &[ds.into()]);
    let left = |b: &mut Builder, x: Part, z: Opnd| less_product(b, ty, [ds.into(), x.into(), z]);
    let one: Opnd = if double { super::double::constant(b, 1.0).into() } else { 1.0f32.into() };
    // The hardware's reciprocal has 24 bits.
    for _ in 0..if double { 2 } else { 1 } {
        let e = left(b, r, one);
        r = fma(b, e, r, r.into());
    }
    let q = b.op(Gen::Mul.of(ty), &[ns.into(), r.into()]);
    let e = left(b, q, ns.into());
    let (q, e) = if double {
        (q, e)
    } else {
        let q = fma(b, e, r, q.into());
        (q, left(b, q, ns.into()))
    };
    let q = b.op(fmas, &[e.into(), r.into(), q.into()]);
    b.op(fixup, &[q.into(), d, n])
}

/// Square root of what is no denormal: the hardware's.
pub(super) fn sqrt_of_normal(b: &mut Builder, x: Opnd) -> Part {
    b.op(Gen::Sqrt.of(Type::F32), &[x])
}

/// Square root: the hardware's, of operands that it would flush times an even power of two.
pub(super) fn sqrt(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let small = b.op(Gen::CmpGt.of(Type::F32), &[f32::MIN_POSITIVE.into(), x.into()]);
    let up = b.select(small, 32u32, 0u32);
    let scaled = b.op(Gen::Ldexp.of(Type::F32), &[x.into(), up.into()]);
    let r = b.op(Gen::Sqrt.of(Type::F32), &[scaled.into()]);
    let down = b.select(small, -16i32, 0u32);
    b.op(Gen::Ldexp.of(Type::F32), &[r.into(), down.into()])
}

/// `1 / (1 + e^-x)`, for negative operands `e^x / (1 + e^x)`: the exponential is at most 1, and small results keep its
/// precision.
pub(super) fn sigmoid(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let m = minus_abs(b, x.into());
    let e = exp(b, m.into());
    let d = add(b, 1.0f32, e);
    let r = b.op(Gen::Rcp.of(Type::F32), &[d.into()]);
    // One Newton step: r += r (1 - d r).
    let err = less_product(b, Type::F32, [d.into(), r.into(), 1.0f32.into()]);
    let r = b.fma(err, r, r);
    let below = mul(b, e, r);
    let negative = b.op(Gen::CmpGt.of(Type::F32), &[0.0f32.into(), x.into()]);
    b.select(negative, below, r)
}

/// Hyperbolic cosine: `h + 1 / 4h` with `h = e^|x| / 2`, which overflows only where the result does.
pub(super) fn cosh(b: &mut Builder, x: Opnd) -> Part {
    let (h, r) = half_exp(b, x);
    b.fma(r, 0.25f32, h)
}

/// Hyperbolic sine: `h - 1 / 4h` with the sign of `x`; below 1 its Taylor series.
pub(super) fn sinh(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let (h, r) = half_exp(b, x.into());
    let big = b.fma(r, -0.25f32, h);
    let big = copysign(b, big, x.into());
    let s = mul(b, x, x);
    let p = polynomial(b, s, &[1.0 / 39_916_800.0, 1.0 / 362_880.0, 1.0 / 5040.0, 1.0 / 120.0, 1.0 / 6.0]);
    let cube = mul(b, x, s);
    let small = b.fma(p, cube, x);
    let a = abs(b, x.into());
    let is_big = b.op(Gen::CmpLt.of(Type::F32), &[1.0f32.into(), a.into()]);
    b.select(is_big, big, small)
}

/// `e^|x| / 2` and its reciprocal.
fn half_exp(b: &mut Builder, x: Opnd) -> (Part, Part) {
    let a = abs(b, x);
    let h = exp_scaled(b, a.into(), -1);
    let r = b.op(Gen::Rcp.of(Type::F32), &[h.into()]);
    (h, r)
}

/// Hyperbolic tangent: `1 - 2 / (e^2|x| + 1)` with the sign of `x`; below 0.625 the odd polynomial of the Cephes
/// library (single precision).
pub(super) fn tanh(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let a = abs(b, x.into());
    let twice = add(b, a, a);
    let e = exp(b, twice.into());
    let d = add(b, 1.0f32, e);
    let r = b.op(Gen::Rcp.of(Type::F32), &[d.into()]);
    let big = b.fma(-2.0f32, r, 1.0f32);
    let s = mul(b, a, a);
    let p = polynomial(b, s, &[-5.704_988_7e-3, 2.063_909e-2, -5.373_972e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let sa = mul(b, s, a);
    let small = b.fma(p, sa, a);
    let is_small = b.op(Gen::CmpGt.of(Type::F32), &[0.625f32.into(), a.into()]);
    let r = b.select(is_small, small, big);
    copysign(b, r, x.into())
}

/// Horner's scheme, highest coefficient first.
pub(super) fn polynomial(b: &mut Builder, x: Part, c: &[f32]) -> Part {
    let mut r = b.to_vector(c[0]);
    for &k in &c[1..] {
        let k = b.to_vector(k);
        r = b.fma(r, x, k);
    }
    r
}

/// Error function: an odd polynomial below 0.93, `1 - e^p(|x|)` above; minimax coefficients by N. Juffa.
pub(super) fn erf(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let t = abs(b, x.into());
    let s = mul(b, x, x);
    let r = polynomial(b, t, &[-1.728_534_7e-5, 3.831_971_3e-4]);
    let u = polynomial(b, t, &[-3.883_964_4e-3, 2.425_462_2e-2]);
    let mut r = b.fma(r, s, u);
    for k in [-1.067_778_8e-1f32, -6.348_467e-1, -1.287_175_1e-1] {
        let k = b.to_vector(k);
        r = b.fma(r, t, k);
    }
    let r = product_less(b, Type::F32, [r.into(), t.into(), t.into()]);
    let e = exp(b, r.into());
    let big = sub(b, 1.0f32, e);
    let big = copysign(b, big, x.into());
    let p = polynomial(
        b,
        s,
        &[-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let small = b.fma(p, x, x);
    let is_big = b.op(Gen::CmpLt.of(Type::F32), &[0.927_734_4f32.into(), t.into()]);
    b.select(is_big, big, small)
}
