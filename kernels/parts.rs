//! Rows of several parts, and parts of rows, by way of LDS: a workgroup has some rows, all of which lie together on both sides, and moves these in wide accesses.
//!
//! On one side of LDS accesses are of rows as they lie, on the other of parts, whose elements are as far from their places in rows as the other
//! parts of the rows before them are long.

use super::choice::Machine;
use super::error::Res;
use super::lines::ENOUGH;
use super::runs::{self, Loaded, Run};
use super::{Arg, Cx, Kernel, Writer, values};
use crate::graph::fused::{self, StepKind};
use crate::mir::{Gen, Part, Type};
use barewave_isa::op;

const WORKGROUP: u32 = 256;

/// Bytes of a workgroup's rows, about and at most.
const ROOM: usize = 8 << 10;
const MOST: usize = 16 << 10;

/// Elements of an access of a part: lanes whose places are further apart meet in the banks of LDS.
const TOGETHER: u32 = 4;

/// Bytes of a row's shortest part from which on rows are moved by the part: what comes twice of lines of memory is little then, or stays in a cache before memory that
/// keeps what is written.
const LONG: usize = 1024;
const LONG_IN_CACHE: usize = 160;

/// See the module's documentation.
struct Rows {
    join: bool,
    /// Bytes of an element that is moved: what all parts have whole ones of.
    size: u32,
    /// Bytes of a row, and of each part with what is before it.
    row: u32,
    parts: Vec<[u32; 2]>,
    /// Rows, and those of a workgroup.
    count: usize,
    each: usize,
}

/// The operand that is whole rows, and those of parts.
fn arguments(kind: &fused::Parts) -> (Arg, Vec<Arg>) {
    match kind.join {
        true => (Arg::Output, (0..kind.count).map(Arg::Input).collect()),
        false => (Arg::Input(0), [Arg::Output].into_iter().chain((1..kind.count).map(Arg::Input)).collect()),
    }
}

impl Rows {
    fn of(cx: &Cx, kind: &fused::Parts) -> Option<Rows> {
        let (all, parts) = arguments(kind);
        let view = cx.view(all);
        let (count, t) = (view.dims[0], cx.dtype(all).size());
        let widths: Vec<usize> = parts.iter().map(|arg| cx.view(*arg).dims[1] * t).collect();
        let size = [4, 2].into_iter().find(|n| widths.iter().all(|w| w.is_multiple_of(*n))).unwrap_or(1);
        let offsets = parts.iter().chain([&all]).map(|arg| cx.view(*arg).offset * t as i64);
        let words =
            widths.iter().all(|w| (w * count).is_multiple_of(4)) && { offsets }.all(|at| at >= 0 && at % 4 == 0);
        let row: usize = widths.iter().sum();
        // Every part of a workgroup's rows is whole accesses.
        let least = widths.iter().map(|w| 16 >> w.trailing_zeros().min(4)).max().unwrap_or(1);
        let each = (ROOM / row / least * least).max(least);
        if !words || each * row > MOST || count < each {
            return None;
        }
        let mut before = 0;
        let parts = widths.into_iter().map(|w| {
            before += w as u32;
            [w as u32, before - w as u32]
        });
        Some(Rows { join: kind.join, size: size as u32, row: row as u32, parts: parts.collect(), count, each })
    }

    /// A workgroup's run of an operand that has so many bytes of a row.
    fn run(&self, w: &mut Writer, cx: &Cx, arg: Arg, bytes: u32, most: u32) -> Run {
        let group = w.b.workgroup_id(0);
        let (of_group, all) = (self.each as u32 * bytes, self.count * bytes as usize);
        let start = cx.view(arg).offset as usize * cx.dtype(arg).size();
        let from = w.b.mul(group, of_group);
        let ends = (!self.count.is_multiple_of(self.each)).then_some(all as u32);
        let unit = runs::widest(most, &[of_group as usize, all, start]);
        Run { unit, bytes: of_group, items: WORKGROUP, from, start: start as u32, ends }
    }

