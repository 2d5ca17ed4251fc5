//! Hazards: instructions that the hardware does not keep apart stand as far apart as the tables say.
//!
//! Control is followed forwards with the instructions issued lately, each with the least that lies between it and here on
//! any path: wait states, vector instructions, a wait for the vector ALU. An instruction is forgotten when more wait
//! states lie between than any rule asks for. For each instruction the recent ones that start a rule which it may end are
//! looked at: a bit set per side, so that most pairs cost one operation. The tables give the rules' words; which registers
//! meet is found here.
//!
//! Jumps through registers (calls, returns) take longer than wait states do: nothing is carried over them.

use super::code::{Code, Graph};
use super::inst::{Flow, Line};
use super::regs::{Span, number};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use barewave_isa::{
    Fix, HazardRule, Op, Operand, Pipe, Reg, Relation, Target, Traits, max_fix_reach, max_required_states, op,
};
use rustc_hash::FxHashMap;

/// An instruction that was issued lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Recent {
    line: u32,
    /// Rules that it starts.
    starts: u64,
    /// When it was issued: at block boundaries before the clock, as little as on any path.
    at: Clock,
    /// The vector ALU was waited for on all paths.
    waited: bool,
    /// Rules whose instruction in between was met on some path.
    between: u64,
}

type State = Vec<Recent>;

/// What has been issued since the start of a block: wait states, vector instructions, transcendental ones among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Clock {
    states: i32,
    vectors: i32,
    transcendental: i32,
}

impl Clock {
    /// What was issued since `other`, and not at it.
    fn since(self, other: Clock) -> Clock {
        Clock {
            states: self.states - other.states,
            vectors: self.vectors - other.vectors,
            transcendental: self.transcendental - other.transcendental,
        }
    }
    /// The later of each.
    fn latest(self, other: Clock) -> Clock {
        Clock {
            states: self.states.max(other.states),
            vectors: self.vectors.max(other.vectors),
            transcendental: self.transcendental.max(other.transcendental),
        }
    }
}

/// Rules that an instruction takes part in, by number.
#[derive(Clone, Copy, Default)]
struct Sides {
    starts: u64,
    ends: u64,
    between: u64,
}

/// The rules of a target, and what has been asked of them.
pub struct Rules {
    target: Target,
    list: &'static [HazardRule],
    states: u8,
    vectors: u8,
    /// The largest need of each rule.
    most: Vec<u8>,
    /// Rules of each relation.
    vector_writes: u64,
    scalar_writes: u64,
    exec_writes: u64,
    vcc_writes: u64,
    m0_writes: u64,
    hardware_registers: u64,
    vector_reads: u64,
    scalar_reads: u64,
    /// By operation and traits.
    known: FxHashMap<(Op, Traits), Sides>,
}

impl Rules {
    /// Those of a target.
    pub fn new(target: Target) -> Rules {
        let list = target.hazards();
        let of = |f: &dyn Fn(Relation) -> bool| {
            list.iter().enumerate().filter(|(_, r)| f(r.relation)).fold(0u64, |m, (i, _)| m | 1 << i)
        };
        use Relation::*;
        Rules {
            target,
            list,
            states: max_required_states(target),
            vectors: max_fix_reach(target),
            most: list.iter().map(|r| r.states.iter().map(|s| s.1).max().unwrap_or(0)).collect(),
            vector_writes: of(&|r| matches!(r, WritesReads | WritesWrites | WritesTouches)),
            scalar_writes: of(&|r| matches!(r, SgprReads | SgprLane)),
            exec_writes: of(&|r| r == Exec),
            vcc_writes: of(&|r| r == Vcc),
            m0_writes: of(&|r| r == M0),
            hardware_registers: of(&|r| r == HwReg),
            vector_reads: of(&|r| r == WritesReads),
            scalar_reads: of(&|r| r == SgprReads),
            known: FxHashMap::default(),
        }
    }

    fn sides(&mut self, line: &Line) -> Sides {
        let op = line.inst.op;
        let list = self.list;
        let mut s = *self.known.entry((op, line.traits)).or_insert_with(|| {
            let mut s = Sides::default();
            // what goes on for ever is followed elsewhere
            for (i, r) in list.iter().enumerate().filter(|(_, r)| !r.relation.is_endless()) {
                s.starts |= u64::from(r.producer.holds(op, line.traits)) << i;
                s.ends |= u64::from(r.consumer.may_hold(op, line.traits)) << i;
                s.between |= u64::from(r.between.is_some_and(|b| b.holds(op, line.traits))) << i;
            }
            s
        });
        // a rule that only some results start: is there one?
        let mut only = |mask: u64, on: &dyn Fn() -> bool| {
            if s.starts & mask != 0 && !on() {
                s.starts &= !mask;
            }
        };
        let writes =
            |r: [Reg; 2]| r.into_iter().filter_map(number).any(|n| line.writes().any(|s| s.numbers().contains(&n)));
        only(self.vector_writes, &|| line.writes().any(Span::is_vector));
        only(self.scalar_writes, &|| line.writes().any(is_scalar));
        only(self.exec_writes, &|| writes([Reg::EXEC_LO, Reg::EXEC_HI]));
        only(self.vcc_writes, &|| writes([Reg::VCC_LO, Reg::VCC_HI]));
        only(self.m0_writes, &|| writes([Reg::M0; 2]));
        only(self.hardware_registers, &|| hardware_register(line).is_some());
        if s.ends & self.vector_reads != 0 && !line.reads().any(Span::is_vector) {
            s.ends &= !self.vector_reads;
        }
        if s.ends & self.scalar_reads != 0 && !line.reads().any(is_scalar) {
            s.ends &= !self.scalar_reads;
        }
        s
    }
}

