//! Elementary functions on f32, from the hardware's base-2 transcendentals and polynomials.
//!
//! Accuracy: every function of one operand is within 4 ULP of the exact result for every f32, denormal ones among
//! operands and results; `tools/ulp` measures it. The hardware's own `v_exp_f32`, `v_log_f32`, `v_rcp_f32` and
//! `v_sqrt_f32` are chosen as the core because they are within 1 ULP and an instruction each; they flush denormals, so
//! reductions around them scale, and carry the low part of each constant. A NaN operand gives a NaN.

use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use barewave_isa::{Regs, VCC, op};

/// `-x`.
pub(super) fn neg(b: &mut Builder, x: Opnd) -> Part {
    b.op(Gen::Xor.of(Type::B32), &[0x8000_0000u32.into(), x])
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

/// `e^x`.
pub(super) fn exp(b: &mut Builder, x: Opnd) -> Part {
    exp_scaled(b, x, 0)
}

/// `2^scale e^x`.
fn exp_scaled(b: &mut Builder, x: Opnd, scale: i32) -> Part {
    let (p, n) = exp_parts(b, x);
    let n = if scale == 0 { n } else { b.add(n, scale) };
    let r = b.op(Gen::Ldexp.of(Type::F32), &[p.into(), n.into()]);
    keep_nan(b, x, r)
}

/// `e^x = p 2^n`: `x = n ln 2 + f` and `p = 2^(f / ln 2)` by the hardware. Operands are taken as at most 200 in magnitude.
pub(super) fn exp_parts(b: &mut Builder, x: Opnd) -> (Part, Part) {
    let lo = b.to_vector(-200.0f32);
    let hi = b.to_vector(200.0f32);
    let c = b.op(op::V_MED3_F32, &[x, lo.into(), hi.into()]);
    let log2e = b.to_vector(std::f32::consts::LOG2_E);
    let t = mul(b, c, log2e);
    let n = b.op(Gen::Round.of(Type::F32), &[t.into()]);
    // f = c * log2e - n with the product's rounding error and the constant's low part put back.
    let minus_n = neg(b, n.into());
    let f = b.fma(c, log2e, minus_n);
    let f = b.fma(c, 1.925_963e-8f32, f);
    let p = b.op(Gen::Exp2.of(Type::F32), &[f.into()]);
    (p, b.op(Generic::convert(Type::F32, Type::I32), &[n.into()]))
}

/// `e^x - 1`: `x = n ln 2 + f`, a polynomial `p = e^f - 1`, then `2^n p + (2^n - 1)`, all halved so that `2^n` does not
/// overflow before the result does.
pub(super) fn exp_minus_one(b: &mut Builder, x: Opnd) -> Part {
    let lo = b.to_vector(-30.0f32);
    let hi = b.to_vector(89.0f32);
    let c = b.op(op::V_MED3_F32, &[x, lo.into(), hi.into()]);
    let t = mul(b, c, std::f32::consts::LOG2_E);
    let n = b.op(Gen::Round.of(Type::F32), &[t.into()]);
    let minus_n = neg(b, n.into());
    // ln 2 in two parts.
    let f = b.fma(minus_n, std::f32::consts::LN_2, c);
    let f = b.fma(minus_n, -1.904_654_2e-9f32, f);
    let p = polynomial(b, f, &[1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5]);
    let square = mul(b, f, f);
    let p = b.fma(square, p, f);
    let n = b.op(Generic::convert(Type::F32, Type::I32), &[n.into()]);
    let n = b.sub(n, 1u32);
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
    let one = b.to_vector(1.0f32);
    let scale = b.to_vector(4_294_967_296.0f32);
    let scale = b.select(small, scale, one);
    let s = mul(b, x, scale);
    let l = b.op(Gen::Log2.of(Type::F32), &[s.into()]);
    let zero = b.to_vector(0.0f32);
    let shift = b.to_vector(32.0f32);
    let shift = b.select(small, shift, zero);
    let l = sub(b, l, shift);
    let ln2 = b.to_vector(std::f32::consts::LN_2);
    let t = mul(b, l, ln2);
    let minus_t = neg(b, t.into());
    let e = b.fma(l, ln2, minus_t);
    let e = b.fma(l, -1.904_654_3e-9f32, e);
    let r = add(b, t, e);
    // Infinities and the poles pass through the correction as NaN: take the plain product there.
    let max = b.to_vector(f32::MAX);
    let size = abs(b, t.into());
    let finite = b.op(Gen::CmpLe.of(Type::F32), &[size.into(), max.into()]);
    b.select(finite, r, t)
}

/// `ln(1 + x)`: the logarithm of the rounded sum, and what the rounding took.
pub(super) fn log_one_plus(b: &mut Builder, x: Opnd) -> Part {
    let x = as_vector(b, x);
    let u = add(b, 1.0f32, x);
    let l = log(b, u.into());
    let taken = add(b, -1.0f32, u);
    let lost = sub(b, x, taken);
    let r = b.op(Gen::Rcp.of(Type::F32), &[u.into()]);
    let sum = b.fma(lost, r, l);
    // At the pole and at infinity nothing is lost.
    let max = b.to_vector(f32::MAX);
    let size = abs(b, l.into());
    let finite = b.op(Gen::CmpLe.of(Type::F32), &[size.into(), max.into()]);
    b.select(finite, sum, l)
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
    let md = b.op(Gen::Neg.of(ty), &[ds.into()]);
    let one: Opnd = if double { super::double::constant(b, 1.0).into() } else { 1.0f32.into() };
    // The hardware's reciprocal has 24 bits.
    for _ in 0..if double { 2 } else { 1 } {
        let e = fma(b, md, r, one);
        r = fma(b, e, r, r.into());
    }
    let q = b.op(Gen::Mul.of(ty), &[ns.into(), r.into()]);
    let e = fma(b, md, q, ns.into());
    let (q, e) = if double {
        (q, e)
    } else {
        let q = fma(b, e, r, q.into());
        (q, fma(b, md, q, ns.into()))
    };
    let q = b.op(fmas, &[e.into(), r.into(), q.into()]);
    b.op(fixup, &[q.into(), d, n])
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
    let a = abs(b, x.into());
    let m = neg(b, a.into());
    let e = exp(b, m.into());
    let d = add(b, 1.0f32, e);
    let r = b.op(Gen::Rcp.of(Type::F32), &[d.into()]);
    // One Newton step: r += r (1 - d r).
    let md = neg(b, d.into());
    let err = b.fma(md, r, 1.0f32);
    let r = b.fma(err, r, r);
    let below = mul(b, e, r);
    let negative = b.op(Gen::CmpGt.of(Type::F32), &[0.0f32.into(), x.into()]);
    let r = b.select(negative, below, r);
    keep_nan(b, x.into(), r)
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
    let limit = b.to_vector(20.0f32);
    let c = b.op(Gen::Min.of(Type::F32), &[a.into(), limit.into()]);
    let twice = add(b, c, c);
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
    let r = copysign(b, r, x.into());
    keep_nan(b, x.into(), r)
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
    let mt = neg(b, t.into());
    let r = b.fma(r, t, mt);
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
    let r = b.select(is_big, big, small);
    keep_nan(b, x.into(), r)
}
