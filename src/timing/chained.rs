//! Steps one behind the other in one launch: workgroups of each wait for all of the step before, and begin while these run.
//!
//! Each step is simulated as if it were alone. Of its workgroups that gives a timetable in two pieces: until they wait, with what they have asked of memory until
//! then, and from there on; the last one also adds up what others have left, where it does. How long it takes from there on is simulated with a wait that is over when all that was asked for before is there; where memory is busy for longer, what
//! comes is computed with as it comes: when all has come, the last workgroups have left what the vector ALUs do between two waits for memory. The timetables of all steps are run
//! together ([`run`](waiting::run)): as many workgroups are resident as the kernel lets be, the next begins when
//! one ends, memory shares its bandwidth among those that move something, and what the last workgroup of a step has stored takes its way to be seen; those that count
//! themselves at one counter take turns. What the launch takes longer
//! with a step than with those before it is the step's time. That compute units, too, are shared by workgroups of two steps is left out: those of the second one wait.

use crate::chip::Chip;
use crate::modelled::Modelled;
use crate::record::{Level, Step, Trace};
use crate::stall::Issued;
use crate::waiting::{self, Needs, Pace, Piece};
use rustc_hash::FxHashSet;

/// How workgroups of a step go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    /// Clocks of one, those from its wait on, and the share of its lines from memory that it has asked for before.
    pub clocks: f64,
    pub behind: f64,
    pub asked: f64,
    /// Clocks of vector ALUs that one takes from one wait for memory to the next.
    pub computes: f64,
    /// Clocks that memory takes to move what one does.
    pub moved: f64,
    /// Clocks that the last one takes longer, which adds up what others have found.
    pub adding: f64,
    /// Places at which the workgroups of the step before count themselves in turns, and waves of a workgroup that do so.
    pub places: usize,
    pub counts: usize,
    /// Workgroups at once, and clocks from the beginning of one to that of the next.
    pub at_once: usize,
    pub start: f64,
}

/// Clocks that an atomic keeps the place busy at which others do the same. Inferred: a request of a second-level cache of 64 bytes a clock, or of what lies behind it, there and
/// back; nobody has measured how many counters of one place take.
const TURN: f64 = 2.0;

/// The share of `moved` bytes, which a workgroup moves from and to memory, that these waves of it have asked for when it begins to wait for others; nothing where it
/// does not wait; and how many lines it waits at. What all load alike is not moved for each. Of `placed` waves accesses know where they are served.
pub(crate) fn asked_before(
    waves: &[Trace],
    placed: &[Trace],
    issued: &[Vec<Issued>],
    line: f64,
    moved: f64,
) -> Option<(f64, usize)> {
    let at = |wave: usize, step: usize| issued.get(wave).and_then(|i| i.get(step)).map_or(0.0, |i| i.at() as f64);
    // The first poll, and at how many lines it looks.
    let poll = |(n, w): (usize, &Trace)| {
        let polled = |s: &Step| s.access.map(|a| w.accesses[a as usize].polls).filter(|p| *p > 0);
        w.steps.iter().enumerate().find_map(|(step, s)| Some((at(n, step), polled(s)?)))
    };
    let (until, places) = waves.iter().enumerate().find_map(poll)?;
    let mut lines: FxHashSet<u64> = FxHashSet::default();
    for (n, (w, placed)) in waves.iter().zip(placed).enumerate() {
        let early = w.steps.iter().enumerate().filter(|(step, _)| at(n, *step) < until);
        let from_memory = |a: &usize| placed.accesses[*a].level >= Level::Dram;
        let accesses = early.filter_map(|(_, s)| s.access.map(|a| a as usize)).filter(from_memory);
        lines.extend(accesses.flat_map(|a| &w.accesses[a].lines));
    }
    Some(((lines.len() as f64 * line / moved.max(1.0)).min(1.0), places))
}

/// Gives each step but the first of a launch the time that it adds; nothing where one of them is not known to be such a step. `levels` are those of the steps, in order:
/// a step waits for all of the level before.
pub fn chain(chip: &Chip, steps: &mut [&mut Modelled], levels: &[u32]) {
    let all = steps.iter().zip(levels).map(|(m, level)| Some((m.alone()?, m.workgroups as usize, *level)));
    let Some(all) = all.collect::<Option<Vec<_>>>() else { return };
    let (Some(first), Some(ends)) = (together(chip, &all[..1]), together(chip, &all)) else { return };
    let mut before = first[0];
    for (step, end) in steps.iter_mut().zip(ends).skip(1) {
        step.adds(chip, (end - before).max(0.0));
        before = before.max(end);
    }
}

