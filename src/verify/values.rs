//! Values of scalar registers that are known without running the program: numbers, addresses in the code object, the
//! pointer to the kernel's arguments, the description of its scratch memory.
//!
//! Addresses are counted from the load address, as the file's are: `s_getpc_b64` and the additions of a distance that
//! compilers make calls and tables of come out right whatever the load address is.

use super::code::{Code, Graph};
use super::inst::{self, Line};
use super::regs::{Set, Span, number};
use super::solve::{Analysis, solve};
use barewave_isa::{Operand, Pipe, Reg, op};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// What a 32-bit scalar register holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Value {
    /// Anything.
    #[default]
    Unknown,
    /// These bits.
    Bits(u32),
    /// Low half of the address of the arguments and this many bytes.
    Arguments(i32),
    /// Its high half.
    ArgumentsHigh,
    /// A part of the scratch buffer's description.
    Scratch,
}

const FIRST: u16 = 512;
const COUNT: usize = 128;

/// Values of all scalar registers at a point of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Values {
    regs: [Value; COUNT],
    scc: Option<bool>,
}

impl Default for Values {
    fn default() -> Values {
        Values { regs: [Value::Unknown; COUNT], scc: None }
    }
}

fn slot(n: u16) -> Option<usize> {
    n.checked_sub(FIRST).map(usize::from).filter(|&i| i < COUNT)
}

impl Values {
    /// The value of a register by number.
    pub fn get(&self, n: u16) -> Value {
        slot(n).map_or(Value::Unknown, |i| self.regs[i])
    }

    /// Says what a register holds.
    pub fn set(&mut self, n: u16, v: Value) {
        if let Some(i) = slot(n) {
            self.regs[i] = v;
        }
    }

    /// Keeps what holds on another path too; true when something was lost.
    pub fn join(&mut self, other: &Values) -> bool {
        let mut lost = false;
        for (a, b) in self.regs.iter_mut().zip(&other.regs) {
            if *a != *b && *a != Value::Unknown {
                *a = Value::Unknown;
                lost = true;
            }
        }
        if self.scc.is_some() && self.scc != other.scc {
            self.scc = None;
            lost = true;
        }
        lost
    }

    /// An address in two registers.
    pub fn address(&self, s: Span) -> Option<u64> {
        match (self.get(s.first), self.get(s.first + 1)) {
            (Value::Bits(lo), Value::Bits(hi)) if s.count >= 2 => Some(u64::from(hi) << 32 | u64::from(lo)),
            _ => None,
        }
    }

    /// Distance from the start of the arguments, of an address in two registers.
    pub fn argument_offset(&self, s: Span) -> Option<i64> {
        match (self.get(s.first), self.get(s.first + 1)) {
            (Value::Arguments(at), Value::ArgumentsHigh) if s.count >= 2 => Some(i64::from(at)),
            _ => None,
        }
    }

    fn operand(&self, o: Option<&Operand>, dword: u16) -> Value {
        match o {
            Some(Operand::Imm(v)) => Value::Bits((*v >> (32 * dword)) as u32),
            Some(Operand::Regs(r)) if r.first == Reg::NULL => Value::Bits(0),
            Some(Operand::Regs(r)) => number(r.first).map_or(Value::Unknown, |n| self.get(n + dword)),
            _ => Value::Unknown,
        }
    }

