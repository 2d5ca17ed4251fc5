//! Steps side by side in one launch: workgroups of each follow those of the one before and wait for nobody.
//!
//! Of the compute units the first one has most workgroups, and those of the steps that come first, which take longest: it is simulated with all workgroups that
//! it gets, whichever step they are of, the next one when one has ended. No step takes less than by itself. Memory moves what all of them need, one after the other.

use crate::chip::Chip;
use crate::instr::Instr;
use crate::launch::Recorded;
use crate::modelled::{Modelled, Parts};
use crate::record::{Level, Trace};
use crate::wave::{self, Resident};

/// Gives each step of a launch its share of the time that all take: as much as it has of the times that they take by themselves. Operands are at these levels.
pub fn beside(chip: &Chip, recorded: &[(&Recorded, &[Level])], steps: &mut [&mut Modelled]) {
    let Some((first, _)) = recorded.first() else { return };
    let (at_once, cus, shared) = first.room();
    // All instructions, and each step's traces over them.
    let mut instrs: Vec<Instr> = Vec::new();
    let mut traces = Vec::new();
    for (r, levels) in recorded {
        let base = instrs.len() as u32;
        instrs.extend_from_slice(r.instrs());
        let moved = |mut waves: Vec<Trace>| {
            waves.iter_mut().flat_map(|w| &mut w.steps).for_each(|s| s.instr += base);
            waves
        };
        traces.push((moved(r.placed(levels)), moved(r.placed_later(levels))));
    }
    // Which step's each of the first compute unit's workgroups is.
    let ends: Vec<u64> = steps
        .iter()
        .scan(0, |end, m| {
            *end += m.workgroups;
            Some(*end)
        })
        .collect();
    let total = ends.last().copied().unwrap_or(0);
    let own = (0..total.div_ceil(cus)).map(|n| ends.partition_point(|end| *end <= n * cus));
    let own: Vec<usize> = own.collect();
    let (resident, queued) = own.split_at(own.len().min(at_once as usize));
    let what = Resident {
        instrs: &instrs,
        groups: resident.iter().map(|n| &traces[*n].0[..]).collect(),
        queue: queued.iter().map(|n| &traces[*n].1[..]).collect(),
        starts: Vec::new(),
        cus: shared as usize,
        simds: None,
    };
    let compute = wave::simulate(chip, &what).clocks as f64;
    let parts: Vec<Parts> = steps.iter().map(|m| m.parts).collect();
    let body = Parts::beside(&parts, compute).body(chip);
    let alone: f64 = steps.iter().map(|m| m.clocks).sum();
    for (n, step) in steps.iter_mut().enumerate() {
        let share = step.clocks / alone.max(1.0);
        step.shares(chip, n == 0, body * share);
    }
}
