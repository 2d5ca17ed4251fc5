//! Steps one behind the other in one launch: workgroups of each wait for all of the step before, and begin while these run.
//!
//! Each step is simulated as if it were alone. Of its workgroups that gives a timetable in two pieces: until they wait, with what they have asked of memory until
//! then, and from there on. The timetables of all steps are run together ([`run`]): as many workgroups are resident as the kernel lets be, the next begins when
//! one ends, memory shares its bandwidth among those that move something, and what the last workgroup of a step has stored takes its way to be seen. What the launch takes longer
//! with a step than with those before it alone is the step's time. That compute units, too, are shared by workgroups of two steps is left out: those of the second one wait.

use crate::chip::Chip;
use crate::modelled::Modelled;
use crate::record::Trace;
use crate::stall::Issued;
use crate::waiting::{self, Needs, Pace, Piece};

/// How workgroups of a step go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    /// Clocks of one, those until it waits, and the share of its lines that it has asked for by then.
    pub clocks: f64,
    pub until: f64,
    pub asked: f64,
    /// Clocks that memory takes to move what one does.
    pub moved: f64,
    /// Workgroups at once, and clocks from the beginning of one to that of the next.
    pub at_once: usize,
    pub start: f64,
}

/// When a workgroup with these waves begins to wait for others, and the share of its lines that it has asked for by then; nothing where it does not wait.
pub(crate) fn until_wait(waves: &[Trace], issued: &[Vec<Issued>]) -> Option<(f64, f64)> {
    let at = |wave: usize, step: usize| issued.get(wave).and_then(|i| i.get(step)).map_or(0.0, |i| i.at() as f64);
    let polls = |w: &Trace| {
        let polls = |a: u32| w.accesses[a as usize].polls;
        w.steps.iter().position(|s| s.access.is_some_and(polls))
    };
    let until = waves.iter().enumerate().find_map(|(n, w)| Some(at(n, polls(w)?)))?;
    let (mut before, mut all) = (0.0, 0.0);
    for (n, w) in waves.iter().enumerate() {
        for (step, (s, weight)) in w.steps.iter().zip(w.weights()).enumerate() {
            let lines = s.access.map_or(0.0, |a| w.accesses[a as usize].lines.len() as f64 * weight);
            all += lines;
            before += if at(n, step) < until { lines } else { 0.0 };
        }
    }
    Some((until, before / f64::max(all, 1.0)))
}

/// Gives each step but the first of a launch the time that it adds; nothing where one of them is not known to be such a step.
pub fn chain(chip: &Chip, steps: &mut [&mut Modelled]) {
    let Some(all) = steps.iter().map(|m| Some((m.alone()?, m.workgroups as usize))).collect::<Option<Vec<_>>>() else {
        return;
    };
    let times: Vec<Option<f64>> = (1..=all.len()).map(|n| together(chip, &all[..n])).collect();
    for (n, step) in steps.iter_mut().enumerate().skip(1) {
        if let (Some(before), Some(with)) = (times[n - 1], times[n]) {
            step.adds(chip, (with - before).max(0.0));
        }
    }
}

/// Clocks of steps together; nothing where one waits for ever.
fn together(chip: &Chip, steps: &[(Alone, usize)]) -> Option<f64> {
    let mut tables: Vec<Vec<Piece>> = Vec::new();
    let mut needs = Needs { stores: Vec::new(), waits: Vec::new(), joined: Vec::new(), of: Vec::new() };
    for (n, (a, workgroups)) in steps.iter().enumerate() {
        needs.joined.push(*workgroups);
        for _ in 0..*workgroups {
            let piece = |clocks: f64, share: f64| Piece { clocks, moved: share * a.moved, event: None };
            let ends = Some(needs.of.len());
            needs.of.push(vec![n]);
            if n == 0 {
                tables.push(vec![piece(a.clocks, 1.0)]);
                needs.stores.push(vec![ends]);
                needs.waits.push(vec![Vec::new()]);
            } else {
                tables.push(vec![piece(a.until, a.asked), piece((a.clocks - a.until).max(0.0), 1.0 - a.asked)]);
                needs.stores.push(vec![None, ends]);
                needs.waits.push(vec![vec![n - 1], Vec::new()]);
            }
        }
    }
    let (first, _) = steps.first()?;
    let (at_once, start, seen) = (first.at_once, first.start, waiting::seen(chip));
    let pace = Pace { waves: &[], issued: &[], clocks: 0.0, moved: 0.0, at_once, start, seen };
    waiting::run(&tables, Some(&needs), &pace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewave_isa::Target;

    #[test]
    fn what_is_asked_for_before_a_wait_comes_beside_the_step_before() {
        let chip = Chip::of(Target::GFX942).unwrap();
        let seen = waiting::seen(&chip);
        let step = |clocks: f64, until: f64, asked: f64, moved: f64| Alone {
            clocks,
            until,
            asked,
            moved,
            at_once: 64,
            start: 0.0,
        };
        let of = |second: Alone| together(&chip, &[(step(1000.0, 0.0, 0.0, 0.0), 32), (second, 32)]).unwrap();
        let near = |x: f64, y: f64| assert!((x - y).abs() < 1.0, "{x} instead of {y}");
        // All behind the wait, half of it before, and memory that is busy for longer than the first step.
        near(of(step(600.0, 0.0, 0.0, 0.0)), 1000.0 + seen + 600.0);
        near(of(step(600.0, 300.0, 0.0, 0.0)), 1000.0 + seen + 300.0);
        near(of(step(600.0, 300.0, 1.0, 20.0)), 1000.0 + seen + 300.0);
        near(of(step(600.0, 300.0, 1.0, 100.0)), 3200.0 + 300.0);
        // Without a place at once the second step begins behind the first.
        let full = Alone { at_once: 32, ..step(1000.0, 0.0, 0.0, 0.0) };
        let behind = together(&chip, &[(full, 32), (step(600.0, 300.0, 0.0, 0.0), 32)]).unwrap();
        near(behind, 1000.0 + seen.max(300.0) + 300.0);
    }
}