/// When each of the steps ends; nothing where one waits for ever.
fn together(chip: &Chip, steps: &[(Alone, usize, u32)]) -> Option<Vec<f64>> {
    let mut tables: Vec<Vec<Piece>> = Vec::new();
    let mut needs = Needs { stores: Vec::new(), waits: Vec::new(), joined: Vec::new(), of: Vec::new() };
    // Where the level before, and the own one so far, count.
    let (mut waited, mut own): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut before = 0;
    for (a, workgroups, level) in steps {
        if *level != before {
            (waited, before) = (std::mem::take(&mut own), *level);
        }
        let places = steps.iter().find(|next| next.2 > *level).map_or(1, |next| next.0.places);
        let counters = needs.joined.len()..needs.joined.len() + places;
        own.extend(counters.clone());
        let counts = a.counts.max(1);
        needs.joined.extend((0..places).map(|p| (workgroups + places - 1 - p) / places * counts));
        for number in 0..*workgroups {
            // Before the last ones others go on meanwhile.
            let adding = if number + 1 == *workgroups { a.adding } else { 0.0 };
            let behind = adding + if number + a.at_once >= *workgroups { a.computes } else { 0.0 };
            let piece = |clocks: f64, share: f64| Piece { clocks, moved: share * a.moved, behind, ..Piece::default() };
            let ends = Some(needs.of.len());
            needs.of.push(vec![counters.start + number % places; counts]);
            if waited.is_empty() {
                tables.push(vec![piece(a.clocks + adding, 1.0)]);
                needs.stores.push(vec![ends]);
                needs.waits.push(vec![Vec::new()]);
            } else {
                let first = Piece { ahead: a.asked * a.moved, ..piece(a.clocks - a.behind, 0.0) };
                tables.push(vec![first, piece(a.behind + adding, 1.0 - a.asked)]);
                needs.stores.push(vec![None, ends]);
                needs.waits.push(vec![waited.clone(), Vec::new()]);
            }
        }
    }
    let (first, ..) = steps.first()?;
    let (at_once, start, seen) = (first.at_once, first.start, waiting::seen(chip));
    let pace = Pace { waves: &[], issued: &[], clocks: 0.0, moved: 0.0, at_once, start, seen, turn: TURN };
    let mut of_each = waiting::run(&tables, Some(&needs), &pace)?.into_iter();
    Some(steps.iter().map(|(_, n, _)| of_each.by_ref().take(*n).fold(0.0, f64::max)).collect())
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
            behind: clocks - until,
            asked,
            computes: 50.0,
            moved,
            adding: 0.0,
            places: 1,
            counts: 1,
            at_once: 64,
            start: 0.0,
        };
        let both = |first: Alone, second: Alone| together(&chip, &[(first, 32, 0), (second, 32, 1)]).unwrap()[1];
        let of = |second: Alone| both(step(1000.0, 0.0, 0.0, 0.0), second);
        // Those of a step end at once, and take turns to say so.
        let seen = seen + 31.0 * TURN;
        let near = |x: f64, y: f64| assert!((x - y).abs() < 1.0, "{x} instead of {y}");
        // All behind the wait, half of it before, and memory that is busy for longer than the first step.
        near(of(step(600.0, 0.0, 0.0, 0.0)), 1000.0 + seen + 600.0);
        near(of(step(600.0, 300.0, 0.0, 0.0)), 1000.0 + seen + 300.0);
        near(of(step(600.0, 300.0, 1.0, 20.0)), 1000.0 + seen + 300.0);
        near(of(step(600.0, 300.0, 1.0, 100.0)), 3200.0 + 50.0);
        // Without a place at once the second step begins behind the first.
        let full = Alone { at_once: 32, ..step(1000.0, 0.0, 0.0, 0.0) };
        let behind = both(full, step(600.0, 300.0, 0.0, 0.0));
        near(behind, 1000.0 + seen.max(300.0) + 300.0);
    }
}
