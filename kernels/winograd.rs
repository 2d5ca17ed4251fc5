//! 3x3 convolutions with stride 1 by Winograd's method F(2x2, 3x3): 16 multiplications for four results where their definition has 36
//! (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015).
//!
//! Of a block of 2x2 results, y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A: g are the weights of a window, d the 4x4 elements of the input that
//! the block needs, and sums over channels are taken of the elementwise products. So there are 16 matrix products: rows are output channels,
//! columns blocks of all images, the depth are input channels.
//!
//! One kernel does it all. A workgroup computes the same tile of all 16 products, which lie side by side in
//! LDS: G g Gᵀ is made when the model is compiled, Bᵀ d B while the input is loaded ([`loader`](super::loader::PatchSource)), and the loop over
//! the depth is that of every product ([`gemm`]). Its sums go through LDS to workitems that have all 16 of a block and
//! channel, for Aᵀ M A, the step's expression and the stores. Nothing but input, weights and results goes through memory.
//!
//! Elements of the 16 are in the order in which their rows are made: rows 0, 1, 3, 2, of which row 3 has the other sign in both factors.
//!
//! # Error
//! With C channels, |x| ≤ X, |g| ≤ W, and u the unit roundoff, additions in any order: Bᵀ d B has two roundings, the
//! weights one, the sums C, Aᵀ M A four. What is added up for a result is at most 8² C W X (8 = 2 + 3 + 3 in each dimension), so
//! |error| ≤ (C + 7) 64 C W X u to first order. The definition's bound is 9 C · 9 C W X u: it is 6.4 times less for one channel,
//! and more from 27 channels on.
//!
//! F(4x4, 3x3) is not used: it has 48² in place of 8², a bound 28 times the definition's. And a workgroup has room for
//! 16 rows and columns or so of its 36 products, whose reads from LDS take as long as their multiplications, or twice as long
//! where two multiply-adds are issued together.

use super::address::{self, Offset};
use super::choice::{Ending, Extents, Machine, Method, Reach, Round, Split, Together};
use super::error::{Reason, Res};
use super::gemm::{self, Operands, Sums, Walk};
use super::loader::{self, PatchSource, Source};
use super::split::{self, Product};
use super::tile::{Form, Tile, Types};
use super::tuning::When;
use super::values::{self, Value};
use super::{Arg, Blob, Cx, Kernel, Writer, epilogue, expr};
use crate::graph::fused::{Conv, Role};
use crate::graph::view::View;
use crate::mir::{Builder, Gen, Part, Type};
use crate::tensor::{DType, HostTensor};
use serde::{Deserialize, Serialize};

/// Products that are computed side by side.
pub(super) const PRODUCTS: u32 = 16;

/// Rows and columns of a block of results.
const BLOCK: usize = 2;

/// Tiles: rows, columns and depth, rows and columns of a workitem.
const TILES: [[u32; 5]; 3] = [[32, 32, 4, 8, 8], [32, 16, 8, 8, 4], [16, 16, 8, 4, 4]];

/// Instructions of a workitem for its share of a patch: loads, transformation, writes. The ALU that multiplies executes them, too. Fitted to the
/// full model, as the next ones.
const PER_PATCH: f64 = 62.0;

/// The same over that where two multiply-adds are issued together, which these are not: others are left out of pairs.
const PATCHES_IN_PAIRS: f64 = 2.0;

/// Cycles of a round in which a workgroup that is alone waits for its patches, of waves of 64 lanes and of 32.
const BARE: [f64; 2] = [140.0, 400.0];

/// What a workitem's results take before and behind the loop, over those that are stored as they are: they go through LDS, are
/// transformed, and stored in pairs.
const BEHIND: f64 = 4.6;

/// The same over that where two instructions are issued together: a part of what the transformation adds goes in pairs.
const BEHIND_IN_PAIRS: f64 = 0.75;

/// Reads from LDS, over what their bytes take; writes beside them are not noticed.
const READS: f64 = 0.5;

/// How weights are transformed: line k holds those of input channel k, for each block of output channels the 16 elements in turn,
/// each of all of the block. Zeros fill up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transformed {
    /// The step's operand that the weights are.
    pub operand: usize,
    /// Output channels, and input channels.
    pub channels: [usize; 2],
    /// Lines.
    pub lines: usize,
    /// Output channels of a block.
    pub block: usize,
}

