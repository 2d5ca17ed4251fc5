//! Address spaces of vector memory: where a lane's address comes from and what it may reach.
//!
//! Source: "Vega", "RDNA2" and "RDNA3" manuals, chapters "Vector Memory Operations" (buffer resource, swizzle, range
//! checks: formulas of section "Buffer Addressing") and "Flat Memory Instructions" (apertures, scratch).

use super::flags::{ADDR64, ADDTID, IDXEN, OFFEN, STORE};
use crate::fault::FaultKind;
use crate::lanes::CHUNK;
use crate::uop::{Kind, UOp};
use crate::wave::{PRIVATE_APERTURE, SHARED_APERTURE, Wave, scalar};
use barewave_isa::{Reg, Resource as Layout};

/// Sources: 0 = vaddr, 1 = saddr or resource, 3 = soffset. `imm` is the constant offset.
const VADDR: usize = 0;
const SADDR: usize = 1;
const SOFFSET: usize = 3;

/// How a lane finds its memory.
pub trait Space {
    /// What is the same for all lanes.
    type Base: Copy;
    /// Computes it.
    fn base(w: &Wave, op: &UOp) -> Self::Base;
    /// Address of a lane, in whatever form `ptr` understands.
    fn lane(w: &Wave, op: &UOp, b: Self::Base, lane: usize) -> u64;
    /// Host address of `size` bytes `skip` bytes behind a lane's address. `Ok(None)`: the access is dropped and loads
    /// give zero. Bytes that do not lie together, because memory is interleaved, are an error: they are asked for one
    /// by one then.
    fn ptr(
        w: &Wave,
        op: &UOp,
        b: Self::Base,
        lane: usize,
        addr: u64,
        skip: u64,
        size: u64,
    ) -> Result<Option<*mut u8>, FaultKind>;
    /// Host address of all `size` bytes of a lane, when they lie together and may be accessed.
    #[inline(always)]
    fn whole(_w: &Wave, _op: &UOp, _b: Self::Base, _addr: u64, _size: u64) -> Option<*mut u8> {
        None
    }
    /// The sums that lanes' addresses are, where they are sums alone.
    fn row(_w: &Wave, _op: &UOp, _b: Self::Base) -> Option<Row> {
        None
    }
    /// Host address of a whole chunk of `16 * size` contiguous bytes, when the space allows it.
    fn chunk(w: &Wave, op: &UOp, b: Self::Base, addr: u64, size: u64) -> Option<*mut u8>;
}

/// Addresses of lanes that are sums of one address and an offset of 32 bits each.
pub struct Row {
    /// What offsets are added to.
    pub base: u64,
    /// Where in the wave's registers those of lane 0 and the others lie; none where all are 0.
    pub offsets: Option<u32>,
    /// Bytes from `base` on that checks of bounds let through.
    pub bytes: u64,
}

fn out_of_bounds(op: &UOp, addr: u64, size: u64) -> FaultKind {
    FaultKind::OutOfBounds { addr, size: size as u32, store: op.access.flags & STORE != 0 }
}

/// The address operand of a lane: 32 or 64 bits, or nothing.
#[inline(always)]
fn vaddr(w: &Wave, op: &UOp, lane: usize) -> u64 {
    let s = &op.src[VADDR];
    if s.kind == Kind::None {
        return if op.access.flags & ADDTID != 0 { 4 * lane as u64 } else { 0 };
    }
    let lo = w.lane(s.at, lane) as u64;
    if op.access.flags & ADDR64 != 0 { lo | (w.lane(s.at + w.lanes as u32, lane) as u64) << 32 } else { lo }
}

