//! Software pipelining: loops are overlapped with themselves and then become branches.
//!
//! Every instruction of a body has a stage. In steady state one round of the loop runs stage s of iteration n - s, for
//! all s: loads of a later iteration beside the arithmetic of an earlier one. Stages come from the kernel's author, or
//! from a modulo schedule: with an initiation interval of what the body takes to issue, an instruction that can start t cycles
//! after the iteration's begin is in stage t / interval (B. R. Rau, "Iterative modulo scheduling", 1994; the order
//! within a round is the list scheduler's work). A stage assignment is possible when
//!
//! * a value is used in the stage it is computed in or later, and
//! * an instruction that depends on one of the iteration before is at most one stage earlier than it.
//!
//! Anything else is an error where the author stated the stages, and less overlap where they were found.
//!
//! A round has its stages in falling order (or, in a block of fixed order, its instructions as they stand), so that a value is
//! read by the older iteration before the younger one writes it. A value that lives across more rounds than that has
//! registers in turn: the loop is unrolled by their number and each copy names its own. Rounds that fill the
//! pipeline stand before the loop (prologue), those that drain it behind it (epilogue), with the counter's values as
//! constants; so do the rounds that are left over from unrolling. A loop whose number of rounds is known only when it runs is
//! overlapped where iterations behind the end are harmless and no value needs registers in turn. What the body computes from nothing is moved before
//! the loop.

use super::alternate::alternate;
use super::dependences;
use super::late_sums::set_late;
use crate::mir::liveness::{Liveness, Units, for_each_def};
use crate::mir::{
    Block, BlockId, Constraint, Function, Group, Lds, Loop, MInst, Opnd, Order, Part, Pipeline, RegClass, VReg,
};
use barewave_isa::{Pipe, op};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Stages that an author stated and that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum Impossible {
    /// A dependence leads from a later stage to an earlier one.
    #[error(
        "kernel {kernel}, loop {block}: {first} is in stage {earlier} and what needs it, {second}, in stage {later}"
    )]
    Order {
        /// The kernel.
        kernel: String,
        /// The loop's body.
        block: String,
        /// The instruction that must come first.
        first: String,
        /// The instruction that needs it.
        second: String,
        /// Stage of the first.
        earlier: u8,
        /// Stage of the second.
        later: u8,
    },
    /// The body has branches.
    #[error(
        "kernel {kernel}, loop {block}: stages are stated, but its body has {blocks} blocks; only a single one is overlapped"
    )]
    Blocks {
        /// The kernel.
        kernel: String,
        /// The loop's first block.
        block: String,
        /// Blocks of the body.
        blocks: usize,
    },
}

/// Overlaps the loops that ask for it and turns all loops into branches.
pub fn pipeline(f: &mut Function) -> Result<(), Impossible> {
    // From the last one on, so that block numbers of those before stay.
    for i in (0..f.loops.len()).rev() {
        check_blocks(f, i)?;
        sort_by_stage_unless_pipelined(f, i);
        if f.loops[i].pipeline != Pipeline::Off && f.loops[i].header == f.loops[i].latch {
            overlap(f, i)?;
        }
        if f.loops[i].in_turns {
            alternate(f, i);
        }
    }
    lower(f);
    Ok(())
}

/// A body of several blocks is not overlapped: an error where stages were stated, a remark where they were to be found.
fn check_blocks(f: &mut Function, i: usize) -> Result<(), Impossible> {
    let l = &f.loops[i];
    let (header, latch) = (l.header.0 as usize, l.latch.0 as usize);
    let staged = f.blocks[header..=latch].iter().flat_map(|b| &b.insts).any(|i| i.stage > 0);
    if header == latch || l.pipeline == Pipeline::Off {
        return Ok(());
    }
    if staged {
        let block = f.blocks[header].name.clone();
        return Err(Impossible::Blocks { kernel: f.name.clone(), block, blocks: latch - header + 1 });
    }
    f.blocks[header].comment.push_str("not overlapped: the body has several blocks");
    Ok(())
}

