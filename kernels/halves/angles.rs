//! Sines, tangents and their inverses of numbers of 16 bits.
//!
//! An argument is reduced to `r = x - q π` (tangent: `q π/2`) with `π` in two parts (Cody and Waite): the product with the first one is exact in the
//! fused multiply-add, and so is what it leaves of an `x` that has 16 bits. `q` is the rounded quotient, made by adding a number whose last bit is worth
//! one; its own last bit is that of the sum. A polynomial of `r` follows, odd as the functions are. Polynomials have the least relative error that Lawson's
//! weighted least squares finds, below 4e-6.

use crate::kernels::float::Float;
use crate::kernels::math::{WHOLE, abs, add, copysign, mul, polynomial, sub};
use crate::kernels::trig::{FAR, rarely, sin_cos, tan};
use crate::mir::{Builder, Gen, MInst, Part, Type};
use barewave_isa::{ModName, Mods, op};
use std::f32::consts::{FRAC_1_PI, FRAC_2_PI, FRAC_PI_2, PI};

/// `π` in two parts, both positive: what is taken off a zero of either sign leaves it its sign.
const PI_IN_TWO: [f32; 2] = [3.141_592_5, 1.509_958e-7];

/// Sine or cosine: that of `r` from -π/2 to π/2, negative where `q` is odd. For the cosine `q` is half an integer.
pub(super) fn sine(b: &mut Builder, cos: bool, x: Part) -> Part {
    let whole = b.to_vector(WHOLE);
    let sum = if cos {
        let turns = b.fma(x, FRAC_1_PI, 0.5f32);
        add(b, turns, whole)
    } else {
        b.fma(x, FRAC_1_PI, whole)
    };
    let mut q = sub(b, sum, whole);
    if cos {
        q = add(b, -0.5f32, q);
    }
    let r = reduced(b, q, x, PI_IN_TWO);
    let s = mul(b, r, r);
    let p = polynomial(b, s, &[-1.854_221_2e-4, 8.314_274e-3, -1.666_585_4e-1, 1.0]);
    let r = mul(b, r, p);
    let sign = b.op(op::V_LSHLREV_B32, &[31u32.into(), sum.into()]);
    let near = b.op(Gen::Xor.of(Type::B32), &[sign.into(), r.into()]);
    unless_far(b, x, near, |b| sin_cos(Float(Type::F32), b, cos, x))
}

/// Tangent: that of `r` from -π/4 to π/4, in odd quarters `-1 / tan r`.
pub(super) fn tangent(b: &mut Builder, x: Part) -> Part {
    let whole = b.to_vector(WHOLE);
    let sum = b.fma(x, FRAC_2_PI, whole);
    let q = sub(b, sum, whole);
    let r = reduced(b, q, x, PI_IN_TWO.map(|part| part / 2.0));
    let s = mul(b, r, r);
    let mut p = b.to_vector(4.308_871e-2f32);
    for k in [4.139_867_4e-2f32, 1.360_65e-1, 3.331_543_5e-1, 1.0] {
        p = b.fma(p, s, k);
    }
    let t = mul(b, r, p);
    let turned = b.op_with(op::V_RCP_F32, &[t.into()], Mods::new().with(ModName::Neg, 1));
    let odd = b.op(op::V_AND_B32, &[1u32.into(), sum.into()]);
    let odd = b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), odd.into()]);
    let near = b.select(odd, turned, t);
    unless_far(b, x, near, |b| tan(Float(Type::F32), b, x))
}

/// `x - q (high + low)`. Constants are no vectors: every element has blocks of its own, whose vectors would all be set again.
fn reduced(b: &mut Builder, q: Part, x: Part, [high, low]: [f32; 2]) -> Part {
    let r = b.fma(q, -high, x);
    b.fma(q, -low, r)
}

/// The value, or for large operands what the recipe of f32 gives.
fn unless_far(b: &mut Builder, x: Part, near: Part, other: impl FnOnce(&mut Builder) -> Part) -> Part {
    let (limit, far) = (b.to_vector(FAR as f32), b.mask());
    let mods = Mods::new().with(ModName::Abs, 0b10);
    b.push(MInst { mods, ..MInst::new(op::V_CMP_LE_F32, &[far.into()], &[limit.into(), x.into()]) });
    let [r] = rarely(b, far, [near], |b| [other(b)]);
    r
}

/// Inverse tangent: from 1 on that of `1 / x`, taken from π/2.
pub(super) fn inverse_tangent(b: &mut Builder, x: Part) -> Part {
    let a = abs(b, x.into());
    let inverse = b.op(Gen::Rcp.of(Type::F32), &[a.into()]);
    let big = b.op(Gen::CmpLt.of(Type::F32), &[1.0f32.into(), a.into()]);
    let z = b.select(big, inverse, a);
    let s = mul(b, z, z);
    let p = polynomial(
        b,
        s,
        &[8.106_298e-3, -3.779_652_7e-2, 8.484_084e-2, -1.354_456_7e-1, 1.989_787e-1, -3.332_849e-1, 1.0],
    );
    let v = mul(b, z, p);
    let rest = sub(b, FRAC_PI_2, v);
    let v = b.select(big, rest, v);
    copysign(b, v, x.into())
}

/// `asin |x|`, from 1/2 on as the half of what it lacks to π/2: `asin √((1 - |x|) / 2)`. With the mask of those.
fn inverse_of_magnitude(b: &mut Builder, x: Part) -> (Part, Part) {
    let a = abs(b, x.into());
    let c = b.fma(a, -0.5f32, 0.5f32);
    let big = b.op(Gen::CmpLt.of(Type::F32), &[0.5f32.into(), a.into()]);
    let root = b.op(Gen::Sqrt.of(Type::F32), &[c.into()]);
    let square = mul(b, a, a);
    let (s, z) = (b.select(big, c, square), b.select(big, root, a));
    let p = polynomial(b, s, &[6.410_728e-2, 7.189_982e-2, 1.668_012_6e-1, 1.0]);
    (mul(b, z, p), big)
}

/// Inverse sine.
pub(super) fn inverse_sine(b: &mut Builder, x: Part) -> Part {
    let (v, big) = inverse_of_magnitude(b, x);
    let rest = b.fma(-2.0f32, v, FRAC_PI_2);
    let v = b.select(big, rest, v);
    copysign(b, v, x.into())
}

/// Inverse cosine: `π/2 - asin x`, or `2 asin √((1 - |x|) / 2)`, of negative operands taken from π.
pub(super) fn inverse_cosine(b: &mut Builder, x: Part) -> Part {
    let (v, big) = inverse_of_magnitude(b, x);
    let v = copysign(b, v, x.into());
    let negative = b.op(Gen::CmpGt.of(Type::F32), &[0.0f32.into(), x.into()]);
    let all = b.to_vector(PI);
    let from = b.select(negative, all, 0u32);
    let quarter = b.to_vector(FRAC_PI_2);
    let from = b.select(big, from, quarter);
    let times = b.to_vector(-1.0f32);
    let times = b.select(big, 2.0f32, times);
    b.fma(times, v, from)
}