/// A scalar register or VCC; EXEC, M0 and SCC have rules of their own.
fn is_scalar(s: Span) -> bool {
    !s.is_vector() && !matches!(s.start(), Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0 | Reg::SCC)
}

fn hardware_register(line: &Line) -> Option<u64> {
    let known = matches!(line.inst.op, op::S_GETREG_B32 | op::S_SETREG_B32 | op::S_SETREG_IMM32_B32);
    let id = line.inst.srcs.iter().find_map(|s| if let Operand::Imm(v) = s { Some(v & 63) } else { None });
    id.filter(|_| known)
}

/// The accumulator of a matrix or dot instruction.
fn accumulator(line: &Line) -> Option<Span> {
    if line.info.dsts.first().is_some_and(|d| d.read) { line.result() } else { line.source(2) }
}

/// A, B and the index of a matrix or dot instruction.
fn factors(line: &Line) -> impl Iterator<Item = Span> + '_ {
    let count = if line.info.dsts.first().is_some_and(|d| d.read) { 3 } else { 2 };
    (0..count).filter_map(|i| line.source(i))
}

/// True when the registers of two instructions meet as the rule says.
fn meet(relation: Relation, p: &Line, c: &Line) -> bool {
    let written = |s: Span| p.writes().any(|w| w.overlaps(s));
    match relation {
        Relation::WritesReads => c.reads().any(|s| s.is_vector() && written(s)),
        Relation::WritesWrites => c.writes().any(|s| s.is_vector() && written(s)),
        Relation::WritesTouches => c.uses.iter().any(|u| u.span.is_vector() && written(u.span)),
        Relation::SgprReads => c.reads().any(|s| is_scalar(s) && written(s)),
        Relation::SgprLane => c.source(1).is_some_and(written),
        Relation::WritesAb => factors(c).any(written),
        Relation::WritesC => accumulator(c).is_some_and(|a| p.writes().any(|w| w.overlaps(a) && w.first != a.first)),
        Relation::WritesSameC => accumulator(c).is_some_and(|a| p.writes().any(|w| w.first == a.first)),
        Relation::CWrites => accumulator(p).is_some_and(|a| c.writes().any(|w| w.overlaps(a))),
        Relation::DataWrites => p.named("vdata").is_some_and(|d| c.writes().any(|w| w.overlaps(d))),
        Relation::HwReg => hardware_register(p) == hardware_register(c),
        // the producer alone decides
        Relation::Exec | Relation::Vcc | Relation::M0 | Relation::Order => true,
        // these go on for ever, or speak of more than two instructions: checked elsewhere
        Relation::SgprAgain | Relation::ReadsSgpr | Relation::ReadsExec | Relation::AcrossBranch => false,
        Relation::Clause | Relation::MaskAgain | Relation::AcrossExec => false,
    }
}

struct Hazards<'a, 'c> {
    rules: &'a Rules,
    code: &'a Code<'c>,
    graph: &'a Graph,
    /// By place in the graph's order.
    sides: Vec<Sides>,
}

impl Analysis for Hazards<'_, '_> {
    type State = State;

    fn pass(&self, block: usize, state: &mut State) -> bool {
        walk(self, block, state, None)
    }

    fn join(&self, state: &mut State, other: &State) -> bool {
        join(state, other)
    }

    fn follow(&self, block: usize, state: &State, to: &mut dyn FnMut(usize, &State)) {
        self.graph.blocks[block].successors().for_each(|s| to(s, state));
    }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, rules: &mut Rules, budget: &mut usize, out: &mut Findings) -> Option<()> {
    if rules.states == 0 && rules.vectors == 0 {
        return Some(());
    }
    let sides = g.order.iter().map(|&i| rules.sides(&code.lines[i as usize])).collect();
    let a = Hazards { rules, code, graph: g, sides };
    for (b, mut state) in solve(g, &a, State::new(), budget)? {
        walk(&a, b, &mut state, Some(out));
    }
    Some(())
}

fn join(a: &mut State, b: &State) -> bool {
    let mut changed = false;
    for r in b {
        match a.binary_search_by_key(&r.line, |r| r.line) {
            Ok(i) => {
                let old = a[i];
                let x = &mut a[i];
                x.at = x.at.latest(r.at);
                x.waited &= r.waited;
                x.between |= r.between;
                changed |= *x != old;
            }
            Err(i) => {
                a.insert(i, *r);
                changed = true;
            }
        }
    }
    changed
}