    /// The instruction has run.
    pub fn pass(&mut self, line: &Line, code: &Code) {
        let scalar = matches!(line.info.pipe, Pipe::Salu | Pipe::Smem | Pipe::Branch);
        if !scalar {
            // what the vector ALU writes is not followed
            if !line.writes_scalars {
                return;
            }
            line.writes().filter(|s| !s.is_vector()).for_each(|s| self.forget(s));
            return;
        }
        let src = |i: usize, dword: u16| self.operand(line.inst.srcs.get(i), dword);
        let (mut low, mut high, mut scc) = (Value::Unknown, Value::Unknown, None);
        let mut keeps_scc = true;
        match line.inst.op {
            op::S_GETPC_B64 => {
                (low, high) = (Value::Bits(line.end() as u32), Value::Bits((line.end() >> 32) as u32));
            }
            op::S_MOV_B32 | op::S_MOVK_I32 => low = src(0, 0),
            op::S_MOV_B64 => (low, high) = (src(0, 0), src(0, 1)),
            // the address that s_getpc_b64 gives is already extended
            op::S_SEXT_I32_I16 => {
                if let Value::Bits(v) = src(0, 0) {
                    low = Value::Bits(v as u16 as i16 as u32);
                }
            }
            op::S_ADD_U32 | op::S_ADD_I32 | op::S_ADDC_U32 | op::S_ADDK_I32 => {
                keeps_scc = false;
                let tied = line.inst.op == op::S_ADDK_I32;
                let (a, b) =
                    if tied { (self.operand(line.inst.dsts.first(), 0), src(0, 0)) } else { (src(0, 0), src(1, 0)) };
                let carry = if line.inst.op == op::S_ADDC_U32 { self.scc.map(u32::from) } else { Some(0) };
                (low, scc) = match (a, b, carry) {
                    (Value::Bits(a), Value::Bits(b), Some(c)) => {
                        let sum = u64::from(a) + u64::from(b) + u64::from(c);
                        (Value::Bits(sum as u32), Some(sum >> 32 != 0))
                    }
                    (Value::Arguments(at), Value::Bits(n), _) | (Value::Bits(n), Value::Arguments(at), _) => {
                        (at.checked_add(n as i32).map_or(Value::Unknown, Value::Arguments), None)
                    }
                    (Value::ArgumentsHigh, Value::Bits(0), _) | (Value::Bits(0), Value::ArgumentsHigh, _) => {
                        (Value::ArgumentsHigh, None)
                    }
                    (Value::Scratch, ..) | (_, Value::Scratch, _) => (Value::Scratch, None),
                    _ => (Value::Unknown, None),
                };
            }
            op::S_ADD_NC_U64 => {
                let pair = |i| match (src(i, 0), src(i, 1)) {
                    (Value::Bits(lo), Value::Bits(hi)) => Some(u64::from(hi) << 32 | u64::from(lo)),
                    _ => None,
                };
                if let (Some(a), Some(b)) = (pair(0), pair(1)) {
                    let sum = a.wrapping_add(b);
                    (low, high) = (Value::Bits(sum as u32), Value::Bits((sum >> 32) as u32));
                } else if let (Value::Arguments(at), Some(n)) = (src(0, 0), pair(1)) {
                    low = at.checked_add(n as i32).map_or(Value::Unknown, Value::Arguments);
                    high = src(0, 1);
                }
            }
            _ => keeps_scc = !line.writes().any(|s| s.start() == Reg::SCC),
        }
        let loaded = if line.info.pipe == Pipe::Smem { self.loaded(line, code) } else { None };
        line.writes().for_each(|s| self.forget(s));
        if !keeps_scc {
            self.scc = scc;
        }
        let Some(r) = line.result() else { return };
        self.set(r.first, low);
        if r.count > 1 {
            self.set(r.first + 1, high);
        }
        if let Some(v) = loaded {
            self.set(r.first, Value::Bits(v as u32));
            self.set(r.first + 1, Value::Bits((v >> 32) as u32));
        }
    }

    /// What a load of a 64-bit constant gives: an address of the global offset table, or of a table of code.
    fn loaded(&self, line: &Line, code: &Code) -> Option<u64> {
        if line.inst.op != op::S_LOAD_DWORDX2 {
            return None;
        }
        let base = self.address(line.source(0)?)?;
        let offset = match line.inst.srcs.get(1)? {
            Operand::Imm(v) => *v,
            _ => return None,
        };
        code.content(base.wrapping_add(offset))
    }

    /// Nothing is known of these any more.
    pub fn forget(&mut self, s: Span) {
        s.numbers().for_each(|n| self.set(n, Value::Unknown));
        if s.start() == Reg::SCC {
            self.scc = None;
        }
    }
}

