//! Short lines of single elements by way of LDS: a workgroup's lines are one row of memory, which its workitems move in wide accesses. Between these each takes
//! the elements of its line from LDS one by one, and leaves what comes of them in their places. By themselves such lines are loaded and stored in parts of lines of memory, at
//! which second-level caches are slower than memory is, or by so many waves that these begin more slowly than memory feeds them.

use super::choice::Machine;
use super::lanes;
use super::lines::{Chunk, ENOUGH, LIGHT, Lines, MOST, Shape, WORKGROUP};
use super::runs::{self, Run};
use super::values::{self, Value};
use super::{Arg, Cx, Writer};
use crate::graph::fused::Access;
use crate::mir::Part;
use crate::tensor::DType;
use barewave_isa::Target;

/// Workgroups at least whose lines LDS has room for where these are written, too, and where they are not; and what lines take by themselves over what memory
/// does, from which on they go through LDS.
const RESIDENT: u32 = 7;
const RESIDENT_READ: u32 = 4;
const WORTH: f64 = 1.04;

/// Share of what memory takes in which waves have begun.
const IN_TIME: f64 = 0.8;

/// Banks of LDS, and those that a wave should meet at once.
const LDS_BANKS: usize = 32;
const ENOUGH_BANKS: usize = 8;

/// Instructions of a lane for a line, beside those of its elements.
const BEGUN: f64 = 8.0;

/// Instructions of a lane for each element, and for each of the steps in which the members of a team meet.
pub(super) struct Work {
    pub element: f64,
    pub meeting: f64,
}

impl Shape {
    /// Teams of so many hold their lines, and leave LDS room for the lines of others; and there are enough.
    pub fn fits_staged(&self, team: u32, target: Target) -> bool {
        let (most, resident) = if self.again { (LIGHT, RESIDENT) } else { (MOST, RESIDENT_READ) };
        let held = (self.length as u32 / self.together).div_ceil(team) * self.together * self.dwords;
        let bytes = WORKGROUP / team * (self.length * self.size) as u32;
        let enough = self.count * team as usize >= ENOUGH * target.cus() as usize * WORKGROUP as usize;
        held <= most && bytes <= target.info().lds_bytes / resident && enough
    }

    /// Teams of at least so many that reach far enough in other operands than that which goes through LDS, where lines have their own of these, and whose waves
    /// begin in time.
    pub fn wide_enough(&self, least: u32, most: u32, target: Target) -> u32 {
        let (machine, wave) = (Machine::of(target), f64::from(target.info().wave_size));
        let moved = (2 * self.length * self.size) as f64 / machine.memory;
        let in_time = |team: u32| machine.dispatch * f64::from(team) / wave <= IN_TIME * moved;
        let mut team = least;
        while self.apart && 2 * team <= most && 2 * team * self.size as u32 <= machine.line && in_time(2 * team) {
            team *= 2;
        }
        team
    }

    /// LDS has room for so many lines in it and in those of other workgroups, if they go there.
    pub fn has_room(&self, lines: usize, target: Target) -> bool {
        !self.staged || lines * self.length * self.size <= (target.info().lds_bytes / RESIDENT) as usize
    }

    /// Lines that LDS has room for, one by one: how many workitems share one there, and by themselves.
    fn staged_teams(&self, target: Target) -> Option<[u32; 2]> {
        let wave = target.info().wave_size;
        if !self.dense || self.dwords != 1 || self.length > (wave * LIGHT) as usize {
            return None;
        }
        let teams = [self.staged(), *self].map(|shape| shape.of_neighbours(target));
        // A scan ends at rows.
        let most = if self.in_order { lanes::ROW } else { wave };
        (teams[0] <= most && teams[1] <= wave && self.staged().fits_staged(teams[0], target)).then_some(teams)
    }

    /// The lines in LDS, element by element.
    pub fn staged(&self) -> Shape {
        Shape { staged: true, together: 1, ..*self }
    }

