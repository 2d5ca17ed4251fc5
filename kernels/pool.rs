//! Pooling: a workitem computes neighbours of a row, as many as one store takes together, and where windows overlap of rows below each other.
//!
//! What all of its windows take of a row is loaded once, as widely as memory allows, and each row is combined into columns before these are combined
//! along the row: every element is widened once. What the step's expression reads of the result's own place is among that, and stays in
//! registers where second-level caches would be slower at it than memory. Small planes, and parts of others, go through LDS where what windows share would
//! come from second-level caches again and again, or by narrow loads ([`planes`]). Positions beyond an edge read as nothing, or, of a maximum whose windows have no gaps, rows
//! beyond an edge are the edge's own. Windows that are too wide for registers are walked by a scalar loop, one for each workitem.

mod depthwise;
mod planes;

use super::address::{self, Offset};
use super::bounds::Bounds;
use super::choice::Machine;
use super::error::{Reason, Res};
use super::float::Float;
use super::pointwise::{self, Steps, WORKGROUP};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, reduce};
use crate::graph::expr::{Expr, Scalar};
use crate::graph::fused::{PoolOp, Step, Window};
use crate::graph::interpret::evaluate;
use crate::graph::view::View;
use crate::mir::{Buffer, Gen, Opnd, Part, Type};
pub(super) use depthwise::depthwise;
use planes::Planes;

/// Columns of all rows of results that a workitem holds at most, and rows that it reads at most.
const COLUMNS: usize = 48;
const ROWS: usize = 32;
/// Elements that a workitem reads at most in a place, and where it has several of them.
const READ: usize = 256;
const ALL_READ: usize = 32;

/// Workitems of each compute unit that are left where one computes several results, and where it computes several rows.
const FEW: usize = 256;
const FEW_OF_ROWS: usize = 512;

/// How often a row's results may be computed, of how many there are.
const TWICE: f64 = 1.25;

/// What a workitem computes.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Neighbours of a row. The last ones of a row may be fewer.
    width: usize,
    /// Rows below each other, in which of the window's dimensions.
    below: usize,
    stack: usize,
    /// Elements that lie together wherever a row is read; a row has whole ones, and begins with one.
    grain: usize,
    /// Elements in front of the window's first position and behind the last result's own that are read, whole grains.
    around: [usize; 2],
}

impl Share {
    /// Elements of a row that are read.
    fn columns(&self, window: &Window) -> usize {
        self.around[0] + self.width * last(&window.strides) + self.around[1]
    }
}

fn last(list: &[usize]) -> usize {
    list.last().copied().unwrap_or(1)
}

/// Rows that results below each other in a dimension read: dimensions before the last one.
fn rows(window: &Window, below: usize, stack: usize) -> Vec<usize> {
    let mut kernel = window.kernel[..window.kernel.len() - 1].to_vec();
    if let Some(k) = kernel.get_mut(stack).filter(|_| below > 1) {
        *k += (below - 1) * window.strides[stack];
    }
    kernel
}

