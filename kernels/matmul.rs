//! Matrix products: both operands through the dense loaders, one workgroup per tile and batch.

use super::address::Offset;
use super::choice::{self, Considered, Extents, Split, Together};
use super::divided;
use super::error::{Reason, Res};
use super::gemm::{self, Operands, Walk};
use super::loader::tally::Tally;
use super::loader::{self, Loader, Source};
use super::matrix::{self, MatrixForm};
use super::normed::Finish;
use super::regroup;
use super::split::{self, DepthPart, Known, Product};
use super::standardized::Rows;
use super::tile::{Form, Tile, WIDEST};
use super::{Arg, Cx, Kernel, Writer, address, epilogue};
use crate::graph::fused::{Scaled, Sparse, StepKind};
use crate::graph::view::View;
use crate::mir::Part;
use crate::tensor::DType;
use barewave_isa::Target;

/// There are instructions for a product of integers of 4 bits as they are.
pub(super) fn takes_nibbles(cx: &Cx) -> bool {
    gemm::types(cx).is_ok()
}

/// The product's extents.
pub(super) fn extents(cx: &Cx) -> Extents {
    let out = &cx.step.output.view;
    let r = out.rank();
    let sparse = sparse(cx);
    let operands = &cx.step.inputs[..cx.step.kind.operands()];
    let k = sparse.map_or(cx.step.inputs[0].view.dims[r - 1], |s| s.depth);
    let of_column = cx.step.kind.of_column();
    let (m, n) = (out.dims[r - 2], out.dims[r - 1] * of_column);
    let [a, b] = [0, 1].map(|i| &cx.step.inputs[i].view.strides);
    let deep = [a[r - 1] == 1 && a[r - 2] != 1, b[r - 2] == 1 && b[r - 1] != 1];
    // What a round takes of cells lies together.
    let [left, right] = [0, 1].map(|i| deep[i] && sparse.is_none_or(|s| s.side != i));
    let deep = (left, right);
    let along = [(r - 1, r - 2), (r - 2, r - 1)];
    let whole = sparse.is_none() && [0, 1].iter().all(|i| has_whole_lines(cx, *i, along[*i]));
    let transposed = [0, 1].map(|i| whole && ![left, right][i] && comes_transposed(cx, i, along[i]));
    Extents {
        batches: out.dims[..r - 2].iter().product(),
        m,
        n,
        k,
        bytes: operands.iter().map(|a| cx.graph.tensor(a.tensor).bytes()).sum(),
        stored: cx.dtype(Arg::Output).size().div_ceil(of_column),
        expression: epilogue::clocks(cx) / of_column as f64,
        deep,
        pitch: [0, 1].map(|i| pitch(cx, i, along[i], [left, right][i])),
        bands: true,
        shares: true,
        apart: of_column == 1 && gemm::stores_apart(cx, &walk(r, m)),
        in_rows: gemm::stores_together(cx, &walk(r, m)),
        sparse: sparse.map(|s| s.side),
        transposed,
        straight: whole && (0..2).all(|i| !is_beside_results(cx, i, along[i])),
        loads: [0, 1].map(|i| loads(cx, i, along[i], k)),
        scaled: scaled(cx).is_some(),
        image: 1,
        gathered: None,
        pairs: of_column > 1,
        few: sparse.is_none() && scaled(cx).is_none(),
        lines: along.into_iter().enumerate().all(|(i, along)| has_lines(cx, i, along)),
    }
}

/// What a load takes of an operand of narrow elements.
fn loads(cx: &Cx, number: usize, along: (usize, usize), depth: usize) -> Together {
    let bytes = cx.dtype(Arg::Input(number)).size() as u32;
    match Operand::new(cx, number, along, depth) {
        Ok(o) if bytes < 4 => {
            let [within, to_the_end] = [true, false].map(|anywhere| o.together(cx, (bytes, true), depth, anywhere));
            Together { within, to_the_end }
        }
        _ => Together::ANY,
    }
}

