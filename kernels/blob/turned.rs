//! Columns of a matrix as lines, whatever the size of its elements: weights that a model has by output channel, and a kernel reads along
//! the channels.
//!
//! Blocks of 16 rows and columns are turned one after the other. With AVX2 elements of four bytes are turned 8 by 8 in registers: their rows
//! are read and their lines written half a cache line at a time. Others, and other processors, interleave rows of 16 bytes.

use std::ops::Range;

/// Rows, and columns, of a block that is turned at once.
const BLOCK: usize = 16;

/// Writes columns `lines` of rows of `columns` elements as lines of `pitch` elements, in blocks. `ABREAST` elements are 16 bytes.
pub(super) fn turned<const SIZE: usize, const ABREAST: usize>(
    src: &[u8],
    columns: usize,
    lines: Range<usize>,
    out: &mut [u8],
    pitch: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just detected.
        return unsafe { turned_by_avx2::<SIZE, ABREAST>(src, columns, lines, out, pitch) };
    }
    turned_anywhere::<SIZE, ABREAST>(src, columns, lines, out, pitch);
}

/// The same with registers of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn turned_by_avx2<const SIZE: usize, const ABREAST: usize>(
    src: &[u8],
    columns: usize,
    lines: Range<usize>,
    out: &mut [u8],
    pitch: usize,
) {
    if SIZE != 4 {
        return turned_anywhere::<SIZE, ABREAST>(src, columns, lines, out, pitch);
    }
    for (r0, rows) in (0..).step_by(BLOCK).zip(src.chunks(BLOCK * columns * SIZE)) {
        let whole = if rows.len() == BLOCK * columns * SIZE { lines.len() / BLOCK * BLOCK } else { 0 };
        let edge = lines.start + whole;
        for c0 in (lines.start..edge).step_by(BLOCK) {
            for r in BLOCK..2 * BLOCK {
                prefetch(rows.as_ptr().wrapping_add((r * columns + c0) * SIZE));
            }
            for (c, r) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
                let from = &rows[(r * columns + c0 + c) * SIZE..];
                let to = &mut out[((c0 + c - lines.start) * pitch + r0 + r) * SIZE..];
                turned_8x8(from, columns * SIZE, to, pitch * SIZE);
            }
        }
        if edge < lines.end {
            let out = &mut out[(whole * pitch + r0) * SIZE..];
            turned_anywhere::<SIZE, ABREAST>(rows, columns, edge..lines.end, out, pitch);
        }
    }
}

/// Writes eight columns of four bytes of as many rows as lines. Rows and lines are so many bytes apart.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn turned_8x8(from: &[u8], row: usize, to: &mut [u8], line: usize) {
    use std::arch::x86_64::*;
    assert!(from.len() >= 7 * row + 32 && to.len() >= 7 * line + 32, "the last row and line lie within what is turned");
    let read = |r: usize| {
        // SAFETY: row r ends within the slice, as was just seen.
        unsafe { _mm256_loadu_ps(from.as_ptr().add(r * row).cast()) }
    };
    let pairs = |a: usize| {
        let (x, y) = (read(a), read(a + 1));
        [_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y)]
    };
    let fours = |a: usize| {
        let ([x0, x1], [y0, y1]) = (pairs(a), pairs(a + 2));
        [
            _mm256_shuffle_ps::<0x44>(x0, y0),
            _mm256_shuffle_ps::<0xee>(x0, y0),
            _mm256_shuffle_ps::<0x44>(x1, y1),
            _mm256_shuffle_ps::<0xee>(x1, y1),
        ]
    };
    // Columns c and c + 4 of the first four rows, and of the others.
    let (first, second) = (fours(0), fours(4));
    let mut write = |c: usize, column: __m256| {
        // SAFETY: line c ends within the slice, as was just seen.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr().add(c * line).cast(), column) }
    };
    for c in 0..4 {
        write(c, _mm256_permute2f128_ps::<0x20>(first[c], second[c]));
        write(c + 4, _mm256_permute2f128_ps::<0x31>(first[c], second[c]));
    }
}

