//! Elementwise steps with operands whose neighbours lie along another dimension than the result's: transpositions.
//!
//! A workgroup takes a tile of the result: `along` elements of the innermost dimension by `across` elements of the one in which
//! those operands are dense. First its workitems go along that dimension and leave what they load in LDS, then they go along the
//! result's and compute, so that memory is read and written in whole lines. A workitem takes as many neighbours as fill a word,
//! in both.
//!
//! Where that dimension, or the operand's, is too short for a line of memory, those that lie next to it are taken with it: windows of 7x7 of
//! channels-last images become rows of an image of 56x56 in whole rows. The place along such dimensions together is one number, of
//! which a division makes coordinates.
//!
//! Where several dies have second-level caches of their own, and tiles have parts of lines, four tiles that lie together are one die's; and where lines of
//! memory end within tiles because rows begin anywhere in them, each die has a range of tiles, those along the operand's lines one after the other.
//!
//! In LDS an element has a row for its place along the result and a column for that along the operand. Of the
//! neighbours that a workitem takes at once, element `e` of group `g` has number `e * groups + g`, and rows are an odd
//! number of words apart, so that neighbouring workitems meet different banks both times. Bytes are bytes there, of which tiles have more.

use super::address::{self, Offset};
use super::choice::Machine;
use super::error::Res;
use super::integer;
use super::pointwise::{self, WORKGROUP};
use super::values::{self, Value, kind};
use super::{Arg, Cx, Kernel, Writer};
use crate::graph::fused::Access;
use crate::mir::{Gen, Part, Pipeline, Type};
use crate::tensor::DType;

/// The innermost dimension has at least so many elements; otherwise workitems that are neighbours read few lines anyway.
const SHORTEST: usize = 8;

/// Elements of a tile, and of one of bytes where each compute unit has so many of them at least; and bytes of LDS that it takes.
const ELEMENTS: usize = 4096;
const BYTES: usize = 16384;
const ROUNDS: usize = 2;
const LDS: usize = 36 << 10;

/// Bytes of a line of memory, of which a tile should take whole ones.
const LINE: usize = 128;

/// Workgroups for each compute unit below which tiles become smaller.
const ENOUGH: usize = 4;

/// See the module's documentation.
pub(super) struct Turned {
    /// The operands that are turned over, and how many neighbours of each a workitem loads at once.
    turned: Vec<(usize, usize)>,
    /// The dimensions that they are dense in together, the innermost one last; and those of the result.
    dense: Vec<usize>,
    line: Vec<usize>,
    /// Elements of a tile along the first ones, and along the others.
    across: usize,
    along: usize,
    /// Neighbours that a workitem stores at once.
    width: usize,
    /// How tiles are dealt out among so many dies; none where workgroups take them in order.
    dies: Option<(Dealt, u32)>,
}

/// How dies get tiles.
#[derive(Clone, Copy, PartialEq)]
enum Dealt {
    /// By fours that lie together.
    Blocks,
    /// Equal ranges, and what is left over in order.
    Ranges,
}

/// Tiles of a block that one die takes one after the other: two by two.
const BLOCK: usize = 4;

/// The dimension that an operand is dense in, where that is not the innermost one.
fn turned_along(a: &Access) -> Option<usize> {
    let d = a.view.rank().checked_sub(1)?;
    let positive = a.view.strides.iter().all(|s| *s >= 0);
    let dense = (0..d).find(|j| a.view.strides[*j] == 1 && a.view.dims[*j] > 1)?;
    (a.indirect.is_empty() && positive && a.view.strides[d] > 1).then_some(dense)
}

/// Bytes of an element in LDS, where it has them together.
fn unit(t: DType) -> u32 {
    if matches!(t, DType::I8 | DType::U8) { 1 } else { 4 }
}

