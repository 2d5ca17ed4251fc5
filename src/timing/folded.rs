//! Workgroups that enter a loop again and again, as those do that compute equal shares of a product's tiles. Entries that execute the same
//! instructions with the same waits follow each other in the same time, so that two of them are simulated and the second stands for the others.
//! Where what leads into a loop differs but its rounds are those of an entry before, one of them is simulated and the rest goes on at that entry's pace.
//!
//! An entry is what a wave executes from the end of a loop's recorded rounds to the end of the next one's. All waves of a workgroup must enter as
//! often and meet as often meanwhile, or nothing is left out.

use crate::instr::Instr;
use crate::record::{Skip, Trace};
use std::ops::Range;

/// Entries alike, or rounds of so many, that are kept.
const KEPT: usize = 2;
/// Steps of rounds that others may stand for. The pace of a few short ones is known to some percent only, which differ from entry to entry: a product
/// of matrix instructions with rounds of 91 steps came out 4% too long by one entry's pace, and within 0.3% by each one's own.
const LONG: u32 = 256;

/// The waves of a workgroup without rounds and entries for which others stand.
pub(crate) fn folded(instrs: &[Instr], waves: Vec<Trace>) -> Vec<Trace> {
    let entries = waves.first().map_or(0, |w| w.skips.len());
    if waves.iter().any(|w| w.skips.len() != entries) {
        return waves;
    }
    without_entries(instrs, without_rounds(instrs, waves))
}

/// How often waves meet in some of a trace's steps.
fn meets(instrs: &[Instr], w: &Trace, steps: Range<usize>) -> usize {
    w.steps[steps].iter().filter(|s| instrs[s.instr as usize].meeting.is_some()).count()
}

/// Leaves out rounds of loops that were entered before, but for one.
fn without_rounds(instrs: &[Instr], waves: Vec<Trace>) -> Vec<Trace> {
    let Some(first) = waves.first() else { return waves };
    let met = |w: &Trace, n: usize| meets(instrs, w, rounds(w, n));
    let paces: Vec<Option<u32>> = (0..first.skips.len())
        .map(|n| {
            let s = &first.skips[n];
            let long = (s.at - s.from) / s.rounds.max(1) >= LONG;
            let alike = |of: &usize| waves.iter().all(|w| same_rounds(w, *of, n) && met(w, n) == met(first, n));
            (0..if long { n } else { 0 }).filter(alike).nth(KEPT - 1).map(|of| of as u32)
        })
        .collect();
    if paces.iter().all(Option::is_none) {
        return waves;
    }
    waves.into_iter().map(|w| paced(w, &paces)).collect()
}

/// Recorded steps of the rounds that stand for those left out.
fn rounds(w: &Trace, n: usize) -> Range<usize> {
    w.skips[n].from as usize..w.skips[n].at as usize
}

/// The recorded rounds of two loops are alike: instructions and what these wait for.
fn same_rounds(w: &Trace, a: usize, b: usize) -> bool {
    w.skips[a].rounds == w.skips[b].rounds && same_steps(w, rounds(w, a), rounds(w, b))
}

/// Keeps one of the recorded rounds of each loop whose pace is another one's.
fn paced(w: Trace, paces: &[Option<u32>]) -> Trace {
    let mut out = Trace::default();
    let mut next = 0;
    for (s, pace) in w.skips.iter().zip(paces) {
        let before = out.steps.len() as u32;
        let length = (s.at - s.from) / s.rounds.max(1);
        let (kept, left) = if pace.is_some() { (length, s.rounds.max(1) - 1) } else { (s.at - s.from, 0) };
        out.steps.extend_from_slice(&w.steps[next as usize..(s.from + kept) as usize]);
        let from = before + (s.from - next);
        let (rounds, times) = (s.rounds - left, s.times + u64::from(left));
        out.skips.push(Skip { at: from + kept, from, rounds, times, pace: *pace });
        next = s.at;
    }
    out.steps.extend_from_slice(&w.steps[next as usize..]);
    Trace { accesses: w.accesses, fetches: w.fetches, unseen: w.unseen, unseen_work: w.unseen_work, ..out }
}

