//! Lines: how reductions, softmax and normalisations walk over memory.
//!
//! A *line* is the set of elements that are combined into one result. A team of workitems, a power of two, takes a line: in
//! turns of *chunks*, neighbours that one load takes together, so that what the team loads at once lies together. Where
//! a line fits in the team's registers it is loaded once, all of it in flight at the same time, and stays there; longer
//! lines are walked in rounds of several chunks, but for their beginning where registers hold that ([`long`](super::long)). Where lines are short, few workitems take one, and a team several of them, so that
//! waves begin as fast as memory feeds them.
//!
//! Lines whose elements lie apart, but beside those of the next lines, are columns: workitems that are neighbours in a wave walk
//! neighbouring lines, and the members of a team are as far apart as there are columns. What they have found meets in LDS. Others
//! are walked by single workitems, or by a workgroup where they are few and long.
//!
//! Scale and bias of a normalisation are the same for all lines. A workgroup that has one line reads them for itself; where second-level
//! caches are too slow for that, it keeps them and takes several lines.

use super::address::{self, Offset};
use super::choice::Machine;
use super::error::{Reason, Res};
use super::values::{self, Value};
use super::{Cx, LONGEST, Writer, lanes, turned};
use crate::graph::view::View;
use crate::mir::{Buffer, Gen, OpenLoop, Part, Pipeline, Type};
use crate::tensor::DType;
use barewave_isa::Target;

/// Workitems of a workgroup whose teams are smaller.
pub(super) const WORKGROUP: u32 = 256;

/// Elements of a piece of a line at least, where they lie together and of columns; and the share of a whole line's time that pieces take at most.
const NEIGHBOURS: usize = 2048;
const ROWS: usize = 64;
const QUICKER: f64 = 0.95;

/// Dwords of a line that a workitem holds, where the team can grow instead, and at most; and registers that it takes beside them.
pub(super) const LIGHT: u32 = 32;
pub(super) const MOST: u32 = 64;
pub(super) const BESIDE: u32 = 16;

/// Workitems of a workgroup that holds a line which smaller ones have to walk.
pub(super) const LARGEST: u32 = 1024;

/// Dwords that a workitem holds and keeps at most where its team takes several lines, the numbers of lines, and how many workgroups there
/// are then at least for each compute unit.
const KEPT: u32 = 96;
const TURNS: [u32; 3] = [2, 4, 8];
const ROUNDS: u32 = 8;

/// Second-level caches that are busy for more than this share of what memory takes hold memory up.
pub(super) const CACHE_BUSY: f64 = 0.9;

/// Chunks of a workitem of a short line, where there are enough lines and stores take no longer than so; workgroups of each compute unit that are enough.
const ALIKE: f64 = 1.02;
pub(super) const SHORT: u32 = 4;
pub(super) const ENOUGH: usize = 8;

/// Workitems of a compute unit that load little, and but once, at most.
pub(super) const MOST_RESIDENT: usize = 2048;

/// Dwords of a round that a member takes where elements are combined in their order.
const RUN: u32 = 32;

/// Chunks of a round where the line does not fit, at least, and more of them up to so many dwords: of dense lines, which share lines of memory with
/// those beside them, and of columns.
pub(super) const IN_FLIGHT: u32 = 4;
pub(super) const ROUND: [u32; 2] = [8, 16];

/// Lines of a step: how many, of how many elements, and how they may be loaded.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    /// Lines.
    pub count: usize,
    /// Elements of a line.
    pub length: usize,
    /// Neighbours that one load takes.
    pub together: u32,
    /// Neighbours of a line are neighbours in memory.
    pub dense: bool,
    /// Neighbouring lines are, and how many lines in a row.
    pub columns: Option<usize>,
    /// Bytes of an element, and of other operands for a line.
    pub size: usize,
    pub others: usize,
    /// Each line has its own of these.
    pub apart: bool,
    /// Registers of an element.
    pub dwords: u32,
    /// Lines are walked more than once.
    pub again: bool,
    /// What is found of an element is that of all before it.
    pub in_order: bool,
    /// Lines go through LDS ([`Staged`](super::staged::Staged)).
    pub staged: bool,
    /// Images whose lines are walked side by side, where they are.
    pub images: Option<usize>,
    /// Chunks before a line's first element at most, where accesses begin as lines of memory do.
    pub before: u32,
}

