//! Workgroups that enter a loop again and again, as those do that compute equal shares of a product's tiles: entries that execute the same
//! instructions with the same waits follow each other in the same time, so that two of them are simulated and the second stands for the others.
//!
//! An entry is what a wave executes from the end of a loop's recorded rounds to the end of the next one's. All waves of a workgroup must enter as
//! often and meet as often meanwhile, or nothing is left out.

use crate::instr::Instr;
use crate::record::{Skip, Trace};
use std::ops::Range;

/// Entries alike that are kept.
const KEPT: usize = 2;

/// The waves of a workgroup without entries for which others stand.
pub(crate) fn folded(instrs: &[Instr], waves: Vec<Trace>) -> Vec<Trace> {
    let Some(first) = waves.first() else { return waves };
    let entries = first.skips.len();
    if entries <= KEPT + 1 || waves.iter().any(|w| w.skips.len() != entries) {
        return waves;
    }
    let alike = |n: usize| {
        let meets =
            |w: &Trace| w.steps[entry(w, n)].iter().filter(|s| instrs[s.instr as usize].meeting.is_some()).count();
        waves.iter().all(|w| same(w, n - 1, n) && meets(w) == meets(first))
    };
    // Runs of entries like the one before, the first of each included.
    let mut runs: Vec<Range<usize>> = Vec::new();
    for n in (2..entries).filter(|&n| alike(n)) {
        match runs.last_mut() {
            Some(r) if r.end == n => r.end = n + 1,
            _ => runs.push(n - 1..n + 1),
        }
    }
    runs.retain(|r| r.len() > KEPT);
    if runs.is_empty() {
        return waves;
    }
    waves.into_iter().map(|w| without(w, &runs)).collect()
}

/// Steps of an entry, by the number of its loop; the first one has none.
fn entry(w: &Trace, n: usize) -> Range<usize> {
    w.skips[n - 1].at as usize..w.skips[n].at as usize
}

/// Two entries are alike: instructions, what these wait for, and rounds.
fn same(w: &Trace, a: usize, b: usize) -> bool {
    let of = |n: usize| {
        let (s, at) = (&w.skips[n], w.skips[n - 1].at);
        (s.at - at, s.from - at, s.rounds, s.times)
    };
    let accesses = |i: Option<u32>| i.map(|i| &w.accesses[i as usize]).map(|a| (a.clocks, a.level, a.store));
    let steps = || w.steps[entry(w, a)].iter().zip(&w.steps[entry(w, b)]);
    of(a) == of(b)
        && steps().all(|(x, y)| (x.instr, x.jumped) == (y.instr, y.jumped) && accesses(x.access) == accesses(y.access))
}

/// Leaves out entries of each run behind the first ones.
fn without(w: Trace, runs: &[Range<usize>]) -> Trace {
    let mut out = Trace::default();
    // What is executed up to a step, from where loops before these have ended.
    let take = |out: &mut Trace, loops: Range<usize>, to: u32| {
        let (at, from) = (out.steps.len() as u32, if loops.start == 0 { 0 } else { w.skips[loops.start - 1].at });
        let moved = |step: u32| at + (step - from);
        out.steps.extend_from_slice(&w.steps[from as usize..to as usize]);
        out.skips.extend(w.skips[loops].iter().map(|s| Skip {
            at: moved(s.at),
            from: moved(s.from),
            touching: moved(s.touching.start)..moved(s.touching.end),
            ..s.clone()
        }));
    };
    let mut next = 0;
    for r in runs {
        let kept = r.start + KEPT;
        take(&mut out, next..kept, w.skips[kept - 1].at);
        let at = out.steps.len() as u32;
        let from = at - entry(&w, r.start).len() as u32;
        out.skips.push(Skip { at, from, rounds: 1, times: (r.len() - KEPT) as u64, touching: at..at });
        next = r.end;
    }
    take(&mut out, next..w.skips.len(), w.steps.len() as u32);
    Trace { accesses: w.accesses, fetches: w.fetches, ..out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Step;
    use barewave_isa::{Mode, Target, parse};

    /// A wave that adds so often in front of each loop, which waits at a barrier.
    fn wave(adds: &[usize]) -> Trace {
        let mut out = Trace::default();
        for adds in adds {
            let step = |instr: u32| Step { instr, access: None, jumped: false };
            out.steps.extend(std::iter::repeat_n(step(0), *adds));
            let from = out.steps.len() as u32;
            out.steps.extend([step(0), step(1)]);
            out.skips.push(Skip { at: from + 2, from, rounds: 1, times: 10, touching: from..from + 2 });
        }
        out
    }

    fn instrs() -> Vec<Instr> {
        let t = Target::GFX90A;
        let instr = |text: &str| Instr::new(t, &parse(t, Mode::of(t), text).unwrap().inst(), 64).unwrap();
        ["v_add_f32 v0, v1, v2", "s_barrier"].map(instr).into()
    }

    #[test]
    fn two_entries_stand_for_those_alike() {
        let whole = wave(&[3, 5, 5, 5, 5, 7, 7, 7]);
        let waves = folded(&instrs(), vec![whole.clone(), whole.clone()]);
        assert_eq!(waves[0].executed(), whole.executed());
        let steps = |w: &Trace| w.steps.len();
        assert_eq!((steps(&whole), steps(&waves[1])), (3 + 4 * 5 + 3 * 7 + 8 * 2, 3 + 2 * 5 + 2 * 7 + 5 * 2));
        let times: Vec<u64> = waves[0].skips.iter().map(|s| s.times).collect();
        assert_eq!(times, [10, 10, 10, 2, 10, 10, 1]);
    }

    #[test]
    fn waves_that_differ_are_left_alone() {
        let [a, b] = [wave(&[3, 5, 5, 5, 5]), wave(&[3, 5, 5, 6, 5])];
        let of = |waves: [&Trace; 2]| folded(&instrs(), waves.map(Trace::clone).into())[0].steps.len();
        assert_eq!(of([&a, &b]), a.steps.len());
        assert!(of([&a, &a]) < a.steps.len());
    }
}