/// Branches in the place of loop nodes.
fn lower(f: &mut Function) {
    for l in std::mem::take(&mut f.loops) {
        let i: Opnd = f.whole(l.counter).into();
        let block = &mut f.blocks[l.latch.0 as usize];
        block.insts.push(MInst::new(op::S_ADD_U32, &[i], &[i, l.step.into()]));
        block.insts.push(MInst::new(op::S_CMP_LT_U32, &[], &[i, l.limit]));
        block.insts.push(MInst::new(op::S_CBRANCH_SCC1, &[], &[Opnd::Block(l.header)]));
    }
}

/// An iteration is its instructions in order of stage.
fn sort_by_stage_unless_pipelined(f: &mut Function, i: usize) {
    let l = &f.loops[i];
    if l.header == l.latch && (l.pipeline == Pipeline::Off || plan_is_hopeless(f, l)) {
        f.blocks[l.header.0 as usize].insts.sort_by_key(|inst| inst.stage);
        f.loops[i].pipeline = Pipeline::Off;
    }
}

/// Without a known number of rounds those behind the end must be harmless.
fn plan_is_hopeless(f: &Function, l: &Loop) -> bool {
    let insts = &f.blocks[l.header.0 as usize].insts;
    l.trips().is_none() && !l.overrun
        || l.pipeline == Pipeline::Stated && insts.iter().all(|i| i.stage == insts[0].stage)
}

/// A dependence: `to` must follow `from`, `distance` iterations later.
struct Edge {
    from: usize,
    to: usize,
    latency: u32,
    distance: u8,
    /// The value is in a register that all instructions share (SCC, VCC, M0): both must be in one stage.
    together: bool,
    /// Both are in LDS, in different phases of a buffer: of one round they never touch the same bytes.
    apart: bool,
}

/// The body in order of stage, with what is known of it.
struct Body {
    insts: Vec<MInst>,
    stages: Vec<u8>,
    units: Units,
    /// Of each virtual register: only one iteration uses it, so it may be renamed.
    local: Vec<bool>,
    /// Rounds keep the order in which the instructions stand.
    fixed: bool,
}

