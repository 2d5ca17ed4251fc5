//! Results of lines that are walked as columns, where in the result the elements of each lie together: a softmax or a normalisation behind a transposition.
//!
//! What neighbouring workitems have of such a result is as far apart as lines are. So it goes to LDS, for some turns of the walk at a time, and from there to memory
//! along the lines: whole pieces of them, each as far from the next in LDS as keeps neighbouring workitems at different banks. Short lines that are no
//! whole accesses lie there as they do in memory, and all of the workgroup's are one run.

use super::lines::{Chunk, Lines};
use super::runs::{self, Run};
use super::values::{self, Value};
use super::{Arg, Cx, Writer};
use crate::mir::{Gen, Part, Type};

/// Bytes of LDS for a workitem, and of a workgroup, at most.
const FOR_AN_ITEM: u32 = 64;
const MOST: u32 = 36 << 10;

/// See the module's documentation.
pub(super) struct Crossed {
    /// Bytes of an element, of a line, of what LDS has of a line at a time, and from there to the next line's.
    size: u32,
    line: u32,
    piece: u32,
    pitch: u32,
    /// Bytes of an access.
    unit: u32,
    /// Lines of the workgroup, and workitems.
    beside: u32,
    workgroup: u32,
    /// Chunks of a workitem that LDS has room for.
    chunks: usize,
    /// Where LDS begins, where a workitem's first element is from there on, and what it writes there that is behind the line's end.
    base: u32,
    own: Part,
    aside: Option<Part>,
    /// The workgroup's first line.
    first: Part,
}

impl Crossed {
    /// How results go through LDS, if they do.
    pub fn begin(cx: &Cx, w: &mut Writer, lines: &Lines) -> Option<Crossed> {
        let (out, t) = (&cx.step.output, cx.dtype(Arg::Output));
        let (beside, of_group, length) = (lines.beside()?, lines.of_group?, lines.shape.length);
        let words = matches!(t.size(), 1 | 2 | 4) && t.bits() == 8 * t.size() && t != crate::tensor::DType::Bool;
        if !words || length == 1 || !out.is_plain() || !out.view.is_dense() {
            return None;
        }
        let (size, workgroup, team) = (t.size() as u32, lines.workgroup(), lines.team());
        let line = length as u32 * size;
        let (start, all) = (out.view.offset as usize * t.size(), out.view.len() * t.size());
        let room = (FOR_AN_ITEM * workgroup).min(MOST);
        let run = (beside * line) as usize;
        let is_run = !line.is_multiple_of(16) && lines.is_held() && beside * line <= room;
        let whole: &[usize] = if is_run { &[run, start, all] } else { &[line as usize, start] };
        if whole.iter().any(|bytes| !bytes.is_multiple_of(4)) {
            return None;
        }
        let chunks = lines.chunks.next_power_of_two();
        let chunks = if is_run { chunks } else { chunks.min(1 << (room / workgroup / size).max(1).ilog2()) };
        let piece = if is_run { line } else { chunks * team * size };
        let unit = runs::widest(16, whole).min(if is_run { 16 } else { piece });
        if unit < 4 {
            return None;
        }
        let pitch = if is_run { line } else { piece + unit };
        let moved = beside * pitch;
        let is_uneven = is_run && !(length as u32).is_multiple_of(team);
        let base = w.b.lds(moved + if is_uneven { 4 * workgroup } else { 0 });
        let aside = is_uneven.then(|| {
            let item = w.b.workitem_id();
            let at = w.b.shl(item, 2u32);
            w.b.add(at, moved)
        });
        let mut own = w.b.mul(of_group, pitch);
        if let Some(member) = lines.member {
            own = w.b.mad(member, size, own);
        }
        let first = w.b.sub(lines.line, of_group);
        let chunks = chunks as usize;
        Some(Crossed { size, line, piece, pitch, unit, beside, workgroup, chunks, base, own, aside, first })
    }

    /// Chunks of a workitem that go to memory together.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Leaves a chunk's result, of those that go to memory with `first`.
    pub fn leave(&self, w: &mut Writer, cx: &Cx, first: &Chunk, c: &Chunk, value: Value) {
        let narrow = values::narrowed(&mut w.b, cx.dtype(Arg::Output), value);
        let (mut at, mut ahead) = (self.own, self.base + (c.ahead - first.ahead) * self.size);
        if let (Some(aside), Some(inside)) = (self.aside, c.inside) {
            let to = w.b.add(at, ahead - self.base);
            (at, ahead) = (w.b.select(inside, to, aside), self.base);
        }
        match self.size {
            1 => w.b.lds_write_byte(at, narrow, ahead),
            2 => w.b.lds_write_half(at, narrow, false, ahead),
            _ => w.b.lds_write(at, narrow, ahead),
        }
    }

    /// Stores what was left of the chunks from `first` on, and lets others follow where there are `more`.
    pub fn store(&self, w: &mut Writer, cx: &Cx, lines: &Lines, first: &Chunk, more: bool) -> super::Res<()> {
        w.b.barrier();
        let buf = w.buffer(cx, Arg::Output)?;
        let view = &cx.step.output.view;
        let (start, all) = (view.offset as u32 * self.size, view.len() as u32 * self.size);
        if self.piece == self.line && self.pitch == self.line {
            let (bytes, line) = (self.beside * self.line, w.b.uniform(self.first));
            let from = w.b.mul(line, self.line);
            let ends = lines.inside.map(|_| all);
            Run { unit: self.unit, bytes, items: self.workgroup, from, start, ends }.empty(w, buf, self.base);
            return Ok(());
        }
        let units = self.piece / self.unit;
        let of_group = self.beside * units;
        let item = w.b.workitem_id();
        // Which elements they are: a loop's rounds are counted in a register.
        let before = (!lines.is_held()).then(|| {
            let first = lines.member.map_or(first.first, |member| w.b.sub(first.first, member));
            w.b.mul(first, self.size)
        });
        let (ahead, piece) = (first.ahead * self.size, self.piece);
        let is_within = before.is_none() && ahead + piece <= self.line;
        let mut all = Vec::new();
        for turn in 0..of_group.div_ceil(self.workgroup) {
            let at = if turn > 0 { w.b.add(item, turn * self.workgroup) } else { item };
            let (of_line, unit) = (w.b.shr(at, units.trailing_zeros()), w.b.and(at, units - 1));
            let unit = w.b.mul(unit, self.unit);
            let from = w.b.mad(of_line, self.pitch, unit);
            let line = w.b.add(of_line, self.first);
            let place = before.map_or(unit, |before| w.b.add(unit, before));
            let mut below = |limit: u32, x: Part| Some(w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), x.into()]));
            let own = if of_group < self.workgroup { below(of_group, item) } else { None };
            let of_those = if lines.inside.is_some() { below(lines.shape.count as u32, line) } else { None };
            let within = if is_within { None } else { below(self.line - ahead, place) };
            let mask = w.b.both(own, of_those);
            let mask = w.b.both(mask, within);
            // Nobody has written what would lie behind.
            let from = mask.map_or(from, |mask| w.b.select(mask, from, 0u32));
            let data = w.b.lds_read((self.unit / 4) as u8, from, self.base);
            let to = w.b.mad(line, self.line, place);
            let to = mask.map_or(to, |mask| w.b.guard(mask, to));
            all.push((data, to));
        }
        for (data, to) in all {
            w.b.store(buf, data, to, 0u32, start + ahead);
        }
        if more {
            w.b.barrier();
        }
        Ok(())
    }
}
