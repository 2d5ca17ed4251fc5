//! Rows that the workgroups of a product with packed weights normalise for themselves.
//!
//! All workitems of a workgroup take the elements of a row in turns of *chunks*, those beside one word of packed numbers, so that they
//! can be put where dot products want them: each workitem writes the pairs of its chunk to LDS, where the teams read them as often as
//! they need. The data of a run are followed by 16 bytes of nothing, so that neighbours of a team read from different banks. Behind a
//! row's end, where runs of a team may reach, zeros are kept.

use super::Plan;
use crate::graph::fused::{NormedRows, Packed};
use crate::graph::view::View;
use crate::kernels::address::Offset;
use crate::kernels::error::{Reason, Res};
use crate::kernels::float::Float;
use crate::kernels::values::{self, Value};
use crate::kernels::{Arg, Cx, Writer, expr, lanes, lines};
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;

/// Bytes of LDS that leave room for as many workgroups as registers do, and registers that a workitem holds of rows at most.
const ROOM: u32 = 16 << 10;
const HELD: u32 = 64;

/// Bytes behind the data of a run.
const GAP: u32 = 16;

/// How a workgroup keeps its rows.
pub(super) struct Rows {
    count: u32,
    /// Elements of a row, and of a run of packed numbers.
    length: u32,
    together: u32,
    /// Elements of a chunk, and of one load.
    chunk: u32,
    piece: u32,
    /// Chunks of a workitem.
    chunks: u32,
    workgroup: u32,
    dtype: DType,
    /// Elements are kept as pairs for dot products.
    dots: bool,
    /// The number of the first operand of the rows' expression.
    operands: usize,
}

/// What a workitem has loaded.
pub(super) struct Held {
    /// Elements of each row and chunk.
    data: Vec<Vec<Vec<Part>>>,
    /// The same of each operand, or one that serves for all elements.
    operands: Vec<Vec<Vec<Vec<Value>>>>,
    /// Lanes for which a chunk is one of the row's, where not all are.
    insides: Vec<Option<Part>>,
}

impl Rows {
    /// `None` where they take too much room, or where elements do not lie so that they are loaded together.
    pub fn of(cx: &Cx, p: &Packed, plan: &Plan, dots: bool) -> Option<Rows> {
        let n = p.rows.as_ref()?;
        let dtype = cx.dtype(Arg::Input(0));
        let numbers: Vec<usize> = [0].into_iter().chain(p.weights_end()..p.weights_end() + n.operands).collect();
        let accesses: Vec<(DType, &View)> =
            numbers.iter().map(|i| (cx.dtype(Arg::Input(*i)), &cx.step.inputs[*i].view)).collect();
        let chunk = if dots { 32 / p.bits } else { 16 / dtype.size() as u32 };
        let piece = lines::together(&accesses).min(chunk);
        let together = p.together() as u32;
        let rows = Rows {
            count: cx.step.output.view.dims[0] as u32,
            length: p.depth as u32,
            together,
            chunk,
            piece,
            chunks: (plan.runs * plan.team * together).div_ceil(plan.workgroup * chunk),
            workgroup: plan.workgroup,
            dtype,
            dots,
            operands: p.weights_end(),
        };
        let held = rows.count * rows.chunks * chunk;
        let float = accesses.iter().all(|(t, _)| matches!(t, DType::F32 | DType::F16 | DType::BF16));
        (float && piece > 1 && held <= HELD && rows.bytes() <= ROOM).then_some(rows)
    }

    /// Bytes from run to run.
    fn pitch(&self) -> u32 {
        self.together * self.dtype.size() as u32 + GAP
    }

    /// Bytes from row to row.
    fn row(&self) -> u32 {
        self.chunks * self.workgroup * self.chunk / self.together * self.pitch()
    }

    /// Bytes of LDS for all.
    pub fn bytes(&self) -> u32 {
        self.count * self.row()
    }

