//! Waits: no register is touched while a memory operation may still write it.
//!
//! What is followed is the set of operations that may be outstanding, each with the least number of younger operations of
//! its counter on any path. A wait for n leaves at most n outstanding. Where a counter's operations are done in order, an
//! operation with n or more younger ones is then done; where they are not (scalar loads, messages beside LDS, flat accesses
//! up to gfx9), only a wait for 0 says anything. Paths are joined by union and by the smaller number, which both only fall,
//! so that a few rounds over the graph reach the fixed point.
//!
//! What counts:
//! * A flat access may be one of memory or of LDS: it counts for both, and its result needs both waits. gfx8 has no other
//!   addressing, compilers know there that most of it is memory: its results need the wait for memory only.
//! * A vector load may fill a register that another one is still to fill where such results come in order (not on gfx12).
//! * Two loads of the two halves of a register do not meet.
//! * A load straight to LDS is for what other waves read behind a barrier. That may be of another buffer than LDS is read from next, where
//!   several are filled in turn, which waits tell that leave some of these loads. So it is reported that LDS is read behind a barrier although such loads may be
//!   outstanding, if no wait beside such loads leaves any, or none has ended any so far; and that one has been on its way for many barriers.
//! * Before a barrier LDS stores must be done, and LDS loads where LDS is written again before the next barrier. A group of
//!   one wave needs no barrier.
//! * Cache invalidations are not counted: to count fewer operations than there are asks for more waiting, not less.

use super::code::{Code, Graph};
use super::inst::{Line, Use};
use super::regs::{Set, Span};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use barewave_isa::{Counter, Flags, Pipe, Target, Traits, WaitScheme, op};

const COUNTERS: usize = 8;

/// An operation that may be outstanding on one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event {
    /// Number of the instruction.
    line: u32,
    counter: u8,
    /// Position of the run that it fills among its results.
    part: u8,
    /// Younger operations of the counter, at least.
    younger: u8,
    fills: Span,
}

#[derive(Clone, PartialEq, Eq, Default)]
struct State {
    /// In order of line, counter and part.
    events: Vec<Event>,
    /// Registers that events fill.
    filled: Set,
    /// Kinds of operation that may be outstanding.
    kinds: [u8; COUNTERS],
    /// Younger operations of the youngest LDS store, and load.
    stores: Option<u8>,
    loads: Option<u8>,
    /// Loads straight to LDS that may be outstanding.
    fills: Option<Fills>,
    /// A wait has ended some of these.
    filled_lds: bool,
}

/// Loads straight to LDS that may be outstanding.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fills {
    /// Younger operations of the oldest one, and of the youngest.
    younger: [u8; 2],
    /// Barriers behind the oldest one.
    barriers: u8,
}

/// So many barriers a load to LDS may be on its way for: buffers that are filled in turn are waited for long before.
const MOST_BARRIERS: u8 = 8;

/// Kinds of operation on one counter, as far as they overtake each other.
mod kind {
    pub const MEMORY: u8 = 1;
    pub const LDS: u8 = 2;
    pub const GDS: u8 = 4;
    /// Overtakes its like.
    pub const SCALAR: u8 = 8;
    pub const MESSAGE: u8 = 16;
    /// Overtakes others.
    pub const FLAT: u8 = 32;
}

fn in_order(kinds: u8) -> bool {
    kinds & (kind::SCALAR | kind::FLAT) == 0 && kinds.count_ones() <= 1
}

/// What the checks ask of the target.
struct Machine {
    target: Target,
    max: [u8; COUNTERS],
    /// Flat accesses are done in order with others.
    ordered_flat: bool,
    /// There are global accesses besides flat ones.
    has_global: bool,
    /// Results of vector loads come in order.
    ordered_loads: bool,
    /// Barriers matter.
    barriers: bool,
    /// Lines with wait instructions are asked once.
    lds_counter: usize,
    /// Waits leave none of the loads to LDS.
    fills_whole: bool,
}

impl Machine {
    fn new(target: Target, barriers: bool) -> Machine {
        let info = target.info();
        let mut max = [0; COUNTERS];
        info.counters.iter().for_each(|c| max[c.counter as usize] = c.max);
        Machine {
            target,
            max,
            ordered_flat: info.waits != WaitScheme::Waitcnt,
            has_global: target.has(op::GLOBAL_LOAD_DWORD),
            ordered_loads: info.waits != WaitScheme::Split,
            barriers,
            lds_counter: Counter::Lgkm as usize,
            fills_whole: false,
        }
    }