/// See [`Extents::pitch`]; of a sparse operand, in cells, all loads are whole.
fn pitch(cx: &Cx, number: usize, along: (usize, usize), deep: bool) -> usize {
    let view = &cx.step.inputs[number].view;
    let pitch = view.strides.get(if deep { along.1 } else { along.0 });
    pitch.and_then(|p| usize::try_from(*p).ok()).filter(|_| sparse(cx).is_none_or(|s| s.side != number)).unwrap_or(0)
}

/// The same where what comes behind it counts the workgroups of a row.
pub(super) fn extents_in_rows(cx: &Cx) -> Extents {
    Extents { bands: false, shares: false, straight: false, few: false, ..extents(cx) }
}

/// Clocks of the quickest tiles, without the launch; none where the tuning says how the product is computed.
pub(super) fn clocks(cx: &Cx) -> Res<Option<f64>> {
    let (types, e) = (gemm::types(cx)?, extents(cx));
    let quickest = choice::quickest(cx.target, cx.tuning, types, &e, |_, _| Some(0.0))?.0;
    Ok((!choice::is_tuned(cx.target, cx.tuning, types, &e)).then_some(quickest))
}

/// What the product's sparse operand is, if one is.
fn sparse(cx: &Cx) -> Option<Sparse> {
    match cx.step.kind {
        StepKind::Sparse(s) => Some(s),
        _ => None,
    }
}

/// What the product is, if its operands have scales for blocks.
fn scaled(cx: &Cx) -> Option<Scaled> {
    match cx.step.kind {
        StepKind::Scaled(s) => Some(s),
        _ => None,
    }
}

/// There are instructions for a product of blocks with scales.
pub(super) fn takes_scaled(cx: &Cx) -> bool {
    gemm::types(cx).is_ok()
}

/// Rows or columns of large tiles, and their depth in bytes.
const LARGE: usize = 256;
const DEEP: usize = 128;

/// Scales of a factor that lie along its depth come as a piece of 64 bytes for each line of a tile. The second-level cache, which gives each
/// compute unit one in a clock, takes longer for these than another launch.
pub(super) fn turns_scales(cx: &Cx, side: usize) -> bool {
    let e = extents(cx);
    let (lines, across) = if side == 0 { (e.m, e.n) } else { (e.n, e.m) };
    let pieces = e.batches * lines * across.div_ceil(LARGE) * e.k.div_ceil(DEEP);
    pieces as f64 / f64::from(cx.target.cus()) > choice::Machine::of(cx.target).launch
}

/// The target may multiply one of its operands as a sparse one.
pub(super) fn takes_sparse(cx: &Cx) -> bool {
    gemm::types(cx).is_ok_and(|types| {
        let types = matrix::types_of(types);
        [0, 1].iter().any(|o| [16, 32].iter().any(|side| MatrixForm::sparse(cx.target, types, *side, *o).is_some()))
    })
}

/// How its results are walked: rows of matrices of so many dimensions.
fn walk(rank: usize, rows: usize) -> Walk {
    Walk { m_dim: rank - 2, rows, n_dims: rank - 1..rank, swapped: false, positions: None }
}

/// The lines of an operand with a depth and a width along these dimensions are as [`Extents::lines`] says.
fn has_lines(cx: &Cx, number: usize, along: (usize, usize)) -> bool {
    let (view, t) = (&cx.step.inputs[number].view, cx.dtype(Arg::Input(number)));
    let deep = view.strides[along.0] == 1 && view.strides[along.1] != 1;
    let (line, other) = if deep { (along.0, along.1) } else { (along.1, along.0) };
    let whole = if deep { WIDEST as usize / t.size() } else { 4 };
    let strides = view.strides[line] == 1 && view.strides[other] > 1 && (deep || !is_beside_results(cx, number, along));
    (deep || number > 0) && strides && view.dims[line].is_multiple_of(whole) && lines_are_aligned(t, view, line)
}

