//! LDS: reads, writes, pairs, atomics, and the cross-lane instructions that use its crossbar.
//!
//! Source: "Vega" manual, chapter "Data Share Operations" and the DS pseudocode of chapter "Instructions" (DS_SWIZZLE_B32,
//! DS_PERMUTE_B32, DS_*_SRC2_*, DS_APPEND, DS_CONDXCHG32); "RDNA3" manual for LDS_DIRECT_LOAD and permutes in waves of 64.

use super::atomic::{Atomic, rmw32, rmw64};
use super::flags::{self, ADDTID, D16_HI, RETURN, STORE};
use super::rows::{extend, memory_from_rows, place, rows_from_memory, transpose, write_row};
use super::space::lds_at;
use crate::lanes::CHUNK;
use crate::uop::{Kind, Run, Src, UOp};
use crate::wave::{Ctl, GDS_BYTES, Lanes, M0, Wave};
use barewave_isa::action::{self, Address, Memory, Transfer};

/// Sources: 0 = address, 1 = data0, 2 = data1. `imm` is the offset (or first offset), `dst2` the second offset.
const ADDR: usize = 0;
const DATA0: usize = 1;
const DATA1: usize = 2;

#[inline(always)]
fn addr(w: &Wave, op: &UOp, lane: usize) -> u32 {
    let s = &op.src[ADDR];
    if s.kind == Kind::Vector { w.lane(s.at, lane) } else { 0 }
}

/// Calls `f` for each active lane with the host address of the `bytes` bytes of LDS at its address plus `offset`.
#[inline(always)]
fn each(w: &mut Wave, op: &UOp, offset: u32, bytes: u64, mut f: impl FnMut(&mut Wave, usize, *mut u8)) -> Ctl {
    for lane in Lanes(w.exec()) {
        match lds_at(w, addr(w, op, lane).wrapping_add(offset) as u64, bytes) {
            Ok(p) => f(w, lane, p),
            Err(e) => return w.fail(e, Some(lane as u32)),
        }
    }
    Ctl::Next
}

/// True when lane addresses of a chunk follow each other at `size` bytes.
#[inline(always)]
unsafe fn contiguous(p: *const u32, size: u32) -> bool {
    // SAFETY: the caller passes a chunk of a row.
    let a = unsafe { *p.cast::<[u32; CHUNK]>() };
    let mut bad = 0;
    for i in 0..CHUNK {
        bad |= a[i] ^ a[0].wrapping_add(i as u32 * size);
    }
    bad == 0
}

/// True when all lane addresses of a chunk are the same.
#[inline(always)]
unsafe fn uniform(p: *const u32) -> bool {
    // SAFETY: as `contiguous`.
    let a = unsafe { *p.cast::<[u32; CHUNK]>() };
    let mut bad = 0;
    for i in 1..CHUNK {
        bad |= a[i] ^ a[0];
    }
    bad == 0
}

/// Reads `N` dwords per lane at an offset into the rows from element `dst`.
#[inline(always)]
unsafe fn read_n<const N: usize>(w: &mut Wave, op: &UOp, offset: u32, dst: u32) -> Ctl {
    let exec = w.exec();
    let size = 4 * N as u64;
    for c in 0..w.chunks() {
        let mask = (exec >> (c * CHUNK)) & 0xffff;
        if mask == 0 {
            continue;
        }
        let first = c * CHUNK;
        // SAFETY: rows are checked when the program is decoded; LDS ranges are checked here.
        unsafe {
            let a = w.v().add(op.src[ADDR].at as usize + first);
            let start = (*a).wrapping_add(offset) as u64;
            let row = w.v().add(dst as usize + first);
            if mask == 0xffff {
                if contiguous(a, size as u32) && start + size * CHUNK as u64 <= w.lds_size as u64 {
                    rows_from_memory::<N>(w.lds.add(start as usize), row, w.lanes);
                    continue;
                }
                if uniform(a) && start + size <= w.lds_size as u64 {
                    let p = w.lds.add(start as usize).cast::<[u32; N]>().read_unaligned();
                    for d in 0..N {
                        *row.add(d * w.lanes).cast::<[u32; CHUNK]>() = [p[d]; CHUNK];
                    }
                    continue;
                }
            }
            let addrs = *a.cast::<[u32; CHUNK]>();
            for i in 0..CHUNK {
                if mask >> i & 1 == 0 {
                    continue;
                }
                match lds_at(w, addrs[i].wrapping_add(offset) as u64, size) {
                    Ok(p) => {
                        let v = p.cast::<[u32; N]>().read_unaligned();
                        for d in 0..N {
                            *row.add(d * w.lanes + i) = v[d];
                        }
                    }
                    Err(e) => return w.fail(e, Some((first + i) as u32)),
                }
            }
        }
    }
    Ctl::Next
}

