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
    /// Least wait states since.
    states: u8,
    /// Least vector instructions since.
    vectors: u8,
    /// Least transcendental ones among them.
    transcendental: u8,
    /// The vector ALU was waited for on all paths.
    waited: bool,
    /// Rules whose instruction in between was met on some path.
    between: u64,
}

type State = Vec<Recent>;

/// Rules that an instruction takes part in, by number.
#[derive(Clone, Copy, Default)]
struct Sides {
    starts: u64,
    ends: u64,
    between: u64,
}

struct Rules {
    target: Target,
    list: &'static [HazardRule],
    states: u8,
    vectors: u8,
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
    fn new(target: Target) -> Rules {
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
            for (i, r) in list.iter().enumerate().filter(|(_, r)| r.relation != Relation::SgprAgain) {
                s.starts |= u64::from(r.producer.holds(op, line.traits)) << i;
                s.ends |= u64::from(r.consumer.may_hold(op, line.traits)) << i;
                s.between |= u64::from(r.between.is_some_and(|b| b.holds(op, line.traits))) << i;
            }
            s
        });
        let writes = |r: Reg| number(r).is_some_and(|n| line.writes().any(|s| s.numbers().contains(&n)));
        if s.starts != 0 {
            for (mask, on) in [
                (self.vector_writes, line.writes().any(Span::is_vector)),
                (self.scalar_writes, line.writes().any(is_scalar)),
                (self.exec_writes, writes(Reg::EXEC_LO) || writes(Reg::EXEC_HI)),
                (self.vcc_writes, writes(Reg::VCC_LO) || writes(Reg::VCC_HI)),
                (self.m0_writes, writes(Reg::M0)),
                (self.hardware_registers, hardware_register(line).is_some()),
            ] {
                s.starts &= if on { u64::MAX } else { !mask };
            }
        }
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
    !s.is_vector() && !matches!(s.regs().first, Reg::EXEC_LO | Reg::EXEC_HI | Reg::M0 | Reg::SCC)
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
        Relation::SgprAgain => false,
    }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, out: &mut Findings) {
    let mut rules = Rules::new(code.target);
    if rules.list.is_empty() || g.blocks.is_empty() || rules.states == 0 && rules.vectors == 0 {
        return;
    }
    let sides: Vec<Sides> = g.order.iter().map(|&i| rules.sides(&code.lines[i as usize])).collect();
    let mut entry: Vec<Option<State>> = vec![None; g.blocks.len()];
    entry[g.entry] = Some(State::new());
    let order = g.reverse_postorder();
    let mut dirty = vec![true; g.blocks.len()];
    loop {
        let mut again = false;
        for &b in &order {
            let b = b as usize;
            if !std::mem::take(&mut dirty[b]) {
                continue;
            }
            let Some(mut state) = entry[b].clone() else { continue };
            walk(&rules, code, g, &sides, b, &mut state, None);
            state.sort_unstable_by_key(|r| r.line);
            for s in g.blocks[b].successors() {
                let changed = match &mut entry[s] {
                    Some(old) => join(old, &state),
                    none => {
                        *none = Some(state.clone());
                        true
                    }
                };
                dirty[s] |= changed;
                again |= changed;
            }
        }
        if !again {
            break;
        }
    }
    for &b in &order {
        if let Some(mut state) = entry[b as usize].take() {
            walk(&rules, code, g, &sides, b as usize, &mut state, Some(out));
        }
    }
}

fn join(a: &mut State, b: &State) -> bool {
    let mut changed = false;
    for r in b {
        match a.binary_search_by_key(&r.line, |r| r.line) {
            Ok(i) => {
                let old = a[i];
                let x = &mut a[i];
                x.states = x.states.min(r.states);
                x.vectors = x.vectors.min(r.vectors);
                x.transcendental = x.transcendental.min(r.transcendental);
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

fn walk(
    rules: &Rules,
    code: &Code,
    g: &Graph,
    sides: &[Sides],
    b: usize,
    state: &mut State,
    mut out: Option<&mut Findings>,
) {
    for n in g.blocks[b].lines.clone() {
        let i = g.order[n];
        let line = &code.lines[i as usize];
        let side = sides[n];
        if let Some(out) = out.as_deref_mut()
            && side.ends != 0
        {
            look_back(rules, code, state, line, side, out);
        }
        let states = line.states().min(255) as u8;
        let (vector, transcendental) = match line.info.pipe {
            Pipe::Valu | Pipe::Matrix => (1, 0),
            Pipe::Trans => (1, 1),
            _ => (0, 0),
        };
        // these read vector registers when all results are written
        let waits = matches!(line.info.pipe, Pipe::Vmem | Pipe::Lds | Pipe::Export)
            || line.inst.op == op::S_WAITCNT_DEPCTR && line.constant(0).is_some_and(|v| v >> 12 & 15 == 0);
        state.retain_mut(|r| {
            r.states = r.states.saturating_add(states);
            r.vectors = r.vectors.saturating_add(vector);
            r.transcendental = r.transcendental.saturating_add(transcendental);
            r.waited |= waits;
            r.between |= side.between;
            r.states < rules.states || r.vectors < rules.vectors
        });
        if matches!(line.flow, Flow::Indirect(_) | Flow::CallRegister(_) | Flow::Call(_)) {
            state.clear();
        } else if side.starts != 0 {
            state.retain(|r| r.line != i);
            let r = Recent {
                line: i,
                starts: side.starts,
                states: 0,
                vectors: 0,
                transcendental: 0,
                waited: false,
                between: 0,
            };
            state.push(r);
        }
    }
}

/// Compares an instruction with the recent ones.
fn look_back(rules: &Rules, code: &Code, state: &State, line: &Line, side: Sides, out: &mut Findings) {
    let mut worst: Option<(u32, Finding)> = None;
    for r in state {
        let p = &code.lines[r.line as usize];
        let mut common = r.starts & side.ends;
        while common != 0 {
            let n = common.trailing_zeros() as usize;
            common &= common - 1;
            let rule = &rules.list[n];
            if rule.between.is_some() && r.between >> n & 1 == 0 {
                continue;
            }
            let need = need(rules.target, rule, p);
            let have = if rule.fix == Fix::Nop { r.states } else { r.vectors };
            let done = rule.fix == Fix::DepCtr && (r.waited || r.transcendental > 1);
            if have >= need
                || done
                || !rule.consumer.holds_after(p.inst.op, line.inst.op, line.traits)
                || !meet(rule.relation, p, line)
            {
                continue;
            }
            let missing = u32::from(need - have);
            if worst.as_ref().is_none_or(|w| missing > w.0) {
                worst = Some((missing, finding(rule, need, have, p, line)));
            }
        }
    }
    if let Some((_, f)) = worst {
        out.add(f);
    }
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

fn finding(rule: &HazardRule, need: u8, have: u8, p: &Line, line: &Line) -> Finding {
    let (unit, fix) = match rule.fix {
        Fix::Nop => ("wait states", format!("put `s_nop {}` in front of it", need - have - 1)),
        Fix::VNop => ("vector instructions", "put `v_nop` in front of it".to_string()),
        Fix::DepCtr => ("vector instructions", "put `s_waitcnt_depctr depctr_va_vdst(0)` in front of it".to_string()),
    };
    Finding {
        rule: Rule::Hazard,
        line: Some((line.at, line.raw)),
        what: format!(
            "{need} {unit} must lie between `{}` at {:#x} and this, there are {have} ({})",
            p.raw, p.at, rule.name
        ),
        fix,
    }
}
