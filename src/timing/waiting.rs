//! Workgroups that wait for what others publish.
//!
//! A workgroup waits in a loop that does nothing but load what other workgroups may store, past the caches that they do not share, until
//! it holds what is waited for. Such a loop is known by its code ([`spin`]). Workgroups are recorded apart from each other, so nothing would ever
//! be found: a recorder takes one round of such a loop and goes on behind it, as if it had been found at once. What was waited for
//! is data like any other that was loaded: where a kernel goes by it, it goes by what memory holds.
//!
//! Where any of the workgroups that stand for all waits, all of the launch are followed once more, for the addresses alone: which they wait at, and which
//! of these they store to (`Event`). With the clocks at which the simulated compute unit comes to these instructions that makes a
//! timetable of each workgroup. All timetables are run together: workgroups begin one after the other as many as the device
//! holds at once, the others when one ends; memory shares its bandwidth among those that move something; a workgroup goes on
//! behind a wait when the slowest of those who store there has done so, and then as long as a store takes to be seen. The load
//! that sees it is in the timetable. Both take the latency of the level that the whole device shares: L2 of one die, what lies behind L2 of
//! several (`shared_level`). Of a store's way half a round trip is its own; polls, of which one may just have
//! missed it, come a round trip apart, and miss it by half of that on average. A wait's n-th round at one place is for everyone's n-th atomic
//! there, or for the first of their stores: others clear what is no longer needed. Where each stores behind its own wait they take turns in order.
//!
//! So each workgroup of a chain goes on a link later than the one before, and those of a team that all wait for all go on one exchange after
//! the slowest. What waiting costs the launch is what it takes longer than without (`delay`).

use crate::chip::Chip;
use crate::launch::ModelError;
use crate::record::{Level, Trace};
use crate::stall::{Issued, Stall};
use barewave_emu::spin;
use barewave_isa::{Raw, Target};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A loop in which a wave waits, by numbers of the program's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitLoop {
    /// Its first and last instruction.
    pub first: usize,
    pub last: usize,
    /// The branch that ends it, and where the wave goes on.
    pub leaves: usize,
    pub to: usize,
}

/// The loop in which a wave waits by this load, if it is in one; `code` tells address and bytes of the program's instructions.
pub(crate) fn wait_loop(
    target: Target,
    lanes: u32,
    load: usize,
    code: impl Fn(usize) -> Option<(u64, Raw)>,
) -> Option<WaitLoop> {
    let to = |(address, raw): (u64, Raw)| raw.branch_target(address as usize).and_then(|to| u64::try_from(to).ok());
    let (at, _) = code(load)?;
    let last = (load + 1..load + spin::LONGEST).find(|n| code(*n).and_then(to).is_some_and(|to| to <= at))?;
    let head = code(last).and_then(to)?;
    let first = (load.saturating_sub(spin::LONGEST)..=load).rev().find(|n| code(*n).is_some_and(|c| c.0 == head))?;
    let body: Vec<Option<Raw>> = (first..=last).map(|n| code(n).map(|c| c.1)).collect();
    let leaves = first + spin::leaves(target, lanes as usize, &body)?;
    if leaves == last {
        return Some(WaitLoop { first, last, leaves, to: last + 1 });
    }
    let out = code(leaves).and_then(to)?;
    let mut near = (first.saturating_sub(4 * spin::LONGEST)..last + 4 * spin::LONGEST)
        .filter(|n| code(*n).is_some_and(|c| c.0 == out));
    Some(WaitLoop { first, last, leaves, to: near.next()? })
}

/// The level at which all workgroups of the device see the same.
pub(crate) fn shared_level(chip: &Chip) -> Level {
    match () {
        () if chip.dies <= 1.0 => Level::L2,
        () if chip.mall_mib > 0.0 => Level::Mall,
        () => Level::Dram,
    }
}

/// Clocks until the device sees what was stored.
pub(crate) fn seen(chip: &Chip) -> f64 {
    match shared_level(chip) {
        Level::L2 => chip.l2_hit,
        Level::Mall => chip.mall_hit,
        _ => chip.dram,
    }
}

