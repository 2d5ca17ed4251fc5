//! Constant data that kernels come with: bytes of their own, and weights in the order that a kernel reads them in, which are
//! made of the model's when they are written, a few lines at a time.

use super::winograd::Transformed;
use crate::tensor::{HostTensor, fill};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Constant data that comes with a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Blob {
    /// The same for every step that uses the kernel.
    Data(Vec<u8>),
    /// Convolution weights as the kernel wants them.
    Weights(Packing),
    /// Convolution weights for Winograd's method.
    Transformed(Transformed),
}

/// How convolution weights are packed: for each of `groups` groups `lines` lines of `pitch` elements, zeros filling up. Line
/// k holds the k-th weight of each of the group's output channels; or, along k, line m the weights of channel m.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Packing {
    /// The step's operand that they are.
    pub operand: usize,
    /// Groups.
    pub groups: usize,
    /// Output channels per group.
    pub channels: usize,
    /// Weights per output channel.
    pub taps: usize,
    /// Weights of a channel that lie together, and what these take of a line along k.
    pub together: [usize; 2],
    /// Lines per group.
    pub lines: usize,
    /// Elements per line.
    pub pitch: usize,
    /// Lines run along k.
    pub along_k: bool,
    /// Bytes of an element.
    pub size: usize,
}

impl Packing {
    /// Lines of a group, and elements of a line, that are weights.
    fn used(&self) -> (usize, usize) {
        if self.along_k { (self.channels, self.taps) } else { (self.taps, self.channels) }
    }

    /// Nothing lies between weights of a channel.
    fn is_dense(&self) -> bool {
        self.together[0] == self.together[1]
    }

    /// Packs weights, from element `offset` of `data` on: lines of the packed form from line `first` on, as many as `out` holds.
    fn fill(&self, data: &HostTensor, offset: usize, first: usize, out: &mut [u8]) {
        let Packing { groups, channels, taps, together: [line, taken], lines, pitch, along_k, size, .. } = *self;
        if out.is_empty() || taps == 0 {
            return out.fill(0);
        }
        let (used_lines, used) = self.used();
        let own = taps / taken * line;
        for (i, line) in (first..).zip(out.chunks_exact_mut(pitch * size)) {
            let used = if i % lines < used_lines { used * size } else { 0 };
            line[used..].fill(0);
            if let Some(element) = data.fill() {
                fill(&mut line[..used], element);
                // Zeros between weights that lie along k.
                if !self.is_dense() {
                    let [together, taken] = self.together.map(|n| n * size);
                    line[..used].chunks_mut(taken).for_each(|some| some[together..].fill(0));
                }
            }
        }
        if data.fill().is_some() {
            return;
        }
        let src = &data.bytes()[offset * size..][..groups * channels * own * size];
        let end = first + out.len() / (pitch * size);
        for g in first / lines..end.div_ceil(lines) {
            let src = &src[g * channels * own * size..][..channels * own * size];
            // This group's lines that are wanted, and where the first of them goes.
            let from = first.max(g * lines);
            let out = &mut out[(from - first) * pitch * size..];
            let mine = from - g * lines..(end - g * lines).min(used_lines);
            match size {
                _ if along_k && !self.is_dense() => {
                    for (to, row) in
                        out.chunks_mut(pitch * size).zip(src.chunks(own * size).take(mine.end).skip(mine.start))
                    {
                        to[..taps * size].fill(0);
                        let lines = to.chunks_mut(taken * size).zip(row.chunks(line * size));
                        lines.for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
                    }
                }
                _ if along_k => {
                    for (line, row) in
                        out.chunks_mut(pitch * size).zip(src.chunks(taps * size).take(mine.end).skip(mine.start))
                    {
                        line[..taps * size].copy_from_slice(row);
                    }
                }
                1 => turned::<1, 16>(src, taps, mine, out, pitch),
                2 => turned::<2, 8>(src, taps, mine, out, pitch),
                4 => turned::<4, 4>(src, taps, mine, out, pitch),
                _ => turned::<8, 2>(src, taps, mine, out, pitch),
            }
        }
    }
}

