//! Convolutions of images whose channels are neighbours in memory: a product of positions of all images and output channels, whose depth runs over taps
//! and the channels of each.
//!
//! Lines of both operands lie along the depth then, 16 bytes of them a load, whatever the window, its steps and the extents of images are; a load is
//! inside of the image or not as a whole ([`loader::channels`]). Positions are the product's rows where results of a position are to be neighbours,
//! and its columns where those of a channel are.

use super::{Implicit, Positions, Term, first_bit, of_matrices, shifted, valid_taps, walk_of};
use crate::graph::fused::{Conv, Step};
use crate::graph::view::View;
use crate::kernels::choice::{Extents, Gathered, Together};
use crate::kernels::error::{Reason, Res};
use crate::kernels::gemm::{self, Operands, Walk};
use crate::kernels::loader::{self, ChannelSource, Loader, Source, Taps};
use crate::kernels::regroup;
use crate::kernels::split::{self, DepthPart, Product};
use crate::kernels::tile::{Order, Tile, Types, WIDEST};
use crate::kernels::{Arg, Blob, Cx, Kernel, Packing, Writer, address, choice, epilogue};
use crate::mir::Part;
use crate::tensor::DType;

/// Channels of a tap fill up so many, the fewest of which tiles are whole.
const PADDED: [usize; 2] = [32, 64];

/// Channels that are worth it.
const LEAST: usize = 32;

/// Bytes that a load takes of channels, where there are as many.
const LOADS: [u32; 2] = [WIDEST, WIDEST / 2];

/// Bits of a mask for coordinates of windows.
const BITS: usize = 30;

/// Such a convolution.
pub(super) struct ByChannels<'a> {
    cx: &'a Cx<'a>,
    conv: &'a Conv,
    /// The step with results and operands of its expression as matrices of positions and channels, where results of a position are neighbours; where images
    /// do not lie in line, with a dimension of these in front.
    matrices: Option<Step>,
    /// Channels of a load, and what those of a tap take of the depth.
    together: u32,
    padded: usize,
}

/// Images of such elements may have channels that come last.
pub(in super::super) fn takes(t: DType) -> bool {
    matches!(t, DType::F16 | DType::BF16 | DType::I8)
}

impl<'a> ByChannels<'a> {
    /// The convolution as one, if it is.
    pub fn of(cx: &'a Cx<'a>, conv: &'a Conv) -> Option<ByChannels<'a>> {
        let types = gemm::types(cx).ok()?;
        let term = Term { input: 0, window: &conv.window, flip: conv.flip };
        let (x, out) = (term.x(cx), &cx.step.output.view);
        let alone = conv.groups == 1 && conv.before.is_none() && conv.also.is_empty();
        // Of a position alone all channels are neighbours anyway.
        let narrow = takes(cx.dtype(Arg::Input(0))) && x.dims[2..].iter().any(|d| *d > 1);
        let others = (0..x.rank()).filter(|d| *d != 1 && x.dims[*d] > 1);
        let places: Vec<i64> = others.map(|d| x.strides[d]).chain([x.offset, x.dims[1] as i64]).collect();
        let few = conv.window.kernel.iter().sum::<usize>() <= BITS;
        let last = x.strides[1] == 1 && x.dims[1] >= LEAST;
        if !(alone && narrow && last && few && term.has_constant_weights(cx)) {
            return None;
        }
        let sizes = LOADS.map(|bytes| bytes / types.stored_bytes());
        let whole = |each: &u32| places.iter().all(|n| *n >= 0 && n % i64::from(*each) == 0);
        let together = sizes.into_iter().find(whole)?;
        let matrices = if out.strides[1] == 1 && out.dims[1] > 1 { Some(of_matrices(cx.step, true)?) } else { None };
        let mut found = ByChannels { cx, conv, matrices, together, padded: 0 };
        for padded in PADDED {
            found.padded = x.dims[1].next_multiple_of(padded);
            if !choice::candidates(cx.target, types, &found.extents(), 1, None).candidates.is_empty() {
                return Some(found);
            }
        }
        None
    }

    fn term(&self) -> Term<'_> {
        Term { input: 0, window: &self.conv.window, flip: self.conv.flip }
    }

