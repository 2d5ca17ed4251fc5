//! Convolution as a matrix product of output channels of a group and output positions ([`Implicit`]); the depth runs over input channels and window taps.
//!
//! Constant weights are repacked at compile time so that a line of the tile is dense ([`Blob::Weights`]), along k for
//! matrix instructions. The input's positions are read directly where the window is a single point with stride 1; otherwise they are
//! [`gathered`]. Few output channels per group go to the direct kernel.
//!
//! Convolutions that are added up are multiplied one after the other into the same sums, each with a loader and a loop of its
//! own; where the depth is shared among workgroups each sums its part of every one of them.

mod channels;
mod gathered;
mod implicit;
mod instead;
mod planar;
mod words;

use super::choice::{self, Considered, Gathered, Reach, Split};
use super::error::{Reason, Res};
use super::gemm::{self, Operands};
use super::loader::{self, Loader, Source};
use super::regroup;
use super::split::{self, DepthPart, Product};
use super::tile::{Form, Order, Tile, Types};
use super::{Arg, Blob, Cx, Kernel, Packing, Writer, direct, pool, winograd};
use crate::graph::fused::{Conv, Role, StepKind, Window};
use crate::graph::view::View;
use crate::mir::{Part, Type};
use channels::ByChannels;
pub(super) use channels::takes as comes_by_channels;
use gathered::{first_bit, gather_loader, offset_table, reaches_past, shifted, valid_taps};
use implicit::{Implicit, of_matrices, walk_of};
pub(super) use instead::{are_quicker, begins};

/// Largest number of taps that the direct kernel unrolls.
const DIRECT_TAPS: usize = 64;

/// One of the convolutions that are added up.
#[derive(Clone, Copy)]
struct Term<'a> {
    /// The operand that its input is; its weights come behind it.
    input: usize,
    window: &'a Window,
    flip: u8,
}