impl Blob {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Blob::Data(d) => d.len(),
            Blob::Weights(p) => p.groups * p.lines * p.pitch * p.size,
            Blob::Transformed(t) => t.len(),
        }
    }
    /// The step's operand that it packs.
    pub fn operand(&self) -> Option<usize> {
        match self {
            Blob::Data(_) => None,
            Blob::Weights(p) => Some(p.operand),
            Blob::Transformed(t) => Some(t.operand),
        }
    }
    /// True when there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// True for weights that are only moved: no zeros come between them.
    pub fn is_packed(&self) -> bool {
        match self {
            Blob::Data(_) | Blob::Transformed(_) => false,
            Blob::Weights(p) => p.is_dense() && p.used() == (p.lines, p.pitch),
        }
    }
    /// Bytes of a line, the least that can be filled by itself.
    fn line(&self) -> usize {
        match self {
            Blob::Data(_) => 1,
            Blob::Weights(p) => p.pitch * p.size,
            Blob::Transformed(t) => t.line(),
        }
    }
    /// Writes the data to `out`, which has the blob's size; `weights` are the weights that it packs and the element at
    /// which they start.
    pub fn fill(&self, weights: Option<(&HostTensor, usize)>, out: &mut [u8]) {
        self.fill_from(0, weights, out);
    }
    /// Hands out the data in pieces of about `size` bytes (a line at least), each made in `buffer`, which grows to what one takes.
    pub fn pieces<E>(
        &self,
        weights: Option<(&HostTensor, usize)>,
        size: usize,
        buffer: &mut Vec<u8>,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Whole blocks of lines, which are turned together.
        let lines = (size / self.line().max(1)).max(1);
        let lines = if lines > 16 { lines / 16 * 16 } else { lines };
        let (len, piece) = (self.len(), lines * self.line());
        buffer.resize(buffer.len().max(piece.min(len)), 0);
        for at in (0..len).step_by(piece.max(1)) {
            let out = &mut buffer[..piece.min(len - at)];
            self.fill_from(at / self.line(), weights, out);
            take(out)?;
        }
        Ok(())
    }
    /// Writes the data from line `first` on.
    fn fill_from(&self, first: usize, weights: Option<(&HostTensor, usize)>, out: &mut [u8]) {
        match (self, weights) {
            (Blob::Data(d), _) => out.copy_from_slice(&d[first..][..out.len()]),
            (Blob::Weights(p), Some((weights, offset))) => p.fill(weights, offset, first, out),
            (Blob::Transformed(t), Some((weights, offset))) => t.fill(weights, offset, first, out),
            (Blob::Weights(_) | Blob::Transformed(_), None) => out.fill(0),
        }
    }
}

/// Rows, and columns, of a block that is turned at once.
const BLOCK: usize = 16;

