//! Running sums and products: each workitem scans what it has loaded, its team scans what its members' come to, and a round goes on from what the
//! rounds before came to.
//!
//! Where elements of a line lie together a member's share of a round is several chunks, so that what the team loads at once lies together, and
//! the team scans for each chunk: rows of 16 lanes by DPP shifts, the rows of a wave by what their last lanes read out as scalars, and
//! the waves of a workgroup in LDS, where every wave scans what all waves' chunks come to, one in each lane, for itself. Of columns a member
//! takes neighbours of a column, and the team, which is spread over the workgroup, adds up in LDS once a round. Every order is fixed.

use super::address;
use super::choice::{KEPT, Machine};
use super::error::{Reason, Res};
use super::lines::{self, Chunk, Lines, Shape};
use super::published::{self, Combine, Pieces};
use super::reduce::{apply, held, literal};
use super::staged::{Staged, Work};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, expr, lanes};
use crate::graph::Cuts;
use crate::graph::fused::{Scan, Step, StepKind};
use crate::graph::view::View;
use crate::mir::{Gen, Opnd, Part, Type};
use crate::tensor::DType;
use barewave_isa::{Target, op};

/// DPP controls: each lane of a row of 16 takes what the one so many before it has, the first ones nothing.
const SHIFT: i32 = 0x110;

/// What is hoisted of a team: masks of members.
struct Team<'a> {
    scan: &'a Scan,
    lines: &'a Lines,
    /// Members, or lanes of a row, whose number is at least 1, 2, 4 and 8.
    beyond: Vec<Part>,
    /// Lanes from the second row on, from the third on and so on.
    rows: Vec<Part>,
    /// Of several waves: where a workitem leaves what its wave's chunk came to, its lane, and its wave's number.
    waves: Option<[Part; 3]>,
}

/// What lies before a member's share of each run, and before the next round; nothing where that is nothing.
type Before = (Vec<Option<Part>>, Option<Part>);

