//! Vector memory: global, flat, scratch and buffer accesses.
//!
//! Lanes are handled in chunks of 16. A chunk whose lanes are all active and whose addresses follow each other is one
//! copy; other chunks go lane by lane. What differs between address spaces is how a lane's address comes about
//! ([`Space`]) and is decided when the program is decoded.
//!
//! Source: "Vega", "CDNA3" and "RDNA4" manuals, chapters "Vector Memory Operations" and "Flat Memory Instructions", and the
//! MUBUF, FLAT, GLOBAL and SCRATCH sections of chapter "Instructions" (D16 forms, loads to LDS, block and transposing loads).

use super::atomic::{rmw32, rmw64};
use super::flags::*;
use super::rows::{extend, memory_from_rows, place, rows_from_memory};
use super::space::{Buffer, Flat, Global, Scratch, Space, lds_at};
use crate::fault::FaultKind;
use crate::lanes::CHUNK;
use crate::uop::{Run, UOp};
use crate::wave::{Ctl, Lanes, M0, SHARED_APERTURE, Wave};
use barewave_isa::action::{Memory, Transfer};
use std::sync::atomic::{AtomicU64, Ordering};

/// Source that holds the data (the others are in `space`).
const DATA: usize = 2;

/// Addresses of a chunk's lanes.
#[inline(always)]
fn addresses<S: Space>(w: &Wave, op: &UOp, b: S::Base, first: usize) -> [u64; CHUNK] {
    let mut a = [0; CHUNK];
    for i in 0..CHUNK {
        a[i] = S::lane(w, op, b, first + i);
    }
    a
}

/// True when lane addresses follow each other at `size` bytes.
#[inline(always)]
fn contiguous(a: &[u64; CHUNK], size: u64) -> bool {
    let mut bad = 0;
    for i in 0..CHUNK {
        bad |= a[i] ^ a[0].wrapping_add(i as u64 * size);
    }
    bad == 0
}

/// Dwords at an address. Those of aligned eight bytes are read at once, as memory gives them: another workgroup may be storing them.
#[inline(always)]
unsafe fn dwords_at<const N: usize>(p: *const u8) -> [u32; N] {
    let mut out = [0; N];
    if N % 2 == 1 || !p.cast::<u64>().is_aligned() {
        // SAFETY: the caller's.
        return unsafe { p.cast::<[u32; N]>().read_unaligned() };
    }
    for d in (0..N).step_by(2) {
        // SAFETY: the caller's, and it is aligned.
        let both = unsafe { AtomicU64::from_ptr(p.add(4 * d).cast::<u64>().cast_mut()).load(Ordering::Relaxed) };
        (out[d], out[d + 1]) = (both as u32, (both >> 32) as u32);
    }
    out
}

/// Stores them likewise.
#[inline(always)]
unsafe fn store_dwords<const N: usize>(p: *mut u8, dwords: [u32; N]) {
    if N % 2 == 1 || !p.cast::<u64>().is_aligned() {
        // SAFETY: the caller's.
        return unsafe { p.cast::<[u32; N]>().write_unaligned(dwords) };
    }
    for d in (0..N).step_by(2) {
        let both = u64::from(dwords[d]) | u64::from(dwords[d + 1]) << 32;
        // SAFETY: the caller's, and it is aligned.
        unsafe { AtomicU64::from_ptr(p.add(4 * d).cast()).store(both, Ordering::Relaxed) };
    }
}

/// Where a lane's several dwords are, if all may be accessed and lie together.
#[inline(always)]
fn at_once<S: Space, const N: usize>(w: &Wave, op: &UOp, b: S::Base, lane: usize, addr: u64) -> Option<*mut u8> {
    if N == 1 {
        return None;
    }
    let at = |d: usize| S::ptr(w, op, b, lane, addr, 4 * d as u64, 4).ok().flatten();
    at(0).zip(at(N - 1)).filter(|(first, last)| first.wrapping_add(4 * (N - 1)) == *last).map(|p| p.0)
}

