//! Scalar memory: s_load, s_buffer_load, s_scratch_load, their stores, and scalar atomics (gfx9, gfx10).
//!
//! Source: "Vega" manual, chapter "Scalar Memory Operations" (scalar scratch counts its register offset in units of 64
//! bytes); loads of bytes and halves "RDNA4".

use super::atomic::{rmw32, rmw64};
use crate::fault::FaultKind;
use crate::uop::{Kind, Run, UOp};
use crate::wave::{Ctl, Wave};
use barewave_isa::action::{self, Address, Memory, Transfer};

/// Flags of `UOp::access`.
const SIGNED: u16 = 1;
const BUFFER: u16 = 2;
const SCRATCH: u16 = 4;
/// The data registers receive the old value.
pub const RETURN: u16 = 8;

/// Flags that handlers read.
pub fn flags(m: &Memory) -> u16 {
    let buffer = m.space == action::Space::ScalarBuffer;
    [(m.signed, SIGNED), (buffer, BUFFER), (m.address == Address::Units64, SCRATCH)]
        .iter()
        .fold(0, |f, (on, bit)| if *on { f | bit } else { f })
}

/// Handler of an access. Sources: base, offset operand (if any); `imm` holds the constant offset.
pub fn run(m: &Memory) -> Run {
    match m.transfer {
        Transfer::Atomic(_) => atomic,
        _ if m.writes() => store,
        _ if m.space == action::Space::ScalarBuffer => buffer_load,
        _ if m.bytes.is_multiple_of(4) => load,
        _ => load_small,
    }
}

#[inline(always)]
fn offset(w: &Wave, op: &UOp) -> u64 {
    let o = &op.src[1];
    let reg = if o.kind == Kind::None { 0 } else { w.r32(o) as u64 };
    let reg = if op.access.flags & SCRATCH != 0 { 64 * reg } else { reg };
    reg.wrapping_add(op.imm as u64)
}

unsafe fn load(w: &mut Wave, op: &UOp) -> Ctl {
    // The two low address bits are ignored.
    let addr = w.r64(&op.src[0]).wrapping_add(offset(w, op)) & !3;
    let bytes = op.access.bytes as usize;
    let Some(p) = w.mem.at(addr, bytes as u64) else {
        return w.fail(FaultKind::OutOfBounds { addr, size: bytes as u32, store: false }, None);
    };
    let d = op.dst as usize;
    // SAFETY: the range was checked; destination indices are checked when the program is decoded.
    unsafe { std::ptr::copy_nonoverlapping(p, w.s.as_mut_ptr().add(d).cast(), bytes) };
    Ctl::Next
}

unsafe fn load_small(w: &mut Wave, op: &UOp) -> Ctl {
    let addr = w.r64(&op.src[0]).wrapping_add(offset(w, op));
    let bytes = op.access.bytes as u64;
    let Some(p) = w.mem.at(addr, bytes) else {
        return w.fail(FaultKind::OutOfBounds { addr, size: bytes as u32, store: false }, None);
    };
    // SAFETY: the range was checked.
    w.s[op.dst as usize] = unsafe { small(p, op) };
    Ctl::Next
}

/// A byte or word, extended.
unsafe fn small(p: *mut u8, op: &UOp) -> u32 {
    // SAFETY: promised by the caller.
    unsafe {
        match (op.access.bytes, op.access.flags & SIGNED != 0) {
            (1, false) => p.read() as u32,
            (1, true) => p.read() as i8 as i32 as u32,
            (_, false) => p.cast::<u16>().read_unaligned() as u32,
            (_, true) => p.cast::<i16>().read_unaligned() as i32 as u32,
        }
    }
}