/// `global_*`.
pub struct Global;
impl Space for Global {
    type Base = u64;
    #[inline(always)]
    fn base(w: &Wave, op: &UOp) -> u64 {
        let s = &op.src[SADDR];
        let base = if s.kind == Kind::None { 0 } else { w.r64(s) };
        base.wrapping_add(op.imm as u64)
    }
    #[inline(always)]
    fn lane(w: &Wave, op: &UOp, b: u64, lane: usize) -> u64 {
        b.wrapping_add(vaddr(w, op, lane))
    }
    #[inline(always)]
    fn ptr(
        w: &Wave,
        op: &UOp,
        _b: u64,
        _lane: usize,
        addr: u64,
        skip: u64,
        size: u64,
    ) -> Result<Option<*mut u8>, FaultKind> {
        match w.mem.at(addr.wrapping_add(skip), size) {
            Some(p) => Ok(Some(p)),
            None => Err(out_of_bounds(op, addr.wrapping_add(skip), size)),
        }
    }
    #[inline(always)]
    fn whole(w: &Wave, _op: &UOp, _b: u64, addr: u64, size: u64) -> Option<*mut u8> {
        w.mem.at(addr, size)
    }
    fn row(_w: &Wave, op: &UOp, b: u64) -> Option<Row> {
        let s = &op.src[VADDR];
        let sums = op.access.flags & (ADDR64 | ADDTID) == 0;
        sums.then_some(Row { base: b, offsets: (s.kind != Kind::None).then_some(s.at), bytes: u64::MAX })
    }
    #[inline(always)]
    fn chunk(w: &Wave, _op: &UOp, _b: u64, addr: u64, size: u64) -> Option<*mut u8> {
        w.mem.at(addr, size * CHUNK as u64)
    }
}

/// Base of the wave's scratch, device address.
fn scratch_base(w: &Wave) -> u64 {
    if w.architected_scratch || w.quirks.flat_scratch_hwregs {
        return w.flat_scratch;
    }
    let (lo, hi) = (w.s[scalar(Reg::FLAT_SCRATCH_LO) as usize], w.s[scalar(Reg::FLAT_SCRATCH_HI) as usize]);
    if w.quirks.flat_scratch_sizes {
        // Size per lane and offset in units of 256 bytes.
        let _ = lo;
        w.hidden_private + ((hi as u64) << 8)
    } else {
        lo as u64 | (hi as u64) << 32
    }
}

/// Scratch is interleaved: consecutive dwords of a lane are one row of the wave apart.
fn scratch_at(
    w: &Wave,
    op: &UOp,
    base: u64,
    lane: usize,
    offset: u64,
    size: u64,
) -> Result<Option<*mut u8>, FaultKind> {
    let per_lane = w.scratch_size / w.lanes as u64;
    if offset % 4 + size > 4 || offset + size > per_lane.max(4) {
        return Err(out_of_bounds(op, offset, size));
    }
    let addr = base + (offset & !3) * w.lanes as u64 + 4 * lane as u64 + offset % 4;
    w.mem.at(addr, size).map(Some).ok_or_else(|| out_of_bounds(op, addr, size))
}

/// `scratch_*`.
pub struct Scratch;
impl Space for Scratch {
    type Base = (u64, u64);
    fn base(w: &Wave, op: &UOp) -> (u64, u64) {
        let s = &op.src[SADDR];
        let off = if s.kind == Kind::None { 0 } else { w.r32(s) as u64 };
        (scratch_base(w), off.wrapping_add(op.imm as u64))
    }
    fn lane(w: &Wave, op: &UOp, b: (u64, u64), lane: usize) -> u64 {
        (b.1.wrapping_add(vaddr(w, op, lane))) & 0xffff_ffff
    }
    fn ptr(
        w: &Wave,
        op: &UOp,
        b: (u64, u64),
        lane: usize,
        addr: u64,
        skip: u64,
        size: u64,
    ) -> Result<Option<*mut u8>, FaultKind> {
        scratch_at(w, op, b.0, lane, addr + skip, size)
    }
    fn chunk(_w: &Wave, _op: &UOp, _b: (u64, u64), _addr: u64, _size: u64) -> Option<*mut u8> {
        None
    }
}