impl<'a> Team<'a> {
    fn new(w: &mut Writer, scan: &'a Scan, lines: &'a Lines) -> Team<'a> {
        let (wave, team) = (w.b.wave_size(), lines.team());
        let item = w.b.workitem_id();
        let mut out = Team { scan, lines, beyond: Vec::new(), rows: Vec::new(), waves: None };
        if team == 1 || lines.beside().is_some() {
            return out;
        }
        let at_least = |w: &mut Writer, n: u32, x: Part| w.b.op(Gen::CmpGe.of(Type::U32), &[x.into(), n.into()]);
        let row = team.min(lanes::ROW);
        let in_row = w.b.and(item, row - 1);
        out.beyond = [1, 2, 4, 8].into_iter().filter(|n| *n < row).map(|n| at_least(w, n, in_row)).collect();
        if team > lanes::ROW {
            let lane = w.b.and(item, wave - 1);
            out.rows = (1..wave / lanes::ROW).map(|n| at_least(w, n * lanes::ROW, lane)).collect();
        }
        if team > wave {
            let home = w.b.shl(item, 2u32);
            let lane = w.b.and(item, wave - 1);
            let number = w.b.shr(item, wave.trailing_zeros());
            out.waves = Some([home, lane, w.b.uniform(number)]);
        }
        out
    }

    fn apply(&self, w: &mut Writer, x: Part, y: Part) -> Res<Part> {
        apply(w, self.scan.dtype, self.scan.op(), x, Value::of(self.scan.dtype, y))
    }

    /// Of two values that may be nothing.
    fn after(&self, w: &mut Writer, x: Option<Part>, y: Option<Part>) -> Res<Option<Part>> {
        match (x, y) {
            (Some(x), Some(y)) => Ok(Some(self.apply(w, x, y)?)),
            (x, y) => Ok(x.or(y)),
        }
    }

    fn neutral(&self, w: &mut Writer) -> Res<Part> {
        let v = literal(w, self.scan.dtype, self.scan.neutral())?;
        Ok(held(w, v))
    }

    fn select(&self, w: &mut Writer, mask: Part, x: Part, y: Part) -> Part {
        let t = self.scan.dtype;
        values::select(&mut w.b, mask, Value::of(t, x), Value::of(t, y)).whole(&mut w.b)
    }

    /// What lies before each lane in its row of the team, and up to it.
    fn of_row(&self, w: &mut Writer, x: Part) -> Res<[Part; 2]> {
        let shifted =
            |w: &mut Writer, x: Part, by: i32| lanes::each_dword(&mut w.b, x, |b, x| lanes::moved(b, x, SHIFT + by));
        let mut all = x;
        for (bit, mask) in self.beyond.iter().enumerate() {
            let other = shifted(w, all, 1 << bit);
            let sum = self.apply(w, other, all)?;
            all = self.select(w, *mask, sum, all);
        }
        let before = shifted(w, all, 1);
        let none = self.neutral(w)?;
        let before = match self.beyond.first() {
            Some(mask) => self.select(w, *mask, before, none),
            None => none,
        };
        Ok([before, all])
    }

    /// The same in a wave; instead of up to it, of all.
    fn of_wave(&self, w: &mut Writer, x: Part) -> Res<[Part; 2]> {
        let [before, all] = self.of_row(w, x)?;
        let of = |w: &mut Writer, row: u32| {
            lanes::each_dword(&mut w.b, all, |b, x| {
                let s = b.op(op::V_READLANE_B32, &[x.into(), (row * lanes::ROW + lanes::ROW - 1).into()]);
                b.to_vector(s)
            })
        };
        let rows: Vec<Part> = (0..=self.rows.len() as u32).map(|row| of(w, row)).collect();
        let mut sum = rows[0];
        let mut own = self.neutral(w)?;
        for (row, mask) in rows[1..].iter().zip(&self.rows) {
            own = self.select(w, *mask, sum, own);
            sum = self.apply(w, sum, *row)?;
        }
        Ok([self.apply(w, own, before)?, sum])
    }

    /// What lies before each member's runs, of what these come to, and before the next round: behind `carry`. `again`: LDS was used before.
    fn scan(&self, w: &mut Writer, runs: &[Part], carry: Option<Part>, again: bool) -> Res<Before> {
        let (wave, team) = (w.b.wave_size(), self.lines.team());
        if let Some(beside) = self.lines.beside().filter(|_| team > 1) {
            return self.of_column(w, runs, carry, [team, beside], again);
        }
        let mut before = Vec::new();
        let mut carry = carry;
        let Some([home, lane, number]) = self.waves else {
            for run in runs {
                let (own, all) = match team {
                    1 => (None, *run),
                    _ if team < wave => {
                        let [own, _] = self.of_row(w, *run)?;
                        (
                            Some(own),
                            lanes::combine(w, team, &[*run], |w, x, y| Ok(vec![self.apply(w, x[0], y[0])?]))?[0],
                        )
                    }
                    _ => {
                        let [own, all] = self.of_wave(w, *run)?;
                        (Some(own), all)
                    }
                };
                before.push(self.after(w, carry, own)?);
                carry = self.after(w, carry, Some(all))?;
            }
            return Ok((before, carry));
        };
        let (waves, dwords) = (team / wave, u32::from(runs[0].len));
        let most = wave / waves;
        let plane = most.min(runs.len() as u32) * team * 4;
        let base = self.lines.kept(w, plane * dwords);
        for (n, some) in runs.chunks(most as usize).enumerate() {
            if again || n > 0 {
                w.b.barrier();
            }
            let mut own = Vec::new();
            for (k, run) in (0..).zip(some) {
                let [before, all] = self.of_wave(w, *run)?;
                own.push(before);
                for d in 0..all.len {
                    w.b.lds_write(home, all.dword(d), base + u32::from(d) * plane + k * team * 4);
                }
            }
            w.b.barrier();
            // Entries of all chunks' waves in their order, each as far from the next as a wave's lanes lie; lanes beyond them read the last.
            let last = some.len() as u32 * waves;
            let entry = match last < wave {
                true => w.b.generic(Gen::Min.of(Type::U32), &[lane.into(), (last - 1).into()]),
                false => lane,
            };
            let found = w.b.mul(entry, wave * 4);
            let read = w.b.v(runs[0].len);
            for d in 0..read.len {
                w.b.lds_read_into(read.dword(d), found, base + u32::from(d) * plane);
            }
            let [others, all] = self.of_wave(w, read)?;
            let of_lane = |w: &mut Writer, lane: Opnd| {
                lanes::each_dword(&mut w.b, others, |b, x| {
                    let s = b.op(op::V_READLANE_B32, &[x.into(), lane]);
                    b.to_vector(s)
                })
            };
            let whole = if last < wave { of_lane(w, last.into()) } else { all };
            for (k, own) in (0..).zip(own) {
                let lane = w.b.add(number, k * waves);
                let theirs = of_lane(w, lane.into());
                let theirs = self.after(w, carry, Some(theirs))?;
                before.push(self.after(w, theirs, Some(own))?);
            }
            carry = self.after(w, carry, Some(whole))?;
        }
        Ok((before, carry))
    }

    /// The same of columns, which have one run.
    fn of_column(
        &self,
        w: &mut Writer,
        runs: &[Part],
        carry: Option<Part>,
        [team, beside]: [u32; 2],
        again: bool,
    ) -> Res<Before> {
        let [run] = runs[..] else { return Err(Reason::Malformed("columns of several runs")) };
        let plane = team * beside * 4;
        let base = self.lines.kept(w, plane * u32::from(run.len));
        let item = w.b.workitem_id();
        let (home, column) = (w.b.shl(item, 2u32), w.b.and(item, beside - 1));
        let (start, member) = (w.b.shl(column, 2u32), w.b.shr(item, beside.trailing_zeros()));
        if again {
            w.b.barrier();
        }
        for d in 0..run.len {
            w.b.lds_write(home, run.dword(d), base + u32::from(d) * plane);
        }
        w.b.barrier();
        let found: Vec<Part> = (0..team)
            .map(|m| {
                let p = w.b.v(run.len);
                for d in 0..run.len {
                    w.b.lds_read_into(p.dword(d), start, base + u32::from(d) * plane + m * beside * 4);
                }
                p
            })
            .collect();
        let mut own = match carry {
            Some(carry) => carry,
            None => self.neutral(w)?,
        };
        let mut sum = carry;
        for (m, theirs) in (1..).zip(found) {
            sum = self.after(w, sum, Some(theirs))?;
            if let Some(sum) = sum.filter(|_| m < team) {
                let mask = w.b.op(Gen::CmpEq.of(Type::U32), &[m.into(), member.into()]);
                own = self.select(w, mask, sum, own);
            }
        }
        Ok((vec![Some(own)], sum))
    }
}