impl Transformed {
    /// Elements of a line.
    fn pitch(&self) -> usize {
        self.channels[0].next_multiple_of(self.block) * PRODUCTS as usize
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.lines * self.line()
    }

    /// True when there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of a line.
    pub(super) fn line(&self) -> usize {
        self.pitch() * size_of::<f32>()
    }

    /// Transforms the weights, which begin at element `offset`, for the lines from `start` on that `out` holds.
    pub(super) fn fill(&self, data: &HostTensor, offset: usize, start: usize, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just detected.
            return unsafe { self.fill_by_avx2(data, offset, start, out) };
        }
        self.fill_anywhere(data, offset, start, out);
    }

    /// The same with four numbers at once.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn fill_by_avx2(&self, data: &HostTensor, offset: usize, start: usize, out: &mut [u8]) {
        self.fill_anywhere(data, offset, start, out);
    }

    #[inline(always)]
    fn fill_anywhere(&self, data: &HostTensor, offset: usize, start: usize, out: &mut [u8]) {
        let [channels, inputs] = self.channels;
        let (used, products) = (inputs.min(self.lines), PRODUCTS as usize);
        let fill = data.fill().map(|element| [*element.first_chunk().unwrap_or(&[0; 4]); 9]);
        let weights: &[[u8; 4]] = if fill.is_some() { &[] } else { data.bytes()[offset * 4..].as_chunks().0 };
        let weights: &[[[u8; 4]; 9]] = weights.as_chunks().0;
        let mut elements = [[0.0; ABREAST]; PRODUCTS as usize];
        // In parts of a block, whose elements of one product are neighbours.
        for (line, out) in (start..).zip(out.chunks_mut(self.line())) {
            for (block, out) in out.chunks_mut(self.block * products * 4).enumerate() {
                for first in (0..self.block).step_by(ABREAST) {
                    let many = ABREAST.min(self.block - first);
                    let mut windows = [[0.0; ABREAST]; 9];
                    for i in 0..many {
                        let m = block * self.block + first + i;
                        if line < used && m < channels {
                            let window = fill.as_ref().unwrap_or_else(|| &weights[m * inputs + line]);
                            for k in 0..9 {
                                windows[k][i] = f64::from(f32::from_le_bytes(window[k]));
                            }
                        }
                    }
                    transformed(&windows, &mut elements);
                    for (product, elements) in elements.iter().enumerate() {
                        let to = out[(product * self.block + first) * 4..].as_chunks_mut().0;
                        match to.first_chunk_mut::<ABREAST>() {
                            Some(to) if many == ABREAST => {
                                for i in 0..ABREAST {
                                    to[i] = elements[i].to_le_bytes();
                                }
                            }
                            _ => to.iter_mut().zip(&elements[..many]).for_each(|(to, e)| *to = e.to_le_bytes()),
                        }
                    }
                }
            }
        }
    }
}

/// Windows that are transformed together.
const ABREAST: usize = 8;

/// Elements of as many windows.
type Abreast = [f64; ABREAST];

/// G g Gᵀ in the order of the kernel, each element rounded once.
#[inline(always)]
fn transformed(g: &[Abreast; 9], out: &mut [[f32; ABREAST]; PRODUCTS as usize]) {
    // By columns first.
    let mut columns = [[[0.0; ABREAST]; 3]; 4];
    for i in 0..ABREAST {
        for c in 0..3 {
            let column = four([g[c][i], g[3 + c][i], g[6 + c][i]]);
            (0..4).for_each(|r| columns[r][c][i] = column[r]);
        }
    }
    for (out, (row, sign)) in out.as_chunks_mut::<4>().0.iter_mut().zip([(0, 1.0), (1, 1.0), (3, -1.0), (2, 1.0)]) {
        let [a, b, c] = &columns[row];
        for i in 0..ABREAST {
            let elements = four([a[i] * sign, b[i] * sign, c[i] * sign]);
            (0..4).for_each(|e| out[e][i] = elements[e] as f32);
        }
    }
}

/// What G makes of a column or row of three.
#[inline(always)]
fn four([a, b, c]: [f64; 3]) -> [f64; 4] {
    [a, (a + b + c) * 0.5, (a - b + c) * 0.5, c]
}