/// True where an operand's guard lets all or none of the neighbours through that a workitem takes at once, along these dimensions.
fn is_guarded_in_words(a: &Access, along: &[usize]) -> bool {
    let Some(guard) = &a.guard else { return true };
    let whole = |d: &usize| guard.ranges[*d] == (0, a.view.dims[*d]);
    let in_words = |d: &usize| guard.ranges[*d].0.is_multiple_of(4) && guard.ranges[*d].1.is_multiple_of(4);
    along.iter().all(|d| whole(d) || in_words(d))
}

/// Neighbours along dimensions that fill a word, where all runs begin at whole words; otherwise 1.
fn in_words(t: DType, a: &Access, along: &[usize]) -> usize {
    let width = 4 / t.size().min(4);
    let whole = |n: i64| n % width as i64 == 0;
    let others = (0..a.view.rank()).filter(|d| !along.contains(d) && a.view.dims[*d] > 1);
    let aligned = whole(a.view.offset)
        && whole(extent(&a.view.dims, along) as i64)
        && others.map(|d| a.view.strides[d]).all(whole);
    if aligned { width } else { 1 }
}

/// The number that a workgroup has instead of its own, of so many, where each of so many dies has a range of them: dies get workgroups in turn. Those that are left
/// over keep theirs.
pub(super) fn in_range_of_die(w: &mut Writer, group: Part, all: u32, dies: u32) -> Part {
    let (turn, die) = w.b.divmod(group, dies);
    let own = w.b.mad(die, all / dies, turn);
    if all.is_multiple_of(dies) {
        return own;
    }
    // Behind the ranges, if it is not less than these have.
    let even = all - all % dies;
    let [own, last] = [own, group].map(|x| w.b.to_vector(x));
    let is_over = w.b.op(Gen::CmpLe.of(Type::U32), &[even.into(), last.into()]);
    let chosen = w.b.select(is_over, last, own);
    w.b.uniform(chosen)
}

/// Elements of dimensions together.
fn extent(dims: &[usize], group: &[usize]) -> usize {
    group.iter().map(|d| dims[*d]).product()
}

/// The dimensions in which accesses are dense together, from `last` on outwards until they are a line of memory; none of `taken`.
fn dense_together(accesses: &[(&Access, usize)], last: usize, taken: &[usize]) -> Vec<usize> {
    let mut group = vec![last];
    let dims = &accesses[0].0.view.dims;
    while accesses.iter().any(|(_, size)| extent(dims, &group) * size < LINE) {
        let own = extent(dims, &group) as i64;
        let next = |d: &usize| {
            let free = dims[*d] > 1 && !group.contains(d) && !taken.contains(d);
            free && accesses.iter().all(|(a, _)| a.view.strides[*d] == own)
        };
        match (0..dims.len()).find(next) {
            Some(d) => group.insert(0, d),
            None => break,
        }
    }
    group
}