/// Writes `N` dwords per lane from the rows at element `data`.
#[inline(always)]
unsafe fn write_n<const N: usize>(w: &mut Wave, op: &UOp, offset: u32, data: u32) -> Ctl {
    let exec = w.exec();
    let size = 4 * N as u64;
    for c in 0..w.chunks() {
        let mask = (exec >> (c * CHUNK)) & 0xffff;
        if mask == 0 {
            continue;
        }
        let first = c * CHUNK;
        // SAFETY: as in `read_n`.
        unsafe {
            let a = w.v().add(op.src[ADDR].at as usize + first);
            let start = (*a).wrapping_add(offset) as u64;
            let row = w.v().add(data as usize + first);
            if mask == 0xffff && contiguous(a, size as u32) && start + size * CHUNK as u64 <= w.lds_size as u64 {
                memory_from_rows::<N>(w.lds.add(start as usize), row, w.lanes);
                continue;
            }
            let addrs = *a.cast::<[u32; CHUNK]>();
            for i in 0..CHUNK {
                if mask >> i & 1 == 0 {
                    continue;
                }
                match lds_at(w, addrs[i].wrapping_add(offset) as u64, size) {
                    Ok(p) => {
                        let mut v = [0; N];
                        for d in 0..N {
                            v[d] = *row.add(d * w.lanes + i);
                        }
                        p.cast::<[u32; N]>().write_unaligned(v);
                    }
                    Err(e) => return w.fail(e, Some((first + i) as u32)),
                }
            }
        }
    }
    Ctl::Next
}

unsafe fn read<const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    // SAFETY: passed on.
    unsafe { read_n::<N>(w, op, op.imm as u32, op.dst) }
}
unsafe fn write<const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    // SAFETY: passed on.
    unsafe { write_n::<N>(w, op, op.imm as u32, op.src[DATA0].at) }
}
/// Two elements of `N` dwords at offsets that are already in bytes. The address may be among the destinations, so it
/// is read for both elements before anything is written.
unsafe fn read2<const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    let (o0, o1) = (op.imm as u32, op.dst2);
    let rows = op.src[ADDR].at;
    let overlaps = rows >= op.dst && rows < op.dst + (2 * N * w.lanes) as u32;
    if !overlaps {
        // SAFETY: passed on.
        return match unsafe { read_n::<N>(w, op, o0, op.dst) } {
            Ctl::Next => unsafe { read_n::<N>(w, op, o1, op.dst + (N * w.lanes) as u32) },
            c => c,
        };
    }
    for lane in Lanes(w.exec()) {
        let a = addr(w, op, lane);
        for (k, o) in [o0, o1].into_iter().enumerate() {
            match lds_at(w, a.wrapping_add(o) as u64, 4 * N as u64) {
                // SAFETY: the range was checked.
                Ok(p) => {
                    let v = unsafe { p.cast::<[u32; N]>().read_unaligned() };
                    for d in 0..N {
                        w.set_lane(op.dst + ((k * N + d) * w.lanes) as u32, lane, v[d]);
                    }
                }
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
    }
    Ctl::Next
}
unsafe fn write2<const N: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    // SAFETY: passed on.
    unsafe {
        match write_n::<N>(w, op, op.imm as u32, op.src[DATA0].at) {
            Ctl::Next => write_n::<N>(w, op, op.dst2, op.src[DATA1].at),
            c => c,
        }
    }
}
unsafe fn read_small(w: &mut Wave, op: &UOp) -> Ctl {
    each(w, op, op.imm as u32, op.access.bytes as u64, |w, lane, p| {
        // SAFETY: the range was checked.
        let v = place(op, w.lane(op.dst, lane), unsafe { extend(p, op) });
        w.set_lane(op.dst, lane, v);
    })
}
unsafe fn write_small(w: &mut Wave, op: &UOp) -> Ctl {
    let shift = if op.access.flags & D16_HI != 0 { 16 } else { 0 };
    each(w, op, op.imm as u32, op.access.bytes as u64, |w, lane, p| {
        let v = w.lane(op.src[DATA0].at, lane) >> shift;
        // SAFETY: the range was checked.
        unsafe { if op.access.bytes == 1 { p.write(v as u8) } else { p.cast::<u16>().write_unaligned(v as u16) } }
    })
}

