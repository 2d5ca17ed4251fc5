//! Attention of a few queries, while tokens are made one by one: bound by memory, without matrix instructions.
//!
//! A team of neighbouring workitems takes a key: each holds 16 bytes of it, and the same of each query, so that a team reads a line
//! of K and one of V whole, several keys of both in flight. Dot products are added over the team; the maximum, the sum of exponentials and
//! the results run along as they do in tiles of keys ([`super`]), of each team for itself. Then teams meet in LDS, relative to the
//! largest maximum of all, and workitems add up a column each. Where workgroups share the keys, the last one to end puts together what
//! all have left ([`split`](super::super::split)). All orders are fixed.
//!
//! Queries and new lines may have to be made of what is loaded ([`made`]), rotated by their positions: every workgroup does that for itself.
//!
//! Where a table says in which line a key lies, a team looks up those of its next round while it computes with what it has.
//!
//! Where the step writes the caches that it reads, a team loads a line of what there was of them, or takes the new one that it holds,
//! and stores it: every line has one team. In a launch with other steps the first lines are on their way while it waits for the step before.

mod caches;
mod made;
mod scores;

use super::super::address::{self, Offset};
use super::super::choice::Machine;
use super::super::error::Res;
use super::super::float::Float;
use super::super::split::{IN_FLIGHT, Shared};
use super::super::values::{self, Value};
use super::super::{Arg, Cx, Kernel, MAX_TENSOR_BYTES, Number, Writer, epilogue, lanes, linked};
use super::plan::{self, Extents};
use super::{LOWEST, cleared, exponents, inverse};
use crate::graph::expr::Expr;
use crate::graph::fused::{Attention, FusedGraph, Step, StepKind};
use crate::mir::{BlockId, Gen, MInst, Part, Pipeline, Type, dot_instruction};
use crate::tensor::DType;
use barewave_isa::Target;
use barewave_timing::gemm::queued;
use caches::New;
use scores::Operands;

/// Workitems of a workgroup, and bytes of a line that each takes.
const ITEMS: u32 = linked::ITEMS;
const RUN: u32 = 16;

/// Queries at most, and results of a workitem.
const QUERIES: u32 = 8;
const RESULTS: u32 = 64;

/// Keys of a team in flight, rounds of them, and workgroups of a compute unit that go on beside each other.
const ABREAST: [u32; 3] = [4, 2, 1];
const ROUNDS: [u32; 8] = [1, 2, 3, 4, 6, 8, 16, 32];
const BESIDE: u32 = 4;

/// Dwords of a workitem's lines that are all on their way while the step waits for the one before; only those of a round where they are more.
const AHEAD: u32 = 64;

/// Bytes of LDS in which teams meet at once.
const MEETING: u32 = 20 << 10;

/// Instructions of a score besides its products and its sum over the team: the maximum, the exponential, the sum.
const OF_SCORE: u32 = 8;

/// Instructions of a workitem that has no key yet, and of its part in a result of which each team has one.
const BEGINNING: u32 = 100;
const OF_TEAM: u32 = 3;

/// Instructions of an element that is made, and cycles that lines wait for tables and what these say.
const OF_MADE: u32 = 10;
const MAKING: f64 = 1000.0;

/// Cycles of a workgroup besides its instructions and what it waits for memory; of parts that are put together at once, from where the
/// whole device sees them, and of a dword of each. Of 24 launches by the cycle model.
const WAITS: f64 = 600.0;
const TOGETHER: f64 = 500.0;
const TOGETHER_DWORD: f64 = 22.0;

/// Who takes which keys.
#[derive(Clone, Copy)]
pub(super) struct Few {
    pub e: Extents,
    /// Workitems that share a key, and elements of each.
    team: u32,
    each: u32,
    /// Keys of a team in flight, and how often.
    abreast: u32,
    rounds: u32,
    /// Workgroups that share the keys.
    parts: u32,
    /// Lines are stored as well.
    cached: bool,
    /// Lines that are made first.
    made: u32,
    /// Where lines lie is looked up.
    paged: bool,
}