unsafe fn buffer_load(w: &mut Wave, op: &UOp) -> Ctl {
    let at = op.src[0].at as usize;
    let (base, records) = (w.pair(at) & 0xffff_ffff_ffff, w.s[at + 2]);
    let stride = w.s[at + 1] >> 16 & 0x3fff;
    let size = if stride == 0 { records as u64 } else { records as u64 * stride as u64 };
    let bytes = op.access.bytes as u64;
    let off = offset(w, op);
    if bytes < 4 {
        let mut v = 0;
        if off + bytes <= size {
            let Some(p) = w.mem.at(base + off, bytes) else {
                return w.fail(FaultKind::OutOfBounds { addr: base + off, size: bytes as u32, store: false }, None);
            };
            // SAFETY: the range was checked.
            v = unsafe { small(p, op) };
        }
        w.s[op.dst as usize] = v;
        return Ctl::Next;
    }
    let off = off & !3;
    for i in 0..bytes / 4 {
        let o = off + 4 * i;
        // Reads past the end give zero.
        let v = if o + 4 > size {
            0
        } else {
            match w.mem.at(base + o, 4) {
                // SAFETY: the range was checked.
                Some(p) => unsafe { p.cast::<u32>().read_unaligned() },
                None => return w.fail(FaultKind::OutOfBounds { addr: base + o, size: 4, store: false }, None),
            }
        };
        w.s[op.dst as usize + i as usize] = v;
    }
    Ctl::Next
}

/// s_store_dword and s_buffer_store_dword: data is source 2.
unsafe fn store(w: &mut Wave, op: &UOp) -> Ctl {
    let buffer = op.access.flags & BUFFER != 0;
    let base = if buffer { w.pair(op.src[0].at as usize) & 0xffff_ffff_ffff } else { w.r64(&op.src[0]) };
    let addr = base.wrapping_add(offset(w, op)) & !3;
    let bytes = op.access.bytes as usize;
    let Some(p) = w.mem.at(addr, bytes as u64) else {
        return w.fail(FaultKind::OutOfBounds { addr, size: bytes as u32, store: true }, None);
    };
    let d = op.src[2].at as usize;
    // SAFETY: as `load`.
    unsafe { std::ptr::copy_nonoverlapping(w.s.as_ptr().add(d).cast::<u8>(), p, bytes) };
    Ctl::Next
}

/// Scalar atomics; data is source 2, a compare-and-swap has the new value first and the comparand behind it.
unsafe fn atomic(w: &mut Wave, op: &UOp) -> Ctl {
    let bytes = op.access.bytes as u64;
    let at = op.src[0].at as usize;
    let buffer = op.access.flags & BUFFER != 0;
    let base = if buffer { w.pair(at) & 0xffff_ffff_ffff } else { w.r64(&op.src[0]) };
    let addr = base.wrapping_add(offset(w, op)) & !3;
    let Some(p) = w.mem.at(addr, bytes) else {
        return w.fail(FaultKind::OutOfBounds { addr, size: bytes as u32, store: true }, None);
    };
    let (d, kind) = (op.src[2].at as usize, op.access.atomic);
    let returns = op.access.flags & RETURN != 0;
    // SAFETY: the range was checked.
    unsafe {
        if bytes == 8 {
            let c = if kind.two_operands() { w.pair(d + 2) } else { 0 };
            let old = rmw64(p, kind, w.pair(d), c);
            if returns {
                w.set_pair(d, old);
            }
        } else {
            let c = if kind.two_operands() { w.s[d + 1] } else { 0 };
            let old = rmw32(p, kind, w.s[d], c);
            if returns {
                w.s[d] = old;
            }
        }
    }
    Ctl::Next
}

/// Device address and size of what an instruction accesses, for checks: low address bits as given, and without what bounds
/// checks of a buffer leave out.
pub fn range(w: &Wave, op: &UOp) -> (u64, u64) {
    let (off, bytes) = (offset(w, op), op.access.bytes as u64);
    if op.access.flags & BUFFER == 0 {
        return (w.r64(&op.src[0]).wrapping_add(off), bytes);
    }
    let at = op.src[0].at as usize;
    let stride = (w.s[at + 1] >> 16 & 0x3fff).max(1) as u64;
    let left = (w.s[at + 2] as u64 * stride).saturating_sub(off);
    let inside = if bytes < 4 { if left < bytes { 0 } else { bytes } } else { bytes.min(left & !3) };
    ((w.pair(at) & 0xffff_ffff_ffff).wrapping_add(off), inside)
}
