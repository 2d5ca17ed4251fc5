//! Rounding modes other than to nearest even (MODE bits 1:0 for f32, 3:2 for f16 and f64).
//!
//! Lane kernels round to nearest; where MODE asks for something else, the instructions that obey it are computed here,
//! one number at a time. A result is first formed exactly up to a sticky bit: in double precision, *rounded to odd* (the
//! last bit is set when anything was lost), which no later rounding to a shorter format can spoil. f64 results, which
//! have no longer format, come from the nearest double and the sign of its error.
//!
//! Which instructions obey MODE.round: additions, multiplications, fused and unfused multiply-adds, conversions to a
//! float format, and ldexp; the transcendental ones, divisions' helpers, dot products and matrix instructions do not
//! ("RDNA2" manual, section "MODE register"). The emulation tests compare with the host's own rounding modes.

use crate::lanes::{F16, Ty};
use crate::numeric::*;
use barewave_isa::action::{self, Action, Float, Packed, Salu};

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To nearest, ties to even.
    Nearest,
    /// Toward plus infinity.
    Up,
    /// Toward minus infinity.
    Down,
    /// Toward zero.
    Zero,
}

impl Direction {
    /// From a two-bit field of MODE.
    pub fn of(bits: u32) -> Direction {
        [Direction::Nearest, Direction::Up, Direction::Down, Direction::Zero][bits as usize & 3]
    }
}

/// What an instruction computes before it rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounded {
    /// First plus second.
    Add,
    /// First minus second.
    Sub,
    /// Second minus first.
    Subrev,
    /// Product.
    Mul,
    /// Product plus third, rounded once.
    Fma,
    /// Product plus third, rounded twice.
    Mad,
    /// The first operand, a float, in another format.
    Convert,
    /// The first operand, an integer of up to 32 bits; true: signed.
    Integer(bool),
    /// The first operand times two to the second.
    Ldexp,
}

/// The part of an operation that MODE.round governs.
pub fn of(action: &Action) -> Option<Rounded> {
    use Rounded::*;
    Some(match action {
        Action::Convert(action::Convert::CvtF32I32 | action::Convert::CvtF16I16) => Integer(true),
        Action::Convert(action::Convert::CvtF32U32 | action::Convert::CvtF16U16) => Integer(false),
        Action::Convert(action::Convert::CvtF16F32 | action::Convert::CvtF32F64) => Convert,
        Action::Float(f) => match f {
            Float::AddF16 | Float::AddF32 | Float::AddF64 => Add,
            Float::SubF16 | Float::SubF32 => Sub,
            Float::SubrevF16 | Float::SubrevF32 => Subrev,
            Float::MulF16 | Float::MulF32 | Float::MulF64 => Mul,
            Float::FmaF16 | Float::FmaF32 | Float::FmaF64 => Fma,
            Float::FmaMixF32 | Float::FmaMixloF16 | Float::FmaMixhiF16 => Fma,
            Float::MadF16 | Float::MadF32 | Float::MadMixF32 | Float::MadMixloF16 | Float::MadMixhiF16 => Mad,
            Float::LdexpF16 | Float::LdexpF32 | Float::LdexpF64 => Ldexp,
            _ => return None,
        },
        Action::Packed(f) => match f {
            Packed::PkAddF16 | Packed::PkAddF32 => Add,
            Packed::PkMulF16 | Packed::PkMulF32 => Mul,
            Packed::PkFmaF16 | Packed::PkFmaF32 => Fma,
            _ => return None,
        },
        Action::Salu(f) => match f {
            Salu::AddF16 | Salu::AddF32 => Add,
            Salu::SubF16 | Salu::SubF32 => Sub,
            Salu::MulF16 | Salu::MulF32 => Mul,
            Salu::FmacF16 | Salu::FmacF32 => Fma,
            _ => return None,
        },
        _ => return None,
    })
}

