//! The weights region: constants as the model has them, and data made for kernels. What it is made of is kept; the bytes
//! are made when they are written to a file, one piece after the other, or all in parallel when a device wants them.

use super::cache::StepCode;
use crate::codeobj::MakeBytes;
use crate::kernels::Blob;
use crate::mapped::{self, Room, zeroed};
use crate::tensor::{HostTensor, fill};
use bytes::Bytes;
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::xxh3_128;

/// The bytes of one place in the region.
#[derive(Clone)]
pub(super) enum Source {
    /// A constant as it is.
    Tensor(HostTensor),
    /// Data that comes with a kernel.
    Blob(BlobOf),
}

/// Blob `blob` of kernel `kernel` of a step, and the operand that it packs.
#[derive(Clone)]
pub(super) struct BlobOf {
    pub code: StepCode,
    pub kernel: usize,
    pub blob: usize,
    pub operand: Option<Packed>,
}

/// A constant operand, and where its elements start.
#[derive(Clone)]
pub(super) struct Packed {
    pub tensor: HostTensor,
    pub offset: usize,
}

impl BlobOf {
    fn get(&self) -> &Blob {
        &self.code[self.kernel].blobs[self.blob]
    }
}

impl Source {
    pub fn len(&self) -> usize {
        match self {
            Source::Tensor(t) => t.byte_len(),
            Source::Blob(b) => b.get().len(),
        }
    }

    fn fill(&self, out: &mut [u8]) {
        match self {
            Source::Tensor(t) => t.copy_to(out),
            Source::Blob(b) => {
                if let Some(bytes) = self.ready() {
                    return mapped::copy(bytes, out);
                }
                let own = b.operand.as_ref().filter(|p| p.tensor.ready().is_none());
                let own = own.map(|p| p.tensor.brought(&mut Room::default()));
                let operand = b.operand.as_ref().map(|p| (own.as_ref().unwrap_or(&p.tensor), p.offset));
                b.get().fill(operand, out);
                operand.and_then(|o| o.0.ready()).into_iter().for_each(|bytes| mapped::release(bytes));
            }
        }
    }

    /// Writes the bytes some at a time, as much as stays in the cache, through `buffer`. What they are made of is read in `room`.
    fn write_to(&self, room: &mut Room, buffer: &mut Vec<u8>, to: &mut dyn Write) -> std::io::Result<()> {
        let made = match self {
            Source::Tensor(t) => return to.write_all(t.brought(room).bytes()),
            Source::Blob(b) => b,
        };
        let operand = made.operand.as_ref();
        let mapped = operand.and_then(|p| p.tensor.ready()).filter(|bytes| bytes.len() > READ);
        mapped.into_iter().for_each(|bytes| mapped::bring(bytes));
        let brought = operand.filter(|_| mapped.is_none()).map(|p| p.tensor.brought(room));
        let operand = operand.map(|p| (brought.as_ref().unwrap_or(&p.tensor), p.offset));
        made.get().pieces(operand, SOME, buffer, |piece| to.write_all(piece))?;
        mapped.into_iter().for_each(|bytes| mapped::release(bytes));
        Ok(())
    }

    /// Bytes of the tensor that it is made of.
    fn read(&self) -> usize {
        match self {
            Source::Tensor(t) => t.byte_len(),
            Source::Blob(b) => b.operand.as_ref().map_or(0, |p| p.tensor.byte_len()),
        }
    }

    /// The element that all of it is.
    fn repeated(&self) -> Option<&[u8]> {
        match self {
            Source::Tensor(t) => t.fill(),
            Source::Blob(b) => b.operand.as_ref().filter(|_| b.get().is_packed()).and_then(|p| p.tensor.fill()),
        }
    }

    /// The bytes, where they lie in memory already and are too many to be copied for nothing.
    fn long(&self) -> Option<&[u8]> {
        if self.len() >= PIECE { self.ready() } else { None }
    }

    /// The bytes, where they lie in memory already.
    fn ready(&self) -> Option<&[u8]> {
        match self {
            Source::Tensor(t) => t.ready().map(|b| &b[..]),
            Source::Blob(b) => match b.get() {
                Blob::Data(d) => Some(d),
                blob if blob.is_copied() => {
                    let Packed { tensor, offset } = b.operand.as_ref()?;
                    tensor.ready()?.get(offset * tensor.dtype().size()..)?.get(..blob.len())
                }
                Blob::Weights(_) | Blob::Transformed(_) => None,
            },
        }
    }
}

