//! Steps that need not wait for each other, side by side in one launch ([`linked`](super::link::linked)): the phases of a transposed convolution, the parts of a Concat or
//! a Split, branches of a network.
//!
//! Steps are gone through in order. To each come those behind it that are ready when it is: none reads what another one of them, or a step between, writes, or writes
//! what that reads, and no two write the same elements. A launch gives them workgroups where registers and LDS suffice for the most demanding
//! kernel, so a step joins others only where none of them has fewer workgroups at once than it can make use of. What is gained is a launch for each, and that
//! few workgroups of one run beside those of others.
//!
//! Steps are brought together by putting the later one earlier, so that what it gives lives longer: the memory that all needs grows by little. Memory is planned as if a
//! launch's steps took as long as all of it: nothing that one of them touches shares its place with what another does.
//!
//! Workgroups that take long begin first.

use super::cache::StepCode;
use super::kernel::KernelCode;
use super::link::{Beside, MOST_BYTES, MOST_CODE, PROLOGUE, begins_len, can_be_linked};
use crate::graph::fused::{FusedGraph, Step, StepKind, TensorId};
use crate::graph::plan::Lives;
use crate::graph::view::View;
use crate::kernels::{self, Room, Work};
use barewave_isa::{Resources, Target};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Steps behind one that are looked at, and of these steps that stay behind.
const MOST_STEPS: usize = 128;
const MOST_PASSED: usize = 16;

/// The memory of intermediate tensors may grow by this share of it, or by so many bytes, which no device lacks.
const MORE_MEMORY: usize = 16;
const MORE_BYTES: usize = 32 << 20;

/// Rounds of workgroups over the device, at most: finding out whose they are takes each of them a little.
const MOST_ROUNDS: u64 = 16;

/// What of a step's kernels is run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// The group of the step, and the number of the kernel.
    pub group: usize,
    pub number: usize,
    /// Its workgroups, of which a kernel that is told its extents is told, too.
    pub grid: [u32; 3],
    pub told: bool,
    /// For how many steps in a row.
    pub sets: u32,
}

impl Part {
    /// Of a step of a graph.
    pub fn of(graph: &FusedGraph, step: usize, group: usize, number: usize, code: &KernelCode) -> Part {
        let told = kernels::grid(graph, &graph.steps[step]);
        Part { group, number, grid: told.unwrap_or(code.grid), told: told.is_some(), sets: 1 }
    }

    /// With a kernel of the group's.
    pub fn beside(self, code: &[KernelCode], level: u32) -> Beside<'_> {
        let Part { number, grid, told, sets, .. } = self;
        Beside { code: &code[number], grid, told, sets, level }
    }

    /// What a launch's code depends on.
    pub fn in_code(self) -> Part {
        Part { grid: if self.told { [0; 3] } else { self.grid }, ..self }
    }

    /// Workgroups of all sets.
    pub fn workgroups(self) -> u32 {
        self.grid.iter().fold(self.sets, |n, g| n.saturating_mul(*g))
    }
}

/// What is launched side by side.
#[derive(Default)]
pub(super) struct Abreast {
    /// Of a graph's step all those of its launch.
    pub of: FxHashMap<(usize, usize), Arc<Vec<usize>>>,
    /// Kernels and what they are called, by what their code depends on; none where the parts cannot be one.
    pub codes: BTreeMap<Vec<Part>, (String, Option<StepCode>)>,
}

fn in_code(parts: &[Part]) -> Vec<Part> {
    parts.iter().map(|p| p.in_code()).collect()
}

impl Abreast {
    /// The name and the kernel of some parts.
    pub fn code(&self, parts: &[Part]) -> Option<(&str, &StepCode)> {
        let (name, code) = self.codes.get(&in_code(parts))?;
        Some((name, code.as_ref()?))
    }

    /// Makes the kernel of some parts by `link`. `names` are those of groups.
    pub fn link<'a>(
        &mut self,
        parts: &[Part],
        name: impl Fn(usize) -> &'a str,
        code: impl Fn(usize) -> &'a StepCode,
        link: impl FnOnce(&[(u32, Part)], &[Beside]) -> Option<StepCode>,
    ) {
        let number = self.codes.len();
        self.codes.entry(in_code(parts)).or_insert_with(|| {
            let beside: Vec<Beside> = parts.iter().map(|p| p.beside(code(p.group), 0)).collect();
            let name = match parts[..] {
                [Part { group, number, sets, .. }] => {
                    format!("{}_x{sets}", super::kernel::symbol(name(group), number))
                }
                _ => format!("beside_{number}"),
            };
            let parts: Vec<(u32, Part)> = parts.iter().map(|p| (0, *p)).collect();
            (name, link(&parts, &beside))
        });
    }
}