impl Combine for Team<'_> {
    fn both(&self, w: &mut Writer, first: Part, second: Part) -> Res<Part> {
        self.apply(w, first, second)
    }

    fn of_wave(&self, w: &mut Writer, x: Part) -> Res<Part> {
        Ok(Team::of_wave(self, w, x)?[1])
    }

    fn neutral(&self, w: &mut Writer) -> Res<Part> {
        Team::neutral(self, w)
    }

    fn select(&self, w: &mut Writer, mask: Part, first: Part, second: Part) -> Part {
        Team::select(self, w, mask, first, second)
    }
}

/// A step's operands and result, and how lines lie in them.
struct Places<'a> {
    cx: &'a Cx<'a>,
    all: Vec<(Arg, lines::Place)>,
    /// The workgroup's lines, where they go through LDS.
    staged: Option<Staged>,
}

impl Places<'_> {
    fn load(&self, w: &mut Writer, lines: &Lines, arg: Arg, c: &Chunk) -> Res<Vec<Value>> {
        if let (Arg::Input(0), Some(staged)) = (arg, &self.staged) {
            return Ok(vec![staged.load(w, lines, self.cx.dtype(arg), c)]);
        }
        let found = self.all.iter().find(|p| p.0 == arg);
        let (_, place) = found.ok_or(Reason::Malformed("an access that was not prepared"))?;
        let buf = w.buffer(self.cx, arg)?;
        Ok(lines.load(w, self.cx.dtype(arg), buf, place, c))
    }

    /// The step's expression of a chunk's sums, stored.
    fn finish(&self, w: &mut Writer, lines: &Lines, c: &Chunk, sums: &[Part], t: DType) -> Res<()> {
        let cx = self.cx;
        let mut operands = vec![Vec::new(); cx.step.inputs.len()];
        for i in epilogue::operands(cx) {
            operands[i] = self.load(w, lines, Arg::Input(i), c)?;
        }
        let mut results = Vec::new();
        for (e, x) in sums.iter().enumerate() {
            let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
            results.push(expr::eval_to_store(&mut w.b, &cx.step.expr, &input, Some(Value::of(t, *x)), &|_| false)?);
        }
        if let (Some(staged), [one]) = (&self.staged, &results[..]) {
            staged.store(w, lines, cx.dtype(Arg::Output), c, *one);
            return Ok(());
        }
        let (_, place) = self.all.last().ok_or(Reason::Malformed("a step without a result"))?;
        let buf = w.buffer(cx, Arg::Output)?;
        lines.store(w, cx.dtype(Arg::Output), buf, place, c, &results);
        Ok(())
    }
}