/// Blocks of an image of results, from above and from the left.
fn blocks(out: &View) -> [usize; 2] {
    [2, 3].map(|d| out.dims[d].div_ceil(BLOCK))
}

/// The method computes the convolution: windows of 3x3 constant weights over every element.
fn applies(cx: &Cx, conv: &Conv) -> bool {
    let window = &conv.window;
    let windows = window.kernel[..] == [3, 3] && window.strides[..] == [1, 1] && window.dilations[..] == [1, 1];
    let alone = conv.also.is_empty() && conv.before.is_none() && conv.groups == 1 && conv.flip == 0;
    let accesses = || epilogue::operands(cx).into_iter().chain([0]).map(|i| &cx.step.inputs[i].view);
    let forward = || accesses().chain([&cx.step.output.view]).all(|v| v.strides.iter().all(|s| *s >= 0));
    let constant = || matches!(cx.graph.tensor(cx.step.inputs[1].tensor).role, Role::Constant(_));
    windows && alone && cx.dtype(Arg::Input(0)) == DType::F32 && forward() && constant()
}

/// The 16 products, as one of them.
fn extents(cx: &Cx) -> Extents {
    let (x, out) = (&cx.step.inputs[0].view, &cx.step.output.view);
    let [high, wide] = blocks(out);
    let (m, n, k) = (out.dims[1], out.dims[0] * high * wide, x.dims[1]);
    let bytes = cx.graph.tensor(cx.step.inputs[0].tensor).bytes() + 4 * PRODUCTS as usize * m * k;
    Extents {
        batches: 1,
        m,
        n,
        k,
        bytes,
        // Of a block.
        stored: 4 * BLOCK * BLOCK,
        expression: 0.0,
        deep: (false, false),
        pitch: [0; 2],
        bands: false,
        shares: false,
        apart: false,
        in_rows: false,
        transposed: [false; 2],
        straight: false,
        sparse: None,
        scaled: false,
        image: 1,
        gathered: None,
        pairs: false,
        loads: [Together::ANY; 2],
        few: false,
        lines: false,
    }
}

/// The patches of neighbouring blocks in the input, where its lines are dense.
fn reach(cx: &Cx) -> Option<Reach> {
    let x = &cx.step.inputs[0].view;
    let pitch = x.strides[2].unsigned_abs() as usize;
    let [lines, line] = blocks(&cx.step.output.view);
    let steps = [BLOCK, BLOCK * pitch];
    (x.strides[3] == 1).then_some(Reach { line, steps, pitch, window: [BLOCK + 2; 2], taps: 1, image: lines * line })
}

/// The tiles, with what a workgroup does in a round.
fn rounds(machine: &Machine, cx: &Cx) -> Vec<(Tile, Round)> {
    let types = Types::of(DType::F32);
    let reach = reach(cx);
    let of = |&[m, n, k, tm, tn]: &[u32; 5]| {
        let tile = Tile { types, m, n, k, run: 1, buffers: 2, form: Form::Winograd { tm, tn } };
        let (threads, lanes) = (tile.threads(), machine.lanes());
        let waves = threads.div_ceil(lanes);
        let reads = READS * f64::from(threads * (tm + tn) * 4) / machine.lds;
        let pairs = machine.multiply_add(Type::F32) < machine.issue;
        let per_patch = PER_PATCH * machine.issue * if pairs { PATCHES_IN_PAIRS } else { 1.0 };
        let patches = f64::from((2 * n).div_ceil(lanes)) * per_patch;
        let products = f64::from(waves * tm * tn) * machine.multiply_add(Type::F32) + patches;
        let lds = tile_bytes(&tile).max(exchanged(&tile));
        let passes = tile.k * 2 * n / threads;
        let vgprs = tm * tn + 2 * (tm + tn) + 12 * (passes + 1) + PRODUCTS * m * k / threads + 24;
        let behind = BEHIND * if pairs { BEHIND_IN_PAIRS } else { 1.0 };
        // Two halves of a patch, of twelve loads that take every other element of a line. Neighbours share the lines.
        let patches = reach.map_or(32.0 * f64::from(n), |r| r.bytes(n as usize, (4, machine.line)));
        let (loaded, given, own) =
            (4 * PRODUCTS * m + patches as u32, 4 * (PRODUCTS * m + 48 * n), (behind * f64::from(tm * tn)) as u32);
        let round = Round {
            waves,
            products,
            moves: reads,
            spread: false,
            meetings: 1,
            loaded,
            given,
            own,
            vgprs,
            lds,
            behind: 0.0,
            bare: BARE[usize::from(lanes < 64)],
            ending: Ending::default(),
            crowded: false,
        };
        (tile, round)
    };
    TILES.iter().map(of).collect()
}