/// Loads of `N` dwords per lane.
unsafe fn load<S: Space, const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let b = S::base(w, op);
    for c in 0..w.chunks() {
        let mask = (exec >> (c * CHUNK)) & 0xffff;
        if mask == 0 {
            continue;
        }
        let first = c * CHUNK;
        let a = addresses::<S>(w, op, b, first);
        if mask == 0xffff
            && contiguous(&a, 4 * N as u64)
            && let Some(p) = S::chunk(w, op, b, a[0], 4 * N as u64)
        {
            // SAFETY: the range was checked; rows are checked when the program is decoded.
            unsafe { rows_from_memory::<N>(p, w.v().add(op.dst as usize + first), w.lanes) };
            continue;
        }
        // All lanes somewhere: their elements side by side, then as above.
        let mut together = [[0u32; N]; CHUNK];
        let mut found = mask == 0xffff;
        for i in 0..CHUNK {
            if found {
                match S::whole(w, op, b, a[i], 4 * N as u64) {
                    // SAFETY: the range was checked.
                    Some(p) => together[i] = unsafe { dwords_at(p) },
                    None => found = false,
                }
            }
        }
        if found {
            // SAFETY: rows are checked when the program is decoded.
            unsafe { rows_from_memory::<N>(together.as_ptr().cast(), w.v().add(op.dst as usize + first), w.lanes) };
            continue;
        }
        for i in 0..CHUNK {
            if mask >> i & 1 == 0 {
                continue;
            }
            if let Some(p) = at_once::<S, N>(w, op, b, first + i, a[i]) {
                // SAFETY: the range was checked.
                let all: [u32; N] = unsafe { dwords_at(p) };
                (0..N).for_each(|d| w.set_lane(op.dst + (d * w.lanes) as u32, first + i, all[d]));
                continue;
            }
            for d in 0..N {
                let v = match S::ptr(w, op, b, first + i, a[i], 4 * d as u64, 4) {
                    // SAFETY: the range was checked.
                    Ok(Some(p)) => unsafe { p.cast::<u32>().read_unaligned() },
                    Ok(None) => 0,
                    Err(e) => match bytewise::<S>(w, op, b, first + i, a[i] + 4 * d as u64, 4, e) {
                        Ok(v) => v,
                        Err(e) => return w.fail(e, Some((first + i) as u32)),
                    },
                };
                w.set_lane(op.dst + (d * w.lanes) as u32, first + i, v);
            }
        }
    }
    Ctl::Next
}

/// Loads `size` bytes that straddle the interleaving of scratch.
#[cold]
fn bytewise<S: Space>(
    w: &Wave,
    op: &UOp,
    b: S::Base,
    lane: usize,
    addr: u64,
    size: u64,
    e: FaultKind,
) -> Result<u32, FaultKind> {
    let mut v = 0;
    for i in 0..size {
        match S::ptr(w, op, b, lane, addr, i, 1) {
            // SAFETY: the range was checked.
            Ok(Some(p)) => v |= (unsafe { p.read() } as u32) << (8 * i),
            Ok(None) => {}
            Err(_) => return Err(e),
        }
    }
    Ok(v)
}

/// Stores `size` bytes that do so.
#[cold]
#[allow(clippy::too_many_arguments)]
fn store_bytewise<S: Space>(
    w: &Wave,
    op: &UOp,
    b: S::Base,
    lane: usize,
    addr: u64,
    size: u64,
    v: u32,
    e: FaultKind,
) -> Result<(), FaultKind> {
    for i in 0..size {
        match S::ptr(w, op, b, lane, addr, i, 1) {
            // SAFETY: the range was checked.
            Ok(Some(p)) => unsafe { p.write((v >> (8 * i)) as u8) },
            Ok(None) => {}
            Err(_) => return Err(e),
        }
    }
    Ok(())
}

