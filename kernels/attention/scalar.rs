//! Attention where no matrix instruction takes its types: a lane has a query of its own, and keys and values come as scalars.
//!
//! What a wave reads of K and V is the same for all of its lanes: scalar loads bring it, and a multiply-add takes one factor from a scalar
//! register. So scores, the maximum, the sum and the results of a query are its lane's alone, and nothing of K, V or the weights goes through
//! LDS. There lie the queries, which the waves of a workgroup have in common: each takes some of the keys. In the end what they have found is
//! put together in LDS, from where lines of results are stored whole.
//!
//! Scalar loads come back out of order, so that a wait is for all of them. They come in chunks of what 32 registers hold ([`chunks`]): when
//! the first product of a chunk has waited for it, the next chunk is asked for, and comes while the rest is multiplied. Memory is asked for a tile earlier,
//! by a load of a dword of each line that nobody waits for.

mod chunks;
mod meet;

use super::super::address::{self, Offset};
use super::super::choice::Machine;
use super::super::error::Res;
use super::super::float::Float;
use super::super::values::{self, Value};
use super::super::{Arg, Cx, Kernel, Writer};
use super::plan::{self, Extents};
use super::rounds::{maximum, packed};
use super::{LOWEST, SLACK, exponents, scored};
use crate::graph::expr::Expr;
use crate::graph::fused::{Attention, FusedGraph, Step, StepKind};
use crate::mir::{Buffer, Builder, Gen, Opnd, Part, Pipeline, Type, dot_instruction};
use crate::tensor::DType;
use barewave_isa::{Target, op};
use barewave_timing::gemm::queued;
use chunks::{Chunk, Chunks};

/// Bytes that lines of Q, K and V are multiples of, and the registers of results that a lane may have.
const WHOLE: usize = 16;
const RESULTS: usize = 128;

/// Fewest queries: fewer are taken key by key.
const FEWEST: usize = 9;

/// Keys of a tile, by the multiply-adds of one: its code should stay in the instruction cache.
const KEYS: [u32; 2] = [16, 8];
const LONG: usize = 160;

/// Waves of a workgroup that are tried.
const WAVES: [u32; 4] = [1, 2, 4, 8];

/// Registers of a lane besides results, scores and queries.
const OTHERS: u32 = 24;

/// Issue slots of a score besides its products: its share in the maximum, the exponent, the exponential, the sum.
const OF_SCORE: f64 = 8.0;

/// What a wave that is alone waits for a chunk: issue slots of its loads, and a share of what the second-level cache takes to answer less one of what
/// is multiplied meanwhile. Fitted to the model of cycles.
const LOADS: f64 = 3.0;
const UNHIDDEN: f64 = 0.19;
const HIDDEN: f64 = 0.25;

/// How one is computed.
#[derive(Clone, Copy)]
pub(super) struct Scalars {
    pub e: Extents,
    /// Type of what is multiplied.
    t: Type,
    /// Waves of a workgroup, which share the keys.
    waves: u32,
    /// Keys of a tile.
    keys: u32,
    lanes: u32,
}