/// Makes the last bit of `r` odd when a nonzero error was dropped; the error's sign is that of `err`.
fn odd(r: f64, err: f64) -> f64 {
    let bits = r.to_bits();
    if err == 0.0 || err.is_nan() || !r.is_finite() || bits & 1 == 1 {
        return r;
    }
    if r == 0.0 {
        return f64::from_bits(1).copysign(err);
    }
    f64::from_bits(if (err > 0.0) == (r > 0.0) { bits + 1 } else { bits - 1 })
}

/// Sum and its exact error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// Rounds a double (exact, or rounded to odd) to a format of `mantissa` explicit bits whose exponents reach from `least`
/// to `most`.
fn shorten(x: f64, mantissa: i32, least: i32, most: i32, d: Direction) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exponent = (frexp64(x).1 - 1).max(least);
    // One unit of the last place is 2^(exponent - mantissa).
    let scaled = ldexp64(x, mantissa - exponent);
    let q = match d {
        Direction::Nearest => scaled.round_ties_even(),
        Direction::Up => scaled.ceil(),
        Direction::Down => scaled.floor(),
        Direction::Zero => scaled.trunc(),
    };
    let r = ldexp64(q, exponent - mantissa).copysign(x);
    let largest = ldexp64(2.0 - ldexp64(1.0, -mantissa), most);
    if r.abs() <= largest {
        return r;
    }
    let up = match d {
        Direction::Nearest => true,
        Direction::Up => x > 0.0,
        Direction::Down => x < 0.0,
        Direction::Zero => false,
    };
    if up { f64::INFINITY.copysign(x) } else { largest.copysign(x) }
}

/// A double from the nearest one and the sign of the error.
fn directed64(r: f64, err: f64, d: Direction) -> f64 {
    if d == Direction::Nearest || r.is_nan() {
        return r;
    }
    if r.is_infinite() {
        // An overflow; infinite operands have no error.
        let stays = match d {
            Direction::Up => r > 0.0,
            Direction::Down => r < 0.0,
            _ => false,
        };
        return if err == 0.0 || stays { r } else { f64::MAX.copysign(r) };
    }
    let step = |r: f64, up: bool| -> f64 {
        if r == 0.0 {
            return if up { f64::from_bits(1) } else { -f64::from_bits(1) };
        }
        let bits = r.to_bits();
        f64::from_bits(if (r > 0.0) == up { bits + 1 } else { bits - 1 })
    };
    match d {
        Direction::Up if err > 0.0 => step(r, true),
        Direction::Down if err < 0.0 => step(r, false),
        Direction::Zero if r > 0.0 && err < 0.0 => step(r, false),
        Direction::Zero if r < 0.0 && err > 0.0 => step(r, true),
        _ => r,
    }
}

/// Sign of zero of an exact cancellation: minus when rounding down.
fn cancel(r: f64, a: f64, b: f64, d: Direction) -> f64 {
    if r == 0.0 && a != 0.0 && d == Direction::Down
        || r == 0.0 && d == Direction::Down && a == 0.0 && (a.is_sign_negative() != b.is_sign_negative())
    {
        -0.0
    } else {
        r
    }
}

/// `a * b + c` in doubles, rounded to odd; all operands fit in f32.
fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    let p = a * b;
    let (s, e) = two_sum(p, c);
    odd(s, e)
}