/// A block is copied first: its rows, and its lines, may be a power of two apart, so that few of them are in a cache at a time.
///
/// Plain loops all the way: closures that are handed to arrays and iterators are calls here, for each 16 bytes.
#[inline(always)]
fn turned_anywhere<const SIZE: usize, const ABREAST: usize>(
    src: &[u8],
    columns: usize,
    lines: Range<usize>,
    out: &mut [u8],
    pitch: usize,
) {
    let mut block = [[[0; 16]; SIZE]; BLOCK];
    let mut turned = [[[0; 16]; ABREAST]; SIZE];
    for (r0, rows) in (0..).step_by(BLOCK).zip(src.chunks(BLOCK * columns * SIZE)) {
        for c0 in lines.clone().step_by(BLOCK) {
            for r in BLOCK..2 * BLOCK {
                prefetch(rows.as_ptr().wrapping_add((r * columns + c0) * SIZE));
            }
            let out = &mut out[((c0 - lines.start) * pitch + r0) * SIZE..];
            if rows.len() == BLOCK * columns * SIZE && c0 + BLOCK <= lines.end {
                for r in 0..BLOCK {
                    let row = &rows[(r * columns + c0) * SIZE..][..BLOCK * SIZE];
                    for part in 0..SIZE {
                        block[r][part] = *row[16 * part..].first_chunk().expect("a part of a row has 16 bytes");
                    }
                }
                for part in 0..SIZE {
                    for r in 0..SIZE {
                        for k in 0..ABREAST {
                            turned[r][k] = block[r * ABREAST + k][part];
                        }
                        turned[r] = transposed::<SIZE, ABREAST>(turned[r]);
                    }
                    for k in 0..ABREAST {
                        let line = &mut out[(part * ABREAST + k) * pitch * SIZE..][..BLOCK * SIZE];
                        for r in 0..SIZE {
                            *line[16 * r..].first_chunk_mut().expect("a part of a line has 16 bytes") = turned[r][k];
                        }
                    }
                }
                continue;
            }
            let (rows, out) = (rows.as_chunks::<SIZE>().0, out.as_chunks_mut::<SIZE>().0);
            for c in c0..lines.end.min(c0 + BLOCK) {
                let line = &mut out[(c - c0) * pitch..];
                line.iter_mut().zip(rows[c..].iter().step_by(columns)).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// Has the line of a byte brought into the cache, or nothing where there is none: lines of many rows are more than the processor foresees.
#[inline(always)]
fn prefetch(byte: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it only reads ahead and faults nowhere, and SSE is part of the architecture.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(byte.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = byte;
}

/// Columns of as many rows as a row of 16 bytes has elements: interleaving each row of the first half with its fellow of the second puts
/// one bit of an element's column behind those of its row, so that as many rounds as there are such bits make one of the other.
#[inline(always)]
fn transposed<const SIZE: usize, const ABREAST: usize>(mut rows: [[u8; 16]; ABREAST]) -> [[u8; 16]; ABREAST] {
    for _ in 0..ABREAST.ilog2() {
        let before = rows;
        for i in 0..ABREAST / 2 {
            [rows[2 * i], rows[2 * i + 1]] = interleaved::<SIZE>(before[i], before[i + ABREAST / 2]);
        }
    }
    rows
}

/// Elements of two rows in turn.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn interleaved<const SIZE: usize>(a: [u8; 16], b: [u8; 16]) -> [[u8; 16]; 2] {
    use std::arch::x86_64::*;
    use std::mem::transmute;
    // SAFETY: what is transmuted is plain data of 16 bytes, and SSE2 is part of the architecture.
    unsafe {
        let (a, b) = (transmute::<[u8; 16], __m128i>(a), transmute::<[u8; 16], __m128i>(b));
        let (low, high) = match SIZE {
            1 => (_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)),
            2 => (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)),
            4 => (_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)),
            _ => (_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)),
        };
        [transmute::<__m128i, [u8; 16]>(low), transmute::<__m128i, [u8; 16]>(high)]
    }
}

/// Elements of two rows in turn.
#[cfg(not(target_arch = "x86_64"))]
fn interleaved<const SIZE: usize>(a: [u8; 16], b: [u8; 16]) -> [[u8; 16]; 2] {
    let mut out = [[0; 16]; 2];
    for i in 0..32 {
        let row = if i / SIZE % 2 == 0 { &a } else { &b };
        out[i / 16][i % 16] = row[i / (2 * SIZE) * SIZE + i % SIZE];
    }
    out
}
