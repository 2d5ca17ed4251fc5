//! Which form an attention takes: the side of the matrix instruction, waves of a workgroup, keys of a tile, and whether scores are
//! ahead of weights, by an estimate of its cycles; and whether products and softmax apart would take less.

use super::super::choice::{self, Machine};
use super::super::matrix::{self, MatrixForm, Side};
use super::super::tile::{Form, Layout, Tile, Types};
use super::super::{MAX_TENSOR_BYTES, pointwise, same_tensors};
use super::few::Few;
use super::scalar::Scalars;
use super::shares::{Shares, Work};
use crate::graph::fused::{Access, Attention, FusedGraph, Step, StepKind};
use crate::graph::view::View;
use crate::mir::{Type, matrix_instruction};
use crate::tensor::DType;
use barewave_isa::matrix::{Fragment, Operand};
use barewave_isa::{Op, Target, op};
use barewave_timing::gemm::queued;

/// What the estimate knows of a loop over keys. Fitted to 1,783 forms of 157 attentions (16 shapes, f16 and f32, six targets) in the
/// full model of cycles, whose best ones the estimate chooses but for 1.1%.
struct Fitted {
    /// Of what could hide behind the busiest unit of all waves so much does not, as waves meet at barriers.
    not_hidden: f64,
    /// Where nothing runs in the shadow of matrix instructions, waves wait for so much of a tile until others have made room.
    uneven: f64,
    /// Of what a wave alone does beside its products so much lengthens a tile, and of reads, which wait for those of others.
    alone: f64,
    reads_alone: f64,
    /// Cycles of a tile that a wave alone waits for results and at barriers.
    latency: f64,
    /// Tiles more than there are: scores that are made for nothing behind the last one, and what comes before the first.
    more: f64,
}

/// The loop with scores half a tile ahead: where matrix instructions cast a shadow, and where they do not.
const AHEAD: [Fitted; 2] = [
    Fitted { not_hidden: 0.21, uneven: 0.0, alone: 0.26, reads_alone: 0.98, latency: 214.0, more: 0.31 },
    Fitted { not_hidden: 0.0, uneven: 0.36, alone: 1.0, reads_alone: 1.4, latency: 719.0, more: 0.89 },
];
/// The plain loop, likewise.
const PLAIN: [Fitted; 2] = [
    Fitted { not_hidden: 0.56, uneven: 0.0, alone: 0.2, reads_alone: 1.15, latency: 534.0, more: 0.0 },
    Fitted { not_hidden: 0.0, uneven: 0.84, alone: 1.0, reads_alone: 1.27, latency: 628.0, more: 0.47 },
];

/// Cycles of LDS over those that reads take at its full width, in the shadow of matrix instructions: turns of a wave's lanes, and what
/// is written. Fitted.
const TURNS: f64 = 2.25;

/// Of the cycles of a workgroup's beginning and end so many are seen; of those behind parts that have been left. Fitted.
const ENDS: f64 = 0.67;
const ENDS_OF_PARTS: f64 = 0.6;

/// Of the cycles that memory takes for parts so many are seen, where matrix instructions cast a shadow, and where they do not, on chips whose caches
/// hold parts. Fitted.
const STORED: [f64; 2] = [0.84, 0.3];

/// Instructions of a tile besides those for scores, products and moves.
const OTHER: f64 = 40.0;

/// Bytes of a tile in LDS that offsets reach.
const MOST_OF_A_TILE: u32 = 65536;

/// Forms that are tried, the best first: waves of a workgroup, keys of a tile.
const FORMS: [(u32, u32); 8] = [(8, 64), (4, 64), (8, 32), (4, 32), (2, 64), (2, 32), (1, 64), (1, 32)];

/// Keys are shared where that saves so much: the clocks here are estimates, putting parts together is certain.
const WORTH: f64 = 0.97;

/// The same of equal shares of few tiles, or of blocks of few: what begins and ends them, which estimates know least of, is most of them.
const WORTH_OF_FEW: f64 = 0.85;

/// Registers fewer than the estimate that a kernel may turn out to have.
const SPARE: u32 = 16;