/// f64 operations with their error's sign.
fn exact64(op: Rounded, a: f64, b: f64, c: f64) -> (f64, f64) {
    let product = |a: f64, b: f64| -> (f64, f64) {
        let r = a * b;
        if r.is_infinite() && a.is_finite() && b.is_finite() {
            return (r, -r);
        }
        if r.abs() > 1e-250 || a == 0.0 || b == 0.0 {
            return (r, a.mul_add(b, -r));
        }
        // Far down the error is no double: compare in a scaled world.
        let (x, y) = (ldexp64(a, 600), ldexp64(b, 600));
        let back = ldexp64(ldexp64(r, 600), 600);
        if x.is_finite() && y.is_finite() { (r, x.mul_add(y, -back)) } else { (r, 0.0) }
    };
    let sum = |a: f64, b: f64| -> (f64, f64) {
        let (s, e) = two_sum(a, b);
        if s.is_infinite() && a.is_finite() && b.is_finite() { (s, -s) } else { (s, e) }
    };
    match op {
        Rounded::Add => sum(a, b),
        Rounded::Sub => sum(a, -b),
        Rounded::Subrev => sum(b, -a),
        Rounded::Mul => product(a, b),
        Rounded::Fma | Rounded::Mad => {
            let r = a.mul_add(b, c);
            if r.is_infinite() && [a, b, c].iter().all(|x| x.is_finite()) {
                return (r, -r);
            }
            // Far down the product's error is no double. There the addend is either as small, and everything is computed
            // in a scaled world, or so large that the product alone tells the sign.
            let tiny = (a * b).abs() < 1e-250 && a != 0.0 && b != 0.0;
            let scale = if tiny && c.abs() < 1e-115 { 700 } else { 0 };
            let (a, b) = (ldexp64(a, scale), ldexp64(b, scale));
            let (c, rounded) = (ldexp64(c, 2 * scale), ldexp64(r, 2 * scale));
            let (p, pl) = match tiny && scale == 0 {
                true => (1e-300f64.copysign(a * b), 0.0),
                false => (a * b, a.mul_add(b, -(a * b))),
            };
            let (s, sl) = two_sum(p, c);
            let (t, tl) = two_sum(sl, pl);
            // The three parts s + t + tl are the exact value.
            let (d, dl) = two_sum(s - rounded, t);
            (r, d + (dl + tl))
        }
        Rounded::Ldexp => {
            let r = ldexp64(a, b as i32);
            (r, if ldexp64(r, -(b as i32)) == a { 0.0 } else { a - ldexp64(r, -(b as i32)) })
        }
        _ => (a, 0.0),
    }
}

/// One number: operands as doubles (integers too), the result's format and direction.
fn number(op: Rounded, x: [f64; 3], to: Ty, d: Direction) -> u64 {
    let [a, b, c] = x;
    let finish = |v: f64| -> f64 {
        match to {
            Ty::F16 | Ty::PkF16 => shorten(v, 10, -14, 15, d),
            _ => shorten(v, 23, -126, 127, d),
        }
    };
    if to == Ty::F64 {
        let (r, e) = exact64(op, a, b, c);
        let r = match op {
            Rounded::Add => cancel(r, a, b, d),
            Rounded::Sub => cancel(r, a, -b, d),
            Rounded::Subrev => cancel(r, b, -a, d),
            _ => r,
        };
        return directed64(r, e, d).to_bits();
    }
    let add = |a: f64, b: f64| {
        let (s, e) = two_sum(a, b);
        cancel(odd(s, e), a, b, d)
    };
    let v = match op {
        Rounded::Add => finish(add(a, b)),
        Rounded::Sub => finish(add(a, -b)),
        Rounded::Subrev => finish(add(b, -a)),
        Rounded::Mul => finish(a * b),
        Rounded::Fma => finish(cancel(fma_odd(a, b, c), a * b, c, d)),
        Rounded::Mad => finish(add(finish(a * b), c)),
        Rounded::Convert | Rounded::Integer(_) => finish(a),
        Rounded::Ldexp => finish(ldexp64(a, b as i32)),
    };
    match to {
        Ty::F16 | Ty::PkF16 => f64_to_f16(v).0 as u64,
        _ => (v as f32).to_bits() as u64,
    }
}