    /// The kind of operation that an instruction is for a counter; none when it is not counted.
    fn kind(&self, line: &Line, counter: Counter) -> Option<u8> {
        let flat = line.has(Flags::FLAT);
        Some(match line.info.pipe {
            Pipe::Smem => kind::SCALAR,
            Pipe::Branch | Pipe::Salu => kind::MESSAGE,
            Pipe::Lds if line.is(Traits::GDS) => kind::GDS,
            Pipe::Lds => kind::LDS,
            Pipe::Vmem if self.is_invalidation(line) => return None,
            Pipe::Vmem if flat && counter == Counter::Lgkm && !self.has_global => return None,
            Pipe::Vmem if flat && !self.ordered_flat && self.has_global => kind::FLAT,
            Pipe::Vmem if counter == Counter::Lgkm => kind::LDS,
            _ => kind::MEMORY,
        })
    }

    fn is_invalidation(&self, line: &Line) -> bool {
        let data = line.has(Flags::LOAD) || line.has(Flags::STORE) || line.has(Flags::ATOMIC);
        self.target.info().waits != WaitScheme::Split && !data && line.has(Flags::SIDE_EFFECTS)
    }

    /// The operation may fill what another vector load is still to fill.
    fn is_ordered_load(&self, line: &Line) -> bool {
        self.ordered_loads && line.info.pipe == Pipe::Vmem && line.has(Flags::LOAD) && !line.has(Flags::FLAT)
    }
}