impl Few {
    /// The way that takes least time, and its cycles; none where queries are many, or operands do not lie in whole lines.
    pub fn of(graph: &FusedGraph, step: &Step, e: Extents, target: Target) -> Option<(f64, Few)> {
        let StepKind::Attention(kind) = &step.kind else { return None };
        let t = graph.tensor(step.inputs[0].tensor).dtype;
        let floats = matches!(t, DType::F16 | DType::BF16 | DType::F32);
        let r = step.output.view.rank();
        let lines = plan::reads_lines(graph, step, kind.caches().zip([r - 2, r - 2, r - 1, r - 1]));
        // Each line is one workgroup's.
        let shared =
            |i: usize| (0..r - 2).any(|d| step.inputs[i].view.dims[d] > 1 && step.inputs[i].view.strides[d] == 0);
        if kind.cached && (shared(1) || shared(2)) {
            return None;
        }
        if kind.rows().is_some_and(|i| graph.tensor(step.inputs[i].tensor).dtype != DType::I32) {
            return None;
        }
        let each = RUN / t.size() as u32;
        let whole = [e.depth, e.width].into_iter().all(|n| n.is_multiple_of(each as usize));
        let team = (e.depth.max(e.width) as u32 / each).next_power_of_two();
        let fits = team <= target.info().wave_size
            && e.queries as u32 <= QUERIES
            && e.queries as u32 * each <= RESULTS
            && e.keys >= 16;
        if !(floats && lines && whole && fits) {
            return None;
        }
        let dots = dots(target, t);
        let made = kind.made.iter().map(|m| if m.of == 0 { e.queries as u32 } else { 1 }).sum();
        let of = |abreast: u32, rounds: u32| {
            let few = Few { e, team, each, abreast, rounds, parts: 1, cached: kind.cached, made, paged: kind.paged };
            let parts = (e.keys as u32).div_ceil(few.chunk());
            Few { parts, ..few }
        };
        ABREAST
            .into_iter()
            .flat_map(|abreast| ROUNDS.map(|rounds| of(abreast, rounds)))
            .filter(|few| few.shared().bytes() < MAX_TENSOR_BYTES)
            .map(|few| (few.clocks(target, dots, t.size()), few))
            .min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn teams(&self) -> u32 {
        ITEMS / self.team
    }

    /// Keys of a workgroup in a round, and of all its rounds.
    fn round(&self) -> u32 {
        self.teams() * self.abreast
    }
    fn chunk(&self) -> u32 {
        self.round() * self.rounds
    }

    fn queries(&self) -> u32 {
        self.e.queries as u32
    }

    /// Columns of results, some of them none.
    fn columns(&self) -> u32 {
        self.team * self.each
    }

    /// Bytes that the results of a team take in LDS, with their sum and maximum, and those of all teams.
    fn pitch(&self) -> u32 {
        self.columns() * 4 + 16
    }
    fn plane(&self) -> u32 {
        self.teams() * self.pitch()
    }

    /// Queries for which teams meet at once, and those that workitems of a column have among them.
    fn turns(&self) -> (u32, u32) {
        ((MEETING / self.plane()).clamp(1, self.queries()), ITEMS / self.columns())
    }

    /// Results of a workitem.
    fn results(&self) -> u32 {
        let (at_once, copies) = self.turns();
        let of_turn = |first: u32| (self.queries() - first).min(at_once).div_ceil(copies);
        (0..self.queries()).step_by(at_once as usize).map(of_turn).sum()
    }

    /// What parts leave: of each of a workitem's results the maximum, the sum and itself.
    fn shared(&self) -> Shared {
        let tiles = [1, self.e.batches as u32, 1];
        Shared { threads: ITEMS, dwords: 3 * self.results(), count: self.parts, tiles }
    }

    /// Parts that are put together at once.
    fn at_once(&self) -> u32 {
        (IN_FLIGHT / self.shared().dwords).clamp(1, self.parts)
    }

    /// Cycles of the launch, about.
    fn clocks(&self, target: Target, dots: bool, size: usize) -> f64 {
        let (info, m) = (target.info(), Machine::of(target));
        let products = if dots { self.each / 2 } else { 2 * self.each };
        let of_query = products + 2 * self.team.ilog2() + OF_SCORE + self.each;
        let of_round = self.abreast * (2 * self.each + self.queries() * of_query);
        let meeting = OF_TEAM * self.results() * self.teams() + self.queries() * (2 * self.each + OF_SCORE);
        let instructions = BEGINNING + OF_MADE * self.each * self.made + of_round * self.rounds + meeting;
        let waves = f64::from(ITEMS / info.wave_size) / f64::from(info.simds);
        let groups = self.e.batches as u32 * self.parts;
        let work = f64::from(instructions) * m.issue * waves * f64::from(groups.div_ceil(info.cus));
        let turns = groups.div_ceil(info.cus * BESIDE);
        let waits = WAITS + if self.made > 0 { MAKING } else { 0.0 } + if self.paged { m.latency } else { 0.0 };
        let alone = f64::from(turns) * (waits + f64::from(self.rounds) * m.latency);
        let lines = self.e.batches * self.e.keys * (self.e.depth + self.e.width) * size;
        let bytes = (lines * (1 + usize::from(self.cached))) as f64;
        if self.parts == 1 {
            return queued([work + alone, bytes / m.memory]) + m.launch;
        }
        let shared = self.shared();
        let adding = TOGETHER * f64::from(self.parts.div_ceil(self.at_once()))
            + TOGETHER_DWORD * f64::from(shared.dwords * self.parts);
        queued([work + alone, (bytes + shared.bytes() as f64) / m.memory]) + adding + m.launch
    }
}

/// True where scores are dot products of pairs.
fn dots(target: Target, t: DType) -> bool {
    t == DType::F16 && dot_instruction(target, [Type::F16; 2], Type::F32).is_some()
}

/// The first lines of what there is of caches are loaded before the step waits for the one before: where these are data of the run, and not in blocks.
pub(super) fn loads_ahead(kind: &Attention) -> bool {
    kind.cached && !(kind.placed || kind.any_keys || kind.paged)
}

/// The operand with what there is of a cache: of keys (1) or values (2).
pub(super) fn past(kind: &Attention, of: usize) -> usize {
    kind.caches().start + 2 * (of - 1)
}

/// What runs along with the keys, of a query.
struct State {
    max: Part,
    sum: Part,
    results: Vec<Part>,
}

/// What is the same in all rounds: queries, the new line of caches, operands of scores that no key has for itself.
struct Held {
    queries: Vec<Vec<Part>>,
    new: Option<New>,
    fixed: Operands,
    /// In which lines the team's keys of a round lie, where that is looked up: each round leaves those of the next one.
    rows: Vec<Part>,
}

/// A column of a query that a workitem has.
struct Column {
    max: Part,
    sum: Part,
    result: Part,
    /// Which query, and lanes for which it is one that nobody else has, where that is not all.
    query: Part,
    inside: Option<Part>,
}

/// A kernel being written.
struct Keys<'a> {
    cx: &'a Cx<'a>,
    kind: &'a Attention,
    few: &'a Few,
    float: Float,
    dots: bool,
    /// Coordinates of the outer dimensions.
    batch: Vec<Option<Part>>,
    /// Number in the team, and the team's first key.
    member: Part,
    first: Part,
    /// Exponents are scores times this.
    factor: f64,
    /// The expression of scores, where it does more than scale.
    score: Option<&'a Expr>,
}

