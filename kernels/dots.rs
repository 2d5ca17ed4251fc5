//! Products of a few rows with weights whose lines lie along the depth, as those of a model's last layer, or of convolutions of one position: each
//! result is the product of two lines.
//!
//! A team of neighbouring workitems takes some columns of all rows. Each loads every so many-th piece of their lines, all of them before it waits for
//! one, and multiplies them; then the team's sums meet, and each of its first workitems stores a result. So a small product takes little longer than memory takes to
//! answer once, where tiles would be loaded one after the other by few workgroups.

use super::choice::Machine;
use super::error::{Reason, Res};
use super::float::Float;
use super::tile::WIDEST;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, address, conv, epilogue, lanes, matmul};
use crate::graph::expr::Op;
use crate::graph::fused::{Gated, StepKind};
use crate::mir::{Buffer, Builder, Gen, MInst, Part, Type, dot_instruction};
use crate::tensor::DType;
use barewave_isa::Op as Instruction;

/// Rows at most, and workitems of a team.
const ROWS: usize = 8;
const TEAMS: [u32; 6] = [8, 16, 32, 64, 128, 256];

/// Columns of a team, and its results at most.
const COLUMNS: [usize; 3] = [4, 2, 1];
const RESULTS: usize = 16;

/// Dwords of operands that a workitem holds, at most.
const HELD: usize = 112;

/// Workitems of a workgroup of small teams where there are many, and workgroups of single waves for each compute unit up to which there are few.
const WORKGROUP: u32 = 256;
const FEW: usize = 8;

/// Instructions of a workitem besides those for its pieces, for a piece that it loads, and for each sum in each step in which these meet.
const AROUND: f64 = 60.0;
const OF_A_LOAD: f64 = 2.0;
const OF_A_MEETING: f64 = 3.0;

/// Tiles are taken where they need so much less time: both are estimates.
const WORTH: f64 = 0.9;

/// Lines of one operand.
#[derive(Clone, Copy)]
struct Lines {
    operand: usize,
    /// How many, and elements from one to the next, and in front of the first.
    count: usize,
    stride: usize,
    offset: usize,
    /// The result's dimension that they are.
    dim: usize,
}

/// How a step is computed this way.
pub(super) struct Dots {
    /// Those of the operand that has few, and of the other.
    few: Lines,
    many: Lines,
    t: DType,
    /// Elements of a line, and bytes of a piece of it.
    depth: usize,
    piece: usize,
    team: u32,
    columns: usize,
    /// Columns for each result.
    of_column: usize,
}

impl Lines {
    /// Of an operand with lines in a dimension, which is so in the result: all others lie together.
    fn new(cx: &Cx, operand: usize, line: usize, dim: usize) -> Option<Lines> {
        let access = &cx.step.inputs[operand];
        let view = &access.view;
        let mut next = 1;
        let together = (0..view.rank()).rev().filter(|d| *d != line).all(|d| {
            let goes_on = view.dims[d] == 1 || view.strides[d] == next;
            next *= view.dims[d] as i64;
            goes_on
        });
        let stride = if view.dims[line] == 1 { 0 } else { usize::try_from(view.strides[line]).ok()? };
        let offset = usize::try_from(view.offset).ok()?;
        (access.is_plain() && together).then_some(Lines { operand, count: view.dims[line], stride, offset, dim })
    }
}

/// The lines of both operands of a matrix product, or of a convolution whose window is all of an image; and their depth.
fn lines(cx: &Cx) -> Option<([Lines; 2], usize)> {
    let out = &cx.step.output.view;
    let (r, x) = (out.rank(), &cx.step.inputs[0].view);
    match &cx.step.kind {
        kind if kind.is_product() => {
            let one = out.dims[..r - 2].iter().all(|d| *d == 1);
            let both = [Lines::new(cx, 0, r - 2, r - 2)?, Lines::new(cx, 1, r - 1, r - 1)?];
            one.then_some((both, x.dims[r - 1]))
        }
        StepKind::Conv(conv) => {
            let whole = conv.window.kernel[..] == x.dims[2..] && conv.window.pads.iter().all(|p| *p == 0);
            let alone = conv.groups == 1 && conv.also.is_empty() && conv.before.is_none();
            let one = out.dims[2..].iter().all(|d| *d == 1);
            let both = [Lines::new(cx, 0, 0, 0)?, Lines::new(cx, 1, 0, 1)?];
            (whole && alone && one).then(|| (both, x.dims[1..].iter().product()))
        }
        _ => None,
    }
}