impl Scalars {
    /// The way that takes least time, and its cycles; none where operands do not lie in whole lines, or queries are few.
    pub fn of(graph: &FusedGraph, step: &Step, e: Extents, target: Target) -> Option<(f64, Scalars)> {
        let StepKind::Attention(kind) = &step.kind else { return None };
        let t = graph.tensor(step.inputs[0].tensor).dtype;
        let compute = match t {
            DType::F32 => Type::F32,
            DType::F16
                if dot_instruction(target, [Type::F16; 2], Type::F32).is_some() || target.has(op::V_FMA_MIX_F32) =>
            {
                Type::F16
            }
            _ => return None,
        };
        let r = step.output.view.rank();
        let lines = plan::reads_lines(graph, step, []);
        let whole = [e.depth, e.width].into_iter().all(|n| (n * t.size()).is_multiple_of(WHOLE));
        let simple = kind.made.is_empty() && !kind.cached && !kind.any_keys;
        if !(lines && whole && simple && e.queries >= FEWEST) {
            return None;
        }
        let apart = step.inputs[3..3 + kind.operands].iter().filter(|a| a.view.strides[r - 2] != 0).count();
        let keys = KEYS[usize::from(e.depth + e.width > LONG)];
        let lanes = target.info().wave_size;
        let ways = WAVES.into_iter().map(|waves| Scalars { e, t: compute, waves, keys, lanes });
        ways.filter(|s| s.fits(target)).map(|s| (s.clocks(target, apart), s)).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn fits(&self, target: Target) -> bool {
        let info = target.info();
        let budget = target.most_vgprs(self.lanes, self.waves.div_ceil(info.simds)).min(info.named_vgprs());
        self.e.width <= RESULTS && self.vgprs() <= budget && self.lds() <= info.lds_bytes
    }

    /// Keys that the waves of a workgroup take in a round.
    fn round(&self) -> u32 {
        self.waves * self.keys
    }

    /// Workgroups of a batch.
    fn blocks(&self) -> u32 {
        (self.e.queries as u32).div_ceil(self.lanes)
    }

    /// Dwords of a line of Q and K, and of V.
    fn deep(&self) -> u32 {
        self.e.depth as u32 * self.t.bits() / 32
    }
    fn wide(&self) -> u32 {
        self.e.width as u32 * self.t.bits() / 32
    }

    /// Registers of a lane.
    fn vgprs(&self) -> u32 {
        self.e.width as u32 + self.keys + 2 * chunks::DEPTH + OTHERS
    }

    /// Bytes of a piece of 16 bytes of all queries in LDS, so that those of a line lie in different banks, and of all queries. Behind these
    /// is room for what nobody reads, of each workitem.
    fn pitch(&self) -> u32 {
        (self.lanes + 1) * 16
    }
    fn held(&self) -> u32 {
        self.deep() / 4 * self.pitch()
    }
    fn lds(&self) -> u32 {
        let pieces = self.lanes * self.deep() / 4;
        let each = if pieces.is_multiple_of(self.threads()) { 4 } else { 16 };
        (self.held() + each * self.threads()).max(self.meeting())
    }

    fn threads(&self) -> u32 {
        self.waves * self.lanes
    }

    /// Cycles of the launch, about: what all waves of a SIMD multiply, or as long as the one with most keys alone waits for each chunk. Lines
    /// of so many operands of scores are different for each query.
    fn clocks(&self, target: Target, apart: usize) -> f64 {
        let (m, e) = (Machine::of(target), &self.e);
        let pairs = chunks::dot(target, self.t).and_then(|dot| target.op(dot));
        let one = pairs.map_or(m.multiply_add(Type::F32), |dot| f64::from(dot.busy) / 2.0);
        // Operands come four keys at a time, a line of the cache for each query.
        let simds = f64::from(target.info().simds);
        let lines = apart as f64 / 4.0 * f64::from(self.lanes) * f64::from(m.line) / m.l1 * simds.min(2.0);
        let of_key = ((e.depth + e.width) as f64 * one + OF_SCORE * m.issue).max(lines);
        let of_all = e.keys as f64;
        let mean = if e.causal.is_some() { (of_all + f64::from(self.lanes)) / 2.0 } else { of_all }.min(of_all);
        let [mean, most] = [mean, of_all].map(|n| (n / f64::from(self.waves)).max(f64::from(self.keys)));
        let packs = if pairs.is_some() { e.width as f64 / 2.0 * m.issue } else { 0.0 };
        let chunks = f64::from(self.deep() + self.wide()) / f64::from(chunks::WORDS);
        let answer = (UNHIDDEN * m.l2_latency - HIDDEN * of_key / chunks).max(0.0);
        let alone = most * (of_key + packs + chunks * (LOADS * m.issue + answer));
        let groups = e.batches as f64 * f64::from(self.blocks());
        let cus = f64::from(target.cus());
        let fit = m.fit(self.waves, self.vgprs(), self.lds());
        let of = |resident: f64| {
            let beside = (resident * f64::from(self.waves) / simds).ceil();
            (beside * mean * of_key).max(alone)
        };
        let (rounds, rest) = ((groups / (cus * fit)).floor(), groups % (cus * fit));
        let last = if rest > 0.0 { of((rest / cus).ceil()) } else { 0.0 };
        let meeting = e.width as f64 * m.issue * f64::from(4 + self.waves);
        let bytes = e.batches * (e.keys + e.queries) * (e.depth + e.width) * self.t.bits() as usize / 8;
        let memory = bytes as f64 / m.memory + m.launch + m.ends;
        queued([rounds * of(fit) + last + (rounds + 1.0) * (m.ends + meeting) + m.launch, memory])
    }
}

/// What runs along with the keys, of a lane's query.
struct State {
    max: Part,
    sum: Part,
    /// Pieces of four columns.
    results: Vec<Part>,
}

/// A kernel being written.
struct Keys<'a> {
    cx: &'a Cx<'a>,
    kind: &'a Attention,
    plan: Scalars,
    float: Float,
    /// Coordinates of the outer dimensions.
    batch: Vec<Option<Part>>,
    /// First query of the workgroup, number of the lane and of its wave, the lane's query.
    first: Part,
    lane: Part,
    wave: Part,
    query: Part,
    /// Exponents are scores times this.
    factor: f64,
    /// The expression of scores, where it does more than scale.
    score: Option<&'a Expr>,
}