/// An operand's number.
fn read(ty: Ty, op: Rounded, index: usize, lo: u32, hi: u32) -> f64 {
    match (ty, op) {
        (Ty::F64, _) => f64::from_bits(lo as u64 | (hi as u64) << 32),
        (Ty::F32, _) => f32::from_bits(lo) as f64,
        (Ty::F16, _) => f16_to_f32(F16(lo as u16)) as f64,
        (Ty::B16, Rounded::Integer(true)) => lo as i16 as f64,
        (Ty::B16, Rounded::Integer(false)) => lo as u16 as f64,
        (Ty::B16, _) => lo as i16 as f64,
        (_, Rounded::Integer(false)) if index == 0 => lo as f64,
        _ => lo as i32 as f64,
    }
}

/// A lane's result: low and high dword. `types` are those of up to three operands and of the result.
pub fn lane(op: Rounded, types: [Ty; 4], x: [(u32, u32); 3], mode: u32) -> (u32, u32) {
    let to = types[3];
    let d = Direction::of(if matches!(to, Ty::F32 | Ty::PkF32) { mode } else { mode >> 2 });
    match to {
        Ty::PkF16 => {
            let half = |s: u32| {
                let v = x.map(|(lo, _)| f16_to_f32(F16((lo >> s) as u16)) as f64);
                number(op, v, to, d) as u32
            };
            (half(0) | half(16) << 16, 0)
        }
        Ty::PkF32 => {
            let part = |v: [u32; 3]| number(op, v.map(|b| f32::from_bits(b) as f64), to, d) as u32;
            (part(x.map(|v| v.0)), part(x.map(|v| v.1)))
        }
        _ => {
            let v: [f64; 3] = std::array::from_fn(|i| read(types[i], op, i, x[i].0, x[i].1));
            let r = number(op, v, to, d);
            (r as u32, (r >> 32) as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_bracket_the_exact_result() {
        use Rounded::*;
        let mut x = 1u64;
        let mut next = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            x >> 32
        };
        for _ in 0..100_000 {
            let v: [u32; 3] =
                std::array::from_fn(|_| next() as u32 & 0x83ff_ffff | 0x3000_0000 | (next() as u32 & 0x0c00_0000));
            let f = v.map(|b| f32::from_bits(b) as f64);
            for op in [Add, Sub, Mul, Fma] {
                let get = |mode| {
                    let t = [Ty::F32; 4];
                    f32::from_bits(lane(op, t, v.map(|b| (b, 0)), mode).0) as f64
                };
                let (near, up, down, zero) = (get(0), get(1), get(2), get(3));
                let want = match op {
                    Add => f32::from_bits(v[0]) + f32::from_bits(v[1]),
                    Sub => f32::from_bits(v[0]) - f32::from_bits(v[1]),
                    Mul => f32::from_bits(v[0]) * f32::from_bits(v[1]),
                    _ => f32::from_bits(v[0]).mul_add(f32::from_bits(v[1]), f32::from_bits(v[2])),
                } as f64;
                assert_eq!(near, want, "{op:?} {f:?}");
                assert!(down <= near && near <= up && (near == up || near == down), "{op:?} {f:?}");
                assert_eq!(zero, if near > 0.0 { down } else { up });
            }
        }
        // 1 + 2^-60 in doubles.
        let tiny = f64::from_bits((1023 - 60) << 52);
        let two = |v: f64| (v.to_bits() as u32, (v.to_bits() >> 32) as u32);
        let get = |op, a, b, mode: u32| {
            let (l, h) = lane(op, [Ty::F64; 4], [two(a), two(b), two(0.0)], mode << 2);
            f64::from_bits(l as u64 | (h as u64) << 32)
        };
        assert_eq!((get(Add, 1.0, tiny, 1), get(Add, 1.0, tiny, 2)), (1.0 + f64::EPSILON, 1.0));
        assert_eq!((get(Mul, f64::MAX, 2.0, 3), get(Mul, f64::MAX, 2.0, 1)), (f64::MAX, f64::INFINITY));
        assert_eq!(get(Sub, 1.0, 1.0, 2).to_bits(), 1 << 63);
    }
}