pub(super) fn lower(cx: &Cx, kind: &Attention, few: &Few) -> Res<Vec<Kernel>> {
    let mut w = cx.kernel(ITEMS);
    let dims = &cx.step.output.view.dims;
    let z = w.b.workgroup_id(1);
    let batch = address::coordinates(&mut w.b, z, &dims[..dims.len() - 2]);
    let item = w.b.workitem_id();
    let member = w.b.and(item, few.team - 1);
    let team = w.b.shr(item, few.team.trailing_zeros());
    let number = w.b.workgroup_id(2);
    let (factor, score) = exponents(kind, f64::INFINITY);
    let float = Float(Type::F32);
    let dots = dots(cx.target, cx.dtype(Arg::Input(0)));
    let mut keys = Keys { cx, kind, few, float, dots, batch, member, first: team, factor, score };
    keys.first = match keys.rounds(&mut w) {
        Some(rounds) => {
            let before = w.b.mul(number, rounds);
            w.b.mad(before, few.round(), team)
        }
        None => w.b.mad(number, few.chunk(), team),
    };
    let states = keys.walk(&mut w)?;
    let columns = keys.meet(&mut w, states)?;
    keys.finish(w, number, columns)
}

impl Keys<'_> {
    fn size(&self) -> u32 {
        self.cx.dtype(Arg::Input(0)).size() as u32
    }

    /// Offset of an access from its outer dimensions.
    fn outer(&self, w: &mut Writer, arg: Arg) -> Offset {
        let (i, view) = match arg {
            Arg::Input(i) => (i, &self.cx.step.inputs[i].view),
            _ => (self.cx.step.inputs.len(), &self.cx.step.output.view),
        };
        let size = self.cx.dtype(arg).size();
        let told = |d: &usize| plan::told(self.kind, i, view, *d);
        let Some(first) = (0..view.rank() - 2).find(told) else {
            return address::offset_of_dims(&mut w.b, view, size, &self.batch, 0..view.rank() - 2, true);
        };
        let mut at = address::offset_of_dims(&mut w.b, view, size, &self.batch, 0..first, true);
        for d in first..view.rank() - 2 {
            let Some(c) = self.batch[d].filter(|_| view.strides[d] != 0) else { continue };
            let far = match told(&d) {
                true => w.number(Number::Stride(i, d)),
                false => w.b.scalar((view.strides[d] * size as i64) as u32),
            };
            let far = w.b.mul(c, far);
            at.reg = Some(at.reg.map_or(far, |r| w.b.add(r, far)));
        }
        at
    }

    /// Asks for all numbers that the kernel is told, before its loop.
    fn ask(&self, w: &mut Writer) {
        let r = self.cx.step.output.view.rank();
        for (i, a) in self.cx.step.inputs[..self.kind.makings().start].iter().enumerate() {
            for d in (0..r).filter(|d| plan::told(self.kind, i, &a.view, *d)) {
                w.number(Number::Stride(i, d));
            }
            if let Some(d) = plan::along_keys(self.kind, i, r)
                .filter(|_| self.kind.any_keys && !(2..self.kind.caches().start).contains(&i))
            {
                w.number(Number::Length(i, d));
            }
        }
    }

    /// Rounds of a workgroup, and lanes whose key, `u` steps of teams behind the first, operand `i` has: where the kernel is told.
    fn rounds(&self, w: &mut Writer) -> Option<Part> {
        let r = self.cx.step.output.view.rank();
        self.kind.any_keys.then(|| w.number(Number::Pieces(1, r - 1, self.few.parts * self.few.round())))
    }
    fn lies_within(&self, w: &mut Writer, i: usize, first: Part, u: u32) -> Part {
        let r = self.cx.step.output.view.rank();
        let along = plan::along_keys(self.kind, i, r).unwrap_or(r - 1);
        let limit = w.number(Number::Length(i, along));
        let limit = w.b.sub(limit, u * self.few.teams());
        w.b.op(Gen::CmpGt.of(Type::I32), &[limit.into(), first.into()])
    }

    /// Lanes that have a part of a line of `length` elements, where not all do.
    fn has(&self, w: &mut Writer, length: usize) -> Option<Part> {
        let all = length as u32 / self.few.each;
        (all != self.few.team).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[all.into(), self.member.into()]))
    }

    /// The elements of 16 bytes.
    fn elements(&self, w: &mut Writer, raw: Part) -> Vec<Part> {
        let from = values::stored(self.cx.dtype(Arg::Input(0)));
        (0..self.few.each).map(|e| values::widened(&mut w.b, from, raw, e)).collect()
    }

    /// The maximum, sum and results of each query, of the team's keys.
    fn walk(&self, w: &mut Writer) -> Res<Vec<State>> {
        let (few, float) = (self.few, self.float);
        for i in 0..self.kind.makings().end {
            let r = self.cx.step.output.view.rank();
            if self.kind.any_keys && plan::grows(self.kind, i, r) {
                w.any_buffer(self.cx, Arg::Input(i));
            } else {
                w.buffer(self.cx, Arg::Input(i))?;
            }
        }
        self.ask(w);
        let early = match self.cx.link.is_some() && loads_ahead(self.kind) {
            true if 2 * few.rounds * few.abreast * RUN / 4 <= AHEAD => few.rounds,
            true => 1,
            false => 0,
        };
        let mut ahead = Vec::new();
        for round in 0..early {
            let first = if round > 0 { w.b.add(self.first, round * few.round()) } else { self.first };
            let insides = self.insides(w, first, &[]);
            let [k, v] = [1, 2].map(|i| self.lines(w, i, first, &insides, &[]));
            ahead.push((first, [k?, v?]));
        }
        w.wait_for_step_before();
        let rows = self.rows(w, self.first, None)?;
        let view = &self.cx.step.inputs[0].view;
        let outer = self.outer(w, Arg::Input(0));
        let at = w.b.mul(self.member, RUN);
        let at = outer.reg.map_or(at, |r| w.b.add(at, r));
        let at = self.has(w, few.e.depth).map_or(at, |m| w.b.guard(m, at));
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let pitch = view.strides[view.rank() - 2] as u32 * self.size();
        let raw: Vec<Part> = (0..few.queries()).map(|q| w.b.load(buf, 4, at, 0u32, outer.imm + q * pitch)).collect();
        let mut known = Vec::new();
        let queries: Vec<Vec<Part>> = self
            .made(w, 0, raw, &mut known)?
            .into_iter()
            .map(|raw| if self.dots { (0..4).map(|d| raw.dword(d)).collect() } else { self.elements(w, raw) })
            .collect();
        let new = if self.kind.cached { Some(self.held(w, &mut known)?) } else { None };
        let fixed = self.operands(w, None)?;
        let held = Held { queries, new, fixed, rows };
        let states: Vec<State> = (0..few.queries())
            .map(|_| State {
                max: float.held(&mut w.b, LOWEST),
                sum: float.held(&mut w.b, 0.0),
                results: (0..few.each).map(|_| float.held(&mut w.b, 0.0)).collect(),
            })
            .collect();
        for (first, lines) in ahead {
            self.round(w, &held, &states, first, Some(lines))?;
        }
        let rounds = few.rounds - early;
        let first = if early > 0 { w.b.add(self.first, early * few.round()) } else { self.first };
        match rounds {
            0 => return Ok(states),
            1 if !self.kind.any_keys => {
                self.round(w, &held, &states, first, None)?;
                return Ok(states);
            }
            _ => {}
        }
        let node = w.b.begin_loop("keys");
        let first = w.b.mad(node.counter(), few.round(), first);
        self.round(w, &held, &states, first, None)?;
        match self.rounds(w) {
            Some(rounds) => w.b.end_loop(node, rounds, 1, Pipeline::Off, false),
            None => w.b.end_loop(node, rounds, 1, Pipeline::Off, false),
        }
        Ok(states)
    }

    /// In which lines the team's keys from `first` on lie, in these registers or in new ones; nothing where lines are those of the keys.
    fn rows(&self, w: &mut Writer, first: Part, into: Option<&[Part]>) -> Res<Vec<Part>> {
        let Some(i) = self.kind.rows() else { return Ok(Vec::new()) };
        let (few, view) = (self.few, &self.cx.step.inputs[i].view);
        let buf = w.buffer(self.cx, Arg::Input(i))?;
        let pitch = (view.strides[view.rank() - 1] * self.cx.dtype(Arg::Input(i)).size() as i64) as u32;
        let outer = self.outer(w, Arg::Input(i));
        let at = w.b.mul(first, pitch);
        let at = outer.reg.map_or(at, |r| w.b.add(at, r));
        let at = w.b.to_vector(at);
        let mut out = Vec::new();
        for u in 0..few.abreast {
            let limit = (few.e.keys as u32).saturating_sub(u * few.teams());
            let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), first.into()]);
            let at = w.b.guard(inside, at);
            let row = into.and_then(|into| into.get(u as usize).copied()).unwrap_or_else(|| w.b.v(1));
            w.b.load_into(row, buf, at, 0u32, outer.imm + u * few.teams() * pitch);
            out.push(row);
        }
        Ok(out)
    }

    /// Lines of K or V of the team's keys from `first` on, or what a cache of them has so far.
    fn lines(&self, w: &mut Writer, i: usize, first: Part, insides: &[Option<Part>], rows: &[Part]) -> Res<Vec<Part>> {
        let from = if self.kind.cached { past(self.kind, i) } else { i };
        let buf = w.buffer(self.cx, Arg::Input(from))?;
        let there = if self.kind.cached { self.there(w, from, first, insides) } else { insides.to_vec() };
        let places = self.places(w, (from, i), first, &there, rows);
        Ok(places.into_iter().map(|at| w.b.load(buf, 4, at.reg.unwrap_or(first), 0u32, at.imm)).collect())
    }

    /// Where the team's part of lines is from `first` on, or in these rows, of operand `i`, which is one of K or V as `of` says.
    fn places(
        &self,
        w: &mut Writer,
        (i, of): (usize, usize),
        first: Part,
        insides: &[Option<Part>],
        rows: &[Part],
    ) -> Vec<Offset> {
        let (few, view) = (self.few, &self.cx.step.inputs[i].view);
        let r = view.rank();
        let (length, stride) =
            if of == 1 { (few.e.depth, view.strides[r - 1]) } else { (few.e.width, view.strides[r - 2]) };
        let outer = self.outer(w, Arg::Input(i));
        let own = w.b.mul(self.member, RUN);
        let pitch = stride as u32 * self.size();
        let line = |w: &mut Writer, first: Part| {
            let at = w.b.mad(first, pitch, own);
            let at = outer.reg.map_or(at, |r| w.b.add(at, r));
            w.b.to_vector(at)
        };
        let of_first = rows.is_empty().then(|| line(w, first));
        let inside = self.has(w, length);
        let mut out = Vec::new();
        for (u, behind) in (0..few.abreast).zip(insides) {
            let mask = match (inside, *behind) {
                (Some(a), Some(b)) => Some(w.b.mask_and(a, b)),
                (a, b) => a.or(b),
            };
            let (at, ahead) = match of_first {
                Some(at) => (at, u * few.teams() * pitch),
                None => (line(w, rows[u as usize]), 0),
            };
            let at = mask.map_or(at, |m| w.b.guard(m, at));
            out.push(Offset { reg: Some(at), imm: outer.imm + ahead });
        }
        out
    }

    /// Lanes whose keys from `first` on, or in these rows, there are, where that is not all.
    fn insides(&self, w: &mut Writer, first: Part, rows: &[Part]) -> Vec<Option<Part>> {
        let few = self.few;
        let open = few.parts * few.chunk() > few.e.keys as u32;
        let lines = self.cx.step.inputs[1].view.dims.last().map_or(0, |n| *n as u32);
        let inside = |u: u32| {
            if self.kind.any_keys {
                return Some(self.lies_within(w, 1, first, u));
            }
            let limit = (few.e.keys as u32).saturating_sub(u * few.teams());
            let inside = open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), first.into()]));
            let Some(row) = rows.get(u as usize) else { return inside };
            let lies = w.b.op(Gen::CmpGt.of(Type::U32), &[lines.into(), (*row).into()]);
            Some(inside.map_or(lies, |inside| w.b.mask_and(inside, lies)))
        };
        (0..few.abreast).map(inside).collect()
    }

    /// Takes the team's keys of a round, whose lines of K and V may be loaded.
    fn round(
        &self,
        w: &mut Writer,
        held: &Held,
        states: &[State],
        first: Part,
        loaded: Option<[Vec<Part>; 2]>,
    ) -> Res<()> {
        let (few, float) = (self.few, self.float);
        let insides = self.insides(w, first, &held.rows);
        // All that is loaded is asked for before any of it is needed.
        let moving = self.operands(w, Some((first, &insides)))?;
        let rows = &held.rows;
        let mut raw = match loaded {
            Some(lines) => lines,
            None => [self.lines(w, 1, first, &insides, rows)?, self.lines(w, 2, first, &insides, rows)?],
        };
        if few.rounds > 1 {
            let next = w.b.add(first, few.round());
            self.rows(w, next, Some(rows))?;
        }
        if let Some(new) = &held.new {
            for (i, lines) in (1..).zip(&mut raw) {
                self.renewed(w, i, first, lines, new);
                self.keep(w, i, first, &insides, lines, new)?;
            }
        }
        let [k, v] = raw;
        let mut scores = Vec::new();
        for raw in &k {
            let line = if self.dots { (0..4).map(|d| raw.dword(d)).collect() } else { self.elements(w, *raw) };
            for query in &held.queries {
                let sum = float.held(&mut w.b, 0.0);
                for (x, y) in line.iter().zip(query) {
                    match dot_instruction(self.cx.target, [Type::F16; 2], Type::F32).filter(|_| self.dots) {
                        Some(d) => w.b.push(MInst::new(d.op, &[sum.into()], &[(*x).into(), (*y).into(), sum.into()])),
                        None => float.fma_into(&mut w.b, sum, *x, *y),
                    }
                }
                scores.push(sum);
            }
        }
        let scores = lanes::combine(w, few.team, &scores, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| float.op(&mut w.b, Gen::Add, *x, *y)).collect())
        })?;
        let scores = self.evaluated(w, scores, first, &insides, [&held.fixed, &moving])?;
        let factor = float.held(&mut w.b, self.factor);
        let lines: Vec<Vec<Part>> = v.iter().map(|raw| self.elements(w, *raw)).collect();
        for (q, state) in states.iter().enumerate() {
            let own: Vec<Part> = scores.iter().skip(q).step_by(states.len()).copied().collect();
            let mut max = state.max;
            for s in &own {
                max = float.op(&mut w.b, Gen::Max, max, *s);
            }
            let keep = self.weight(w, state.max, max, factor);
            w.b.copy_into(state.max, max);
            let mut sum = float.mul(&mut w.b, state.sum, keep);
            let kept: Vec<Part> = state.results.iter().map(|x| float.mul(&mut w.b, *x, keep)).collect();
            for (s, line) in own.iter().zip(&lines) {
                let p = self.weight(w, *s, max, factor);
                sum = float.add(&mut w.b, sum, p);
                kept.iter().zip(line).for_each(|(x, v)| float.fma_into(&mut w.b, *x, p, *v));
            }
            w.b.copy_into(state.sum, sum);
            state.results.iter().zip(kept).for_each(|(x, new)| w.b.copy_into(*x, new));
        }
        Ok(())
    }

    /// `exp` of a score over a maximum.
    fn weight(&self, w: &mut Writer, score: Part, max: Part, factor: Part) -> Part {
        let gone = self.float.sub(&mut w.b, score, max);
        let gone = self.float.mul(&mut w.b, gone, factor);
        w.b.op(Gen::Exp2.of(Type::F32), &[gone.into()])
    }

    /// Adds up what the teams have found, a column in each workitem: of all queries, some at a time.
    fn meet(&self, w: &mut Writer, states: Vec<State>) -> Res<Vec<Column>> {
        let (few, float) = (self.few, self.float);
        let own: Vec<Part> = states.iter().map(|s| s.max).collect();
        let most = lanes::combine(w, ITEMS, &own, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| float.op(&mut w.b, Gen::Max, *x, *y)).collect())
        })?;
        let factor = float.held(&mut w.b, self.factor);
        let (at_once, copies) = few.turns();
        let base = w.b.lds(at_once * few.plane());
        let item = w.b.workitem_id();
        let team = w.b.shr(item, few.team.trailing_zeros());
        let team = w.b.mul(team, few.pitch());
        let home = w.b.mul(self.member, few.each * 4);
        let home = w.b.add(home, team);
        let copy = w.b.shr(item, few.columns().trailing_zeros());
        let column = w.b.and(item, few.columns() - 1);
        let bytes = w.b.shl(column, 2u32);
        let narrow = ((few.e.width as u32) < few.columns())
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(few.e.width as u32).into(), column.into()]));
        let mut out = Vec::new();
        let both: Vec<(State, Part)> = states.into_iter().zip(most).collect();
        for (turn, some) in (0..).zip(both.chunks(at_once as usize)) {
            if turn > 0 {
                w.b.barrier();
            }
            for (at, (state, max)) in (base..).step_by(few.plane() as usize).zip(some) {
                let keep = self.weight(w, state.max, *max, factor);
                for (i, four) in state.results.chunks(4).enumerate() {
                    let data = w.b.v(four.len() as u8);
                    for (d, x) in four.iter().enumerate() {
                        let x = float.mul(&mut w.b, *x, keep);
                        w.b.copy_into(data.dword(d as u8), x);
                    }
                    w.b.lds_write(home, data, at + 16 * i as u32);
                }
                let last = w.b.v(2);
                let sum = float.mul(&mut w.b, state.sum, keep);
                w.b.copy_into(last.dword(0), sum);
                w.b.copy_into(last.dword(1), *max);
                w.b.lds_write(team, last, at + few.columns() * 4);
            }
            w.b.barrier();
            for j in (0..some.len() as u32).step_by(copies as usize) {
                // Copies for which no query is left take the last one again.
                let left = some.len() as u32 - j;
                let (own, open) = match left.min(copies) {
                    1 => (w.b.to_vector(0u32), copies > 1),
                    n if n < copies => (w.b.op(Gen::Min.of(Type::U32), &[(n - 1).into(), copy.into()]), true),
                    _ => (copy, false),
                };
                let one = open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[left.into(), copy.into()]));
                let start = w.b.mul(own, few.plane());
                let from = w.b.add(start, bytes);
                let start = w.b.to_vector(start);
                let at = base + j * few.plane();
                let lasts: Vec<Part> = (0..few.teams())
                    .map(|t| w.b.lds_read(2, start, at + t * few.pitch() + few.columns() * 4))
                    .collect();
                let all = (0..few.teams())
                    .zip(&lasts)
                    .map(|(t, last)| vec![w.b.lds_read(1, from, at + t * few.pitch()), last.dword(0)]);
                let all = all.collect();
                let all = lanes::folded(w, all, &|w: &mut Writer, a: &[Part], b: &[Part]| {
                    Ok(a.iter().zip(b).map(|(x, y)| float.op(&mut w.b, Gen::Add, *x, *y)).collect())
                })?;
                let inside = match (one, narrow) {
                    (Some(a), Some(b)) => Some(w.b.mask_and(a, b)),
                    (a, b) => a.or(b),
                };
                let query = w.b.add(own, turn * at_once + j);
                out.push(Column { max: lasts[0].dword(1), sum: all[1], result: all[0], query, inside });
            }
        }
        Ok(out)
    }

    /// Puts parts together, where there are several, and stores the results.
    fn finish(&self, mut w: Writer, number: Part, columns: Vec<Column>) -> Res<Vec<Kernel>> {
        let (few, float) = (self.few, self.float);
        let shared = few.shared();
        let done = w.b.label();
        let found = if few.parts > 1 { self.put_together(&mut w, &shared, number, done, columns) } else { columns };
        let item = w.b.workitem_id();
        let column = w.b.and(item, few.columns() - 1);
        for c in &found {
            let (inverse, defined) = inverse(&mut w.b, float, self.kind.undefined, c.sum);
            let result = float.mul(&mut w.b, c.result, inverse);
            let result = cleared(&mut w.b, defined, result);
            epilogue::finish(&mut w, self.cx, Value::Word(result.into()), |w, arg| {
                let view = self.cx.view(arg);
                let (r, size) = (view.rank(), self.cx.dtype(arg).size() as i64);
                let outer = self.outer(w, arg);
                let at = w.b.mul(column, (view.strides[r - 1] * size) as i32);
                let at = w.b.mad(c.query, (view.strides[r - 2] * size) as i32, at);
                let at = outer.reg.map_or(at, |r| w.b.add(at, r));
                let at = w.b.to_vector(at);
                let at = c.inside.map_or(at, |m| w.b.guard(m, at));
                Ok(Offset { reg: Some(at), imm: outer.imm })
            })?;
        }
        let e = &few.e;
        let flops = 2 * (e.batches * e.queries * e.keys * (e.depth + e.width)) as u64;
        let grid = [1, e.batches as u32, few.parts];
        if few.parts == 1 {
            return Ok(vec![w.finish(grid, flops)]);
        }
        w.b.place(done, "done");
        let kernel = w.finish(grid, flops);
        let (workspace, counters) = (shared.bytes(), shared.counters());
        Ok(vec![Kernel { workspace, counters, sharing: [1, 1, few.parts], ..kernel }])
    }

    /// Leaves the workgroup's part; the last one of those who share the keys goes on, with all of them together.
    fn put_together(
        &self,
        w: &mut Writer,
        shared: &Shared,
        number: Part,
        done: BlockId,
        columns: Vec<Column>,
    ) -> Vec<Column> {
        let (few, float) = (self.few, self.float);
        let zero = w.b.scalar(0);
        let place = shared.place(w, zero);
        let workspace = w.workspace(shared.bytes());
        let left = columns.iter().map(|c| {
            let all = w.b.v(3);
            for (i, x) in (0..).zip([c.max, c.sum, c.result]) {
                w.b.copy_into(all.dword(i), x);
            }
            all
        });
        let left: Vec<Part> = left.collect();
        shared.leave(w, workspace, &place, number, &left);
        shared.count_in(w, &place, shared.count - 1, done);
        let all: Vec<Column> = columns
            .into_iter()
            .map(|c| Column {
                max: float.held(&mut w.b, LOWEST),
                sum: float.held(&mut w.b, 0.0),
                result: float.held(&mut w.b, 0.0),
                ..c
            })
            .collect();
        let at_once = few.at_once();
        let lane = w.b.mul(place.lane, 12u32);
        let factor = float.held(&mut w.b, self.factor);
        let lowest = float.held(&mut w.b, LOWEST);
        let node = w.b.begin_loop("parts");
        let first = w.b.mul(node.counter(), at_once);
        let loaded: Vec<(Option<Part>, Vec<Part>)> = (0..at_once)
            .map(|i| {
                let number = w.b.add(first, i);
                let start = w.b.mad(number, shared.part(), place.group);
                let of_part = |c: u32| w.b.device_load(workspace, 3, lane, start, 3 * c * 4 * ITEMS);
                let parts = (0..few.results()).map(of_part).collect();
                // What lies behind the last part is read as zero, and must not be the maximum.
                let inside = (!few.parts.is_multiple_of(at_once)).then(|| {
                    let number = w.b.to_vector(number);
                    w.b.op(Gen::CmpGt.of(Type::U32), &[few.parts.into(), number.into()])
                });
                (inside, parts)
            })
            .collect();
        for (i, column) in all.iter().enumerate() {
            let theirs = loaded.iter().map(|(inside, parts)| {
                let max = parts[i].dword(0);
                inside.map_or(max, |m| w.b.select(m, max, lowest))
            });
            let theirs: Vec<Part> = theirs.collect();
            let max = theirs.iter().fold(column.max, |m, x| float.op(&mut w.b, Gen::Max, m, *x));
            let keep = self.weight(w, column.max, max, factor);
            let mut sum = float.mul(&mut w.b, column.sum, keep);
            let mut result = float.mul(&mut w.b, column.result, keep);
            for (their, (_, parts)) in theirs.iter().zip(&loaded) {
                let take = self.weight(w, *their, max, factor);
                sum = float.fma(&mut w.b, parts[i].dword(1), take, sum);
                result = float.fma(&mut w.b, parts[i].dword(2), take, result);
            }
            w.b.copy_into(column.max, max);
            w.b.copy_into(column.sum, sum);
            w.b.copy_into(column.result, result);
        }
        w.b.end_loop(node, few.parts.div_ceil(at_once), 1, Pipeline::Off, false);
        all
    }
}