/// Operands of the scores' expression: of each, that of each key, or one for all keys.
type Loaded = Vec<Vec<Value>>;

pub(super) fn lower(cx: &Cx, kind: &Attention, plan: Scalars) -> Res<Vec<Kernel>> {
    let mut w = cx.kernel(plan.threads());
    let dims = &cx.step.output.view.dims;
    let z = w.b.workgroup_id(1);
    let batch = address::coordinates(&mut w.b, z, &dims[..dims.len() - 2]);
    let mut block = w.b.workgroup_id(0);
    if kind.causal.is_some() {
        // Those that see most keys begin first.
        let last = w.b.scalar(plan.blocks() - 1);
        block = w.b.sub(last, block);
    }
    let first = w.b.mul(block, plan.lanes);
    let item = w.b.workitem_id();
    let lane = w.b.and(item, plan.lanes - 1);
    let wave = w.b.shr(item, plan.lanes.trailing_zeros());
    let wave = if plan.waves > 1 { w.b.uniform(wave) } else { w.b.scalar(0) };
    let query = w.b.add(lane, first);
    let query = w.b.to_vector(query);
    let (factor, score) = exponents(kind, f64::INFINITY);
    let float = Float(Type::F32);
    let keys = Keys { cx, kind, plan, float, batch, first, lane, wave, query, factor, score };
    keys.write(w)
}