/// LDS atomics, lanes in order. `RETURN` among the flags writes the old value.
unsafe fn atomic(w: &mut Wave, op: &UOp) -> Ctl {
    let kind = op.access.atomic;
    let row = w.lanes as u32;
    let wide = op.access.bytes == 8;
    let ret = op.access.flags & RETURN != 0;
    // Compare-and-swap of gfx11 has its operands the other way around.
    let (first, second) = if op.access.flags & SWAPPED != 0 { (DATA1, DATA0) } else { (DATA0, DATA1) };
    let (x, y) = (op.src[first], op.src[second]);
    let take = |w: &Wave, s: &Src, lane: usize| {
        if s.kind != Kind::Vector {
            return 0;
        }
        let lo = w.lane(s.at, lane) as u64;
        if wide { lo | (w.lane(s.at + row, lane) as u64) << 32 } else { lo }
    };
    each(w, op, op.imm as u32, op.access.bytes as u64, |w, lane, p| {
        let (a, b) = (take(w, &x, lane), take(w, &y, lane));
        // SAFETY: the range was checked.
        let old = unsafe { if wide { rmw64(p, kind, a, b) } else { rmw32(p, kind, a as u32, b as u32) as u64 } };
        if ret {
            w.set_lane(op.dst, lane, old as u32);
            if wide {
                w.set_lane(op.dst + row, lane, (old >> 32) as u32);
            }
        }
    })
}

/// Flag of atomics whose comparand is the first data operand.
pub const SWAPPED: u16 = 1 << 12;

/// The lane that an address names for ds_permute and ds_bpermute, 4 bytes a lane. From gfx10 on the crossbar is 32 lanes
/// wide and the halves of a wave of 64 are separate ("RDNA3" manual, DS_BPERMUTE_B32: lane numbers are modulo 32).
fn named_lane(w: &Wave, op: &UOp, lane: usize) -> usize {
    let n = (addr(w, op, lane).wrapping_add(op.imm as u32) / 4) as usize;
    if w.quirks.half_crossbar { lane & !31 | (n % 32) } else { n % w.lanes }
}

/// ds_bpermute: each lane fetches the value of the lane its address names.
unsafe fn bpermute(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let mut out = [0; 64];
    for lane in 0..w.lanes {
        let from = named_lane(w, op, lane);
        // Lanes that are switched off give zero (not with the `fi` form).
        let on = exec >> from & 1 == 1 || op.access.flags & FETCH_INACTIVE != 0;
        out[lane] = if on { w.lane(op.src[DATA0].at, from) } else { 0 };
    }
    write_row(w, op.dst, exec, &out);
    Ctl::Next
}

/// Flag of ds_bpermute_fi.
pub const FETCH_INACTIVE: u16 = 1 << 13;

/// ds_permute: each lane sends its value to the lane its address names; the highest sender wins.
unsafe fn permute(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let mut out = [0; 64];
    for lane in 0..w.lanes {
        if exec >> lane & 1 == 1 {
            let to = named_lane(w, op, lane);
            out[to] = w.lane(op.src[DATA0].at, lane);
        }
    }
    write_row(w, op.dst, exec, &out);
    Ctl::Next
}