pub(super) fn lower(cx: &Cx, scan: &Scan) -> Res<Vec<Kernel>> {
    match choose(cx) {
        Some(Cut::AtOnce(pieces)) => {
            let step = pieces_of(cx.step, pieces);
            lower_lines(&Cx { step: &step, ..*cx }, scan, Some(pieces as u32))
        }
        _ => lower_lines(cx, scan, None),
    }
}

/// The step with its lines in equal pieces, each of which counts as a line.
fn pieces_of(step: &Step, pieces: usize) -> Step {
    let mut step = step.clone();
    for a in step.inputs.iter_mut().chain([&mut step.output]) {
        let axis = a.view.rank() - 1;
        a.view = a.view.split(axis, &[pieces, a.view.dims[axis] / pieces]);
    }
    step
}

/// Lines, or so many pieces of each.
fn lower_lines(cx: &Cx, scan: &Scan, pieces: Option<u32>) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let (outer, count, t) = (out.rank() - 1, out.dims[..out.rank() - 1].iter().product(), scan.dtype);
    let args = walked_of(cx, scan);
    let shape = shape_of(cx, &views_of(cx, &args), outer, count)?;
    let staged = pieces.is_none() && Staged::fits_by(cx, &shape, true, &OF_SHORT);
    let (mut w, mut lines) = Lines::begin(cx, Shape { staged, ..shape });
    if !staged {
        let bytes = cx.dtype(Arg::Input(0)).size() + cx.dtype(Arg::Output).size();
        lines.abreast(cx.target, out.dims[outer] * bytes, 0);
    }
    let start = Arg::Input(1);
    let mut counters = 0;
    for &arg in args.iter().chain(scan.start.then_some(&start)) {
        w.buffer(cx, arg)?;
    }
    for turn in 0..lines.turns() {
        lines.turn(&mut w, turn);
        if let (Some(pieces), true) = (pieces, scan.reverse) {
            // Workgroups take a line's pieces in the order in which they are summed.
            let (line, piece) = w.b.divmod(lines.line, pieces);
            let last = w.b.mad(line, pieces, pieces - 1);
            lines.line = w.b.sub(last, piece);
        }
        let team = Team::new(&mut w, scan, &lines);
        let place = |w: &mut Writer, arg: Arg| (arg, lines.place(w, cx.view(arg), cx.dtype(arg).size(), outer));
        let joined = match (pieces, &team.waves) {
            (None, _) => None,
            (Some(pieces), Some([_, lane, wave])) => {
                let all = count as u32 / pieces;
                counters = Pieces::bytes(all, pieces, w.b.wave_size()) as usize;
                Some(Pieces::new(&mut w, all, pieces, [*lane, *wave]))
            }
            _ => return Err(Reason::Malformed("pieces of less than a workgroup")),
        };
        let all = args.iter().map(|a| place(&mut w, *a)).collect();
        let staged = if staged { Some(Staged::begin(cx, &mut w, &lines, true)?) } else { None };
        let places = Places { cx, all, staged };
        let mut carry = None;
        if scan.start {
            let (at, buf) = (
                address::part_offset(&mut w.b, cx.view(start), t.size(), 0..outer, lines.line, true),
                w.buffer(cx, start)?,
            );
            carry = Some(values::load(&mut w.b, t, buf, at).whole(&mut w.b));
        }
        let walks = !lines.is_held();
        if walks {
            // A register of its own, which every round changes.
            let first = match carry {
                Some(p) => Value::of(t, p),
                None => literal(&mut w, t, scan.neutral())?,
            };
            let own = w.b.v(values::computed(t).dwords());
            let first = first.whole(&mut w.b);
            w.b.copy_into(own, first);
            carry = Some(own);
        }
        lines.some(&mut w, "scan", usize::MAX, |w, chunks| {
            let mut cells: Vec<(Chunk, Vec<Part>)> = Vec::new();
            for c in chunks {
                let there = if scan.reverse { lines.mirrored(w, c) } else { *c };
                let mut list: Vec<Part> = Vec::new();
                for x in places.load(w, &lines, Arg::Input(0), &there)? {
                    list.push(x.whole(&mut w.b));
                }
                list.resize(lines.together() as usize, list[0]);
                if scan.reverse {
                    list.reverse();
                }
                cells.push((there, list));
            }
            for ((_, list), c) in cells.iter_mut().zip(chunks) {
                let Some(mask) = c.inside else { continue };
                let none = team.neutral(w)?;
                list.iter_mut().for_each(|x| *x = team.select(w, mask, *x, none));
            }
            // What each run of a member comes to, up to each of its elements.
            let each = if lines.are_runs() { cells.len() } else { 1 };
            let mut runs = Vec::new();
            let mut sums: Vec<Vec<Part>> = cells.iter().map(|(_, list)| list.clone()).collect();
            for run in sums.chunks_mut(each) {
                let mut sum: Option<Part> = None;
                for x in run.iter_mut().flatten() {
                    let s = team.after(w, sum, Some(*x))?.unwrap_or(*x);
                    (*x, sum) = (s, Some(s));
                }
                runs.extend(sum);
            }
            let (mut before, after) = team.scan(w, &runs, carry, walks || turn > 0)?;
            let none = team.neutral(w)?;
            if let (Some(joined), Some(own)) = (&joined, after) {
                let first = joined.before(w, own, &team)?;
                for x in &mut before {
                    *x = team.after(w, Some(first), *x)?;
                }
            }
            for (cells, (sums, before)) in cells.chunks(each).zip(sums.chunks(each).zip(before)) {
                let mut last: Option<Part> = None;
                for ((c, _), sums) in cells.iter().zip(sums) {
                    let mut results = Vec::new();
                    for sum in sums {
                        let shown = if scan.exclusive { last } else { Some(*sum) };
                        results.push(team.after(w, before, shown)?.unwrap_or(none));
                        last = Some(*sum);
                    }
                    if scan.reverse {
                        results.reverse();
                    }
                    places.finish(w, &lines, c, &results, t)?;
                }
            }
            if let (true, Some(own), Some(after)) = (walks, carry, after) {
                w.b.copy_into(own, after);
            }
            Ok(())
        })?;
        if let Some(staged) = places.staged {
            staged.end(cx, &mut w)?;
        }
        if let Some(joined) = joined {
            joined.leave(&mut w);
        }
    }
    let grid = lines.grid();
    Ok(vec![Kernel { counters, ..w.finish(grid, out.len() as u64) }])
}