/// What a workitem computes; nothing where the window is too wide.
fn share(cx: &Cx, window: &Window) -> Option<Share> {
    let (x, out) = (&cx.step.inputs[0].view, &cx.step.output.view);
    let (t, size) = (cx.dtype(Arg::Input(0)), cx.dtype(Arg::Output).size());
    let n = window.kernel.len();
    let (length, extent, step, pad) = (last(&out.dims), last(&x.dims), last(&window.strides), last(&window.pads));
    let reach = (window.kernel[n - 1] - 1) * window.dilations[n - 1] + 1;
    let words = (4 / t.size()).max(1);
    let left = |units: usize| out.len() / units / cx.target.cus() as usize;
    let of = |width: usize, below: usize, stack: usize| {
        let dense = last(&x.strides.iter().map(|s| s.unsigned_abs() as usize).collect::<Vec<_>>()) == 1;
        // Rows are words, and what each workitem reads begins with one.
        let is_even = dense
            && extent.is_multiple_of(words)
            && values::is_aligned(t, x, 4)
            && (width * step).is_multiple_of(words);
        let grain = if is_even { words } else { 1 };
        let behind = reach.saturating_sub(step + pad);
        let around = [pad, behind].map(|n| n.next_multiple_of(grain));
        Share { width, below, stack, grain, around }
    };
    let fits = |s: &Share| {
        let read: usize = rows(window, s.below, s.stack).iter().product();
        read <= ROWS && s.columns(window) * s.below <= COLUMNS && s.columns(window) * read <= READ
    };
    let stores = |width: usize| {
        let all = length.div_ceil(width) * width;
        width == 1
            || pointwise::is_dense(cx.graph, &cx.step.output, width)
                && left(width) >= FEW
                && width <= length
                && all as f64 <= TWICE * length as f64
    };
    let mut width = 16 / size;
    while width > 1 && !(stores(width) && fits(&of(width, 1, 0))) {
        width /= 2;
    }
    let own = of(width, 1, 0);
    if !fits(&own) {
        return None;
    }
    // Where most rows are of several windows. Neighbours in memory that a window has one of are channels: then caches have what workitems beside
    // each other share along the dimension before, but what they share along the one before that comes from second-level caches again and again,
    // or stays in registers where these are slower at it than memory.
    let busy = |d: usize| is_busy(cx, window.kernel[d] as f64 / window.strides[d] as f64);
    let stacks = match n {
        0 | 1 => 0..0,
        _ if n > 2 && window.kernel[n - 1] == 1 && busy(n - 3) => n - 3..n - 1,
        _ => n - 2..n - 1,
    };
    let overlap = |d: usize| window.dilations[d] == 1 && window.kernel[d] >= 2 * window.strides[d];
    let may = |s: &Share| {
        let units = width * s.below;
        out.dims[s.stack + 2].is_multiple_of(s.below) && left(units) >= FEW_OF_ROWS && fits(s)
    };
    let all = stacks.filter(|d| overlap(*d)).flat_map(|d| [4, 2].map(|below| of(width, below, d)));
    Some(all.filter(may).max_by_key(|s| (s.below, n - s.stack)).unwrap_or(own))
}

/// Second-level caches take longer than memory where what is pooled is read so often.
fn is_busy(cx: &Cx, times: f64) -> bool {
    let machine = Machine::of(cx.target);
    let [read, written] = [Arg::Input(0), Arg::Output].map(|arg| (cx.view(arg).len() * cx.dtype(arg).size()) as f64);
    (times * read + written) / machine.l2 > (read + written) / machine.memory
}

/// The step's other operands that are read as what is pooled: its own places.
fn own(step: &Step) -> Vec<usize> {
    (1..step.inputs.len()).filter(|i| step.inputs[*i] == step.inputs[0]).collect()
}

/// What pools of one kind do.
struct Pooling<'a> {
    cx: &'a Cx<'a>,
    window: &'a Window,
    prologue: &'a Expr,
    pool: PoolOp,
    neutral: Scalar,
    /// Elements are multiplied with operand 1, a window of weights for each channel.
    weights: bool,
}

