//! Products of a few rows with weights of a few bits, bound by memory: each byte of the weights is read once.
//!
//! A team of workitems, a power of two, takes some columns together; each of its members reads 16 bytes of a column at a
//! time, so that the team reads a run of it, and multiplies them by the same elements of each row, which it has read once for
//! all its columns. Numbers become floats four (as bytes of a word) or two at a time: behind a mask the halves of a word are
//! the last bits of f16 numbers from 1024 on, which dot products take as they are once that is subtracted. What is
//! scaled is a block's sum; zero points cost a sum of the data for each block.

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, lanes};
use crate::graph::fused::{Packed, Zeros};
use crate::mir::{Buffer, Gen, MInst, Part, Type, dot_instruction};
use crate::tensor::DType;
use barewave_isa::{Target, op};

/// Bytes of a column that a workitem reads at a time.
const RUN: u32 = 16;

/// Runs of a column that a workitem reads, where the team can grow instead.
const RUNS: u32 = 8;

/// Waves that a compute unit needs to keep memory busy.
const WAVES: u32 = 8;

/// The two halves of a word of f16 numbers from 1024 on, whose last bits are whole numbers.
const THOUSANDS: u32 = 0x6400_6400;

/// Who multiplies what.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Workitems that share columns.
    team: u32,
    /// Columns of a team.
    columns: u32,
    /// Runs of each column that a workitem reads.
    runs: u32,
    workgroup: u32,
}

impl Plan {
    /// As few workitems as keep memory busy, so that what is read of the data serves several columns. None where the team
    /// would have to be too large.
    fn of(target: Target, p: &Packed, rows: usize, n: usize) -> Option<Plan> {
        let info = target.info();
        let wave = info.wave_size;
        let all = (p.depth / p.together()) as u32;
        let mut columns = [4, 2, 1].into_iter().find(|c| n.is_multiple_of(*c as usize) && c * rows as u32 <= 16)?;
        let mut team = 16;
        while all.div_ceil(team) > RUNS {
            team *= 2;
        }
        let waves = |team: u32, columns: u32| n as u64 * u64::from(team) / u64::from(columns * wave);
        let enough = u64::from(WAVES * info.cus);
        while waves(team, columns) < enough {
            let runs = all.div_ceil(team);
            match (runs, columns) {
                (3.., _) => team *= 2,
                (_, 2..) => columns /= 2,
                (2, _) => team *= 2,
                _ => break,
            }
        }
        (team <= lanes::MOST).then(|| {
            let groups = |size: u32| n as u64 * u64::from(team) / u64::from(columns * size);
            let mut workgroup = 256.max(team);
            while workgroup > wave.max(team) && groups(workgroup) < u64::from(2 * info.cus) {
                workgroup /= 2;
            }
            Plan { team, columns, runs: all.div_ceil(team), workgroup }
        })
    }
}

/// A kernel being written.
struct Product<'a> {
    cx: &'a Cx<'a>,
    p: Packed,
    plan: Plan,
    rows: u32,
    /// Data come in pairs of f16 for dot products.
    dots: bool,
    /// Number in the team.
    member: Part,
    /// First column of the team.
    column: Part,
    /// Lanes that have columns, where not all do.
    inside: Option<Part>,
}

/// A run of packed numbers as factors, and what is known of the data beside them.
struct Run {
    /// Lanes that have the run, where not all do.
    mask: Option<Part>,
    /// Which of the team's runs.
    number: u32,
}

pub(super) fn lower(cx: &Cx, p: &Packed) -> Res<Vec<Kernel>> {
    let dims = &cx.step.output.view.dims;
    let (rows, n) = (dims[0], dims[1]);
    let plan = Plan::of(cx.target, p, rows, n).ok_or(Reason::Malformed("a column that no workgroup holds"))?;
    let mut w = cx.kernel(plan.workgroup);
    let (group, item) = (w.b.workgroup_id(0), w.b.workitem_id());
    let member = w.b.and(item, plan.team - 1);
    let teams = plan.workgroup / plan.team;
    let mut team = group;
    if teams > 1 {
        let of_group = w.b.shr(item, plan.team.trailing_zeros());
        team = w.b.mad(group, teams, of_group);
    }
    let count = n as u32 / plan.columns;
    let inside = (!count.is_multiple_of(teams)).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[count.into(), team.into()]));
    let column = if plan.columns > 1 { w.b.mul(team, plan.columns) } else { team };
    let dots = cx.dtype(Arg::Input(0)) == DType::F16 && dot_instruction(cx.target, Type::F16, Type::F32).is_some();
    let product = Product { cx, p: *p, plan, rows: rows as u32, dots, member, column, inside };
    let sums = product.sums(&mut w)?;
    product.finish(&mut w, sums)?;
    let grid = [count.div_ceil(teams), 1, 1];
    Ok(vec![w.finish(grid, 2 * (rows * n * p.depth) as u64)])
}

