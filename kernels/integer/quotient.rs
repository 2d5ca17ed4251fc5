//! Quotients and remainders of integers: by a multiplication with a reciprocal, never by a loop.
//!
//! What narrow types hold is exact in f32, and so is the quotient of `n + 1/2`, whose distance to a whole number is more than roundings change.
//! Of 32 and 64 bits an estimate `z` of `2^bits / d`, from below, is made of the hardware's f32 reciprocal, and refined in integers (`z += z (2^bits - z d)
//! / 2^bits`, which squares its relative error; T. Rodeheffer, Software Integer Division, 2008); `n z / 2^bits` is then at most 2 less than the
//! quotient. Of constants that estimate is exact, and rounded up, with one bit more than the type has where it needs one (Granlund and Montgomery, Division by
//! Invariant Integers using Multiplication, 1994).
//!
//! Remainders of C and Python differ where dividend and divisor have different signs. What division by 0 gives is not defined.

use super::Int;
use crate::graph::expr::Binary;
use crate::kernels::math;
use crate::mir::{Builder, Gen, Generic, Opnd, Part, Type};
use barewave_isa::{Op, op};

/// Quotient or remainder of `x` and `y`, whose type in memory has so many bits; a divisor that the kernel knows is `known`.
pub(super) fn divide(i: Int, b: &mut Builder, op: Binary, [x, y]: [Part; 2], bits: usize, known: Option<i64>) -> Part {
    match known.filter(|d| *d != 0) {
        Some(d) if masks(i, op, d) => i.op(b, Gen::And, x, Opnd::Imm((d - 1) as u64)),
        known if bits <= 16 => of_narrow(i, b, op, [x, y], known),
        Some(d) => by_constant(i, b, op, x, d),
        None => of_wide(i, b, op, x, y),
    }
}

/// The remainder is the lower bits.
fn masks(i: Int, op: Binary, d: i64) -> bool {
    d > 0 && d.count_ones() == 1 && (op == Binary::Mod || op == Binary::Rem && !i.is_signed())
}

/// Of at most 16 bits. The quotient in f32 of `n + 1/2`, which has the sign of what it is rounded to, is at least `1 / 2d` from any whole number, and wrong by less than
/// `2^-22 2^16 / d`.
fn of_narrow(i: Int, b: &mut Builder, op: Binary, [x, y]: [Part; 2], known: Option<i64>) -> Part {
    let n = float(i, b, x);
    let (d, r) = match known {
        Some(d) => (b.to_vector(d as f32), b.to_vector(1.0 / d as f32)),
        None => {
            let d = float(i, b, y);
            (d, b.op(Gen::Rcp.of(Type::F32), &[d.into()]))
        }
    };
    // Rounded down the quotient is that of Python, rounded to zero that of C.
    let half: Opnd = match (op, known) {
        _ if !i.is_signed() => 0.5f32.into(),
        (Binary::Mod, Some(d)) => (if d > 0 { 0.5f32 } else { -0.5 }).into(),
        (of, _) => {
            let half = b.to_vector(0.5f32);
            let sign = if of == Binary::Mod { d } else { n };
            math::copysign(b, half, sign.into()).into()
        }
    };
    let more = b.op(Gen::Add.of(Type::F32), &[half, n.into()]);
    let q = b.op(Gen::Mul.of(Type::F32), &[more.into(), r.into()]);
    let down = if op == Binary::Mod { Gen::Floor } else { Gen::Trunc };
    if op == Binary::Div {
        return integer(i, b, q);
    }
    let q = b.op(down.of(Type::F32), &[q.into()]);
    let r = math::less_product(b, Type::F32, [q.into(), d.into(), n.into()]);
    whole(i, b, r)
}

/// Two additions take less time than a conversion (`cvt` and `valu` of `isa/latency/latency.csv`).
fn adds(b: &Builder) -> bool {
    let busy = |op: Op| b.target().op(op).map(|i| i.busy);
    busy(op::V_CVT_F32_I32) > busy(op::V_ADD_F32).map(|add| 2 * add)
}