pub(super) fn lower(cx: &Cx, pool: PoolOp, window: &Window, prologue: &Expr) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let t = prologue.dtype();
    let float = match kind(t) {
        values::Kind::Float | values::Kind::Double => true,
        values::Kind::Int { .. } if pool == PoolOp::Max => false,
        _ => return Err(Reason::Operation { op: format!("{pool:?} pooling"), dtype: t }),
    };
    let neutral = match (pool, float, t.is_signed_int()) {
        (PoolOp::Max, true, _) => Scalar::Float(f64::NEG_INFINITY),
        (PoolOp::Max, false, true) => Scalar::Int(i32::MIN as i64),
        (PoolOp::Max, false, false) => Scalar::Int(0),
        _ => Scalar::Float(0.0),
    };
    let pooling = Pooling { cx, window, prologue, pool, neutral, weights: false };
    if let Some((_, planes)) = Planes::of(&pooling) {
        return planes.lower(&pooling);
    }
    let share = share(cx, window);
    let (width, below, stack) = share.map_or((1, 1, 0), |s| (s.width, s.below, s.stack + 2));
    let rank = out.rank();
    let mut units = out.dims.clone();
    units[rank - 1] = units[rank - 1].div_ceil(width);
    units[stack] /= below;
    let count: usize = units.iter().product();
    // In several places where waves would otherwise begin more slowly than memory feeds them.
    let source = cx.graph.tensor(cx.tensor(Arg::Input(0))).bytes().div_ceil(count);
    let bytes = source + width * below * cx.dtype(Arg::Output).size();
    let taps: usize = window.kernel.iter().product();
    let read = share.map_or(READ, |s| s.columns(window) * rows(window, below, s.stack).iter().product::<usize>());
    let places = pointwise::places(cx, count, bytes, |places| places * read <= ALL_READ);
    let per_group = WORKGROUP * places as u32;
    let mut w = cx.kernel(WORKGROUP);
    let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
    let base = w.b.mul(group, per_group);
    let first = w.b.add(base, item);
    for place in 0..places as u32 {
        let index = if place > 0 { w.b.add(first, place * WORKGROUP) } else { first };
        let inside = (!count.is_multiple_of(per_group as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), index.into()]));
        let mut coords = address::coordinates_of_item(&mut w.b, index, &units);
        if let Some(c) = coords[rank - 1].as_mut().filter(|_| width > 1) {
            *c = w.b.mul(*c, width as u32);
        }
        if let Some(c) = coords[stack].as_mut().filter(|_| below > 1) {
            *c = w.b.mul(*c, below as u32);
        }
        let combined = match &share {
            Some(share) => {
                let source = pooling.in_memory(&mut w, &coords)?;
                pooling.rows(&mut w, share, &coords, source)?
            }
            None => vec![Combined { sums: vec![pooling.looped(&mut w, &coords)?], own: Vec::new() }],
        };
        let shares = pooling.shares(&mut w, &coords, [width, below], stack);
        for (row, combined) in combined.into_iter().enumerate() {
            let mut own = coords.clone();
            if row > 0 {
                own[stack] = Some(match own[stack] {
                    Some(c) => w.b.add(c, row as u32),
                    None => w.b.to_vector(row as u32),
                });
            }
            pooling.finish(&mut w, &own, combined, &shares, (stack, row), inside)?;
        }
    }
    Ok(vec![w.finish([(count as u32).div_ceil(per_group), 1, 1], (out.len() * taps) as u64)])
}

/// Where planes are read.
#[derive(Clone, Copy)]
enum Source {
    /// In memory: bytes of the plane's first element.
    Memory(Buffer, Part),
    /// In LDS: where the first element of the plane would be, behind a constant, and where that of a row of zeros would be.
    Lds { first: Part, base: u32, none: Part },
}

/// Of neighbours of a row.
struct Combined {
    /// What their windows come to.
    sums: Vec<Part>,
    /// The elements at their own places, where these are read.
    own: Vec<Value>,
}

/// What sums are multiplied with: a constant, and a factor of each dimension in which it depends on the place.
struct Shares {
    constant: f64,
    /// Of each of a workitem's places in a dimension, where it differs.
    dims: Vec<Vec<Option<Part>>>,
}