impl Shape {
    /// `count` lines of the dimensions `outer..` of the first access; all the accesses are walked in chunks, `again` or but once.
    pub fn of(accesses: &[(DType, &View)], outer: usize, count: usize, again: bool) -> Res<Shape> {
        let (t, view) = accesses[0];
        // What is repeated can be longer than any tensor.
        let length = view.dims[outer..].iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let length = length.filter(|n| *n < LONGEST).ok_or_else(|| Reason::TooLong(view.dims[outer..].to_vec()))?;
        Ok(Shape {
            count,
            length,
            together: together(accesses),
            dense: view.strides.last() == Some(&1),
            columns: (0..outer).rfind(|d| view.dims[*d] > 1).filter(|d| view.strides[*d] == 1).map(|d| view.dims[d]),
            size: t.size(),
            others: 0,
            apart: false,
            dwords: u32::from(values::computed(t).dwords()),
            again,
            in_order: false,
            staged: false,
            images: None,
            before: 0,
        })
    }
}

/// What a workgroup takes at once of lines that are walked once.
pub(super) struct Walked {
    /// Workgroups, workitems of each, and of a line.
    pub workgroups: usize,
    pub workitems: u32,
    pub team: u32,
    /// Bytes that a workgroup loads before it waits.
    pub in_flight: usize,
}

impl Walked {
    /// Workgroups that a compute unit has at once, if no more workitems are there than are enough for it.
    pub fn resident(&self) -> usize {
        (MOST_RESIDENT / self.workitems as usize).max(1)
    }
}

impl Shape {
    /// A member's elements of a round are neighbours in their column, or in LDS: they are scanned before the team's are.
    fn is_run(&self) -> bool {
        self.in_order && (self.staged || !self.dense && self.columns.is_some())
    }

    /// In how many pieces, a power of two up to `most`, lines take least, where that is worth it beside the clocks of whole ones.
    pub fn best_pieces(&self, most: usize, whole: f64, clocks: impl Fn(usize) -> Option<f64>) -> Option<usize> {
        let most = most.min(self.length / if self.dense { NEIGHBOURS } else { ROWS });
        let all = (1..usize::BITS).map(|n| 1 << n).take_while(|n| *n <= most).filter_map(|n| Some((clocks(n)?, n)));
        let (best, n) = all.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (best < QUICKER * whole).then_some(n)
    }

    /// How lines are walked as columns, or as what lies together; none where they are neither.
    pub fn walked(&self, target: Target) -> Option<Walked> {
        let (beside, team) = match self.dense {
            true => {
                let team = self.of_neighbours(target);
                (WORKGROUP.div_ceil(team), team)
            }
            false => self.columns.and_then(|row| self.as_columns(row, target))?,
        };
        let workitems = beside * team;
        let in_flight = (workitems * self.chunks(team, workitems, target) * self.together) as usize * self.size;
        Some(Walked { workgroups: self.count.div_ceil(beside as usize), workitems, team, in_flight })
    }

    /// How many workitems share a line whose elements lie together.
    pub fn of_neighbours(&self, target: Target) -> u32 {
        let (wave, cus) = (target.info().wave_size, target.cus() as usize);
        let all = self.all();
        let held = |team: u32| all.div_ceil(team) * self.together * self.dwords;
        let mut team = all.next_power_of_two().clamp(1, wave);
        if self.staged {
            let least = (0..=team.ilog2()).map(|n| 1 << n).find(|team| self.fits_staged(*team, target));
            return least.map_or(team, |least| self.wide_enough(least, team, target));
        }
        while held(team) > LIGHT && team < lanes::MOST {
            team *= 2;
        }
        let clocks = |team: u32| self.clocks(team, target).0;
        let stores_as_well = |team: u32| !self.again || clocks(team / 2) <= ALIKE * clocks(team);
        let fits = |team: u32| all.div_ceil(team) <= SHORT && held(team) <= LIGHT && stores_as_well(2 * team);
        while team > 1 && fits(team / 2) && self.count * (team / 2) as usize >= ENOUGH * cus * WORKGROUP as usize {
            team /= 2;
        }
        // What is walked again is written, too: fewer workitems take up to twice as many chunks where waves begin more slowly than memory feeds
        // them, unless second-level caches then have more to do: stores of parts of a line of memory take as much of them as of a whole one.
        let fits = |team: u32| all.div_ceil(team) <= 2 * SHORT && held(team) <= LIGHT;
        let many = |team: u32| self.count * team as usize >= ENOUGH * cus * WORKGROUP as usize;
        let quicker = |team: u32| fits(team) && many(team) && clocks(team) < clocks(2 * team);
        while self.again && !self.in_order && team > 1 && quicker(team / 2) {
            team /= 2;
        }
        match held(team) > MOST {
            true if self.needs_largest(target) || self.front(target) > 0 => LARGEST,
            true => WORKGROUP,
            // A scan ends at rows, or at the wave.
            false if self.in_order && team > lanes::ROW && team < wave => wave,
            false => team,
        }
    }