/// Recent instructions that are kept before those are dropped that are too far to matter.
const MANY: usize = 40;

fn walk(a: &Hazards, b: usize, state: &mut State, mut out: Option<&mut Findings>) -> bool {
    let Hazards { rules, code, graph: g, sides } = a;
    let mut found = false;
    let mut now = Clock::default();
    let far = |now: Clock, r: &Recent| {
        let since = now.since(r.at);
        since.states >= i32::from(rules.states) && since.vectors >= i32::from(rules.vectors)
    };
    for n in g.blocks[b].lines.clone() {
        let i = g.order[n];
        let line = &code.lines[i as usize];
        if line.left_out {
            continue;
        }
        let side = sides[n];
        if side.ends != 0
            && let Some(f) = look_back(rules, code, state, now, line, side)
        {
            found = true;
            if let Some(out) = out.as_deref_mut() {
                out.add(finding(&f, line));
            }
        }
        now.states += line.states() as i32;
        match line.info.pipe {
            Pipe::Valu | Pipe::Matrix => now.vectors += 1,
            Pipe::Trans => {
                now.vectors += 1;
                now.transcendental += 1;
            }
            _ => {}
        }
        // these read vector registers when all results are written
        let waits = rules.vectors > 0
            && (matches!(line.info.pipe, Pipe::Vmem | Pipe::Lds | Pipe::Export)
                || line.inst.op == op::S_WAITCNT_DEPCTR && line.constant(0).is_some_and(|v| v >> 12 & 15 == 0));
        if waits || side.between != 0 {
            for r in state.iter_mut() {
                r.waited |= waits;
                r.between |= side.between;
            }
        }
        if matches!(line.flow, Flow::Indirect(_) | Flow::CallRegister(_) | Flow::Call(_)) {
            state.clear();
        } else if side.starts != 0 {
            if state.len() > MANY {
                state.retain(|r| !far(now, r));
            }
            state.push(Recent { line: i, starts: side.starts, at: now, waited: false, between: 0 });
        }
    }
    state.retain(|r| !far(now, r));
    state.iter_mut().for_each(|r| r.at = r.at.since(now));
    // of an instruction that a short loop issued again the last time counts
    state.sort_by_key(|r| (r.line, -r.at.states));
    state.dedup_by_key(|r| r.line);
    found
}

/// Two instructions that are too close.
struct TooClose<'a> {
    rule: &'static HazardRule,
    producer: &'a Line,
    need: i32,
    have: i32,
}

/// Compares an instruction with the recent ones: the pair that misses most.
fn look_back<'a>(
    rules: &Rules,
    code: &'a Code,
    state: &State,
    now: Clock,
    line: &Line,
    side: Sides,
) -> Option<TooClose<'a>> {
    let mut worst: Option<TooClose> = None;
    for r in state {
        let mut common = r.starts & side.ends;
        if common == 0 {
            continue;
        }
        let p = &code.lines[r.line as usize];
        let since = now.since(r.at);
        while common != 0 {
            let n = common.trailing_zeros() as usize;
            common &= common - 1;
            let rule = &rules.list[n];
            let have = if rule.fix == Fix::Nop { since.states } else { since.vectors };
            // the largest need comes first: most pairs are far enough for any
            if have >= i32::from(rules.most[n]) || rule.between.is_some() && r.between >> n & 1 == 0 {
                continue;
            }
            let need = i32::from(need(rules.target, rule, p));
            let done = rule.fix == Fix::DepCtr && (r.waited || since.transcendental > 1);
            if have < need
                && !done
                && worst.as_ref().is_none_or(|w| need - have > w.need - w.have)
                && rule.consumer.holds_after(p.inst.op, line.inst.op, line.traits)
                && meet(rule.relation, p, line)
            {
                worst = Some(TooClose { rule, producer: p, need, have });
            }
        }
    }
    worst
}

fn need(target: Target, rule: &HazardRule, p: &Line) -> u8 {
    let passes = || target.passes(&p.inst).unwrap_or(0);
    match rule.states {
        [(0, n)] => *n,
        list => {
            let passes = passes();
            list.iter().find(|s| s.0 == 0 || s.0 == passes).map_or(0, |s| s.1)
        }
    }
}

fn finding(f: &TooClose, line: &Line) -> Finding {
    let TooClose { rule, producer: p, need, have } = f;
    let (unit, fix) = match rule.fix {
        Fix::Nop => ("wait states", format!("put `s_nop {}` in front of it", need - have - 1)),
        Fix::VNop => ("vector instructions", "put `v_nop` in front of it".to_string()),
        _ => ("vector instructions", "put `s_waitcnt_depctr depctr_va_vdst(0)` in front of it".to_string()),
    };
    let name = rule.name;
    Finding {
        rule: Rule::Hazard,
        line: Some((line.at, line.raw)),
        what: format!("{need} {unit} must lie between `{}` at {:#x} and this, there are {have} ({name})", p.raw, p.at),
        fix,
    }
}
