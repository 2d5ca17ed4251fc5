//! Typed buffer accesses: memory elements with a data format become one number per register, and back.
//!
//! `tbuffer_*` instructions name the format, `buffer_*_format_*` take it from the resource, whose DST_SEL fields also say
//! which component each register gets (stores and `tbuffer_*` use x, y, z, w as they are). Components that the format
//! lacks read as 0, a missing w as 1. Sources: "Vega" and "RDNA2" instruction set manuals, buffer resource descriptor
//! and data format tables. Integers too large for a stored component saturate, which AMD does not document.

use super::flags::{D16, D16_HI};
use super::space::{Buffer, Space};
use crate::element::{Format, Number, Typed};
use crate::lanes::F16;
use crate::numeric::*;
use crate::uop::{Payload, Run, Src, UOp};
use crate::wave::{Ctl, Lanes, Wave};
use barewave_isa::Resource as Layout;

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
    let Payload::Typed(t) = &op.payload else { return Ctl::Next };
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
    let Payload::Typed(t) = &op.payload else { return Ctl::Next };
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
