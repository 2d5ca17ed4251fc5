//! Results of lines that are walked as columns, where in the result the elements of each lie together: a softmax or a normalisation behind a transposition.
//!
//! What neighbouring workitems have of such a result is as far apart as lines are. So it goes to LDS, for some turns of the walk at a time, and from there to memory
//! along the lines: whole pieces of them, each as far from the next in LDS as keeps neighbouring workitems at different banks. Short lines that are no
//! whole accesses lie there as they do in memory, and all of the workgroup's are one run. Lines that do not begin at whole words go element by element: neighbouring
//! workitems have neighbours all the same.

use super::address::part_offset;
use super::lines::{Chunk, Lines};
use super::runs::{self, Run};
use super::values::{self, Value};
use super::{Arg, Cx, Writer};
use crate::graph::collapse::{apply, groups};
use crate::graph::view::View;
use crate::mir::{Gen, Opnd, Part, Type};
use barewave_isa::op;

/// Bytes of LDS for a workitem, and of a workgroup, at most.
const FOR_AN_ITEM: u32 = 64;
const MOST: u32 = 36 << 10;

/// Single elements of a line at least that go to memory together.
const NARROW: u32 = 16;

/// See the module's documentation.
#[derive(Clone)]
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
    /// Bytes of LDS, where these begin, where a workitem's first element is from there on, and what it writes there that is behind the line's end.
    bytes: u32,
    base: u32,
    own: Part,
    aside: Option<Part>,
    /// The workgroup's first line, and where lines begin in the result.
    first: Part,
    rows: View,
    /// The first line of those that have fewer elements, and how many bytes they are.
    short: Option<(u32, u32)>,
}

impl Crossed {
    /// How results of lines, the dimensions from `outer` on, go through LDS, if they do.
    pub fn begin(cx: &Cx, w: &mut Writer, lines: &Lines, outer: usize) -> Option<Crossed> {
        let (out, t) = (&cx.step.output, cx.dtype(Arg::Output));
        let (beside, of_group, length) = (lines.beside()?, lines.of_group?, lines.shape.length);
        let words = matches!(t.size(), 1 | 2 | 4) && t.bits() == 8 * t.size() && t != crate::tensor::DType::Bool;
        let [inside, outside] =
            [outer..out.view.rank(), 0..outer].map(|range| apply(&out.view, &groups(&[&out.view], range)));
        let is_line = inside.1 == [1] && outside.1.iter().all(|stride| *stride >= 0);
        if !words || length == 1 || !out.is_plain() || !is_line {
            return None;
        }
        let rows = View { offset: 0, dims: outside.0, strides: outside.1 };
        let is_dense = out.view.is_dense();
        let (size, workgroup, team) = (t.size() as u32, lines.workgroup(), lines.team());
        let line = length as u32 * size;
        let (start, all) = (out.view.offset as usize * t.size(), out.view.len() * t.size());
        let room = (FOR_AN_ITEM * workgroup).min(MOST);
        let run = (beside * line) as usize;
        let is_run = is_dense && !line.is_multiple_of(16) && lines.is_held() && beside * line <= room;
        let apart = rows.strides.iter().map(|stride| *stride as usize * t.size());
        let whole: Vec<usize> =
            if is_run { vec![run, start, all] } else { [line as usize, start].into_iter().chain(apart).collect() };
        let is_in_words = whole.iter().all(|bytes| bytes.is_multiple_of(4));
        if is_run && !is_in_words {
            return None;
        }
        let chunks = lines.chunks.next_power_of_two();
        let chunks = if is_run { chunks } else { chunks.min(1 << (room / workgroup / size).max(1).ilog2()) };
        let piece = if is_run { line } else { chunks * team * size };
        // Lines that begin anywhere go element by element.
        let unit = if is_in_words { runs::widest(16, &whole).min(if is_run { 16 } else { piece }) } else { size };
        if piece < if is_in_words { 4 } else { NARROW * unit } {
            return None;
        }
        let pitch = if is_run { line } else { piece + unit.max(4) };
        let moved = beside * pitch;
        let is_uneven = is_run && !(length as u32).is_multiple_of(team);
        let bytes = moved + if is_uneven { 4 * workgroup } else { 0 };
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
        let (chunks, base, short) = (chunks as usize, 0, None);
        Some(Crossed {
            size,
            line,
            piece,
            pitch,
            unit,
            beside,
            workgroup,
            chunks,
            bytes,
            base,
            own,
            aside,
            first,
            rows,
            short,
        })
    }

    /// The same where lines from one on have but so many elements; none where these are no whole accesses, or lines one run.
    pub fn ending(self, from: u32, elements: u32) -> Option<Crossed> {
        let bytes = elements * self.size;
        let fits = bytes.is_multiple_of(self.unit) && !self.is_run();
        fits.then_some(Crossed { short: Some((from, bytes)), ..self })
    }

