//! Convolution as a matrix product: rows are output channels of a group, columns output positions of an image or of all of
//! them ([`Columns`]), the depth runs over input channels and window taps.
//!
//! Constant weights are repacked at compile time so that a row of the tile is dense ([`Blob::Weights`]), along k for
//! matrix instructions. The input's
//! columns are read directly where the window is a single point with stride 1; otherwise they are gathered: a table
//! gives for each k the byte offset of its element relative to the window's corner and a mask with one bit for its
//! coordinate in each window dimension. A workitem computes once which window coordinates fall inside the input for
//! its column, so testing a tap is one `and` and one compare. Few output channels per group go to the direct kernel.
//!
//! Convolutions that are added up are multiplied one after the other into the same sums, each with a loader and a loop of its
//! own; where the depth is shared among workgroups each sums its part of every one of them.

mod channels;
mod instead;
mod planar;
mod words;

use super::choice::{self, Considered, Extents, Gathered, Reach, Split, Together};
use super::error::{Reason, Res};
use super::gemm::{self, Operands, Walk};
use super::loader::{self, GatherSource, Loader, Source};
use super::regroup;
use super::split::{self, DepthPart, Product};
use super::tile::{Form, Order, Tile, Types};
use super::{Arg, Blob, Cx, Kernel, Packing, Writer, address, direct, epilogue, pool, winograd};
use crate::graph::fused::{Conv, Role, StepKind, Window};
use crate::graph::view::View;
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Type};
use barewave_isa::matrix::Layout;
use barewave_isa::op;
use channels::ByChannels;
pub(super) use channels::takes as comes_by_channels;
pub(super) use instead::{are_quicker, begins};
use words::{Words, word_table};

/// Mask bit of table entries behind the end of k: no column has it.
const NEVER: u32 = 1 << 31;

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

/// What the columns of the product are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Columns {
    /// Positions of an image: images are products of their own, whose last tiles may not be whole.
    Image,
    /// Positions of all images, one image after the other. They are gathered, also where the window is a point.
    Images,
    /// Images of one position, whose channels are neighbours: a matrix that lies along the depth.
    Lines,
}

impl Columns {
    /// All images are in one product.
    fn merged(self) -> bool {
        self != Columns::Image
    }

    /// What they are best.
    fn of(cx: &Cx, conv: &Conv, types: Types) -> Columns {
        let (out, terms) = (&cx.step.output.view, Term::all(conv));
        if out.dims[0] == 1 || conv.before.is_some() {
            return Columns::Image;
        }
        if !terms.iter().all(|t| t.is_plain(cx)) {
            return Columns::Images;
        }
        let line = |t: &Term| t.x(cx).dims[2..].iter().all(|d| *d == 1) && t.x(cx).strides[1] == 1;
        if conv.groups == 1 && terms.iter().all(line) {
            return Columns::Lines;
        }
        // An image's columns cost less to load than those that are gathered.
        let clocks = |columns: Columns| {
            let (e, least) = (columns.extents(cx, conv), columns.least_width(cx, conv));
            choice::candidates(cx.target, types, &e, least, None).candidates.first().map_or(f64::MAX, |c| c.clocks)
        };
        if clocks(Columns::Images) < WORTH_MERGING * clocks(Columns::Image) { Columns::Images } else { Columns::Image }
    }

    /// The image is the right operand as it is, with lines of whole words: what [`Extents::lines`] asks for, since weights are packed.
    fn has_lines(self, cx: &Cx, conv: &Conv) -> bool {
        let [term] = Term::all(conv)[..] else { return false };
        let (x, size) = (term.x(cx), cx.dtype(Arg::Input(term.input)).size() as i64);
        let positions: usize = x.dims[2..].iter().product();
        let words = [x.offset, x.strides[0], x.strides[1]].iter().all(|n| *n >= 0 && (n * size) % 4 == 0);
        let plain = self == Columns::Image && term.is_plain(cx) && conv.before.is_none() && x.strides[1] > 1;
        plain && words && positions.is_multiple_of(4) && term.has_constant_weights(cx)
    }

    /// An image is the right operand as it is, with lines that begin or end within words: its elements are loaded one by one, but for bytes.
    fn comes_apart(self, cx: &Cx, conv: &Conv) -> bool {
        self == Columns::Image && Term::all(conv).into_iter().any(|t| t.is_apart(cx) && !t.is_cut(cx))
    }

