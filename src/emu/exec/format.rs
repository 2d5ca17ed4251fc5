//! Typed buffer accesses: memory elements with a data format become one number per register, and back.
//!
//! `tbuffer_*` instructions name the format, `buffer_*_format_*` take it from the resource, whose DST_SEL fields also say
//! which component each register gets (stores and `tbuffer_*` use x, y, z, w as they are). Components that the format
//! lacks read as 0, a missing w as 1. Sources: "Vega" and "RDNA2" instruction set manuals, buffer resource descriptor
//! and data format tables. Integers too large for a stored component saturate, which AMD does not document.

use super::space::{Buffer, Space};
use super::vmem::{D16, D16_HI};
use crate::lanes::F16;
use crate::numeric::*;
use crate::wave::{Ctl, Lanes, Run, Src, UOp, Wave};
use barewave_isa::{Resource as Layout, Target};

/// How a component's bits are a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Number {
    Unorm,
    Snorm,
    Uscaled,
    Sscaled,
    Uint,
    Sint,
    Float,
}

/// A data format: bits of x, y, z and w in order of address, and the kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    bits: [u8; 4],
    number: Number,
}

impl Format {
    /// Parses `8_8_UNORM`. Sizes stand in order from the highest bit, so that x is the last; components of equal size
    /// read the same either way.
    pub fn parse(name: &str) -> Option<Format> {
        let (sizes, number) = name.rsplit_once('_')?;
        let number = match number {
            "UNORM" => Number::Unorm,
            "SNORM" => Number::Snorm,
            "USCALED" => Number::Uscaled,
            "SSCALED" => Number::Sscaled,
            "UINT" => Number::Uint,
            "SINT" => Number::Sint,
            "FLOAT" => Number::Float,
            _ => return None,
        };
        let mut bits = [0; 4];
        for (b, s) in bits.iter_mut().zip(sizes.split('_').rev()) {
            *b = s.parse().ok()?;
        }
        (bits[0] > 0).then_some(Format { bits, number })
    }
    /// Bytes of an element.
    pub fn bytes(&self) -> usize {
        self.bits.iter().map(|&b| b as usize).sum::<usize>() / 8
    }
    fn integer(&self) -> bool {
        matches!(self.number, Number::Uint | Number::Sint)
    }
    /// Offset in bits of a component.
    fn at(&self, n: usize) -> usize {
        self.bits[..n].iter().map(|&b| b as usize).sum()
    }
    /// A component as the 32 bits that a register receives.
    fn load(&self, element: u128, n: usize) -> u32 {
        let bits = self.bits[n] as u32;
        if bits == 0 {
            let one = if self.integer() { 1 } else { 1f32.to_bits() };
            return if n == 3 { one } else { 0 };
        }
        let raw = (element >> self.at(n)) as u32 & ((1u64 << bits) - 1) as u32;
        let signed = ((raw << (32 - bits)) as i32) >> (32 - bits);
        let largest = |bits: u32| ((1u64 << bits) - 1) as f64;
        match self.number {
            Number::Uint => raw,
            Number::Sint => signed as u32,
            Number::Uscaled => (raw as f32).to_bits(),
            Number::Sscaled => (signed as f32).to_bits(),
            Number::Unorm => ((raw as f64 / largest(bits)) as f32).to_bits(),
            Number::Snorm => ((signed as f64 / largest(bits - 1)).max(-1.0) as f32).to_bits(),
            Number::Float => match bits {
                32 => raw,
                16 => f16_to_f32(F16(raw as u16)).to_bits(),
                // Unsigned floats with 5 bits of exponent: halves without sign and with a shorter mantissa.
                _ => f16_to_f32(F16((raw << (15 - bits)) as u16)).to_bits(),
            },
        }
    }
    /// The bits of a component for a register's value.
    fn store(&self, n: usize, value: u32) -> u128 {
        let bits = self.bits[n] as u32;
        if bits == 0 {
            return 0;
        }
        let f = f32::from_bits(value);
        let round = |x: f64| if x.is_nan() { 0.0 } else { x.round_ties_even() };
        let top = ((1u64 << bits) - 1) as f64;
        let half = ((1u64 << (bits - 1)) - 1) as f64;
        let raw = match self.number {
            Number::Uint => (value as u64).min(top as u64),
            Number::Sint => (value as i32 as i64).clamp(-(half as i64) - 1, half as i64) as u64,
            Number::Uscaled => round((f as f64).clamp(0.0, top)) as u64,
            Number::Sscaled => round((f as f64).clamp(-half - 1.0, half)) as i64 as u64,
            Number::Unorm => round((f as f64).clamp(0.0, 1.0) * top) as u64,
            Number::Snorm => round((f as f64).clamp(-1.0, 1.0) * half) as i64 as u64,
            Number::Float => match bits {
                32 => value as u64,
                16 => f32_to_f16(f).0 as u64,
                _ => {
                    // Toward zero; negative numbers become zero.
                    let h = if f < 0.0 { 0 } else { f32_to_f16_rtz(f).0 & 0x7fff };
                    (h >> (15 - bits)) as u64
                }
            },
        };
        ((raw & ((1u128 << bits) - 1) as u64) as u128) << self.at(n)
    }
}

/// A typed access as decoded.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The format; `None` where the resource holds it.
    pub format: Option<Format>,
    /// The target, which numbers the formats.
    pub target: Target,
    /// Registers' components.
    pub count: usize,
    /// 16-bit components: two share a register, or one each (gfx8).
    pub packed: bool,
}

/// Handler of a typed access.
pub fn run(stores: bool) -> Run {
    if stores { store } else { load }
}