/// A wave waits somewhere, or stores where somebody waits.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Step of the wave's trace.
    pub step: u32,
    pub publishes: bool,
    /// It changes what is there, as others do.
    pub atomic: bool,
    /// Addresses of the dwords, divided by four.
    pub dwords: Vec<u64>,
}

/// Events of a workgroup's waves.
pub(crate) type Meetings = Vec<Vec<Event>>;

/// How a workgroup that does not wait goes on, and how workgroups share the device.
pub(crate) struct Pace<'a> {
    /// A workgroup's waves, and when each of their steps was issued.
    pub waves: &'a [Trace],
    pub issued: &'a [Vec<Issued>],
    /// Clocks until it ends.
    pub clocks: f64,
    /// Clocks that memory takes to move what it does.
    pub moved: f64,
    /// Workgroups at once, and clocks from the beginning of one to that of the next.
    pub at_once: usize,
    pub start: f64,
    /// Clocks until others see what was stored.
    pub seen: f64,
    /// Clocks between two stores that count as one, which meet at one place.
    pub turn: f64,
}

/// What a workgroup does until something happens.
#[derive(Default)]
pub(crate) struct Piece<'a> {
    pub clocks: f64,
    pub moved: f64,
    /// Clocks of memory that begin with the piece, and must be over only when the workgroup ends.
    pub ahead: f64,
    /// Of the last piece, clocks that it takes at least behind the last that memory has moved.
    pub behind: f64,
    pub event: Option<&'a Event>,
}

impl Pace<'_> {
    /// The timetables of all workgroups.
    fn timetables<'e>(&self, all: &'e [Meetings]) -> Vec<Vec<Piece<'e>>> {
        let last = self.issued.iter().flatten().map(|i| i.at()).max().unwrap_or(0).max(1);
        // Rounds that were left out are not between the simulated steps, which are drawn out instead.
        let scale = self.clocks / last as f64;
        let at = |wave: usize, step: usize| {
            let steps = self.issued.get(wave).filter(|s| !s.is_empty());
            steps.map_or(0.0, |s| s[step.min(s.len() - 1)].at() as f64 * scale)
        };
        // Lines asked for by the clock, all together.
        let mut asked: Vec<(f64, f64)> = Vec::new();
        for (w, trace) in self.waves.iter().enumerate() {
            for (n, (s, weight)) in trace.steps.iter().zip(trace.weights()).enumerate() {
                let lines = s.access.map_or(0, |a| trace.accesses[a as usize].lines.len());
                if lines > 0 {
                    asked.push((at(w, n), weight * lines as f64));
                }
            }
        }
        asked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        for a in &mut asked {
            sum += a.1;
            a.1 = sum;
        }
        let until = |clock: f64| match asked.partition_point(|a| a.0 <= clock) {
            0 => 0.0,
            n => asked[n - 1].1 / sum.max(1.0),
        };
        let timetable = |meetings: &'e Meetings| {
            let mut events: Vec<(f64, &Event)> = meetings
                .iter()
                .enumerate()
                .flat_map(|(w, list)| list.iter().map(move |e| (at(w, e.step as usize), e)))
                .collect();
            events.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Of a wait that the workgroup which stands for all does not have, as the first one of a chain, the load takes time too.
            let waits = |m: &Meetings| m.iter().flatten().filter(|e| !e.publishes).count();
            let mut own = all.first().map_or(0, waits);
            let (mut clock, mut out) = (0.0, Vec::<Piece>::new());
            let ends = events.into_iter().map(|(at, e)| (at, Some(e))).chain([(self.clocks, None)]);
            for (to, event) in ends {
                let share = until(to) - until(clock);
                let more = match out.last().and_then(|p| p.event) {
                    Some(e) if !e.publishes && own == 0 => self.seen,
                    Some(e) if !e.publishes => {
                        own -= 1;
                        0.0
                    }
                    _ => 0.0,
                };
                out.push(Piece {
                    clocks: (to - clock).max(0.0) + more,
                    moved: share * self.moved,
                    event,
                    ..Piece::default()
                });
                clock = clock.max(to);
            }
            out
        };
        all.iter().map(timetable).collect()
    }
}