/// Loads of a byte or word per lane, with extension or into half a register.
unsafe fn load_small<S: Space>(w: &mut Wave, op: &UOp) -> Ctl {
    let b = S::base(w, op);
    for lane in Lanes(w.exec()) {
        let a = S::lane(w, op, b, lane);
        let v = match S::ptr(w, op, b, lane, a, 0, op.access.bytes as u64) {
            // SAFETY: the range was checked.
            Ok(Some(p)) => unsafe { extend(p, op) },
            Ok(None) => 0,
            Err(e) => match bytewise::<S>(w, op, b, lane, a, op.access.bytes as u64, e) {
                // SAFETY: a dword of our own.
                Ok(v) => unsafe { extend(v.to_le_bytes().as_ptr(), op) },
                Err(e) => return w.fail(e, Some(lane as u32)),
            },
        };
        let v = place(op, w.lane(op.dst, lane), v);
        w.set_lane(op.dst, lane, v);
    }
    Ctl::Next
}

/// Stores of `N` dwords per lane.
unsafe fn store<S: Space, const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let b = S::base(w, op);
    let data = op.src[DATA].at;
    for c in 0..w.chunks() {
        let mask = (exec >> (c * CHUNK)) & 0xffff;
        if mask == 0 {
            continue;
        }
        let first = c * CHUNK;
        let a = addresses::<S>(w, op, b, first);
        if mask == 0xffff
            && contiguous(&a, 4 * N as u64)
            && let Some(p) = S::chunk(w, op, b, a[0], 4 * N as u64)
        {
            // SAFETY: as in `load`.
            unsafe { memory_from_rows::<N>(p, w.v().add(data as usize + first), w.lanes) };
            continue;
        }
        for i in 0..CHUNK {
            if mask >> i & 1 == 0 {
                continue;
            }
            if let Some(p) = at_once::<S, N>(w, op, b, first + i, a[i]) {
                let all: [u32; N] = std::array::from_fn(|d| w.lane(data + (d * w.lanes) as u32, first + i));
                // SAFETY: the range was checked.
                unsafe { store_dwords(p, all) };
                continue;
            }
            for d in 0..N {
                let v = w.lane(data + (d * w.lanes) as u32, first + i);
                match S::ptr(w, op, b, first + i, a[i], 4 * d as u64, 4) {
                    // SAFETY: the range was checked.
                    Ok(Some(p)) => unsafe { p.cast::<u32>().write_unaligned(v) },
                    Ok(None) => {}
                    Err(e) => {
                        let at = a[i] + 4 * d as u64;
                        if let Err(e) = store_bytewise::<S>(w, op, b, first + i, at, 4, v, e) {
                            return w.fail(e, Some((first + i) as u32));
                        }
                    }
                }
            }
        }
    }
    Ctl::Next
}

/// Stores of a byte or word per lane.
unsafe fn store_small<S: Space>(w: &mut Wave, op: &UOp) -> Ctl {
    let b = S::base(w, op);
    for lane in Lanes(w.exec()) {
        let a = S::lane(w, op, b, lane);
        let v = w.lane(op.src[DATA].at, lane) >> if op.access.flags & D16_HI != 0 { 16 } else { 0 };
        match S::ptr(w, op, b, lane, a, 0, op.access.bytes as u64) {
            // SAFETY: the range was checked.
            Ok(Some(p)) => unsafe {
                if op.access.bytes == 1 { p.write(v as u8) } else { p.cast::<u16>().write_unaligned(v as u16) }
            },
            Ok(None) => {}
            Err(e) => {
                if let Err(e) = store_bytewise::<S>(w, op, b, lane, a, op.access.bytes as u64, v, e) {
                    return w.fail(e, Some(lane as u32));
                }
            }
        }
    }
    Ctl::Next
}