    /// Loads all rows, and what is beside them.
    pub fn load(&self, w: &mut Writer, cx: &Cx) -> Res<Held> {
        let item = w.b.workitem_id();
        let all = self.length / self.chunk;
        let insides: Vec<Option<Part>> = (0..self.chunks)
            .map(|c| {
                let left = all.saturating_sub(c * self.workgroup);
                (left < self.workgroup).then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[left.into(), item.into()]))
            })
            .collect();
        let mut data = Vec::new();
        for values in self.operand(w, cx, 0, &insides)? {
            let row = values.into_iter().map(|c| c.into_iter().map(|x| x.whole(&mut w.b)).collect());
            data.push(row.collect());
        }
        let n = self.normed(cx)?;
        let operands = (self.operands..self.operands + n.operands).map(|i| self.operand(w, cx, i, &insides));
        let operands = operands.collect::<Res<_>>()?;
        Ok(Held { data, operands, insides })
    }

    fn normed<'a>(&self, cx: &Cx<'a>) -> Res<&'a NormedRows> {
        match &cx.step.kind {
            crate::graph::fused::StepKind::Packed(p) => p.rows.as_ref(),
            _ => None,
        }
        .ok_or(Reason::Malformed("rows that are not normalised"))
    }

    /// The chunks of each row of an operand; one row for all where all are the same.
    fn operand(&self, w: &mut Writer, cx: &Cx, i: usize, insides: &[Option<Part>]) -> Res<Vec<Vec<Vec<Value>>>> {
        let (arg, view) = (Arg::Input(i), &cx.step.inputs[i].view);
        let (t, buf) = (cx.dtype(arg), w.buffer(cx, arg)?);
        let size = t.size() as i64;
        let item = w.b.workitem_id();
        let rows = if view.strides[0] == 0 { 1 } else { self.count };
        let mut out = Vec::new();
        for row in 0..rows {
            let mut chunks = Vec::new();
            for (c, inside) in (0..self.chunks).zip(insides) {
                let first = view.offset + i64::from(row) * view.strides[0];
                if view.strides[1] == 0 {
                    chunks.push(vec![values::load(&mut w.b, t, buf, Offset { reg: None, imm: (first * size) as u32 })]);
                    continue;
                }
                let own = w.b.mul(item, self.chunk * size as u32);
                let own = inside.map_or(own, |mask| w.b.guard(mask, own));
                let mut values = Vec::new();
                for e in (0..self.chunk).step_by(self.piece as usize) {
                    let element = first + i64::from(c * self.workgroup * self.chunk + e);
                    let at = Offset { reg: Some(own), imm: (element * size) as u32 };
                    values.extend(values::load_some(&mut w.b, t, buf, at, self.piece));
                }
                chunks.push(values);
            }
            out.push(chunks);
        }
        Ok(out)
    }

    /// Normalises what was loaded and writes it to LDS from `start` on, where all may read it then.
    pub fn keep(&self, w: &mut Writer, cx: &Cx, mut held: Held, start: u32) -> Res<()> {
        let (float, n) = (Float(Type::F32), self.normed(cx)?);
        let scale = float.constant(&mut w.b, (1.0 / self.length as f32).into());
        let zero = float.constant(&mut w.b, 0.0);
        if n.norm.center {
            let sums = self.added(w, &held.data, |w, sum, x| float.update(&mut w.b, Gen::Add, sum, x))?;
            for (row, sum) in held.data.iter_mut().zip(sums) {
                let mean = float.op(&mut w.b, Gen::Mul, scale, sum);
                for (chunk, inside) in row.iter_mut().zip(&held.insides) {
                    for x in chunk {
                        *x = float.op(&mut w.b, Gen::Sub, *x, mean);
                        *x = inside.map_or(*x, |mask| float.select(&mut w.b, mask, *x, zero));
                    }
                }
            }
        }
        let squares = self.added(w, &held.data, |w, sum, x| float.fma_into(&mut w.b, sum, x, x))?;
        let item = w.b.workitem_id();
        let per_run = self.together / self.chunk;
        let (run, place) = (w.b.shr(item, per_run.trailing_zeros()), w.b.and(item, per_run - 1));
        let place = w.b.mul(place, self.chunk * self.dtype.size() as u32);
        let home = w.b.mad(run, self.pitch(), place);
        for (number, (row, sum)) in held.data.iter().zip(squares).enumerate() {
            let factor = float.inverse_deviation(&mut w.b, sum, scale, n.norm.epsilon);
            for (c, (chunk, inside)) in row.iter().zip(&held.insides).enumerate() {
                let mut made = Vec::new();
                for (e, x) in chunk.iter().enumerate() {
                    let y = float.op(&mut w.b, Gen::Mul, *x, factor);
                    let input = |i: u32| {
                        let rows = &held.operands[i as usize - self.operands];
                        let values = &rows[number.min(rows.len() - 1)][c];
                        values[e.min(values.len() - 1)]
                    };
                    let y = expr::eval(&mut w.b, &n.expr, &input, Some(Value::Word(y.into())))?.reg(&mut w.b);
                    made.push(inside.map_or(y, |mask| float.select(&mut w.b, mask, y, zero)));
                }
                let words = self.words(w, &made);
                let runs = c as u32 * self.workgroup / per_run;
                let at = start + number as u32 * self.row() + runs * self.pitch();
                for (i, four) in words.chunks(4).enumerate() {
                    let data = w.b.v(four.len() as u8);
                    for (d, word) in four.iter().enumerate() {
                        w.b.copy_into(data.dword(d as u8), *word);
                    }
                    w.b.lds_write(home, data, at + 16 * i as u32);
                }
            }
        }
        w.b.barrier();
        Ok(())
    }

    /// Elements of a chunk as they are kept.
    fn words(&self, w: &mut Writer, made: &[Part]) -> Vec<Part> {
        if self.dtype.size() == 4 {
            return made.to_vec();
        }
        let half = made.len() / 2;
        let pairs = (0..half).map(|j| if self.dots { [j, j + half] } else { [2 * j, 2 * j + 1] });
        pairs.map(|two| values::halves(&mut w.b, self.dtype, two.map(|i| Value::Word(made[i].into())))).collect()
    }

    /// What `add` makes of the elements of each row, over the whole workgroup.
    fn added(
        &self,
        w: &mut Writer,
        data: &[Vec<Vec<Part>>],
        mut add: impl FnMut(&mut Writer, Part, Part),
    ) -> Res<Vec<Part>> {
        let float = Float(Type::F32);
        let mut sums = Vec::new();
        for row in data {
            let sum = float.held(&mut w.b, 0.0);
            row.iter().flatten().for_each(|x| add(w, sum, *x));
            sums.push(sum);
        }
        lanes::combine(w, self.workgroup, &sums, |w, a, b| {
            Ok(a.iter().zip(b).map(|(x, y)| float.op(&mut w.b, Gen::Add, *x, *y)).collect())
        })
    }

    /// The data of a row beside a word of packed numbers of run `first + member`.
    pub fn word(&self, w: &mut Writer, start: u32, member: Part, first: u32, row: u32, word: u32) -> Vec<Part> {
        let bytes = self.together / 4 * self.dtype.size() as u32;
        let own = w.b.mul(member, self.pitch());
        let at = start + row * self.row() + first * self.pitch() + word * bytes;
        let each = (bytes / 4).min(4);
        let read: Vec<Part> =
            (0..bytes / 4).step_by(each as usize).map(|d| w.b.lds_read(each as u8, own, at + 4 * d)).collect();
        read.iter().flat_map(|p| (0..p.len).map(|i| p.dword(i))).collect()
    }
}