/// What steps are called.
pub(super) fn described<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let first = names.next().unwrap_or_default();
    match names.filter(|name| *name != first).count() {
        0 => first.to_string(),
        others => format!("{first} and {others} others"),
    }
}

/// How many launches some steps have one behind the other: as many as the one with most kernels.
pub(super) fn levels<'a>(steps: &[usize], code: impl Fn(usize) -> &'a StepCode) -> usize {
    steps.iter().map(|i| code(*i).len()).max().unwrap_or(0)
}

/// The parts of a launch of the `n`th kernels of some steps, those that are equal as one, but for those whose workgroups are told; and the steps that have such kernels.
pub(super) fn parts_of<'a>(
    graph: &FusedGraph,
    steps: &[usize],
    n: usize,
    group: &[usize],
    code: impl Fn(usize) -> &'a StepCode,
) -> (Vec<Part>, Vec<usize>) {
    let steps: Vec<usize> = steps.iter().copied().filter(|i| code(*i).len() > n).collect();
    let mut parts: Vec<Part> = Vec::new();
    for i in &steps {
        let part = Part::of(graph, *i, group[*i], n, &code(*i)[n]);
        match parts.last_mut() {
            Some(p) if !part.told && (p.group, p.grid) == (part.group, part.grid) => p.sets += 1,
            _ => parts.push(part),
        }
    }
    (parts, steps)
}

/// Steps that are launched side by side.
pub(super) struct Found {
    /// Numbers of all steps in a new order, in which those of a launch follow each other.
    pub order: Vec<usize>,
    /// Places in that order, by launches.
    pub lists: Vec<Vec<usize>>,
}

/// The steps of a graph that are launched side by side. `code` are the kernels of a step, `group` tells steps that share them, those of which `fixed`
/// holds are launched otherwise.
pub(super) fn find_beside<'a>(
    graph: &FusedGraph,
    group: &[usize],
    code: impl Fn(usize) -> &'a StepCode,
    fixed: impl Fn(usize) -> bool,
    target: Target,
) -> Found {
    let count = graph.steps.len();
    let mut found = Found { order: Vec::with_capacity(count), lists: Vec::new() };
    let workspace = |i: usize| code(i).iter().map(|k| k.workspace).max().unwrap_or(0);
    let mut lives = Lives::of(graph, workspace);
    let limit = lives.most() + (lives.most() / MORE_MEMORY).max(MORE_BYTES);
    let kernel = |i: usize| {
        let first = code(i).first().filter(|k| !fixed(i) && can_be_linked(target, k))?;
        let able = code(i).iter().all(|k| k.rounds == 1);
        able.then(|| (first, Part::of(graph, i, group[i], 0, first)))
    };
    let mut done = vec![false; count];
    for first in 0..count {
        if done[first] {
            continue;
        }
        let mut steps = vec![first];
        if let Some((own, part)) = kernel(first) {
            let mut members = Members::new(target, 0);
            members.push(members.member(own, part));
            let mut window = Window::default();
            window.add(&graph.steps[first]);
            let mut passed = 0;
            for next in (first + 1..count).take(MOST_STEPS) {
                if done[next] {
                    continue;
                }
                let step = &graph.steps[next];
                let member = kernel(next).filter(|_| window.is_free(step));
                let member = member.map(|(k, part)| members.member(k, part)).filter(|m| members.pays(m));
                window.add(step);
                match member.filter(|_| lives.begin_earlier(next, first, limit)) {
                    Some(member) => {
                        members.push(member);
                        steps.push(next);
                        done[next] = true;
                    }
                    None if passed == MOST_PASSED => break,
                    None => passed += 1,
                }
            }
        }
        if steps.len() > 1 {
            let length = |i: usize| {
                let k = &code(i)[0];
                k.flops / k.grid.iter().map(|g| u64::from(*g)).product::<u64>().max(1)
            };
            steps.sort_by_key(|i| (Reverse(length(*i)), group[*i], kernels::grid(graph, &graph.steps[*i]), *i));
            found.lists.push((found.order.len()..found.order.len() + steps.len()).collect());
        }
        found.order.extend(steps);
    }
    found
}

/// A kernel that may be launched together with others.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    code: &'a KernelCode,
    part: Part,
    workgroups: u64,
    resources: Resources,
    /// Workgroups that a compute unit has at once.
    at_once: u64,
}

impl Member<'_> {
    /// What it does.
    pub fn work(&self, target: Target) -> Work {
        let waves = self.code.workgroup_size / target.info().wave_size;
        Work { workgroups: self.workgroups, waves, executed: self.code.executed }
    }
}