/// LDS of both buffers of tiles.
fn tile_bytes(tile: &Tile) -> u32 {
    tile.buffers * PRODUCTS * (tile.m + tile.n) * tile.k * 4
}

/// LDS in which all 16 elements of as many results as there are workitems lie.
fn exchanged(tile: &Tile) -> u32 {
    PRODUCTS * tile.threads() * 4
}

/// The ways to compute a convolution by the method; nothing where it does not apply or is not wanted.
pub(super) fn method(cx: &Cx, conv: &Conv) -> Option<Method> {
    let wanted = cx.tuning.winograd() != When::Never && applies(cx, conv);
    wanted.then(|| Method { tiles: rounds(&Machine::of(cx.target), cx), extents: extents(cx) })
}

/// The kernel.
pub(super) fn lower(cx: &Cx, conv: &Conv, tile: &Tile, split: &Split) -> Res<Vec<Kernel>> {
    let (x, out) = (&cx.step.inputs[0].view, &cx.step.output.view);
    let extents = extents(cx);
    let mut w = cx.kernel(tile.threads());
    w.b.lds_of_at_least(exchanged(tile));
    let (z, part) = split::part(&mut w, split);
    let first = split::first(&mut w, tile, split);
    let (lines, block) = (split.span() as usize, tile.m as usize);
    let weights = Transformed { operand: 1, channels: [extents.m, extents.k], lines, block };
    let pitch = weights.pitch();
    let buf = w.blob(Blob::Transformed(weights));
    let source = Source {
        each: 1,
        buf,
        base: 0,
        scalar: None,
        first: w.b.mul(first.0, PRODUCTS),
        k_stride: pitch as u32,
        w_stride: 1,
        depth: split.span(),
        part,
        aligned: true,
        end: None,
        columns: None,
    };
    let item = w.b.workitem_id();
    let a = loader::dense(&mut w.b, source, tile, PRODUCTS * tile.m, pitch, item);
    let buf = w.buffer(cx, Arg::Input(0))?;
    let pads = [conv.window.pads[0], conv.window.pads[1]];
    let source = PatchSource { buf, x, pads, blocks: blocks(out), first: first.1, part };
    let b = loader::patches(&mut w.b, source, tile, item);
    let sums = gemm::multiply(&mut w, tile, &mut Operands { a, b, words: [None, None] }, part.split.chunk)?;
    let walk = Walk { m_dim: 1, rows: extents.m, n_dims: 2..4, swapped: false, positions: None };
    let product = Product { tile, sums, walk, first, z, extents, finish: None, rows: None, done: None };
    let mut kernels = split::store(w, cx, product, part, |_, _, _| Offset { reg: None, imm: 0 })?;
    let flops = 2 * 9 * extents.k * out.dims.iter().product::<usize>();
    kernels.iter_mut().for_each(|k| k.flops = flops as u64);
    Ok(kernels)
}

/// An access of the results' walk.
struct Access<'a> {
    arg: Arg,
    view: &'a View,
    dtype: DType,
    /// Where the first result of the workitem's block and channel is.
    at: Offset,
    /// The same for all results of a channel.
    of_channel: bool,
    /// Neighbours in a row go together.
    pairs: bool,
}

impl Access<'_> {
    /// Result `(y, x)` of the block, `channels` further.
    fn place(&self, channels: u32, [y, x]: [usize; 2]) -> Offset {
        let steps = [i64::from(channels), y as i64, x as i64];
        let elements: i64 = steps.iter().zip(&self.view.strides[1..]).map(|(n, s)| n * s).sum();
        Offset { imm: self.at.imm.wrapping_add((elements * self.dtype.size() as i64) as u32), ..self.at }
    }
}