    /// How results are walked, of so many channels of a group.
    fn walk(self, cx: &Cx, rows: usize) -> Walk {
        let rank = cx.step.output.view.rank();
        match self.merged() {
            true => Walk { m_dim: 0, rows, n_dims: 1..rank, swapped: true, positions: None },
            false => Walk { m_dim: 1, rows, n_dims: 2..rank, swapped: false, positions: None },
        }
    }

    /// The convolution as a product: with lines of windows in words, where that is quicker.
    fn extents(self, cx: &Cx, conv: &Conv) -> Extents {
        let bytes = self.extents_of(cx, conv, false);
        let ([term], Ok(types)) = (&Term::all(conv)[..], gemm::types(cx)) else { return bytes };
        let least = self.least_width(cx, conv);
        if least == 1 || conv.before.is_some() || !term.may_come_in_words(cx, types) {
            return bytes;
        }
        let words = self.extents_of(cx, conv, true);
        let clocks = |e: &Extents| {
            choice::candidates(cx.target, types, e, least, None).candidates.first().map_or(f64::MAX, |c| c.clocks)
        };
        if clocks(&words) < WORTH_WORDS * clocks(&bytes) { words } else { bytes }
    }

    fn extents_of(self, cx: &Cx, conv: &Conv, in_words: bool) -> Extents {
        let (out, groups) = (&cx.step.output.view, conv.groups);
        let terms = Term::all(conv);
        let k = terms.iter().map(|t| t.depth_of(cx, in_words)).sum();
        let constant = terms[0].has_constant_weights(cx);
        let (images, positions) = (out.dims[0], out.dims[2..].iter().product::<usize>());
        let (batches, n) = if self.merged() { (1, images * positions) } else { (images, positions) };
        // Where images are gathered from, lanes are beside each other wherever that is.
        let pitch = match self {
            Columns::Lines => k,
            _ if self.least_width(cx, conv) == 1 => positions,
            _ => 0,
        };
        Extents {
            batches: batches * groups,
            m: out.dims[1] / groups,
            n,
            k,
            bytes: gemm::operand_bytes(cx, terms.len()) + terms[0].between_lines(cx, in_words)
                - terms.iter().map(|t| t.passed_over(cx)).sum::<usize>(),
            stored: cx.dtype(Arg::Output).size(),
            expression: epilogue::clocks(cx),
            deep: (k > 1 && (!constant || cx.dtype(Arg::Input(1)).size() < 4), self == Columns::Lines && k > 1),
            pitch: [k, pitch],
            bands: false,
            shares: false,
            apart: gemm::stores_apart(cx, &self.walk(cx, out.dims[1] / groups)),
            in_rows: gemm::stores_together(cx, &self.walk(cx, out.dims[1] / groups)),
            transposed: [false; 2],
            straight: false,
            loads: [Together::ANY, if self.comes_apart(cx, conv) { Together::ONE } else { Together::ANY }],
            sparse: None,
            scaled: false,
            few: false,
            lines: self.has_lines(cx, conv),
            gathered: (self.least_width(cx, conv) > 1).then(|| terms[0].gathered(cx, in_words)),
            pairs: false,
        }
    }

    /// The least width of a tile: gathering loaders need whole wavefronts.
    fn least_width(self, cx: &Cx, conv: &Conv) -> u32 {
        let dense = self != Columns::Images && Term::all(conv).iter().all(|t| t.is_plain(cx));
        if dense { 1 } else { cx.target.info().wave_size }
    }
}

/// Images are put together where that takes so much less: both are estimates, and their lines are no longer whole.
const WORTH_MERGING: f64 = 0.97;

/// Bytes come in words where that takes so much less: of 34 convolutions on nine targets 5% less in the geometric mean, at most a tenth longer.
const WORTH_WORDS: f64 = 0.9;

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
    if choice::is_tuned(cx.target, cx.tuning, types, &Columns::of(cx, conv, types).extents(cx, conv)) && channels > FEW
    {
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
    let columns = Columns::of(cx, conv, types);
    let (e, least) = (columns.extents(cx, conv), columns.least_width(cx, conv));
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
    let tuned = choice::is_tuned(cx.target, cx.tuning, types, &Columns::of(cx, conv, types).extents(cx, conv));
    Ok(quickest(cx, types, conv).ok().map(|way| way.0).filter(|_| !tuned))
}

/// Clocks of a compute unit for a result that lies beside those of other channels while neighbouring lanes have those of other positions: what storing 12.8 million so
/// takes longer by the cycle model, of RDNA before 4, of RDNA 4 and what has accumulation registers, and of others.
const STORED_ACROSS: [f64; 3] = [3.0, 0.2, 1.0];