/// What kernels have together that are launched together.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Bytes of the kernels' own arguments, and for how many steps these are.
    bytes: usize,
    sets: usize,
    told: bool,
    /// Bytes of code.
    code: usize,
    workgroups: u64,
    /// What satisfies each.
    most: Option<Resources>,
}

/// Kernels that are launched together.
pub(super) struct Members<'a> {
    target: Target,
    /// Arguments that each has more.
    more: usize,
    list: Vec<Member<'a>>,
    sums: Sums,
}

impl<'a> Members<'a> {
    pub fn new(target: Target, more: usize) -> Members<'a> {
        Members { target, more, list: Vec::new(), sums: Sums::default() }
    }

    /// The kernel of a part.
    pub fn member(&self, code: &'a KernelCode, part: Part) -> Member<'a> {
        let resources = code.resources(self.target);
        let at_once = u64::from(self.target.occupancy(&resources).workgroups);
        let of_set: u64 = part.grid.iter().map(|g| u64::from(*g)).product();
        Member { code, part, workgroups: of_set * u64::from(part.sets), resources, at_once }
    }

    /// Puts another one with them.
    pub fn push(&mut self, next: Member<'a>) {
        self.sums = self.with(&next);
        self.list.push(next);
    }

    /// What they have with another one.
    fn with(&self, next: &Member) -> Sums {
        let (sums, part) = (self.sums, next.part);
        let same = |m: &Member| (m.part.group, m.part.number) == (part.group, part.number);
        let known = self.list.iter().any(same);
        let most = sums.most.map_or(next.resources, |m| most_of(m, next.resources));
        Sums {
            bytes: sums.bytes + next.code.kernarg_bytes as usize * part.sets as usize,
            sets: sums.sets + part.sets as usize,
            told: sums.told || part.told,
            code: sums.code + PROLOGUE + if known { 0 } else { next.code.code.len() },
            workgroups: sums.workgroups + next.workgroups,
            most: Some(most),
        }
    }

    /// A launch of them is told its workgroups.
    pub fn told(&self) -> bool {
        self.sums.told
    }

    /// What workgroups have of a compute unit: none where what all of them ask for is more than it has.
    fn room_of(&self, sums: Sums) -> Room {
        let of = |r: Resources| Room {
            workgroups: u64::from(self.target.occupancy(&r).workgroups),
            waves: r.workgroup_size / self.target.info().wave_size,
        };
        sums.most.map_or(Room { workgroups: 0, waves: 0 }, of)
    }

    /// What workgroups of a launch of them have.
    pub fn room(&self) -> Room {
        self.room_of(self.sums)
    }

    /// One more can be launched with them.
    pub fn fits(&self, next: &Member) -> bool {
        let sums = self.with(next);
        let more = if sums.told && self.more > 0 { self.more + 1 } else { self.more };
        let table = if sums.told { 8 * begins_len(self.list.len() + 1) } else { 0 };
        let bytes = sums.bytes + 8 * more * sums.sets + table;
        let few = bytes <= MOST_BYTES && sums.code <= MOST_CODE && sums.workgroups < 1 << 31;
        few && self.room_of(sums).workgroups > 0
    }

    /// One more is worth it: a launch is saved, and all have as many workgroups at once as before, or as they have.
    pub fn pays(&self, next: &Member) -> bool {
        let sums = self.with(next);
        let together = self.room_of(sums).workgroups;
        let device = together * self.target.info().cus as u64;
        let mut all = self.list.iter().chain([next]);
        self.fits(next)
            && sums.workgroups <= MOST_ROUNDS * device
            && all.all(|m| m.at_once <= together || m.workgroups <= device)
    }
}

/// What satisfies both of two kernels.
fn most_of(a: Resources, b: Resources) -> Resources {
    Resources {
        workgroup_size: a.workgroup_size.max(b.workgroup_size),
        vgprs: a.vgprs.max(b.vgprs),
        agprs: a.agprs.max(b.agprs),
        sgprs: a.sgprs.max(b.sgprs),
        lds_bytes: a.lds_bytes.max(b.lds_bytes),
        ..a
    }
}

/// Steps that others are compared with: what they read, and what they write.
#[derive(Default)]
struct Window<'a> {
    reads: FxHashSet<TensorId>,
    /// With the view of those that are written element by element.
    writes: FxHashMap<TensorId, Vec<Option<&'a View>>>,
}

fn reads(step: &Step) -> impl Iterator<Item = TensorId> {
    step.inputs.iter().flat_map(|a| a.indirect.iter().map(|t| t.index).chain([a.tensor]))
}

/// What a step writes, and where: nothing where that is not known.
fn writes(step: &Step) -> impl Iterator<Item = (TensorId, Option<&View>)> {
    let known = step.output.is_plain() && !matches!(step.kind, StepKind::Scatter(_) | StepKind::Lasts(_));
    let view = move |t: TensorId| (known && t == step.output.tensor).then_some(&step.output.view);
    step.written().map(move |t| (t, view(t)))
}