impl<'a> Term<'a> {
    fn all(conv: &'a Conv) -> Vec<Term<'a>> {
        conv.summands().map(|(input, window, flip)| Term { input, window, flip }).collect()
    }

    fn x(self, cx: &'a Cx) -> &'a View {
        &cx.step.inputs[self.input].view
    }

    fn weights(self) -> usize {
        self.input + 1
    }

    /// Weights of an output channel.
    fn depth(self, cx: &Cx) -> usize {
        cx.step.inputs[self.weights()].view.dims[1..].iter().product()
    }

    /// A window of one point with stride 1 over an image that is dense as a whole, and nothing but the image: its columns are the
    /// image itself. Results may reach past the image (padding at its end, phases of transposed convolutions), or not to its end.
    fn is_plain(self, cx: &Cx) -> bool {
        let (x, out) = (self.x(cx), &cx.step.output.view);
        // What has bytes around it is gathered.
        let point = self.window.is_point() && self.flip == 0;
        point && x.dims[2..] == out.dims[2..] && x.is_inner_dense(x.rank() - 2)
    }

    /// A plain image whose lines begin or end within words.
    fn is_apart(self, cx: &Cx) -> bool {
        let (x, size) = (self.x(cx), cx.dtype(Arg::Input(self.input)).size() as i64);
        let positions = x.dims[2..].iter().product::<usize>() as i64;
        self.is_plain(cx) && [x.offset, x.strides[0], x.strides[1], positions].iter().any(|n| (n * size) % 4 != 0)
    }

    /// Bytes of such an image come in words wherever these begin.
    fn is_cut(self, cx: &Cx) -> bool {
        let positions: usize = self.x(cx).dims[2..].iter().product();
        let word = loader::WORD as usize;
        self.is_apart(cx) && cx.dtype(Arg::Input(self.input)).size() == 1 && positions >= word
    }

    /// The window reaches past the input.
    fn is_padded(self, cx: &Cx) -> bool {
        (0..self.window.kernel.len()).any(|d| self.is_padded_along(cx, d))
    }

    /// So it does in a direction.
    fn is_padded_along(self, cx: &Cx, d: usize) -> bool {
        let (x, out) = (self.x(cx), &cx.step.output.view.dims[2..]);
        self.window.pads[d] > 0 || reaches_past(self.window, d, out[d], x.dims[d + 2])
    }

    /// Its windows are points, none of them outside of the input.
    fn has_points(self, cx: &Cx) -> bool {
        self.window.kernel.iter().all(|k| *k == 1) && !self.is_padded(cx)
    }

    /// How its columns are gathered.
    fn gathered(self, cx: &Cx, words: bool) -> Gathered {
        let (x, out, window) = (self.x(cx), &cx.step.output.view.dims[2..], self.window);
        let last = out.len() - 1;
        // The direction above lines, of which an image of one dimension has one.
        let above = last.checked_sub(1);
        let pitch = above.map_or(x.dims[last + 2], |d| x.strides[d + 2].unsigned_abs() as usize);
        let over = |d: usize| (window.kernel[d] - 1) * window.dilations[d] + 1;
        let reach = Reach {
            line: out[last],
            steps: [window.strides[last], above.map_or(1, |d| window.strides[d]) * pitch],
            pitch,
            window: [above.map_or(1, over), over(last)],
            taps: window.kernel[..last].iter().product::<usize>() * self.line(words)[1],
            image: out.iter().product(),
        };
        Gathered {
            table: !self.has_points(cx),
            words,
            channels: None,
            reach: (x.strides[last + 2] == 1).then_some(reach),
        }
    }

    /// Bytes of lines of its input that no window reaches.
    fn passed_over(self, cx: &Cx) -> usize {
        if self.is_plain(cx) {
            return 0;
        }
        let bytes = cx.graph.tensor(cx.step.inputs[self.input].tensor).bytes() as f64;
        self.gathered(cx, false).reach.map_or(0, |r| (bytes * (1.0 - r.share())) as usize)
    }

    fn has_constant_weights(self, cx: &Cx) -> bool {
        matches!(cx.graph.tensor(cx.step.inputs[self.weights()].tensor).role, Role::Constant(_))
    }
}

/// Positions of a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Positions {
    /// Those of an image: images are products of their own, whose last tiles may not be whole.
    Image,
    /// Those of all images, one image after the other. They are gathered, also where the window is a point.
    Images,
    /// Images of one position, whose channels are neighbours: a matrix that lies along the depth.
    Lines,
}

impl Positions {
    /// All images are in one product.
    fn merged(self) -> bool {
        self != Positions::Image
    }
}

/// So many input channels may be too many for a workitem.
const LONG: usize = 16;

/// Tiles are taken where they need so much less time: both are estimates.
const WORTH: f64 = 0.8;

/// Output channels of a group of which tiles have too many, and of which they may have.
const FEW: usize = 4;
const SOME: usize = 8;

/// Few channels of a few taps have a kernel without tiles, but for those of many input channels for which tiles are quicker; so have somewhat more of
/// groups, where tiles are not.
fn is_direct(cx: &Cx, types: Types, conv: &Conv) -> bool {
    let computed = types.compute.is_float() || types.storage == Type::I8;
    let (weights, taps) = (&cx.step.inputs[1].view, conv.window.kernel.iter().product::<usize>());
    let channels = weights.dims[0] / conv.groups;
    // Steps pass over much of what loads bring.
    let dense = conv.window.strides.iter().all(|s| *s == 1);
    let most = if conv.groups > 1 && dense { SOME } else { FEW };
    if channels > most || taps > DIRECT_TAPS || !computed || !conv.also.is_empty() {
        return false;
    }
    if channels <= FEW && (weights.dims[1] < LONG || !adds(cx, conv)) {
        return true;
    }
    if choice::is_tuned(cx.target, cx.tuning, types, &Implicit::of(cx, conv, types).extents()) && channels > FEW {
        return false;
    }
    let worth = if channels > FEW { 1.0 } else { WORTH };
    quickest(cx, types, conv).map_or(true, |(clocks, ..)| clocks > worth * direct::clocks(cx, conv))
}

/// The tile that takes least time, its clocks, and how its depth is shared.
fn quickest(cx: &Cx, types: Types, conv: &Conv) -> Res<(f64, Tile, Split)> {
    if let Some(by_channels) = ByChannels::of(cx, conv) {
        return choice::choose_among(cx.target, cx.tuning, types, &by_channels.extents(), 1, None);
    }
    let product = Implicit::of(cx, conv, types);
    let (e, least) = (product.extents(), product.least_width());
    choice::choose_among(cx.target, cx.tuning, types, &e, least, winograd::method(cx, conv))
}

/// Clocks of a convolution, about, without its launch; none where the tuning says how it is computed.
pub(super) fn clocks(cx: &Cx, conv: &Conv) -> Res<Option<f64>> {
    let types = gemm::types(cx)?;
    if let Some(by_channels) = ByChannels::of(cx, conv) {
        let tuned = choice::is_tuned(cx.target, cx.tuning, types, &by_channels.extents());
        return Ok(quickest(cx, types, conv).ok().map(|way| way.0).filter(|_| !tuned));
    }
    if is_direct(cx, types, conv) {
        return Ok(Some(direct::clocks(cx, conv)));
    }
    let tuned = choice::is_tuned(cx.target, cx.tuning, types, &Implicit::of(cx, conv, types).extents());
    Ok(quickest(cx, types, conv).ok().map(|way| way.0).filter(|_| !tuned))
}

/// Clocks of a convolution, about, and whether it is one by channels.
pub(super) fn way(cx: &Cx) -> Option<(f64, bool)> {
    let StepKind::Conv(conv) = &cx.step.kind else { return None };
    let (by_channels, types) = (ByChannels::of(cx, conv).is_some(), gemm::types(cx).ok()?);
    let in_lanes = || is_direct(cx, types, conv) || Implicit::of(cx, conv, types).image() == 1;
    let stored = if !by_channels && in_lanes() { implicit::stored_across(cx) } else { 0.0 };
    Some((clocks(cx, conv).ok()?? + stored, by_channels))
}

/// It is a convolution by channels.
pub(super) fn is_by_channels(cx: &Cx) -> bool {
    matches!(&cx.step.kind, StepKind::Conv(conv) if ByChannels::of(cx, conv).is_some())
}

/// The tiles that are considered for it.
pub(super) fn candidates(cx: &Cx, conv: &Conv) -> Res<Option<Considered>> {
    let types = gemm::types(cx)?;
    if let Some(by_channels) = ByChannels::of(cx, conv) {
        return Ok(Some(choice::candidates(cx.target, types, &by_channels.extents(), 1, None)));
    }
    if is_direct(cx, types, conv) {
        return Ok(None);
    }
    let product = Implicit::of(cx, conv, types);
    let (e, least) = (product.extents(), product.least_width());
    Ok(Some(choice::candidates(cx.target, types, &e, least, winograd::method(cx, conv))))
}

/// What the kernel computes can be added up in it: the gather's masks have a bit for each coordinate of a window, and nothing is
/// walked backwards.
pub(super) fn adds(cx: &Cx, conv: &Conv) -> bool {
    let gathers = |t: &Term| t.window.kernel.iter().sum::<usize>() <= 31;
    let forward = |t: &Term| t.x(cx).strides.iter().all(|s| *s >= 0);
    Term::all(conv).iter().all(|t| forward(t) && (t.is_plain(cx) || gathers(t)))
}

pub(super) fn lower(cx: &Cx, conv: &Conv) -> Res<Vec<Kernel>> {
    let groups = conv.groups;
    let types = gemm::types(cx)?;
    if let Some(by_channels) = ByChannels::of(cx, conv) {
        return by_channels.lower(types);
    }
    if is_direct(cx, types, conv) {
        let planar = planar::planar(cx.step, conv);
        let of_planes = planar.as_ref().map(|(step, _)| Cx { step, ..*cx });
        let (cx, conv) = (of_planes.as_ref().unwrap_or(cx), planar.as_ref().map_or(conv, |found| &found.1));
        return pool::depthwise(cx, conv).unwrap_or_else(|| direct::lower(cx, conv));
    }
    let implicit = Implicit::of(cx, conv, types);
    let extents = implicit.extents();
    let channels = cx.step.output.view.dims[1] / groups;
    let terms = Term::all(conv);
    for t in &terms {
        if t.x(cx).strides.iter().any(|s| *s < 0) {
            return Err(Reason::Backwards(t.input));
        }
        if !t.is_plain(cx) && t.window.kernel.iter().sum::<usize>() > 31 {
            return Err(Reason::Window(t.window.kernel.clone()));
        }
    }
    let (_, tile, split) = quickest(cx, types, conv)?;
    if let Form::Winograd { .. } = tile.form {
        return winograd::lower(cx, conv, &tile, &split);
    }
    let mut w = cx.kernel(tile.threads());
    let (z, part) = split::part(&mut w, &split);
    let (image, group) = w.b.divmod(z, groups as u32);
    let first = split::first(&mut w, &tile, &split);
    let image = (!implicit.merged()).then_some(image);
    let in_words = extents.gathered.is_some_and(|g| g.words);
    let place = Place { tile: &tile, product: &implicit, image, group, groups, first, in_words };
    let outer = |w: &mut Writer, view: &View, size: usize| implicit.outer(w, view, size, (image, group));
    let (results, walk) = (implicit.results(), implicit.walk());
    if let Form::Sliced(form) = tile.form {
        let depth = terms[0].depth(cx);
        let (weights, _) = weight_source(&mut w, cx, &place, terms[0], part, channels, depth)?;
        let start = place.start(&mut w, cx, terms[0]);
        let image = place.image_source(&mut w, cx, terms[0], part, (start, depth))?;
        let sums = form.multiply(&mut w, &tile, (weights, image), part.split.chunk)?;
        let product = Product { tile: &tile, sums, walk, first, z, extents, finish: None, rows: None, done: None };
        return split::store(w, &results, product, part, outer);
    }
    let depth: usize = terms.iter().map(|t| t.depth(cx)).sum();
    let mut sums = None;
    for (i, term) in terms.iter().enumerate() {
        if i > 0 {
            // All have read the last tiles of the one before.
            w.b.barrier();
        }
        let part = if terms.len() > 1 { part.of(&mut w.b, term.depth(cx), &tile) } else { part };
        let (weights, mut image) = place.loaders(&mut w, cx, *term, part, channels)?;
        if let Some(before) = &conv.before {
            let (dtype, mut operands) = (cx.dtype(Arg::Input(0)), Vec::new());
            for i in 2..2 + before.operands {
                let start = (cx.step.inputs[i].view.offset as usize * dtype.size()) as u32;
                operands.push((i as u32, w.buffer(cx, Arg::Input(i))?, start));
            }
            image.begin_with(&mut w.b, (&before.expr, dtype), operands)?;
        }
        let [a, b] = implicit.in_order(weights, image);
        let mut ops = Operands { a, b, words: [None, None] };
        let sums = sums.get_or_insert_with(|| gemm::zeros(&mut w.b, &tile));
        gemm::multiply_into(&mut w, &tile, &mut ops, part.split.chunk, sums)?;
    }
    let sums = sums.ok_or(Reason::Malformed("a sum of no convolutions"))?;
    regroup::free(&mut w.b, &tile);
    let product = Product { tile: &tile, sums, walk, first, z, extents, finish: None, rows: None, done: None };
    let mut kernels = split::store(w, &results, product, part, outer)?;
    // What words have between lines of windows is nobody's.
    let flops = 2 * (extents.batches * extents.m * extents.n * depth) as u64;
    kernels.iter_mut().filter(|k| k.flops > 0).for_each(|k| k.flops = flops);
    Ok(kernels)
}

/// What a workgroup multiplies.
struct Place<'a> {
    tile: &'a Tile,
    product: &'a Implicit<'a>,
    /// The image, where it is one.
    image: Option<Part>,
    group: Part,
    groups: usize,
    /// First row and column.
    first: (Part, Part),
    /// Lines of windows come in words.
    in_words: bool,
}

