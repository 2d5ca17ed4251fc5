//! Launches one behind the other as levels of one ([`levels`](super::levels)): a launch costs more than what makes a level wait.
//!
//! A launch's levels have as many workgroups on a compute unit at once as the kernel with the most registers, LDS and waves lets be, so that some may take longer than by
//! themselves. The order of launches is fixed: of all ways to cut it into runs that may be one launch each, that one is taken which the [estimate](Estimate) thinks
//! quickest. Where the quickest run that ends with a launch begins is known from those that end before (dynamic programming).

use super::beside::{Members, Part, described};
use super::cache::StepCode;
use super::kernel::KernelCode;
use super::link::{Beside, begins, can_be_linked, counts};
use crate::kernels::{Estimate, Room, When, Work};
use crate::runtime::plan::{Address, Indices, Launch, Linked, Region, most_multiplied};
use barewave_isa::Target;
use std::collections::BTreeMap;

/// Levels of a launch at most.
const MOST_LEVELS: usize = 64;

/// A launch with what it runs.
#[derive(Clone)]
pub(super) struct Built {
    pub launch: Launch,
    /// The kernels of which it runs one, and which.
    pub code: (StepCode, usize),
    /// What of steps' kernels it runs, with these; nothing where it is to stay by itself.
    pub parts: Vec<(Part, StepCode)>,
    /// The steps that it computes.
    pub steps: Vec<usize>,
}

impl Built {
    pub fn kernel(&self) -> &KernelCode {
        &self.code.0[self.code.1]
    }

    /// All of it as a step.
    fn whole(&self) -> Linked {
        let Launch { step, grid, sharing, flops, multiplies, .. } = self.launch.clone();
        Linked { step, grid, sharing, flops, multiplies, level: 0 }
    }
}

/// Launches that have become levels of others.
#[derive(Default)]
pub(super) struct Behind {
    /// What they take.
    pub taken: Taken,
    /// Kernels of several levels and what they are called, by what their code depends on.
    pub codes: BTreeMap<Vec<(u32, Part)>, (String, Option<StepCode>)>,
}

/// What of steps' kernels a launch runs.
type Parts = [(Part, StepCode)];

/// A launch of these parts can be a level of one.
fn able(target: Target, parts: &Parts) -> bool {
    let one = |(p, code): &(Part, StepCode)| p.workgroups() > 0 && can_be_linked(target, &code[p.number]);
    !parts.is_empty() && parts.iter().all(one)
}

/// Launches that may become levels of one, as far as they go.
struct Run<'a> {
    members: Members<'a>,
    /// What they do, and where each level begins among them.
    works: Vec<Work>,
    levels: Vec<usize>,
    /// What its workgroups have, and the cycles that it takes with that, but for a launch.
    room: Room,
    cycles: u64,
}

impl<'a> Run<'a> {
    fn new(target: Target) -> Run<'a> {
        let members = Members::new(target, 1);
        Run { room: members.room(), members, works: Vec::new(), levels: Vec::new(), cycles: 0 }
    }

    /// Takes another launch, if it can be a level behind the others.
    fn take(&mut self, target: Target, estimate: &Estimate, next: &'a Parts) -> bool {
        if self.levels.len() == MOST_LEVELS {
            return false;
        }
        let first = self.works.len();
        for (part, code) in next {
            let member = self.members.member(&code[part.number], *part);
            if first > 0 && !self.members.fits(&member) {
                return false;
            }
            self.works.push(member.work(target));
            self.members.push(member);
        }
        self.levels.push(first);
        let room = self.members.room();
        // Those before take as long as they did where they have as much.
        let known = if room == self.room { self.levels.len() - 1 } else { 0 };
        self.room = room;
        let more: u64 = (known..self.levels.len()).map(|level| self.of_level(estimate, level)).sum();
        self.cycles = if known > 0 { self.cycles } else { 0 } + more;
        true
    }

    fn level(&self, level: usize) -> &[Work] {
        let end = self.levels.get(level + 1).copied().unwrap_or(self.works.len());
        &self.works[self.levels[level]..end]
    }

    /// Cycles of a level, with what it waits.
    fn of_level(&self, estimate: &Estimate, level: usize) -> u64 {
        let waits = |before: usize| estimate.waits(self.level(before), self.room, before > 0);
        let waits = level.checked_sub(1).map_or(0.0, waits);
        (estimate.cycles(self.level(level), self.room, level > 0) + waits) as u64
    }

    /// Cycles of the launch.
    fn launched(&self, estimate: &Estimate) -> u64 {
        let finds_out = if self.levels.len() > 1 { estimate.finds_out(self.members.told()) } else { 0.0 };
        self.cycles + (estimate.launch() + finds_out) as u64
    }
}