/// An integer of at most 16 bits as f32: next to 3/2 2^23, whose last bits it is.
fn float(i: Int, b: &mut Builder, x: Part) -> Part {
    if !adds(b) {
        return b.op(Generic::convert(i.0, Type::F32), &[x.into()]);
    }
    // Without its type: it is made of integers and taken for a float.
    let sum = b.v(1);
    b.emit(Gen::Add.of(Type::U32), &[sum.into()], &[x.into(), math::WHOLE.to_bits().into()]);
    b.op(Gen::Add.of(Type::F32), &[(-math::WHOLE).into(), sum.into()])
}

/// A whole number of at most 17 bits and a sign as an integer, of which 16 bits count.
fn whole(i: Int, b: &mut Builder, x: Part) -> Part {
    if !adds(b) {
        return b.op(Generic::convert(Type::F32, i.0), &[x.into()]);
    }
    let sum = b.op(Gen::Add.of(Type::F32), &[math::WHOLE.into(), x.into()]);
    b.to_vector(sum)
}

/// A number rounded to zero, as [`whole`].
fn integer(i: Int, b: &mut Builder, x: Part) -> Part {
    if !adds(b) {
        return b.op(Generic::convert(Type::F32, i.0), &[x.into()]);
    }
    let x = b.op(Gen::Trunc.of(Type::F32), &[x.into()]);
    whole(i, b, x)
}

/// Of 32 or 64 bits: signs are taken off first and put back.
fn of_wide(i: Int, b: &mut Builder, op: Binary, x: Part, y: Part) -> Part {
    if !i.is_signed() {
        return magnitudes(i, b, op, x, y);
    }
    let (sx, sy) = (i.sign(b, x), i.sign(b, y));
    let (ax, ay) = (i.flip(b, x, sx), i.flip(b, y, sy));
    let r = magnitudes(i, b, op, ax, ay);
    if op == Binary::Div {
        let s = i.op(b, Gen::Xor, sx, sy);
        return i.flip(b, r, s);
    }
    let r = i.flip(b, r, sx);
    if op == Binary::Mod { with_sign_of(i, b, r, y) } else { r }
}

/// C's remainder as Python's, which has the divisor's sign: add it where remainder and divisor differ in sign and the remainder is not 0.
fn with_sign_of(i: Int, b: &mut Builder, r: Part, y: Part) -> Part {
    let s = i.op(b, Gen::Xor, r, y);
    let differ = i.op(b, Gen::CmpGt, Opnd::Imm(0), s);
    let some = i.op(b, Gen::CmpNe, Opnd::Imm(0), r);
    let m = b.mask_and(differ, some);
    let t = i.op(b, Gen::Add, r, y);
    i.select(b, m, t, r)
}

/// Unsigned quotient or remainder.
fn magnitudes(i: Int, b: &mut Builder, op: Binary, n: Part, d: Part) -> Part {
    let u = i.unsigned_type();
    // 20 bits of it are sure.
    let mut z = if u.is_long() { inverse_of_long(b, d) } else { inverse_of_word(b, d) };
    let minus = u.op(b, Gen::Sub, 0u32, d);
    for _ in 0..if u.is_long() { 2 } else { 1 } {
        let left = u.op(b, Gen::Mul, minus, z);
        let more = high_product(u, b, z, left);
        z = u.op(b, Gen::Add, z, more);
    }
    let mut q = high_product(u, b, n, z);
    let taken = u.op(b, Gen::Mul, q, d);
    let mut r = u.op(b, Gen::Sub, n, taken);
    for _ in 0..2 {
        let more = u.op(b, Gen::CmpGe, r, d);
        if op == Binary::Div {
            let next = u.op(b, Gen::Add, q, Opnd::Imm(1));
            q = u.select(b, more, next, q);
        }
        let next = u.op(b, Gen::Sub, r, d);
        r = u.select(b, more, next, r);
    }
    if op == Binary::Div { q } else { r }
}

/// What keeps an estimate below the reciprocal that it is made of: the hardware's is within `2^-23` of it, and three roundings in f32 within `2^-24` each.
const BELOW: f64 = 1.0 - 1.0 / (1 << 21) as f64;

