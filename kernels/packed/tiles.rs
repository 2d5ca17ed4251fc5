//! Products of several rows with weights of a few bits, by matrix instructions.
//!
//! The waves of a workgroup share the depth, each with all rows and the workgroup's columns, and what they have summed meets in LDS when the
//! depth is over, as in [`slices`](super::super::slices). A lane reads 16 bytes of a column, and the elements of a row beside these numbers.
//! The order of k within a product is free: numbers become pairs of f16 as dot products of fewer rows take them, and the elements are
//! put in the same order. Blocks of other scales are summed together, so it is numbers that are scaled.

use super::super::address::{self, Offset};
use super::super::error::{Reason, Res};
use super::super::fragment::{self, down};
use super::super::gemm;
use super::super::matrix::{self, MatrixForm};
use super::super::tile::{Form, Tile, Types};
use super::super::values::Value;
use super::super::{Arg, Cx, Kernel, Writer, epilogue, expr};
use super::{RUN, pairs};
use crate::graph::fused::{Packed, Zeros};
use crate::mir::{Buffer, Builder, Gen, MInst, Part, Pipeline, Term, Type, matrix_modifiers};
use crate::tensor::DType;
use barewave_isa::matrix::{Fragment, Operand};
use barewave_isa::op;

/// Side of the instructions: rows at most.
const SIDE: u32 = 16;

/// Rows from which on that is quicker than sums of a team, of which each takes its share of vector instructions: by how many groups of lanes
/// have different numbers. By the cycle model, a Llama's layer of 2 to 8 rows on five targets.
fn least(groups: u32) -> usize {
    match groups {
        4.. => 2,
        2.. => 5,
        _ => 6,
    }
}

/// Waves that share the depth, and steps of each that are on their way.
const WAVES: u32 = 8;
const STEPS: u32 = 2;

/// Instruction tiles of a workgroup's columns: the most that leave each compute unit a workgroup.
const COLUMNS: [u32; 2] = [2, 1];

/// The stages of the loop.
const LOAD: u8 = 0;
const MULTIPLY: u8 = 1;

/// Both halves of a word from the low one of another.
const TWICE: u32 = 0x0100_0100;

/// How a workgroup multiplies.
pub(super) struct Tiles<'a> {
    cx: &'a Cx<'a>,
    p: &'a Packed,
    form: MatrixForm,
    types: Types,
    /// Instruction tiles of the result's columns.
    columns: u32,
    /// Groups of lanes that have different runs.
    groups: u32,
}

/// What a wave reads, and where it is.
struct Strip {
    weights: Buffer,
    data: Buffer,
    scales: Buffer,
    /// The run of the lane that is loaded next; its byte in a line of weights, and in a row of data.
    number: Part,
    of_weights: Part,
    of_data: Part,
    /// Byte of the line's first scale.
    of_scales: Part,
    /// Scalar offsets of each line of weights and of its scales.
    starts: Vec<[Part; 2]>,
    /// Lanes that have a row.
    inside: Option<Part>,
    sets: Vec<Set>,
}

/// Registers of a step that is on its way: numbers and scales of each line, elements of a row.
struct Set {
    words: Vec<Part>,
    scales: Vec<Vec<Part>>,
    data: Vec<Part>,
}

