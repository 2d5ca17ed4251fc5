//! Elementwise steps whose elements change places within short blocks of memory: transpositions of many small matrices, channels of small images that go last.
//!
//! A workgroup has some blocks at a time, which are a run of memory on both sides. It moves runs in wide accesses, wherever rows of blocks begin in lines of memory: to
//! LDS as they lie, there element by element to where they belong, and on. Where an element comes from is the same for all runs: it is found once. Elements that are
//! taken together often lie a multiple of all banks apart: so some bytes are left out behind every so many.

use super::choice::Machine;
use super::error::Res;
use super::lines::ENOUGH;
use super::runs::{self, Run};
use super::{Arg, Cx, Kernel, Writer, address};
use crate::mir::{Gen, Part, Pipeline, Type};

/// Workitems of a workgroup, and elements of each at most.
const WORKGROUPS: [u32; 2] = [256, 1024];
const ELEMENTS: usize = 32;

/// Bytes of a run, about and at most, and runs of a workgroup where there are enough.
const ROOM: usize = 8 << 10;
const MOST: usize = 25 << 10;
const TURNS: [usize; 4] = [8, 4, 2, 1];

/// Bytes in LDS behind which some are left out, and how many.
const BANKS: u32 = 128;
const APART: u32 = 16;

/// See the module's documentation.
pub(super) struct Shuffled {
    /// Bytes of an element.
    size: usize,
    /// Extents of a run, the number of blocks first, and how far elements lie apart along them before.
    dims: Vec<usize>,
    strides: Vec<usize>,
    /// Bytes of a run, and runs of a workgroup.
    bytes: usize,
    turns: usize,
    workgroup: u32,
}

/// Extents and strides, in any order, are of elements that lie together.
fn lie_together(dims: &[usize], strides: &[i64]) -> bool {
    let mut sorted: Vec<(i64, usize)> = strides.iter().copied().zip(dims.iter().copied()).filter(|x| x.1 > 1).collect();
    sorted.sort_unstable();
    let mut apart = 1;
    sorted.iter().all(|(stride, n)| {
        let fits = *stride == apart;
        apart *= *n as i64;
        fits
    })
}

impl Shuffled {
    /// How the step is computed this way, if it is.
    pub fn of(cx: &Cx) -> Option<Shuffled> {
        let ([a], out) = (&cx.step.inputs[..], &cx.step.output) else { return None };
        let (size, rank) = (cx.dtype(Arg::Output).size(), out.view.rank());
        let plain = a.is_plain() && out.is_plain() && out.view.is_dense();
        let alike = cx.dtype(Arg::Input(0)).size() == size && matches!(size, 1 | 2 | 4);
        if !cx.moves || !plain || !alike || rank < 2 || a.view.strides[rank - 1] <= 1 {
            return None;
        }
        // Neighbours would still meet in few banks.
        if (a.view.strides[rank - 1] as usize * size).is_multiple_of(2 * BANKS as usize) {
            return None;
        }
        let (dims, from, to) = (&out.view.dims, &a.view.strides, &out.view.strides);
        let is_block = |first: &usize| {
            let outside = (0..*first).all(|d| dims[d] == 1 || from[d] == to[d]);
            outside && lie_together(&dims[*first..], &from[*first..])
        };
        let first = (0..rank - 1).rev().find(is_block)?;
        let block: usize = dims[first..].iter().product();
        let count = out.view.len() / block;
        // Tiles are moved as quickly where rows are whole lines of memory.
        let line = Machine::of(cx.target).line as usize;
        let row = (first..rank).find(|d| from[*d] == 1 && dims[*d] > 1).map_or(1, |d| dims[d]);
        if [row, dims[rank - 1]].iter().all(|n| (n * size).is_multiple_of(line)) {
            return None;
        }
        let starts = [a.view.offset, out.view.offset].map(|at| at as usize * size);
        let words = |bytes: usize| bytes.is_multiple_of(4);
        let runs = (1..=MOST / (block * size)).map(|n| n * block * size).filter(|n| *n >= ROOM / 2 && words(*n));
        let bytes = runs.max_by_key(|n| (runs::widest(16, &[*n]), std::cmp::Reverse(n.abs_diff(ROOM))))?;
        let each = bytes / (block * size);
        let workgroup = WORKGROUPS.into_iter().find(|n| bytes / size <= ELEMENTS * *n as usize)?;
        let groups = |turns: usize| count.div_ceil(each * turns);
        // As many runs as waves need to begin no slower than memory feeds them, and more for what is found once.
        let turns = TURNS.into_iter().find(|n| groups(*n) >= ENOUGH * cx.target.cus() as usize)?;
        if !words(out.view.len() * size) || !starts.into_iter().all(words) {
            return None;
        }
        let dims = [&[each], &dims[first..]].concat();
        let strides = [block].into_iter().chain(from[first..].iter().map(|s| *s as usize)).collect();
        Some(Shuffled { size, dims, strides, bytes, turns, workgroup })
    }