/// Writes columns `lines` of rows of `columns` elements as lines of `pitch` elements, in blocks. A block is copied first: its rows,
/// and its lines, may be a power of two apart, so that few of them are in a cache at a time. `ABREAST` elements are 16 bytes.
///
/// Plain loops all the way: closures that are handed to arrays and iterators are calls here, for each 16 bytes.
fn turned<const SIZE: usize, const ABREAST: usize>(
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

/// The same with instructions of three operands.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn turned_by_avx2<const SIZE: usize, const ABREAST: usize>(
    src: &[u8],
    columns: usize,
    lines: Range<usize>,
    out: &mut [u8],
    pitch: usize,
) {
    turned_anywhere::<SIZE, ABREAST>(src, columns, lines, out, pitch);
}

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
        let ahead = src.get((r0 + BLOCK) * columns * SIZE..).unwrap_or(&[]);
        for c0 in lines.clone().step_by(BLOCK) {
            for r in 0..BLOCK {
                prefetch(ahead.get((r * columns + c0) * SIZE));
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

/// Has the line of a byte brought into the cache: lines of many rows are more than the processor foresees.
#[inline(always)]
fn prefetch(byte: Option<&u8>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(byte) = byte {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it only reads ahead, and SSE is part of the architecture.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    /// What a line of the packed form holds by the words of [`Packing`], element by element.
    fn expected(p: &Packing, weights: &[u8], offset: usize) -> Vec<u8> {
        let mut out = vec![0; p.groups * p.lines * p.pitch * p.size];
        let [line, taken] = p.together;
        let own = p.taps / taken * line;
        for g in 0..p.groups {
            for m in 0..p.channels {
                for k in 0..p.taps {
                    if k % taken >= line {
                        continue;
                    }
                    let from = offset + (g * p.channels + m) * own + k / taken * line + k % taken;
                    let (line, at) = if p.along_k { (m, k) } else { (k, m) };
                    let to = (g * p.lines + line) * p.pitch + at;
                    out[to * p.size..][..p.size].copy_from_slice(&weights[from * p.size..][..p.size]);
                }
            }
        }
        out
    }

    #[test]
    fn pieces_are_what_the_whole_is() {
        let packing = |groups, channels, taps, together, more: [usize; 2], along_k, size| {
            let (lines, pitch) = if along_k { (channels, taps) } else { (taps, channels) };
            let (lines, pitch) = (lines + more[0], pitch + more[1]);
            Packing { operand: 1, groups, channels, taps, together, lines, pitch, along_k, size }
        };
        let mut packings = Vec::new();
        for size in [1, 2, 4, 8] {
            for more in [[0, 0], [3, 5]] {
                packings.push(packing(1, 37, 50, [1, 1], more, false, size));
                packings.push(packing(3, 16, 33, [1, 1], more, false, size));
                packings.push(packing(2, 7, 40, [1, 1], more, true, size));
                packings.push(packing(2, 7, 40, [3, 8], more, true, size));
            }
        }
        for p in packings {
            let offset = 5;
            let bytes = (p.groups * p.channels * p.taps + offset) * p.size;
            let bytes: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251 + 1) as u8).collect();
            let dtype = [DType::U8, DType::U16, DType::U32, DType::U64][p.size.ilog2() as usize];
            let weights = HostTensor::new(dtype, &[bytes.len() / p.size], bytes.clone()).unwrap();
            let blob = Blob::Weights(p);
            check(&blob, &weights, offset, &format!("{p:?}"));
            let mut whole = vec![0xaa; blob.len()];
            blob.fill(Some((&weights, offset)), &mut whole);
            assert!(whole == expected(&p, &bytes, offset), "{p:?}");
        }
        for (channels, lines) in [([20, 9], 9), ([33, 21], 24)] {
            let t = Transformed { operand: 1, channels, lines, block: 16 };
            let numbers: Vec<f32> = (0..3 + channels[0] * channels[1] * 9).map(|i| (i % 97) as f32 - 40.0).collect();
            let weights = HostTensor::from_f32(&[numbers.len()], &numbers);
            check(&Blob::Transformed(t), &weights, 3, &format!("{channels:?}"));
        }
        check(&Blob::Data((0..1000).map(|i| i as u8).collect()), &HostTensor::from_f32(&[1], &[0.0]), 0, "data");
    }

    /// Pieces of any size are what filling everything gives.
    fn check(blob: &Blob, weights: &HostTensor, offset: usize, what: &str) {
        let mut whole = vec![0xaa; blob.len()];
        blob.fill(Some((weights, offset)), &mut whole);
        for size in [1, 100, 1000, 5000, 1 << 20] {
            let (mut all, mut buffer) = (Vec::new(), vec![0x55; 17]);
            let take = |piece: &[u8]| {
                all.extend_from_slice(piece);
                Ok::<_, ()>(())
            };
            blob.pieces(Some((weights, offset)), size, &mut buffer, take).unwrap();
            assert!(all == whole, "{what} in pieces of {size}");
        }
    }
}