/// Atomics, lanes in order.
unsafe fn atomic<S: Space>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let b = S::base(w, op);
    let kind = op.access.atomic;
    let data = op.src[DATA].at;
    let row = w.lanes as u32;
    for lane in 0..w.lanes {
        if exec >> lane & 1 == 0 {
            continue;
        }
        let a = S::lane(w, op, b, lane);
        let p = match S::ptr(w, op, b, lane, a, 0, op.access.bytes as u64) {
            Ok(p) => p,
            Err(e) => return w.fail(e, Some(lane as u32)),
        };
        let two = kind.two_operands();
        let x = |n: u32| w.lane(data + n * row, lane);
        if op.access.bytes == 8 {
            let (v, c) = (x(0) as u64 | (x(1) as u64) << 32, if two { x(2) as u64 | (x(3) as u64) << 32 } else { 0 });
            // SAFETY: the range was checked.
            let old = p.map_or(0, |p| unsafe { rmw64(p, kind, v, c) });
            if op.access.flags & RETURN != 0 {
                w.set_lane(op.dst, lane, old as u32);
                w.set_lane(op.dst + row, lane, (old >> 32) as u32);
            }
        } else {
            let (v, c) = (x(0), if two { x(1) } else { 0 });
            // SAFETY: the range was checked.
            let old = p.map_or(0, |p| unsafe { rmw32(p, kind, v, c) });
            if op.access.flags & RETURN != 0 {
                w.set_lane(op.dst, lane, old);
            }
        }
    }
    Ctl::Next
}

/// Where in LDS lane 0 of a load to LDS or a store from it begins: M0 has 16 bits of that, and 18 where LDS is larger ("CDNA4" manual, 9.1.9).
fn place_in_lds(w: &Wave, op: &UOp) -> u64 {
    let mask = if op.access.flags & FAR_LDS != 0 { 0x3ffff } else { 0xffff };
    u64::from(w.s[M0] & mask) + op.imm as u64
}