    /// Clocks that a line of neighbours takes which is read and written: with all that so many workitems cost, and memory alone.
    pub fn clocks(&self, team: u32, target: Target) -> (f64, f64) {
        let (machine, bytes) = (Machine::of(target), self.length * self.size);
        let all = self.length as u32 / self.together;
        let beside = team as usize * self.together as usize * self.size;
        let stores = (machine.line as usize / beside).clamp(1, all.div_ceil(team) as usize);
        let begun = machine.dispatch * f64::from(team) / f64::from(target.info().wave_size);
        let moved = (2 * bytes) as f64 / machine.memory;
        (begun.max(moved).max(((1 + stores) * bytes + self.others) as f64 / machine.l2), moved)
    }

    /// Chunks that each workitem of a team in a workgroup of so many takes in a round.
    pub(super) fn chunks(&self, team: u32, workitems: u32, target: Target) -> u32 {
        let own = self.all().div_ceil(team);
        let (wave, simds) = (target.info().wave_size, target.info().simds);
        let most = MOST.min(target.most_vgprs(wave, workitems.div_ceil(wave * simds)) - BESIDE);
        match self.is_run() {
            true => own.min(RUN / self.dwords),
            false if own * self.together * self.dwords <= most => own,
            false if self.in_order => IN_FLIGHT,
            false => IN_FLIGHT.max(ROUND[usize::from(!self.dense)] / (self.together * self.dwords)),
        }
    }
}

/// How many neighbours of the innermost dimension all accesses can take together: those which fill up to 16 bytes.
pub(super) fn together(accesses: &[(DType, &View)]) -> u32 {
    let fits = |n: usize, (t, v): &(DType, &View)| {
        let (bytes, last, stride) = (n * t.size(), v.dims.last().copied().unwrap_or(1), v.strides.last().copied());
        let word = stride == Some(1) && values::is_word_aligned(*t, v) && (4..=16).contains(&bytes);
        last.is_multiple_of(n) && (word || stride == Some(0))
    };
    [8u32, 4, 2].into_iter().find(|n| accesses.iter().all(|a| fits(*n as usize, a))).unwrap_or(1)
}

/// Who walks a line, and how.
pub(super) struct Lines {
    pub shape: Shape,
    /// Workitems per line.
    pub(super) team: u32,
    pub(super) workgroup: u32,
    /// Chunks of a workitem in a round, and rounds.
    pub chunks: u32,
    rounds: u32,
    /// Chunks of a workitem before these that are held, where not all are.
    front: u32,
    /// Which line: a scalar where the workgroup has one, else a vector.
    pub line: Part,
    /// Number in the team; none where it has one member.
    pub member: Option<Part>,
    /// Lanes that have a line, where not all do.
    pub inside: Option<Part>,
    /// Elements of the line, where it may be shorter than others.
    pub end: Option<Part>,
    /// How many elements before the line the walk begins, where that is where a line of memory does.
    pub(super) shift: Option<Part>,
    /// Lines that a team takes, one after the other.
    pub(super) turns: u32,
    /// Neighbouring lines that neighbouring workitems walk, where that is how they walk.
    pub(super) columns: Option<u32>,
    /// Which of the workgroup's lines, where it has several.
    pub of_group: Option<Part>,
}