/// Extents of an attention.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub batches: usize,
    pub queries: usize,
    pub keys: usize,
    /// Size of a query and key, and of a value.
    pub depth: usize,
    pub width: usize,
    /// A query sees so many keys more than those up to its own number.
    pub causal: Option<i64>,
}

/// How one is computed.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub e: Extents,
    pub types: Types,
    pub form: MatrixForm,
    /// k of a cell of LDS.
    pub run: u32,
    /// Queries and keys of a workgroup's tile.
    pub queries: u32,
    pub keys: u32,
    /// Depth of K's tile and width of V's, powers of two.
    pub depth: u32,
    pub width: u32,
    /// Scores are half a tile ahead of weights.
    pub ahead: bool,
    /// Workgroups that share the keys, and keys of each, whole tiles.
    pub parts: u32,
    pub chunk: u32,
    /// How all work is divided, where not by blocks of queries.
    pub shares: Option<Shares>,
}

/// Numbers of workgroups that may share the keys.
const PARTS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Cycles to put a few parts together, where matrix instructions cast a shadow and where they do not: to begin with, and bytes a cycle
/// that come from where the whole device sees them. Fitted to 45 forms, and to 500 of 13 attentions on RDNA.
const TOGETHER: f64 = 450.0;
const TOGETHER_BYTES: [f64; 2] = [64.0, 16.0];

/// A step whose one query per head becomes a query of a group of heads, where these have keys and values in common (grouped-query
/// attention while tokens are made one by one): the two dimensions change places.
pub(super) fn grouped(step: &Step) -> Option<Step> {
    let StepKind::Attention(kind) = &step.kind else { return None };
    let r = step.output.view.rank();
    let [group, query] = [r.checked_sub(3)?, r - 2];
    let dims = &step.output.view.dims;
    let together = |i: usize| step.inputs[i].view.strides[group] == 0;
    if kind.causal.is_some() || dims[query] != 1 || dims[group] == 1 || !together(1) || !together(2) {
        return None;
    }
    let mut out = step.clone();
    let caches = kind.caches();
    let of_queries = kind.made_of(0).map_or(0..0, |made| made.1);
    for (i, a) in out.inputs.iter_mut().enumerate() {
        let common = i == 1
            || i == 2
            || kind.rows() == Some(i)
            || caches.contains(&i)
            || kind.makings().contains(&i) && !of_queries.contains(&i);
        for view in [&mut a.view].into_iter().chain(a.indirect.iter_mut().map(|x| &mut x.view)) {
            if common {
                view.dims[group] = 1;
            } else {
                view.dims.swap(group, query);
                view.strides.swap(group, query);
            }
        }
        match &mut a.guard {
            Some(guard) if common => guard.ranges[group] = (0, 1),
            Some(guard) => guard.ranges.swap(group, query),
            None => {}
        }
    }
    out.output.view.dims.swap(group, query);
    out.output.view.strides.swap(group, query);
    Some(out)
}

/// Makes an attention of a few queries one whose kernel is told how many keys there are, where it can be.
pub(in crate::kernels) fn takes_any_keys(step: &mut Step) -> bool {
    if let StepKind::Attention(kind) = &mut step.kind {
        kind.any_keys = kind.causal.is_none();
        return kind.any_keys;
    }
    false
}

/// Such a step as its kernel sees it.
pub(in crate::kernels) fn seen(step: &Step) -> Option<Step> {
    matches!(&step.kind, StepKind::Attention(Attention { any_keys: true, .. })).then(|| grouped(step)).flatten()
}

/// Which dimension of an operand of an attention goes along the keys; none for others, whose views do not grow with these.
pub(super) fn along_keys(kind: &Attention, i: usize, r: usize) -> Option<usize> {
    let caches = kind.caches();
    match i {
        1 => Some(r - 1),
        2 => Some(r - 2),
        i if (3..caches.start).contains(&i) => Some(r - 1),
        i if caches.contains(&i) && i == caches.start => Some(r - 1),
        i if caches.contains(&i) && i == caches.start + 2 => Some(r - 2),
        _ => None,
    }
}