impl State {
    fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        if !other.events.is_empty() {
            let mut merged = Vec::with_capacity(self.events.len().max(other.events.len()));
            let (mut a, mut b) = (self.events.iter().peekable(), other.events.iter().peekable());
            let key = |e: &Event| (e.line, e.counter, e.part);
            loop {
                match (a.peek(), b.peek()) {
                    (Some(x), Some(y)) if key(x) == key(y) => {
                        changed |= y.younger < x.younger;
                        merged.push(Event { younger: x.younger.min(y.younger), ..**x });
                        a.next();
                        b.next();
                    }
                    (Some(x), Some(y)) if key(x) < key(y) => {
                        merged.push(**x);
                        a.next();
                    }
                    (Some(x), None) => {
                        merged.push(**x);
                        a.next();
                    }
                    (_, Some(y)) => {
                        merged.push(**y);
                        changed = true;
                        b.next();
                    }
                    (None, None) => break,
                }
            }
            self.events = merged;
            self.filled.join(&other.filled);
        }
        for (a, b) in self.kinds.iter_mut().zip(other.kinds) {
            changed |= b & !*a != 0;
            *a |= b;
        }
        for (a, b) in [(&mut self.stores, other.stores), (&mut self.loads, other.loads)] {
            let least = match (*a, b) {
                (Some(x), Some(y)) => Some(x.min(y)),
                (x, y) => x.or(y),
            };
            changed |= least != *a;
            *a = least;
        }
        let fills = match (self.fills, other.fills) {
            (Some(x), Some(y)) => {
                let younger = [x.younger[0].max(y.younger[0]), x.younger[1].min(y.younger[1])];
                Some(Fills { younger, barriers: x.barriers.max(y.barriers) })
            }
            (x, y) => x.or(y),
        };
        changed |= fills != self.fills;
        changed |= other.filled_lds && !self.filled_lds;
        (self.fills, self.filled_lds) = (fills, self.filled_lds || other.filled_lds);
        changed
    }

    fn refill(&mut self) {
        self.filled = Set::default();
        self.events.iter().for_each(|e| self.filled.insert(e.fills));
    }

    fn wait(&mut self, m: &Machine, c: usize, left: u8) {
        let ordered = in_order(self.kinds[c]);
        if left > 0 && !ordered {
            return;
        }
        let before = self.events.len();
        self.events.retain(|e| usize::from(e.counter) != c || e.younger < left);
        if c == m.lds_counter {
            self.stores = self.stores.filter(|y| *y < left);
            self.loads = self.loads.filter(|y| *y < left);
        }
        if c == Counter::Vm as usize
            && let Some(Fills { younger: [oldest, youngest], .. }) = self.fills
            && oldest >= left
        {
            self.filled_lds = true;
            let some = Fills { younger: [left.saturating_sub(1), youngest], barriers: 0 };
            self.fills = (youngest < left).then_some(some);
        }
        if left == 0 {
            self.kinds[c] = 0;
        }
        if self.events.len() < before {
            self.refill();
        }
    }

    /// The event that forbids a use now, if there is one.
    fn conflict(&self, m: &Machine, line: &Line, u: &Use) -> Option<&Event> {
        self.events.iter().filter(|e| e.fills.overlaps(u.span)).find(|e| {
            let c = usize::from(e.counter);
            let ordered = in_order(self.kinds[c]);
            // the hardware holds back what a counter cannot count
            if ordered && m.max[c] > 0 && e.younger >= m.max[c] {
                return false;
            }
            let fill = u.writes && u.source == super::inst::RESULT || u.source == super::inst::TIED;
            let halves = e.fills.halves & u.span.halves & if fill && line.has(Flags::LOAD) { line.fills() } else { 3 };
            if halves == 0 {
                return false;
            }
            let again = fill && ordered && e.counter == Counter::Vm as u8 && m.is_ordered_load(line);
            !again
        })
    }

    fn issue(&mut self, m: &Machine, i: u32, line: &Line) {
        for &counter in line.counters {
            let Some(kind) = m.kind(line, counter) else { continue };
            let c = counter as usize;
            self.kinds[c] |= kind;
            let mut gone = false;
            for e in self.events.iter_mut().filter(|e| usize::from(e.counter) == c) {
                e.younger = e.younger.saturating_add(1);
                gone |= e.younger > m.max[c];
            }
            if gone && in_order(self.kinds[c]) {
                self.events.retain(|e| usize::from(e.counter) != c || e.younger <= m.max[c]);
                self.refill();
            }
            let lds = c == m.lds_counter;
            if lds {
                self.stores = self.stores.map(|y| y.saturating_add(1));
                self.loads = self.loads.map(|y| y.saturating_add(1));
            }
            if counter == Counter::Vm {
                let older = self.fills.map(|f| Fills { younger: f.younger.map(|y| (y + 1).min(m.max[c])), ..f });
                self.fills = match (line.is(Traits::LDSDMA), older) {
                    (false, older) => older,
                    (true, Some(older)) => Some(Fills { younger: [older.younger[0], 0], ..older }),
                    (true, None) => Some(Fills { younger: [0, 0], barriers: 0 }),
                };
            }
            if lds && line.touches_lds() {
                let stores = line.has(Flags::STORE) || line.has(Flags::ATOMIC);
                *(if stores { &mut self.stores } else { &mut self.loads }) = Some(0);
            }
            // a store has no results; its counter may be the loads'
            if counter == Counter::Exp || counter == Counter::Vs || line.inst.dsts.is_empty() {
                continue;
            }
            let halves = line.fills();
            for (part, u) in line.uses.iter().filter(|u| u.writes && is_result(line, u)).enumerate() {
                let fills = Span { halves: u.span.halves & halves, ..u.span };
                let e = Event { line: i, counter: counter as u8, part: part as u8, younger: 0, fills };
                match self.events.binary_search_by_key(&(i, e.counter, e.part), |e| (e.line, e.counter, e.part)) {
                    Ok(at) => self.events[at] = e,
                    Err(at) => self.events.insert(at, e),
                }
                self.filled.insert(fills);
            }
        }
    }
}

/// SCC and the like are not written by memory.
fn is_result(line: &Line, u: &Use) -> bool {
    line.inst.dsts.iter().any(|o| o.regs().and_then(Span::of).is_some_and(|s| s == u.span))
}

struct Waits<'a, 'c> {
    machine: Machine,
    code: &'a Code<'c>,
    graph: &'a Graph,
    /// Blocks behind whose end LDS is written before the next barrier.
    rewritten: Vec<bool>,
}

impl Analysis for Waits<'_, '_> {
    type State = State;

    fn pass(&self, block: usize, state: &mut State) -> bool {
        walk(&self.machine, self.code, self.graph, block, state, self.rewritten[block], None)
    }

    fn join(&self, state: &mut State, other: &State) -> bool {
        state.join(other)
    }

    fn follow(&self, block: usize, state: &State, to: &mut dyn FnMut(usize, &State)) {
        self.graph.blocks[block].successors().for_each(|s| to(s, state));
    }
}