/// Lines along the width of an operand have others' elements between them, in the tensor that the step writes.
fn is_beside_results(cx: &Cx, number: usize, along: (usize, usize)) -> bool {
    let a = &cx.step.inputs[number];
    a.tensor == cx.step.output.tensor && (a.view.dims[along.1] as i64) < a.view.strides[along.0]
}

/// Lines of an operand with a depth and a width along these dimensions are whole loads, and begin where these may.
fn has_whole_lines(cx: &Cx, number: usize, along: (usize, usize)) -> bool {
    let (view, size) = (&cx.step.inputs[number].view, cx.dtype(Arg::Input(number)).size());
    let deep = view.strides[along.0] == 1 && view.strides[along.1] != 1;
    let line = if deep { along.0 } else { along.1 };
    let whole = |elements: i64| (elements * size as i64) % i64::from(WIDEST) == 0;
    let others = (0..view.rank()).filter(|d| *d != line && view.dims[*d] > 1);
    view.strides[line] == 1
        && whole(view.dims[line] as i64)
        && whole(view.offset)
        && others.into_iter().all(|d| view.strides[d] >= 0 && whole(view.strides[d]))
}

/// The target has transposing loads for an operand whose lines lie along the width.
fn comes_transposed(cx: &Cx, number: usize, along: (usize, usize)) -> bool {
    let (stride, size) = (cx.step.inputs[number].view.strides[along.0], cx.dtype(Arg::Input(number)).size());
    u32::try_from(stride).is_ok_and(|apart| loader::loads_transposed(cx.target, size as u32, apart))
}

/// The tiles that are considered for it.
pub(super) fn candidates(cx: &Cx) -> Res<Considered> {
    Ok(choice::candidates(cx.target, gemm::types(cx)?, &extents(cx), 1, None))
}

/// There are instructions for a product of floats of 8 bits as they are.
pub(super) fn takes_small(cx: &Cx) -> bool {
    gemm::types(cx).is_ok() && cx.step.inputs[..2].iter().all(|a| cx.graph.tensor(a.tensor).dtype.is_small_float())
}

/// Clocks of a wave for a load and what is made of it; for asking whether the end of the depth is before it, also in the shadow of
/// matrix instructions; and for what is left over: its first round, and each further one.
pub(super) const LOAD: u32 = 20;
const ASKED: u32 = 8;
const ASKED_IN_SHADOW: u32 = 2;
pub(super) const REST: u32 = 2000;
pub(super) const FURTHER: u32 = 600;

/// What each load of a round takes for asking whether the end of a depth is before it.
pub(super) fn asked(target: Target, tile: &Tile, depth: usize) -> u32 {
    match tile.form {
        _ if depth.is_multiple_of(tile.k as usize) => 0,
        Form::Matrix(_) if choice::has_matrix_shadow(target) => ASKED_IN_SHADOW,
        _ => ASKED,
    }
}

/// How a depth is read. Loads of whole rounds need not ask where it ends, and take what lies together wherever lines begin: they do
/// not reach its end. What is left over of lines along the depth is read with as much in front of it as fills a tile, in one round, and what
/// was summed already counts as zero; where all lines lie along the width as these allow, in rounds of the least depth.
struct Rest {
    /// Depth of the whole rounds.
    before: usize,
    /// The tile of the rest, and its depth in whole rounds.
    tile: Tile,
    span: u32,
    /// Its only round ends where the depth does.
    overlaps: bool,
}