/// True for operands whose memory is as large as there are keys: the new line may lie among them, where it is not made.
pub(super) fn grows(kind: &Attention, i: usize, r: usize) -> bool {
    let caches = kind.caches();
    along_keys(kind, i, r).is_some() || caches.contains(&i) && i + 1 != caches.end && kind.made_of(i).is_none()
}

/// Which strides of an operand a kernel for any number of keys is told.
pub(super) fn told(kind: &Attention, i: usize, view: &View, d: usize) -> bool {
    let r = view.rank();
    let outer = d + 2 < r || d + 2 == r && (3..kind.caches().start).contains(&i);
    kind.any_keys && grows(kind, i, r) && outer && view.dims[d] > 1 && view.strides[d] != 0
}

/// What the code of a step depends on whose kernel is told the number of keys: all but that, and the strides it is told.
pub(in crate::kernels) fn key(graph: &FusedGraph, step: &Step) -> Option<String> {
    use std::fmt::Write;
    let StepKind::Attention(kind @ Attention { any_keys: true, .. }) = &step.kind else { return None };
    let mut s = format!("{kind:?}|{:?}|{}", step.expr, extents(step).keys);
    for (i, a) in step.inputs.iter().chain([&step.output]).enumerate() {
        let mut view = a.view.clone();
        for d in 0..view.rank() {
            if told(kind, i, &a.view, d) {
                view.strides[d] = i64::MAX;
            } else if view.dims[d] == 1 {
                view.strides[d] = 0;
            }
        }
        if let Some(d) = along_keys(kind, i, view.rank()) {
            view.dims[d] = usize::MAX;
        }
        let _ = write!(s, "|{} {view} {:?}", graph.tensor(a.tensor).dtype, a.guard);
        for x in &a.indirect {
            let sure = if pointwise::is_sure(graph, x) { "s" } else { "" };
            let _ = write!(s, " {} {} {} {}{sure}", graph.tensor(x.index).dtype, x.view, x.stride, x.extent);
        }
    }
    s.push_str(&same_tensors(step));
    Some(s)
}

/// Keys for which a kernel for any number of them is made, a power of four: as many workgroups share fewer, in fewer rounds.
fn made_for(keys: usize) -> usize {
    1 << (keys.max(16).next_power_of_two().ilog2().next_multiple_of(2))
}

/// Q, K and V have one type and lie in lines that begin at whole words, as do others of these dimensions with their elements side by side, and all
/// operands are reached by offsets.
pub(super) fn reads_lines(graph: &FusedGraph, step: &Step, others: impl IntoIterator<Item = (usize, usize)>) -> bool {
    let (r, of) = (step.output.view.rank(), |a: &Access| graph.tensor(a.tensor));
    let t = of(&step.inputs[0]).dtype;
    let alike = step.inputs[..3].iter().all(|a| of(a).dtype == t);
    let near = step.inputs.iter().chain([&step.output]).all(|a| of(a).bytes() < MAX_TENSOR_BYTES);
    let whole = |elements: i64| elements >= 0 && (elements * t.size() as i64) % 4 == 0;
    let in_lines = |(i, dense): (usize, usize)| {
        let v = &step.inputs[i].view;
        let mut apart = (0..r).filter(|d| *d != dense && v.dims[*d] > 1);
        v.strides[dense] == 1 && whole(v.offset) && apart.all(|d| whole(v.strides[d]))
    };
    alike && near && [(0, r - 1), (1, r - 2), (2, r - 1)].into_iter().chain(others).all(in_lines)
}

fn extents(step: &Step) -> Extents {
    let (out, q, k) = (&step.output.view, &step.inputs[0].view, &step.inputs[1].view);
    let r = out.rank();
    let (causal, any_keys, keys) = match &step.kind {
        StepKind::Attention(kind) => (kind.causal, kind.any_keys, kind.keys(step)),
        _ => (None, false, k.dims[r - 1]),
    };
    Extents {
        batches: out.dims[..r - 2].iter().product(),
        queries: out.dims[r - 2],
        keys: if any_keys { made_for(keys) } else { keys },
        depth: q.dims[r - 1],
        width: out.dims[r - 1],
        causal,
    }
}