/// `flat_*`: global, LDS or scratch by the upper half of the address.
pub struct Flat;
impl Space for Flat {
    type Base = u64;
    fn base(_w: &Wave, op: &UOp) -> u64 {
        op.imm as u64
    }
    fn lane(w: &Wave, op: &UOp, b: u64, lane: usize) -> u64 {
        b.wrapping_add(vaddr(w, op, lane))
    }
    fn ptr(
        w: &Wave,
        op: &UOp,
        _b: u64,
        lane: usize,
        addr: u64,
        skip: u64,
        size: u64,
    ) -> Result<Option<*mut u8>, FaultKind> {
        let at = addr.wrapping_add(skip);
        match (addr >> 32) as u32 {
            SHARED_APERTURE => lds_at(w, at & 0xffff_ffff, size).map(Some),
            PRIVATE_APERTURE => scratch_at(w, op, scratch_base(w), lane, at & 0xffff_ffff, size),
            _ => w.mem.at(at, size).map(Some).ok_or_else(|| out_of_bounds(op, at, size)),
        }
    }
    fn chunk(w: &Wave, _op: &UOp, _b: u64, addr: u64, size: u64) -> Option<*mut u8> {
        w.mem.at(addr, size * CHUNK as u64)
    }
}

/// Host address of LDS bytes.
pub fn lds_at(w: &Wave, addr: u64, size: u64) -> Result<*mut u8, FaultKind> {
    if addr + size <= w.lds_size as u64 {
        // SAFETY: inside of the workgroup's LDS.
        Ok(unsafe { w.lds.add(addr as usize) })
    } else {
        Err(FaultKind::LdsOutOfBounds { addr: addr as u32, size: size as u32, limit: w.lds_size })
    }
}

/// A decoded buffer resource.
#[derive(Clone, Copy)]
pub struct Resource {
    base: u64,
    soffset: u64,
    stride: u64,
    records: u64,
    /// Element size and index stride of a swizzled buffer.
    swizzle: Option<(u64, u64)>,
    add_tid: bool,
    /// How bounds are checked: 0 index and offset, 1 index, 2 not at all, 3 bytes.
    check: u8,
}