/// Aᵀ M A of all blocks, the step's expression, and the stores. `first` are the workgroup's first channel and block.
///
/// As many results of each product as there are workitems are exchanged at a time: some rows of each workitem. Then workitem i
/// has all 16 elements of one of them.
pub(super) fn store(w: &mut Writer, cx: &Cx, tile: &Tile, sums: &Sums, first: (Part, Part)) -> Res<()> {
    let Form::Winograd { tm, tn } = tile.form else { return Err(Reason::Malformed("a tile of another method")) };
    let (threads, n, down, side) = (tile.threads(), tile.n, tile.m / tm, tile.n / tn);
    let (chunk_m, chunk_n) = (tile.chunk(tm), tile.chunk(tn));
    // Rows of a workitem that go together.
    let together = PRODUCTS / tn;
    let rounds = tm / together;
    let buffers = if tile_bytes(tile) >= 2 * exchanged(tile) { 2 } else { 1 };
    let b = &mut w.b;
    let item = b.workitem_id();
    let own = b.and(item, down * side - 1);
    let (product, ty, tx) =
        (b.shr(item, (down * side).trailing_zeros()), b.shr(own, side.trailing_zeros()), b.and(own, side - 1));
    // The two chunks of a workitem's columns change places in every other row: neighbouring workitems are in different banks.
    let swaps = tn == 2 * chunk_n;
    let turned = |b: &mut Builder, row: Part| {
        let odd = b.and(row, 1u32);
        b.shl(odd, (n / 2).trailing_zeros())
    };
    let to = b.mul(product, threads);
    let to = b.mad(ty, n, to);
    let to = b.mad(tx, chunk_n, to);
    let to = if swaps {
        let turn = turned(b, ty);
        b.add(to, turn)
    } else {
        to
    };
    let to = b.shl(to, 2u32);
    let mut writes = vec![b.to_vector(to)];
    for chunk in 1..tn / chunk_n {
        writes.push(b.op(Gen::Xor.of(Type::U32), &[(chunk * side * chunk_n * 4).into(), writes[0].into()]));
    }
    let row = b.shr(item, n.trailing_zeros());
    let from = if swaps {
        let turn = turned(b, row);
        b.op(Gen::Xor.of(Type::U32), &[turn.into(), item.into()])
    } else {
        item
    };
    let from = b.shl(from, 2u32);
    let from = b.to_vector(from);
    // The result that this workitem finishes: its block, and its channel in the first round.
    let out = &cx.step.output.view;
    let (tall, wide) = (out.dims[2], out.dims[3]);
    let [blocks_y, blocks_x] = blocks(out);
    let blocks = out.dims[0] * blocks_y * blocks_x;
    let column = b.and(item, n - 1);
    let column = b.add(first.1, column);
    let coords = address::coordinates(b, column, &[out.dims[0], blocks_y, blocks_x]);
    let (above, below) = (b.shr(row, down.trailing_zeros()), b.and(row, down - 1));
    let channel = b.mad(below, chunk_m, above);
    let channel = b.add(channel, first.0);
    let [y, x] = [1, 2].map(|d| coords[d].map(|c| b.mul(c, BLOCK as u32)));
    let inside = (!blocks.is_multiple_of(n as usize)).then(|| b.lt_u32(column, blocks as u32));
    let next = |b: &mut Builder, at: Option<Part>, extent: usize| {
        let at = at.filter(|_| !extent.is_multiple_of(BLOCK))?;
        let at = b.add(at, 1u32);
        Some(b.lt_u32(at, extent as u32))
    };
    let (second_row, second_column) = (next(b, y, tall), next(b, x, wide));
    let all = [coords[0], (out.dims[1] > 1).then_some(channel), y, x];
    let args: Vec<Arg> = epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Output]).collect();
    let mut accesses = Vec::new();
    for arg in args {
        let view = cx.view(arg);
        let dtype = cx.dtype(arg);
        let at = address::offset(&mut w.b, view, dtype.size(), &all);
        let pairs = view.strides[3] == 1 && wide.is_multiple_of(BLOCK) && dtype == DType::F32;
        accesses.push(Access { arg, view, dtype, at, of_channel: view.strides[2..] == [0, 0], pairs });
    }
    for round in 0..rounds {
        let b = &mut w.b;
        let base = round % buffers * exchanged(tile);
        // All have read what was here before: tiles, or the results of an earlier round.
        if round == 0 || buffers == 1 {
            b.barrier();
        }
        for i in 0..together {
            for (chunk, &write) in writes.iter().enumerate() {
                let position = (round * together + i) * tn + chunk as u32 * chunk_n;
                b.lds_write(write, sums.slice(position, chunk_n), base + i * down * n * 4);
            }
        }
        b.barrier();
        let read = |b: &mut Builder, p: u32| b.lds_read(1, from, base + p * threads * 4);
        let elements: Vec<Part> = (0..PRODUCTS).map(|p| read(b, p)).collect();
        let results = untransformed(b, &elements);
        // Channels behind that of the first round.
        let row = round * together;
        let further = row % chunk_m + row / chunk_m * chunk_m * down;
        let channel_inside = (!out.dims[1].is_multiple_of(tile.m as usize)).then(|| {
            let at = if further > 0 { b.add(channel, further) } else { channel };
            b.lt_u32(at, out.dims[1] as u32)
        });
        let inside = b.both(inside, channel_inside);
        let mut once: Vec<Option<Value>> = vec![None; cx.step.inputs.len()];
        for (dy, results) in results.iter().enumerate().filter(|(dy, _)| *dy == 0 || tall > 1) {
            let mut values = Vec::new();
            let mut loaded: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
            let in_row = if dy > 0 { w.b.both(inside, second_row) } else { inside };
            let masks = [in_row, w.b.both(in_row, second_column)];
            for a in &accesses {
                let Arg::Input(i) = a.arg else { continue };
                let buf = w.buffer(cx, a.arg)?;
                let ends = epilogue::has_ends(cx, a.arg);
                let place =
                    |b: &mut Builder, dx: usize| a.place(further, [dy, dx]).within(b, masks[dx].filter(|_| ends));
                loaded[i] = match once[i] {
                    Some(v) => vec![v; BLOCK],
                    None if a.of_channel => {
                        let v = values::load(&mut w.b, a.dtype, buf, a.place(further, [0, 0]));
                        once[i] = Some(v);
                        vec![v; BLOCK]
                    }
                    None if a.pairs => {
                        let at = place(&mut w.b, 0);
                        values::load_some(&mut w.b, a.dtype, buf, at, BLOCK as u32)
                    }
                    None => (0..BLOCK.min(wide))
                        .map(|dx| {
                            let at = place(&mut w.b, dx);
                            values::load(&mut w.b, a.dtype, buf, at)
                        })
                        .collect(),
                };
            }
            for (dx, result) in results.iter().enumerate().take(wide) {
                let input = |i: u32| loaded[i as usize][dx];
                values.push(expr::eval_sum(&mut w.b, &cx.step.expr, &input, Value::of(DType::F32, *result))?);
            }
            let Some(a) = accesses.last() else { continue };
            let buf = w.buffer(cx, a.arg)?;
            if a.pairs {
                let at = a.place(further, [dy, 0]).within(&mut w.b, in_row);
                values::store_some(&mut w.b, a.dtype, buf, at, &values);
                continue;
            }
            for (dx, value) in values.into_iter().enumerate() {
                let at = a.place(further, [dy, dx]).within(&mut w.b, masks[dx]);
                values::store(&mut w.b, a.dtype, buf, at, value);
            }
        }
    }
    Ok(())
}

/// Aᵀ M A: rows of results.
fn untransformed(b: &mut Builder, m: &[Part]) -> [[Part; BLOCK]; BLOCK] {
    let mut op = |add: bool, x: Part, y: Part| {
        let op = if add { Gen::Add } else { Gen::Sub };
        b.generic(op.of(Type::F32), &[x.into(), y.into()])
    };
    // The third row in memory is the last one.
    let mut two = |[p, q, r, s]: [Part; 4]| {
        let (sum, difference) = (op(true, q, r), op(false, q, r));
        [op(true, p, sum), op(false, difference, s)]
    };
    let columns: [[Part; BLOCK]; 4] = std::array::from_fn(|c| two([m[c], m[4 + c], m[12 + c], m[8 + c]]));
    std::array::from_fn(|row| two(columns.map(|c| c[row])))
}