/// Clocks of a convolution, about, and whether it is one by channels.
pub(super) fn way(cx: &Cx) -> Option<(f64, bool)> {
    let StepKind::Conv(conv) = &cx.step.kind else { return None };
    let by_channels = ByChannels::of(cx, conv).is_some();
    let out = &cx.step.output.view;
    let across = !by_channels && out.strides[1] == 1 && out.dims[1] > 1;
    let info = cx.target.info();
    let each = match info.wmma {
        Some(Layout::Wmma12) => STORED_ACROSS[1],
        None if info.max_agprs > 0 => STORED_ACROSS[1],
        _ if info.wave_size == 32 => STORED_ACROSS[0],
        _ => STORED_ACROSS[2],
    };
    let stored = if across { each * out.len() as f64 / f64::from(cx.target.cus()) } else { 0.0 };
    Some((clocks(cx, conv).ok()?? + stored, by_channels))
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
    let columns = Columns::of(cx, conv, types);
    let (e, least) = (columns.extents(cx, conv), columns.least_width(cx, conv));
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
    let columns = Columns::of(cx, conv, types);
    let extents = columns.extents(cx, conv);
    let channels = extents.m;
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
    let image = (!columns.merged()).then_some(image);
    let in_words = extents.gathered.is_some_and(|g| g.words);
    let place = Place { tile: &tile, columns, image, group, groups, first, in_words };
    let outer = |w: &mut Writer, view: &View, size: usize| outer_offset(w, view, size, image, group, channels);
    let walk = columns.walk(cx, channels);
    if let Form::Sliced(form) = tile.form {
        let depth = terms[0].depth(cx);
        let (weights, _) = weight_source(&mut w, cx, &place, terms[0], part, channels, depth)?;
        let start = place.start(&mut w, cx, terms[0]);
        let image = place.image_source(&mut w, cx, terms[0], part, (start, depth))?;
        let sums = form.multiply(&mut w, &tile, (weights, image), part.split.chunk)?;
        let product = Product { tile: &tile, sums, walk, first, z, extents, finish: None, rows: None, done: None };
        return split::store(w, cx, product, part, outer);
    }
    let depth: usize = terms.iter().map(|t| t.depth(cx)).sum();
    let mut sums = None;
    for (i, term) in terms.iter().enumerate() {
        if i > 0 {
            // All have read the last tiles of the one before.
            w.b.barrier();
        }
        let part = if terms.len() > 1 { part.of(&mut w.b, term.depth(cx), &tile) } else { part };
        let mut ops = place.operands(&mut w, cx, *term, part, channels)?;
        if let Some(before) = &conv.before {
            let (dtype, mut operands) = (cx.dtype(Arg::Input(0)), Vec::new());
            for i in 2..2 + before.operands {
                let start = (cx.step.inputs[i].view.offset as usize * dtype.size()) as u32;
                operands.push((i as u32, w.buffer(cx, Arg::Input(i))?, start));
            }
            ops.b.begin_with(&mut w.b, (&before.expr, dtype), operands)?;
        }
        let sums = sums.get_or_insert_with(|| gemm::zeros(&mut w.b, &tile));
        gemm::multiply_into(&mut w, &tile, &mut ops, part.split.chunk, sums)?;
    }
    let sums = sums.ok_or(Reason::Malformed("a sum of no convolutions"))?;
    regroup::free(&mut w.b, &tile);
    let product = Product { tile: &tile, sums, walk, first, z, extents, finish: None, rows: None, done: None };
    let mut kernels = split::store(w, cx, product, part, outer)?;
    // What words have between lines of windows is nobody's.
    let flops = 2 * (extents.batches * extents.m * extents.n * depth) as u64;
    kernels.iter_mut().filter(|k| k.flops > 0).for_each(|k| k.flops = flops);
    Ok(kernels)
}

