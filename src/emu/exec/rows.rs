//! Between registers and memory: rows of lanes, parts of registers, transposition.

use super::flags::{D16, D16_HI, SIGNED};
use crate::lanes::CHUNK;
use crate::uop::UOp;
use crate::wave::{Lanes, Wave};

/// Moves 16 lanes of `N` dwords from memory order to rows, `lanes` elements apart.
///
/// # Safety
/// `p` points to `64 * N` bytes, `row` to the chunk's place in the first row.
#[inline(always)]
pub unsafe fn rows_from_memory<const N: usize>(p: *const u8, row: *mut u32, lanes: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        let m = p.cast::<[[u32; N]; CHUNK]>().read_unaligned();
        for d in 0..N {
            let mut r = [0u32; CHUNK];
            for i in 0..CHUNK {
                r[i] = m[i][d];
            }
            *row.add(d * lanes).cast::<[u32; CHUNK]>() = r;
        }
    }
}

/// The reverse of [`rows_from_memory`].
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn memory_from_rows<const N: usize>(p: *mut u8, row: *const u32, lanes: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut m = [[0u32; N]; CHUNK];
        for d in 0..N {
            let r = *row.add(d * lanes).cast::<[u32; CHUNK]>();
            for i in 0..CHUNK {
                m[i][d] = r[i];
            }
        }
        p.cast::<[[u32; N]; CHUNK]>().write_unaligned(m);
    }
}

/// A byte or word from memory, extended to 32 bits.
///
/// # Safety
/// `p` points to as many bytes as the instruction loads.
pub unsafe fn extend(p: *const u8, op: &UOp) -> u32 {
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

/// Puts a loaded value into its half of the register, if it has one.
pub fn place(op: &UOp, old: u32, v: u32) -> u32 {
    match op.access.flags & (D16 | D16_HI) {
        0 => v,
        D16 => old & 0xffff_0000 | v & 0xffff,
        _ => old & 0xffff | v << 16,
    }
}

/// Stores the active lanes of a row.
pub fn write_row(w: &mut Wave, dst: u32, exec: u64, out: &[u32; 64]) {
    for lane in Lanes(exec) {
        w.set_lane(dst, lane, out[lane]);
    }
}

/// Bits `at..at + n` of a row of dwords.
fn bits_of(row: &[u32; 4], at: usize, n: usize) -> u32 {
    let high = row.get(at / 32 + 1).copied().unwrap_or(0);
    let v = (row[at / 32] as u64 | (high as u64) << 32) >> (at % 32);
    (v & ((1u64 << n) - 1)) as u32
}

/// Transposes bytes within groups of 16 lanes of a wave of 32, each of which holds 8: lanes 0 to 3 and 8 to 11 of a group hold the first half
/// of rows of 16 bytes, lanes 4 to 7 and 12 to 15 the second half, and lane i gets column i.
pub fn transpose_bytes(w: &mut Wave, dst: u32, rows: &[[u32; 4]; 64]) {
    for lane in Lanes(w.exec()) {
        let (group, column) = (lane / 16 * 16, lane % 16);
        let byte = |row: usize| {
            let from = group + row / 4 * 8 + column / 8 * 4 + row % 4;
            bits_of(&rows[from], column % 8 * 8, 8) << (row % 4 * 8)
        };
        for d in 0..2 {
            let word = (0..4).fold(0, |word, i| word | byte(4 * d + i));
            w.set_lane(dst + (d * w.lanes) as u32, lane, word);
        }
    }
}

/// Transposes within groups of a quarter of the wave, each lane of which holds `dwords` of elements of `bits` bits, and
/// stores the result: a group of n lanes holds rows of n elements, one after the other, and lane i gets column i.
pub fn transpose(w: &mut Wave, dst: u32, rows: &[[u32; 4]; 64], dwords: usize, bits: usize) {
    let per = 32 * dwords / bits;
    let n = w.lanes / 4;
    for lane in Lanes(w.exec()) {
        let (group, l) = (lane / n * n, lane % n);
        let mut out = [0u32; 5];
        for e in 0..per {
            let x = bits_of(&rows[group + e * n / per + l / per], l % per * bits, bits) as u64;
            let at = e * bits;
            out[at / 32] |= (x << (at % 32)) as u32;
            out[at / 32 + 1] |= (x << (at % 32) >> 32) as u32;
        }
        for d in 0..dwords {
            w.set_lane(dst + (d * w.lanes) as u32, lane, out[d]);
        }
    }
}