/// `2^32 / d` from below, within `2^-20` and 1.
fn inverse_of_word(b: &mut Builder, d: Part) -> Part {
    let d = b.op(Generic::convert(Type::U32, Type::F32), &[d.into()]);
    let r = b.op(Gen::Rcp.of(Type::F32), &[d.into()]);
    let scale = b.to_vector((2f64.powi(32) * BELOW) as f32);
    let z = b.op(Gen::Mul.of(Type::F32), &[scale.into(), r.into()]);
    b.op(Generic::convert(Type::F32, Type::U32), &[z.into()])
}

/// `2^64 / d` from below, within `2^-20` and 1.
fn inverse_of_long(b: &mut Builder, d: Part) -> Part {
    let [low, high] = words(b, d).map(|word| b.op(Generic::convert(Type::U32, Type::F32), &[word.into()]));
    let unit = b.to_vector(2f32.powi(32));
    let d = b.fma(high, unit, low);
    let r = b.op(Gen::Rcp.of(Type::F32), &[d.into()]);
    let scale = b.to_vector((2f64.powi(64) * BELOW) as f32);
    let z = b.op(Gen::Mul.of(Type::F32), &[scale.into(), r.into()]);
    // Both words of it, which has 24 bits.
    let high = b.op(Gen::Mul.of(Type::F32), &[2f32.powi(-32).into(), z.into()]);
    let high = b.op(Gen::Trunc.of(Type::F32), &[high.into()]);
    let low = math::less_product(b, Type::F32, [high.into(), unit.into(), z.into()]);
    let whole = b.v(2);
    b.emit(Generic::convert(Type::F32, Type::U32), &[whole.dword(0).into()], &[low.into()]);
    b.emit(Generic::convert(Type::F32, Type::U32), &[whole.dword(1).into()], &[high.into()]);
    whole
}

/// Both words of a pair, which are no halves of an integer of 64 bits any more.
fn words(b: &mut Builder, p: Part) -> [Part; 2] {
    [0, 1].map(|k| b.to_vector(p.dword(k)))
}

/// The upper half of an unsigned product.
fn high_product(u: Int, b: &mut Builder, x: Part, y: Part) -> Part {
    if !u.is_long() {
        return b.op(Gen::MulHi.of(Type::U32), &[x.into(), y.into()]);
    }
    let multiply = |b: &mut Builder, x: Part, y: Part, more: Part| {
        let (product, carry) = (b.v(2), b.mask());
        b.emit(op::V_MAD_U64_U32, &[product.into(), carry.into()], &[x.into(), y.into(), more.into()]);
        product
    };
    let beside = |b: &mut Builder, low: Part| {
        let wide = b.v(2);
        b.copy_into(wide.dword(0), low);
        b.copy_into(wide.dword(1), 0u32);
        wide
    };
    // None of these sums is beyond 64 bits.
    let [[x_low, x_high], [y_low, y_high]] = [x, y].map(|p| words(b, p));
    let lowest = b.op(Gen::MulHi.of(Type::U32), &[x_low.into(), y_low.into()]);
    let more = beside(b, lowest);
    let across = multiply(b, x_high, y_low, more);
    let more = beside(b, across.dword(0));
    let other = multiply(b, x_low, y_high, more);
    let more = beside(b, across.dword(1));
    let high = multiply(b, x_high, y_high, more);
    let more = beside(b, other.dword(1));
    u.op(b, Gen::Add, high, more)
}

/// What division by a constant that is no power of two, and not above half of all numbers, multiplies with, of so many bits, and by how many bits it shifts the upper half of the product; the factor has one bit more, 1, where
/// the last one is true.
fn magic(d: u64, bits: u32) -> (u64, u32, bool) {
    let above = 64 - (d - 1).leading_zeros();
    // Rounded up, 2^(bits + above) / d exceeds it by less than 2^above / d for all dividends.
    let factor = |shift: u32| (1u128 << bits << shift).div_ceil(u128::from(d));
    // One bit less where that is exact enough.
    let shorter = above.saturating_sub(1);
    let short = factor(shorter);
    let excess = short * u128::from(d) - (1u128 << bits << shorter);
    if excess <= 1 << shorter && short < 1 << bits {
        return (short as u64, shorter, false);
    }
    ((factor(above) - (1u128 << bits)) as u64, above, true)
}