impl<'a> Window<'a> {
    fn add(&mut self, step: &'a Step) {
        self.reads.extend(reads(step));
        writes(step).for_each(|(t, view)| self.writes.entry(t).or_default().push(view));
    }

    /// A step may be computed before all of them, behind them, or at once.
    fn is_free(&self, step: &Step) -> bool {
        let apart = |(t, view): (TensorId, Option<&View>)| {
            let others = self.writes.get(&t).map_or(&[][..], |w| w);
            !self.reads.contains(&t)
                && others.iter().all(|other| matches!((other, view), (Some(a), Some(b)) if are_apart(a, b)))
        };
        reads(step).all(|t| !self.writes.contains_key(&t)) && writes(step).all(apart)
    }
}

/// True for views of one tensor that have no element in common, for one that can be told.
fn are_apart(a: &View, b: &View) -> bool {
    let (Some(x), Some(y)) = (a.extent(), b.extent()) else { return true };
    if x.1 < y.0 || y.1 < x.0 {
        return true;
    }
    // Parts of the same lines: what lies in these is apart.
    let along = |v: &View| (0..v.rank()).filter(|d| v.dims[*d] > 1).map(|d| v.strides[d]).collect::<Vec<_>>();
    let pitches: BTreeSet<i64> = along(a).into_iter().chain(along(b)).filter(|pitch| *pitch > 1).collect();
    let of_lines = |pitch: i64| Some(are_apart(&within_lines(a, pitch)?, &within_lines(b, pitch)?));
    pitches.into_iter().rev().any(|pitch| of_lines(pitch) == Some(true))
}

/// Where a view's elements are in lines of so many, which it may walk in several dimensions; none where they go on from a line to the next.
fn within_lines(v: &View, pitch: i64) -> Option<View> {
    let mut line = v.clone();
    (0..v.rank()).filter(|d| v.strides[*d] % pitch == 0).for_each(|d| line.dims[d] = 1);
    line.offset = v.offset.rem_euclid(pitch);
    line.extent().filter(|(first, last)| *first >= 0 && *last < pitch).map(|_| line)
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::code;
    use super::*;

    const PART: Part = Part { group: 0, number: 0, grid: [1 << 16, 1, 1], told: false, sets: 1 };

    #[test]
    fn kernels_are_one_launch_only_where_there_is_room_for_all() {
        let of = |workgroup_size, vgprs| KernelCode { workgroup_size, vgprs, ..code(0)[0].clone() };
        // Sixteen waves of 64 registers, and a wave of 512, but not sixteen of 512.
        let (wide, deep) = (of(1024, 64), of(64, 512));
        for (before, next, fits) in [(&wide, &wide, true), (&deep, &deep, true), (&wide, &deep, false)] {
            let mut members = Members::new(Target::GFX90A, 1);
            members.push(members.member(before, PART));
            assert!(members.room().workgroups > 0);
            assert_eq!(members.fits(&members.member(next, PART)), fits);
        }
        // As many at once as the one with most registers lets be.
        let small = of(64, 64);
        let mut members = Members::new(Target::GFX90A, 1);
        let rooms = [&small, &deep].map(|k| {
            members.push(members.member(k, PART));
            members.room().workgroups
        });
        assert!(rooms[0] > rooms[1] && rooms[1] > 0);
    }

    #[test]
    fn parts_of_lines_are_apart() {
        let whole = View::dense(&[4, 6, 5]);
        let part = |d: usize, first: usize, n: usize| whole.sliced(d, first, 1, n);
        for d in 0..3 {
            assert!(are_apart(&part(d, 0, 2), &part(d, 2, 2)) && !are_apart(&part(d, 0, 2), &part(d, 1, 2)));
            assert!(!are_apart(&whole, &part(d, 1, 1)) && !are_apart(&part(d, 3, 1), &whole));
        }
        assert!(are_apart(&part(1, 0, 2).sliced(2, 0, 1, 3), &part(2, 3, 2)));
        assert!(!are_apart(&part(0, 1, 2), &part(1, 1, 2)));
        // Images whose channels come last, walked as places, and as rows and columns.
        let channels = |first: usize, n: usize| View::dense(&[12, 16]).sliced(1, first, 1, n);
        let image = |first: usize| View { offset: first as i64, dims: vec![1, 8, 3, 4], strides: vec![192, 1, 64, 16] };
        assert!(are_apart(&image(0), &channels(8, 8)) && are_apart(&channels(0, 8), &image(8)));
        assert!(!are_apart(&image(0), &channels(7, 9)) && !are_apart(&image(9), &channels(0, 8)));
    }
}