fn overlap(f: &mut Function, i: usize) -> Result<(), Impossible> {
    let l = f.loops[i].clone();
    let at = l.header.0 as usize;
    let constants = take_constants(f, at);
    let mut body = Body::of(f, &l);
    let found = match l.pipeline {
        Pipeline::Modulo(most) => body.find_stages(f, most),
        _ => body.check_stages(f, &l)?,
    };
    let last = body.stages.iter().copied().max().unwrap_or(0) as u32;
    let turns = body.turns();
    let copies = turns.iter().copied().max().unwrap_or(1);
    // Rounds run stage 0 of iteration n; the loop itself has the full ones.
    let first_full = last;
    let end = l.trips().map(|trips| if l.overrun { trips + last } else { trips });
    // Of a number of rounds that is not known none may be left over.
    let (enough, rest) = match end.map(|end| end.saturating_sub(first_full)) {
        Some(full) => (full >= copies + full % copies, full % copies),
        None => (copies == 1, 0),
    };
    // One round has nothing to overlap with: loads for a second one would be for nothing.
    if !found || last == 0 || !enough || l.trips() == Some(1) {
        body.insts.iter_mut().zip(&body.stages).for_each(|(i, stage)| i.stage = *stage);
        body.insts.sort_by_key(|i| i.stage);
        f.blocks[at - 1].insts.extend(constants);
        if l.trips() == Some(1) && body.fixed {
            set_late(f, at - 1, &mut body.insts);
        }
        f.blocks[at].insts = body.insts;
        return Ok(());
    }
    let mut rename = Renamer { f, body: &body, counter: l.counter, turns: &turns, copies, made: FxHashMap::default() };
    let (mut prologue, mut epilogue, mut steady) = (constants, Vec::new(), Vec::new());
    for n in 0..first_full + rest {
        rename.round(n as i64, Some((0, u32::MAX)), Counter::Known(l.step), Groups::Dropped, &mut prologue);
    }
    let begin = first_full + rest;
    let groups = GroupCount::of(&body.insts);
    for j in 0..copies {
        let counter = Counter::Running { step: l.step, begin };
        rename.round((begin + j) as i64, None, counter, groups.of_copy(j), &mut steady);
    }
    if let (Some(trips), false) = (l.trips(), l.overrun) {
        for n in trips..trips + last {
            rename.round(n as i64, Some((0, trips)), Counter::Known(l.step), Groups::Dropped, &mut epilogue);
        }
    }
    let counter: Opnd = f.whole(l.counter).into();
    prologue.push(MInst::new(op::S_MOV_B32, &[counter], &[(begin * l.step).into()]));
    let limit: Opnd = match end {
        Some(end) => (end * l.step).into(),
        None => {
            let limit: Opnd = f.new_typed(RegClass::S, 1, f.vreg(l.counter).ty).into();
            prologue.push(MInst::new(op::S_ADD_U32, &[limit], &[l.limit, (last * l.step).into()]));
            limit
        }
    };
    if body.fixed {
        set_late(f, at - 1, &mut prologue);
    }
    let old = &f.blocks[at];
    let order = old.order;
    // Each copy of the round holds to the constraints of its own.
    let copied = |j: u32| old.constraints.iter().map(move |c| c.map(|g| groups.of_copy(j).map(g)));
    let constraints: Vec<Constraint> = (0..copies).flat_map(copied).collect();
    let behind: String = (1..=last).map(|s| format!(", {s} of iteration n - {s}")).collect();
    let mut overlapped = format!("{}: stage 0 of iteration n{behind}", old.name);
    if !old.comment.is_empty() {
        overlapped = format!("{}; {overlapped}", old.comment);
    }
    let part = |suffix: &str, insts: Vec<MInst>| Block {
        name: format!("{}_{suffix}", old.name),
        insts,
        order,
        constraints: if suffix == "steady" { constraints.clone() } else { Vec::new() },
        comment: if suffix == "steady" { overlapped.clone() } else { format!("{suffix} of {}", old.name) },
    };
    let mut blocks = vec![part("prologue", prologue), part("steady", steady)];
    if !epilogue.is_empty() {
        blocks.push(part("epilogue", epilogue));
    }
    put_blocks(f, at, blocks);
    let l = &mut f.loops[i];
    (l.header, l.latch) = (BlockId(at as u32 + 1), BlockId(at as u32 + 1));
    (l.limit, l.step, l.pipeline) = (limit, l.step * copies, Pipeline::Off);
    Ok(())
}

/// Puts several blocks in the place of one. Branches to it go to the first of them.
pub(super) fn put_blocks(f: &mut Function, at: usize, blocks: Vec<Block>) {
    let more = blocks.len() as u32 - 1;
    f.blocks.splice(at..=at, blocks);
    let moved = |b: &mut BlockId| {
        if b.0 as usize > at {
            b.0 += more;
        }
    };
    for inst in f.blocks.iter_mut().flat_map(|b| &mut b.insts) {
        for s in inst.srcs.iter_mut() {
            if let Opnd::Block(b) = s {
                moved(b);
            }
        }
    }
    for l in &mut f.loops {
        moved(&mut l.header);
        moved(&mut l.latch);
    }
}