/// The weights of a compiled model.
#[derive(Clone)]
pub(super) struct Weights(Arc<Inner>);

struct Inner {
    bytes: usize,
    /// By their places, which do not overlap; zeros between them.
    sources: Vec<(usize, Source)>,
    made: OnceLock<Bytes>,
}

impl Weights {
    /// A region of this size; equal places hold equal bytes.
    pub fn new(bytes: usize, mut sources: Vec<(usize, Source)>) -> Weights {
        sources.sort_by_key(|s| s.0);
        sources.dedup_by_key(|s| s.0);
        Weights(Arc::new(Inner { bytes, sources, made: OnceLock::new() }))
    }

    /// Bytes of a file.
    pub fn read(bytes: Bytes) -> Weights {
        Weights(Arc::new(Inner { bytes: bytes.len(), sources: Vec::new(), made: OnceLock::from(bytes) }))
    }

    /// All bytes.
    pub fn bytes(&self) -> &Bytes {
        self.0.made.get_or_init(|| self.make())
    }

    /// What tells these weights from others without reading what lies at the addresses `held`, whose owner keeps them as they
    /// are. Equal weights may differ in it, different ones never agree.
    pub fn identity(&self, held: &FxHashSet<usize>) -> u128 {
        let tensor = |t: &HostTensor| t.identity_where(&|p| held.contains(&p.addr()));
        let mut text = format!("{}", self.0.bytes);
        for (at, source) in &self.0.sources {
            let what = match source {
                Source::Tensor(t) => format!("{:?}", tensor(t)),
                Source::Blob(b) => match b.get() {
                    Blob::Data(d) => format!("{:x} {}", xxh3_128(d), d.len()),
                    packed => format!("{packed:?} {:?}", b.operand.as_ref().map(|o| (tensor(&o.tensor), o.offset))),
                },
            };
            text.push_str(&format!("|{at} {what}"));
        }
        if self.0.sources.is_empty() { xxh3_128(self.bytes()) } else { xxh3_128(text.as_bytes()) }
    }

    /// Hands out all bytes, in order, with their places: a constant that is long and lies in memory as it is without a copy,
    /// the others as they are made, some at a time. Nothing of it is kept.
    pub fn pieces<E>(&self, mut take: impl FnMut(usize, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let all = &self.0;
        if let Some(made) = all.made.get() {
            return take(0, made);
        }
        let (mut at, mut rest) = (0, &all.sources[..]);
        while at < all.bytes {
            let fits = |(i, (from, s)): &(usize, &(usize, Source))| {
                s.long().is_none() && (*i == 0 || from + s.len() - at <= PIECE)
            };
            let run = rest.iter().enumerate().take_while(fits).count();
            let end = rest.get(run).map_or(all.bytes, |s| s.0);
            if end > at {
                let mut piece = zeroed(end - at);
                fill_all(&mut piece, at, &rest[..run]);
                take(at, &piece)?;
                at = end;
            }
            rest = &rest[run..];
            if let Some(((_, source), others)) = rest.split_first()
                && let Some(bytes) = source.long()
            {
                take(at, bytes)?;
                mapped::release(bytes);
                (at, rest) = (at + bytes.len(), others);
            }
        }
        Ok(())
    }

    fn make(&self) -> Bytes {
        let mut weights = zeroed(self.0.bytes);
        fill_all(&mut weights, 0, &self.0.sources);
        weights.freeze()
    }
}

/// Bytes that are made and written together: they stay in the cache.
const SOME: usize = 512 << 10;

/// A tensor of more bytes is not worth memory that it is read into as a whole.
const READ: usize = 32 << 20;

/// Constants of so many bytes are worth no copy; shorter ones are made together.
const PIECE: usize = 32 << 20;

/// Fills a part of the region that begins at `start` with all sources in it, in parallel; the rest stays as it is.
fn fill_all(out: &mut [u8], start: usize, sources: &[(usize, Source)]) {
    let (mut rest, mut at) = (out, start);
    let mut jobs = Vec::with_capacity(sources.len());
    for (from, source) in sources {
        let (_, tail) = std::mem::take(&mut rest).split_at_mut(from - at);
        let (mine, tail) = tail.split_at_mut(source.len());
        at = from + mine.len();
        jobs.push((mine, source));
        rest = tail;
    }
    jobs.into_par_iter().for_each(|(out, source)| source.fill(out));
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of weights", self.0.bytes)
    }
}