/// The launches, cut into runs that become one each: the quickest ones, or, `always`, as few as can be.
fn runs(target: Target, launches: &[&Parts], always: bool) -> Vec<Vec<usize>> {
    let estimate = Estimate::of(target);
    let able: Vec<bool> = launches.iter().map(|parts| able(target, parts)).collect();
    // The cycles of all launches before each, and where the last run of these begins.
    let mut best: Vec<(u64, usize)> = vec![(u64::MAX, 0); launches.len() + 1];
    best[0].0 = 0;
    for first in 0..launches.len() {
        let mut run = Run::new(target);
        for (n, next) in launches.iter().enumerate().skip(first) {
            let may = n == first || able[first] && able[n];
            if !may || !run.take(target, &estimate, next) {
                break;
            }
            let cycles = best[first].0 + if always { 1 } else { run.launched(&estimate) };
            if cycles < best[n + 1].0 {
                best[n + 1] = (cycles, first);
            }
        }
    }
    let mut out = Vec::new();
    let mut end = launches.len();
    while end > 0 {
        out.push((best[end].1..end).collect());
        end = best[end].1;
    }
    out.reverse();
    out
}

/// What launches take, in cycles, about.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    /// How many there are.
    pub launches: usize,
    /// What each level would take by itself, but for a launch.
    pub steps: f64,
    /// Launches, waits, and that a launch's levels have less room than by themselves.
    pub besides: f64,
}

impl Taken {
    /// Adds what launches take that are cut into such runs.
    fn add(&mut self, target: Target, launches: &[&Parts], runs: &[Vec<usize>]) {
        let estimate = Estimate::of(target);
        let of = |list: &[usize]| {
            let mut run = Run::new(target);
            list.iter().for_each(|n| _ = run.take(target, &estimate, launches[*n]));
            run
        };
        let steps: f64 = (0..launches.len()).map(|n| of(&[n]).cycles as f64).sum();
        self.launches += runs.len();
        self.steps += steps;
        self.besides += runs.iter().map(|run| of(run).launched(&estimate) as f64).sum::<f64>() - steps;
    }
}

impl Behind {
    /// Launches with those joined that may be one, if any: where that is faster, or whatever waits take and however many have to take turns. `link` makes a kernel of parts.
    pub fn join(
        &mut self,
        target: Target,
        launches: Vec<Built>,
        when: Option<When>,
        link: impl Fn(&[(u32, Part)], &[Beside]) -> Option<StepCode>,
    ) -> Vec<Built> {
        let parts: Vec<&Parts> = launches.iter().map(|b| &b.parts[..]).collect();
        let mut runs = match when {
            Some(When::Never) | None => (0..parts.len()).map(|n| vec![n]).collect(),
            Some(when) => runs(target, &parts, when == When::Always),
        };
        self.taken.add(target, &parts, &runs);
        let mut out: Vec<Built> = Vec::new();
        // The launch that each one has become.
        let mut now: Vec<u32> = Vec::new();
        // A run's code may turn out to be too long: then its halves are tried.
        runs.reverse();
        while let Some(mut run) = runs.pop() {
            let all: Vec<&Built> = run.iter().map(|n| &launches[*n]).collect();
            let joined = if all.len() > 1 { self.one(target, &all, &link) } else { Some(all[0].clone()) };
            match joined {
                Some(one) => {
                    now.extend(run.iter().map(|_| out.len() as u32));
                    out.push(one);
                }
                None => {
                    let behind = run.split_off(run.len() / 2);
                    runs.extend([behind, run]);
                }
            }
        }
        for (own, b) in (0..).zip(&mut out) {
            let after = &mut b.launch.after;
            after.iter_mut().for_each(|l| *l = now[*l as usize]);
            after.retain(|l| *l != own);
            after.sort_unstable();
            after.dedup();
        }
        out
    }