/// Checks a kernel. `one_wave` when no workgroup has more than one wave.
pub fn check(code: &Code, g: &Graph, one_wave: bool, budget: &mut usize, out: &mut Findings) -> Option<()> {
    let machine = Machine::new(code.target, !one_wave);
    let rewritten = if machine.barriers { written_after(code, g, budget)? } else { vec![false; g.blocks.len()] };
    let machine = Machine { fills_whole: machine.barriers && !fills_in_turn(code, g), ..machine };
    let a = Waits { machine, code, graph: g, rewritten };
    for (b, mut state) in solve(g, &a, State::default(), budget)? {
        walk(&a.machine, code, g, b, &mut state, a.rewritten[b], Some(out));
    }
    Some(())
}

fn walk(
    m: &Machine,
    code: &Code,
    g: &Graph,
    b: usize,
    state: &mut State,
    rewritten_after: bool,
    mut out: Option<&mut Findings>,
) -> bool {
    let mut found = false;
    for (i, line) in g.lines(code, b) {
        if line.info.pipe == Pipe::Branch
            && line.info.counters.is_empty()
            && let Some(list) = m.target.decode_wait(&line.inst)
        {
            list.iter().for_each(|&(c, n)| state.wait(m, c as usize, n));
            continue;
        }
        if !state.events.is_empty() {
            for u in &line.uses {
                while state.filled.meets(u.span) {
                    let Some(&e) = state.conflict(m, line, u) else { break };
                    found = true;
                    if let Some(out) = out.as_deref_mut() {
                        report(m, code, state, line, u, &e, out);
                    }
                    // say it once
                    state.events.retain(|x| (x.line, x.part) != (e.line, e.part));
                    state.refill();
                }
            }
        }
        if m.barriers
            && line.has(Flags::BARRIER)
            && meets(line)
            && let Some(fills) = &mut state.fills
        {
            fills.barriers = (fills.barriers + 1).min(MOST_BARRIERS);
            let certain = m.fills_whole || !state.filled_lds;
            let missed = fills.barriers == MOST_BARRIERS || certain && is_read_at_once(m, code, g, b, i);
            if let (true, Some(out)) = (missed, out.as_deref_mut()) {
                out.add(Finding {
                    rule: Rule::Wait,
                    line: Some((line.at, line.raw)),
                    what: "waves meet here while a load to LDS may be outstanding that none of them has waited for"
                        .into(),
                    fix: format!("wait for {} in front of it", counter_name(m.target, Counter::Vm)),
                });
            }
            found |= missed;
            if missed {
                state.fills = None;
            }
        }
        if m.barriers && line.has(Flags::BARRIER) && meets(line) && (state.stores.is_some() || state.loads.is_some()) {
            let writes_follow = || rewritten_in(code, g, b, i).unwrap_or(rewritten_after);
            let what = match (state.stores, state.loads) {
                (Some(_), _) => Some("store to"),
                (_, Some(_)) if writes_follow() => Some("load from"),
                _ => None,
            };
            if let (Some(what), Some(out)) = (what, out.as_deref_mut()) {
                out.add(Finding {
                    rule: Rule::Wait,
                    line: Some((line.at, line.raw)),
                    what: format!(
                        "waves meet here while a {what} LDS may be outstanding: the other waves may come before it"
                    ),
                    fix: format!("wait for {} 0 in front of it", counter_name(m.target, Counter::Lgkm)),
                });
            }
            found |= what.is_some();
            if what.is_some() {
                (state.stores, state.loads) = (None, None);
            }
        }
        state.issue(m, i, line);
    }
    if g.blocks[b].calls_unknown {
        // functions wait for what their callers have outstanding, and for all but stores of their own
        for c in 0..COUNTERS {
            state.wait(m, c, 0);
        }
    }
    found
}

/// The waves of a workgroup meet at the instruction, or it says that this one has come.
fn meets(line: &Line) -> bool {
    !matches!(line.inst.op, op::S_BARRIER_WAIT | op::S_BARRIER_JOIN | op::S_BARRIER_LEAVE) && !line.is(Traits::GDS)
}

/// A block has loads to LDS, and a wait that leaves some loads: buffers are filled in turn.
fn fills_in_turn(code: &Code, g: &Graph) -> bool {
    let leaves =
        |l: &Line| code.target.decode_wait(&l.inst).is_some_and(|w| w.iter().any(|w| w.0 == Counter::Vm && w.1 > 0));
    (0..g.blocks.len())
        .any(|b| g.lines(code, b).any(|(_, l)| l.is(Traits::LDSDMA)) && g.lines(code, b).any(|(_, l)| leaves(l)))
}