impl Product<'_> {
    /// A byte offset, out of bounds for lanes that have no columns, or none of a run.
    fn guarded(&self, w: &mut Writer, at: Part, mask: Option<Part>) -> Part {
        let mask = match (mask, self.inside) {
            (Some(a), Some(b)) => Some(w.b.mask_and(a, b)),
            (a, b) => a.or(b),
        };
        mask.map_or(at, |m| w.b.guard(m, at))
    }

    /// The byte that an operand begins at.
    fn start(&self, arg: Arg) -> u32 {
        let Arg::Input(i) = arg else { return 0 };
        (self.cx.step.inputs[i].view.offset * self.cx.dtype(arg).size() as i64) as u32
    }

    /// The sum of each row and column, of a workitem's share.
    fn sums(&self, w: &mut Writer) -> Res<Vec<Part>> {
        let (rows, columns) = (self.rows, self.plan.columns);
        let sums: Vec<Part> = (0..rows * columns).map(|_| w.b.to_vector(0f32)).collect();
        let pitch = (self.p.depth * self.p.bits as usize / 8) as u32;
        let weights = w.buffer(self.cx, Arg::Input(1))?;
        let start = self.start(Arg::Input(1));
        let own = w.b.mul(self.member, RUN);
        let first = w.b.mad(self.column, pitch, own);
        let all = (self.p.depth / self.p.together()) as u32;
        // All of memory's work is asked for before any of it is waited for.
        let mut loaded = Vec::new();
        for number in 0..self.plan.runs {
            let mask = ((number + 1) * self.plan.team > all).then(|| {
                let left = all - number * self.plan.team;
                w.b.op(Gen::CmpGt.of(Type::U32), &[left.into(), self.member.into()])
            });
            let at = self.guarded(w, first, mask);
            let ahead = number * self.plan.team * RUN;
            let words: Vec<Part> =
                (0..columns).map(|c| w.b.load(weights, 4, at, 0u32, start + ahead + c * pitch)).collect();
            loaded.push((Run { mask, number }, words));
        }
        for (run, words) in &loaded {
            self.add(w, run, words, &sums)?;
        }
        Ok(sums)
    }

    /// Adds the products of a run of each column.
    fn add(&self, w: &mut Writer, run: &Run, words: &[Part], sums: &[Part]) -> Res<()> {
        let per_word = 32 / self.p.bits;
        let together = self.p.together() as u32;
        let part = together.min(self.p.block as u32);
        for k in (0..together).step_by(part as usize) {
            let offset = self.zero_offset(w, run, k)?;
            let mut blocks: Vec<Part> = (0..sums.len()).map(|_| w.b.to_vector(0f32)).collect();
            let mut totals: Vec<Part> = Vec::new();
            if offset.is_some() {
                totals = (0..self.rows).map(|_| w.b.to_vector(0f32)).collect();
            }
            for word in k / per_word..(k + part) / per_word {
                let factors: Vec<Vec<Part>> = words.iter().map(|c| self.factors(w, c.dword(word as u8))).collect();
                for row in 0..self.rows {
                    let data = self.data(w, run, row, word)?;
                    for (c, list) in factors.iter().enumerate() {
                        let sum = blocks[row as usize * words.len() + c];
                        list.iter().zip(&data).for_each(|(f, x)| self.multiply(w, sum, *f, *x));
                    }
                    if let Some(total) = totals.get(row as usize) {
                        // 1, or two of them.
                        let one = w.b.to_vector(if self.dots { 0x3c00_3c00 } else { 1f32.to_bits() });
                        data.iter().for_each(|x| self.multiply(w, *total, one, *x));
                    }
                }
            }
            let scales = self.blockwise(w, run, k, Arg::Input(2))?;
            for row in 0..self.rows as usize {
                for c in 0..words.len() {
                    let i = row * words.len() + c;
                    if let (Some(zeros), Some(total)) = (&offset, totals.get(row)) {
                        let less = w.b.op(Gen::Mul.of(Type::F32), &[zeros[c].into(), (*total).into()]);
                        blocks[i] = w.b.op(Gen::Sub.of(Type::F32), &[blocks[i].into(), less.into()]);
                    }
                    w.b.fma_into(sums[i], blocks[i], scales[c]);
                }
            }
        }
        Ok(())
    }

    /// Adds the product of a factor and what stands beside it.
    fn multiply(&self, w: &mut Writer, sum: Part, f: Part, x: Part) {
        match dot_instruction(self.cx.target, Type::F16, Type::F32).filter(|_| self.dots) {
            Some(dot) => w.b.push(MInst::new(dot.op, &[sum.into()], &[f.into(), x.into(), sum.into()])),
            None => w.b.fma_into(sum, f, x),
        }
    }

    /// The numbers of a word as factors: pairs `(j, j + half)` for dot products; else, for each shift, those in the bytes.
    fn factors(&self, w: &mut Writer, word: Part) -> Vec<Part> {
        let (bits, target) = (self.p.bits, self.cx.target);
        let field = (1u32 << bits) - 1;
        if self.dots {
            let less = 0xe400_e400 + if self.p.zeros == Zeros::Middle { 0x0001_0001 << (bits - 1) } else { 0 };
            let less = w.b.scalar(less);
            return (0..16 / bits)
                .map(|j| {
                    let x = if j > 0 { w.b.shr(word, j * bits) } else { word };
                    let mask = w.b.scalar(field << 16 | field);
                    let thousands = w.b.to_vector(THOUSANDS);
                    let x = if target.has(op::V_AND_OR_B32) {
                        w.b.op(op::V_AND_OR_B32, &[x.into(), mask.into(), thousands.into()])
                    } else {
                        let x = w.b.and(x, mask);
                        w.b.op(Gen::Or.of(Type::B32), &[thousands.into(), x.into()])
                    };
                    w.b.op(Gen::Add.of(Type::PkF16), &[x.into(), less.into()])
                })
                .collect();
        }
        let each = 8 / bits;
        let bytes = [op::V_CVT_F32_UBYTE0, op::V_CVT_F32_UBYTE1, op::V_CVT_F32_UBYTE2, op::V_CVT_F32_UBYTE3];
        let shifted: Vec<Part> = (0..each)
            .map(|s| {
                let x = if s > 0 { w.b.shr(word, s * bits) } else { word };
                if each > 1 { w.b.and(x, field * 0x0101_0101) } else { x }
            })
            .collect();
        bytes
            .iter()
            .flat_map(|byte| shifted.iter().map(|x| (*byte, *x)).collect::<Vec<_>>())
            .map(|(byte, x)| w.b.op(byte, &[x.into()]))
            .collect()
    }

    /// The elements of a row beside a word of numbers, in the order of [`Product::factors`].
    fn data(&self, w: &mut Writer, run: &Run, row: u32, word: u32) -> Res<Vec<Part>> {
        let (cx, arg) = (self.cx, Arg::Input(0));
        let (t, view) = (cx.dtype(arg), &cx.step.inputs[0].view);
        let (size, per_word, together) = (t.size() as u32, 32 / self.p.bits, self.p.together() as u32);
        let buf = w.buffer(cx, arg)?;
        let own = w.b.mul(self.member, together * size);
        let at = self.guarded(w, own, run.mask);
        let start = (view.offset + i64::from(row) * view.strides[0]) as u32;
        let imm = (start + run.number * self.plan.team * together + word * per_word) * size;
        let dwords = per_word * size / 4;
        let raw: Vec<Part> =
            (0..dwords).step_by(4).map(|d| w.b.load(buf, (dwords - d).min(4) as u8, at, 0u32, imm + d * 4)).collect();
        let dword = |i: u32| raw[(i / 4) as usize].dword((i % 4) as u8);
        if !self.dots {
            let from = values::stored(t);
            let per = 4 / size;
            return Ok((0..per_word).map(|e| values::widened(&mut w.b, from, dword(e / per), e % per)).collect());
        }
        let half = per_word / 2;
        Ok((0..half)
            .map(|j| {
                let (low, high) = (dword(j / 2), dword((j + half) / 2));
                let halves = if j % 2 == 0 { 0x0504_0100u32 } else { 0x0706_0302 };
                w.b.op(op::V_PERM_B32, &[high.into(), low.into(), halves.into()])
            })
            .collect())
    }

    /// What is to be subtracted from each column's numbers, `k` behind the start of a run; none where the factors have it
    /// subtracted already.
    fn zero_offset(&self, w: &mut Writer, run: &Run, k: u32) -> Res<Option<Vec<Part>>> {
        Ok(match self.p.zeros {
            Zeros::Middle if self.dots => None,
            Zeros::Middle => {
                let middle = w.b.to_vector((1u32 << (self.p.bits - 1)) as f32);
                Some(vec![middle; self.plan.columns as usize])
            }
            Zeros::Values => Some(self.blockwise(w, run, k, Arg::Input(3))?),
            Zeros::Packed => {
                let buf = w.buffer(self.cx, Arg::Input(3))?;
                let block = self.block(w, run, k);
                let bit = w.b.mul(block, self.p.bits);
                let byte = w.b.shr(bit, 3u32);
                let shift = w.b.and(bit, 7u32);
                let list = (0..self.plan.columns).map(|c| {
                    let x = self.byte(w, buf, byte, c, run.mask);
                    let x = w.b.op(Gen::Shr.of(Type::U32), &[x.into(), shift.into()]);
                    let x = w.b.and(x, (1u32 << self.p.bits) - 1);
                    w.b.convert(Type::U32, Type::F32, x)
                });
                Some(list.collect())
            }
        })
    }

    /// A byte of a column's packed zero points.
    fn byte(&self, w: &mut Writer, buf: Buffer, byte: Part, c: u32, mask: Option<Part>) -> Part {
        let pitch = self.p.zero_bytes() as u32;
        let at = w.b.mad(self.column, pitch, byte);
        let at = self.guarded(w, at, mask);
        w.b.load_op(op::BUFFER_LOAD_UBYTE, buf, at, 0u32, self.start(Arg::Input(3)) + c * pitch)
    }

    /// The number of the block `k` behind the start of a run.
    fn block(&self, w: &mut Writer, run: &Run, k: u32) -> Part {
        let (block, together) = (self.p.block as u32, self.p.together() as u32);
        let first = run.number * self.plan.team;
        if block > together {
            let at = if first > 0 { w.b.add(self.member, first) } else { self.member };
            return w.b.shr(at, (block / together).trailing_zeros());
        }
        let per_run = together / block;
        let at = w.b.mul(self.member, per_run);
        let ahead = first * per_run + k / block;
        if ahead > 0 { w.b.add(at, ahead) } else { at }
    }

    /// What an operand says of each column's block `k` behind the start of a run, as f32.
    fn blockwise(&self, w: &mut Writer, run: &Run, k: u32, arg: Arg) -> Res<Vec<Part>> {
        let t = self.cx.dtype(arg);
        let (buf, blocks, size) = (w.buffer(self.cx, arg)?, self.p.blocks() as u32, t.size() as u32);
        let block = self.block(w, run, k);
        let at = w.b.mad(self.column, blocks, block);
        let at = w.b.mul(at, size);
        let at = self.guarded(w, at, run.mask);
        let one = |c: u32| {
            let at = Offset { reg: Some(at), imm: self.start(arg) + c * blocks * size };
            let x = values::load(&mut w.b, t, buf, at).reg(&mut w.b);
            w.b.convert(values::computed(t), Type::F32, x)
        };
        Ok((0..self.plan.columns).map(one).collect())
    }

    /// Adds up what the team has found and stores it.
    fn finish(&self, w: &mut Writer, sums: Vec<Part>) -> Res<()> {
        let sums = lanes::combine(w, self.plan.team, &sums, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| w.b.op(Gen::Add.of(Type::F32), &[(*x).into(), (*y).into()])).collect())
        })?;
        let first = w.b.op(Gen::CmpEq.of(Type::U32), &[0u32.into(), self.member.into()]);
        for (i, sum) in sums.into_iter().enumerate() {
            let (row, c) = (i / self.plan.columns as usize, i % self.plan.columns as usize);
            epilogue::finish(w, self.cx, Value::Word(sum.into()), |w, arg| {
                let view = match arg {
                    Arg::Input(i) => &self.cx.step.inputs[i].view,
                    _ => &self.cx.step.output.view,
                };
                let view = view.sliced(0, row, 1, 1).sliced(1, c, 1, 1);
                let at = address::offset(&mut w.b, &view, self.cx.dtype(arg).size(), &[None, Some(self.column)]);
                let reg = at.vector(&mut w.b);
                let reg = self.guarded(w, reg, Some(first));
                Ok(Offset { reg: Some(reg), imm: at.imm })
            })?;
        }
        Ok(())
    }
}