impl Rest {
    /// None where the end is no hindrance that is worth it, and in equal shares, where a rest has its own depth; what goes straight to LDS has whole loads.
    fn of(cx: &Cx, operands: &[Operand; 2], (tile, split): (&Tile, &Split), depth: usize) -> Option<Rest> {
        if split.shares.is_some() || tile.is_straight() {
            return None;
        }
        let hindered = operands.each_ref().map(|o| !o.is_word_aligned(cx, elements(tile), depth));
        let each = tile.k as usize;
        // A last line may be cut by the operand's end, where lines lie along the width.
        let last = operands.iter().zip(hindered).any(|(o, h)| h && o.is_wide());
        let before = (depth - usize::from(last)) / each * each;
        let rest = depth - before;
        if before == 0 || rest == 0 && !hindered.contains(&true) {
            return None;
        }
        let overlaps = tile.sparse().is_none() && tile.block().is_none() && !operands.iter().all(Operand::is_wide);
        let shallow = match tile.form {
            Form::Matrix(form) => form.least_deep(tile, if overlaps { rest as u32 } else { 0 }),
            _ => *tile,
        };
        let span = (rest as u32).next_multiple_of(shallow.k);
        let asked = asked(cx.target, tile, depth);
        let of_a_line = choice::Machine::of(cx.target).of_a_line();
        let of = |(o, width): (&Operand, u32)| {
            let [now, then] =
                [(depth, false), (before, true)].map(|(d, anywhere)| o.loads(cx, tile, width, d, anywhere));
            let more = now.saturating_sub(then);
            let lines = if o.is_wide() { 0.0 } else { f64::from(loader::lines_asked(tile, width, more)) * of_a_line };
            more * LOAD + now * asked + lines as u32
        };
        let gain: u32 = operands.iter().zip([tile.m, tile.n]).map(of).sum();
        let rounds = before as u32 / tile.k / split.count;
        let price = REST + (span / shallow.k).saturating_sub(1) * FURTHER;
        (gain * rounds > price || rest == 0).then_some(Rest { before, tile: shallow, span, overlaps })
    }
}

/// The left operand's rows end with whole rounds of a tile, and are not left over: who counts them sees nothing else.
pub(super) fn reads_to_the_end(cx: &Cx, way: (&Tile, &Split), depth: usize) -> bool {
    let r = cx.step.output.view.rank();
    let operands = [(0, (r - 1, r - 2)), (1, (r - 2, r - 1))].map(|(i, along)| Operand::new(cx, i, along, depth));
    match operands {
        [Ok(a), Ok(b)] => !a.is_wide() && Rest::of(cx, &[a, b], way, depth).is_none(),
        _ => false,
    }
}