/// Leaves out entries like those before them.
fn without_entries(instrs: &[Instr], waves: Vec<Trace>) -> Vec<Trace> {
    let Some(first) = waves.first() else { return waves };
    let entries = first.skips.len();
    if entries <= KEPT + 1 {
        return waves;
    }
    let alike = |n: usize| {
        let met = |w: &Trace| meets(instrs, w, entry(w, n));
        waves.iter().all(|w| same(w, n - 1, n) && met(w) == met(first))
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
    of(a) == of(b) && same_steps(w, entry(w, a), entry(w, b))
}

/// Two stretches of a trace execute the same instructions, which wait for the same.
fn same_steps(w: &Trace, a: Range<usize>, b: Range<usize>) -> bool {
    let accesses = |i: Option<u32>| i.map(|i| &w.accesses[i as usize]).map(|a| (a.clocks, a.level, a.store));
    a.len() == b.len()
        && w.steps[a]
            .iter()
            .zip(&w.steps[b])
            .all(|(x, y)| (x.instr, x.jumped) == (y.instr, y.jumped) && accesses(x.access) == accesses(y.access))
}

/// Leaves out entries of each run behind the first ones.
fn without(w: Trace, runs: &[Range<usize>]) -> Trace {
    let mut out = Trace::default();
    // Where loops whose pace others go on at are now.
    let mut places: Vec<u32> = vec![0; w.skips.len()];
    // What is executed up to a step, from where loops before these have ended.
    let mut take = |out: &mut Trace, loops: Range<usize>, to: u32| {
        let (at, from) = (out.steps.len() as u32, if loops.start == 0 { 0 } else { w.skips[loops.start - 1].at });
        let moved = |step: u32| at + (step - from);
        out.steps.extend_from_slice(&w.steps[from as usize..to as usize]);
        for n in loops {
            let s = &w.skips[n];
            places[n] = out.skips.len() as u32;
            // An entry that others are like is the first one of its kind, and kept.
            let pace = s.pace.map(|of| places[of as usize]);
            out.skips.push(Skip { at: moved(s.at), from: moved(s.from), pace, ..s.clone() });
        }
    };
    let mut next = 0;
    for r in runs {
        let kept = r.start + KEPT;
        take(&mut out, next..kept, w.skips[kept - 1].at);
        let at = out.steps.len() as u32;
        let from = at - entry(&w, r.start).len() as u32;
        out.skips.push(Skip { at, from, rounds: 1, times: (r.len() - KEPT) as u64, pace: None });
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
            out.skips.push(Skip { at: from + 2, from, rounds: 1, times: 10, pace: None });
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
    fn a_long_round_stands_for_those_of_entries_before() {
        // Four rounds of so many instructions each behind what leads into the loop.
        let wave = |round: u32| {
            let mut out = Trace::default();
            for lead in [3, 5, 7, 9, 11] {
                let (at, step) = (out.steps.len() as u32, |instr: u32| Step { instr, access: None, jumped: false });
                let from = at + lead;
                let steps = (0..lead + 4 * round).map(|n| step(u32::from(n >= lead && (n - lead) % round == 0)));
                out.steps.extend(steps);
                let at = from + 4 * round;
                out.skips.push(Skip { at, from, rounds: 4, times: 10, pace: None });
            }
            out
        };
        let (long, short) = (wave(LONG), wave(LONG - 1));
        let of = |w: &Trace| folded(&instrs(), vec![w.clone(), w.clone()]).remove(1);
        assert_eq!(of(&short).steps.len(), short.steps.len());
        let kept = of(&long);
        assert_eq!(kept.executed(), long.executed());
        assert_eq!(kept.steps.len() as u32, 35 + (2 * 4 + 3) * LONG);
        let paces: Vec<_> = kept.skips.iter().map(|s| (s.rounds, s.times, s.pace)).collect();
        assert_eq!(paces, [(4, 10, None), (4, 10, None), (1, 13, Some(1)), (1, 13, Some(1)), (1, 13, Some(1))]);
        // Waves that do not meet as often are left alone.
        let mut alone = long.clone();
        alone.steps.iter_mut().for_each(|s| s.instr = 0);
        let two = folded(&instrs(), vec![long.clone(), alone]);
        assert_eq!(two[0].steps.len(), long.steps.len());
    }

    #[test]
    fn waves_that_differ_are_left_alone() {
        let [a, b] = [wave(&[3, 5, 5, 5, 5]), wave(&[3, 5, 5, 6, 5])];
        let of = |waves: [&Trace; 2]| folded(&instrs(), waves.map(Trace::clone).into())[0].steps.len();
        assert_eq!(of([&a, &b]), a.steps.len());
        assert!(of([&a, &a]) < a.steps.len());
    }
}