impl Turned {
    /// How the step is computed this way, if it is.
    pub fn of(cx: &Cx) -> Option<Turned> {
        let out = &cx.step.output;
        let d = out.view.rank().checked_sub(1)?;
        let operands = || cx.step.inputs.iter().enumerate().filter_map(|(i, a)| Some((i, turned_along(a)?)));
        let dense = operands().map(|(_, j)| j).max_by_key(|j| out.view.dims[*j])?;
        let all: Vec<usize> = operands().filter(|(_, j)| *j == dense).map(|(i, _)| i).collect();
        let stored = out.view.strides[d] == 1 && out.view.strides.iter().all(|s| *s >= 0) && out.is_plain();
        let size = |i: usize| cx.dtype(Arg::Input(i)).size();
        let to = cx.dtype(Arg::Output).size();
        // Neighbours of the other operands are in the innermost dimension.
        let whole = all.len() == cx.step.inputs.len() || out.view.dims[d].is_multiple_of(4);
        let line = if whole && stored { dense_together(&[(out, to)], d, &[dense]) } else { vec![d] };
        let operands: Vec<(&Access, usize)> = all.iter().map(|i| (&cx.step.inputs[*i], size(*i))).collect();
        let dense = dense_together(&operands, dense, &line);
        let (rows, columns) = (extent(&out.view.dims, &dense), extent(&out.view.dims, &line));
        let guarded = operands.iter().all(|(a, _)| [&dense, &line].iter().all(|along| is_guarded_in_words(a, along)));
        if !stored || !guarded || columns < SHORTEST || out.view.len() < WORKGROUP as usize {
            return None;
        }
        let kept = |i: &usize| unit(cx.dtype(Arg::Input(*i))) as usize * size(*i).div_ceil(4);
        let bytes: usize = all.iter().map(kept).sum();
        // Few of so large tiles are no whole rounds of the compute units.
        let many = out.view.len() / BYTES >= ROUNDS * cx.target.cus() as usize;
        let elements = if bytes == 1 && to == 1 && many { BYTES } else { ELEMENTS };
        let most = elements.min((LDS / bytes.max(1)).next_power_of_two() / 2);
        let width = in_words(cx.dtype(Arg::Output), out, &line);
        let turned: Vec<_> =
            all.iter().map(|i| (*i, in_words(cx.dtype(Arg::Input(*i)), &cx.step.inputs[*i], &dense))).collect();
        let widest = turned.iter().map(|t| t.1).max().unwrap_or(1);
        // Tiles of the most elements, but for few of them; of what they cover as much as possible is there, in whole lines.
        let rest = out.view.len() / (rows * columns);
        let least = WORKGROUP as usize * width.max(widest);
        let from = size(all[0]);
        // Workgroups next to each other store parts of the same lines, which a cache that they share puts together.
        let others = (0..d).filter(|i| out.view.dims[*i] > 1 && !line.contains(i));
        let in_lines = others.map(|i| out.view.strides[i] * to as i64).all(|bytes| bytes % LINE as i64 == 0);
        let read_in_lines = operands.iter().all(|(a, size)| {
            let others = (0..=d).filter(|i| a.view.dims[*i] > 1 && !dense.contains(i));
            others.map(|i| a.view.strides[i] * *size as i64).all(|bytes| bytes % LINE as i64 == 0)
        });
        let machine = Machine::of(cx.target);
        let dealt = |across: usize, along: usize| {
            let tiles = [rows.div_ceil(across), columns.div_ceil(along)];
            let even = tiles.iter().all(|n| n.is_multiple_of(2));
            let blocks = rest * tiles[0] * tiles[1] / BLOCK;
            // Whole lines need no neighbours.
            let parts = across.min(rows) * from < LINE || along.min(columns) * to < LINE;
            (machine.dies > 1 && in_lines && even && parts && blocks.is_multiple_of(machine.dies as usize))
                .then_some((Dealt::Blocks, machine.dies))
        };
        let cost = |across: usize, along: usize| {
            let covered = |n: usize, of: usize| of.div_ceil(n) as f64 * n as f64 / of as f64;
            let lines = |n: usize, of: usize, size: usize| (LINE as f64 / (n.min(of) * size) as f64).max(1.0);
            let tiles = rest * rows.div_ceil(across) * columns.div_ceil(along);
            let few = (ENOUGH * cx.target.cus() as usize) as f64 / tiles as f64;
            let small = (most / (across * along)) as f64;
            let dealt = dealt(across, along).is_some();
            // A block is twice as wide and as high.
            let stored = match () {
                () if in_lines && machine.one_cache => 1.0,
                () if dealt => lines(2 * along, columns, to),
                () => lines(along, columns, to),
            };
            let runs = lines(if dealt { 2 * across } else { across }, rows, from) + stored;
            covered(across, rows) * covered(along, columns) * runs * few.max(1.0) * (1.0 + 0.02 * small)
        };
        let sides = || (1..10).map(|n| 1usize << n);
        let tiles = sides().flat_map(|across| sides().map(move |along| (across, along)));
        let fits = |&(across, along): &(usize, usize)| {
            let lanes = |n: usize, width: usize, other: usize| n >= width && n / width * other <= WORKGROUP as usize;
            (least..=most).contains(&(across * along))
                && turned.iter().all(|t| lanes(across, t.1, width))
                && lanes(along, width, widest)
        };
        let (across, along) = tiles.filter(fits).min_by(|x, y| cost(x.0, x.1).total_cmp(&cost(y.0, y.1)))?;
        let ranges = machine.dies > 1 && !(in_lines && read_in_lines);
        let dies = dealt(across, along).or(ranges.then_some((Dealt::Ranges, machine.dies)));
        Some(Turned { turned, dense, line, across, along, width, dies })
    }