/// Neighbours that a workitem takes at once: those from element `first + ahead` of its line on.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// In a register.
    pub first: Part,
    /// A constant.
    pub ahead: u32,
    /// Lanes for which they are not behind the line's end, where that is not all.
    pub inside: Option<Part>,
}

/// How the lines lie in an access.
pub(super) struct Place {
    /// The line's first element.
    pub base: Offset,
    /// What is behind it.
    inner: View,
    pub(super) size: usize,
}

impl Place {
    /// One element of the access serves for all of a line.
    pub fn is_one(&self) -> bool {
        self.inner.strides == [0]
    }

    /// The same of a line that is so many bytes behind.
    pub fn behind(&self, bytes: u32) -> Place {
        let base = Offset { imm: self.base.imm + bytes, ..self.base };
        Place { base, inner: self.inner.clone(), size: self.size }
    }
}

impl Lines {
    /// Decides how lines are walked and begins the kernel.
    pub fn begin(cx: &Cx, shape: Shape) -> (Writer, Lines) {
        let wave = cx.target.info().wave_size;
        let (count, all) = (shape.count, shape.all());
        let cus = cx.target.cus() as usize;
        let mut columns = None;
        let team = if shape.dense {
            shape.of_neighbours(cx.target)
        } else if let Some((beside, team)) = shape.columns.and_then(|row| shape.as_columns(row, cx.target)) {
            columns = Some(beside);
            team
        } else if shape.length <= 64 || (count >= 4096 && shape.length <= 512) {
            1
        } else {
            WORKGROUP
        };
        let own = all.div_ceil(team);
        // A team of several waves has its own barriers.
        let mut workgroup = if team > wave { team } else { WORKGROUP };
        // Few lines are spread over the compute units.
        let enough = 2 * cus;
        while workgroup > wave.max(team) && (count * team as usize).div_ceil(workgroup as usize) < enough {
            workgroup /= 2;
        }
        if let Some(beside) = columns {
            workgroup = beside * team;
        }
        let front = if shape.dense { shape.front(cx.target) } else { 0 };
        let [rounds, chunks] = match front {
            0 => {
                let chunks = shape.chunks(team, workgroup, cx.target);
                [own.div_ceil(chunks), chunks]
            }
            held => shape.rounds_behind(own - held),
        };
        let mut w = cx.kernel(workgroup);
        let per_group = workgroup / team;
        let item = w.b.workitem_id();
        let (mut member, mut of_group) = (None, None);
        if team > 1 {
            member = Some(match columns {
                Some(beside) => w.b.shr(item, beside.trailing_zeros()),
                None if per_group > 1 => w.b.and(item, team - 1),
                None => item,
            });
        }
        if per_group > 1 {
            of_group = Some(match columns {
                _ if team == 1 => item,
                Some(beside) => w.b.and(item, beside - 1),
                None => w.b.shr(item, team.trailing_zeros()),
            });
        }
        let mut lines = Lines {
            chunks,
            rounds,
            front,
            member,
            columns,
            of_group,
            ..Lines::of_workgroup(&mut w, shape, team, workgroup)
        };
        lines.turn(&mut w, 0);
        (w, lines)
    }

    /// A line for each workgroup, of a length that is known when the kernel is launched.
    pub fn of_team(w: &mut Writer) -> Lines {
        let shape = Shape { together: 1, size: 4, dwords: 1, ..Shape::default() };
        let lines = Lines::of_workgroup(w, shape, WORKGROUP, WORKGROUP);
        Lines { member: Some(w.b.workitem_id()), ..lines }
    }

    /// Lines of which each workgroup has one, in one round of a chunk.
    fn of_workgroup(w: &mut Writer, shape: Shape, team: u32, workgroup: u32) -> Lines {
        let line = w.b.workgroup_id(0);
        let (chunks, rounds, front, turns) = (1, 1, 0, 1);
        let (member, inside, end, shift, columns, of_group) = (None, None, None, None, None, None);
        Lines {
            shape,
            team,
            workgroup,
            chunks,
            rounds,
            front,
            line,
            member,
            inside,
            end,
            shift,
            turns,
            columns,
            of_group,
        }
    }

    /// Workgroups to launch.
    pub fn grid(&self) -> [u32; 3] {
        [(self.shape.count as u32).div_ceil(self.workgroup / self.team * self.turns), 1, 1]
    }