/// Source lane of ds_swizzle (Vega manual: bit 15 quad permutation, else and/or/xor masks in groups of 32; gfx9 adds
/// rotation and FFT modes with bits 15:14 set).
fn swizzle_lane(offset: u32, lane: usize) -> usize {
    if offset >= 0xe000 {
        // FFT: the bits of the lane number that the mask does not keep are reversed.
        let (l, mask) = (lane as u32 & 31, offset & 31);
        let from = l.reverse_bits() >> 27 >> mask.count_ones() | l & mask;
        return lane & !31 | from as usize;
    }
    if offset >= 0xc000 {
        // Rotate within 32 lanes.
        let (amount, mask) = (offset >> 5 & 31, offset & 31);
        let l = lane as u32 & 31;
        let moved = if offset >> 10 & 1 == 1 { l.wrapping_sub(amount) } else { l.wrapping_add(amount) } & 31;
        return lane & !31 | (l & mask | moved & !mask) as usize & 31;
    }
    if offset & 0x8000 != 0 {
        return lane & !3 | (offset >> (2 * (lane & 3)) & 3) as usize;
    }
    let (and, or, xor) = (offset & 31, offset >> 5 & 31, offset >> 10 & 31);
    let l = ((lane as u32 & 31) & and | or) ^ xor;
    lane & !31 | l as usize
}

unsafe fn swizzle(w: &mut Wave, op: &UOp) -> Ctl {
    let exec = w.exec();
    let mut out = [0; 64];
    for lane in 0..w.lanes {
        let from = swizzle_lane(op.imm as u32, lane);
        out[lane] = if exec >> from & 1 == 1 { w.lane(op.src[ADDR].at, from) } else { 0 };
    }
    write_row(w, op.dst, exec, &out);
    Ctl::Next
}

/// ds_append and ds_consume: a counter in LDS moves by the number of active lanes.
unsafe fn append<const CONSUME: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    let n = w.exec().count_ones();
    let at = (w.s[M0] & 0xffff) as u64 + op.imm as u64;
    let at = if w.s[M0] >> 16 != 0 { (w.s[M0] >> 16) as u64 + op.imm as u64 } else { at };
    match lds_at(w, at, 4) {
        Ok(p) => {
            // SAFETY: the range was checked.
            let old = unsafe { rmw32(p, if CONSUME { Atomic::Sub } else { Atomic::Add }, n, 0) };
            let exec = w.exec();
            write_row(w, op.dst, exec, &[old; 64]);
            Ctl::Next
        }
        Err(e) => w.fail(e, None),
    }
}

unsafe fn addtid<const WRITE: bool>(w: &mut Wave, op: &UOp) -> Ctl {
    for lane in Lanes(w.exec()) {
        let at = (w.s[M0] & 0xffff) as u64 + op.imm as u64 + 4 * lane as u64;
        match lds_at(w, at, 4) {
            // SAFETY: the range was checked.
            Ok(p) => unsafe {
                if WRITE {
                    p.cast::<u32>().write_unaligned(w.lane(op.src[ADDR].at, lane));
                } else {
                    w.set_lane(op.dst, lane, p.cast::<u32>().read_unaligned());
                }
            },
            Err(e) => return w.fail(e, Some(lane as u32)),
        }
    }
    Ctl::Next
}

/// Exchange of two elements: ds_wrxchg2.
unsafe fn exchange2(w: &mut Wave, op: &UOp) -> Ctl {
    let n = op.access.bytes as usize / 4;
    let row = w.lanes as u32;
    for lane in Lanes(w.exec()) {
        let a = addr(w, op, lane);
        for (k, (o, s)) in [(op.imm as u32, op.src[DATA0]), (op.dst2, op.src[DATA1])].into_iter().enumerate() {
            match lds_at(w, a.wrapping_add(o) as u64, op.access.bytes as u64) {
                Ok(p) => {
                    for d in 0..n {
                        let v = w.lane(s.at + d as u32 * row, lane);
                        // SAFETY: the range was checked.
                        let old = unsafe { p.cast::<u32>().add(d).read_unaligned() };
                        unsafe { p.cast::<u32>().add(d).write_unaligned(v) };
                        w.set_lane(op.dst + (k * n + d) as u32 * row, lane, old);
                    }
                }
                Err(e) => return w.fail(e, Some(lane as u32)),
            }
        }
    }
    Ctl::Next
}