/// Loads that go to LDS: lane `i` writes at M0 + offset + `i` elements.
unsafe fn load_lds<S: Space>(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let b = S::base(w, op);
    let bytes = op.access.bytes as u64;
    let element = bytes.max(4);
    let start = place_in_lds(w, op);
    for lane in 0..w.lanes {
        if exec >> lane & 1 == 0 {
            continue;
        }
        let a = S::lane(w, op, b, lane);
        for d in 0..element / 4 {
            let v = match S::ptr(w, op, b, lane, a, 4 * d, bytes.min(4)) {
                // SAFETY: the range was checked.
                Ok(Some(p)) => unsafe { if bytes < 4 { extend(p, op) } else { p.cast::<u32>().read_unaligned() } },
                Ok(None) => 0,
                Err(e) => return w.fail(e, Some(lane as u32)),
            };
            match lds_at(w, start + lane as u64 * element + 4 * d, 4) {
                // SAFETY: the range was checked.
                Ok(p) => unsafe { p.cast::<u32>().write_unaligned(v) },
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
    }
    Ctl::Next
}

/// LDS to memory: lane `i` reads LDS at M0 + offset + 4 `i`.
unsafe fn store_lds<S: Space>(w: &mut Wave, op: &UOp) -> Ctl {
    let b = S::base(w, op);
    let start = place_in_lds(w, op);
    for lane in Lanes(w.exec()) {
        let a = S::lane(w, op, b, lane);
        let v = match lds_at(w, start + 4 * lane as u64, 4) {
            // SAFETY: the range was checked.
            Ok(p) => unsafe { p.cast::<u32>().read_unaligned() },
            Err(e) => return w.fail(e, Some(lane as u32)),
        };
        match S::ptr(w, op, b, lane, a, 0, 4) {
            // SAFETY: the range was checked.
            Ok(Some(p)) => unsafe { p.cast::<u32>().write_unaligned(v) },
            Ok(None) => {}
            Err(e) => return w.fail(e, Some(lane as u32)),
        }
    }
    Ctl::Next
}

/// Loads and stores of up to 32 registers (gfx12): M0 has a bit for each that takes part; memory has room for all.
unsafe fn block<S: Space, const STORES: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let b = S::base(w, op);
    let chosen = w.s[M0];
    let row = w.lanes as u32;
    for lane in Lanes(w.exec()) {
        let a = S::lane(w, op, b, lane);
        for d in (0..32u32).filter(|d| chosen >> d & 1 == 1) {
            match S::ptr(w, op, b, lane, a, 4 * d as u64, 4) {
                // SAFETY: the range was checked.
                Ok(Some(p)) => unsafe {
                    if STORES {
                        p.cast::<u32>().write_unaligned(w.lane(op.src[DATA].at + d * row, lane));
                    } else {
                        w.set_lane(op.dst + d * row, lane, p.cast::<u32>().read_unaligned());
                    }
                },
                Ok(None) => {}
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
    }
    Ctl::Next
}

/// Transposing loads of gfx12: lanes load rows, and get columns of 16- or 8-bit elements. Which lanes exchange is not in the manual. Of a
/// wave of 32 it was measured on gfx1201 by others: groups of 8 lanes transpose 8x8 halves (Tessera, `GLOBAL_LOAD_TR_B128`: 256 of 256
/// elements; the same on gfx1250), and bytes go to lanes as `rows::transpose_bytes` has it (two projects that do not know each other; a third
/// found that they are not exchanged as halves are). Of a wave of 64 nobody has; there it is as LDS instructions do it (`ds::read_tr`).
unsafe fn load_transposed<S: Space>(w: &mut Wave, op: &UOp) -> Ctl {
    let b = S::base(w, op);
    // A wave of 64 has half as much in each lane.
    let bytes = op.access.bytes as usize * 32 / w.lanes;
    let bits = op.access.bytes as usize;
    let mut rows = [[0u32; 4]; 64];
    for lane in Lanes(w.exec()) {
        let a = S::lane(w, op, b, lane);
        for d in 0..bytes / 4 {
            match S::ptr(w, op, b, lane, a, 4 * d as u64, 4) {
                // SAFETY: the range was checked.
                Ok(Some(p)) => rows[lane][d] = unsafe { p.cast::<u32>().read_unaligned() },
                Ok(None) => {}
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
    }
    match (w.lanes, bits) {
        (32, 8) => super::rows::transpose_bytes(w, op.dst, &rows),
        _ => super::rows::transpose(w, op.dst, &rows, bytes / 4, bits),
    }
    Ctl::Next
}

/// A load with `tfe`: the handler in `UOp::inner`, then the status in the row `dst2`. It is 0, all memory being resident
/// ("RDNA2" manual, texture fail enable).
///
/// # Safety
/// As every handler.
pub unsafe fn with_status(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(run) = op.inner else { return Ctl::Next };
    // SAFETY: passed on.
    let ctl = unsafe { run(w, op) };
    super::rows::write_row(w, op.dst2, w.exec(), &[0; 64]);
    ctl
}

/// Handler of an access; none for what this memory cannot do.
pub fn run<S: Space>(m: &Memory) -> Option<Run> {
    Some(match (m.transfer, m.bytes) {
        (Transfer::StoreLds, _) => store_lds::<S>,
        (Transfer::LoadLds, _) => load_lds::<S>,
        (Transfer::StoreBlock, _) => block::<S, true>,
        (Transfer::LoadBlock, _) => block::<S, false>,
        (Transfer::LoadTransposed(_), _) => load_transposed::<S>,
        (Transfer::Load, 1 | 2) => load_small::<S>,
        (Transfer::Load, 4) => load::<S, 1>,
        (Transfer::Load, 8) => load::<S, 2>,
        (Transfer::Load, 12) => load::<S, 3>,
        (Transfer::Load, 16) => load::<S, 4>,
        (Transfer::Store, 1 | 2) => store_small::<S>,
        (Transfer::Store, 4) => store::<S, 1>,
        (Transfer::Store, 8) => store::<S, 2>,
        (Transfer::Store, 12) => store::<S, 3>,
        (Transfer::Store, 16) => store::<S, 4>,
        (Transfer::Atomic(_), _) => atomic::<S>,
        (Transfer::Load | Transfer::Store | Transfer::Exchange | Transfer::Combine(_), _) => return None,
    })
}

/// A lane's access or a part of it.
pub struct Piece {
    /// The lane.
    pub lane: u32,
    /// Host address.
    pub at: *mut u8,
    /// Bytes.
    pub size: u32,
    /// Bytes of the access before it.
    pub offset: u32,
}

/// Where the lanes of a memory instruction go, dword by dword, or `whole` where a lane's bytes lie together. Accesses that bounds checks drop are left out, and so are lanes of
/// `flat_*` that do not go to device memory.
pub fn each_touched(w: &Wave, op: &UOp, whole: bool, mut each: impl FnMut(Piece)) {
    fn all<S: Space>(w: &Wave, op: &UOp, whole: bool, each: &mut impl FnMut(Piece)) {
        let b = S::base(w, op);
        for lane in Lanes(w.exec()) {
            let a = S::lane(w, op, b, lane);
            let bytes = op.access.bytes as u64;
            if whole && let Some(at) = S::whole(w, op, b, a, bytes) {
                each(Piece { lane: lane as u32, at, size: bytes as u32, offset: 0 });
                continue;
            }
            let step = bytes.min(4);
            let piece = |skip, size: u64| {
                let at = S::ptr(w, op, b, lane, a, skip, size);
                at.map(|p| p.map(|at| Piece { lane: lane as u32, at, size: size as u32, offset: skip as u32 }))
            };
            for skip in (0..bytes).step_by(4) {
                match piece(skip, step) {
                    Ok(found) => found.into_iter().for_each(&mut *each),
                    Err(_) => (skip..skip + step).filter_map(|at| piece(at, 1).ok().flatten()).for_each(&mut *each),
                }
            }
        }
    }
    use crate::uop::Space as Kind;
    match op.access.space {
        Kind::Global => all::<Global>(w, op, whole, &mut each),
        Kind::Buffer => all::<Buffer>(w, op, whole, &mut each),
        Kind::Flat => all::<Flat>(w, op, whole, &mut each),
        Kind::Scratch => all::<Scratch>(w, op, whole, &mut each),
        _ => {}
    }
}

/// The device address of each active lane's access, by lane, where these are sums alone, within bounds, and all bytes between the first and the last
/// one's are memory; else nothing is shown, and it is false.
pub fn each_of_row(w: &Wave, op: &UOp, mut each: impl FnMut(usize, u64)) -> bool {
    use crate::uop::Space as Kind;
    let row = match op.access.space {
        Kind::Global => Global::row(w, op, Global::base(w, op)),
        Kind::Buffer => Buffer::row(w, op, Buffer::base(w, op)),
        _ => None,
    };
    let Some(row) = row else { return false };
    let offset = |lane: usize| row.offsets.map_or(0, |at| u64::from(w.lane(at, lane)));
    let ends = Lanes(w.exec()).map(offset).fold((u64::MAX, 0), |(a, b), o| (a.min(o), b.max(o)));
    let bytes = op.access.bytes as u64;
    if ends.0 > ends.1 {
        return true;
    }
    let inside =
        ends.1 + bytes <= row.bytes && w.mem.at(row.base.wrapping_add(ends.0), ends.1 - ends.0 + bytes).is_some();
    if inside {
        Lanes(w.exec()).for_each(|lane| each(lane, row.base.wrapping_add(offset(lane))));
    }
    inside
}

/// LDS bytes that a load to LDS fills: where those of lane 0 begin, and how many each lane has; lanes lie one behind the other.
pub fn lds_filled(w: &Wave, op: &UOp) -> (u32, u32) {
    (place_in_lds(w, op) as u32, (op.access.bytes as u32).max(4))
}

/// True when an active lane of a flat access addresses LDS.
pub fn flat_reaches_lds(w: &Wave, op: &UOp) -> bool {
    let (exec, b) = (w.exec(), Flat::base(w, op));
    (0..w.lanes).any(|l| exec >> l & 1 == 1 && (Flat::lane(w, op, b, l) >> 32) as u32 == SHARED_APERTURE)
}