impl MakeBytes for Weights {
    fn len(&self) -> usize {
        self.0.bytes
    }

    fn write_to(&self, to: &mut dyn Write) -> std::io::Result<()> {
        if let Some(made) = self.0.made.get() {
            return to.write_all(made);
        }
        let mut at = 0;
        let read = self.0.sources.iter().filter(|(_, s)| s.ready().is_none() && s.repeated().is_none());
        let most = read.map(|(_, s)| s.read()).filter(|n| *n <= READ).max();
        let (mut room, mut buffer) = (Room::of(most.unwrap_or(0)), Vec::new());
        for (from, source) in &self.0.sources {
            repeat(to, &[0], from - at)?;
            match (source.ready(), source.repeated()) {
                (Some(bytes), _) => mapped::pieces(bytes, SOME, &mut buffer, |piece| to.write_all(piece))?,
                (None, Some(element)) => repeat(to, element, source.len())?,
                (None, None) => source.write_to(&mut room, &mut buffer, to)?,
            }
            at = from + source.len();
        }
        repeat(to, &[0], self.0.bytes - at)
    }
}

/// Writes one element over and over, from a block that stays in the cache.
fn repeat(to: &mut dyn Write, element: &[u8], count: usize) -> std::io::Result<()> {
    const BLOCK: usize = 1 << 16;
    let mut block = vec![0; count.min(BLOCK)];
    fill(&mut block, element);
    let mut left = count;
    while left > 0 {
        let n = left.min(BLOCK);
        to.write_all(&block[..n])?;
        left -= n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn what_is_written_is_what_a_device_gets() {
        let plain = HostTensor::from_f32(&[3], &[1.0, 2.0, 3.0]);
        let filled = HostTensor::filled(DType::F32, &[70_000], &1.5f32.to_le_bytes()).unwrap();
        let sources = || {
            let list = [(512, &plain), (0, &plain), (1024, &filled), (512, &plain)];
            list.map(|(at, t)| (at, Source::Tensor(t.clone()))).to_vec()
        };
        let (a, b) = (Weights::new(300_000, sources()), Weights::new(300_000, sources()));
        let mut written = Vec::new();
        a.write_to(&mut written).unwrap();
        assert_eq!(written.len(), MakeBytes::len(&a));
        assert!(written == b.bytes()[..]);
        assert!(a.0.made.get().is_none(), "writing needs no whole");
        b.write_to(&mut Vec::new()).unwrap();
        let mut pieces = Vec::new();
        a.pieces(|at, piece| {
            assert_eq!(at, pieces.len());
            pieces.extend_from_slice(piece);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert!(pieces == written && a.0.made.get().is_none());
        let expected = |at: usize| f32::from_le_bytes(written[at..at + 4].try_into().unwrap());
        assert_eq!([0, 4, 12, 520, 1024, 281_020, 281_024].map(expected), [1.0, 2.0, 0.0, 3.0, 1.5, 1.5, 0.0]);
    }

    #[test]
    fn long_constants_are_handed_out_where_they_lie() {
        let tensor = |n: usize, x: u8| HostTensor::new(DType::U8, &[n], vec![x; n]).unwrap();
        let (long, short) = (tensor(PIECE + 5, 1), tensor(PIECE / 3, 2));
        let filled = HostTensor::filled(DType::U8, &[PIECE + 7], &[3]).unwrap();
        let mut sources = Vec::new();
        let mut end = 3;
        for t in [&short, &short, &long, &short, &short, &short, &short, &filled, &long] {
            sources.push((end, Source::Tensor(t.clone())));
            end += t.byte_len() + 11;
        }
        let w = Weights::new(end + 100, sources);
        let (mut all, mut lengths) = (Vec::new(), Vec::new());
        w.pieces(|at, piece| {
            assert_eq!(at, all.len());
            let lies = [&long].iter().any(|t| t.ready().is_some_and(|b| b.as_ptr() == piece.as_ptr()));
            lengths.push((piece.len(), lies));
            all.extend_from_slice(piece);
            Ok::<_, ()>(())
        })
        .unwrap();
        let mut written = Vec::new();
        w.write_to(&mut written).unwrap();
        assert!(all == written);
        assert_eq!(lengths.iter().filter(|l| l.1).count(), 2, "{lengths:?}");
        assert!(lengths.iter().all(|l| l.1 || l.0 <= PIECE + 100), "{lengths:?}");
    }
}