    /// Where the element that belongs to a place of the run is, in bytes.
    fn source(&self, w: &mut Writer, place: Part) -> Part {
        let coords = address::coordinates_of_item(&mut w.b, place, &self.dims);
        let mut at = None;
        for (c, stride) in coords.into_iter().zip(&self.strides) {
            let Some(c) = c else { continue };
            let stride = (stride * self.size) as u32;
            at = Some(match at {
                Some(at) => w.b.mad(c, stride, at),
                None => w.b.mul(c, stride),
            });
        }
        at.unwrap_or_else(|| w.b.to_vector(0u32))
    }

    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let out = &cx.step.output.view;
        let (size, bytes) = (self.size as u32, self.bytes as u32);
        let all = out.len() as u32 * size;
        let starts = [cx.step.inputs[0].view.offset, out.offset].map(|at| at as u32 * size);
        let mut w = cx.kernel(self.workgroup);
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        let unit = runs::widest(16, &[bytes as usize, all as usize, starts[0] as usize, starts[1] as usize]);
        let ends = (!all.is_multiple_of(bytes * self.turns as u32)).then_some(all);
        let run = |start: u32, from: Part| Run { unit, bytes, items: self.workgroup, from, start, ends };
        let of_turn = self.workgroup * unit;
        let (places, moved) = (bytes / size, bytes.div_ceil(of_turn) * of_turn);
        let steps = places.div_ceil(self.workgroup);
        let base = w.b.lds((moved / BANKS * (BANKS + APART)).max(steps * self.workgroup * size));
        let apart = |w: &mut Writer, at: Part| {
            let before = w.b.shr(at, BANKS.trailing_zeros());
            w.b.mad(before, APART, at)
        };
        let mut sources = Vec::new();
        for step in 0..steps {
            let mut place = if step > 0 { w.b.add(item, step * self.workgroup) } else { item };
            // What is behind the last place is left behind it.
            if (step + 1) * self.workgroup > places {
                place = w.b.op(Gen::Min.of(Type::U32), &[place.into(), (places - 1).into()]);
            }
            let source = self.source(&mut w, place);
            sources.push(apart(&mut w, source));
        }
        let to = w.b.mul(item, size);
        let own = w.b.mul(item, unit);
        let own = apart(&mut w, own);
        let buffers = [w.buffer(cx, Arg::Input(0))?, w.buffer(cx, Arg::Output)?];
        let node = w.b.begin_loop("runs");
        let number = w.b.mad(group, self.turns as u32, node.counter());
        let from = w.b.mul(number, bytes);
        let loaded = run(starts[0], from).load(&mut w, buffers[0], bytes);
        for (turn, x) in (0..).zip(loaded) {
            w.b.lds_write(own, x.data, base + turn * (of_turn / BANKS * (BANKS + APART)));
        }
        w.b.barrier();
        let read = |w: &mut Writer, source: &Part| match size {
            1 => w.b.lds_read_byte(*source, base),
            2 => w.b.lds_read_half(*source, base),
            _ => w.b.lds_read(1, *source, base),
        };
        let elements: Vec<Part> = sources.iter().map(|source| read(&mut w, source)).collect();
        w.b.barrier();
        for (step, x) in (0..).zip(elements) {
            let place = base + step * self.workgroup * size;
            match size {
                1 => w.b.lds_write_byte(to, x, place),
                2 => w.b.lds_write_half(to, x, false, place),
                _ => w.b.lds_write(to, x, place),
            }
        }
        w.b.barrier();
        run(starts[1], from).empty(&mut w, buffers[1], base);
        w.b.barrier();
        w.b.end_loop(node, self.turns as u32, 1, Pipeline::Off, false);
        let groups = all.div_ceil(bytes * self.turns as u32);
        Ok(vec![w.finish([groups, 1, 1], 0)])
    }
}