/// `buffer_*`.
pub struct Buffer;
impl Buffer {
    #[inline(always)]
    fn index(w: &Wave, op: &UOp, b: &Resource, lane: usize) -> u64 {
        let i = if op.access.flags & IDXEN != 0 { w.lane(op.src[VADDR].at, lane) as u64 } else { 0 };
        i + if b.add_tid { lane as u64 } else { 0 }
    }
    #[inline(always)]
    fn offset(w: &Wave, op: &UOp, lane: usize) -> u64 {
        let mut o = op.imm as u64;
        if op.access.flags & OFFEN != 0 {
            let second = if op.access.flags & IDXEN != 0 { w.lanes as u32 } else { 0 };
            o += w.lane(op.src[VADDR].at + second, lane) as u64;
        }
        o
    }
    fn swizzled(b: &Resource, index: u64, offset: u64) -> u64 {
        match b.swizzle {
            None => offset + b.stride * index,
            Some((element, indices)) => {
                (index / indices * b.stride + offset / element * element) * indices
                    + index % indices * element
                    + offset % element
            }
        }
    }
}
impl Space for Buffer {
    type Base = Resource;
    fn base(w: &Wave, op: &UOp) -> Resource {
        let at = op.src[SADDR].at as usize;
        let (w0, w1, w2, w3) = (w.s[at], w.s[at + 1], w.s[at + 2], w.s[at + 3]);
        let layout = w.quirks.resource;
        let soffset = if op.src[SOFFSET].kind == Kind::None { 0 } else { w.r32(&op.src[SOFFSET]) as u64 };
        let add_tid = w3 >> 23 & 1 != 0;
        // gfx8 and gfx9 keep the upper bits of the stride in the place of the data format ("Vega", "Buffer Resource")
        let upper = if add_tid && layout == Layout::Gfx8 { w3 >> 15 & 15 } else { 0 };
        let stride = (upper << 14 | w1 >> 16 & 0x3fff) as u64;
        let index_stride = 8u64 << (w3 >> 21 & 3);
        let swizzle = match layout {
            Layout::Gfx11 => [None, Some(4), Some(8), Some(16)][(w1 >> 30) as usize],
            _ if w1 >> 31 == 0 => None,
            Layout::Gfx10 => Some(4),
            Layout::Gfx8 => Some(2u64 << (w3 >> 19 & 3)),
        };
        let check = if layout != Layout::Gfx8 {
            (w3 >> 28 & 3) as u8
        } else if stride == 0 || (swizzle.is_none() && op.access.flags & IDXEN == 0) {
            3
        } else {
            1
        };
        Resource {
            base: w0 as u64 | ((w1 & 0xffff) as u64) << 32,
            soffset,
            stride,
            records: w2 as u64,
            swizzle: swizzle.map(|e| (e, index_stride)),
            add_tid,
            check,
        }
    }
    /// The address before swizzling is kept in two halves: index in the upper, offset in the lower 32 bits.
    #[inline(always)]
    fn lane(w: &Wave, op: &UOp, b: Resource, lane: usize) -> u64 {
        let (index, offset) = (Buffer::index(w, op, &b, lane), Buffer::offset(w, op, lane));
        index << 32 | offset & 0xffff_ffff
    }
    fn ptr(
        w: &Wave,
        op: &UOp,
        b: Resource,
        _lane: usize,
        addr: u64,
        skip: u64,
        size: u64,
    ) -> Result<Option<*mut u8>, FaultKind> {
        let (index, offset) = (addr >> 32, (addr & 0xffff_ffff) + skip);
        let out = match b.check {
            0 => index >= b.records || (b.stride != 0 && offset + size > b.stride),
            1 => index >= b.records,
            2 => b.records == 0,
            // soffset counts against the size of a raw buffer.
            _ => offset + b.stride * index + size + b.soffset > b.records,
        };
        if out {
            return Ok(None);
        }
        let at = b.base.wrapping_add(b.soffset).wrapping_add(Buffer::swizzled(&b, index, offset));
        if b.swizzle.is_some_and(|(element, _)| offset % element + size > element) {
            return Err(out_of_bounds(op, at, size));
        }
        w.mem.at(at, size).map(Some).ok_or_else(|| out_of_bounds(op, at, size))
    }
    #[inline(always)]
    fn whole(w: &Wave, _op: &UOp, b: Resource, addr: u64, size: u64) -> Option<*mut u8> {
        let at = (addr & 0xffff_ffff) + b.stride * (addr >> 32);
        let inside = b.check == 3 && b.swizzle.is_none() && at + b.soffset + size <= b.records;
        if inside { w.mem.at(b.base.wrapping_add(b.soffset).wrapping_add(at), size) } else { None }
    }
    fn row(_w: &Wave, op: &UOp, b: Resource) -> Option<Row> {
        let sums = b.check == 3 && b.swizzle.is_none() && !b.add_tid && op.access.flags & IDXEN == 0;
        let first = b.soffset.wrapping_add(op.imm as u64);
        sums.then_some(Row {
            base: b.base.wrapping_add(first),
            offsets: (op.access.flags & OFFEN != 0).then_some(op.src[VADDR].at),
            bytes: b.records.saturating_sub(first),
        })
    }
    #[inline(always)]
    fn chunk(w: &Wave, _op: &UOp, b: Resource, addr: u64, size: u64) -> Option<*mut u8> {
        let end = addr + b.soffset + size * CHUNK as u64;
        if addr >> 32 != 0 || b.swizzle.is_some() || b.check != 3 || end > b.records {
            return None;
        }
        w.mem.at(b.base + b.soffset + addr, size * CHUNK as u64)
    }
}
