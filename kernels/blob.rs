//! Constant data that kernels come with: bytes of their own, and weights in the order that a kernel reads them in, which are
//! made of the model's when they are written, a few lines at a time.

mod turned;

use super::winograd::Transformed;
use crate::tensor::{HostTensor, fill};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use turned::turned;

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
    /// Of an input channel's taps and the input channels of a tap, the latter lie together: what the model has by channels is turned. Only along k.
    pub by_taps: bool,
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
                _ if self.by_taps => {
                    let rows = src.chunks(own * size).take(mine.end).skip(mine.start);
                    for (to, row) in out.chunks_mut(pitch * size).zip(rows) {
                        to[..taps * size].fill(0);
                        lines_of(size, row, own / line, 0..own / line, to, taken);
                    }
                }
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
                _ => lines_of(size, src, taps, mine, out, pitch),
            }
        }
    }
}

/// [`turned`] of elements of any size.
fn lines_of(size: usize, src: &[u8], columns: usize, lines: Range<usize>, out: &mut [u8], pitch: usize) {
    match size {
        1 => turned::<1, 16>(src, columns, lines, out, pitch),
        2 => turned::<2, 8>(src, columns, lines, out, pitch),
        4 => turned::<4, 4>(src, columns, lines, out, pitch),
        _ => turned::<8, 2>(src, columns, lines, out, pitch),
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
    /// True for weights that lie as the model has them.
    pub fn is_copied(&self) -> bool {
        self.is_packed() && matches!(self, Blob::Weights(Packing { along_k: true, by_taps: false, .. }))
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
                    let within =
                        if p.by_taps { k % taken * (own / line) + k / taken } else { k / taken * line + k % taken };
                    let from = offset + (g * p.channels + m) * own + within;
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
            Packing { operand: 1, groups, channels, taps, together, lines, pitch, along_k, by_taps: false, size }
        };
        let mut packings = Vec::new();
        for size in [1, 2, 4, 8] {
            for more in [[0, 0], [3, 5]] {
                packings.push(packing(1, 37, 50, [1, 1], more, false, size));
                packings.push(packing(3, 16, 33, [1, 1], more, false, size));
                packings.push(packing(2, 7, 40, [1, 1], more, true, size));
                packings.push(packing(2, 7, 40, [3, 8], more, true, size));
                packings.push(Packing { by_taps: true, ..packing(1, 7, 40, [3, 8], more, true, size) });
                packings.push(Packing { by_taps: true, ..packing(1, 9, 60, [20, 20], more, true, size) });
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