    /// Some launches as one, if they can be.
    fn one(
        &mut self,
        target: Target,
        all: &[&Built],
        link: impl Fn(&[(u32, Part)], &[Beside]) -> Option<StepCode>,
    ) -> Option<Built> {
        let levels = || (0..).zip(all).flat_map(|(level, b)| b.parts.iter().map(move |part| (level, part)));
        let key: Vec<(u32, Part)> = levels().map(|(level, (part, _))| (level, part.in_code())).collect();
        let number = self.codes.len();
        let beside: Vec<Beside> = levels().map(|(level, (part, code))| part.beside(code, level)).collect();
        let (name, code) =
            self.codes.entry(key).or_insert_with_key(|key| (format!("levels_{number}"), link(key, &beside)));
        let code = code.clone()?;
        let kernel = &code[0];
        let told = beside.iter().any(|p| p.told);
        let (mut args, mut indices, mut chain) = (Vec::new(), Vec::<Indices>::new(), Vec::new());
        let mut parts = kernel.chain.iter();
        for (level, b) in (0..).zip(all) {
            let of_launch = Linked { level, ..b.whole() };
            let steps = if b.launch.beside.is_empty() { std::slice::from_ref(&of_launch) } else { &b.launch.beside };
            // Counters of a launch's parts follow each other in both.
            let (mut at, mut counters) = (0, None);
            for (step, part) in steps.iter().zip(&mut parts) {
                let counters = *counters.get_or_insert(part.counters as u64);
                let (first, count) = (args.len() - at, part.args - if told { 2 } else { 1 });
                let own = b.launch.args[at..at + count].iter().map(|a| match a.region {
                    Region::Counters => Address { offset: a.offset + counters, ..*a },
                    _ => *a,
                });
                args.extend(own.chain([Address { region: Region::Counters, offset: part.links as u64 }]));
                args.extend(told.then(|| counts(target, &beside, level)));
                let own = b.launch.indices.iter().filter(|x| (at..at + count).contains(&(x.arg as usize)));
                indices.extend(own.map(|x| Indices { arg: (x.arg as usize + first) as u32, ..x.clone() }));
                chain.push(Linked { level, ..step.clone() });
                at += count;
            }
        }
        if told {
            args.extend(begins(levels().map(|(_, (part, _))| part.workgroups())));
        }
        let launch = Launch {
            kernel: name.clone(),
            step: described(all.iter().map(|b| &*b.launch.step)),
            grid: [beside.iter().map(Beside::workgroups).sum(), 1, 1],
            block: kernel.workgroup_size,
            sharing: kernel.sharing,
            multiplies: most_multiplied(&chain),
            chain,
            beside: Vec::new(),
            args,
            indices,
            copies: Vec::new(),
            flops: kernel.flops,
            after: all.iter().flat_map(|b| b.launch.after.iter().copied()).collect(),
            live_bytes: all.iter().map(|b| b.launch.live_bytes).max().unwrap_or(0),
        };
        let steps = all.iter().flat_map(|b| b.steps.iter().copied()).collect();
        Some(Built { launch, code: (code, 0), parts: Vec::new(), steps })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::code;
    use super::*;
    use std::sync::Arc;

    /// A launch of so many workgroups of a kernel of this many workitems and registers.
    fn launch(workgroups: u32, workgroup_size: u32, vgprs: u32) -> Vec<(Part, StepCode)> {
        let code = KernelCode { workgroup_size, vgprs, ..code(0)[0].clone() };
        let group = (workgroup_size + vgprs) as usize;
        vec![(Part { group, number: 0, grid: [workgroups, 1, 1], told: false, sets: 1 }, Arc::new(vec![code]))]
    }

    fn ends(target: Target, launches: &[Vec<(Part, StepCode)>], always: bool) -> Vec<usize> {
        let parts: Vec<&Parts> = launches.iter().map(|l| &l[..]).collect();
        runs(target, &parts, always).iter().map(|r| r[r.len() - 1] + 1).collect()
    }

    #[test]
    fn levels_are_as_many_as_there_may_be_where_nothing_is_lost() {
        let light: Vec<_> = (0..MOST_LEVELS + 6).map(|_| launch(100, 64, 32)).collect();
        assert_eq!(ends(Target::GFX942, &light[..9], false), [9]);
        assert_eq!(ends(Target::GFX942, &light, false).len(), 2);
        // What takes all registers would let few of the others run at once.
        let wide = || launch(100_000, 64, 32);
        let list = [wide(), launch(1, 64, 512), wide(), wide()];
        assert_eq!(ends(Target::GFX942, &list, false), [1, 2, 3, 4]);
        assert_eq!(ends(Target::GFX942, &list, true), [4]);
        // A launch that cannot be a level has one of its own.
        let list = [light[0].clone(), Vec::new(), light[0].clone(), light[0].clone()];
        assert_eq!(ends(Target::GFX942, &list, true), [1, 2, 4]);
    }

    #[test]
    fn launches_take_more_where_fewer_are_one_but_for_those_that_leave_no_room() {
        let taken = |target: Target, all: &[Vec<(Part, StepCode)>], one: bool| {
            let parts: Vec<&Parts> = all.iter().map(|l| &l[..]).collect();
            let mut taken = Taken::default();
            let together: Vec<usize> = (0..all.len()).collect();
            let runs = if one { vec![together] } else { together.into_iter().map(|n| vec![n]).collect() };
            taken.add(target, &parts, &runs);
            taken
        };
        let wide = || launch(100_000, 64, 32);
        let list = [wide(), launch(1, 64, 512), wide(), wide()];
        assert!(taken(Target::GFX942, &list, true).besides > taken(Target::GFX942, &list, false).besides);
        for target in [Target::GFX906, Target::GFX942, Target::GFX1100] {
            let light: Vec<_> = (0..5).map(|_| launch(100, 64, 32)).collect();
            let (apart, one) = (taken(target, &light, false), taken(target, &light, true));
            assert_eq!((apart.launches, one.launches, apart.steps), (5, 1, one.steps));
            assert_eq!(apart.besides, 5.0 * Estimate::of(target).launch().floor());
            assert!(one.besides < apart.besides);
        }
    }

    #[test]
    fn no_way_to_cut_launches_is_quicker() {
        let mut seed = 1u32;
        let mut random = |from: &[u32]| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            from[(seed >> 16) as usize % from.len()]
        };
        for target in [Target::GFX906, Target::GFX942, Target::GFX1100] {
            let estimate = Estimate::of(target);
            let all: Vec<_> = (0..8)
                .map(|_| launch(random(&[1, 300, 3000]), random(&[64, 256, 1024]), random(&[16, 32, 64])))
                .collect();
            // Of some launches, cut behind those whose bits are set.
            let cycles = |cuts: u32| {
                let (mut sum, mut run) = (0, Run::new(target));
                for (n, next) in all.iter().enumerate() {
                    assert!(run.take(target, &estimate, next));
                    if cuts >> n & 1 > 0 || n + 1 == all.len() {
                        sum += std::mem::replace(&mut run, Run::new(target)).launched(&estimate);
                    }
                }
                sum
            };
            let found = ends(target, &all, false).iter().map(|end| 1 << (end - 1)).sum();
            assert_eq!(cycles(found), (0..1 << 7).map(cycles).min().unwrap());
        }
    }
}