    /// Where in LDS the elements of an access of a part are, behind the rows' first byte: of lanes that have none in a place of their own behind the rows, or in their first one.
    fn places(
        &self,
        w: &mut Writer,
        run: &Run,
        [bytes, before]: [u32; 2],
        turn: u32,
        own: Part,
        inside: Option<Part>,
    ) -> Vec<Part> {
        let (shift, count, columns) = (self.size.trailing_zeros(), run.unit / self.size, bytes / self.size);
        let first = if turn > 0 { w.b.add(own, turn * run.of_turn()) } else { own };
        let element = w.b.shr(first, shift);
        let below = u64::from(((turn + 1) * run.of_turn()) >> shift) + u64::from(count);
        let ahead = if before > 0 { w.b.add(first, before) } else { first };
        let aside = inside.map(|mask| {
            let aside = if self.join { w.b.add(own, self.each as u32 * self.row) } else { w.b.to_vector(0u32) };
            (mask, aside)
        });
        let masked = |w: &mut Writer, at: Part| aside.map_or(at, |(mask, aside)| w.b.select(mask, at, aside));
        let others = self.row - bytes;
        if columns < count && count > 1 {
            // Several rows in an access.
            let of = |e: u32| {
                let element = if e > 0 { w.b.add(element, e) } else { element };
                let (row, _) = w.b.divmod_below(element, columns, below);
                let at = w.b.mad(row, others, ahead);
                masked(w, at)
            };
            return (0..count).map(of).collect();
        }
        let (row, column) = w.b.divmod_below(element, columns, below);
        let at = w.b.mad(row, others, ahead);
        let own = masked(w, at);
        if columns.is_multiple_of(count) {
            return vec![own; count as usize];
        }
        let next = w.b.add(at, others);
        let next = masked(w, next);
        let column = w.b.to_vector(column);
        let mut of = |e: u32| {
            let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(columns - e).into(), column.into()]);
            w.b.select(inside, own, next)
        };
        (0..count).map(|e| if e == 0 { own } else { of(e) }).collect()
    }

    /// Writes the elements of an access to LDS.
    fn scatter(&self, w: &mut Writer, places: &[Part], data: Part) {
        let per_word = 4 / self.size;
        for (e, at) in (0..).zip(places) {
            let (word, place, ahead) = (data.dword((e / per_word) as u8), e % per_word, e * self.size);
            let high = self.size == 2 && w.b.target().has(op::DS_WRITE_B16_D16_HI);
            let word = if place > 0 && !high { w.b.shr(word, place * self.size * 8) } else { word };
            match self.size {
                1 => w.b.lds_write_byte(*at, word, ahead),
                2 => w.b.lds_write_half(*at, word, high && place > 0, ahead),
                _ => w.b.lds_write(*at, word, ahead),
            }
        }
    }

    /// Reads them.
    fn gather(&self, w: &mut Writer, places: &[Part]) -> Part {
        let read = |w: &mut Writer, (e, at): (u32, &Part)| match self.size {
            1 => w.b.lds_read_byte(*at, e),
            2 => w.b.lds_read_half(*at, e * 2),
            _ => w.b.lds_read(1, *at, e * 4),
        };
        let all: Vec<Part> = (0..).zip(places).map(|place| read(w, place)).collect();
        let data = w.b.v((places.len() as u32 * self.size / 4) as u8);
        for (d, some) in (0..).zip(all.chunks((4 / self.size) as usize)) {
            let word = values::packed(&mut w.b, self.size, some);
            w.b.copy_into(data.dword(d), word);
        }
        data
    }
}

/// Whether the step is computed this way, and sooner so: parts end within lines of memory, which would be moved for each of them.
pub(super) fn pays(cx: &Cx) -> bool {
    let StepKind::Parts(kind) = &cx.step.kind else { return false };
    let Some(rows) = Rows::of(cx, kind) else { return false };
    let machine = Machine::of(cx.target);
    let apart = rows.parts.iter().any(|p| !p[0].is_multiple_of(machine.line));
    let shortest = rows.parts.iter().map(|p| p[0]).min().unwrap_or(0) as usize;
    let long = if machine.takes_results { LONG_IN_CACHE } else { LONG };
    apart && shortest < long && rows.count / rows.each >= ENOUGH / 2 * cx.target.cus() as usize
}

pub(super) fn lower(cx: &Cx, kind: &fused::Parts) -> Res<Vec<Kernel>> {
    let rows = Rows::of(cx, kind).ok_or(super::Reason::Malformed("rows that are too long"))?;
    let (whole, parts) = arguments(kind);
    let mut w = cx.kernel(WORKGROUP);
    let buf = w.buffer(cx, whole)?;
    let all = rows.run(&mut w, cx, whole, rows.row, 16);
    let mut runs = Vec::new();
    for (arg, part) in parts.iter().zip(&rows.parts) {
        let own = w.buffer(cx, *arg)?;
        runs.push((rows.run(&mut w, cx, *arg, part[0], TOGETHER * rows.size.max(1)), own, *part));
    }
    let widest = runs.iter().map(|r| r.0.of_turn()).max().unwrap_or(0);
    // Behind the rows there is room for lanes that have nothing.
    let room = if rows.join { all.bytes + widest } else { all.bytes.next_multiple_of(all.of_turn()) };
    let base = w.b.lds(room);
    debug_assert_eq!(base, 0);
    if rows.join {
        let loaded: Vec<Vec<Loaded>> = runs.iter().map(|(run, buf, _)| run.load(&mut w, *buf, run.bytes)).collect();
        for ((run, _, part), loaded) in runs.iter().zip(loaded) {
            for (turn, x) in (0..).zip(loaded) {
                let places = rows.places(&mut w, run, *part, turn, x.own, x.inside);
                rows.scatter(&mut w, &places, x.data);
            }
        }
        w.b.barrier();
        all.empty(&mut w, buf, base);
    } else {
        let loaded = all.load(&mut w, buf, all.bytes);
        all.fill(&mut w, loaded, base);
        w.b.barrier();
        for (run, buf, part) in &runs {
            for turn in 0..run.turns(run.bytes) {
                let (at, own, inside) = run.place(&mut w, turn);
                let places = rows.places(&mut w, run, *part, turn, own, inside);
                let data = rows.gather(&mut w, &places);
                let (v, s, imm) = at.operands(&mut w.b);
                w.b.store(*buf, data, v, s, imm);
            }
        }
    }
    Ok(vec![w.finish([rows.count.div_ceil(rows.each) as u32, 1, 1], 0)])
}