impl Pooling<'_> {
    fn ty(&self) -> Type {
        values::computed(self.prologue.dtype())
    }

    fn view(&self) -> &View {
        &self.cx.step.inputs[0].view
    }

    /// What is known of a window's value.
    fn bounds(&self) -> Bounds {
        match Bounds::of(self.prologue, Bounds::ANY).least {
            least if least >= 0.0 && self.pool != PoolOp::Max => Bounds::POSITIVE,
            _ => Bounds::ANY,
        }
    }

    /// An element behind the prologue; where it is masked, what counts nothing.
    fn element(&self, w: &mut Writer, x: Value, mask: Option<Part>) -> Res<Value> {
        let t = self.prologue.dtype();
        let x = expr::eval(&mut w.b, self.prologue, &|_| x, Some(x))?;
        // What lies out of bounds reads as zero, of which most prologues make what counts nothing.
        let zero = if self.cx.dtype(Arg::Input(0)).is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
        let none = evaluate(self.prologue, Some(zero), &mut Vec::new(), |_| zero) == self.neutral;
        match mask.filter(|_| !none) {
            Some(m) => {
                let none = reduce::literal(w, t, self.neutral)?;
                Ok(values::select(&mut w.b, m, x, none))
            }
            None => Ok(x),
        }
    }

    fn combine(&self, w: &mut Writer, x: Value, y: Value) -> Value {
        let op = if self.pool == PoolOp::Max { Gen::Max } else { Gen::Add };
        let operand = |x: Value| match x {
            Value::Pair(p) => Opnd::from(p),
            x => x.word(),
        };
        Value::of(self.prologue.dtype(), w.b.op(op.of(self.ty()), &[operand(x), operand(y)]))
    }

    /// Every window has an element of the input in dimension `d`, and what lies beyond an edge may be replaced by the edge.
    fn is_held(&self, d: usize) -> bool {
        let (w, out) = (self.window, &self.cx.step.output.view);
        let extent = self.view().dims[d + 2];
        let last = (out.dims[d + 2] - 1) * w.strides[d];
        self.pool == PoolOp::Max && w.dilations[d] == 1 && w.pads[d] < w.kernel[d] && last < extent + w.pads[d]
    }

    /// Byte offsets of rows and masks of those that there are: of each position in the dimensions before the last one.
    fn taps(&self, w: &mut Writer, coords: &[Option<Part>], kernel: &[usize]) -> Vec<Vec<(Part, Option<Part>)>> {
        let (size, window, view) = (self.cx.dtype(Arg::Input(0)).size(), self.window, self.view());
        let mut dims = Vec::new();
        for (d, count) in kernel.iter().enumerate() {
            let (extent, outputs) = (view.dims[d + 2], self.cx.step.output.view.dims[d + 2]);
            let corner = match coords[d + 2] {
                Some(c) => w.b.mul(c, window.strides[d] as u32),
                None => w.b.to_vector(0u32),
            };
            let farthest = (outputs - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d];
            let stride = (view.strides[d + 2] * size as i64) as i32;
            let along = w.b.mul(corner, stride);
            let mut taps = Vec::new();
            for k in 0..*count {
                let delta = (k * window.dilations[d]) as i32 - window.pads[d] as i32;
                let mut at = if delta != 0 { w.b.add(corner, delta) } else { corner };
                let leaves = delta < 0 || farthest >= extent + window.pads[d];
                let mut inside = None;
                if leaves && self.is_held(d) {
                    let most = w.b.to_vector(extent as u32 - 1);
                    at = w.b.op(Gen::Max.of(Type::I32), &[at.into(), 0u32.into()]);
                    at = w.b.op(Gen::Min.of(Type::I32), &[at.into(), most.into()]);
                } else if leaves {
                    inside = Some(w.b.op(Gen::CmpGt.of(Type::U32), &[(extent as u32).into(), at.into()]));
                }
                let by = match leaves && self.is_held(d) {
                    true => w.b.mul(at, stride),
                    false if delta != 0 => w.b.add(along, delta * stride),
                    false => along,
                };
                taps.push((by, inside));
            }
            dims.push(taps);
        }
        dims
    }

    /// Operand `i` is what is pooled, read at the places that windows lie around, and these are in the windows.
    fn is_own(&self, i: usize) -> bool {
        let (w, cx) = (self.window, self.cx);
        let centred = |d: usize| {
            w.strides[d] == 1 && w.pads[d].is_multiple_of(w.dilations[d]) && w.pads[d] / w.dilations[d] < w.kernel[d]
        };
        own(cx.step).contains(&i) && self.view().dims == cx.step.output.view.dims && (0..w.kernel.len()).all(centred)
    }

    /// The workitem's planes in memory.
    fn in_memory(&self, w: &mut Writer, coords: &[Option<Part>]) -> Res<Source> {
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let size = self.cx.dtype(Arg::Input(0)).size();
        let base = address::offset_of_dims(&mut w.b, self.view(), size, coords, 0..2, true);
        Ok(Source::Memory(buf, base.vector_with(&mut w.b)))
    }

    /// Neighbours of a row, `by` bytes behind an offset, of lanes that have the row and these.
    fn load(
        &self,
        w: &mut Writer,
        source: Source,
        offset: Part,
        (by, count): (i32, usize),
        [row, column]: [Option<Part>; 2],
    ) -> Vec<Value> {
        let buf = match source {
            Source::Memory(buf, _) => buf,
            // The row is chosen.
            Source::Lds { base, none, .. } => {
                let reg = column.map_or(offset, |mask| w.b.select(mask, offset, none));
                return self.load_from_lds(w, Offset { reg: Some(reg), imm: (by + base as i32) as u32 }, count);
            }
        };
        let inside = w.b.both(row, column);
        let mut place = Offset { reg: Some(offset), imm: by as u32 };
        if by < 0 || inside.is_some() {
            let reg = if by != 0 { w.b.add(offset, by) } else { offset };
            place = Offset { reg: Some(inside.map_or(reg, |m| w.b.guard(m, reg))), imm: 0 };
        }
        values::load_some(&mut w.b, self.cx.dtype(Arg::Input(0)), buf, place, count as u32)
    }

    /// Goes through the rows that a workitem reads, each with its number, its elements behind the prologue, and as they were loaded.
    fn walk(
        &self,
        w: &mut Writer,
        share: &Share,
        coords: &[Option<Part>],
        source: Source,
        mut take: impl FnMut(&mut Writer, usize, [&[Option<Value>]; 2]),
    ) -> Res<()> {
        let (cx, window, view) = (self.cx, self.window, self.view());
        let (n, t) = (window.kernel.len(), cx.dtype(Arg::Input(0)));
        let (step, stride, extent) = (window.strides[n - 1], view.strides[n + 1], view.dims[n + 1]);
        let (Source::Memory(_, mut base) | Source::Lds { first: mut base, .. }) = source;
        // The first result's own element, and where it lies.
        let first = coords[n + 1].map(|c| w.b.mul(c, step as u32));
        if let Some(c) = first {
            let along = w.b.mul(c, (stride * t.size() as i64) as i32);
            base = w.b.add(base, along);
        }
        let blocks = last(&self.cx.step.output.view.dims).div_ceil(share.width);
        let farthest = (blocks - 1) * share.width * step;
        let [before, _] = share.around;
        // Loads of neighbours: their first element, how many they are, and which lanes have them.
        let mut loads: Vec<(i32, usize, Option<Part>)> = Vec::new();
        let mut at = -(before as i32);
        let end = at + share.columns(window) as i32;
        while at < end {
            let leaves = |count: usize| at < 0 || farthest + at as usize + count > extent;
            let wide = matches!(source, Source::Memory(..)) && stride == 1 && share.grain * t.size() >= 4;
            let widest = if wide { 16 / t.size() } else { share.grain };
            let mut count = widest;
            while count > share.grain && (at + count as i32 > end || at < 0 && at + count as i32 > 0 || leaves(count)) {
                count /= 2;
            }
            // Of rows that a workitem has all of it is known what lies outside.
            let mask = first.filter(|_| leaves(count)).map(|c| {
                let own = w.b.add(c, at);
                w.b.op(Gen::CmpGt.of(Type::U32), &[(extent as u32).into(), own.into()])
            });
            if first.is_some() || !leaves(count) {
                loads.push((at, count, mask));
            }
            at += count as i32;
        }
        let kernel = rows(window, share.below, share.stack);
        let dims = self.taps(w, coords, &kernel);
        for row in 0..kernel.iter().product::<usize>() {
            let (mut rest, mut offset, mut mask) = (row, base, None);
            for taps in dims.iter().rev() {
                let (by, inside) = taps[rest % taps.len()];
                rest /= taps.len();
                offset = w.b.add(offset, by);
                mask = w.b.both(mask, inside);
            }
            if let (Source::Lds { none, .. }, Some(mask)) = (source, mask) {
                offset = w.b.select(mask, offset, none);
            }
            let mut own: Vec<Option<Value>> = vec![None; share.columns(window)];
            let mut raw = own.clone();
            for (at, count, column) in &loads {
                let inside = w.b.both(mask, *column);
                let by = (i64::from(*at) * stride * t.size() as i64) as i32;
                let masks = [mask, *column];
                let first = (*at + before as i32) as usize;
                for (x, e) in self.load(w, source, offset, (by, *count), masks).into_iter().zip(first..) {
                    own[e] = Some(self.element(w, x, inside)?);
                    raw[e] = Some(x);
                }
            }
            take(w, row, [&own, &raw]);
        }
        Ok(())
    }

    /// Results whose windows have a row: their numbers below each other, and which row of theirs it is.
    fn takers(&self, share: &Share, row: usize) -> Vec<(usize, usize)> {
        let (window, kernel) = (self.window, rows(self.window, share.below, share.stack));
        let inner: usize = kernel.get(share.stack + 1..).unwrap_or_default().iter().product();
        let place = kernel.get(share.stack).map_or(0, |k| row / inner % k);
        let of = |h: usize| {
            let own = place.checked_sub(h * window.strides[share.stack])?;
            (kernel.is_empty() || own < window.kernel[share.stack]).then_some((h, own))
        };
        (0..share.below).filter_map(of).collect()
    }

    /// The combined elements of each window, in rows of neighbours.
    fn rows(&self, w: &mut Writer, share: &Share, coords: &[Option<Part>], source: Source) -> Res<Vec<Combined>> {
        let (cx, window) = (self.cx, self.window);
        let (n, t, before) = (window.kernel.len(), cx.dtype(Arg::Input(0)), share.around[0]);
        let (step, kernel) = (window.strides[n - 1], rows(window, share.below, share.stack));
        let mut columns: Vec<Vec<Option<Value>>> = vec![vec![None; share.columns(window)]; share.below];
        // The rows that results lie in themselves.
        let again = kernel.iter().product::<usize>() as f64 / share.below as f64;
        // Narrow floats would be converted again, too.
        let is_dear = || is_busy(cx, again + 1.0) || t.size() < 4;
        let reads_own = epilogue::operands(cx).into_iter().any(|i| self.is_own(i)) && is_dear();
        let row_of = |h: usize| {
            let place = |d: usize| window.pads[d] / window.dilations[d] + if d == share.stack { h } else { 0 };
            kernel.iter().enumerate().fold(0, |row, (d, k)| row * k + place(d))
        };
        let centres: Vec<usize> = if reads_own { (0..share.below).map(row_of).collect() } else { Vec::new() };
        let mut places = vec![Vec::new(); share.below];
        self.walk(w, share, coords, source, |w, row, [own, raw]| {
            if let Some(h) = centres.iter().position(|centre| *centre == row) {
                places[h] = raw[before..before + share.width].iter().copied().flatten().collect();
            }
            for (h, _) in self.takers(share, row) {
                for (sum, x) in columns[h].iter_mut().zip(own).filter_map(|(sum, x)| Some((sum, (*x)?))) {
                    *sum = Some(sum.map_or(x, |sum| self.combine(w, sum, x)));
                }
            }
        })?;
        let mut out = Vec::new();
        for (columns, own) in columns.into_iter().zip(places) {
            let mut results = Vec::new();
            for e in 0..share.width {
                let at = (before - window.pads[n - 1]) + e * step;
                let taps = (0..window.kernel[n - 1]).filter_map(|k| columns[at + k * window.dilations[n - 1]]);
                let sum = taps.collect::<Vec<_>>().into_iter().reduce(|x, y| self.combine(w, x, y));
                let sum = match sum {
                    Some(sum) => sum,
                    None => reduce::literal(w, self.prologue.dtype(), self.neutral)?,
                };
                results.push(sum.whole(&mut w.b));
            }
            out.push(Combined { sums: results, own });
        }
        Ok(out)
    }

    /// The same of one window, element by element.
    fn looped(&self, w: &mut Writer, coords: &[Option<Part>]) -> Res<Part> {
        let taps: usize = self.window.kernel.iter().product();
        let start = reduce::literal(w, self.prologue.dtype(), self.neutral)?;
        let acc = reduce::held(w, start);
        let t = self.cx.dtype(Arg::Input(0));
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let size = self.cx.dtype(Arg::Input(0)).size();
        let view = self.view();
        let base = address::offset_of_dims(&mut w.b, view, size, coords, 0..2, true).vector_with(&mut w.b);
        let corners: Vec<Part> = (0..self.window.kernel.len())
            .map(|d| {
                let scaled = match coords[d + 2] {
                    Some(c) => w.b.mul(c, self.window.strides[d] as u32),
                    None => w.b.to_vector(0u32),
                };
                w.b.sub(scaled, self.window.pads[d] as u32)
            })
            .collect();
        reduce::scalar_loop(w, "window", taps as u32, |w, tap| {
            let k = address::coordinates(&mut w.b, tap, &self.window.kernel);
            let mut offset = base;
            let mut mask: Option<Part> = None;
            for (d, corner) in corners.iter().enumerate() {
                let at = match k[d] {
                    Some(k) => {
                        let step = w.b.mul(k, self.window.dilations[d] as u32);
                        w.b.add(*corner, step)
                    }
                    None => *corner,
                };
                let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(view.dims[d + 2] as u32).into(), at.into()]);
                mask = Some(match mask {
                    Some(m) => w.b.mask_and(m, inside),
                    None => inside,
                });
                let bytes = (view.strides[d + 2] * size as i64) as i32;
                offset = w.b.mad(at, bytes, offset);
            }
            let at = mask.map_or(offset, |m| w.b.guard(m, offset));
            let x = values::load(&mut w.b, t, buf, Offset { reg: Some(at), imm: 0 });
            let x = self.element(w, x, mask)?;
            let sum = self.combine(w, Value::of(self.prologue.dtype(), acc), x).whole(&mut w.b);
            w.b.copy_into(acc, sum);
            Ok(())
        })?;
        Ok(acc)
    }

    /// What sums are multiplied with at a workitem's places: `width` of a row, and `below` of dimension `stack`.
    fn shares(
        &self,
        w: &mut Writer,
        coords: &[Option<Part>],
        [width, below]: [usize; 2],
        stack: usize,
    ) -> Option<Shares> {
        let (window, input, out) = (self.window, self.view(), &self.cx.step.output.view);
        let n = window.kernel.len();
        // Positions -before .. extent + after count.
        let around = |d: usize| match self.pool {
            PoolOp::AverageIncludePad { pad_end } => [window.pads[d], pad_end[d]],
            _ => [0, 0],
        };
        if matches!(self.pool, PoolOp::Max | PoolOp::Sum) {
            return None;
        }
        let float = Float(self.ty());
        let mut shares = Shares { constant: 1.0, dims: Vec::new() };
        for d in 0..n {
            let [before, after] = around(d);
            let (kernel, step) = (window.kernel[d], window.dilations[d]);
            let counts = |o: usize| {
                let first = (o * window.strides[d]) as i64 - window.pads[d] as i64;
                let valid = -(before as i64)..(input.dims[d + 2] + after) as i64;
                (0..kernel).filter(|k| valid.contains(&(first + (k * step) as i64))).count()
            };
            let all: Vec<usize> = (0..out.dims[d + 2]).map(counts).collect();
            let most = all.iter().copied().max().unwrap_or(1).max(1);
            shares.constant /= most as f64;
            let places = match d {
                _ if d == n - 1 => width,
                _ if d + 2 == stack => below,
                _ => 1,
            };
            let corner = coords[d + 2].map(|c| w.b.mul(c, window.strides[d] as u32));
            let own = (0..places).map(|i| {
                let of_place = |o: usize| o % places == i || !out.dims[d + 2].is_multiple_of(places);
                let same = all.iter().enumerate().all(|(o, c)| !of_place(o) || *c == most);
                // Of a workitem that has all of a dimension each place is known.
                let Some(corner) = corner.filter(|_| !same) else {
                    return (!same).then(|| float.held(&mut w.b, most as f64 / all[i] as f64));
                };
                let mut sum = w.b.to_vector(0u32);
                for k in 0..kernel {
                    let shift = (i * window.strides[d] + k * step + before) as i32 - window.pads[d] as i32;
                    let at = w.b.add(corner, shift);
                    let limit = (input.dims[d + 2] + after + before) as u32;
                    let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), at.into()]);
                    let (one, zero) = (w.b.to_vector(1u32), w.b.to_vector(0u32));
                    let add = w.b.select(inside, one, zero);
                    sum = w.b.add(sum, add);
                }
                let sum = w.b.convert(Type::U32, self.ty(), sum);
                let most = float.constant(&mut w.b, most as f64);
                Some(float.div(&mut w.b, most, sum))
            });
            shares.dims.push(own.collect());
        }
        Some(shares)
    }

    /// Neighbours of operand `i`, or one that serves for all: as many at once as one load may take.
    fn operand(
        &self,
        w: &mut Writer,
        i: usize,
        coords: &[Option<Part>],
        width: usize,
        known: &mut Vec<Steps>,
    ) -> Res<Vec<Value>> {
        let (cx, d) = (self.cx, coords.len() - 1);
        let a = &cx.step.inputs[i];
        let piece = match a.is_plain() && a.view.strides[d] == 0 {
            true => return pointwise::load(w, cx, i, coords, 1, known),
            false => (1 << width.trailing_zeros()).min(16 / cx.dtype(Arg::Input(i)).size().min(16)),
        };
        let mut all = Vec::new();
        for e in (0..width).step_by(piece) {
            let mut coords = coords.to_vec();
            if e > 0 {
                coords[d] = Some(match coords[d] {
                    Some(c) => w.b.add(c, e as u32),
                    None => w.b.to_vector(e as u32),
                });
            }
            let some = pointwise::load(w, cx, i, &coords, piece, known)?;
            all.extend((0..piece).map(|e| some[e.min(some.len() - 1)]));
        }
        Ok(all)
    }

    /// What the step's expression makes of neighbours of a row.
    fn results(
        &self,
        w: &mut Writer,
        coords: &[Option<Part>],
        Combined { sums, own: places }: Combined,
        shares: &Option<Shares>,
        (stack, row): (usize, usize),
    ) -> Res<Vec<Value>> {
        let (cx, float, t) = (self.cx, Float(self.ty()), self.prologue.dtype());
        let width = sums.len();
        let (mut operands, mut known) = (vec![Vec::new(); cx.step.inputs.len()], Vec::new());
        for i in epilogue::operands(cx) {
            operands[i] = match self.is_own(i) && !places.is_empty() {
                true => places.clone(),
                false => self.operand(w, i, coords, width, &mut known)?,
            };
        }
        let mut results = Vec::new();
        for (e, sum) in sums.into_iter().enumerate() {
            let mut total = sum;
            if let Some(shares) = shares {
                let constant = if float.is_double() { shares.constant } else { f64::from(shares.constant as f32) };
                let constant = float.constant(&mut w.b, constant);
                total = float.op(&mut w.b, Gen::Mul, constant, total);
                let dims = shares.dims.len();
                for (d, places) in shares.dims.iter().enumerate() {
                    let place = match d {
                        _ if d == dims - 1 => e,
                        _ if d + 2 == stack => row,
                        _ => 0,
                    };
                    if let Some(by) = places[place] {
                        total = float.mul(&mut w.b, by, total);
                    }
                }
            }
            let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
            results.push(expr::eval_within(&mut w.b, &cx.step.expr, &input, Some(Value::of(t, total)), self.bounds())?);
        }
        Ok(results)
    }

    /// Stores neighbours of a row behind the step's expression.
    fn finish(
        &self,
        w: &mut Writer,
        coords: &[Option<Part>],
        combined: Combined,
        shares: &Option<Shares>,
        place: (usize, usize),
        inside: Option<Part>,
    ) -> Res<()> {
        let results = self.results(w, coords, combined, shares, place)?;
        let (cx, width) = (self.cx, results.len());
        let (dtype, view) = (cx.dtype(Arg::Output), &cx.step.output.view);
        let buf = w.buffer(cx, Arg::Output)?;
        let at = address::offset(&mut w.b, view, dtype.size(), coords);
        let length = last(&view.dims);
        let store = |w: &mut Writer, mask: Option<Part>, from: usize, count: usize| {
            let mut at = Offset { imm: at.imm + (from * dtype.size()) as u32, ..at };
            at = at.within(&mut w.b, mask);
            values::store_some(&mut w.b, dtype, buf, at, &results[from..from + count]);
        };
        let Some(own) = coords[view.rank() - 1].filter(|_| !length.is_multiple_of(width)) else {
            store(w, inside, 0, width);
            return Ok(());
        };
        // Those at a row's end are fewer, in pieces of powers of two.
        let both = |w: &mut Writer, mask: Part| inside.map_or(mask, |m| w.b.mask_and(m, mask));
        let end = (length - length % width) as u32;
        let whole = w.b.op(Gen::CmpGt.of(Type::U32), &[end.into(), own.into()]);
        let whole = both(w, whole);
        store(w, Some(whole), 0, width);
        let rest = w.b.op(Gen::CmpLe.of(Type::U32), &[end.into(), own.into()]);
        let rest = both(w, rest);
        let mut from = 0;
        for bit in (0..width.ilog2()).rev().filter(|bit| ((length % width) >> bit) & 1 == 1) {
            store(w, Some(rest), from, 1 << bit);
            from += 1 << bit;
        }
        Ok(())
    }
}