    /// The same with LDS of its own, which only who writes results has.
    pub fn placed(&self, w: &mut Writer) -> Crossed {
        Crossed { base: w.b.lds(self.bytes), ..self.clone() }
    }

    /// All of the workgroup's lines are one run.
    fn is_run(&self) -> bool {
        self.piece == self.line && self.pitch == self.line
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

    /// An access of what was left, so many bytes behind a place.
    fn read(&self, w: &mut Writer, from: Part, behind: u32) -> Part {
        match self.unit {
            1 => w.b.lds_read_byte(from, self.base + behind),
            2 => w.b.lds_read_half(from, self.base + behind),
            unit => w.b.lds_read((unit / 4) as u8, from, self.base + behind),
        }
    }

    /// Stores what was left of the chunks from `first` on, and lets others follow where there are `more`.
    pub fn store(&self, w: &mut Writer, cx: &Cx, lines: &Lines, first: &Chunk, more: bool) -> super::Res<()> {
        w.b.barrier();
        let buf = w.buffer(cx, Arg::Output)?;
        let view = &cx.step.output.view;
        let (start, all) = (view.offset as u32 * self.size, view.len() as u32 * self.size);
        if self.is_run() {
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
        let is_within = self.short.is_none() && before.is_none() && ahead + piece <= self.line;
        // Where a workgroup's lines are evenly apart in the result a turn's are as far behind those of the first as LDS has them.
        let (turns, inner) = (of_group.div_ceil(self.workgroup), self.rows.rank() - 1);
        let is_whole = |lines: u32| lines.is_multiple_of(self.beside);
        let is_even = self.workgroup.is_multiple_of(units)
            && is_whole(self.rows.dims[inner] as u32)
            && self.short.is_none_or(|(from, _)| is_whole(from));
        let mut all: Vec<(Part, Part, u32)> = Vec::new();
        let mut even = None;
        for turn in 0..turns {
            if let Some((from, to)) = even.filter(|_| is_even) {
                let lines = turn * (self.workgroup / units);
                let behind = lines * self.rows.strides[inner] as u32 * self.size;
                all.push((self.read(w, from, lines * self.pitch), to, behind));
                continue;
            }
            let at = if turn > 0 { w.b.add(item, turn * self.workgroup) } else { item };
            let (of_line, unit) = (w.b.shr(at, units.trailing_zeros()), w.b.and(at, units - 1));
            let unit = w.b.mul(unit, self.unit);
            let from = w.b.mad(of_line, self.pitch, unit);
            let line = w.b.add(of_line, self.first);
            let place = before.map_or(unit, |before| w.b.add(unit, before));
            let below =
                |w: &mut Writer, limit: Opnd, x: Part| Some(w.b.op(Gen::CmpGt.of(Type::U32), &[limit, x.into()]));
            let own = if of_group < self.workgroup { below(w, of_group.into(), item) } else { None };
            let all_lines = lines.shape.count as u32;
            let of_those = if lines.inside.is_some() { below(w, all_lines.into(), line) } else { None };
            let end: Opnd = match self.short {
                None => (self.line - ahead).into(),
                Some((from, bytes)) => {
                    let before = w.b.op(Gen::CmpGt.of(Type::U32), &[from.into(), line.into()]);
                    let [whole, short] = [self.line, bytes].map(|end| w.b.to_vector(end.saturating_sub(ahead)));
                    w.b.select(before, whole, short).into()
                }
            };
            let within = if is_within { None } else { below(w, end, place) };
            let mask = w.b.both(own, of_those);
            let mask = w.b.both(mask, within);
            // Nobody has written what would lie behind.
            let from = mask.map_or(from, |mask| w.b.select(mask, from, 0u32));
            let to = match self.rows.strides[..] {
                [stride] => w.b.mad(line, stride as u32 * self.size, place),
                _ => {
                    let row = part_offset(&mut w.b, &self.rows, self.size as usize, 0..self.rows.rank(), line, false);
                    row.reg.map_or(place, |row| w.b.add(row, place))
                }
            };
            let to = mask.map_or(to, |mask| w.b.guard(mask, to));
            all.push((self.read(w, from, 0), to, 0));
            even = Some((from, to));
        }
        for (data, to, behind) in all {
            let imm = start + ahead + behind;
            match self.unit {
                1 => w.b.store_op(op::BUFFER_STORE_BYTE, buf, data, to, 0u32, imm),
                2 => w.b.store_op(op::BUFFER_STORE_SHORT, buf, data, to, 0u32, imm),
                _ => w.b.store(buf, data, to, 0u32, imm),
            }
        }
        if more {
            w.b.barrier();
        }
        Ok(())
    }
}