/// What each wait is for: numbers of stores, all of which must be done.
pub(crate) struct Needs {
    /// By workgroup and piece: of a store its number, of a wait what it is for.
    pub stores: Vec<Vec<Option<usize>>>,
    pub waits: Vec<Vec<Vec<usize>>>,
    /// Stores that count as one, which waits name: how many of each must be done.
    pub joined: Vec<usize>,
    /// Those that each store is one of.
    pub of: Vec<Vec<usize>>,
}

/// A store of a workgroup's piece, by its number.
struct Stored {
    group: usize,
    piece: usize,
    store: usize,
    atomic: bool,
}

impl Needs {
    fn of(tables: &[Vec<Piece>]) -> Needs {
        let waited: FxHashSet<u64> = tables
            .iter()
            .flatten()
            .filter_map(|p| p.event.filter(|e| !e.publishes))
            .flat_map(|e| e.dwords.iter().copied())
            .collect();
        // Who stores where, in order.
        let mut places: FxHashMap<u64, Vec<Stored>> = FxHashMap::default();
        let mut out = Needs { stores: Vec::new(), waits: Vec::new(), joined: Vec::new(), of: Vec::new() };
        for (g, pieces) in tables.iter().enumerate() {
            let mut numbers = Vec::with_capacity(pieces.len());
            for (n, p) in pieces.iter().enumerate() {
                let at = p.event.filter(|e| e.publishes).map(|e| e.dwords.iter().filter(|d| waited.contains(d)));
                let mut number = None;
                for d in at.into_iter().flatten() {
                    let store = *number.get_or_insert_with(|| {
                        out.of.push(Vec::new());
                        out.of.len() - 1
                    });
                    let atomic = p.event.is_some_and(|e| e.atomic);
                    places.entry(*d).or_default().push(Stored { group: g, piece: n, store, atomic });
                }
                numbers.push(number);
            }
            out.stores.push(numbers);
        }
        let mut joined: FxHashMap<(Vec<usize>, bool), usize> = FxHashMap::default();
        let mut rounds: FxHashMap<(u64, usize), Option<usize>> = FxHashMap::default();
        for (g, pieces) in tables.iter().enumerate() {
            let mut waits = vec![Vec::new(); pieces.len()];
            let mut been: FxHashMap<u64, usize> = FxHashMap::default();
            for (n, p) in pieces.iter().enumerate() {
                let Some(e) = p.event.filter(|e| !e.publishes) else { continue };
                for d in &e.dwords {
                    let round = been.entry(*d).or_default();
                    let this = *round;
                    *round += 1;
                    let Some(list) = places.get(d) else { continue };
                    let own = list.iter().position(|s| s.group == g);
                    let first = list.partition_point(|s| s.group < g);
                    // Changes come together; of those who just store the first one is seen: others clear what is no longer needed.
                    let mut join = |stores: Vec<usize>, together: bool| {
                        let (all, of) = (&mut out.joined, &mut out.of);
                        *joined.entry((stores, together)).or_insert_with_key(|(stores, _)| {
                            stores.iter().for_each(|s| of[*s].push(all.len()));
                            all.push(if together { stores.len() } else { 1 });
                            all.len() - 1
                        })
                    };
                    let need = match own {
                        // It is its own turn when the one before it is done.
                        Some(own) if list[own].piece > n => {
                            first.checked_sub(1).map(|before| join(vec![list[before].store], true))
                        }
                        _ => *rounds.entry((*d, this)).or_insert_with(|| {
                            let of_each =
                                list.chunk_by(|a, b| a.group == b.group).map(|own| own[this.min(own.len() - 1)].store);
                            Some(join(of_each.collect(), list.iter().all(|s| s.atomic)))
                        }),
                    };
                    waits[n].extend(need);
                }
                waits[n].sort_unstable();
                waits[n].dedup();
            }
            out.waits.push(waits);
        }
        out
    }
}

/// Clocks in order, of what happens then to which workgroup.
#[derive(Clone, Copy)]
struct At(f64, usize);

impl PartialEq for At {
    fn eq(&self, other: &At) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &At) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// How far a workgroup is in its piece: parts that are not done.