/// What touches a place stands together, in the same order. Dwords of registers, which are most, are counted instead of compared.
fn by_place(units: &Units, touched: &[dependences::Touch]) -> Vec<dependences::Touch> {
    let unit = |t: &dependences::Touch| match t.place {
        dependences::Place::Dword(v, i) => units.base(VReg(v)) + usize::from(i),
        _ => units.count(),
    };
    let mut ends = vec![0; units.count() + 1];
    touched.iter().for_each(|t| ends[unit(t)] += 1);
    let mut end = 0;
    for n in &mut ends {
        end += *n;
        *n = end;
    }
    let mut out = touched.to_vec();
    for t in touched.iter().rev() {
        let end = &mut ends[unit(t)];
        *end -= 1;
        out[*end] = *t;
    }
    // Now that is where each begins.
    let others = ends.last().copied().unwrap_or(0);
    out[others..].sort_by_key(|t| t.place);
    out
}

/// It sets a register to a constant.
pub(super) fn is_constant(i: &MInst) -> bool {
    let mov = matches!(i.op(), Some(op::V_MOV_B32 | op::S_MOV_B32 | op::V_ACCVGPR_WRITE_B32)) && i.mods.is_empty();
    mov && matches!((&i.dsts[..], &i.srcs[..]), ([Opnd::V(_)], [Opnd::Imm(_)]))
}

/// Takes constant moves to registers that nothing else writes out of a block.
fn take_constants(f: &mut Function, at: usize) -> Vec<MInst> {
    let mut defs = vec![0u32; f.vregs.len()];
    for inst in f.blocks.iter().flat_map(|b| &b.insts) {
        for_each_def(inst, |p| defs[p.reg.0 as usize] += 1);
    }
    let constant = |i: &MInst| {
        is_constant(i)
            && i.op() != Some(op::V_ACCVGPR_WRITE_B32)
            && i.dsts.iter().all(|o| o.part().is_some_and(|d| defs[d.reg.0 as usize] == 1))
    };
    let out: Vec<MInst> = f.blocks[at].insts.extract_if(.., |i| constant(i)).collect();
    out.into_iter().map(|i| MInst { stage: 0, group: Group::default(), ..i }).collect()
}

impl Body {
    /// Takes the body out of its block.
    fn of(f: &mut Function, l: &Loop) -> Body {
        let at = l.header.0 as usize;
        let live = Liveness::of(f);
        let insts = std::mem::take(&mut f.blocks[at].insts);
        let outside = |v: VReg| {
            let units = live.units.of_part(f.whole(v));
            let after = live.live_in.get(at + 1);
            units.clone().any(|u| live.live_in[at].contains(u))
                || after.is_some_and(|s| units.clone().any(|u| s.contains(u)))
        };
        let mut local = vec![false; f.vregs.len()];
        for inst in &insts {
            for_each_def(inst, |p| local[p.reg.0 as usize] = !outside(p.reg));
        }
        let stages: Vec<u8> = insts.iter().map(|i| i.stage).collect();
        let fixed = f.blocks[at].order == Order::Fixed;
        Body { insts, stages, units: live.units, local, fixed }
    }