impl Plan {
    /// The form that takes least time, and its cycles; none where the target has no matrix instruction for the types, or operands lie
    /// so that no loader takes them.
    fn of(graph: &FusedGraph, step: &Step, target: Target) -> Option<(f64, Plan)> {
        let t = graph.tensor(step.inputs[0].tensor).dtype;
        let floats = matches!(t, DType::F16 | DType::BF16 | DType::F32);
        if !floats || step.inputs[..3].iter().any(|a| graph.tensor(a.tensor).dtype != t) {
            return None;
        }
        let small = |bytes: usize| bytes < MAX_TENSOR_BYTES;
        if !step.inputs.iter().chain([&step.output]).all(|a| small(graph.tensor(a.tensor).bytes())) {
            return None;
        }
        let e = extents(step);
        let r = step.output.view.rank();
        let [q, k, v] = [0, 1, 2].map(|i| &step.inputs[i].view.strides);
        let forwards = |v: &Vec<i64>| v.iter().all(|s| *s >= 0);
        let dense = q[r - 1] == 1 && (k[r - 2] == 1 || k[r - 1] == 1) && (v[r - 1] == 1 || v[r - 2] == 1);
        let sizes = (8..=256).contains(&e.depth) && (8..=256).contains(&e.width) && e.keys >= 16;
        if !dense || !sizes || ![q, k, v].into_iter().all(forwards) {
            return None;
        }
        let types = matrix::types_of(Types { accumulate: Type::F32, ..Types::of(t) });
        let sides = if e.depth.max(e.width) > 128 || e.queries <= 16 { [16, 32] } else { [32, 16] };
        let forms = sides.into_iter().filter_map(|side| {
            let (instruction, op) = matrix_instruction(target, types.factors(), types.accumulate, side)?;
            MatrixForm::new(instruction, op)
        });
        let forms: Vec<MatrixForm> = forms.collect();
        let machine = Machine::of(target);
        // Reads of half the width only where nothing else fits.
        let runs: &[u32] = if types.bytes() >= 4 { &[1] } else { &[8, 4] };
        let mut all = Vec::new();
        for (run, form) in runs.iter().flat_map(|run| forms.iter().map(move |f| (*run, *f))) {
            if run < runs[0] && !all.is_empty() {
                break;
            }
            for (waves, keys) in FORMS {
                // The second product's rows are what its registers hold neighbours of.
                let form = MatrixForm { waves: (waves, 1), swapped: true, ..form };
                let (depth, width) = (e.depth.next_power_of_two() as u32, e.width.next_power_of_two() as u32);
                let depth = depth.max(form.step(run));
                let width = width.max(form.side());
                let (queries, chunk) = (waves * form.side(), (e.keys as u32).next_multiple_of(keys));
                for ahead in [true, false] {
                    let shares = None;
                    let plan =
                        Plan { e, types, form, run, queries, keys, depth, width, ahead, parts: 1, chunk, shares };
                    if plan.fits(target) {
                        all.extend(plan.shared());
                        all.extend(plan.divided(target, &machine));
                    }
                }
            }
        }
        let lead = |p: &Plan| match p.shares {
            Some(shares) if shares.are_few() => WORTH_OF_FEW,
            Some(_) => WORTH,
            None if p.parts > 1 => WORTH,
            None => 1.0,
        };
        let timed = all.into_iter().map(|p| (p.clocks(target, &machine) / lead(&p), p));
        timed.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Cycles of the launch, about. A tile takes as long as the unit that all waves of a compute unit keep busy longest, or as
    /// one wave does alone.
    fn clocks(&self, target: Target, m: &Machine) -> f64 {
        let (info, waves, shape) = (target.info(), self.form.waves.0, &self.form.op.shape);
        let busy = |op: Op| target.op(op).map_or(1.0, |i| f64::from(i.busy.max(1)));
        let products = self.keys / self.form.side() * self.steps() * (self.step() / shape.k as u32)
            + self.keys / shape.k as u32 * self.tiles();
        let matrix = f64::from(products) * busy(self.form.instruction);
        // Of a score: its share in the maximum, the exponent, the exponential, packing, the sum.
        let shadow = choice::has_matrix_shadow(target);
        let packing = if self.types.compute == Type::F16 { 2.5 } else { 4.5 };
        let joining = if self.form.operand(Operand::A).is_some_and(|a| a.groups == 1) { 1.25 } else { 0.0 };
        let exponential = if shadow { busy(op::V_EXP_F32) } else { m.issue };
        // K comes 16 bytes at a time, V in words of two rows that are taken apart.
        let words = self.keys * self.types.bytes() / 4 * (self.depth + 5 * self.width) / 2 / (waves * self.lanes());
        let others = f64::from(products) + f64::from(words) + OTHER;
        let vector = f64::from(self.slots()) * ((packing + joining) * m.issue + exponential) + others * m.issue;
        let read = f64::from(self.keys * (self.steps() * self.step() + self.tiles() * self.form.side()));
        let read = read * f64::from(self.types.bytes()) / m.lds;
        let fitted = &if self.ahead { AHEAD } else { PLAIN }[usize::from(!shadow)];
        let (work, more) = if shadow {
            let turns = TURNS * read;
            let work = matrix.max(vector).max(turns);
            (work, fitted.not_hidden * (matrix + vector + turns - work))
        } else {
            (matrix + vector, 0.0)
        };
        let (once, own) = (fitted.uneven * (matrix + vector), matrix + fitted.alone * vector);
        let results = self.e.batches * self.blocks() as usize;
        let groups = results as f64 * f64::from(self.parts);
        let cus = f64::from(target.cus());
        let of = |resident: f64| {
            let beside = (resident * f64::from(waves) / f64::from(info.simds)).ceil();
            (beside * (work + more) + once).max(own + fitted.reads_alone * read * beside + fitted.latency)
        };
        let most = m.fit(waves, self.vgprs(), self.lds());
        let part = f64::from(waves * self.lanes() * self.left() * 4);
        if let Some(shares) = self.shares {
            let (groups, resident) = (f64::from(shares.groups), (f64::from(shares.groups) / cus).ceil());
            // Each share has two ends, of which one puts a block together.
            let blocks = 1.0 + shares.blocks();
            let ends = resident * (TOGETHER + 2.0 * part / TOGETHER_BYTES[usize::from(!shadow)]);
            let tiles = f64::from(shares.units) + fitted.more * blocks;
            return of(resident) * tiles
                + ends
                + STORED[usize::from(!shadow)] * 2.0 * groups * part / m.memory
                + m.launch
                + ENDS * m.ends * blocks;
        }
        let (rounds, rest) = ((groups / (cus * most)).floor(), groups % (cus * most));
        let last = if rest > 0.0 { of((rest / cus).ceil()) } else { 0.0 };
        let tiles = f64::from(self.chunk / self.keys) + fitted.more;
        let work = if self.parts == 1 && self.e.causal.is_some() { Work::of(self) } else { None };
        let loops = match work {
            // Blocks with many keys are anywhere among the others, also behind all.
            Some(work) if rounds > 0.0 => {
                let (mean, most_tiles) =
                    (work.units() as f64 / groups + fitted.more, f64::from(work.most()) + fitted.more);
                of(most) * (groups / (cus * most) * mean + most_tiles / 2.0)
            }
            Some(work) => last * (f64::from(work.most()) + fitted.more),
            None => (rounds * of(most) + last) * tiles,
        };
        let whole = loops + m.launch + ENDS * m.ends * (rounds + 1.0);
        let e = &self.e;
        let bytes = e.batches * (e.keys + e.queries) * (e.depth + e.width) * self.types.stored_bytes() as usize;
        let memory = |more: f64| (bytes as f64 + more) / m.memory + m.launch + m.ends;
        if self.parts == 1 {
            return queued([whole, memory(0.0)]);
        }
        // All parts are stored; those of a result are loaded by one, some at a time.
        let stored = groups * part;
        let adding = (results as f64 / cus).ceil() * f64::from(self.parts.div_ceil(self.at_once()));
        let adding = adding * (TOGETHER + part / TOGETHER_BYTES[usize::from(!shadow)]);
        queued([whole + STORED[usize::from(!shadow)] * stored / m.memory, memory(stored)])
            + ENDS_OF_PARTS * m.ends
            + adding
    }

    /// The ways to share the keys among workgroups.
    fn shared(self) -> impl Iterator<Item = Plan> {
        let tiles = (self.e.keys as u32).div_ceil(self.keys);
        let of = move |parts: u32| {
            let own = tiles.div_ceil(parts);
            Plan { parts: tiles.div_ceil(own), chunk: own * self.keys, ..self }
        };
        PARTS
            .into_iter()
            .filter(move |p| *p <= tiles)
            .map(of)
            .filter(|p| p.parts == 1 || p.bytes_left() < MAX_TENSOR_BYTES)
    }

    /// Equal shares for as many workgroups as run at once: by the estimate of registers, and by what they may turn out to be. Two
    /// rounds, where one was meant, are no loss for equal shares; half of the waves are.
    fn divided(self, target: Target, m: &Machine) -> impl Iterator<Item = Plan> {
        let sums = target.op(self.form.instruction).and_then(|i| i.dsts.first());
        let apart = sums.is_some_and(|s| !s.class.contains(barewave_isa::Class::VGPR));
        let spare = SPARE + if apart { self.results() } else { 0 };
        let mut at_once =
            [0, spare].map(|less| m.fit(self.form.waves.0, self.vgprs() - less, self.lds()) as u32).to_vec();
        at_once.dedup();
        let work = Work::of(&self).filter(|_| self.at_once() == 1);
        let part = (self.form.waves.0 * self.lanes() * self.left() * 4) as usize;
        let shares = at_once.into_iter().filter_map(move |n| work?.shared(target.cus() * n));
        let shares = shares.filter(move |s| 2 * s.groups as usize * part < MAX_TENSOR_BYTES);
        shares.map(move |s| Plan { shares: Some(s), ..self })
    }

    /// Dwords that a workitem leaves for who puts parts together: its results, their maximum and sum.
    pub fn left(&self) -> u32 {
        self.results() + 2
    }

    /// Registers of a workitem's results.
    fn results(&self) -> u32 {
        self.tiles() * self.form.side() * self.form.side() / self.lanes()
    }

    /// Bytes of all parts.
    fn bytes_left(&self) -> usize {
        let items = self.e.batches * self.blocks() as usize * (self.form.waves.0 * self.lanes()) as usize;
        items * self.left() as usize * 4 * self.parts as usize
    }

    /// Parts that are put together at once: lanes whose query is none have one each.
    pub fn at_once(&self) -> u32 {
        let queries = (self.e.queries as u32).next_power_of_two();
        (self.form.side() / queries.min(self.form.side())).max(1)
    }

    pub fn lanes(&self) -> u32 {
        self.form.op.shape.lanes as u32
    }

    /// What both products are in terms of: the first operand's lanes, and scores.
    pub fn sides(&self) -> Option<(Side, Side, Fragment)> {
        let operand = |o: Operand| self.form.operand(o);
        Some((operand(Operand::A)?, operand(Operand::B)?, self.form.op.fragment(Operand::D)?))
    }

    fn fits(&self, target: Target) -> bool {
        let Some((a, b, d)) = self.sides() else { return false };
        let info = target.info();
        let threads = self.form.waves.0 * self.lanes();
        // Columns of scores are where the second operand has them.
        let same = b.lanes.iter().zip(&d.lane).all(|(x, y)| x.row == y.col);
        let shared = d.lane.iter().filter(|s| s.row > 0).count();
        let groups = 1u32 << shared;
        // A lane's run of keys is the second operand's; or two halves of the wave have a half of it each.
        let agree = a.groups == groups && a.own <= self.run && self.run.is_multiple_of(a.own)
            || a.groups == 1 && groups == 2 && a.own == 2 * self.run && self.lanes() == 32;
        let loads = |depth: u32, width: u32| {
            let cells = depth / self.run * width;
            cells.is_multiple_of(threads) && cells >= threads && threads >= (depth / self.run).max(width)
        };
        let budget = target.most_vgprs(self.lanes(), self.form.waves.0.div_ceil(info.simds)).min(info.named_vgprs());
        same && agree
            && self.half().is_multiple_of(self.form.side())
            && (self.slots() / self.halves()).is_multiple_of(self.run)
            && loads(self.depth, self.keys)
            && loads(self.keys, self.width)
            && self.lds() <= info.lds_bytes
            && self.tiles_in_lds().into_iter().all(|bytes| bytes <= MOST_OF_A_TILE)
            && self.vgprs() <= budget
    }

    /// Parts of a tile whose scores are multiplied together.
    pub fn halves(&self) -> u32 {
        1 + u32::from(self.ahead)
    }

    /// Keys of such a part.
    pub fn half(&self) -> u32 {
        self.keys / self.halves()
    }

    /// Scores of a lane.
    fn slots(&self) -> u32 {
        self.keys * self.form.side() / self.lanes()
    }

    /// Bytes of LDS.
    fn lds(&self) -> u32 {
        self.tiles_in_lds().into_iter().sum()
    }

    /// Bytes of LDS that a workgroup may have where as many as otherwise fit share it.
    pub fn room(&self, target: Target) -> u32 {
        let at_once = Machine::of(target).fit(self.form.waves.0, self.vgprs() - SPARE, self.lds());
        (target.info().lds_bytes / at_once.max(1.0) as u32).max(self.lds())
    }

    /// Bytes of the tiles of K and V.
    fn tiles_in_lds(&self) -> [u32; 2] {
        let (k, v) = (self.tile(self.depth), self.tile(self.keys));
        [Layout::most(&k, self.keys), Layout::most(&v, self.width)]
    }

    /// Registers of a workitem, about: results, queries, scores and what is made of them, what is loaded, what is read.
    fn vgprs(&self) -> u32 {
        let (side, lanes, words) = (self.form.side(), self.lanes(), self.types.bytes());
        let groups = self.form.operand(Operand::A).map_or(1, |a| a.groups);
        let queries = self.steps() * self.step() * (side * (lanes / side / groups)) * words / 4 / lanes;
        let loaded = (self.keys * (self.depth + self.width)) * words / 4 / (self.form.waves.0 * lanes);
        self.results() + queries + self.slots() + self.slots() * words / 4 + loaded + 32
    }

    /// A tile of an operand, of so much k.
    pub fn tile(&self, k: u32) -> Tile {
        Tile {
            types: self.types,
            m: self.queries,
            n: self.width,
            k,
            run: self.run,
            buffers: 1,
            form: Form::Matrix(self.form),
        }
    }
    /// k that the lanes of the first product read in a step, and steps.
    pub fn step(&self) -> u32 {
        self.form.step(self.run)
    }
    pub fn steps(&self) -> u32 {
        (self.e.depth as u32).div_ceil(self.step())
    }
    /// Blocks of queries of a batch.
    pub fn blocks(&self) -> u32 {
        (self.e.queries as u32).div_ceil(self.queries)
    }
    /// Tiles of results of a wave.
    pub fn tiles(&self) -> u32 {
        (self.e.width as u32).div_ceil(self.form.side())
    }
}

/// Cycles of products and softmax apart.
fn apart(target: Target, m: &Machine, types: Types, e: &Extents, t: DType) -> f64 {
    let product = |n: usize, k: usize| {
        let bytes = e.batches * (e.queries * k + k * n) * t.size();
        let e = choice::Extents {
            batches: e.batches,
            m: e.queries,
            n,
            k,
            bytes,
            stored: t.size(),
            expression: 0.0,
            deep: (true, false),
            pitch: [k, n],
            bands: true,
            shares: true,
            apart: false,
            in_rows: false,
            transposed: [false; 2],
            straight: false,
            sparse: None,
            scaled: false,
            image: 1,
            gathered: None,
            pairs: false,
            loads: [choice::Together::ANY; 2],
            few: false,
            lines: false,
        };
        choice::candidates(target, types, &e, 1, None).candidates.first().map_or(f64::INFINITY, |c| c.clocks)
    };
    let softmax = (2 * e.batches * e.queries * e.keys * t.size()) as f64 / m.memory + m.ends;
    product(e.keys, e.depth) + product(e.width, e.keys) + softmax + 3.0 * m.launch
}

/// How an attention is computed.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// In tiles of queries and keys, by matrix instructions.
    Tiles(Plan),
    /// Key by key, of a few queries.
    Few(Few),
    /// A query per lane, by multiply-adds.
    Scalars(Scalars),
}