/// The kernel of a product, and of what comes behind it, or of its normalised rows.
pub(super) fn lower(cx: &Cx, finish: Option<&Finish>, rows: Option<&Rows>) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let r = out.rank();
    let extents = if finish.is_some() || rows.is_some() { extents_in_rows(cx) } else { extents(cx) };
    let k = extents.k;
    let choose = |e: &Extents| match (finish, rows) {
        (Some(finish), _) => finish.choose(cx, e).map(|(_, tile, split)| (tile, split)),
        (_, Some(rows)) => rows.choose(cx, e).map(|(_, tile, split)| (tile, split)),
        _ => choice::choose(cx.target, cx.tuning, gemm::types(cx)?, e, 1),
    };
    let (tile, split) = choose(&extents)?;
    let sparse = sparse(cx);
    let operand = |number: usize, along: (usize, usize)| match sparse {
        Some(s) if s.side == number => Ok(Operand::of_cells(cx, number)),
        _ => Operand::new(cx, number, along, k),
    };
    let operands = [operand(0, (r - 1, r - 2))?, operand(1, (r - 2, r - 1))?];
    let mut words = [None, None];
    if let Some(s) = sparse {
        words[s.side] = Some(Operand::new(cx, 2, (r - 2, r - 1), k)?);
    }
    if let Some(s) = scaled(cx) {
        let depth = s.depth / Scaled::BLOCK;
        words = [(2, (r - 1, r - 2)), (3, (r - 2, r - 1))]
            .map(|(i, along)| Operand::new(cx, i, along, depth).map(Some))
            .into_iter()
            .collect::<Res<Vec<_>>>()?
            .try_into()
            .unwrap_or_default();
    }
    let rest = Rest::of(cx, &operands, (&tile, &split), k);
    let split = match &rest {
        Some(rest) => split.of_depth(rest.before as u32, &tile),
        None => split,
    };
    let mut w = cx.kernel(tile.threads());
    let batch_dims = &out.dims[..r - 2];
    let share = match split.shares {
        Some(shares) => {
            divided::prepare(&mut w, cx)?;
            let tiles = [(extents.m, tile.m), (extents.n, tile.n)].map(|(e, t)| e.div_ceil(t as usize) as u32);
            Some(shares.open(&mut w, (&tile, &split), tiles))
        }
        None => None,
    };
    let (z, part) = share.map_or_else(|| split::part(&mut w, &split), |s| (s.batch, s.part));
    let batch = address::coordinates(&mut w.b, z, batch_dims);
    let (first_m, first_n) = share.map_or_else(|| split::first(&mut w, &tile, &split), |s| s.first);
    let outer = |w: &mut Writer, view: &View, size: usize| outer_offset(w, view, size, &batch, r - 2);
    let loaders = |w: &mut Writer, tile: &Tile, (depth, part): (usize, DepthPart), anywhere: bool| -> Res<Operands> {
        let ends = [(first_m, tile.m), (first_n, tile.n)];
        let mut one = |o: &Operand, (first, width): (Part, u32), of: &Tile| {
            // What a sparse operand holds, and words, are less deep.
            let each = tile.k / of.k;
            let (depth, part) = match (each, tile.block()) {
                (1, _) => (depth, part),
                (_, Some(block)) => (depth.div_ceil(block as usize), part.of_each(&mut w.b, each)),
                _ => (depth.next_multiple_of(2 * tile.run as usize) / each as usize, part.of_each(&mut w.b, each)),
            };
            o.loader(w, cx, (depth, part, each), first, &batch, (of, width), anywhere)
        };
        let a = one(&operands[0], ends[0], &tile.of_operand(0))?;
        let b = one(&operands[1], ends[1], &tile.of_operand(1))?;
        let mut of_words = [None, None];
        for (i, o) in words.iter().enumerate().filter_map(|(i, o)| Some((i, o.as_ref()?))) {
            of_words[i] = Some(one(o, ends[i], &tile.of_words())?);
        }
        Ok(Operands { a, b, words: of_words })
    };
    let sources = |w: &mut Writer| -> Res<(Source, Source)> {
        let mut one =
            |o: &Operand, (first, width): (Part, u32)| o.source(w, cx, (k, part, 1), first, &batch, (&tile, width));
        Ok((one(&operands[0], (first_m, tile.m))?, one(&operands[1], (first_n, tile.n))?))
    };
    let walk = walk(r, extents.m);
    if let Form::Few(form) = tile.form {
        let sources = sources(&mut w)?;
        let (sums, done) = form.multiply(&mut w, &tile, sources, part.split.chunk)?;
        let first = (first_m, first_n);
        let product = Product { tile: &tile, sums, walk, first, z, extents, finish, rows: None, done: Some(done) };
        return split::store(w, cx, product, part, outer);
    }
    if let Form::Sliced(form) = tile.form {
        let sources = sources(&mut w)?;
        let behind = |w: &mut Writer, tally: &Tally| match rows {
            Some(rows) => Ok(Some((rows, Known::Levels(rows.end(w, &tile, tally, first_m, &extents)?)))),
            None => Ok(None),
        };
        let center = rows.map(Rows::center);
        let (sums, rows) = form.multiply_and_count(&mut w, &tile, sources, part.split.chunk, center, behind)?;
        let first = (first_m, first_n);
        let product = Product { tile: &tile, sums, walk, first, z, extents, finish, rows, done: None };
        return split::store(w, cx, product, part, outer);
    }
    let before = rest.as_ref().map_or(k, |r| r.before);
    let mut ops = loaders(&mut w, &tile, (before, part), rest.is_some())?;
    if let Some(rows) = rows {
        ops.a.count_rows(&mut w.b, rows.center());
    }
    let sums = gemm::zeros(&mut w.b, &tile);
    let own = match share {
        Some(s) => (w.b.mul(s.rounds, tile.k).into(), s.about()),
        None => (part.split.chunk.next_multiple_of(tile.k).into(), part.split.chunk.div_ceil(tile.k)),
    };
    gemm::multiply_deep(&mut w, &tile, &mut ops, own, &sums)?;
    if let Some(Rest { before, tile, span, overlaps }) = rest
        && span > 0
    {
        // All have read the last whole round.
        w.b.barrier();
        let (depth, part) = match overlaps {
            true => (span as usize, part.last(&mut w.b, (before as u32, k as u32), span)),
            false => (k, part.rest(&mut w.b, before as u32, span)),
        };
        let mut ops = loaders(&mut w, &tile, (depth, part), false)?;
        gemm::multiply_into(&mut w, &tile, &mut ops, span, &sums)?;
    }
    regroup::free(&mut w.b, &tile);
    let counted = rows.and_then(|rows| Some((rows, Known::Counted(ops.a.into_tally()?))));
    let first = (first_m, first_n);
    let product = Product { tile: &tile, sums, walk, first, z, extents, finish, rows: counted, done: None };
    match &share {
        Some(share) => divided::store(w, cx, &product, share, outer),
        None => split::store(w, cx, product, part, outer),
    }
}

