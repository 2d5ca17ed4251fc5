//! Lines in pieces that workgroups have one each of, in one launch: what it has found each leaves in the step's workspace, and counts itself in at its
//! line; the last one to come takes together what all have left, always in the order of the pieces, so that results do not depend on who that
//! is ([`split`](super::split) has what makes that safe).
//!
//! Of columns a workgroup has a piece of each of several that lie side by side, which meet as one.

use super::address::{self, Offset};
use super::error::Res;
use super::lines::{self, Lines, Place, Shape};
use super::split::{Found, count_workgroup};
use super::{Cx, Kernel, Writer, lanes};
use crate::graph::view::View;
use crate::mir::{BlockId, Gen, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::Target;

/// Elements of a piece at least, which are a workgroup's work.
pub(super) const LEAST: usize = 4096;

/// Pieces of a line at most.
pub(super) const MOST: usize = 1024;

/// Workitems of a compute unit that have pieces of columns, at most, and what each takes together at most of what pieces have left.
const RESIDENT: usize = 1024;
const FOUND: usize = 8;

/// Pieces are a multiple of so many elements: what loads take together.
const TOGETHER: usize = 8;

/// How lines are cut.
#[derive(Clone, Copy)]
pub(super) struct Pieces {
    lines: usize,
    length: usize,
    /// Pieces of a line, and elements of each but the last.
    count: u32,
    each: u32,
    /// Columns that a workgroup has side by side, where lines are such.
    beside: Option<u32>,
}

/// A workgroup's piece.
pub(super) struct Joint {
    pieces: Pieces,
    /// Which line, and which piece of it.
    pub line: Part,
    pub piece: Part,
    /// Where a workgroup goes that is not the last of its line.
    done: BlockId,
    /// Dwords that a piece leaves, when that is known.
    left: u32,
}

impl Pieces {
    /// About so many pieces of each line.
    pub fn of(lines: usize, length: usize, wanted: usize) -> Pieces {
        let each = match length <= LEAST {
            true => length,
            false => length.div_ceil(wanted.clamp(1, MOST)).max(LEAST).next_multiple_of(TOGETHER),
        };
        Pieces { lines, length, count: length.div_ceil(each) as u32, each: each as u32, beside: None }
    }

    /// About so many pieces of columns; none where lines are walked otherwise, or pieces are too many to be walked at once, or for those who
    /// take together what all have left.
    pub fn of_columns(target: Target, shape: &Shape, wanted: usize) -> Option<Pieces> {
        let each = shape.length.div_ceil(wanted.clamp(1, MOST));
        let count = shape.length.div_ceil(each);
        if shape.dense {
            return None;
        }
        let walked = Shape { count: shape.count * count, length: each, ..*shape }.walked(target)?;
        let at_once = target.cus() as usize * RESIDENT;
        if walked.workgroups * walked.workitems as usize > at_once || count > FOUND * walked.team as usize {
            return None;
        }
        let (count, each, beside) = (count as u32, each as u32, Some(walked.workitems / walked.team));
        Some(Pieces { lines: shape.count, length: shape.length, count, each, beside })
    }

    /// Workgroups that have the first pieces of all lines.
    fn groups(&self) -> usize {
        self.lines.div_ceil(self.beside.unwrap_or(1) as usize)
    }

    /// Dwords of the workspace from what a piece leaves to what that of the next line, and the next piece, do, in those of a piece.
    fn apart(&self) -> [u32; 2] {
        if self.beside.is_some() { [1, self.lines as u32] } else { [self.count, 1] }
    }

    /// Begins a kernel in which each piece is a line. Behind `outer` dimensions the view has one, of neighbours.
    pub fn begin(self, cx: &Cx, t: DType, view: &View, outer: usize) -> Res<(Writer, Lines, Place, Joint)> {
        if let Some(beside) = self.beside {
            return self.begin_columns(cx, t, view, outer, beside);
        }
        let mut cut = view.clone();
        cut.dims.splice(outer.., [self.count as usize, self.each as usize]);
        cut.strides.splice(outer.., [i64::from(self.each), 1]);
        // What is loaded together does not end behind the last piece.
        let together = lines::together(&[(t, view)]);
        let shape = Shape::of(&[(t, &cut)], outer + 1, self.lines * self.count as usize, false)?;
        let (mut w, mut lines) = Lines::begin(cx, Shape { together, ..shape });
        let (line, piece) = w.b.divmod(lines.line, self.count);
        self.end_early(&mut w, &mut lines, piece);
        let place = lines.place(&mut w, &cut, t.size(), outer + 1);
        let done = w.b.label();
        Ok((w, lines, place, Joint { pieces: self, line, piece, done, left: 0 }))
    }

    /// The last piece may be shorter than others.
    fn end_early(&self, w: &mut Writer, lines: &mut Lines, piece: Part) {
        let last = self.length as u32 - (self.count - 1) * self.each;
        if last < self.each {
            lines.end_early(w, piece, self.count - 1, last);
        }
    }

    /// The same of columns: first pieces of all of them, then second ones, each beginning with a workgroup.
    fn begin_columns(
        self,
        cx: &Cx,
        t: DType,
        view: &View,
        outer: usize,
        beside: u32,
    ) -> Res<(Writer, Lines, Place, Joint)> {
        let all = self.groups() as u32 * beside;
        let (count, length) = ((all * self.count) as usize, self.each as usize);
        let shape = Shape { length, ..Shape::of(&[(t, view)], outer, count, false)? };
        let (mut w, mut lines) = Lines::begin(cx, shape);
        let (piece, line) = w.b.divmod(lines.line, all);
        lines.line = line;
        if (self.lines as u32) < all {
            lines.inside = Some(w.b.op(Gen::CmpGt.of(Type::U32), &[(self.lines as u32).into(), line.into()]));
        }
        self.end_early(&mut w, &mut lines, piece);
        let mut place = lines.place(&mut w, view, t.size(), outer);
        let before = w.b.mul(piece, (i64::from(self.each) * view.strides[outer] * t.size() as i64) as u32);
        place.base = address::add(&mut w.b, place.base, Offset { reg: Some(before), imm: 0 });
        let done = w.b.label();
        Ok((w, lines, place, Joint { pieces: self, line, piece, done, left: 0 }))
    }
}

impl Joint {
    /// Of what each workgroup has found, which all its workitems hold, that of a line, in the last workgroup to come: the others are done. `none` changes
    /// nothing when it is merged.
    pub fn meet(
        &mut self,
        w: &mut Writer,
        lines: &Lines,
        own: Vec<Part>,
        none: &[Opnd],
        merge: impl Fn(&mut Writer, &[Part], &[Part]) -> Res<Vec<Part>>,
    ) -> Res<Vec<Part>> {
        if self.pieces.count == 1 {
            return Ok(own);
        }
        let lengths: Vec<u8> = own.iter().map(|x| x.len).collect();
        let dwords = lengths.iter().sum::<u8>();
        self.left = u32::from(dwords);
        let size = self.left * 4;
        let all = w.b.v(dwords);
        let words = own.iter().flat_map(|x| (0..x.len).map(|d| x.dword(d)));
        (0..).zip(words).for_each(|(d, word)| w.b.copy_into(all.dword(d), word));
        let workspace = w.workspace(self.workspace());
        let [next, apart] = self.pieces.apart().map(|pieces| pieces * size);
        let first = w.b.mul(self.line, next);
        let at = w.b.mad(self.piece, apart, first);
        let at = lines.mask_result(w, Offset { reg: Some(at), imm: 0 });
        let (v, s, imm) = at.operands(&mut w.b);
        w.b.stores_for_device(true);
        w.b.store(workspace, all, v, s, imm);
        w.b.stores_for_device(false);
        let (item, threads) = (w.b.workitem_id(), lines.workgroup());
        let group = self.pieces.beside.map_or(self.line, |beside| w.b.udiv(self.line, beside));
        let counter = w.b.mad(group, threads, item);
        let counter = w.b.mul(counter, 4u32);
        count_workgroup(w, counter, (threads, Found::Apart), self.pieces.count - 1, self.done);
        let mut loaded = Vec::new();
        w.b.loads_from_device(true);
        for number in (0..self.pieces.count).step_by(lines.team() as usize) {
            let at = lines.own(w, first, apart, number, self.pieces.count);
            let (v, s, imm) = at.operands(&mut w.b);
            loaded.push((number, w.b.load(workspace, dwords, v, s, imm)));
        }
        w.b.loads_from_device(false);
        let mut found = Vec::new();
        for (number, all) in loaded {
            let mut words: Vec<Part> = (0..dwords).map(|d| all.dword(d)).collect();
            if let Some(inside) = lines.is_below(w, number, self.pieces.count) {
                words = words.into_iter().zip(none).map(|(x, none)| w.b.select(inside, x, *none)).collect();
            }
            let mut words = words.into_iter();
            found.push(lengths.iter().map(|n| together(w, words.by_ref().take(usize::from(*n)))).collect());
        }
        let found = lanes::folded(w, found, &merge)?;
        lines.combine(w, &found, merge)
    }

    /// Elements of a piece, but of the last.
    pub fn each(&self) -> u32 {
        self.pieces.each
    }

    fn workspace(&self) -> usize {
        self.pieces.lines * (self.pieces.count * self.left) as usize * 4
    }

    /// Ends the kernel, whose workgroups have met.
    pub fn end(self, mut w: Writer, lines: &Lines, flops: u64) -> Kernel {
        let (count, groups) = (self.pieces.count, self.pieces.groups());
        if count == 1 {
            return w.finish(lines.grid(), flops);
        }
        let grid = [groups as u32 * count, 1, 1];
        w.b.place(self.done, "done");
        let (workspace, counters) = (self.workspace(), groups * lines.workgroup() as usize * 4);
        Kernel { workspace, counters, sharing: [count, 1, 1], ..w.finish(grid, flops) }
    }
}

/// Words as one register.
fn together(w: &mut Writer, mut words: impl ExactSizeIterator<Item = Part>) -> Part {
    if words.len() == 1 {
        return words.next().expect("one word");
    }
    let all = w.b.v(words.len() as u8);
    (0..).zip(words).for_each(|(d, word)| w.b.copy_into(all.dword(d), word));
    all
}