/// The quickest way of those there are; none where products and softmax apart seem quicker.
pub(super) fn choose(graph: &FusedGraph, step: &Step, target: Target) -> Option<How> {
    timed(graph, step, target).map(|(_, how)| how)
}

/// The same with its cycles.
fn timed(graph: &FusedGraph, step: &Step, target: Target) -> Option<(f64, How)> {
    let several = extents(step);
    let grouped = grouped(step);
    let step = grouped.as_ref().unwrap_or(step);
    let t = graph.tensor(step.inputs[0].tensor).dtype;
    let few = Few::of(graph, step, extents(step), target).map(|(clocks, few)| (clocks, How::Few(few)));
    let StepKind::Attention(kind) = &step.kind else { return None };
    if kind.any_keys || kind.paged {
        return few;
    }
    let tiles = if kind.made.is_empty() { Plan::of(graph, step, target) } else { None };
    let machine = Machine::of(target);
    let types = matrix::types_of(Types { accumulate: Type::F32, ..Types::of(t) });
    let others = apart(target, &machine, types, &several, t);
    if kind.cached {
        // Caches are copied before any other way.
        let bytes: usize = step.inputs[1..3].iter().map(|a| 2 * a.view.len() * t.size()).sum();
        let copies = bytes as f64 / machine.memory + 2.0 * (machine.launch + machine.ends);
        let others = tiles.map_or(others, |(clocks, _)| clocks.min(others));
        return few.filter(|(clocks, _)| *clocks < others + copies);
    }
    let scalars = if tiles.is_none() { Scalars::of(graph, step, extents(step), target) } else { None };
    let scalars = scalars.map(|(clocks, plan)| (clocks, How::Scalars(plan)));
    let tiles = tiles.map(|(clocks, plan)| (clocks, How::Tiles(plan)));
    let (clocks, best) = tiles.into_iter().chain(few).chain(scalars).min_by(|a, b| a.0.total_cmp(&b.0))?;
    (clocks < others).then_some((clocks, best))
}