/// Clocks of a round of a workgroup beside its wait for loads: members meet in LDS; of a wave for what it loads and stores with an instruction each; and of
/// a compute unit for the elements of 64 lanes, and of columns with their loads and stores; share of a round's bytes that are in flight together. All of
/// words, and of narrower elements, which are converted, and take more registers than memory. And most pieces of a section.
const ROUND: f64 = 100.0;
const ACCESSES: f64 = 32.0;
const ELEMENT: [f64; 2] = [4.0, 12.0];
const OF_COLUMN: [f64; 2] = [12.5, 15.5];
const TOGETHER: [f64; 2] = [0.6, 0.15];
const MOST_PIECES: usize = 1 << 11;

/// What single elements of short lines take, whose team scans each of its chunks.
const OF_SHORT: Work = Work { element: 15.0, meeting: 10.0 };

/// Dwords of a piece that a workgroup holds, of one that waits for those before it; clocks in which a wave combines what it has found of them; and the share
/// of the time of other ways that this may take.
const HELD: usize = 1 << 14;
const LEVEL: f64 = 200.0;
const QUICKER: f64 = 0.97;

/// How lines are cut that few workgroups would have.
enum Cut {
    /// Launch by launch.
    Stages(Cuts),
    /// In so many pieces of one launch, whose workgroups wait for those before them.
    AtOnce(usize),
}