    /// Instruction numbers in the order of one iteration.
    fn sequence(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.insts.len()).collect();
        order.sort_by_key(|&i| self.stages[i]);
        order
    }

    /// Calls `found` with all pairs that touch the same place, at least one writing: within an iteration, and with the next one; until that
    /// gives something. With `misplaced` those are left out that are in order in whatever stages they are, where each iteration is in
    /// order of stage: of places that one stage touches, and of registers that only one iteration uses.
    fn each_edge(&self, f: &Function, misplaced: bool, mut found: impl FnMut(Edge) -> bool) {
        let order = self.sequence();
        let local = |p: &dependences::Place| p.register().is_some_and(|v| self.local[v.0 as usize]);
        let touched = dependences::touches(f, &self.insts, &order, |p| !misplaced || !local(p));
        let touched = by_place(&self.units, &touched);
        let same = |a: &dependences::Touch, b: &dependences::Touch| a.place == b.place;
        for list in touched.chunk_by(same) {
            let place = &list[0].place;
            let stage = self.stages[list[0].inst];
            let alike = misplaced && list.iter().all(|x| self.stages[x.inst] == stage);
            if alike || !list.iter().any(|x| x.writes) {
                continue;
            }
            let together = place.is_shared();
            let latency =
                |from: usize, writes: bool| if writes { dependences::latency(f, &self.insts[from], *place) } else { 0 };
            for (k, &dependences::Touch { inst: from, writes, .. }) in list.iter().enumerate() {
                // Up to the next write, which takes over.
                for &dependences::Touch { inst: to, writes: overwrites, .. } in &list[k + 1..] {
                    // Of a shared register only what a write reaches matters: rounds keep the order of the rest.
                    if (writes || overwrites) && from != to && !(together && overwrites) {
                        let latency = if overwrites && !writes { 0 } else { latency(from, writes) };
                        if found(Edge { from, to, latency, distance: 0, together, apart: false }) {
                            return;
                        }
                    }
                    if overwrites {
                        break;
                    }
                }
                if !local(place) && !together {
                    for &dependences::Touch { inst: to, writes: overwrites, .. } in list {
                        let apart = matches!(place, dependences::Place::Lds(_)) && self.phases_differ(from, to);
                        if writes || overwrites {
                            let latency = latency(from, writes);
                            if found(Edge { from, to, latency, distance: 1, together, apart }) {
                                return;
                            }
                        }
                        if overwrites && !apart {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Two accesses of LDS name different phases of a buffer.
    fn phases_differ(&self, a: usize, b: usize) -> bool {
        match (self.insts[a].space.lds, self.insts[b].space.lds) {
            (Lds::Part { buffer: a, phase: p }, Lds::Part { buffer: b, phase: q }) => a == b && p != q,
            _ => false,
        }
    }

    /// The stages that the author stated.
    fn check_stages(&self, f: &Function, l: &Loop) -> Result<bool, Impossible> {
        let mut wrong = None;
        self.each_edge(f, true, |e| {
            if self.breaks(&e) {
                wrong = Some(e);
            }
            wrong.is_some()
        });
        match wrong {
            None => Ok(true),
            Some(e) => Err(Impossible::Order {
                kernel: f.name.clone(),
                block: f.blocks[l.header.0 as usize].name.clone(),
                first: f.inst_text(&self.insts[e.from]),
                second: f.inst_text(&self.insts[e.to]),
                earlier: self.stages[e.from],
                later: self.stages[e.to],
            }),
        }
    }

    fn breaks(&self, e: &Edge) -> bool {
        let (a, b) = (self.stages[e.from], self.stages[e.to]);
        // What a round does for two iterations keeps their order only if it stands in that order.
        let backwards = self.fixed && e.from >= e.to;
        match e.distance {
            0 if e.together => a != b,
            0 => a > b,
            // Of two buffers in turn it is the iteration after the next one that touches the same bytes.
            _ if e.apart && self.fixed => a > b + 2 || a == b + 2 && backwards,
            _ => a > b + 1 || a == b + 1 && backwards && !e.apart,
        }
    }

    /// Stages by start over initiation interval, later where a dependence asks for it. False when nothing fits. An
    /// instruction starts when its operands are there and its unit is free: a reservation table has the cycles of an interval
    /// in which each unit is taken, by this iteration and so by all others. The interval is what the busiest unit
    /// needs, and a cycle to issue each instruction.
    fn find_stages(&mut self, f: &Function, most: u8) -> bool {
        let n = self.insts.len();
        let unit = |i: &MInst| i.info(f.target).map(|x| (x.pipe, u32::from(x.busy.max(1)))).unwrap_or((Pipe::Salu, 1));
        let mut load: BTreeMap<u8, u32> = BTreeMap::new();
        for i in &self.insts {
            *load.entry(unit(i).0 as u8).or_default() += unit(i).1;
        }
        let interval = load.values().copied().max().unwrap_or(1).max(n as u32).max(1);
        let mut taken: BTreeSet<(u8, u32)> = BTreeSet::new();
        let mut start = vec![0u32; n];
        let mut edges = Vec::new();
        self.each_edge(f, false, |e| {
            edges.push(e);
            false
        });
        let mut into: Vec<Vec<&Edge>> = vec![Vec::new(); n];
        edges.iter().filter(|e| e.distance == 0).for_each(|e| into[e.to].push(e));
        // Edges within an iteration lead forwards in its sequence.
        for i in self.sequence() {
            let ready = into[i].iter().map(|e| start[e.from] + e.latency).max().unwrap_or(0);
            let (pipe, busy) = unit(&self.insts[i]);
            let cycles = |t: u32| (t..t + busy).map(|c| (pipe as u8, c % interval));
            let free = (ready..ready + interval).find(|t| cycles(*t).all(|c| !taken.contains(&c)));
            // Gaps that are all too short: the unit is taken twice.
            start[i] = free.unwrap_or(ready);
            taken.extend(cycles(start[i]));
        }
        let cap = most.max(1) - 1;
        self.stages = start.iter().map(|t| (t / interval).min(u32::from(cap)) as u8).collect();
        for _ in 0..=n * usize::from(most.max(1)) {
            let Some(e) = edges.iter().find(|e| self.breaks(e)) else { return true };
            let (a, b) = (self.stages[e.from], self.stages[e.to]);
            if e.together {
                let both = a.max(b);
                (self.stages[e.from], self.stages[e.to]) = (both, both);
            } else {
                self.stages[e.to] = a - e.distance;
            }
        }
        self.stages = vec![0; n];
        false
    }

    /// Registers that each renamed value needs in turn: rounds from its first write to its last use; one more where the younger
    /// iteration's write stands before the older one's use in the round.
    fn turns(&self) -> Vec<u32> {
        let local = |o: &Opnd| o.part().map(|p| p.reg.0 as usize).filter(|v| self.local[*v]);
        // The first write of each stage: those behind it ask for no more.
        let mut defs: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); self.local.len()];
        for (i, inst) in self.insts.iter().enumerate() {
            for v in inst.dsts.iter().filter_map(local) {
                if defs[v].iter().all(|d| self.stages[*d as usize] != self.stages[i]) {
                    defs[v].push(i as u32);
                }
            }
        }
        let mut turns = vec![1; self.local.len()];
        for (u, inst) in self.insts.iter().enumerate() {
            for v in inst.srcs.iter().filter_map(local) {
                for d in defs[v].iter().map(|d| *d as usize) {
                    let rounds = u32::from(self.stages[u].saturating_sub(self.stages[d]));
                    // In falling order of stages a use of a later stage stands first; in a fixed order the text says.
                    turns[v] = turns[v].max(rounds + u32::from(rounds > 0 && self.fixed_order_puts(d, u)));
                }
            }
        }
        turns
    }

    /// In a round, `d` stands before `u` although it belongs to a younger iteration.
    fn fixed_order_puts(&self, d: usize, u: usize) -> bool {
        self.fixed && d < u
    }
}

/// What a round knows of the loop's counter.
#[derive(Clone, Copy)]
enum Counter {
    /// The iteration's number, times this.
    Known(u32),
    /// The register holds the value of stage 0 of the unrolled loop's first copy, which is round `begin`.
    Running { step: u32, begin: u32 },
}

/// The highest number of a body's groups.
#[derive(Clone, Copy)]
struct GroupCount(u16);

impl GroupCount {
    fn of(insts: &[MInst]) -> GroupCount {
        GroupCount(insts.iter().map(|i| i.group.0).max().unwrap_or(0))
    }
    fn of_copy(self, j: u32) -> Groups {
        Groups::Copy(self.0 * j as u16)
    }
}

/// The groups of a round's instructions.
#[derive(Clone, Copy)]
enum Groups {
    /// None: rounds that fill and drain the pipeline are not complete.
    Dropped,
    /// Of a copy of the round: numbers go on behind those of the copies before.
    Copy(u16),
}

impl Groups {
    fn map(self, g: Group) -> Group {
        match self {
            Groups::Copy(first) if g != Group::default() => Group(g.0 + first),
            _ => Group::default(),
        }
    }
}

/// Writes rounds.
struct Renamer<'a> {
    f: &'a mut Function,
    body: &'a Body,
    counter: VReg,
    /// Of each virtual register of the body how many take turns.
    turns: &'a [u32],
    copies: u32,
    /// Registers of values that take turns.
    made: FxHashMap<(VReg, u32), VReg>,
}

impl Renamer<'_> {
    /// Round `n`: stage s of iteration `n - s`, for iterations within the limits (none: all).
    fn round(&mut self, n: i64, limits: Option<(u32, u32)>, counter: Counter, groups: Groups, out: &mut Vec<MInst>) {
        let body = self.body;
        let mut order = if body.fixed { (0..body.insts.len()).collect() } else { body.sequence() };
        if !body.fixed {
            order.sort_by_key(|&i| std::cmp::Reverse(body.stages[i]));
        }
        order.retain(|&i| {
            let iteration = n - i64::from(body.stages[i]);
            limits.is_none_or(|(low, high)| (i64::from(low)..i64::from(high)).contains(&iteration))
        });
        // The counter's value for each stage that asks for it, first of all: these additions write SCC.
        let mut values: BTreeMap<u8, Opnd> = BTreeMap::new();
        for &i in &order {
            let stage = body.stages[i];
            let asks = body.insts[i].srcs.iter().any(|o| matches!(o, Opnd::V(p) if p.reg == self.counter));
            if asks && !values.contains_key(&stage) {
                let value = self.counter_value(n - i64::from(stage), counter, out);
                values.insert(stage, value);
            }
        }
        // Branches come behind it.
        out.reserve(order.len() + 4);
        for i in order {
            let stage = body.stages[i];
            let copy = (n - i64::from(stage)).rem_euclid(i64::from(self.copies)) as u32;
            let mut inst = MInst { stage: 0, ..body.insts[i].clone() };
            inst.group = groups.map(inst.group);
            inst.note.stage = stage + 1;
            for o in inst.dsts.iter_mut().chain(&mut inst.srcs) {
                if let Opnd::V(p) = *o {
                    let counted = if p.reg == self.counter { values.get(&stage) } else { None };
                    let other = || Opnd::V(Part { reg: self.turn(p.reg, copy), ..p });
                    *o = counted.copied().unwrap_or_else(other);
                }
            }
            out.push(inst);
        }
    }

    fn counter_value(&mut self, iteration: i64, counter: Counter, out: &mut Vec<MInst>) -> Opnd {
        let running = self.f.whole(self.counter);
        let (op, srcs): (_, Vec<Opnd>) = match counter {
            Counter::Known(step) => (op::S_MOV_B32, vec![((iteration * i64::from(step)) as u32).into()]),
            Counter::Running { begin, .. } if iteration == i64::from(begin) => return running.into(),
            Counter::Running { step, begin } => {
                let behind = (iteration - i64::from(begin)) * i64::from(step);
                (op::S_ADD_U32, vec![running.into(), (behind as u32).into()])
            }
        };
        let value = self.f.new_typed(RegClass::S, 1, self.f.vreg(self.counter).ty);
        out.push(MInst::new(op, &[value.into()], &srcs));
        value.into()
    }

    /// The register of a value in an iteration's turn.
    fn turn(&mut self, v: VReg, copy: u32) -> VReg {
        if copy == 0 || self.turns.get(v.0 as usize).is_none_or(|n| *n == 1) {
            return v;
        }
        let f = &mut *self.f;
        *self.made.entry((v, copy)).or_insert_with(|| {
            let info = f.vreg(v);
            f.new_typed(info.class, info.dwords, info.ty).reg
        })
    }
}