#[derive(Clone, Copy, Default)]
struct Going {
    piece: usize,
    left: u8,
    /// Memory still moves what was asked for ahead.
    ahead: bool,
    waits_for: usize,
    seen: f64,
}

/// Clocks until each timetable is through; nothing where some wait for ever.
pub(crate) fn run(tables: &[Vec<Piece>], needs: Option<&Needs>, pace: &Pace) -> Option<Vec<f64>> {
    let mut ends = vec![0.0; tables.len()];
    let mut going = vec![Going::default(); tables.len()];
    // Done at a clock; moved when as much as this was moved for each of those that move something. Odd numbers are of what was asked for ahead.
    let (mut timed, mut moving): (BinaryHeap<Reverse<At>>, BinaryHeap<Reverse<At>>) = Default::default();
    let (mut clock, mut moved) = (0.0, 0.0);
    let mut left: Vec<usize> = needs.map_or(Vec::new(), |n| n.joined.clone());
    let (mut stored, mut done) = (vec![0.0f64; left.len()], vec![0.0f64; left.len()]);
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); left.len()];
    let (mut ended, mut begun) = (0, 0);
    let mut begin: Vec<(usize, f64)> = Vec::new();
    while begun < pace.at_once.min(tables.len()) {
        begin.push((begun, begun as f64 * pace.start));
        begun += 1;
    }
    loop {
        for (g, from) in begin.drain(..) {
            let (p, of) = (&tables[g][going[g].piece], &mut going[g]);
            of.ahead |= p.ahead > 0.0;
            let last = of.piece + 1 == tables[g].len();
            of.left = 1 + u8::from(p.moved > 0.0) + u8::from(last && of.ahead);
            timed.push(Reverse(At(from + p.clocks, 2 * g)));
            if p.moved > 0.0 {
                moving.push(Reverse(At(moved + p.moved, 2 * g)));
            }
            if p.ahead > 0.0 {
                moving.push(Reverse(At(moved + p.ahead, 2 * g + 1)));
            }
        }
        let share = moving.len() as f64;
        let next_moved = moving.peek().map(|m| clock + (m.0.0 - moved).max(0.0) * share);
        let next_timed = timed.peek().map(|t| t.0.0.max(clock));
        let (now, has_moved) = match (next_moved, next_timed) {
            (Some(m), Some(t)) if m <= t => (m, true),
            (Some(m), None) => (m, true),
            (_, Some(t)) => (t, false),
            (None, None) => break,
        };
        let number = if has_moved { moving.pop() } else { timed.pop() }?.0.1;
        let g = number / 2;
        if share > 0.0 {
            moved += (now - clock) / share;
        }
        clock = now;
        if has_moved {
            let of = &mut going[g];
            let last = of.piece + 1 == tables[g].len();
            if number % 2 == 1 {
                of.ahead = false;
                if !last {
                    continue;
                }
            }
            let behind = tables[g][of.piece].behind;
            if last && behind > 0.0 {
                timed.push(Reverse(At(now + behind, 2 * g)));
                continue;
            }
        }
        if going[g].left > 0 {
            going[g].left -= 1;
            if going[g].left > 0 {
                continue;
            }
            // The piece is done.
            let n = going[g].piece;
            if let Some(needs) = needs {
                for j in
                    needs.stores[g][n].iter().flat_map(|s| &needs.of[*s]).filter(|j| left[**j] > 0).collect::<Vec<_>>()
                {
                    left[*j] -= 1;
                    stored[*j] = f64::max(stored[*j] + pace.turn, now);
                    done[*j] = stored[*j] + pace.seen;
                    if left[*j] > 0 {
                        continue;
                    }
                    for w in std::mem::take(&mut waiting[*j]) {
                        let of = &mut going[w];
                        (of.waits_for, of.seen) = (of.waits_for - 1, of.seen.max(done[*j]));
                        if of.waits_for == 0 {
                            timed.push(Reverse(At(of.seen, 2 * w)));
                        }
                    }
                }
                going[g].seen = now;
                for j in &needs.waits[g][n] {
                    if left[*j] > 0 {
                        waiting[*j].push(g);
                        going[g].waits_for += 1;
                    }
                    if left[*j] == 0 {
                        going[g].seen = going[g].seen.max(done[*j]);
                    }
                }
                if going[g].waits_for > 0 {
                    continue;
                }
                if going[g].seen > now {
                    timed.push(Reverse(At(going[g].seen, 2 * g)));
                    continue;
                }
            }
        }
        going[g].piece += 1;
        if going[g].piece < tables[g].len() {
            begin.push((g, now));
            continue;
        }
        ended += 1;
        ends[g] = now;
        if begun < tables.len() {
            begin.push((begun, now));
            begun += 1;
        }
    }
    (ended == tables.len()).then_some(ends)
}