/// True when there is a kernel for an attention, and it seems quicker than several.
pub(in crate::kernels) fn fits(graph: &FusedGraph, step: &Step, target: Target) -> bool {
    matches!(step.kind, StepKind::Attention(_)) && choose(graph, step, target).is_some()
}

/// True when it seems quicker that an attention makes lines than that other steps do.
pub(in crate::kernels) fn makes(graph: &FusedGraph, before: &Step, whole: &Step, target: Target) -> bool {
    let clocks = |step: &Step| {
        let grouped = grouped(step);
        let step = grouped.as_ref().unwrap_or(step);
        Few::of(graph, step, extents(step), target).map(|few| few.0)
    };
    let machine = Machine::of(target);
    let few = matches!(choose(graph, before, target), Some(How::Few(_)));
    few && clocks(before).zip(clocks(whole)).is_some_and(|(a, b)| b < a + machine.launch + machine.ends)
}

/// True when an attention that looks up its keys and values seems quicker than one of what steps before have gathered.
pub(in crate::kernels) fn pages(
    graph: &FusedGraph,
    before: &Step,
    copies: [&Step; 2],
    whole: &Step,
    target: Target,
) -> bool {
    let machine = Machine::of(target);
    let moved: usize = copies.iter().map(|s| 2 * graph.tensor(s.output.tensor).bytes()).sum();
    let copying = moved as f64 / machine.memory + 2.0 * (machine.launch + machine.ends);
    match (timed(graph, before, target), timed(graph, whole, target)) {
        (Some((before, _)), Some((whole, _))) => whole < before + copying,
        (None, whole) => whole.is_some(),
        _ => false,
    }
}