    /// Lines of single elements whose instructions take longer than memory where many of a team's lanes have none of them, and its members meet often.
    pub fn pays_staged_by(&self, work: &Work, target: Target) -> bool {
        let Some(teams) = self.staged_teams(target).filter(|_| self.together == 1) else { return false };
        let (machine, info) = (Machine::of(target), target.info());
        let lanes = f64::from(target.cus() * info.simds * info.wave_size) / machine.issue;
        let [staged, alone] = teams.map(|team| {
            let elements = self.length.div_ceil(team as usize) as f64 * work.element;
            f64::from(team) * (BEGUN + elements + f64::from(team.ilog2()) * work.meeting) / lanes
        });
        let moved = if self.again { 2 } else { 1 } * self.length * self.size;
        let begun = machine.dispatch * f64::from(teams[0]) / f64::from(info.wave_size);
        alone > WORTH * moved as f64 / machine.memory && staged.max(begun) < alone
    }

    /// Lines that take longer by themselves than memory does. Other operands, too, come from second-level caches.
    pub fn pays_staged(&self, target: Target) -> bool {
        // Workitems of a wave should meet several banks: those of a team neighbours, and teams one in so many.
        let words = self.length * self.size / 4;
        let apart = if (self.length * self.size).is_multiple_of(4) { 1 << words.trailing_zeros().min(5) } else { 1 };
        let is_apart = |team: u32| LDS_BANKS / apart * (team as usize * self.size / 4).max(1) >= ENOUGH_BANKS;
        let Some([_, alone]) = self.staged_teams(target).filter(|teams| is_apart(teams[0])) else { return false };
        let (clocks, moved) = self.clocks(alone, target);
        // Where they begin anywhere in lines of memory a store is of parts of one more.
        let (machine, bytes) = (Machine::of(target), self.length * self.size);
        let (line, beside) = (machine.line, self.together * alone * self.size as u32);
        let parts = match bytes.is_multiple_of(line as usize) {
            true => f64::from(line.div_ceil(beside)),
            false if beside > line => 1.0 + f64::from(line) / f64::from(beside),
            false => f64::from(line / beside + 1),
        };
        let parts = parts.min(f64::from((self.length as u32 / self.together).div_ceil(alone)));
        let given = |parts: f64| ((1.0 + parts) * bytes as f64 + self.others as f64) / machine.l2;
        let clocks = clocks.max(given(parts));
        clocks > WORTH * moved && clocks > WORTH * given(1.0)
    }
}

/// A workgroup's lines in LDS.
pub(super) struct Staged {
    /// The lines, as they come from memory.
    run: Run,
    /// Where they begin in LDS, and there, for each workitem, a word for what is not stored.
    base: u32,
    aside: Part,
    /// The workitem's line in LDS, behind the first one, and that of the turn behind the first turn's.
    line: Part,
    turn: u32,
}

impl Staged {
    /// The lines of a step, operand 0 and its result, are moved so.
    pub fn fits(cx: &Cx, shape: &Shape) -> bool {
        Staged::can(cx, shape, true) && shape.pays_staged(cx.target)
    }

    /// The same where instructions may take longer than memory, of operand 0 and its result, or of operand 0 alone.
    pub fn fits_by(cx: &Cx, shape: &Shape, written: bool, work: &Work) -> bool {
        Staged::can(cx, shape, written) && shape.pays_staged_by(work, cx.target)
    }

    /// Lines are whole words of memory.
    fn can(cx: &Cx, shape: &Shape, written: bool) -> bool {
        let (from, to) = (cx.dtype(Arg::Input(0)), cx.dtype(Arg::Output));
        let (a, out) = (&cx.step.inputs[0], &cx.step.output);
        let whole = |a: &Access| {
            let words = |elements: i64| elements * shape.size as i64 % 4 == 0;
            a.is_plain() && a.view.is_dense() && words(a.view.len() as i64) && words(a.view.offset)
        };
        let of_result = || whole(out) && a.view.len() == out.view.len() && from.size() == to.size();
        let stored = || matches!(shape.size, 2 | 4) && from.is_float() && to.is_float() && of_result();
        let read = || matches!(shape.size, 1 | 2 | 4) && from.bits() == 8 * from.size();
        whole(a) && from.size() == shape.size && if written { stored() } else { read() }
    }