/// Bytes of an element, and whether elements come in runs.
fn elements(tile: &Tile) -> (u32, bool) {
    (tile.types.stored_bytes(), tile.run > 1)
}

/// Offset of an access from its first `dims` dimensions.
fn outer_offset(w: &mut Writer, view: &View, size: usize, coords: &[Option<Part>], dims: usize) -> Offset {
    address::offset_of_dims(&mut w.b, view, size, coords, 0..dims, true)
}

/// Every line of dimension `dense` begins at a multiple of four bytes.
pub(super) fn lines_are_aligned(t: DType, view: &View, dense: usize) -> bool {
    let words = |elements: i64| (elements * t.size() as i64) % 4 == 0;
    words(view.offset) && (0..view.rank()).all(|d| d == dense || view.dims[d] == 1 || words(view.strides[d]))
}

/// An operand of the product, as it lies in memory.
struct Operand {
    /// Its number.
    number: usize,
    /// The dimensions that its depth and its width are.
    along: (usize, usize),
    /// Strides along both, of which one is 1.
    strides: (u32, u32),
}

impl Operand {
    fn new(cx: &Cx, number: usize, along: (usize, usize), depth: usize) -> Res<Operand> {
        let view = &cx.step.inputs[number].view;
        let (sk, sw) = (view.strides[along.0], view.strides[along.1]);
        let (sk, sw) = match (sk, sw, depth, view.dims[along.1]) {
            (_, 1, ..) => (sk, 1),
            (1, ..) => (1, sw),
            (_, _, 1, _) => (1, sw),
            (_, _, _, 1) => (sk, 1),
            _ => return Err(Reason::NotDense(number)),
        };
        if sk < 0 || sw < 0 {
            return Err(Reason::Backwards(number));
        }
        Ok(Operand { number, along, strides: (sk as u32, sw as u32) })
    }

    /// A sparse operand, in cells of which those of all lines at a depth lie together.
    fn of_cells(cx: &Cx, number: usize) -> Operand {
        let (cells, words) = (&cx.step.inputs[number].view, &cx.step.inputs[2].view);
        let r = cells.rank();
        let lines = words.dims[r - 1];
        let run = cells.dims[r - 1] / lines;
        Operand { number, along: (r - 1, r - 2), strides: (lines as u32, run as u32) }
    }

    /// Lines lie along the width.
    fn is_wide(&self) -> bool {
        self.strides.1 == 1
    }

    /// See [`is_beside_results`].
    fn is_beside_results(&self, cx: &Cx) -> bool {
        self.is_wide() && is_beside_results(cx, self.number, self.along)
    }

    /// The dimension along which its lines lie.
    fn line(&self) -> usize {
        if self.is_wide() { self.along.1 } else { self.along.0 }
    }