impl Dots {
    /// How the step is computed this way, where that takes less time than tiles do.
    pub fn of(cx: &Cx) -> Option<Dots> {
        let ([left, right], depth) = lines(cx)?;
        let (few, many) = if left.count <= right.count { (left, right) } else { (right, left) };
        let t = cx.dtype(Arg::Input(0));
        let known = matches!(t, DType::F32 | DType::F16 | DType::BF16) && cx.dtype(Arg::Input(1)) == t;
        let bytes = |elements: usize| elements * t.size();
        let words = [few.stride, many.stride, few.offset, many.offset].into_iter().all(|n| bytes(n).is_multiple_of(4));
        let of_column = cx.step.kind.of_column();
        if of_column > 1 && few.operand > 0 {
            return None;
        }
        if few.count > ROWS || depth == 0 || !known || !words || cx.link.is_some() {
            return None;
        }
        let piece = [WIDEST as usize, 8, 4].into_iter().find(|n| bytes(depth).is_multiple_of(*n))?;
        let ways = TEAMS.into_iter().flat_map(|team| COLUMNS.map(|columns| (team, columns)));
        let ways = ways.filter(|(_, columns)| *columns >= of_column);
        let ways = ways.map(|(team, columns)| Dots { few, many, t, depth, piece, team, columns, of_column });
        let best = ways.filter(|d| d.fits(cx)).map(|d| (d.clocks(cx), d)).min_by(|a, b| a.0.total_cmp(&b.0))?;
        let tiles = match &cx.step.kind {
            StepKind::Conv(conv) => conv::clocks(cx, conv),
            _ => matmul::clocks(cx),
        };
        (tiles.ok()?? > WORTH * best.0).then_some(best.1)
    }

    /// Pieces of a line that a workitem loads.
    fn turns(&self) -> usize {
        (self.depth * self.t.size()).div_ceil(self.piece * self.team as usize)
    }

    fn results(&self) -> usize {
        self.few.count * self.columns
    }

    fn fits(&self, cx: &Cx) -> bool {
        let loads = self.turns() * (self.few.count + self.columns);
        let all = self.results();
        // A team has a workitem for each of its results, and work for each workitem.
        let busy = self.team == TEAMS[0] || self.team as usize * self.piece < 2 * self.depth * self.t.size();
        let wave = cx.target.info().wave_size;
        loads * self.piece / 4 + all <= HELD && all <= RESULTS.min(self.team as usize) && busy && self.team <= 4 * wave
    }

    /// Teams of the grid.
    fn teams(&self) -> usize {
        self.many.count.div_ceil(self.columns)
    }

    /// Workitems of a workgroup.
    fn workgroup(&self, cx: &Cx) -> u32 {
        let wave = cx.target.info().wave_size;
        // Waves of a team meet in its workgroup, which has no other.
        if self.team > wave {
            return self.team;
        }
        let waves = self.teams() * self.team as usize / wave as usize;
        if waves > FEW * cx.target.cus() as usize { WORKGROUP } else { wave }
    }