    /// What the expression and the results are walked by.
    fn cx(&self) -> Cx<'_> {
        Cx { step: self.matrices.as_ref().unwrap_or(self.cx.step), ..*self.cx }
    }

    fn walk(&self) -> Walk {
        match &self.matrices {
            Some(step) => walk_of(step),
            None => Implicit::with(self.cx, self.conv, Positions::Images).walk(),
        }
    }

    /// Output channels.
    fn outputs(&self) -> usize {
        self.cx.step.output.view.dims[1]
    }

    /// Channels of the input, and what these take of the depth for each tap.
    fn channels(&self) -> [usize; 2] {
        [self.term().x(self.cx).dims[1], self.padded]
    }

    fn taps(&self) -> usize {
        self.conv.window.kernel.iter().product()
    }

    /// The convolution as a product.
    pub fn extents(&self) -> Extents {
        let (cx, out, outputs) = (self.cx(), &self.cx.step.output.view, self.outputs());
        let [_, padded] = self.channels();
        let positions = out.dims.iter().product::<usize>() / outputs;
        let (m, n) = if self.matrices.is_some() { (positions, outputs) } else { (outputs, positions) };
        Extents {
            batches: 1,
            m,
            n,
            k: self.taps() * padded,
            bytes: gemm::operand_bytes(self.cx, 1),
            stored: cx.dtype(Arg::Output).size(),
            expression: epilogue::clocks(&cx),
            deep: (true, true),
            pitch: [0; 2],
            bands: false,
            shares: false,
            apart: gemm::stores_apart(&cx, &self.walk()),
            in_rows: gemm::stores_together(&cx, &self.walk()),
            transposed: [false; 2],
            straight: false,
            loads: [Together::ANY; 2],
            sparse: None,
            scaled: false,
            few: false,
            lines: false,
            image: usize::from(self.matrices.is_none()),
            gathered: Some(Gathered { table: false, words: false, channels: Some(padded), reach: None }),
            pairs: false,
        }
    }

    /// Lowers it, in tiles of some types.
    pub fn lower(&self, types: Types) -> Res<Vec<Kernel>> {
        let (cx, extents) = (self.cx(), self.extents());
        let (tile, split) = choice::choose(cx.target, cx.tuning, types, &extents, 1)?;
        let mut w = cx.kernel(tile.threads());
        let (z, part) = split::part(&mut w, &split);
        let first = split::first(&mut w, &tile, &split);
        let (rows, columns) = ((tile.m, first.0), (tile.n, first.1));
        let (a, b) = if self.matrices.is_some() {
            (self.image(&mut w, &tile, part, rows)?, self.weights(&mut w, &tile, part, columns)?)
        } else {
            (self.weights(&mut w, &tile, part, rows)?, self.image(&mut w, &tile, part, columns)?)
        };
        let mut ops = Operands { a, b, words: [None, None] };
        let sums = gemm::zeros(&mut w.b, &tile);
        gemm::multiply_into(&mut w, &tile, &mut ops, part.split.chunk, &sums)?;
        regroup::free(&mut w.b, &tile);
        let walk = self.walk();
        let product = Product { tile: &tile, sums, walk, first, z, extents, finish: None, rows: None, done: None };
        let outer =
            |w: &mut Writer, view: &View, size: usize| address::offset_of_dims(&mut w.b, view, size, &[], 0..0, true);
        let mut kernels = split::store(w, &cx, product, part, outer)?;
        // What fills channels up is nobody's.
        let depth = self.taps() * self.channels()[0];
        let flops = 2 * (extents.m * extents.n * depth) as u64;
        kernels.iter_mut().filter(|k| k.flops > 0).for_each(|k| k.flops = flops);
        Ok(kernels)
    }

    fn weights(&self, w: &mut Writer, tile: &Tile, part: DepthPart, (width, first): (u32, Part)) -> Res<Loader> {
        let (pitch, channels) = (part.split.span() as usize, self.outputs());
        let packing = Packing {
            operand: 1,
            groups: 1,
            channels,
            taps: self.taps() * self.channels()[1],
            together: self.channels(),
            lines: channels,
            pitch,
            along_k: true,
            by_taps: true,
            size: tile.types.stored_bytes() as usize,
        };
        let buf = w.blob(Blob::Weights(packing));
        let source = Source {
            each: 1,
            buf,
            base: 0,
            scalar: None,
            first,
            k_stride: 1,
            w_stride: pitch as u32,
            depth: pitch as u32,
            part,
            aligned: true,
            end: None,
            columns: None,
        };
        let item = w.b.workitem_id();
        Ok(loader::dense_together(&mut w.b, source, tile, (width, Order::PLAIN), WIDEST, item))
    }

    fn image(&self, w: &mut Writer, tile: &Tile, part: DepthPart, place: (u32, Part)) -> Res<Loader> {
        let (term, window) = (self.term(), &self.conv.window);
        let (x, out) = (term.x(self.cx).clone(), &self.cx.step.output.view.dims);
        let size = i64::from(tile.types.stored_bytes());
        let n = window.kernel.len();
        let [channels, padded] = self.channels();
        let depth = self.taps() * padded;
        // The window's corner may lie before the image: the buffer begins as much earlier, and what is there is not loaded.
        let shift: i64 = (0..n).map(|d| window.pads[d] as i64 * x.strides[d + 2] * size).sum();
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let buf = shifted(w, buf, shift as u32, self.cx.reach(Arg::Input(0)) as u32);
        let step = |d: usize| u32::try_from(window.dilations[d] as i64 * x.strides[d + 2] * size);
        let steps = (0..n).map(step).collect::<Result<Vec<u32>, _>>().map_err(|_| Reason::Backwards(0))?;
        let src = ChannelSource {
            buf,
            scalar: (x.offset * size) as u32,
            together: self.together,
            flip: term.flip,
            taps: Taps {
                kernel: window.kernel.iter().map(|k| *k as u32).collect(),
                steps,
                bits: (0..n).map(|d| first_bit(window, d) as u32).collect(),
                channels: channels as u32,
                padded: padded as u32,
            },
            part,
            masked: term.is_padded(self.cx) || depth != part.split.span() as usize || channels != padded,
        };
        let mut corner = View { offset: 0, dims: [&[out[0]], &out[2..]].concat(), strides: vec![x.strides[0]] };
        corner.strides.extend((0..n).map(|d| x.strides[d + 2] * window.strides[d] as i64));
        let item = w.b.workitem_id();
        let masked = src.masked;
        Ok(loader::channels(&mut w.b, src, tile, place, item, |b, at| {
            let coords = address::coordinates(b, at, &corner.dims);
            let offset = address::offset(b, &corner, size as usize, &coords).vector(b);
            (offset, masked.then(|| valid_taps(b, window, &coords[1..], &x.dims[2..])))
        }))
    }
}
