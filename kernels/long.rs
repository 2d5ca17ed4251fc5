//! Long lines: of what their walk is where second-level caches would hold memory up.
//!
//! Lines that no team's registers hold are loaded twice. The largest workgroup holds as much as it can of each line's beginning, and loads but the rest of
//! it twice.
//!
//! Where lines begin anywhere in lines of memory each access of a wave has parts of one more of these, and second-level caches take a store of a part as one of
//! a whole line. So such a walk begins where the line of memory does that has the line's first element: lanes before that have nothing in the first chunk, and all
//! other accesses are of whole lines.

use super::Writer;
use super::choice::Machine;
use super::lanes;
use super::lines::{CACHE_BUSY, IN_FLIGHT, LARGEST, Lines, MOST, Place, ROUND, Shape};
use crate::mir::Part;
use barewave_isa::Target;

/// Registers that each workitem of the largest workgroup has beside what it holds: the expression's operands too.
const BESIDE_LARGEST: u32 = 24;

impl Shape {
    /// Chunks of a line, with those before it.
    pub fn all(&self) -> u32 {
        self.length as u32 / self.together + self.before
    }

    /// Lines are walked again, do not fit the registers of smaller workgroups, and fit those of the largest.
    pub fn needs_largest(&self, target: Target) -> bool {
        self.is_long() && self.of_member(LARGEST) <= self.most_of_largest(target)
    }

    /// Chunks of a line's beginning that each workitem of the largest workgroup holds, where the line does not fit, and second-level caches would hold memory
    /// up if all of it were loaded twice.
    pub fn front(&self, target: Target) -> u32 {
        let most = self.most_of_largest(target);
        if !self.is_long() || self.dwords != 1 || self.of_member(LARGEST) <= most {
            return 0;
        }
        if self.holds_memory_up(2.0, target) { most / self.together } else { 0 }
    }

    /// Lines that are walked again, and do not fit the registers of smaller workgroups than the largest.
    fn is_long(&self) -> bool {
        self.dense && self.again && !self.in_order && !self.staged && self.of_member(lanes::MOST) > MOST
    }

    /// Dwords of a line for each of so many workitems.
    fn of_member(&self, team: u32) -> u32 {
        self.all().div_ceil(team) * self.together * self.dwords
    }

    /// Dwords of a line that a workitem of the largest workgroup holds at most.
    fn most_of_largest(&self, target: Target) -> u32 {
        let wave = target.info().wave_size;
        let registers = target.most_vgprs(wave, LARGEST / (wave * target.info().simds));
        MOST.min(registers.saturating_sub(BESIDE_LARGEST))
    }

    /// The share of a line that is walked behind its beginning, which is held, and in how many rounds; none where lines are not held in part.
    pub fn behind(&self, target: Target) -> Option<[f64; 2]> {
        let front = Some(self.front(target)).filter(|front| *front > 0)?;
        let all = self.all().div_ceil(LARGEST);
        let [rounds, _] = self.rounds_behind(all - front);
        Some([f64::from(all - front) / f64::from(all), f64::from(rounds)])
    }

    /// Rounds in which so many chunks are walked behind those that are held, and chunks of each: as many.
    pub fn rounds_behind(&self, chunks: u32) -> [u32; 2] {
        let rounds = chunks.div_ceil(IN_FLIGHT.max(ROUND[1] / self.together));
        [rounds, chunks.div_ceil(rounds)]
    }

    /// The lines as they are walked from where lines of memory begin, where second-level caches would hold memory up by parts of these. Nothing but the line
    /// and its result is loaded and stored along it.
    pub fn as_memory(self, target: Target) -> Shape {
        let (line, beside) = (Machine::of(target).line, target.info().wave_size * self.together * self.size as u32);
        let whole = beside.is_multiple_of(line) && matches!(self.size, 2 | 4) && self.dwords == 1 && self.others == 0;
        let again = self.dense && self.again && !self.in_order && !self.staged;
        let team = self.of_neighbours(target);
        if !again || !whole || !self.is_apart(target) || team <= target.info().wave_size {
            return self;
        }
        let passes = match self.behind(target) {
            Some([share, _]) => 1.0 + share,
            None if self.chunks(team, team, target) >= self.all().div_ceil(team) => 1.0,
            None => 2.0,
        };
        match self.holds_memory_up(passes, target) {
            true => Shape { before: line / (self.size as u32 * self.together) - 1, ..self },
            false => self,
        }
    }

    /// Lines begin anywhere in lines of memory.
    fn is_apart(&self, target: Target) -> bool {
        !(self.length * self.size).is_multiple_of(Machine::of(target).line as usize)
    }

    /// Second-level caches give and take lines that are loaded so many times, and stored, in more time than memory has.
    fn holds_memory_up(&self, passes: f64, target: Target) -> bool {
        let (machine, bytes) = (Machine::of(target), (self.length * self.size) as f64);
        // A wave stores parts of one more line of memory.
        let beside = f64::from(target.info().wave_size * self.together) * self.size as f64;
        let parts =
            if self.is_apart(target) && self.before == 0 { 1.0 + f64::from(machine.line) / beside } else { 1.0 };
        let given = ((passes + parts) * bytes + self.others as f64) / machine.l2;
        given > CACHE_BUSY * 2.0 * bytes / machine.memory
    }
}

impl Lines {
    /// The member's number among those that come to the line's elements in turn.
    pub fn in_turn(&self, w: &mut Writer) -> Option<Part> {
        let (member, Some(shift)) = (self.member?, self.shift) else { return self.member };
        let shift = w.b.shr(shift, self.shape.together.trailing_zeros());
        let number = w.b.sub(member, shift);
        Some(w.b.and(number, self.team - 1))
    }

    /// Lets the walk begin where the line of memory does that the line's first element in an access lies in, if the shape says so.
    pub fn begin_as_memory(&mut self, w: &mut Writer, place: &Place) {
        if self.shape.before == 0 {
            return;
        }
        let line = Machine::of(w.b.target()).line;
        let at = match place.base.reg {
            Some(reg) => w.b.add(reg, place.base.imm),
            None => w.b.scalar(place.base.imm),
        };
        let at = if w.b.is_vector(at.into()) { w.b.uniform(at) } else { at };
        let at = w.b.and(at, line - 1);
        self.shift = Some(w.b.shr(at, place.size.trailing_zeros()));
    }
}