    /// Loads the workgroup's lines, in whose places results may be left.
    pub fn begin(cx: &Cx, w: &mut Writer, lines: &Lines, written: bool) -> super::Res<Staged> {
        let (input, out) = (&cx.step.inputs[0].view, &cx.step.output.view);
        let size = cx.dtype(Arg::Input(0)).size();
        let (workgroup, bytes) = (lines.workgroup(), lines.bytes_of_group());
        let all = input.len() * size;
        let starts = [Some(input.offset), written.then_some(out.offset)];
        let starts = starts.into_iter().flatten().map(|at| (at * size as i64) as usize);
        let places: Vec<usize> = [bytes as usize, all].into_iter().chain(starts).collect();
        let (group, item) = (lines.group(w), w.b.workitem_id());
        let from = w.b.mul(group, bytes);
        let run = Run {
            unit: runs::widest(16, &places),
            bytes,
            items: workgroup,
            from,
            start: (input.offset * size as i64) as u32,
            ends: (!all.is_multiple_of(bytes as usize)).then_some(all as u32),
        };
        let moved = run.turns(bytes) * run.of_turn();
        let base = w.b.lds(moved + 4 * workgroup);
        let aside = w.b.shl(item, 2u32);
        let aside = w.b.add(aside, moved);
        let line = lines.staged_line(w);
        let none = w.b.to_vector(0u32);
        w.b.lds_write(aside, none, base);
        let buf = w.buffer(cx, Arg::Input(0))?;
        let loaded = run.load(w, buf, bytes);
        run.fill(w, loaded, base);
        w.b.barrier();
        Ok(Staged { run, base, aside, line, turn: 0 })
    }

    /// Goes on to the line of a turn.
    pub fn take(&mut self, lines: &Lines, turn: u32) {
        self.turn = lines.bytes_of_group() / lines.turns() * turn;
    }

    /// Where a chunk is, or what a workitem has instead that is behind its line's end.
    fn chunk(&self, w: &mut Writer, lines: &Lines, c: &Chunk) -> (Part, u32) {
        let (at, ahead) = lines.staged_place(w, self.line, c);
        let ahead = ahead + self.turn;
        let Some(inside) = c.inside else { return (at, self.base + ahead) };
        let at = w.b.add(at, ahead);
        (w.b.select(inside, at, self.aside), self.base)
    }

    /// The element of a chunk.
    pub fn load(&self, w: &mut Writer, lines: &Lines, t: DType, c: &Chunk) -> Value {
        let raw = self.load_raw(w, lines, t, c);
        values::element(&mut w.b, t, raw, 0)
    }

    /// The element of a chunk as memory has it, in the low bits of a word.
    pub fn load_raw(&self, w: &mut Writer, lines: &Lines, t: DType, c: &Chunk) -> Part {
        let (at, ahead) = self.chunk(w, lines, c);
        match t.size() {
            1 => w.b.lds_read_byte(at, ahead),
            2 => w.b.lds_read_half(at, ahead),
            _ => w.b.lds_read(1, at, ahead),
        }
    }

    /// Leaves a result in the place of a chunk.
    pub fn store(&self, w: &mut Writer, lines: &Lines, t: DType, c: &Chunk, value: Value) {
        let (at, ahead) = self.chunk(w, lines, c);
        match t.size() {
            2 => {
                let half = values::narrowed(&mut w.b, t, value);
                w.b.lds_write_half(at, half, false, ahead);
            }
            _ => {
                let word = value.reg(&mut w.b);
                w.b.lds_write(at, word, ahead);
            }
        }
    }

    /// Stores what was left.
    pub fn end(&self, cx: &Cx, w: &mut Writer) -> super::Res<()> {
        let start = cx.step.output.view.offset * cx.dtype(Arg::Output).size() as i64;
        let buf = w.buffer(cx, Arg::Output)?;
        w.b.barrier();
        Run { start: start as u32, ..self.run }.empty(w, buf, self.base);
        Ok(())
    }
}