/// Values over all ways. Calls are stepped over: what the function does not write is as before.
struct Flow<'a, 'c> {
    code: &'a Code<'c>,
    graph: &'a Graph,
    /// Scalar registers that each function writes, with all that it calls.
    written: FxHashMap<u32, Set>,
}

impl Analysis for Flow<'_, '_> {
    type State = Values;

    fn pass(&self, block: usize, v: &mut Values) -> bool {
        self.graph.lines(self.code, block).for_each(|(_, line)| v.pass(line, self.code));
        true
    }

    fn join(&self, v: &mut Values, other: &Values) -> bool {
        v.join(other)
    }

    fn follow(&self, block: usize, v: &Values, to: &mut dyn FnMut(usize, &Values)) {
        let b = &self.graph.blocks[block];
        if b.calls.is_empty() && !b.calls_unknown {
            b.next.iter().for_each(|s| to(*s as usize, v));
            return;
        }
        b.calls.iter().for_each(|s| to(*s as usize, v));
        let mut after = if b.calls_unknown { Values::default() } else { v.clone() };
        for f in &b.calls {
            let all = Set::ALL;
            let written = self.written.get(f).unwrap_or(&all);
            (FIRST..FIRST + COUNT as u16).filter(|n| written.has(*n)).for_each(|n| after.set(n, Value::Unknown));
            after.scc = None;
        }
        b.next.iter().for_each(|s| to(*s as usize, &after));
    }
}

/// Finds the values at the start of each block.
pub fn find(code: &Code, g: &Graph, start: Values, budget: &mut usize) -> Option<Vec<(usize, Values)>> {
    let flow = Flow { code, graph: g, written: written(code, g, budget)? };
    solve(g, &flow, start, budget)
}

/// What each function writes, with all that it calls.
fn written(code: &Code, g: &Graph, budget: &mut usize) -> Option<FxHashMap<u32, Set>> {
    let mut own = FxHashMap::default();
    let mut seen = vec![u32::MAX; g.blocks.len()];
    for &f in &g.functions {
        let (mut set, mut calls) = (Set::default(), Vec::new());
        let mut work = vec![f];
        while let Some(b) = work.pop() {
            if std::mem::replace(&mut seen[b as usize], f) == f {
                continue;
            }
            let block = &g.blocks[b as usize];
            *budget = budget.checked_sub(block.lines.len() + 1)?;
            g.lines(code, b as usize).for_each(|(_, l)| l.writes().for_each(|w| set.insert(w)));
            if block.calls_unknown {
                set = Set::ALL;
            }
            calls.extend(block.calls.iter().copied());
            work.extend(block.next.iter().copied());
        }
        own.insert(f, (set, calls));
    }
    loop {
        let mut again = false;
        for &f in &g.functions {
            let Some((mut set, calls)) = own.get(&f).cloned() else { continue };
            *budget = budget.checked_sub(calls.len() + 1)?;
            let more = calls.iter().filter_map(|c| own.get(c)).fold(false, |more, c| set.join(&c.0) | more);
            if more {
                again = true;
                own.insert(f, (set, calls));
            }
        }
        if !again {
            return Some(own.into_iter().map(|(f, (set, _))| (f, set)).collect());
        }
    }
}

/// Finds where jumps and calls through registers lead that are not known yet.
pub fn resolve(code: &Code, g: &Graph, targets: &mut FxHashMap<u32, u64>, budget: &mut usize) -> Option<()> {
    let values = find(code, g, Values::default(), budget)?;
    let wanted: BTreeSet<u32> = g.unresolved.iter().copied().collect();
    for (b, mut v) in values {
        let Some(last) = g.blocks[b].lines.clone().next_back() else { continue };
        let last = g.order[last];
        if !wanted.contains(&last) {
            continue;
        }
        for (i, line) in g.lines(code, b) {
            if i == last
                && let inst::Flow::Indirect(r) | inst::Flow::CallRegister(r) = line.flow
                && let Some(to) = v.address(r)
            {
                targets.insert(i, to);
            }
            v.pass(line, code);
        }
    }
    Some(())
}