impl<'a> Tiles<'a> {
    /// None where rows are too few or too many, or the target has no such instruction.
    pub fn of(cx: &'a Cx<'a>, p: &'a Packed) -> Option<Tiles<'a>> {
        let dims = &cx.step.output.view.dims;
        let (rows, n) = (dims[0], dims[1] as u32);
        let fits = rows <= SIDE as usize
            && n.is_multiple_of(SIDE)
            && p.rows.is_none()
            && p.zeros == Zeros::Middle
            && [0, 2].into_iter().all(|i| cx.dtype(Arg::Input(i)) == DType::F16);
        let types = matrix::types_of(Types { accumulate: Type::F32, ..Types::of(DType::F16) });
        let form = MatrixForm::of(cx.target, types, SIDE as usize, false).filter(|_| fits)?;
        let side = form.operand(Operand::A)?;
        let whole =
            rows >= least(side.groups) && side.own.is_multiple_of(2) && (p.together() as u32).is_multiple_of(side.own);
        let enough = |c: &u32| n.is_multiple_of(c * SIDE) && n / (c * SIDE) >= cx.target.cus();
        let columns = COLUMNS.into_iter().find(enough).unwrap_or(1);
        whole.then_some(Tiles { cx, p, form, types, columns, groups: side.groups })
    }

    fn lanes(&self) -> u32 {
        self.form.op.shape.lanes as u32
    }

    /// Instruction tiles of weights: those of columns that gate others, too.
    fn lines(&self) -> u32 {
        self.columns * self.p.of_column() as u32
    }

    /// Numbers of a run, and its blocks.
    fn run(&self) -> u32 {
        self.p.together() as u32
    }
    fn blocks(&self) -> u32 {
        self.run().div_ceil(self.p.block as u32)
    }

    /// Dwords of a run's data.
    fn dwords(&self) -> u32 {
        self.run() / 2
    }

    pub fn lower(&self) -> Res<Vec<Kernel>> {
        let dims = &self.cx.step.output.view.dims;
        let (rows, n) = (dims[0], dims[1]);
        let mut w = self.cx.kernel(WAVES * self.lanes());
        let group = w.b.workgroup_id(0);
        let first = w.b.mul(group, self.columns * SIDE);
        let tile = Tile {
            types: self.types,
            m: SIDE,
            n: self.lines() * SIDE,
            k: SIDE,
            run: 8,
            buffers: 1,
            form: Form::Matrix(self.form),
        };
        let sums = gemm::zeros(&mut w.b, &tile).parts;
        let all = (self.p.depth / self.p.together()) as u32;
        let at_once = STEPS * WAVES * self.groups;
        let rounds = all.div_ceil(at_once);
        let limit = (rounds * at_once != all).then_some(all);
        let mut strip = self.strip(&mut w, first)?;
        w.b.counted_loop("k", rounds, 1, Pipeline::Stated, false, |b, _| {
            b.fix_order();
            let mut loads = Vec::new();
            for set in 0..STEPS as usize {
                b.stage(MULTIPLY);
                let products = b.aside(|b| self.multiply(b, &strip.sets[set], self.depth_of(set), &sums));
                b.spread(products, loads);
                b.stage(LOAD);
                loads = b.aside(|b| self.load(b, &mut strip, set, limit));
            }
            b.append(loads);
            b.stage(MULTIPLY);
        });
        self.finish(&mut w, &sums, first)?;
        let grid = [n as u32 / (self.columns * SIDE), 1, 1];
        Ok(vec![w.finish(grid, 2 * (rows * n * self.p.of_column() * self.p.depth) as u64)])
    }

    /// The lane's first places.
    fn strip(&self, w: &mut Writer, first: Part) -> Res<Strip> {
        let (cx, p) = (self.cx, self.p);
        let side = self.form.operand(Operand::A).ok_or(Reason::Malformed("a matrix form without fragments"))?;
        let lane = |of: fn(&barewave_isa::matrix::Step) -> u32| side.lanes.iter().map(of).map(down).collect();
        let item = w.b.workitem_id();
        let number = w.b.and(item, self.lanes() - 1);
        let coordinate = |w: &mut Writer, lane: Vec<_>| {
            let f = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
            let at = fragment::coordinate(&mut w.b, &f, number, fragment::row, 1, None);
            w.b.to_vector(at)
        };
        let (line, of_group) = (coordinate(w, lane(fragment::row)), coordinate(w, lane(fragment::col)));
        let wave = w.b.shr(item, self.lanes().trailing_zeros());
        let run = w.b.mad(wave, self.groups, of_group);
        let [weights, data, scales] = [1, 0, 2].map(|i| w.buffer(cx, Arg::Input(i)));
        let (pitch, blocks) = ((p.depth as u32 * p.bits) / 8, p.blocks() as u32);
        let column = w.b.add(first, line);
        let own = w.b.mul(run, RUN);
        let of_weights = w.b.mad(column, pitch, own);
        let rows = &cx.step.inputs[0].view;
        let own = w.b.mul(run, self.run() * 2);
        let of_data = w.b.mad(line, rows.strides[0] as u32 * 2, own);
        let of_scales = w.b.mul(column, blocks * 2);
        let inside = (rows.dims[0] as u32 != SIDE)
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(rows.dims[0] as u32).into(), line.into()]));
        let start = |i: usize, size: u32| cx.step.inputs[i].view.offset as u32 * size;
        let n = cx.step.output.view.dims[1] as u32;
        let starts = (0..self.lines()).map(|l| {
            let far = l / self.columns * n + l % self.columns * SIDE;
            [start(1, 1) + far * pitch, start(2, 2) + far * blocks * 2].map(|at| w.b.scalar(at))
        });
        let starts = starts.collect();
        // What moves.
        let [number, of_weights, of_data] = [run, of_weights, of_data].map(|x| w.b.to_vector(x));
        let of_data = match start(0, 2) {
            0 => of_data,
            at => w.b.add(of_data, at),
        };
        let sets = (0..STEPS).map(|_| Set {
            words: (0..self.lines()).map(|_| w.b.v(4)).collect(),
            scales: (0..self.lines()).map(|_| (0..self.blocks()).map(|_| w.b.v(1)).collect()).collect(),
            data: (0..self.dwords() / 4).map(|_| w.b.v(4)).collect(),
        });
        let sets = sets.collect();
        Ok(Strip {
            weights: weights?,
            data: data?,
            scales: scales?,
            number,
            of_weights,
            of_data,
            of_scales,
            starts,
            inside,
            sets,
        })
    }

    /// Loads the wave's next step into a set of registers; `limit` is how many runs there are, where not all lanes have one.
    fn load(&self, b: &mut Builder, s: &mut Strip, set: usize, limit: Option<u32>) {
        let has = limit.map(|all| b.op(Gen::CmpGt.of(Type::U32), &[all.into(), s.number.into()]));
        let guarded = |b: &mut Builder, at: Part, mask: Option<Part>| mask.map_or(at, |m| b.guard(m, at));
        let own = &s.sets[set];
        let k = self.depth_of(set);
        let at = guarded(b, s.of_weights, has);
        b.moves(Some(Term::B));
        for (line, (words, start)) in (0..).zip(own.words.iter().zip(&s.starts)) {
            b.element(k, line * SIDE);
            b.load_into(*words, s.weights, at, start[0], 0);
        }
        b.moves(None);
        let (block, run) = (self.p.block as u32, self.run());
        let first = match block > run {
            true => b.shr(s.number, (block / run).trailing_zeros()),
            false => b.mul(s.number, run / block),
        };
        let at = b.mad(first, 2u32, s.of_scales);
        let at = guarded(b, at, has);
        for (scales, start) in own.scales.iter().zip(&s.starts) {
            for (i, scale) in (0..).zip(scales) {
                b.load_op_into(op::BUFFER_LOAD_USHORT, *scale, s.scales, at, start[1], 2 * i);
            }
        }
        let mask = match (has, s.inside) {
            (Some(a), Some(c)) => Some(b.mask_and(a, c)),
            (a, c) => a.or(c),
        };
        let at = guarded(b, s.of_data, mask);
        b.moves(Some(Term::A));
        for (i, part) in (0..).zip(&own.data) {
            b.element(k + 8 * i, 0);
            b.load_into(*part, s.data, at, 0u32, 16 * i);
        }
        b.moves(None);
        let runs = WAVES * self.groups;
        for (place, by) in [(s.number, runs), (s.of_weights, runs * RUN), (s.of_data, runs * run * 2)] {
            b.emit(Gen::Add.of(Type::I32), &[place.into()], &[place.into(), by.into()]);
        }
    }

    /// Depth in a round of the first wave's first number of a set.
    fn depth_of(&self, set: usize) -> u32 {
        set as u32 * WAVES * self.groups * self.run()
    }

    /// Multiplies what was loaded for a step, which begins at depth `k` of a round.
    fn multiply(&self, b: &mut Builder, set: &Set, k: u32, sums: &[Part]) {
        let bits = self.p.bits;
        let (own, dwords) = (self.form.operand(Operand::A).map_or(2, |a| a.own) as u8 / 2, self.dwords() as u8);
        // Elements in the order of numbers.
        let data = b.v(dwords);
        let raw = |d: u32| set.data[(d / 4) as usize].dword((d % 4) as u8);
        let half = 16 / bits;
        for (word, j) in (0..4).flat_map(|word| (0..half).map(move |j| (word, j))) {
            let (low, high) = (raw(word * half + j / 2), raw(word * half + (j + half) / 2));
            let halves = if j % 2 == 0 { 0x0504_0100u32 } else { 0x0706_0302 };
            let to = data.dword((word * half + j) as u8);
            b.emit(op::V_PERM_B32, &[to.into()], &[high.into(), low.into(), halves.into()]);
        }
        let of_block = u32::from(dwords) / self.blocks();
        for (line, sum) in sums.iter().enumerate() {
            let factors = b.v(dwords);
            let scales: Vec<Part> = set.scales[line]
                .iter()
                .map(|s| b.op(op::V_PERM_B32, &[(*s).into(), (*s).into(), TWICE.into()]))
                .collect();
            for word in 0..4 {
                for (j, x) in (0..).zip(pairs(b, bits, true, set.words[line].dword(word as u8))) {
                    let at = word * half + j;
                    let (to, scale) = (factors.dword(at as u8), scales[(at / of_block) as usize]);
                    b.emit(Gen::Mul.of(Type::PkF16), &[to.into()], &[x.into(), scale.into()]);
                }
            }
            for first in (0..dwords).step_by(own as usize) {
                let srcs = [data.slice(first, own).into(), factors.slice(first, own).into(), (*sum).into()];
                let mods = matrix_modifiers(self.form.instruction, &self.form.op);
                b.product(Some((0, line as u32 * SIDE, k + 2 * u32::from(first))));
                b.push(MInst { mods, ..MInst::new(self.form.instruction, &[(*sum).into()], &srcs) });
            }
            b.product(None);
        }
    }

    /// Adds up what the waves have found, in their order, and stores it.
    fn finish(&self, w: &mut Writer, sums: &[Part], first: Part) -> Res<()> {
        let cx = self.cx;
        let one = self.form.op.fragment(Operand::D).ok_or(Reason::Malformed("a matrix form without fragments"))?;
        // Lanes of different rows reach other banks.
        let pitch = (self.lines() * SIDE + 4) * 4;
        let of_wave = SIDE * pitch;
        let base = w.b.lds(WAVES * of_wave);
        let item = w.b.workitem_id();
        let waves = (0..WAVES.trailing_zeros()).map(|bit| down(of_wave << bit));
        let lane = one.lane.iter().map(|s| down(s.row * pitch + s.col * 4)).chain(waves).collect();
        let f = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
        let at = fragment::coordinate(&mut w.b, &f, item, fragment::row, 1, None);
        let at = w.b.to_vector(at);
        for (line, sum) in (0..).zip(sums) {
            let part = gemm::in_vectors(w, *sum);
            for i in 0..one.positions() {
                let (row, column) = one.element(0, i);
                w.b.lds_write(at, part.dword(i as u8), base + row * pitch + (line * SIDE + column) * 4);
            }
        }
        w.b.barrier();
        let width = self.columns * SIDE;
        let rows = cx.step.output.view.dims[0] as u32;
        let threads = WAVES * self.lanes();
        for start in (0..rows * width).step_by(threads as usize) {
            let index = if start > 0 { w.b.add(item, start) } else { item };
            let (row, column) = w.b.divmod(index, width);
            let inside = (start + threads > rows * width)
                .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(rows * width).into(), index.into()]));
            // Lanes behind the last result read its row again.
            let read = inside.map_or(row, |m| w.b.select(m, row, 0u32));
            let from = w.b.shl(column, 2u32);
            let from = w.b.mad(read, pitch, from);
            let from = w.b.to_vector(from);
            let sum_of = |w: &mut Writer, line: u32| {
                let all: Vec<Part> =
                    (0..WAVES).map(|wave| w.b.lds_read(1, from, base + wave * of_wave + line * SIDE * 4)).collect();
                all[1..].iter().fold(all[0], |a, x| w.b.op(Gen::Add.of(Type::F32), &[a.into(), (*x).into()]))
            };
            let mut sum = sum_of(w, 0);
            if let Some(gate) = &self.p.gate {
                let none = |_: u32| Value::Word(0u32.into());
                let factor = expr::eval(&mut w.b, gate, &none, Some(Value::Word(sum.into())))?.reg(&mut w.b);
                let gated = sum_of(w, self.columns);
                sum = w.b.op(Gen::Mul.of(Type::F32), &[factor.into(), gated.into()]);
            }
            let column = w.b.add(column, first);
            epilogue::finish(w, cx, Value::Word(sum.into()), |w, arg| {
                let view = cx.view(arg);
                let coords = [Some(row), Some(column)];
                let at = address::offset(&mut w.b, view, cx.dtype(arg).size(), &coords);
                let reg = at.vector(&mut w.b);
                let reg = inside.map_or(reg, |m| w.b.guard(m, reg));
                Ok(Offset { reg: Some(reg), imm: at.imm })
            })?;
        }
        Ok(())
    }
}