    /// Clocks of the kernel, about, without its launch.
    pub fn clocks(&self, cx: &Cx) -> f64 {
        let (machine, info) = (Machine::of(cx.target), cx.target.info());
        let elements = self.piece / self.t.size();
        let loads = self.turns() * (self.few.count + self.columns);
        let dot = self.t != DType::F32 && self.dot(cx).is_some();
        let products = self.turns() * self.results() * if dot { elements / 2 } else { elements };
        let widened = if self.t == DType::F32 || dot { 0 } else { loads * elements };
        let meetings = f64::from(self.team.ilog2()) * self.results() as f64;
        let instructions = AROUND
            + OF_A_LOAD * loads as f64
            + (products + widened) as f64
            + OF_A_MEETING * meetings
            + epilogue::clocks(cx) / machine.issue;
        let waves = self.teams() as f64 * f64::from(self.team) / f64::from(info.wave_size);
        let of_simd = (waves / f64::from(cx.target.cus() * info.simds)).ceil();
        let (few, many) = (self.few.count as f64, self.many.count as f64);
        let line = (self.depth * self.t.size()) as f64;
        // Each team reads the few lines again.
        let requested = line * (many + few * self.teams() as f64);
        let busy = (of_simd * instructions * machine.issue).max(requested / machine.l1 / f64::from(cx.target.cus()));
        machine.ends + busy + line * (many + few) / machine.memory
    }

    /// The instruction for products of neighbouring elements.
    fn dot(&self, cx: &Cx) -> Option<Instruction> {
        let ty = values::stored(self.t);
        dot_instruction(cx.target, [ty; 2], Type::F32).filter(|d| d.signs.is_none()).map(|d| d.op)
    }