/// Transposing reads of gfx950: every 16 lanes read a matrix whose rows have 16 elements of `BITS` bits, a row spread
/// over as many lanes as it takes; each lane then gets a column (source: the operand layouts of MFMA, which these
/// instructions serve, the lowering of MLIR's `amdgpu.transpose_load`, and Triton's parameters of these instructions).
unsafe fn read_tr<const BITS: usize>(w: &mut Wave, op: &UOp) -> Ctl {
    let dwords = op.access.bytes as usize / 4;
    let mut rows = [[0u32; 4]; 64];
    let ctl = each(w, op, op.imm as u32, 4 * dwords as u64, |_, lane, p| {
        for d in 0..dwords {
            // SAFETY: the range was checked.
            rows[lane][d] = unsafe { p.cast::<u32>().add(d).read_unaligned() };
        }
    });
    if ctl == Ctl::Next {
        transpose(w, op.dst, &rows, dwords, BITS);
    }
    ctl
}

/// LDS on LDS ("src2", up to RDNA1): the cell at the lane's address is combined with a second one, whose distance in
/// dwords stands in the offset, or in the upper bits of the address when offset1 has its top bit set.
unsafe fn src2(w: &mut Wave, op: &UOp) -> Ctl {
    let (bytes, kind) = (op.access.bytes as u64, op.access.atomic);
    let offset = op.imm as u32 & 0xffff;
    for lane in Lanes(w.exec()) {
        let a = addr(w, op, lane);
        let (first, distance) = match offset >> 15 {
            0 => (a, ((offset << 17) as i32 >> 17) as i64),
            _ => (a & 0x1_ffff, (a as i32 >> 17) as i64),
        };
        let second = (first as i64 + 4 * distance) as u64 & 0xffff_ffff;
        match (lds_at(w, first as u64, bytes), lds_at(w, second, bytes)) {
            // SAFETY: the ranges were checked.
            (Ok(p), Ok(q)) => unsafe {
                if bytes == 8 {
                    rmw64(p, kind, q.cast::<u64>().read_unaligned(), 0);
                } else {
                    rmw32(p, kind, q.cast::<u32>().read_unaligned(), 0);
                }
            },
            (Err(e), _) | (_, Err(e)) => return w.fail(e, Some(lane as u32)),
        }
    }
    Ctl::Next
}

/// ds_condxchg32: each of two dwords is exchanged for the low 31 bits of its operand when that has bit 31 set.
unsafe fn condxchg(w: &mut Wave, op: &UOp) -> Ctl {
    let row = w.lanes as u32;
    for lane in Lanes(w.exec()) {
        match lds_at(w, addr(w, op, lane).wrapping_add(op.imm as u32) as u64 & !7, 8) {
            Ok(p) => {
                for d in 0..2 {
                    let v = w.lane(op.src[DATA0].at + d * row, lane);
                    // SAFETY: the range was checked.
                    unsafe {
                        let cell = p.cast::<u32>().add(d as usize);
                        let old = cell.read_unaligned();
                        if v >> 31 == 1 {
                            cell.write_unaligned(v & 0x7fff_ffff);
                        }
                        w.set_lane(op.dst + d * row, lane, old);
                    }
                }
            }
            Err(e) => return w.fail(e, Some(lane as u32)),
        }
    }
    Ctl::Next
}

