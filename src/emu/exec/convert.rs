//! Scaled conversions of gfx950: v_cvt_scalef32_*, between f32, f16 or bf16 and 8-, 6- or 4-bit floats.
//!
//! The scale is a power of two, the exponent of an f32 operand: numbers are divided by it on the way to a small format
//! and multiplied on the way back. One or two numbers go to or come from a part of a register that `op_sel` names, 32 to
//! or from a run of registers. Rounding is to nearest even, or stochastic (`sr`) with one seed for all numbers of a lane.
//!
//! Source: AMD CDNA4 instruction set, VOP3 chapter; operand selection as LLVM's intrinsics describe it. Not documented
//! and chosen here: NaN to 4- and 6-bit formats (the largest number), the seed of the second and later numbers (the same).

use crate::lanes::{Bf16, F16};
use crate::numeric::*;
use crate::sem::fp8;
use crate::sem::small::{BF6, FP4, FP6, Small};
use crate::uop::{Kind, Payload, Run, Src, UOp};
use crate::wave::{Ctl, Wave};
use barewave_isa::action::{Elem, Scaled};

/// A number format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    F32,
    F16,
    Bf16,
    Eight(u32),
    Small(Small),
}

impl Format {
    /// The format of an element; none for those that no conversion has.
    fn of(e: Elem) -> Option<Format> {
        Some(match e {
            Elem::F32 => Format::F32,
            Elem::F16 => Format::F16,
            Elem::Bf16 => Format::Bf16,
            Elem::Fp8 => Format::Eight(fp8::FP8),
            Elem::Bf8 => Format::Eight(fp8::BF8),
            Elem::Fp6 => Format::Small(FP6),
            Elem::Bf6 => Format::Small(BF6),
            Elem::Fp4 => Format::Small(FP4),
            Elem::F64 | Elem::Xf32 | Elem::I8 | Elem::U8 | Elem::I4 | Elem::U4 | Elem::I32 => return None,
        })
    }
    fn bits(self) -> usize {
        match self {
            Format::F32 => 32,
            Format::F16 | Format::Bf16 => 16,
            Format::Eight(_) => 8,
            Format::Small(s) => s.bits() as usize,
        }
    }
    fn narrow(self) -> bool {
        matches!(self, Format::Eight(_) | Format::Small(_))
    }
    fn decode(self, x: u32) -> f64 {
        (match self {
            Format::F32 => f32::from_bits(x),
            Format::F16 => f16_to_f32(F16(x as u16)),
            Format::Bf16 => bf16_to_f32(Bf16(x as u16)),
            Format::Eight(m) => fp8::decode(x as u8, m, false),
            Format::Small(s) => s.decode(x as u8),
        }) as f64
    }
    fn encode(self, x: f64, seed: Option<u32>) -> u32 {
        match self {
            Format::F32 => (x as f32).to_bits(),
            Format::F16 => f64_to_f16(x).0 as u32,
            Format::Bf16 => f32_to_bf16(f64_to_f32_odd(x)).0 as u32,
            Format::Eight(m) => fp8::encode(f64_to_f32_odd(x), m, false, seed) as u32,
            Format::Small(s) => s.encode(x, seed) as u32,
        }
    }
}

/// A conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversion {
    from: Format,
    to: Format,
    count: usize,
    stochastic: bool,
    /// The numbers come in two operands (two f32, or two runs of 16).
    two: bool,
}

impl Conversion {
    /// Operands that an instruction must have: numbers, seed, scale.
    pub fn operands(&self) -> usize {
        2 + usize::from(self.two) + usize::from(self.stochastic)
    }
}

/// The conversion that the tables describe; none between formats that this cannot do.
pub fn of(s: &Scaled) -> Option<Conversion> {
    Some(Conversion {
        from: Format::of(s.from)?,
        to: Format::of(s.to)?,
        count: usize::from(s.count),
        stochastic: s.stochastic,
        two: s.two,
    })
}

/// Handler.
pub const RUN: Run = run;

/// Bits `at..at + n` of a lane's registers.
fn bits(w: &Wave, s: &Src, lane: usize, at: usize, n: usize) -> u32 {
    let word = |i: usize| match s.kind {
        Kind::Vector => w.lane(s.at + (i * w.lanes) as u32, lane),
        _ if i == 0 => w.r32(s),
        _ => 0,
    };
    let (i, shift) = (at / 32, at % 32);
    let high = if shift + n > 32 { word(i + 1) } else { 0 };
    let v = (word(i) as u64 | (high as u64) << 32) >> shift;
    (v & ((1u64 << n) - 1)) as u32
}

unsafe fn run(w: &mut Wave, op: &UOp) -> Ctl {
    let Payload::Scaled(s, e) = &op.payload else { return Ctl::Next };
    let Some(c) = of(s) else { return Ctl::Next };
    let (op_sel, neg, abs) = (e.op_sel as usize, e.neg, e.abs);
    let exec = w.exec();
    // Operands: numbers (one or two), seed, scale.
    let seed = 1 + usize::from(c.two);
    let scale = seed + usize::from(c.stochastic);
    let (from, to) = (c.from.bits(), c.to.bits());
    // A part of the source or destination register, in bits.
    let part = c.count * c.from.bits().min(c.to.bits());
    let source = match (c.count, c.from.narrow()) {
        (1, true) => 8 * (op_sel & 3),
        (2, true) if part == 8 => 8 * (op_sel & 3),
        (2, true) => 16 * (op_sel & 1),
        (1, false) if from == 16 => 16 * (op_sel & 1),
        _ => 0,
    };
    for lane in (0..w.lanes).filter(|l| exec >> l & 1 == 1) {
        let exponent = (bits(w, &op.src[scale], lane, 23, 8)) as i32 - 127;
        let seed = c.stochastic.then(|| bits(w, &op.src[seed], lane, 0, 32));
        let mut out = [0u32; 32];
        let mut at = 0;
        for i in 0..c.count {
            let per = if c.two { c.count / 2 } else { c.count };
            let mut v = c.from.decode(bits(w, &op.src[i / per], lane, source + i % per * from, from));
            if abs >> (i / per) & 1 == 1 {
                v = v.abs();
            }
            if neg >> (i / per) & 1 == 1 {
                v = -v;
            }
            let power = if c.to.narrow() { -exponent } else { exponent };
            let code = c.to.encode(ldexp64(v, power), seed) as u64;
            out[at / 32] |= (code << (at % 32)) as u32;
            if at % 32 + to > 32 {
                out[at / 32 + 1] |= (code >> (32 - at % 32)) as u32;
            }
            at += to;
        }
        // The destination: a byte or word of a register, or whole registers.
        let (shift, width) = match (at, c.to.narrow()) {
            (8, _) => (8 * (op_sel >> 2 & 3), 8),
            (16, true) => (16 * (op_sel >> 3 & 1), 16),
            (16, false) if c.count == 1 => (16 * (op_sel >> 3 & 1), 16),
            _ => (0, 32),
        };
        for (i, v) in out.iter().take(at.div_ceil(32)).enumerate() {
            let place = op.dst + (i * w.lanes) as u32;
            let v = if width == 32 {
                *v
            } else {
                let mask = ((1u64 << width) - 1) as u32;
                w.lane(place, lane) & !(mask << shift) | (v & mask) << shift
            };
            w.set_lane(place, lane, v);
        }
    }
    Ctl::Next
}