/// LDS is read behind an instruction of a block before anything is waited for that vector memory loads.
fn is_read_at_once(m: &Machine, code: &Code, g: &Graph, b: usize, after: u32) -> bool {
    let waits = |l: &Line| m.target.decode_wait(&l.inst).is_some_and(|w| w.iter().any(|w| w.0 == Counter::Vm));
    let behind = g.lines(code, b).skip_while(|(i, _)| *i != after).skip(1);
    let found = behind.map(|(_, l)| (l.touches_lds() && l.has(Flags::LOAD), waits(l))).find(|f| f.0 || f.1);
    found.is_some_and(|(reads, _)| reads)
}

fn writes_lds(line: &Line) -> bool {
    line.touches_lds() && (line.has(Flags::STORE) || line.has(Flags::ATOMIC)) || line.is(Traits::LDSDMA)
}

/// Whether LDS is written behind an instruction of a block and before the next barrier; none when the block ends first.
fn rewritten_in(code: &Code, g: &Graph, b: usize, after: u32) -> Option<bool> {
    let mut behind = g.lines(code, b).skip_while(|(i, _)| *i != after).skip(1);
    behind.find_map(|(_, l)| match (writes_lds(l), l.has(Flags::BARRIER) && meets(l)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    })
}

/// Blocks behind whose end LDS is written before the next barrier.
fn written_after(code: &Code, g: &Graph, budget: &mut usize) -> Option<Vec<bool>> {
    let mut whole: Vec<Option<bool>> = Vec::with_capacity(g.blocks.len());
    for b in 0..g.blocks.len() {
        whole.push(g.lines(code, b).find_map(|(_, l)| match (writes_lds(l), l.has(Flags::BARRIER) && meets(l)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }));
    }
    let mut after = vec![false; g.blocks.len()];
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); if whole.contains(&Some(true)) { g.blocks.len() } else { 0 }];
    for b in 0..before.len() {
        g.blocks[b].successors().for_each(|s| before[s].push(b as u32));
    }
    let mut work: Vec<u32> = (0..before.len() as u32).filter(|b| whole[*b as usize] == Some(true)).collect();
    while let Some(b) = work.pop() {
        for &p in &before[b as usize] {
            *budget = budget.checked_sub(1)?;
            if !std::mem::replace(&mut after[p as usize], true) && whole[p as usize].is_none() {
                work.push(p);
            }
        }
    }
    Some(after)
}

fn report(m: &Machine, code: &Code, state: &State, line: &Line, u: &Use, e: &Event, out: &mut Findings) {
    let c = m.target.info().counters.iter().find(|c| c.counter as u8 == e.counter);
    let Some(counter) = c.map(|c| c.counter) else { return };
    let from = &code.lines[e.line as usize];
    let left = if in_order(state.kinds[e.counter as usize]) { e.younger.min(m.max[e.counter as usize] - 1) } else { 0 };
    let name = counter_name(m.target, counter);
    let does = if u.writes { "written" } else { "read" };
    out.add(Finding {
        rule: Rule::Wait,
        line: Some((line.at, line.raw)),
        what: format!(
            "{} is {does} while `{}` at {:#x} may still be going to fill it: {name} must be at most {left} here",
            u.span.regs(),
            from.raw,
            from.at
        ),
        fix: format!("wait for {name} {left} in front of it"),
    });
}

/// The name of a counter in a target's assembly.
fn counter_name(target: Target, c: Counter) -> &'static str {
    let split = target.info().waits == WaitScheme::Split;
    match (c, split) {
        (Counter::Vm, false) => "vmcnt",
        (Counter::Vm, true) => "loadcnt",
        (Counter::Lgkm, false) => "lgkmcnt",
        (Counter::Lgkm, true) => "dscnt",
        (Counter::Exp, _) => "expcnt",
        (Counter::Vs, false) => "vscnt",
        (Counter::Vs, true) => "storecnt",
        (Counter::Sample, _) => "samplecnt",
        (Counter::Bvh, _) => "bvhcnt",
        (Counter::Km, _) => "kmcnt",
        (Counter::X, _) => "xcnt",
    }
}