    /// How many lines a team takes.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Makes number `turn` of a team's lines the one that is walked.
    pub fn turn(&mut self, w: &mut Writer, turn: u32) {
        let (mut group, count) = (self.group(w), self.shape.count);
        let Some(of_group) = self.of_group else { return };
        let per_group = self.workgroup / self.team;
        // Where rows of columns begin anywhere in lines of memory neighbours share these, which meet in one die's second-level cache.
        let machine = Machine::of(w.b.target());
        let row = self.columns.and(self.shape.columns).map_or(0, |row| row * self.shape.size);
        if machine.dies > 1 && !row.is_multiple_of(machine.line as usize) {
            group = turned::in_range_of_die(w, group, count.div_ceil(per_group as usize) as u32, machine.dies);
        }
        let at = w.b.mad(group, per_group * self.turns, of_group);
        self.line = if turn > 0 { w.b.add(at, turn * per_group) } else { at };
        self.inside = (!count.is_multiple_of((per_group * self.turns) as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(count as u32).into(), self.line.into()]));
    }

    /// How many lines a team should take so that second-level caches have time for what is the same for all lines, which it keeps.
    /// Of a line, so many bytes are its own; so many are the same, of so many accesses.
    pub fn worth(&self, target: Target, own: f64, same: f64, accesses: u32) -> u32 {
        let machine = Machine::of(target);
        let busy = |turns: u32| (own + same / f64::from(turns)) / machine.l2 > CACHE_BUSY * own / machine.memory;
        let elements = self.chunks * self.shape.together * self.shape.dwords;
        let fits = self.is_held() && self.team == self.workgroup && elements * (1 + accesses) <= KEPT;
        let enough = |turns: &u32| self.shape.count as u32 / turns >= ROUNDS * target.cus();
        if same == 0.0 || !fits || !busy(1) {
            return 1;
        }
        let mut all = TURNS.into_iter().filter(enough);
        all.clone().find(|turns| !busy(*turns)).or(all.next_back()).unwrap_or(1)
    }

    /// Begins a loop in which each team, that is a workgroup, takes so many lines. [`Lines::end`] ends it.
    pub fn take(&mut self, w: &mut Writer, turns: u32) -> OpenLoop {
        let node = w.b.begin_loop("lines");
        self.line = w.b.mad(self.line, turns, node.counter());
        self.turns = turns;
        let count = self.shape.count as u32;
        self.inside = (!count.is_multiple_of(turns)).then(|| {
            let line = w.b.to_vector(self.line);
            w.b.op(Gen::CmpGt.of(Type::U32), &[count.into(), line.into()])
        });
        node
    }

    /// Ends the loop over lines, of which a team's members have met `meetings` times in each: what the last ones read in LDS
    /// nobody may write yet when there was but one.
    pub fn end(&self, w: &mut Writer, node: OpenLoop, meetings: u32) {
        if meetings < 2 {
            w.b.barrier();
        }
        w.b.end_loop(node, self.turns, 1, Pipeline::Off, false);
    }

    /// Workitems of a workgroup.
    pub fn workgroup(&self) -> u32 {
        self.workgroup
    }

    /// Bytes of the lines that a workgroup takes at once.
    pub fn bytes_of_group(&self) -> u32 {
        self.workgroup / self.team * self.turns * (self.shape.length * self.shape.size) as u32
    }

    /// Lines go through LDS.
    pub fn are_staged(&self) -> bool {
        self.shape.staged
    }

    /// First byte of the workitem's line among the workgroup's.
    pub fn staged_line(&self, w: &mut Writer) -> Part {
        match self.of_group {
            Some(line) => w.b.mul(line, (self.shape.length * self.shape.size) as u32),
            None => w.b.to_vector(0u32),
        }
    }

    /// First byte of a chunk among the workgroup's lines, from that of the line on: a register, and what is added to it.
    pub fn staged_place(&self, w: &mut Writer, line: Part, c: &Chunk) -> (Part, u32) {
        let size = self.shape.size as u32;
        let first = w.b.mul(c.first, size);
        (w.b.add(line, first), c.ahead * size)
    }

    /// Neighbours of a chunk.
    pub fn together(&self) -> u32 {
        self.shape.together
    }

    /// A line fits in registers: it is walked once.
    pub fn is_held(&self) -> bool {
        self.rounds == 1 && self.front == 0
    }

    /// The beginning of a line is held, and what is behind it is walked again.
    pub fn is_held_in_part(&self) -> bool {
        self.front > 0
    }

    /// Registers that a workitem has beside what it holds of a line.
    pub fn room(&self, target: Target) -> u32 {
        let (wave, simds) = (target.info().wave_size, target.info().simds);
        let chunks = if self.front > 0 { self.front } else { self.chunks };
        let held = chunks * self.shape.together * self.shape.dwords + BESIDE;
        target.most_vgprs(wave, self.workgroup.div_ceil(wave * simds)).saturating_sub(held)
    }

    /// Workitems of a team.
    pub fn team(&self) -> u32 {
        self.team
    }

    /// Lets the line end after so many elements where its number in a larger one is `last`.
    pub fn end_early(&mut self, w: &mut Writer, number: Part, last: u32, elements: u32) {
        let number = w.b.to_vector(number);
        let is_last = w.b.op(Gen::CmpEq.of(Type::U32), &[last.into(), number.into()]);
        let [elements, length] = [elements, self.shape.length as u32].map(|n| w.b.to_vector(n));
        self.end = Some(w.b.select(is_last, elements, length));
    }

    /// Lanes whose line ends early; none where no line does.
    pub fn ends_early(&self, w: &mut Writer) -> Option<Part> {
        let end = self.end?;
        Some(w.b.op(Gen::CmpGt.of(Type::U32), &[(self.shape.length as u32).into(), end.into()]))
    }

    /// Members whose number is less than `limit` when it is counted from `first`; none where that is all.
    pub fn is_below(&self, w: &mut Writer, first: u32, limit: u32) -> Option<Part> {
        let member = self.member.filter(|_| first + self.team > limit)?;
        Some(w.b.op(Gen::CmpGt.of(Type::U32), &[(limit - first).into(), member.into()]))
    }

    /// Where each member finds its own of `limit` things of so many bytes that begin at `base`, if its number counted from `first` is
    /// less than that.
    pub fn own(&self, w: &mut Writer, base: Part, size: u32, first: u32, limit: u32) -> Offset {
        let reg = self.member.map_or(base, |m| w.b.mad(m, size, base));
        let mask = self.is_below(w, first, limit);
        self.guard(w, Offset { reg: Some(reg), imm: first * size }, mask)
    }

    /// Masks the offset of a result: lanes without a line, and all but the first workitem of a team.
    pub fn mask_result(&self, w: &mut Writer, at: Offset) -> Offset {
        let first = self.member.map(|m| w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), m.into()]));
        self.guard(w, at, first)
    }

    /// Guards an offset by a mask and by lanes having a line.
    fn guard(&self, w: &mut Writer, at: Offset, mask: Option<Part>) -> Offset {
        let mask = match (mask, self.inside) {
            (Some(a), Some(b)) => Some(w.b.mask_and(a, b)),
            (a, b) => a.or(b),
        };
        match mask {
            None => at,
            Some(m) => {
                let v = at.vector(&mut w.b);
                Offset { reg: Some(w.b.guard(m, v)), imm: at.imm }
            }
        }
    }

    /// Calls `body` for each chunk that this workitem walks, in a loop where they are not held.
    pub fn each(&self, w: &mut Writer, name: &str, mut body: impl FnMut(&mut Writer, &Chunk) -> Res<()>) -> Res<()> {
        self.some(w, name, 1, |w, chunks| chunks.iter().try_for_each(|c| body(w, c)))
    }

    /// The same for so many chunks of a round together, or fewer at its end.
    pub fn some(
        &self,
        w: &mut Writer,
        name: &str,
        together: usize,
        body: impl FnMut(&mut Writer, &[Chunk]) -> Res<()>,
    ) -> Res<()> {
        self.over(w, name, together, [self.front, self.chunks, self.rounds], body)
    }

    /// The same for what is held of the line, all of it or its beginning.
    pub fn held(&self, w: &mut Writer, together: usize, body: impl FnMut(&mut Writer, &[Chunk]) -> Res<()>) -> Res<()> {
        let chunks = if self.front > 0 { self.front } else { self.chunks };
        self.over(w, "", together, [0, chunks, 1], body)
    }

    /// The same for rounds of chunks behind so many others.
    fn over(
        &self,
        w: &mut Writer,
        name: &str,
        together: usize,
        [start, chunks, rounds]: [u32; 3],
        mut body: impl FnMut(&mut Writer, &[Chunk]) -> Res<()>,
    ) -> Res<()> {
        let own = self.first(w);
        let step = self.steps()[1];
        let round = chunks * self.team * self.shape.together;
        let numbers: Vec<u32> = (start..start + chunks).collect();
        let mut all = |w: &mut Writer, first: Part, before: u32| {
            numbers.chunks(together.max(1)).try_for_each(|some| {
                let chunks: Vec<Chunk> = some.iter().map(|c| self.chunk(w, first, *c, before + c * step)).collect();
                body(w, &chunks)
            })
        };
        if rounds == 1 {
            return all(w, own, 0);
        }
        let node = w.b.begin_loop(name);
        let start = w.b.mul(node.counter(), round);
        let first = w.b.add(start, own);
        all(w, first, (rounds - 1) * round)?;
        w.b.end_loop(node, rounds, 1, Pipeline::Off, false);
        Ok(())
    }

    /// Chunk `c` of a round; of the team's first workitem it begins at `most` or before.
    fn chunk(&self, w: &mut Writer, first: Part, c: u32, most: u32) -> Chunk {
        let [apart, step] = self.steps();
        let ahead = c * step;
        if let Some(end) = self.end {
            let at = self.index(w, &Chunk { first, ahead, inside: None }, 0);
            return Chunk { first, ahead, inside: Some(w.b.op(Gen::CmpGt.of(Type::U32), &[end.into(), at.into()])) };
        }
        let end = most + (self.team - 1) * apart + self.shape.together;
        // The first chunk alone has lanes before the line, whose numbers are below zero.
        let begins = self.shift.is_some() && ahead == 0;
        let inside = (begins || end > self.shape.length as u32).then(|| {
            let (length, first) = (self.shape.length as u32, w.b.to_vector(first));
            let (limit, t) = match self.shift {
                Some(_) if !begins => (length.wrapping_sub(ahead), Type::I32),
                _ => (length.saturating_sub(ahead), Type::U32),
            };
            w.b.op(Gen::CmpGt.of(t), &[limit.into(), first.into()])
        });
        Chunk { first, ahead, inside }
    }

    /// Elements from a member's first to the next one's, and from one chunk of a member to its next.
    fn steps(&self) -> [u32; 2] {
        let together = self.shape.together;
        match self.are_runs() {
            true => [self.chunks * together, together],
            false => [together, self.team * together],
        }
    }

    /// What a member takes of a round are neighbours in their line.
    pub fn are_runs(&self) -> bool {
        (self.columns.is_some() || self.shape.staged) && self.shape.is_run()
    }

    /// Index in the line of the first element that a workitem comes to, or what it would be where that lies before the line.
    pub fn first(&self, w: &mut Writer) -> Part {
        let first = match self.member {
            Some(m) => w.b.mul(m, self.steps()[0]),
            None => w.b.scalar(0),
        };
        self.shift.map_or(first, |shift| w.b.sub(first, shift))
    }

    /// How many neighbouring lines neighbouring workitems walk, where that is how they walk.
    pub fn beside(&self) -> Option<u32> {
        self.columns
    }

    /// So many bytes of LDS, the same each time.
    pub fn kept(&self, w: &mut Writer, bytes: u32) -> u32 {
        w.b.lds_of_at_least(bytes);
        0
    }

    /// The chunk as far from the line's end as another is from its beginning, of which the same lanes are inside.
    pub fn mirrored(&self, w: &mut Writer, c: &Chunk) -> Chunk {
        let last = self.shape.length as u32 - self.shape.together;
        Chunk { first: w.b.sub(last.wrapping_sub(c.ahead), c.first), ahead: 0, inside: c.inside }
    }

    /// Index in the line of element `e` of a chunk.
    pub fn index(&self, w: &mut Writer, c: &Chunk, e: u32) -> Part {
        if c.ahead + e > 0 { w.b.add(c.first, c.ahead + e) } else { c.first }
    }

    /// How lines lie in an access whose dimensions from `outer` on are the line's.
    pub fn place(&self, w: &mut Writer, view: &View, size: usize, outer: usize) -> Place {
        let base = address::part_offset(&mut w.b, view, size, 0..outer, self.line, true);
        // Dimensions that this access walks as one.
        let (mut dims, mut strides) = (Vec::new(), Vec::new());
        for (&n, &stride) in view.dims[outer..].iter().zip(&view.strides[outer..]) {
            match (dims.last_mut(), strides.last_mut()) {
                (Some(many), Some(apart)) if *apart == stride * n as i64 => (*many, *apart) = (*many * n, stride),
                _ => {
                    dims.push(n);
                    strides.push(stride);
                }
            }
        }
        Place { base, inner: View { offset: 0, dims, strides }, size }
    }

    /// Where a chunk is in an access.
    fn offset(&self, w: &mut Writer, place: &Place, c: &Chunk) -> Offset {
        let at = match place.inner.strides[..] {
            [0] => Offset { reg: None, imm: 0 },
            [stride] if stride > 0 => {
                let bytes = (stride * place.size as i64) as u32;
                Offset { reg: Some(w.b.mul(c.first, bytes)), imm: c.ahead * bytes }
            }
            _ => {
                let i = self.index(w, c, 0);
                address::part_offset(&mut w.b, &place.inner, place.size, 0..place.inner.rank(), i, false)
            }
        };
        address::add(&mut w.b, place.base, at)
    }

    /// The elements of a chunk, or one that serves for all.
    pub fn load(&self, w: &mut Writer, t: DType, buf: Buffer, place: &Place, c: &Chunk) -> Vec<Value> {
        let at = self.offset(w, place, c);
        if place.inner.strides.last() == Some(&0) {
            return vec![values::load(&mut w.b, t, buf, at)];
        }
        let at = self.guard(w, at, c.inside);
        match self.shape.together {
            1 => vec![values::load(&mut w.b, t, buf, at)],
            n => values::load_some(&mut w.b, t, buf, at, n),
        }
    }

    /// An element of each of so many lines that lie beside each other, of a chunk of one.
    pub fn load_beside(
        &self,
        w: &mut Writer,
        t: DType,
        buf: Buffer,
        place: &Place,
        c: &Chunk,
        lines: u32,
    ) -> Vec<Value> {
        let at = self.offset(w, place, c);
        let at = self.guard(w, at, c.inside);
        values::load_some(&mut w.b, t, buf, at, lines)
    }

    /// The words of a chunk of bytes that lie together, so many of them.
    pub fn load_words(&self, w: &mut Writer, buf: Buffer, place: &Place, c: &Chunk) -> Part {
        let at = self.offset(w, place, c);
        let (v, s, imm) = self.guard(w, at, c.inside).operands(&mut w.b);
        w.b.load(buf, (self.shape.together / 4) as u8, v, s, imm)
    }

    /// Lines are bytes of memory, whole words of which come at once, or single ones from LDS, and less than so many.
    pub fn are_bytes(&self, most: usize) -> bool {
        let Shape { size, together, dense, length, staged, .. } = self.shape;
        size == 1 && dense && (staged || together.is_multiple_of(4)) && length < most
    }

    /// Stores the elements of a chunk.
    pub fn store(&self, w: &mut Writer, t: DType, buf: Buffer, place: &Place, c: &Chunk, values: &[Value]) {
        let at = self.offset(w, place, c);
        let at = self.guard(w, at, c.inside);
        match values {
            [one] => values::store(&mut w.b, t, buf, at, *one),
            _ => values::store_some(&mut w.b, t, buf, at, values),
        }
    }

    /// Combines what the members of each team have found, so that every one holds the result. `merge` takes two lists of
    /// values and gives the combined ones.
    pub fn combine(
        &self,
        w: &mut Writer,
        values: &[Part],
        merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
    ) -> Res<Vec<Part>> {
        match self.columns {
            Some(columns) => lanes::combine_apart(w, self.team, columns, values, merge),
            None => lanes::combine(w, self.team, values, merge),
        }
    }
}
