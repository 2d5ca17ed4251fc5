//! Loops as nodes of a function.
//!
//! A [`Loop`] is a run of blocks in layout order whose last one goes back to the first. Its counter holds 0, `step`, `2 step`, ...
//! and the body runs while the counter is below `limit`, at least once; no instruction of the blocks advances or tests it:
//! [`pipeline`](crate::passes::pipeline) puts those in when it has taken the loop apart.
//!
//! The instructions of a body have *stages* ([`MInst::stage`](super::MInst::stage)). What an iteration computes is defined
//! by its instructions in order of stage, and within a stage in the order they stand. In a pipelined loop stage s of iteration i runs beside
//! stage 0 of iteration i + s, and in a block of fixed order a round is what stands there: what a stage writes at the end of a round the next
//! stage may read at the beginning of the next one, in the same register. A body without stages (all 0) is a plain loop.

use super::liveness::{Liveness, for_each_def};
use super::{Block, BlockId, Function, MInst, Opnd, VReg};
use barewave_isa::Pipe;

/// How a loop is overlapped with itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pipeline {
    /// Not: iterations follow one another, stages only order the instructions of one.
    #[default]
    Off,
    /// By the stages that the author has given.
    Stated,
    /// By stages that the compiler finds, at most so many.
    Modulo(u8),
}

/// What is taken for the rounds of a loop whose number is not known.
const UNKNOWN_TRIPS: f64 = 8.0;

/// Cycles of a wave for an instruction, about.
const PACE: f64 = 5.0;

/// A counted loop.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// First block of the body; nothing but the block before it and the loop itself leads here.
    pub header: BlockId,
    /// Last block of the body, in layout order; behind it the loop goes on at `header` or ends.
    pub latch: BlockId,
    /// Scalar that counts. The code before the loop puts 0 there; its value after the loop is not defined.
    pub counter: VReg,
    /// Added after each iteration.
    pub step: u32,
    /// The body runs again while the counter is below this (unsigned): a constant or a scalar.
    pub limit: Opnd,
    /// Registers that carry values from one iteration to the next: written in the body and live at its start.
    pub carried: Vec<VReg>,
    /// How it is overlapped.
    pub pipeline: Pipeline,
    /// Stages before the last may run for iterations behind the end: what they load there is guarded, and nobody uses it.
    /// A pipelined loop then needs no copy of its body behind it.
    pub overrun: bool,
    /// Rounds take two buffers in turn: the body is written twice, where that saves moving addresses from one to the other.
    pub in_turns: bool,
}

impl super::Function {
    /// Instructions that a wave executes, about, as long as loops are nodes: one that goes every way, and the rounds of loops that only a run tells are
    /// taken for a few. A matrix instruction stands for as many as take its time.
    pub fn executed(&self) -> u32 {
        let mut rounds = vec![1.0; self.blocks.len()];
        for l in &self.loops {
            let trips = l.trips().map_or(UNKNOWN_TRIPS, f64::from);
            rounds[l.header.0 as usize..=l.latch.0 as usize].iter_mut().for_each(|r| *r *= trips);
        }
        let matrix = |i: &MInst| i.info(self.target).filter(|o| o.pipe == Pipe::Matrix);
        let more = |i: &MInst| matrix(i).map_or(0.0, |o| (f64::from(o.busy) / PACE - 1.0).max(0.0));
        let weight = |b: &Block| b.insts.len() as f64 + b.insts.iter().map(more).sum::<f64>();
        self.blocks.iter().zip(rounds).map(|(b, r)| weight(b) * r).sum::<f64>() as u32
    }
}

impl Loop {
    /// How often the body runs, where that is known.
    pub fn trips(&self) -> Option<u32> {
        match self.limit {
            Opnd::Imm(x) => Some((x as u32).div_ceil(self.step.max(1)).max(1)),
            _ => None,
        }
    }
}

/// Registers that a loop carries besides its counter: written in the body and live at its start.
pub(crate) fn carried(f: &Function, live: &Liveness, l: &Loop) -> Vec<VReg> {
    let (header, latch) = (l.header.0 as usize, l.latch.0 as usize);
    let mut out = Vec::new();
    for inst in f.blocks[header..=latch].iter().flat_map(|b| &b.insts) {
        for_each_def(inst, |p| {
            let starts = live.units.of_part(f.whole(p.reg)).any(|u| live.live_in[header].contains(u));
            if starts && p.reg != l.counter {
                out.push(p.reg);
            }
        });
    }
    out.sort_unstable();
    out.dedup();
    out
}
