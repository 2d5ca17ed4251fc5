//! Scalar registers that vector instructions have read: on targets with the rule `sgpr>again`, later writes to their pairs
//! are not interlocked with the reads that follow, however much later.
//!
//! Forwards over all paths: which pairs vector instructions have read, which registers of such pairs scalar and vector
//! instructions have written since. Who reads one of those must come behind a wait for the ALU that wrote it; scalar
//! memory and buffer instructions wait by themselves, and so do scalar instructions for the vector ALU.

use super::code::{Code, Graph};
use super::inst::{Flow, Line};
use super::report::{Finding, Findings, Rule};
use super::solve::{Analysis, solve};
use barewave_isa::{Pipe, Reg, Relation, Traits, op};

#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct State {
    read: u128,
    by_scalar: u128,
    by_vector: u128,
}

impl State {
    fn join(&mut self, o: &State) -> bool {
        let before = *self;
        self.read |= o.read;
        self.by_scalar |= o.by_scalar;
        self.by_vector |= o.by_vector;
        *self != before
    }
}

const VCC: u128 = 3 << 106;
const EVEN: u128 = 0x5555_5555_5555_5555_5555_5555_5555_5555;

fn bits(line: &Line, writes: bool) -> u128 {
    let mut set = 0;
    for u in line.uses.iter().filter(|u| if writes { u.writes } else { u.reads }) {
        for n in u.span.numbers() {
            set |= match n {
                512..618 => 1u128 << (n - 512),
                640..656 => 1u128 << (n - 640 + 108),
                656 | 657 => 1u128 << (n - 656 + 106),
                _ => 0,
            };
        }
    }
    set
}

fn name(bit: u32) -> String {
    let r = match bit as u16 {
        n @ 0..106 => Reg::s(n),
        106 => Reg::VCC_LO,
        107 => Reg::VCC_HI,
        n => Reg::ttmp(n - 108),
    };
    format!("{r:?}")
}

struct Scalars<'a, 'c> {
    code: &'a Code<'c>,
    graph: &'a Graph,
}

impl Analysis for Scalars<'_, '_> {
    type State = State;

    fn pass(&self, block: usize, state: &mut State) -> bool {
        walk(self.code, self.graph, block, state, None)
    }

    fn join(&self, state: &mut State, other: &State) -> bool {
        state.join(other)
    }

    fn follow(&self, block: usize, state: &State, to: &mut dyn FnMut(usize, &State)) {
        self.graph.blocks[block].successors().for_each(|s| to(s, state));
    }
}

/// Checks a kernel.
pub fn check(code: &Code, g: &Graph, budget: &mut usize, out: &mut Findings) -> Option<()> {
    if code.target.hazards().iter().all(|r| r.relation != Relation::SgprAgain) {
        return Some(());
    }
    for (b, mut state) in solve(g, &Scalars { code, graph: g }, State::default(), budget)? {
        walk(code, g, b, &mut state, Some(out));
    }
    Some(())
}

fn walk(code: &Code, g: &Graph, b: usize, s: &mut State, mut out: Option<&mut Findings>) -> bool {
    let mut found = false;
    for (_, line) in g.lines(code, b) {
        let vector = line.is(Traits::VALU);
        let scalar = matches!(line.info.pipe, Pipe::Salu | Pipe::Branch);
        if line.inst.op == op::S_WAITCNT_DEPCTR {
            let v = line.constant(0).unwrap_or(u64::MAX);
            if v & 1 == 0 {
                s.by_scalar = 0;
            }
            if v & 2 == 0 {
                s.by_vector &= !VCC;
            }
            if v >> 9 & 7 == 0 {
                s.by_vector &= VCC;
            }
        } else if line.info.pipe == Pipe::Smem || line.info.pipe == Pipe::Vmem && line.has_resource() {
            (s.by_scalar, s.by_vector) = (0, 0);
        } else if vector || scalar {
            // the address that a call keeps is there when the function begins
            let calls = matches!(line.flow, Flow::Call(_) | Flow::CallRegister(_));
            let (reads, writes) = (bits(line, false), if calls { 0 } else { bits(line, true) });
            let after_scalar = reads & s.read & s.by_scalar;
            let after_vector = if vector { reads & s.read & s.by_vector } else { 0 };
            if after_scalar | after_vector != 0 {
                found = true;
                if let Some(out) = out.as_deref_mut() {
                    let bit = (after_scalar | after_vector).trailing_zeros();
                    let (by, wait) = match (after_scalar != 0, after_vector & VCC != 0) {
                        (true, _) => ("scalar", "depctr_sa_sdst(0)"),
                        (_, true) => ("vector", "depctr_va_vcc(0)"),
                        _ => ("vector", "depctr_va_sdst(0)"),
                    };
                    out.add(Finding {
                        rule: Rule::Hazard,
                        line: Some((line.at, line.raw)),
                        what: format!(
                            "{} was written by the {by} ALU after a vector instruction had read it or its neighbour: \
                             the write must be waited for before this reads it",
                            name(bit)
                        ),
                        fix: format!("put `s_wait_alu {wait}` in front of it"),
                    });
                }
                s.by_scalar &= !after_scalar;
                s.by_vector &= !after_vector;
            }
            if scalar {
                // it waits by itself for what was read on the path that was taken, which is not known: it is believed to
                for regs in [VCC, !VCC] {
                    if reads & s.read & regs != 0 {
                        s.by_vector &= !regs;
                    }
                }
                s.by_scalar |= writes & s.read;
                // the last writer counts
                s.by_vector &= !writes;
            } else {
                let pairs = (reads | reads >> 1) & EVEN;
                s.read |= pairs | pairs << 1;
                s.by_vector |= writes & s.read;
                s.by_scalar &= !(writes & VCC);
            }
        }
    }
    if g.blocks[b].calls_unknown {
        *s = State::default();
    }
    found
}