    /// The innermost dimensions of the operand's and of the result's: where tiles are counted.
    fn sides(&self) -> [usize; 2] {
        [&self.dense, &self.line].map(|group| group.last().copied().unwrap_or(0))
    }

    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let out = &cx.step.output;
        let dims = &out.view.dims;
        let mut tiles = dims.clone();
        self.dense.iter().chain(&self.line).for_each(|d| tiles[*d] = 1);
        let [j, d] = self.sides();
        tiles[j] = extent(dims, &self.dense).div_ceil(self.across);
        tiles[d] = extent(dims, &self.line).div_ceil(self.along);
        let mut w = cx.kernel(WORKGROUP);
        let count = tiles.iter().product::<usize>();
        let turns = self.turns(cx, count);
        let mut group = w.b.workgroup_id(0);
        (0..cx.step.inputs.len())
            .map(Arg::Input)
            .chain([Arg::Output])
            .try_for_each(|arg| w.buffer(cx, arg).map(|_| ()))?;
        let node = (turns > 1).then(|| w.b.begin_loop("tiles"));
        if let Some(node) = &node {
            group = w.b.mad(group, turns, node.counter());
        }
        let mut first = self.tile(&mut w, group, &tiles);
        for (c, tile) in [(j, self.across), (d, self.along)] {
            first[c] = first[c].map(|t| w.b.mul(t, tile as u32));
        }
        let mut planes = Vec::new();
        for &(i, width) in &self.turned {
            let t = cx.dtype(Arg::Input(i));
            let base = w.b.lds(self.plane(t) * u32::from(values::computed(t).dwords()));
            self.fill(&mut w, cx, i, width, &first, base)?;
            planes.push((i, base));
        }
        w.b.barrier();
        self.compute(&mut w, cx, &planes, &first)?;
        if let Some(node) = node {
            // The next tile goes to the same place in LDS.
            w.b.barrier();
            w.b.end_loop(node, turns, 1, Pipeline::Off, false);
        }
        let flops = (dims.iter().product::<usize>() * cx.step.expr.cost()) as u64;
        Ok(vec![w.finish([count as u32 / turns, 1, 1], flops)])
    }

    /// Tiles that a workgroup takes one after the other, of so many: several where it would otherwise move less than memory does while its waves begin.
    fn turns(&self, cx: &Cx, count: usize) -> u32 {
        let machine = Machine::of(cx.target);
        let size = |arg| cx.dtype(arg).size();
        let moved: usize = self.turned.iter().map(|t| size(Arg::Input(t.0))).sum::<usize>() + size(Arg::Output);
        let of_tile = (moved * cx.step.output.view.len() / count) as f64;
        let begun = machine.dispatch * f64::from(WORKGROUP / cx.target.info().wave_size);
        let fed = |turns: usize| turns as f64 * of_tile >= machine.memory * begun;
        let fits = |n: usize| count.is_multiple_of(n) && count / n >= 4 * ENOUGH * cx.target.cus() as usize;
        let most = if self.dies.is_some() { 1 } else { 4 };
        (1..=most).find(|n| fed(*n) && fits(*n)).unwrap_or(1) as u32
    }

    /// Which tile the workgroup takes. Dies get workgroups in turn: number `4 n + i` of a die's takes tile `i` of the die's block `n`, so that the parts
    /// of a line that neighbouring tiles have meet in one second-level cache.
    fn tile(&self, w: &mut Writer, group: Part, tiles: &[usize]) -> Vec<Option<Part>> {
        let Some((dealt, dies)) = self.dies else { return address::coordinates(&mut w.b, group, tiles) };
        if dealt == Dealt::Ranges {
            return self.tile_of_range(w, group, tiles, dies);
        }
        let (turn, die) = w.b.divmod(group, dies);
        let block = w.b.shr(turn, BLOCK.trailing_zeros());
        let block = w.b.mad(block, dies, die);
        let sides = self.sides();
        let mut blocks = tiles.to_vec();
        sides.iter().for_each(|d| blocks[*d] /= 2);
        let mut first = address::coordinates(&mut w.b, block, &blocks);
        for (n, d) in (0u32..).zip(sides) {
            let side = w.b.shr(turn, n);
            let side = w.b.and(side, 1u32);
            first[d] = Some(match first[d] {
                Some(block) => w.b.mad(block, 2u32, side),
                None => side,
            });
        }
        first
    }

    /// Which tile the workgroup takes where each of so many dies has a range of them, in which those along the operand's lines are next to each other: parts
    /// of lines that neighbours have, read or written, meet in its second-level cache.
    fn tile_of_range(&self, w: &mut Writer, group: Part, tiles: &[usize], dies: u32) -> Vec<Option<Part>> {
        let tile = in_range_of_die(w, group, tiles.iter().product::<usize>() as u32, dies);
        let [j, _] = self.sides();
        let order: Vec<usize> = (0..tiles.len()).filter(|i| *i != j).chain([j]).collect();
        let dims: Vec<usize> = order.iter().map(|i| tiles[*i]).collect();
        let mut first = vec![None; tiles.len()];
        for (i, c) in order.into_iter().zip(address::coordinates(&mut w.b, tile, &dims)) {
            first[i] = c;
        }
        first
    }

    /// Bytes between rows in LDS.
    fn pitch(&self, t: DType) -> u32 {
        ((self.across as u32 * unit(t)).div_ceil(4) | 1) * 4
    }

    /// Bytes of a word of each element, or of each byte.
    fn plane(&self, t: DType) -> u32 {
        self.along as u32 * self.pitch(t)
    }

    /// Which lanes, that begin at `at` of the tile and `ahead` behind that, are inside of a dimension.
    fn inside(
        &self,
        w: &mut Writer,
        extent: usize,
        first: Option<Part>,
        tile: usize,
        at: Part,
        ahead: u32,
    ) -> Option<Part> {
        if extent.is_multiple_of(tile) {
            return None;
        }
        let at = match first {
            Some(first) => w.b.add(first, at),
            None => at,
        };
        let at = if ahead > 0 { w.b.add(at, ahead) } else { at };
        Some(w.b.op(Gen::CmpGt.of(Type::U32), &[(extent as u32).into(), at.into()]))
    }

    /// Loads the tile of an operand to LDS.
    fn fill(&self, w: &mut Writer, cx: &Cx, i: usize, width: usize, first: &[Option<Part>], base: u32) -> Res<()> {
        let access = &cx.step.inputs[i];
        let (dims, [j, d], t) = (&access.view.dims, self.sides(), cx.dtype(Arg::Input(i)));
        let buf = w.buffer(cx, Arg::Input(i))?;
        let item = w.b.workitem_id();
        let groups = (self.across / width) as u32;
        let (column, row) = (w.b.and(item, groups - 1), w.b.shr(item, groups.trailing_zeros()));
        let at = if width > 1 { w.b.mul(column, width as u32) } else { column };
        let mask = self.inside(w, extent(dims, &self.dense), first[j], self.across, at, 0);
        let offset_of = |w: &mut Writer, row: Part| {
            let coords = self.coords(w, dims, first, at, row);
            let mut offset = address::offset(&mut w.b, &access.view, t.size(), &coords);
            let inside = pointwise::guard(w, access, &coords);
            if inside.is_some() {
                // What the guard leaves out may lie before the operand: nothing is added behind it.
                offset = Offset { reg: Some(offset.vector_with(&mut w.b)), imm: 0 };
            }
            offset.within(&mut w.b, mask).within(&mut w.b, inside)
        };
        let offset = offset_of(w, row);
        // Rows are numbered so that those which are stored together are a part of the tile apart.
        let rows = (self.along / self.width) as u32;
        let number = if self.width > 1 {
            let (part, within) = (w.b.and(row, self.width as u32 - 1), w.b.shr(row, self.width.trailing_zeros()));
            w.b.mad(part, rows, within)
        } else {
            row
        };
        let (unit, pitch) = (unit(t), self.pitch(t));
        let to = w.b.mul(number, pitch);
        let column = w.b.mul(column, unit);
        let to = w.b.add(column, to);
        let step = WORKGROUP / groups;
        let chunks = (self.across * self.along) as u32 / WORKGROUP / width as u32;
        let mut loaded = Vec::new();
        for c in 0..chunks {
            let ahead = (i64::from(c * step) * access.view.strides[d] * t.size() as i64) as u32;
            let mut from = Offset { imm: offset.imm + ahead, ..offset };
            if c > 0 && (self.line.len() > 1 || access.guard.is_some()) {
                let row = w.b.add(row, c * step);
                from = offset_of(w, row);
            }
            if let Some(mask) = self.inside(w, extent(dims, &self.line), first[d], self.along, row, c * step) {
                from = from.within(&mut w.b, mask);
            }
            loaded.push(values::load_some(&mut w.b, t, buf, from, width as u32));
        }
        for (c, elements) in loaded.into_iter().enumerate() {
            let place = base + c as u32 * step / self.width as u32 * pitch;
            for (e, x) in elements.into_iter().enumerate() {
                let place = place + e as u32 * groups * unit;
                match x {
                    Value::Pair(p) => (0..2).for_each(|half| {
                        w.b.lds_write(to, p.dword(half), place + u32::from(half) * self.plane(t));
                    }),
                    Value::Mask(m) => {
                        let one = w.b.to_vector(1u32);
                        let word = w.b.select(m, one, 0u32);
                        w.b.lds_write(to, word, place);
                    }
                    x => {
                        let word = x.reg(&mut w.b);
                        match unit {
                            1 => w.b.lds_write_byte(to, word, place),
                            _ => w.b.lds_write(to, word, place),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Coordinates in the step of an element of the tile.
    fn coords(
        &self,
        w: &mut Writer,
        dims: &[usize],
        first: &[Option<Part>],
        across: Part,
        along: Part,
    ) -> Vec<Option<Part>> {
        let mut coords = first.to_vec();
        for ((c, group), within) in self.sides().into_iter().zip([&self.dense, &self.line]).zip([across, along]) {
            let at = match first[c] {
                Some(first) => w.b.add(first, within),
                None => within,
            };
            let extents: Vec<usize> = group.iter().map(|d| dims[*d]).collect();
            if group.len() == 1 {
                coords[c] = Some(at);
                continue;
            }
            let at = w.b.to_vector(at);
            for (d, own) in group.iter().zip(address::coordinates(&mut w.b, at, &extents)) {
                coords[*d] = own;
            }
        }
        coords
    }

    /// Computes the tile and stores it.
    fn compute(&self, w: &mut Writer, cx: &Cx, planes: &[(usize, u32)], first: &[Option<Part>]) -> Res<()> {
        let out = &cx.step.output;
        let (dims, [j, d], size) = (&out.view.dims, self.sides(), cx.dtype(Arg::Output).size());
        let item = w.b.workitem_id();
        let groups = (self.along / self.width) as u32;
        let (group, line) = (w.b.and(item, groups - 1), w.b.shr(item, groups.trailing_zeros()));
        let at = if self.width > 1 { w.b.mul(group, self.width as u32) } else { group };
        let mask = self.inside(w, extent(dims, &self.line), first[d], self.along, at, 0);
        let place_of = |w: &mut Writer, line: Part| {
            let coords = self.coords(w, dims, first, line, at);
            let mut offset = address::offset(&mut w.b, &out.view, size, &coords);
            offset = offset.within(&mut w.b, mask);
            (coords, offset)
        };
        let (coords, offset) = place_of(w, line);
        let step = WORKGROUP / groups;
        let chunks = (self.across * self.along) as u32 / WORKGROUP / self.width as u32;
        // Where a workitem's first element of each operand is.
        let places: Vec<Part> = self
            .turned
            .iter()
            .map(|&(i, width)| {
                let t = cx.dtype(Arg::Input(i));
                let row = w.b.mul(group, self.pitch(t));
                let columns = (self.across / width) as u32;
                let number = if width > 1 {
                    let (part, within) = (w.b.and(line, width as u32 - 1), w.b.shr(line, width.trailing_zeros()));
                    w.b.mad(part, columns, within)
                } else {
                    line
                };
                let number = w.b.mul(number, unit(t));
                w.b.add(number, row)
            })
            .collect();
        for c in 0..chunks {
            let (mut operands, mut known) = (Vec::new(), Vec::new());
            let ahead = (i64::from(c * step) * out.view.strides[j] * size as i64) as u32;
            let mut to = Offset { imm: offset.imm + ahead, ..offset };
            let mut coords = coords.clone();
            if c > 0 && self.dense.len() > 1 {
                let line = w.b.add(line, c * step);
                (coords, to) = place_of(w, line);
            } else {
                coords[j] = coords[j].map(|x| if c > 0 { w.b.add(x, c * step) } else { x });
            }
            for i in 0..cx.step.inputs.len() {
                if let Some(k) = planes.iter().position(|p| p.0 == i) {
                    let width = self.turned[k].1 as u32;
                    let t = cx.dtype(Arg::Input(i));
                    let place = planes[k].1 + c * step / width * unit(t);
                    let mut read = self.read(w, cx, t, places[k], place);
                    let access = &cx.step.inputs[i];
                    let inside = pointwise::guard(w, access, &coords);
                    pointwise::fill(w, cx, i, access, inside, &mut read)?;
                    operands.push(read);
                } else {
                    operands.push(pointwise::load(w, cx, i, &coords, self.width, &mut known)?);
                }
            }
            if let Some(mask) = self.inside(w, extent(dims, &self.dense), first[j], self.across, line, c * step) {
                to = to.within(&mut w.b, mask);
            }
            pointwise::finish(w, cx, &operands, self.width, to)?;
        }
        Ok(())
    }

    /// Neighbours of the result's innermost dimension, from LDS.
    fn read(&self, w: &mut Writer, cx: &Cx, t: DType, at: Part, place: u32) -> Vec<Value> {
        let rows = (self.along / self.width) as u32 * self.pitch(t);
        let elements = (0..self.width as u32).map(|e| {
            let place = place + e * rows;
            match kind(t) {
                values::Kind::Long { .. } | values::Kind::Double => {
                    let p = w.b.v(2);
                    (0..2u8)
                        .for_each(|half| w.b.lds_read_into(p.dword(half), at, place + u32::from(half) * self.plane(t)));
                    Value::Pair(p)
                }
                values::Kind::Bool => {
                    let x = w.b.lds_read(1, at, place);
                    Value::Mask(w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), x.into()]))
                }
                _ if unit(t) == 1 => {
                    let byte = w.b.lds_read_byte(at, place);
                    // What is but moved needs no sign.
                    Value::Word(if cx.step.expr.is_copy() { byte } else { integer::wrap(&mut w.b, byte, t) }.into())
                }
                _ => Value::Word(w.b.lds_read(1, at, place).into()),
            }
        });
        elements.collect()
    }
}