impl Keys<'_> {
    fn write(&self, mut w: Writer) -> Res<Vec<Kernel>> {
        let (plan, e) = (&self.plan, &self.plan.e);
        let base = w.b.lds(plan.lds());
        self.bring_queries(&mut w, base)?;
        let state = self.walk(&mut w, base)?;
        self.meet(&mut w, base, &state)?;
        let flops = 2 * (e.batches * e.queries * e.keys * (e.depth + e.width)) as u64;
        Ok(vec![w.finish([plan.blocks(), e.batches as u32, 1], flops)])
    }

    /// Offset of an access from its outer dimensions.
    fn outer(&self, w: &mut Writer, arg: Arg) -> Offset {
        let view = self.cx.view(arg);
        let size = self.cx.dtype(arg).size();
        address::offset_of_dims(&mut w.b, view, size, &self.batch, 0..view.rank() - 2, true)
    }

    /// The workgroup's queries go to LDS: pieces of 16 bytes, those of one place in their lines side by side. Workitems take neighbouring
    /// pieces of a line.
    fn bring_queries(&self, w: &mut Writer, base: u32) -> Res<()> {
        let plan = &self.plan;
        let (threads, pieces) = (plan.threads(), plan.deep() / 4);
        let view = &self.cx.step.inputs[0].view;
        let stride = view.strides[view.rank() - 2] as u32 * plan.t.bits() / 8;
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let outer = self.outer(w, Arg::Input(0));
        let item = w.b.workitem_id();
        let all = plan.lanes * pieces;
        for before in (0..all).step_by(threads as usize) {
            let number = if before > 0 { w.b.add(item, before) } else { item };
            let (query, piece) = w.b.divmod(number, pieces);
            let own = w.b.add(query, self.first);
            let at = w.b.mul(own, stride);
            let at = w.b.mad(piece, 16u32, at);
            let at = outer.reg.map_or(at, |r| w.b.add(at, r));
            let at = w.b.to_vector(at);
            let own = w.b.to_vector(own);
            let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(plan.e.queries as u32).into(), own.into()]);
            let at = w.b.guard(inside, at);
            let data = w.b.load(buf, 4, at, 0u32, outer.imm);
            let to = w.b.mul(piece, plan.pitch());
            let to = w.b.mad(query, 16u32, to);
            let mut to = w.b.to_vector(to);
            if before + threads > all {
                // Who has no piece left writes behind them.
                let number = w.b.to_vector(number);
                let mine = w.b.op(Gen::CmpGt.of(Type::U32), &[all.into(), number.into()]);
                let nowhere = w.b.mul(item, 16u32);
                let nowhere = w.b.add(nowhere, plan.held());
                let nowhere = w.b.to_vector(nowhere);
                to = w.b.select(mine, to, nowhere);
            }
            w.b.lds_write(to, data, base);
        }
        w.b.barrier();
        Ok(())
    }

    /// The maximum, sum and results of the lane's query, of the keys of its wave.
    fn walk(&self, w: &mut Writer, base: u32) -> Res<State> {
        let (plan, float) = (&self.plan, self.float);
        let zeros = |b: &mut Builder| {
            let p = b.v(4);
            (0..4).for_each(|i| b.copy_into(p.dword(i), 0u32));
            p
        };
        let state = State {
            max: float.held(&mut w.b, f64::NEG_INFINITY),
            sum: float.held(&mut w.b, 0.0),
            results: (0..plan.e.width / 4).map(|_| zeros(&mut w.b)).collect(),
        };
        let fixed = self.operands(w, None)?;
        let chunks = Chunks::new(self, w, base)?;
        let whole = plan.e.keys as u32 / plan.keys;
        let rest = plan.e.keys as u32 % plan.keys;
        let seen = self.seen(&mut w.b);
        if whole > 0 {
            let tiles = match seen {
                None => w.b.scalar(whole),
                Some(seen) => {
                    let own = w.b.add(seen, plan.keys - 1);
                    let own = w.b.udiv(own, plan.keys);
                    w.b.generic(Gen::Min.of(Type::U32), &[own.into(), whole.into()])
                }
            };
            // Waves take tiles in turn.
            let after = w.b.label();
            let behind = w.b.add(self.wave, 1u32);
            w.b.branch_lt(tiles, behind, after);
            let count = w.b.sub(tiles, self.wave);
            let count = w.b.add(count, plan.waves - 1);
            let count = w.b.shr(count, plan.waves.trailing_zeros());
            let first = w.b.mul(self.wave, plan.keys);
            chunks.begin(&mut w.b, first, Some(tiles), plan.keys);
            let node = w.b.begin_loop("keys");
            self.tile(w, &chunks, &state, &fixed, plan.keys)?;
            w.b.end_loop(node, count, 1, Pipeline::Off, false);
            chunks.drop_touched(&mut w.b, base + plan.held());
            w.b.place(after, "rest");
        }
        if rest > 0 {
            // The last wave takes what is left over, where the workgroup sees it.
            let done = w.b.label();
            if plan.waves > 1 {
                w.b.branch_lt(self.wave, plan.waves - 1, done);
            }
            let first = w.b.scalar(whole * plan.keys);
            if let Some(seen) = seen {
                let behind = w.b.add(first, 1u32);
                w.b.branch_lt(seen, behind, done);
            }
            chunks.begin(&mut w.b, first, None, rest);
            self.tile(w, &chunks, &state, &fixed, rest)?;
            w.b.place(done, "met");
        }
        Ok(state)
    }

    /// How many keys the last query of the workgroup sees, where that is not all.
    fn seen(&self, b: &mut Builder) -> Option<Part> {
        let seen = b.add(self.first, (self.kind.causal? + i64::from(self.plan.lanes)) as u32);
        let seen = b.generic(Gen::Max.of(Type::I32), &[seen.into(), 0u32.into()]);
        Some(b.generic(Gen::Min.of(Type::U32), &[seen.into(), (self.plan.e.keys as u32).into()]))
    }

    /// Takes a tile of so many keys, all but the last one whole.
    fn tile(&self, w: &mut Writer, chunks: &Chunks, state: &State, fixed: &Loaded, count: u32) -> Res<()> {
        let float = self.float;
        let whole = count == self.plan.keys;
        let at = chunks.key();
        w.b.fix_order();
        let moving = self.operands(w, Some((at, count)))?;
        if whole {
            chunks.touch(&mut w.b);
        }
        let list = Chunk::all(&self.plan, count);
        let (of_scores, of_values) = list.split_at(list.iter().filter(|c| c.is_of_scores()).count());
        let scores = chunks.scores(&mut w.b, of_scores, of_values, count);
        w.b.block("softmax");
        let seen = self.evaluated(w, &scores, at, [fixed, &moving])?;
        for (own, new) in scores.iter().zip(&seen).filter(|(a, b)| a != b) {
            w.b.copy_into(*own, *new);
        }
        let mut most = scores.clone();
        while most.len() > 1 {
            most = most.chunks(3).map(|some| maximum(&mut w.b, some)).collect();
        }
        let lowest = float.constant(&mut w.b, LOWEST);
        let largest = w.b.op(Gen::Max.of(Type::F32), &[lowest, most[0].into()]);
        self.grow(&mut w.b, state, largest);
        let weights = self.weights(&mut w.b, &scores, state);
        w.b.block("values");
        w.b.fix_order();
        let next = of_scores.first().filter(|_| whole);
        chunks.values(&mut w.b, (of_values, of_scores.len() % 2), next, &state.results, &weights);
        Ok(())
    }

    /// Where a maximum has to grow, what was summed before is scaled down: rarely, but for the first tiles.
    fn grow(&self, b: &mut Builder, state: &State, largest: Part) {
        let float = self.float;
        let growth = float.sub(b, largest, state.max);
        let grows = float.compare_to(b, Gen::CmpGt, growth, SLACK / self.factor);
        let go_on = b.label();
        b.branch_if_none(grows, go_on, "grow");
        let new = float.op(b, Gen::Max, state.max, largest);
        let gone = float.sub(b, state.max, new);
        let gone = float.scaled(b, gone, self.factor);
        let shrink = b.op(Gen::Exp2.of(Type::F32), &[gone.into()]);
        b.copy_into(state.max, new);
        let sums = state.results.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i))).chain([state.sum]);
        sums.for_each(|x| b.emit(Gen::Mul.of(Type::F32), &[x.into()], &[x.into(), shrink.into()]));
        b.place(go_on, "weights");
    }

    /// Scores become weights, `2^(factor (score - maximum))`, in their registers, and are added up; in the type that is multiplied, two
    /// to a register where that has 16 bits.
    fn weights(&self, b: &mut Builder, scores: &[Part], state: &State) -> Vec<Part> {
        let float = self.float;
        let factor = float.held(b, self.factor);
        for s in scores {
            // The difference first: it is exact where a finite mask has made both large.
            let gone = float.sub(b, *s, state.max);
            let gone = float.mul(b, gone, factor);
            b.emit(Gen::Exp2.of(Type::F32), &[(*s).into()], &[gone.into()]);
        }
        let Some(dot) = chunks::dot(b.target(), self.plan.t) else {
            let total = scores.iter().copied().reduce(|x, y| float.add(b, x, y)).expect("a tile has keys");
            float.update(b, Gen::Add, state.sum, total);
            return scores.to_vec();
        };
        let (zero, ones) = (b.to_vector(0u32), b.scalar(ONES));
        let sum: Opnd = state.sum.into();
        let mut out = Vec::new();
        for two in scores.chunks(2) {
            let both = packed(b, Type::F16, &[two[0], *two.get(1).unwrap_or(&zero)]);
            // What is added is what is multiplied, so that how it was rounded does not matter.
            b.emit(dot, &[sum], &[both.into(), ones.into(), sum]);
            out.push(both);
        }
        out
    }

    /// The operands of the scores' expression that all keys have in common; or those of so many keys, from one on. Booleans are left as bytes.
    fn operands(&self, w: &mut Writer, keys: Option<(Part, u32)>) -> Res<Loaded> {
        let mut out = Loaded::new();
        for i in (3..3 + self.kind.operands).filter(|_| self.score.is_some()) {
            let (t, view) = (self.cx.dtype(Arg::Input(i)), &self.cx.step.inputs[i].view);
            let (r, size) = (view.rank(), t.size() as i64);
            let (row, pitch) = (view.strides[r - 2] * size, view.strides[r - 1] * size);
            let t = if t == DType::Bool { DType::U8 } else { t };
            let buf = w.buffer(self.cx, Arg::Input(i))?;
            let count = match keys {
                None if pitch == 0 => 1,
                Some((_, count)) if pitch != 0 => count,
                _ => {
                    out.push(Vec::new());
                    continue;
                }
            };
            let outer = self.outer(w, Arg::Input(i));
            let ahead = keys.map(|(first, _)| w.b.mul(first, pitch as i32));
            let mut at = w.b.mul(self.query, row as i32);
            for more in [outer.reg, ahead].into_iter().flatten() {
                at = w.b.add(at, more);
            }
            let mut at = w.b.to_vector(at);
            if !self.plan.e.queries.is_multiple_of(self.plan.lanes as usize) && row != 0 {
                let all = (self.plan.e.queries as u32).into();
                let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[all, self.query.into()]);
                at = w.b.guard(inside, at);
            }
            // Neighbouring keys side by side, where they lie so.
            let dense =
                t != DType::U8 && pitch == size && values::comes_in_fours(t) && values::is_word_aligned(t, view);
            let together = if dense && view.dims[r - 1].is_multiple_of(4) { 4 } else { 1 };
            let mut of_keys = Vec::new();
            while of_keys.len() < count as usize {
                let left = count - of_keys.len() as u32;
                let imm = outer.imm.wrapping_add((pitch * of_keys.len() as i64) as u32);
                let some = if left < together { 1 } else { together };
                of_keys.extend(values::load_some(&mut w.b, t, buf, Offset { reg: Some(at), imm }, some));
            }
            out.push(of_keys);
        }
        Ok(out)
    }

    /// The step's expression of the scores of the lane's query; what it does not see is hidden.
    fn evaluated(&self, w: &mut Writer, scores: &[Part], first: Part, operands: [&Loaded; 2]) -> Res<Vec<Part>> {
        let mut out = scores.to_vec();
        if let Some(score) = self.score {
            for (n, s) in out.iter_mut().enumerate() {
                let loaded = |i: usize| {
                    let [fixed, moving] = operands.map(|o| o.get(i));
                    fixed?.first().or_else(|| moving?.get(n)).copied()
                };
                *s = scored(w, self.cx, score, *s, loaded)?;
            }
        }
        if let Some(past) = self.kind.causal {
            let hidden = w.b.to_vector(f32::NEG_INFINITY);
            // How many more keys the query sees than the first.
            let seen = w.b.sub(self.query, first);
            let seen = w.b.add(seen, past as u32);
            let seen = w.b.to_vector(seen);
            for (n, s) in (0u32..).zip(&mut out) {
                let inside = w.b.op(Gen::CmpLe.of(Type::I32), &[n.into(), seen.into()]);
                *s = w.b.select(inside, *s, hidden);
            }
        }
        Ok(out)
    }
}

/// Two f16, each of them 1.
const ONES: u32 = 0x3c00_3c00;
