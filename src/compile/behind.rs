//! Launches one behind the other as levels of one ([`levels`](super::levels)): a launch costs more than what makes a level wait.
//!
//! Launches are gone through in order. One joins those before it where what that saves, a launch without its level's
//! wait, which grows with the waves that count before it, is more than what all then take longer, because as many workgroups are on a compute unit at once as the kernel with
//! the most registers and LDS lets be.

use super::beside::{Members, Part, described};
use super::cache::StepCode;
use super::kernel::KernelCode;
use super::link::{Beside, begins, can_be_linked, counts};
use crate::kernels;
use crate::runtime::plan::{Address, Indices, Launch, Linked, Region};
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

    /// It can be a level of a launch.
    fn able(&self, target: Target) -> bool {
        !self.parts.is_empty()
            && self.parts.iter().all(|(p, code)| p.workgroups() > 0 && can_be_linked(target, &code[p.number]))
    }

    /// Waves that all its workgroups have.
    fn waves(&self, target: Target) -> u32 {
        self.parts.iter().map(|(p, code)| p.beside(code, 0).waves(target)).fold(0, u32::saturating_add)
    }

    /// All of it as a step.
    fn whole(&self) -> Linked {
        let Launch { step, grid, sharing, flops, .. } = self.launch.clone();
        Linked { step, grid, sharing, flops, level: 0 }
    }
}

/// Kernels of several levels and what they are called, by what their code depends on.
#[derive(Default)]
pub(super) struct Behind {
    pub codes: BTreeMap<Vec<(u32, Part)>, (String, Option<StepCode>)>,
}

impl<'a> Members<'a> {
    /// Takes a launch's kernels, if they can be launched with the others and what they all take longer is less than what that saves.
    fn take(&mut self, b: &'a Built, saves: f64) -> bool {
        let (before, alone) = (self.list.len(), self.longer(0));
        let fits = b.parts.iter().all(|(part, code)| {
            let member = self.member(&code[part.number], *part);
            let fits = self.fits(&member);
            self.list.push(member);
            fits
        });
        let taken = fits && self.longer(0) - alone - self.longer(before) < saves;
        if !taken {
            self.list.truncate(before);
        }
        taken
    }
}

impl Behind {
    /// Launches with those joined that may be one: where that is faster, or, `always`, whatever waits take and however many have to take turns.
    /// `link` makes a kernel of parts.
    pub fn join(
        &mut self,
        target: Target,
        launches: Vec<Built>,
        always: bool,
        link: impl Fn(&[(u32, Part)], &[Beside]) -> Option<StepCode>,
    ) -> Vec<Built> {
        let mut runs: Vec<Vec<usize>> = Vec::new();
        let mut members = Members::new(target, 1);
        for (n, next) in launches.iter().enumerate() {
            let before = n.checked_sub(1).map(|n| &launches[n]);
            let saves =
                |b: &Built| if always { f64::INFINITY } else { kernels::waiting_saves(target, b.waves(target)) };
            let saves = before.filter(|b| next.able(target) && b.able(target)).map_or(0.0, saves);
            let follows = saves > 0.0 && runs.last().is_some_and(|r| r.len() < MOST_LEVELS);
            let fits = follows && members.take(next, saves);
            if !fits {
                runs.push(Vec::new());
                members = Members::new(target, 1);
                members.list.extend(
                    next.parts.iter().map(|(part, code)| members.member(&code[part.number], *part)).collect::<Vec<_>>(),
                );
            }
            runs.last_mut().into_iter().for_each(|r| r.push(n));
        }
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