    /// Loads are as wide as can be, since lines begin and end at whole words; or they could not be anywhere either.
    fn is_word_aligned(&self, cx: &Cx, (bytes, in_runs): (u32, bool), depth: usize) -> bool {
        let view = &cx.step.inputs[self.number].view;
        if self.strides.0.min(self.strides.1) > 1 || self.is_beside_results(cx) || bytes >= 4 && in_runs {
            // Cells are whole; what lies between lines is not loaded; and words are loaded as lines have them.
            return true;
        }
        let (line, together) = match self.is_wide() {
            // A dword that a line's end cuts has elements of the next line.
            true if self.strides.0 < WIDEST => return true,
            true => (view.dims[self.along.1], 4),
            false => (depth, if in_runs { WIDEST / bytes } else { 4 }),
        };
        let aligned = bytes >= 4 || lines_are_aligned(cx.dtype(Arg::Input(self.number)), view, self.line());
        aligned && (line.is_multiple_of(together as usize) || bytes >= 4 && self.is_wide())
    }

    /// Elements that a load takes at most.
    fn together(&self, cx: &Cx, (bytes, in_runs): (u32, bool), depth: usize, anywhere: bool) -> u32 {
        if anywhere && !self.is_word_aligned(cx, (bytes, in_runs), depth) {
            return WIDEST / bytes;
        }
        let view = &cx.step.inputs[self.number].view;
        let line = if self.is_wide() { view.dims[self.along.1] } else { depth };
        let aligned = lines_are_aligned(cx.dtype(Arg::Input(self.number)), view, self.line());
        loader::most_together(bytes, line as u32, aligned)
    }

    /// Loads of a workitem for a tile.
    fn loads(&self, cx: &Cx, tile: &Tile, width: u32, depth: usize, anywhere: bool) -> u32 {
        let together = self.together(cx, elements(tile), depth, anywhere);
        if self.is_wide() {
            return loader::wide_own(tile, width) / loader::wide_load(tile, width, together);
        }
        let own = tile.k * width / tile.threads();
        own / loader::deep_load(tile, own, together, depth as u32).1
    }

    /// Where a depth, or a part of it, is in memory, with one k for so many of the product's.
    fn source(
        &self,
        w: &mut Writer,
        cx: &Cx,
        (depth, part, each): (usize, DepthPart, u32),
        first: Part,
        batch: &[Option<Part>],
        (tile, width): (&Tile, u32),
    ) -> Res<Source> {
        let view = &cx.step.inputs[self.number].view;
        let buf = w.buffer(cx, Arg::Input(self.number))?;
        let outer = outer_offset(w, view, tile.types.stored_bytes() as usize, batch, view.rank() - 2);
        Ok(Source {
            buf,
            base: outer.imm,
            scalar: outer.reg,
            first,
            k_stride: self.strides.0,
            w_stride: self.strides.1,
            depth: depth as u32,
            each,
            part,
            aligned: lines_are_aligned(cx.dtype(Arg::Input(self.number)), view, self.line()),
            end: loader::end_of(view, self.along, tile.types.stored_bytes() as usize, width),
            columns: self.is_beside_results(cx).then_some(view.dims[self.along.1] as u32),
        })
    }

    /// A loader of a depth, or of a part of it.
    fn loader(
        &self,
        w: &mut Writer,
        cx: &Cx,
        (depth, part, each): (usize, DepthPart, u32),
        first: Part,
        batch: &[Option<Part>],
        (tile, width): (&Tile, u32),
        anywhere: bool,
    ) -> Res<Loader> {
        let src = self.source(w, cx, (depth, part, each), first, batch, (tile, width))?;
        let item = w.b.workitem_id();
        if tile.is_transposed(self.number) {
            let loader = loader::transposed(&mut w.b, src, tile, width, item);
            return loader.ok_or(Reason::Malformed("transposing loads that the target has not"));
        }
        if tile.is_straight() {
            return Ok(loader::straight(&mut w.b, src, tile, width, item));
        }
        // Lines along the depth that are read to their ends end with whole loads.
        let anywhere = anywhere || part.from.is_some() && !self.is_wide();
        let together = self.together(cx, elements(tile), depth, anywhere);
        Ok(loader::dense_together(&mut w.b, src, tile, (width, tile.order(self.number)), together, item))
    }
}