/// What a workgroup multiplies.
struct Place<'a> {
    tile: &'a Tile,
    columns: Columns,
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

    /// An image that is the right operand as it is.
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
        Ok(Source {
            each: 1,
            buf: w.buffer(cx, Arg::Input(term.input))?,
            base: (x.offset as usize * size) as u32,
            scalar: Some(start),
            first: self.first.1,
            k_stride: x.strides[1] as u32,
            w_stride: 1,
            depth: depth as u32,
            part,
            aligned: [x.offset, x.strides[0], x.strides[1]].iter().all(|n| (n * size as i64) % 4 == 0),
            end: (!positions.is_multiple_of(self.tile.n as usize)).then_some(bytes as u32),
            columns: term.is_cut(cx).then_some(positions as u32),
        })
    }

    /// The loaders of a convolution.
    fn operands(&self, w: &mut Writer, cx: &Cx, term: Term, part: DepthPart, channels: usize) -> Res<Operands> {
        let (x, depth) = (term.x(cx), term.depth_of(cx, self.in_words));
        let n = &cx.step.output.view.dims[2..];
        let size = cx.dtype(Arg::Input(term.input)).size();
        let a = weight_loader(w, cx, self, term, part, channels, depth)?;
        let start = self.start(w, cx, term);
        if self.columns == Columns::Images || !term.is_plain(cx) {
            let b = gather_loader(w, cx, self, part, term, start, depth)?;
            return Ok(Operands { a, b, words: [None, None] });
        }
        if self.columns == Columns::Lines {
            let src = Source {
                each: 1,
                buf: w.buffer(cx, Arg::Input(term.input))?,
                base: (x.offset as usize * size) as u32,
                scalar: Some(start),
                first: self.first.1,
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
            let b = loader::dense(&mut w.b, src, self.tile, self.tile.n, depth, item);
            return Ok(Operands { a, b, words: [None, None] });
        }
        let src = self.image_source(w, cx, term, part, (start, depth))?;
        let item = w.b.workitem_id();
        let b = match src.columns {
            Some(_) => {
                let width = (self.tile.n, Order::PLAIN);
                loader::dense_together(&mut w.b, src, self.tile, width, loader::WORD, item)
            }
            None => loader::dense(&mut w.b, src, self.tile, self.tile.n, n.iter().product(), item),
        };
        Ok(Operands { a, b, words: [None, None] })
    }
}