impl Place<'_> {
    /// How wide the tile is along positions, and the first of these.
    fn of_image(&self) -> (u32, Part) {
        self.along(self.product.image())
    }

    /// The same along output channels.
    fn of_weights(&self) -> (u32, Part) {
        self.along(1 - self.product.image())
    }

    fn along(&self, operand: usize) -> (u32, Part) {
        [(self.tile.m, self.first.0), (self.tile.n, self.first.1)][operand]
    }

    /// Where the image and group begin in the input.
    fn start(&self, w: &mut Writer, cx: &Cx, term: Term) -> Part {
        let x = term.x(cx);
        let size = cx.dtype(Arg::Input(term.input)).size();
        let inputs = cx.step.inputs[term.weights()].view.dims[1];
        let per_group = (inputs as i64 * x.strides[1] * size as i64) as u32;
        let start = match self.image {
            Some(image) => w.b.mul(image, (x.strides[0] * size as i64) as u32),
            None => w.b.scalar(0),
        };
        w.b.mad(self.group, per_group, start)
    }

    /// An image that is an operand as it is.
    fn image_source(
        &self,
        w: &mut Writer,
        cx: &Cx,
        term: Term,
        part: DepthPart,
        (start, depth): (Part, usize),
    ) -> Res<Source> {
        let x = term.x(cx);
        let size = cx.dtype(Arg::Input(term.input)).size();
        let positions: usize = x.dims[2..].iter().product();
        let bytes = ((depth as i64 - 1) * x.strides[1]) as usize * size + positions * size;
        let (width, first) = self.of_image();
        Ok(Source {
            each: 1,
            buf: w.buffer(cx, Arg::Input(term.input))?,
            base: (x.offset as usize * size) as u32,
            scalar: Some(start),
            first,
            k_stride: x.strides[1] as u32,
            w_stride: 1,
            depth: depth as u32,
            part,
            aligned: [x.offset, x.strides[0], x.strides[1]].iter().all(|n| (n * size as i64) % 4 == 0),
            end: (!positions.is_multiple_of(width as usize)).then_some(bytes as u32),
            columns: term.is_cut(cx).then_some(positions as u32),
        })
    }

    /// The loaders of a convolution: of its weights, and of its image.
    fn loaders(&self, w: &mut Writer, cx: &Cx, term: Term, part: DepthPart, channels: usize) -> Res<(Loader, Loader)> {
        let (x, depth) = (term.x(cx), term.depth_of(cx, self.in_words));
        let size = cx.dtype(Arg::Input(term.input)).size();
        let weights = weight_loader(w, cx, self, term, part, channels, depth)?;
        let start = self.start(w, cx, term);
        if self.product.gathers() || !term.is_plain(cx) {
            return Ok((weights, gather_loader(w, cx, self, part, term, start, depth)?));
        }
        let (width, first) = self.of_image();
        if self.product.has_lines_of_positions() {
            let src = Source {
                each: 1,
                buf: w.buffer(cx, Arg::Input(term.input))?,
                base: (x.offset as usize * size) as u32,
                scalar: Some(start),
                first,
                k_stride: 1,
                w_stride: x.strides[0] as u32,
                depth: depth as u32,
                part,
                aligned: [x.offset, x.strides[0]].iter().all(|n| (n * size as i64) % 4 == 0),
                // Images are all that there is.
                end: None,
                columns: None,
            };
            let item = w.b.workitem_id();
            return Ok((weights, loader::dense(&mut w.b, src, self.tile, width, depth, item)));
        }
        let src = self.image_source(w, cx, term, part, (start, depth))?;
        let item = w.b.workitem_id();
        let image = match src.columns {
            Some(_) => loader::dense_together(&mut w.b, src, self.tile, (width, Order::PLAIN), loader::WORD, item),
            None => {
                let positions = cx.step.output.view.dims[2..].iter().product();
                loader::dense(&mut w.b, src, self.tile, width, positions, item)
            }
        };
        Ok((weights, image))
    }
}