/// Unsigned quotient by a constant that is not 0.
fn magnitude_by(u: Int, b: &mut Builder, n: Part, d: u64) -> Part {
    let shifted = |b: &mut Builder, x: Part, by: u32| if by > 0 { u.op(b, Gen::Shr, x, by) } else { x };
    if d.is_power_of_two() {
        return shifted(b, n, d.trailing_zeros());
    }
    if d > 1 << (u.0.bits() - 1) {
        let d = u.held(b, d as i64);
        let once = u.op(b, Gen::CmpGe, n, d);
        let (one, none) = (u.held(b, 1), u.held(b, 0));
        return u.select(b, once, one, none);
    }
    let (factor, shift, longer) = magic(d, u.0.bits());
    let factor = u.held(b, factor as i64);
    let high = high_product(u, b, n, factor);
    if !longer {
        return shifted(b, high, shift);
    }
    // The dividend once more, without leaving the type.
    let left = u.op(b, Gen::Sub, n, high);
    let half = u.op(b, Gen::Shr, left, 1u32);
    let sum = u.op(b, Gen::Add, half, high);
    shifted(b, sum, shift - 1)
}

/// By a constant that is not 0.
fn by_constant(i: Int, b: &mut Builder, op: Binary, x: Part, d: i64) -> Part {
    let u = i.unsigned_type();
    let most = u64::MAX >> (64 - u.0.bits());
    let size = if i.is_signed() { d.unsigned_abs() } else { d as u64 & most };
    if !i.is_signed() {
        let q = magnitude_by(u, b, x, size);
        return if op == Binary::Div { q } else { left_over(u, b, x, q, size) };
    }
    let sign = i.sign(b, x);
    let n = i.flip(b, x, sign);
    let q = magnitude_by(u, b, n, size);
    if op == Binary::Div {
        let q = i.flip(b, q, sign);
        return if d < 0 { i.op(b, Gen::Sub, 0u32, q) } else { q };
    }
    let r = left_over(u, b, n, q, size);
    let r = i.flip(b, r, sign);
    if op == Binary::Rem {
        return r;
    }
    let y = i.held(b, d);
    with_sign_of(i, b, r, y)
}

/// `n - q d`.
fn left_over(u: Int, b: &mut Builder, n: Part, q: Part, d: u64) -> Part {
    let d = u.held(b, d as i64);
    let taken = u.op(b, Gen::Mul, q, d);
    u.op(b, Gen::Sub, n, taken)
}

#[cfg(test)]
mod tests {
    use super::magic;

    /// Every divisor's factor gives the quotients of the dividends next to its multiples, which are the hard ones.
    #[test]
    fn factors_of_constants_are_exact() {
        for bits in [32u32, 64] {
            let most = u64::MAX >> (64 - bits);
            let some = (0..64).flat_map(|k| [1u64, 3, 5, 7, 11].map(|m| (m << k) | (m >> 1)));
            let divisors: Vec<u64> = (3..1000).chain(some).chain([most / 2, most / 2 - 1]).collect();
            for d in divisors.into_iter().filter(|d| !d.is_power_of_two() && *d <= most / 2 && *d > 0) {
                let (factor, shift, longer) = magic(d, bits);
                assert!(factor <= most, "{d}");
                let quotient = |n: u64| {
                    let high = ((u128::from(n) * u128::from(factor)) >> bits) as u64;
                    if longer { (((n - high) >> 1) + high) >> (shift - 1) } else { high >> shift }
                };
                let last = most / d * d;
                let near = [0, 1, d, 2 * (d / 2), last, most / 3 / d * d, most / 2 / d * d];
                for n in near.into_iter().flat_map(|n| [n.wrapping_sub(1) & most, n, n.saturating_add(1).min(most)]) {
                    assert_eq!(quotient(n), n / d, "{n} / {d}");
                }
            }
        }
    }
}