/// Format and component selection that an access uses.
fn settings(w: &Wave, op: &UOp, t: &Typed) -> (Option<Format>, [u32; 4]) {
    const PLAIN: [u32; 4] = [4, 5, 6, 7];
    if let Some(f) = t.format {
        return (Some(f), PLAIN);
    }
    let word = w.s[op.src[1].at as usize + 3];
    let code = match w.quirks.resource {
        Layout::Gfx11 => word >> 12 & 0x3f,
        Layout::Gfx10 => word >> 12 & 0x7f,
        Layout::Gfx8 => (word >> 15 & 15) | (word >> 12 & 7) << 4,
    };
    let format = t.target.buffer_format(code as u64).and_then(|n| Format::parse(&n));
    (format, [0, 3, 6, 9].map(|s| word >> s & 7))
}

/// Register and half of a component: element offset from the first register, upper half.
fn place(w: &Wave, op: &UOp, t: &Typed, n: usize) -> (u32, Option<bool>) {
    let d16 = op.access.flags & (D16 | D16_HI);
    match (d16, t.packed) {
        (0, _) => ((n * w.lanes) as u32, None),
        (D16_HI, _) => (0, Some(true)),
        (_, true) => ((n / 2 * w.lanes) as u32, Some(n % 2 == 1)),
        _ => ((n * w.lanes) as u32, Some(false)),
    }
}

unsafe fn load(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(t) = &op.typed else { return Ctl::Next };
    let (format, select) = settings(w, op, t);
    let b = Buffer::base(w, op);
    for lane in Lanes(w.exec()) {
        let a = Buffer::lane(w, op, b, lane);
        let mut element = 0u128;
        let mut inside = format.is_some();
        let bytes = format.map_or(0, |f| f.bytes());
        for skip in 0..bytes as u64 {
            match Buffer::ptr(w, op, b, lane, a, skip, 1) {
                // SAFETY: the range was checked.
                Ok(Some(p)) => element |= (unsafe { p.read() } as u128) << (8 * skip),
                Ok(None) => inside = false,
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
        for n in 0..t.count {
            let v = match (format, select[n]) {
                (Some(f), s @ 4..=7) if inside => f.load(element, s as usize - 4),
                (Some(f), 1) if inside => {
                    if f.integer() {
                        1
                    } else {
                        1f32.to_bits()
                    }
                }
                _ => 0,
            };
            let (at, half) = place(w, op, t, n);
            let old = w.lane(op.dst + at, lane);
            let v16 = || match format {
                Some(f) if !f.integer() => f32_to_f16(f32::from_bits(v)).0 as u32,
                _ => v & 0xffff,
            };
            let v = match half {
                None => v,
                Some(true) => old & 0xffff | v16() << 16,
                // A single half leaves the other one alone; packed pairs fill it next.
                Some(false) if t.packed => old & 0xffff_0000 | v16(),
                Some(false) => v16(),
            };
            w.set_lane(op.dst + at, lane, v);
        }
    }
    Ctl::Next
}

unsafe fn store(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(t) = &op.typed else { return Ctl::Next };
    let (format, _) = settings(w, op, t);
    let Some(f) = format else { return Ctl::Next };
    let b = Buffer::base(w, op);
    let data: Src = op.src[2];
    for lane in Lanes(w.exec()) {
        let mut element = 0u128;
        for n in 0..t.count {
            let (at, half) = place(w, op, t, n);
            let word = w.lane(data.at + at, lane);
            let v = match half {
                None => word,
                Some(high) => {
                    let h = if high { word >> 16 } else { word } as u16;
                    match f.number {
                        Number::Uint => h as u32,
                        Number::Sint => h as i16 as u32,
                        _ => f16_to_f32(F16(h)).to_bits(),
                    }
                }
            };
            element |= f.store(n, v);
        }
        let a = Buffer::lane(w, op, b, lane);
        for skip in 0..f.bytes() as u64 {
            match Buffer::ptr(w, op, b, lane, a, skip, 1) {
                // SAFETY: the range was checked.
                Ok(Some(p)) => unsafe { p.write((element >> (8 * skip)) as u8) },
                Ok(None) => break,
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
    }
    Ctl::Next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_and_converted() {
        let f = |name| Format::parse(name).unwrap();
        assert_eq!(f("8_8_8_8_UNORM").load(0x80ff_0040, 0), (64f32 / 255.0).to_bits());
        assert_eq!(f("8_8_8_8_UNORM").load(0x80ff_0040, 2), 1f32.to_bits());
        // w has the two highest bits of 2_10_10_10, x the lowest ten.
        assert_eq!(f("2_10_10_10_UINT").load(0xc000_03ff, 0), 1023);
        assert_eq!(f("2_10_10_10_UINT").load(0xc000_03ff, 3), 3);
        assert_eq!(f("8_SNORM").load(0x80, 0), (-1f32).to_bits());
        assert_eq!((f("16_16_SINT").load(0xffff_0001, 1), f("16_16_SINT").load(0, 3)), (u32::MAX, 1));
        // 11-bit float one: exponent 15, mantissa 0.
        assert_eq!(f("10_11_11_FLOAT").load(15 << 6, 0), 1f32.to_bits());
        for name in ["8_8_8_8_SNORM", "16_16_UNORM", "10_11_11_FLOAT", "32_32_32_UINT", "16_16_16_16_FLOAT"] {
            let f = f(name);
            let element = 0x3a11_2233_4455_6677_1899_2abb_1cdd_3eff_u128 & ((1 << (8 * f.bytes() - 1)) * 2 - 1);
            let back = (0..4).fold(0, |e, n| e | f.store(n, f.load(element, n)));
            assert_eq!(back, element, "{name}");
        }
        assert!(Format::parse("INVALID").is_none() && Format::parse("RESERVED_15_UNORM").is_none());
    }
}