/// In how many pieces lines are scanned in several launches, where that is quickest.
pub(super) fn pieces(cx: &Cx) -> Option<Cuts> {
    match choose(cx)? {
        Cut::Stages(cuts) => Some(cuts),
        Cut::AtOnce(_) => None,
    }
}

/// Pieces of a line, as few as one workgroup each holds in registers, all equal.
fn held_pieces(shape: &Shape, target: Target) -> Option<(usize, lines::Walked)> {
    let most = published::MOST_PIECES as usize;
    let least = shape.length.div_ceil(HELD / shape.dwords as usize).max(2);
    let equal =
        |n: &usize| shape.length.is_multiple_of(*n) && (shape.length / n).is_multiple_of(shape.together as usize);
    let pieces = (least..=most.min(2 * least)).find(equal)?;
    let of_piece = Shape { count: shape.count * pieces, length: shape.length / pieces, ..*shape };
    let walked = of_piece.walked(target)?;
    let one_each = walked.team == walked.workitems && walked.team > target.info().wave_size;
    let held = walked.in_flight >= of_piece.length * shape.size;
    (shape.dense && shape.dwords == 1 && one_each && held).then_some((pieces, walked))
}

/// How lines are scanned where few workgroups have them: what pieces of each come to, sums of these, and each piece behind its own, in as many pieces as take
/// least, where that is worth two more launches and reading twice, and in how many sections, where these are worth launches of their own; or in
/// pieces that wait for each other, which reads once.
fn choose(cx: &Cx) -> Option<Cut> {
    let StepKind::Scan(scan @ Scan { start: false, .. }) = &cx.step.kind else { return None };
    let out = &cx.step.output.view;
    let outer = out.rank() - 1;
    let accesses = [Arg::Input(0), Arg::Output].map(|a| cx.dtype(a));
    let views = [&cx.step.inputs[0].view, out];
    let shape =
        shape_of(cx, &[(accesses[0], views[0]), (accesses[1], views[1])], outer, out.dims[..outer].iter().product());
    let shape = shape.ok()?;
    let machine = Machine::of(cx.target);
    let [read, written] = accesses.map(|t| (t.size() * out.len()) as f64);
    let narrow = usize::from(shape.size < 4);
    let (narrower, element) = match shape.dense {
        true => (narrow, ACCESSES / f64::from(shape.together) + ELEMENT[narrow]),
        false => (0, OF_COLUMN[narrow]),
    };
    let cus = cx.target.cus() as usize;
    // Of lines in so many pieces, some of which a launch has.
    let loaded = |pieces: usize, sections: usize| {
        let count = (shape.count * pieces).div_ceil(sections);
        let shape = Shape { count, length: shape.length / pieces, ..shape };
        let walked = shape.walked(cx.target)?;
        let at_once = walked.workgroups.min(cus * walked.resident());
        // Workgroups of a compute unit walk columns one after the other.
        let own = if shape.dense { 1 } else { at_once.div_ceil(cus) };
        let elements = (own * walked.in_flight / shape.size) as f64 / 64.0;
        let work = ROUND + elements * element;
        let round = machine.answer(read + written) / TOGETHER[narrower] + work;
        Some(read * round / (walked.in_flight * at_once) as f64)
    };
    // What a cache before memory keeps, of the results of columns and of what was read before.
    let kept = |keeps: bool| if keeps && !shape.dense { KEPT } else { 1.0 };
    let results = kept(machine.keeps(read + written)) * written;
    let again = kept(machine.answer(read) < machine.dram) * read;
    // Columns that no kernel addresses as a whole would be launches of one each.
    let far = accesses.iter().any(|t| t.size() * out.len() >= super::MAX_TENSOR_BYTES);
    // Second-level caches take a whole line for a part of one that is stored, and several of them each have lines that they share.
    let line = machine.line as usize;
    let of_row = |shape: &Shape, walked: &lines::Walked| {
        let beside = (walked.workitems / walked.team) as usize;
        shape.size * shape.columns.map_or(beside, |row| row.min(beside))
    };
    let of_l2 = |pieces: usize| {
        let shape = Shape { count: shape.count * pieces, length: shape.length / pieces, ..shape };
        let parts = line as f64 / of_row(&shape, &shape.walked(cx.target)?) as f64;
        let parts = if shape.dense { 1.0 } else { parts.max(1.0) };
        Some((read + parts * written) / machine.l2)
    };
    let once = match far && !shape.dense {
        true => f64::INFINITY,
        false => loaded(1, 1)?.max((read + results) / machine.memory).max(of_l2(1)?),
    };
    // What is not bound by memory, or shared by second-level caches, gains nothing.
    let is_flowing = match shape.dense {
        true => shape.together as usize * shape.size >= 4,
        false => {
            let whole = |bytes: usize| bytes.is_multiple_of(line);
            let walked = shape.walked(cx.target)?;
            machine.one_cache || whole(of_row(&shape, &walked)) && shape.columns.is_some_and(|n| whole(n * shape.size))
        }
    };
    let sections = |pieces: usize| {
        let section = machine.section(pieces, read, written).filter(|_| is_flowing);
        section.map_or(1, |of_one| pieces.div_ceil(of_one))
    };
    let staged = |pieces: usize, sections: usize| {
        let loaded = loaded(pieces, sections)?;
        let more = 3.0 * sections as f64 - 1.0;
        let launches = more * (machine.launch + if shape.dense { 2.0 } else { 1.0 } * machine.ends);
        let again = if sections > 1 { KEPT * read } else { again };
        let [found, given] = [read, again + results].map(|bytes| loaded.max(bytes / machine.memory));
        Some(found + given.max(of_l2(pieces)?) + launches)
    };
    let best = |pieces: usize| {
        let few = |n: &usize| pieces <= n * MOST_PIECES;
        let ways = [1, sections(pieces)].into_iter().filter(few).filter_map(|n| Some((staged(pieces, n)?, n)));
        ways.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let most = MOST_PIECES * sections(MOST_PIECES);
    let stages = shape.best_pieces(most, once, |pieces| Some(best(pieces)?.0));
    let stages = stages.and_then(|pieces| Some((pieces, best(pieces)?)));
    let at_once = || {
        let all = shape_of(cx, &views_of(cx, &walked_of(cx, scan)), outer, shape.count).ok()?;
        let (pieces, walked) = held_pieces(&all, cx.target).filter(|_| !far)?;
        // A round's loads, what the pieces before come to, and that of blocks of them are waited for, one after the other; others' loads and stores
        // go on meanwhile.
        let waits = machine.answer(read) + 2.0 * (machine.answer(0.0) + LEVEL);
        let at_once = walked.workgroups.min(cus * walked.resident());
        let round = (read + written) / walked.workgroups as f64 / machine.memory * at_once as f64;
        let rounds = walked.workgroups.div_ceil(at_once) as f64;
        let clocks = rounds * round.max(waits + ROUND) + waits;
        Some((clocks.max(of_l2(pieces)?), pieces))
    };
    let staged = stages.map_or(once, |(_, (clocks, _))| clocks);
    // The results of a section stay where the model has a cache before memory take them, so that by the model memory sees little of these.
    let in_sections = stages.is_some_and(|(_, (_, sections))| sections > 1) && machine.takes_results;
    match at_once() {
        Some((clocks, pieces)) if !in_sections && clocks < QUICKER * staged => Some(Cut::AtOnce(pieces)),
        _ => stages.map(|(pieces, (_, sections))| Cut::Stages(Cuts { pieces, sections })),
    }
}

/// What is walked along a line: what is summed, what the expression takes beside the sums, and the result.
fn walked_of(cx: &Cx, scan: &Scan) -> Vec<Arg> {
    let others = epilogue::operands(cx).into_iter().filter(|i| *i > usize::from(scan.start)).map(Arg::Input);
    [Arg::Input(0)].into_iter().chain(others).chain([Arg::Output]).collect()
}

fn views_of<'a>(cx: &Cx<'a>, args: &[Arg]) -> Vec<(DType, &'a View)> {
    args.iter().map(|a| (cx.dtype(*a), cx.view(*a))).collect()
}

/// How the lines of accesses are scanned.
fn shape_of(cx: &Cx, accesses: &[(DType, &View)], outer: usize, count: usize) -> Res<Shape> {
    let StepKind::Scan(scan) = &cx.step.kind else { return Err(Reason::Malformed("no scan")) };
    let shape = Shape::of(accesses, outer, count, true)?;
    Ok(Shape { in_order: true, dwords: u32::from(values::computed(scan.dtype).dwords()), ..shape })
}