/// lds_direct_load: one dword (or less) at M0 goes to all active lanes. M0 bits 15:0 are the address, 18:16 the type.
unsafe fn direct(w: &mut Wave, op: &UOp) -> Ctl {
    let m0 = w.s[M0];
    let (bytes, signed) = match m0 >> 16 & 7 {
        0 => (1, false),
        1 => (2, false),
        4 => (1, true),
        5 => (2, true),
        _ => (4, false),
    };
    match lds_at(w, (m0 & 0xffff) as u64, bytes) {
        Ok(p) => {
            let mut v = [0; 4];
            // SAFETY: the range was checked.
            unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), bytes as usize) };
            let v = u32::from_le_bytes(v);
            let shift = 32 - 8 * bytes as u32;
            let v = if signed { ((v << shift) as i32 >> shift) as u32 } else { v };
            let exec = w.exec();
            write_row(w, op.dst, exec, &[v; 64]);
            Ctl::Next
        }
        Err(e) => w.fail(e, None),
    }
}

/// An LDS instruction that works on global data share: the handler in `UOp::inner` runs with GDS in the place of LDS.
///
/// # Safety
/// As every handler.
pub unsafe fn gds(w: &mut Wave, op: &UOp) -> Ctl {
    let Some(run) = op.inner else { return Ctl::Next };
    // SAFETY: the launch sets the pointer for as long as the wave runs.
    let at = unsafe { (*w.launch).gds() };
    let own = (w.lds, w.lds_size);
    (w.lds, w.lds_size) = (at, GDS_BYTES as u32);
    // SAFETY: passed on.
    let ctl = unsafe { run(w, op) };
    (w.lds, w.lds_size) = own;
    ctl
}

/// Flags of an LDS instruction that moves what the tables say.
pub fn flags(m: &Memory) -> u16 {
    let on = |on: bool, bit: u16| if on { bit } else { 0 };
    // Typed by what they load, as vector memory; stores take the upper half by the same flag.
    flags::of(m) & !STORE & !ADDTID | on(m.returns, RETURN) | on(m.swapped, SWAPPED)
}

/// Handler of an LDS instruction that moves what the tables say; none for what LDS cannot do.
pub fn run(m: &Memory) -> Option<Run> {
    Some(match (m.transfer, m.address, m.bytes) {
        (Transfer::Load, Address::ThreadId, _) => addtid::<false>,
        (Transfer::Store, Address::ThreadId, _) => addtid::<true>,
        (Transfer::Load, Address::Pair(_), 4) => read2::<1>,
        (Transfer::Load, Address::Pair(_), 8) => read2::<2>,
        (Transfer::Store, Address::Pair(_), 4) => write2::<1>,
        (Transfer::Store, Address::Pair(_), 8) => write2::<2>,
        (Transfer::Exchange, Address::Pair(_), 4 | 8) => exchange2,
        (Transfer::Load, _, 1 | 2) => read_small,
        (Transfer::Load, _, 4) => read::<1>,
        (Transfer::Load, _, 8) => read::<2>,
        (Transfer::Load, _, 12) => read::<3>,
        (Transfer::Load, _, 16) => read::<4>,
        (Transfer::Store, _, 1 | 2) => write_small,
        (Transfer::Store, _, 4) => write::<1>,
        (Transfer::Store, _, 8) => write::<2>,
        (Transfer::Store, _, 12) => write::<3>,
        (Transfer::Store, _, 16) => write::<4>,
        (Transfer::LoadTransposed(16), ..) => read_tr::<16>,
        (Transfer::LoadTransposed(8), ..) => read_tr::<8>,
        (Transfer::LoadTransposed(6), ..) => read_tr::<6>,
        (Transfer::LoadTransposed(4), ..) => read_tr::<4>,
        (Transfer::Atomic(_), ..) => atomic,
        (Transfer::Combine(_), ..) => src2,
        _ => return None,
    })
}

/// Handler of the other uses of LDS, bytes and flags.
pub fn other(f: action::Lds) -> (Run, u8, u16) {
    use action::Lds::*;
    match f {
        BpermuteB32 => (bpermute, 4, 0),
        BpermuteFiB32 => (bpermute, 4, FETCH_INACTIVE),
        PermuteB32 => (permute, 4, 0),
        SwizzleB32 => (swizzle, 4, 0),
        Append => (append::<false>, 4, 0),
        Consume => (append::<true>, 4, 0),
        Condxchg32RtnB64 => (condxchg, 8, 0),
        LdsDirectLoad => (direct, 4, 0),
    }
}