    /// The kernel.
    pub fn lower(&self, cx: &Cx) -> Res<Vec<Kernel>> {
        let workgroup = self.workgroup(cx);
        let mut w = cx.kernel(workgroup);
        let acc = cx.step.expr.nodes().iter().find(|n| matches!(n.op, Op::Acc | Op::Paired));
        let acc = acc.ok_or(Reason::Malformed("a product that nobody stores"))?.dtype;
        let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
        let of_group = workgroup / self.team;
        let member = w.b.and(item, self.team - 1);
        let mut team = w.b.mul(group, of_group);
        if of_group > 1 {
            let own = w.b.shr(item, self.team.trailing_zeros());
            team = w.b.add(own, team);
        }
        let own = (self.columns / self.of_column) as u32;
        let first = w.b.mul(team, own);
        let along = w.b.mul(member, self.piece as u32);
        let [few, many] = [self.few, self.many];
        let buffers = [w.buffer(cx, Arg::Input(few.operand))?, w.buffer(cx, Arg::Input(many.operand))?];
        let last = (many.count - 1) as u32;
        let starts = |b: &mut Builder| {
            let row = |r: usize| (along, ((few.offset + r * few.stride) * self.t.size()) as u32);
            let rows: Vec<(Part, u32)> = (0..few.count).map(row).collect();
            let columns: Vec<(Part, u32)> = (0..self.columns as u32)
                .map(|c| {
                    let line = self.line(b, first, c);
                    // Those behind the last one are computed again.
                    let open = !many.count.is_multiple_of(self.columns * of_group as usize);
                    let line = if open { b.op(Gen::Min.of(Type::U32), &[line.into(), last.into()]) } else { line };
                    let at = b.mad(line, (many.stride * self.t.size()) as u32, along);
                    (b.to_vector(at), (many.offset * self.t.size()) as u32)
                })
                .collect();
            [rows, columns]
        };
        let starts = starts(&mut w.b);
        let pieces = self.depth * self.t.size() / self.piece;
        let mut loaded: Vec<[Vec<Part>; 2]> = Vec::new();
        for turn in 0..self.turns() {
            let before = turn * self.team as usize;
            let open = before + self.team as usize > pieces;
            let inside =
                open.then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[((pieces - before) as u32).into(), member.into()]));
            let load = |b: &mut Builder, buf: Buffer, (at, imm): (Part, u32)| {
                let at = inside.map_or(at, |mask| b.guard(mask, at));
                b.load(buf, (self.piece / 4) as u8, at, 0u32, imm + (before * self.piece) as u32)
            };
            let of = |b: &mut Builder, side: usize| starts[side].iter().map(|at| load(b, buffers[side], *at)).collect();
            loaded.push([of(&mut w.b, 0), of(&mut w.b, 1)]);
        }
        let (float, dot) = (Float(Type::F32), self.dot(cx));
        let sums: Vec<Part> = (0..self.results()).map(|_| float.held(&mut w.b, 0.0)).collect();
        for [rows, columns] in loaded {
            let [rows, columns] = [rows, columns].map(|list| self.factors(&mut w.b, cx, list));
            for (row, sums) in rows.iter().zip(sums.chunks(self.columns)) {
                for (column, sum) in columns.iter().zip(sums) {
                    for (x, y) in row.iter().zip(column) {
                        match dot {
                            Some(op) => {
                                w.b.push(MInst::new(op, &[(*sum).into()], &[(*x).into(), (*y).into(), (*sum).into()]))
                            }
                            None => float.fma_into(&mut w.b, *sum, *x, *y),
                        }
                    }
                }
            }
        }
        let found = lanes::combine(&mut w, self.team, &sums, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| float.op(&mut w.b, Gen::Add, *x, *y)).collect())
        })?;
        // Each of the first members has a result: which it is.
        let sides: Vec<Vec<Part>> = (0..self.of_column)
            .map(|side| found.chunks(own as usize).skip(side).step_by(self.of_column).flatten().copied().collect())
            .collect();
        let mut result: Vec<Part> = sides.iter().map(|side| side[0]).collect();
        for i in 1..sides[0].len() {
            let mask = w.b.op(Gen::CmpEq.of(Type::U32), &[(i as u32).into(), member.into()]);
            for (own, side) in result.iter_mut().zip(&sides) {
                *own = w.b.select(mask, side[i], *own);
            }
        }
        let (row, of_row) = match own {
            1 => (member, None),
            own => {
                let (row, column) = w.b.divmod(member, own);
                (row, Some(column))
            }
        };
        let column = of_row.map_or(first, |column| w.b.add(column, first));
        let column = w.b.to_vector(column);
        let mut inside = w.b.op(Gen::CmpGt.of(Type::U32), &[(sides[0].len() as u32).into(), member.into()]);
        if !many.count.is_multiple_of(self.columns * of_group as usize) {
            let columns = (many.count / self.of_column) as u32;
            let there = w.b.op(Gen::CmpGt.of(Type::U32), &[columns.into(), column.into()]);
            inside = w.b.mask_and(inside, there);
        }
        let mut coords = vec![None; cx.step.output.view.rank()];
        coords[many.dim] = (many.count > self.of_column).then_some(column);
        coords[few.dim] = (few.count > 1).then_some(row);
        let pair = (Value::of(acc, result[0]), result.get(1).map(|x| Value::of(acc, *x)));
        epilogue::finish_pair(&mut w, cx, pair, |w, arg| {
            let at = address::offset(&mut w.b, cx.view(arg), cx.dtype(arg).size(), &coords);
            Ok(at.within(&mut w.b, inside))
        })?;
        let groups = self.teams().div_ceil(of_group as usize) as u32;
        Ok(vec![w.finish([groups, 1, 1], 2 * (few.count * many.count * self.depth) as u64)])
    }

    /// Line `c` of a team, whose results begin at `first`.
    fn line(&self, b: &mut Builder, first: Part, c: u32) -> Part {
        let group = Gated::GROUP as u32;
        let first = match (self.of_column, self.columns) {
            (1, _) => first,
            // Whole groups of pairs.
            (of, 4) => b.mul(first, of as u32),
            (of, _) => {
                let (groups, within) = b.divmod(first, group);
                b.mad(groups, of as u32 * group, within)
            }
        };
        let apart = if self.of_column > 1 && self.columns == 2 { group } else { 1 };
        if c > 0 { b.add(first, c * apart) } else { first }
    }

    /// What is multiplied of pieces of lines: words of neighbours, or single elements.
    fn factors(&self, b: &mut Builder, cx: &Cx, list: Vec<Part>) -> Vec<Vec<Part>> {
        let ty = values::stored(self.t);
        let whole = self.t == DType::F32 || self.dot(cx).is_some();
        let of = |b: &mut Builder, piece: Part| match whole {
            true => (0..piece.len).map(|i| piece.dword(i)).collect(),
            false => (0..(self.piece / self.t.size()) as u32).map(|e| values::widened(b, ty, piece, e)).collect(),
        };
        list.into_iter().map(|piece| of(b, piece)).collect()
    }
}