/// Offset of an access from image and group.
fn outer_offset(
    w: &mut Writer,
    view: &View,
    size: usize,
    image: Option<Part>,
    group: Part,
    channels: usize,
) -> address::Offset {
    let mut outer = view.clone();
    outer.dims = vec![view.dims[0], view.dims[1] / channels];
    outer.strides = vec![view.strides[0], view.strides[1] * channels as i64];
    let coords = [image.filter(|_| outer.dims[0] > 1), (outer.dims[1] > 1).then_some(group)];
    address::offset(&mut w.b, &outer, size, &coords)
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
    Ok(loader::dense(&mut w.b, src, place.tile, place.tile.m, line, item))
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
    let &Place { tile, group, groups, first: (first, _), .. } = place;
    let operand = term.weights();
    let size = cx.dtype(Arg::Input(operand)).size();
    let offset_of_group = |w: &mut Writer, elements: usize| Some(w.b.mul(group, (elements * size) as u32));
    // Into the next group's.
    let reaches = groups > 1 && !channels.is_multiple_of(tile.m as usize);
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

fn gather_loader(
    w: &mut Writer,
    cx: &Cx,
    place: &Place,
    part: DepthPart,
    term: Term,
    start: Part,
    depth: usize,
) -> Res<Loader> {
    let &Place { tile, columns: kind, first: (_, first), in_words, .. } = place;
    let (window, x, input) = (term.window, term.x(cx), Arg::Input(term.input));
    let out_dims = &cx.step.output.view.dims[2..];
    let n = out_dims.len();
    let size = i64::from(tile.types.stored_bytes());
    // What is beside a line of the input comes as zeros where words are put in place.
    let outer = if in_words { n - 1 } else { n };
    let masked = (0..outer).any(|d| term.is_padded_along(cx, d)) || depth != part.split.span() as usize;
    // The window's corner may lie before the input. Shifting the buffer's base back by as much keeps all offsets
    // positive; what lies before the tensor is masked out and never read.
    let shift: i64 = (0..outer).map(|d| window.pads[d] as i64 * x.strides[d + 2] * size).sum();
    let buf = w.buffer(cx, input)?;
    let buf = shifted(w, buf, shift as u32, cx.reach(input) as u32);
    let along = if !masked && term.has_points(cx) {
        loader::Depth::Even((x.strides[1] * size) as u32)
    } else {
        // Reads ahead of the end may touch two tiles more.
        let rows = (part.split.span() + 2 * tile.k) as usize;
        let table =
            if in_words { word_table(window, x, depth, rows) } else { offset_table(window, x, size, depth, rows) };
        loader::Depth::Table(w.blob(Blob::Data(table)))
    };
    let item = w.b.workitem_id();
    let (cols, _) = loader::gather_shape(tile);
    let (mut columns, mut valid, mut selectors) = (Vec::new(), Vec::new(), Vec::new());
    let lane = w.b.umod(item, tile.threads().min(tile.n));
    let words = in_words.then(|| Words::of(w, term, tile, item));
    for c in 0..cols {
        let at = w.b.add(first, lane);
        let at = if c > 0 { w.b.add(at, c * tile.threads()) } else { at };
        // The image's number, where there are several, and the position in it.
        let images = if kind.merged() { x.dims[0] } else { 1 };
        let mut corner = View { offset: 0, dims: [&[images], out_dims].concat(), strides: vec![x.strides[0]] };
        corner.strides.extend((0..n).map(|d| x.strides[d + 2] * window.strides[d] as i64));
        let coords = address::coordinates(&mut w.b, at, &corner.dims);
        if in_words {
            // Lines have places of their own.
            corner.strides[n] = 0;
        }
        let offset = address::offset(&mut w.b, &corner, size as usize, &coords);
        let offset = offset.vector(&mut w.b);
        match &words {
            Some(words) => {
                for (place, selector) in words.places(w, term, coords[n], x.dims[n + 1]) {
                    columns.push(w.b.add(offset, place));
                    selectors.push(selector);
                }
            }
            None => columns.push(offset),
        }
        if masked {
            valid.push(valid_taps(&mut w.b, window, &coords[1..outer + 1], &x.dims[2..]));
        }
    }
    let scalar = w.b.add(start, (x.offset * size) as u32);
    let src = GatherSource { buf, scalar, depth: along, part, columns, selectors, valid, flip: term.flip };
    Ok(loader::gather(&mut w.b, src, tile, item))
}

/// True when some tap of the last output position lies behind the input.
fn reaches_past(window: &Window, d: usize, out: usize, input: usize) -> bool {
    (out - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d] >= input + window.pads[d]
}

/// The buffer with its base moved back by `shift` bytes.
fn shifted(w: &mut Writer, buf: Buffer, shift: u32, bytes: u32) -> Buffer {
    if shift == 0 {
        return buf;
    }
    let desc = w.b.s(4);
    let at = |i: u8| -> Opnd { buf.desc.dword(i).into() };
    w.b.emit(op::S_SUB_U32, &[desc.dword(0).into()], &[at(0), shift.into()]);
    w.b.emit(op::S_SUBB_U32, &[desc.dword(1).into()], &[at(1), 0u32.into()]);
    w.b.copy_into(desc.dword(2), bytes + shift);
    w.b.copy_into(desc.dword(3), at(3));
    Buffer { desc, memory: buf.memory }
}

/// Bit numbers of the window coordinates: dimension d begins at the sum of the extents before it.
fn first_bit(window: &Window, d: usize) -> usize {
    window.kernel[..d].iter().sum()
}

/// Byte offset and coordinate mask of every k, and of what lies behind the depth: `rows` in all.
fn offset_table(window: &Window, x: &View, size: i64, depth: usize, rows: usize) -> Vec<u8> {
    let taps: usize = window.kernel.iter().product();
    let mut table = Vec::with_capacity(rows * 8);
    for k in 0..rows {
        let (mut offset, mut mask) = (0i64, NEVER);
        if k < depth {
            let (channel, mut tap) = (k / taps, k % taps);
            offset = channel as i64 * x.strides[1];
            mask = 0;
            for d in (0..window.kernel.len()).rev() {
                let at = tap % window.kernel[d];
                tap /= window.kernel[d];
                offset += (at * window.dilations[d]) as i64 * x.strides[d + 2];
                mask |= 1 << (first_bit(window, d) + at);
            }
        }
        table.extend_from_slice(&((offset * size) as u32).to_le_bytes());
        table.extend_from_slice(&mask.to_le_bytes());
    }
    table
}

/// For a column: which window coordinates lie inside the input, in each dimension.
fn valid_taps(b: &mut Builder, window: &Window, coords: &[Option<Part>], input: &[usize]) -> Part {
    let bits = b.to_vector(0u32);
    for (d, c) in coords.iter().enumerate() {
        let corner = match c {
            Some(c) => b.mul(*c, window.strides[d] as u32),
            None => b.to_vector(0u32),
        };
        for k in 0..window.kernel[d] {
            let delta = (k * window.dilations[d]) as i32 - window.pads[d] as i32;
            let at = if delta != 0 { b.add(corner, delta) } else { corner };
            let inside = b.op(Gen::CmpGt.of(Type::U32), &[(input[d] as u32).into(), at.into()]);
            let bit = b.to_vector(1u32 << (first_bit(window, d) + k));
            let zero = b.to_vector(0u32);
            let set = b.select(inside, bit, zero);
            b.emit(Gen::Or.of(Type::U32), &[bits.into()], &[bits.into(), set.into()]);
        }
    }
    bits
}