/// Clocks that a launch takes longer because its workgroups wait.
pub(crate) fn delay(all: &[Meetings], pace: &Pace) -> Result<f64, ModelError> {
    let tables = pace.timetables(all);
    let never = ModelError::NeverMeet { at_once: pace.at_once, workgroups: all.len() };
    let last = |ends: Vec<f64>| ends.into_iter().fold(0.0, f64::max);
    let with = run(&tables, Some(&Needs::of(&tables)), pace).map(last).ok_or(never)?;
    let without = run(&tables, None, pace).map_or(with, last);
    Ok((with - without).max(0.0))
}

/// Workgroups, of which so many run at once, do not wait for ever.
pub(crate) fn check(all: &[Meetings], at_once: usize) -> Result<(), ModelError> {
    let last = all.iter().flatten().flatten().map(|e| e.step).max().unwrap_or(0);
    let steps: Vec<Issued> = (0..=u64::from(last)).map(|n| Issued::new(n, Stall::None)).collect();
    let issued = vec![steps; all.iter().map(Vec::len).max().unwrap_or(0)];
    let clocks = f64::from(last) + 1.0;
    let pace = Pace { waves: &[], issued: &issued, clocks, moved: 0.0, at_once, start: 0.0, seen: 0.0, turn: 0.0 };
    delay(all, &pace).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instr::Instr;
    use barewave_isa::{Mode, parse};

    /// The loop around the first load that others' stores may answer.
    fn found(target: Target, texts: &[&str]) -> Option<WaitLoop> {
        let mode = Mode::of(target);
        // How long instructions are does not matter, as long as the jumps fit: branches are four bytes.
        let code: Vec<(u64, Raw)> =
            (0u64..).zip(texts).map(|(n, text)| (4 * n, parse(target, mode, text).unwrap())).collect();
        let lanes = target.info().wave_size;
        let load = code.iter().position(|(_, raw)| Instr::decoded(target, raw, lanes).unwrap().sees_others)?;
        wait_loop(target, lanes, load, |n| code.get(n).copied())
    }

    #[test]
    fn a_loop_waits_that_only_looks() {
        let t = Target::GFX906;
        let poll = ["global_load_dword v2, v0, s[2:3] glc", "s_waitcnt vmcnt(0)", "v_readfirstlane_b32 s4, v2"];
        let spin = [&poll[..], &["s_cmp_eq_u32 s4, s5", "s_cbranch_scc0 65531", "s_endpgm"]].concat();
        assert_eq!(found(t, &spin), Some(WaitLoop { first: 0, last: 4, leaves: 4, to: 5 }));
        // The way out in the middle.
        let out = [&poll[..], &["s_cmp_eq_u32 s4, s5", "s_cbranch_scc1 2", "s_sleep 1", "s_branch 65529", "s_endpgm"]];
        assert_eq!(found(t, &out.concat()), Some(WaitLoop { first: 0, last: 6, leaves: 4, to: 7 }));
        // By lane.
        let lanes = ["v_cmp_ne_u32 vcc, v2, v3", "s_and_b64 exec, exec, vcc", "s_cbranch_execnz 65531", "s_endpgm"];
        assert!(found(t, &[&poll[..2], &lanes[..]].concat()).is_some());
        // A count ends it, it goes on from place to place, or caches answer.
        let counts = ["s_add_u32 s6, s6, 1", "s_cmp_eq_u32 s6, s5", "s_cbranch_scc0 65530", "s_endpgm"];
        assert_eq!(found(t, &[&poll[..], &counts[..]].concat()), None);
        let moves = ["v_add_u32 v0, 4, v0", "s_cmp_eq_u32 s4, s5", "s_cbranch_scc0 65530", "s_endpgm"];
        assert_eq!(found(t, &[&poll[..], &moves[..]].concat()), None);
        let mut cached = spin.clone();
        cached[0] = "global_load_dword v2, v0, s[2:3]";
        assert_eq!(found(t, &cached), None);
        // It stores what it made of it until nobody else did.
        let swap = [
            "global_atomic_cmpswap v4, v0, v[2:3], s[2:3] glc",
            "s_waitcnt vmcnt(0)",
            "v_cmp_ne_u32 vcc, v4, v3",
            "v_add_u32 v2, 1, v4",
            "v_mov_b32 v3, v4",
            "s_cbranch_vccnz 65530",
            "s_endpgm",
        ];
        assert_eq!(found(t, &swap), None);
    }

    const STEPS: u32 = 100;

    /// Clocks that waiting takes of workgroups that store at a step and wait for stores of others.
    fn waits(of: &[(u32, u64, u32, Vec<u64>)], moved: f64) -> Result<f64, ModelError> {
        let event = |step: u32, publishes: bool, dwords: Vec<u64>| Event { step, publishes, atomic: true, dwords };
        let all: Vec<Meetings> = of
            .iter()
            .map(|(store, place, wait, others)| {
                let mut events = vec![event(*store, true, vec![*place]), event(*wait, false, others.clone())];
                events.sort_by_key(|e| e.step);
                vec![events]
            })
            .collect();
        let steps: Vec<Issued> = (0..=u64::from(STEPS)).map(|n| Issued::new(10 * n, Stall::None)).collect();
        let pace = Pace {
            waves: &[],
            issued: &[steps],
            clocks: 1000.0,
            moved,
            at_once: 64,
            start: 1.0,
            seen: 300.0,
            turn: 0.0,
        };
        delay(&all, &pace)
    }

    #[test]
    fn a_chain_takes_its_links_and_a_team_one_exchange() {
        let before = |n: u64| if n > 0 { vec![n - 1] } else { Vec::new() };
        let chain = |n: u64| -> Vec<_> { (0..n).map(|g| (60, g, 50, before(g))).collect() };
        let team = |n: u64| -> Vec<_> { (0..n).map(|g| (40, g, 50, (0..n).collect())).collect() };
        for n in [2, 8, 64] {
            // A link is from the wait to the store, and as long as that takes to be seen; workgroups begin a clock after each other anyway.
            let links = waits(&chain(n), 0.0).unwrap();
            assert!((links - (n - 1) as f64 * 399.0).abs() < 1.0, "{n}: {links}");
            // A store is seen 200 clocks after the others come to where they wait.
            let exchange = waits(&team(n), 0.0).unwrap();
            assert!((exchange - 200.0).abs() < 1.0, "{n}: {exchange}");
        }
        // Aggregates that are there early are waited for once, however many: no link waits for another.
        let early: Vec<_> = (0..64).map(|g| (10, g, 80, (0..g).collect())).collect();
        assert_eq!(waits(&early, 0.0).unwrap(), 0.0);
        // All store at one place: in front of their waits everybody is waited for, behind them they take turns.
        let all: Vec<_> = (0..64).map(|_| (40, 0, 50, vec![0])).collect();
        assert!((waits(&all, 0.0).unwrap() - 200.0).abs() < 1.0);
        let turns: Vec<_> = (0..64).map(|_| (60, 0, 50, vec![0])).collect();
        assert!((waits(&turns, 0.0).unwrap() - 63.0 * 399.0).abs() < 1.0);
    }

    #[test]
    fn who_has_no_place_is_not_waited_for() {
        let team: Vec<_> = (0..65).map(|g| (40, g, 50, (0..65).collect())).collect();
        let never = waits(&team, 0.0);
        assert!(matches!(never, Err(ModelError::NeverMeet { at_once: 64, workgroups: 65 })), "{never:?}");
        // Of those before it any number may be.
        let chain: Vec<_> = (0..200).map(|g| (60, g, 50, vec![g.max(1) - 1])).collect();
        assert!(waits(&chain, 0.0).unwrap() > 190.0 * 300.0);
    }
}