fn weight_loader(
    w: &mut Writer,
    cx: &Cx,
    place: &Place,
    term: Term,
    part: DepthPart,
    channels: usize,
    depth: usize,
) -> Res<Loader> {
    let (src, line) = weight_source(w, cx, place, term, part, channels, depth)?;
    let item = w.b.workitem_id();
    Ok(loader::dense(&mut w.b, src, place.tile, place.of_weights().0, line, item))
}

/// Where weights are, and the extent of the direction in which they are dense.
fn weight_source(
    w: &mut Writer,
    cx: &Cx,
    place: &Place,
    term: Term,
    part: DepthPart,
    channels: usize,
    depth: usize,
) -> Res<(Source, usize)> {
    let &Place { tile, group, groups, .. } = place;
    let (width, first) = place.of_weights();
    let operand = term.weights();
    let size = cx.dtype(Arg::Input(operand)).size();
    let offset_of_group = |w: &mut Writer, elements: usize| Some(w.b.mul(group, (elements * size) as u32));
    // Into the next group's.
    let reaches = groups > 1 && !channels.is_multiple_of(width as usize);
    Ok(if term.has_constant_weights(cx) {
        let rows = part.split.span() as usize;
        // Dense along what the tile's cells are dense along.
        let along_k = tile.run > 1;
        let (lines, pitch) = if along_k { (channels, rows) } else { (rows, channels.next_multiple_of(4)) };
        let together = term.line(place.in_words);
        let by_taps = false;
        let packing =
            Packing { operand, groups, channels, taps: depth, together, lines, pitch, along_k, by_taps, size };
        let buf = w.blob(Blob::Weights(packing));
        let scalar = offset_of_group(w, lines * pitch);
        let end = reaches.then_some((lines * pitch * size) as u32);
        let (k_stride, w_stride) = if along_k { (1, pitch as u32) } else { (pitch as u32, 1) };
        (
            Source {
                each: 1,
                buf,
                base: 0,
                scalar,
                first,
                k_stride,
                w_stride,
                depth: rows as u32,
                part,
                aligned: true,
                end,
                columns: None,
            },
            pitch,
        )
    } else {
        let buf = w.buffer(cx, Arg::Input(operand))?;
        let scalar = offset_of_group(w, channels * depth);
        let base = (cx.step.inputs[operand].view.offset as usize * size) as u32;
        let aligned = [base as usize, depth * size].iter().all(|n| n.is_multiple_of(4));
        let (w_stride, of) = (depth as u32, depth as u32);
        let end = reaches.then_some((channels * depth * size) as u32);
        let source = Source {
            each: 1,
            buf,
            base,
            scalar,
            first,
            k_stride: 1,
            w_stride,
            depth: of,
            part,
            aligned,
            end,
            columns: None,
        };
        (source, depth)
    })
}
