//! Products of a few rows with weights of a few bits: decoding. What counts is that each weight comes from memory once, 16 bytes a
//! lane, with enough of it on the way.
//!
//! A wave takes some columns and all rows. Its lanes walk along the depth in *chunks*, the weights that one load brings, all of
//! one block: a chunk's part of the sum is `scale * (sum of field * x - zero * sum of x)`, so that fields are multiplied as they
//! are. Conversions are slow on GCN and CDNA: fields of less than a byte are put into the fraction of a float of 1 to 2 instead,
//! and what that adds goes with the zero point. What is loaded of the other operand serves all columns of the wave. At the end lanes are added by the butterfly of [`lanes`](super::lanes), and one lane
//! for each result stores it.

use super::address::{self, Offset};
use super::error::Res;
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, epilogue, lanes};
use crate::graph::kinds::packed::{Packed, Zeros};
use crate::mir::{Buffer, Builder, Gen, Part, Pipeline, Type};
use barewave_isa::op;

/// Waves of a workgroup.
const WAVES: u32 = 4;

/// Most columns of a wave.
const COLUMNS: u32 = 4;

/// Waves of a SIMD that keep memory busy.
const BUSY: u32 = 2;

/// Dwords of weights that a lane has in flight.
const IN_FLIGHT: u32 = 64;

/// Sizes of the walk.
struct Shape {
    rows: u32,
    depth: u32,
    columns: u32,
    /// Blocks of a column, bytes of its weights.
    blocks: u32,
    pitch: u32,
    /// Dwords and weights of a chunk, chunks of a column.
    dwords: u32,
    fields: u32,
    chunks: u32,
    /// Columns of a wave.
    own: u32,
    /// Chunks of a lane in a round, rounds.
    together: u32,
    rounds: u32,
}

impl Shape {
    fn of(cx: &Cx, kind: &Packed) -> Shape {
        let (out, t) = (&cx.step.output.view.dims, cx.target.info());
        let depth = cx.step.inputs[0].view.dims[1];
        let (blocks, pitch) = kind.blocks(depth);
        let bytes = (kind.block * kind.bits / 8).min(16) as u32;
        let (columns, chunks, dwords) = (out[1] as u32, pitch as u32 / bytes, bytes / 4);
        let mut own = COLUMNS;
        while own > 1 && columns / own < BUSY * t.cus * t.simds {
            own /= 2;
        }
        let each = chunks.div_ceil(t.wave_size);
        let rounds = (each * own * dwords).div_ceil(IN_FLIGHT);
        Shape {
            rows: out[0] as u32,
            depth: depth as u32,
            columns,
            blocks: blocks as u32,
            pitch: pitch as u32,
            dwords,
            fields: bytes * 8 / kind.bits as u32,
            chunks,
            own,
            together: each.div_ceil(rounds),
            rounds,
        }
    }
}

pub(super) fn lower(cx: &Cx, kind: &Packed) -> Res<Vec<Kernel>> {
    let s = Shape::of(cx, kind);
    let wave = cx.target.info().wave_size;
    let mut w = cx.kernel(WAVES * wave);
    let item = w.b.workitem_id();
    let lane = w.b.and(item, wave - 1);
    let number = w.b.shr(item, wave.trailing_zeros());
    let number = w.b.uniform(number);
    let group = w.b.workgroup_id(0);
    let first = w.b.mad(group, WAVES, number);
    let first = w.b.mul(first, s.own);
    let walk = Walk::new(&mut w, cx, kind, &s, lane, first)?;
    let sums: Vec<Part> = (0..s.rows * s.own).map(|_| w.b.to_vector(0.0f32)).collect();
    match s.rounds {
        1 => {
            let zero = w.b.scalar(0);
            walk.round(&mut w.b, zero, &sums);
        }
        rounds => {
            let node = w.b.begin_loop("chunks");
            let start = w.b.mul(node.counter(), s.together * wave);
            walk.round(&mut w.b, start, &sums);
            w.b.end_loop(node, rounds, 1, Pipeline::Off, false);
        }
    }
    let add = |w: &mut Writer, x: &[Part], y: &[Part]| {
        Ok(x.iter().zip(y).map(|(x, y)| w.b.op(Gen::Add.of(Type::F32), &[(*x).into(), (*y).into()])).collect())
    };
    let sums = lanes::combine(&mut w, wave, &sums, add)?;
    store(w, cx, &s, lane, first, &sums)
}

/// Lane `i` stores result `i`: rows, then columns of the wave.
fn store(mut w: Writer, cx: &Cx, s: &Shape, lane: Part, first: Part, sums: &[Part]) -> Res<Vec<Kernel>> {
    let b = &mut w.b;
    let mut own = sums[0];
    for (sum, i) in sums.iter().zip(0u32..).skip(1) {
        let mask = b.op(Gen::CmpEq.of(Type::U32), &[i.into(), lane.into()]);
        own = b.select(mask, *sum, own);
    }
    let (row, column) = b.divmod(lane, s.own);
    let column = b.add(column, first);
    let mut inside = b.op(Gen::CmpGt.of(Type::U32), &[(s.rows * s.own).into(), lane.into()]);
    if !s.columns.is_multiple_of(s.own * WAVES) {
        let within = b.op(Gen::CmpGt.of(Type::U32), &[s.columns.into(), column.into()]);
        inside = b.mask_and(inside, within);
    }
    epilogue::finish(&mut w, cx, Value::Word(own.into()), |w, arg| {
        let view = match arg {
            Arg::Input(i) => &cx.step.inputs[i].view,
            _ => &cx.step.output.view,
        };
        let at = address::offset(&mut w.b, view, cx.dtype(arg).size(), &[Some(row), Some(column)]);
        let v = at.vector(&mut w.b);
        Ok(Offset { reg: Some(w.b.guard(inside, v)), imm: at.imm })
    })?;
    let flops = 2 * u64::from(s.rows) * u64::from(s.depth) * u64::from(s.columns);
    Ok(vec![w.finish([s.columns.div_ceil(s.own * WAVES), 1, 1], flops)])
}

/// How a wave walks along the depth.
struct Walk<'a> {
    cx: &'a Cx<'a>,
    kind: &'a Packed,
    s: &'a Shape,
    lane: Part,
    /// The columns, the last one for those behind it.
    columns: Vec<Part>,
    data: Buffer,
    weights: Buffer,
    scales: Buffer,
    zeros: Option<Buffer>,
}

impl<'a> Walk<'a> {
    fn new(w: &mut Writer, cx: &'a Cx<'a>, kind: &'a Packed, s: &'a Shape, lane: Part, first: Part) -> Res<Walk<'a>> {
        let column = |w: &mut Writer, i: u32| {
            let at = w.b.add(first, i);
            if s.columns.is_multiple_of(s.own * WAVES) {
                return at;
            }
            w.b.op(Gen::Min.of(Type::U32), &[at.into(), (s.columns - 1).into()])
        };
        let columns = (0..s.own).map(|i| column(w, i)).collect();
        let [data, weights, scales] = [0, 1, 2].map(|i| w.buffer(cx, Arg::Input(i)));
        let zeros = (kind.zeros != Zeros::Middle).then(|| w.buffer(cx, Arg::Input(3))).transpose()?;
        Ok(Walk { cx, kind, s, lane, columns, data: data?, weights: weights?, scales: scales?, zeros })
    }

    /// The chunks of a round, from number `start` on, added to the sums.
    fn round(&self, b: &mut Builder, start: Part, sums: &[Part]) {
        let (s, wave) = (self.s, b.wave_size());
        let first = b.add(self.lane, start);
        let high = b.to_vector(0x3f00_0000u32);
        // Weights of all chunks first, so that they are on the way together.
        let mut loaded = Vec::new();
        for c in 0..s.together {
            let chunk = b.add(first, c * wave);
            let inside = (!s.chunks.is_multiple_of(s.rounds * s.together * wave))
                .then(|| b.op(Gen::CmpGt.of(Type::U32), &[s.chunks.into(), chunk.into()]));
            let at = b.mul(chunk, s.dwords * 4);
            let at = self.guarded(b, inside, at);
            let load = |b: &mut Builder, column: &Part| {
                let line = b.mul(*column, s.pitch);
                b.load(self.weights, s.dwords as u8, at, line, 0)
            };
            let weights: Vec<Part> = self.columns.iter().map(|column| load(b, column)).collect();
            let scales: Vec<(Part, Part)> =
                self.columns.iter().map(|column| self.scale(b, *column, chunk, inside)).collect();
            loaded.push((chunk, weights, scales));
        }
        for (chunk, weights, scales) in loaded {
            let rows: Vec<Vec<Part>> = (0..s.rows).map(|row| self.elements(b, row, chunk)).collect();
            let sums_of_rows: Vec<Part> = rows.iter().map(|x| sum(b, x)).collect();
            for ((column, weights), (scale, zero)) in weights.into_iter().enumerate().zip(scales) {
                let fields = self.fields(b, weights, high);
                for (row, (x, sum_of_x)) in rows.iter().zip(&sums_of_rows).enumerate() {
                    let dot = b.op(Gen::Mul.of(Type::F32), &[x[0].into(), fields[0].into()]);
                    for (x, q) in x.iter().zip(&fields).skip(1) {
                        b.fma_into(dot, *x, *q);
                    }
                    b.fma_into(dot, zero, *sum_of_x);
                    b.fma_into(sums[row * self.columns.len() + column], scale, dot);
                }
            }
        }
    }

    fn guarded(&self, b: &mut Builder, inside: Option<Part>, at: Part) -> Part {
        inside.map_or(at, |mask| b.guard(mask, at))
    }

    /// Scale and zero point, its sign turned, of a chunk of a column; as its [fields](Self::fields) want them.
    fn scale(&self, b: &mut Builder, column: Part, chunk: Part, inside: Option<Part>) -> (Part, Part) {
        let (s, kind) = (self.s, self.kind);
        let block = b.shr(chunk, (kind.block as u32 / s.fields).trailing_zeros());
        let number = |b: &mut Builder, operand: usize, buf: Buffer| {
            let t = self.cx.dtype(Arg::Input(operand));
            let line = b.mul(column, s.blocks);
            let at = b.add(block, line);
            let at = b.mul(at, t.size() as u32);
            let at = self.guarded(b, inside, at);
            values::load(b, t, buf, Offset { reg: Some(at), imm: 0 }).reg(b)
        };
        let scale = number(b, 2, self.scales);
        let zero = match (kind.zeros, self.zeros) {
            (Zeros::Fields, Some(buf)) => {
                let bits = kind.bits as u32;
                let line = b.mul(column, (s.blocks * bits).div_ceil(8));
                let byte = b.shr(block, (8 / bits).trailing_zeros());
                let at = b.add(byte, line);
                let at = self.guarded(b, inside, at);
                let raw = b.load_op(op::BUFFER_LOAD_UBYTE, buf, at, 0u32, 0);
                let within = b.and(block, 8 / bits - 1);
                let by = b.mul(within, bits);
                let field = b.shr(raw, by);
                let field = b.and(field, (1 << bits) - 1);
                b.convert(Type::U32, Type::F32, field)
            }
            (Zeros::Numbers, Some(buf)) => number(b, 3, buf),
            _ => b.to_vector(kind.middle() as f32),
        };
        if kind.bits == 8 {
            return (scale, b.op(Gen::Neg.of(Type::F32), &[zero.into()]));
        }
        let range = (1u32 << kind.bits) as f32;
        let zero = b.fma(zero, -1.0 / range, -1.0f32);
        (b.op(Gen::Mul.of(Type::F32), &[range.into(), scale.into()]), zero)
    }

    /// The fields of a chunk as floats: of 8 bits as they are; of fewer `1 + field / 2^bits`, which takes no conversion.
    fn fields(&self, b: &mut Builder, chunk: Part, high: Part) -> Vec<Part> {
        let bits = self.kind.bits as u32;
        let mut out = Vec::new();
        for word in 0..chunk.len {
            let word = chunk.dword(word);
            if bits == 8 {
                const BYTES: [barewave_isa::Op; 4] =
                    [op::V_CVT_F32_UBYTE0, op::V_CVT_F32_UBYTE1, op::V_CVT_F32_UBYTE2, op::V_CVT_F32_UBYTE3];
                out.extend(BYTES.map(|byte| b.op(byte, &[word.into()])));
                continue;
            }
            // In each byte a field where a float has the first bits of its fraction, behind the last bit of its exponent.
            let repeated = |byte: u32| byte * 0x0101_0101;
            let place = |b: &mut Builder, p: u32| {
                let (from, to) = (p * bits, 7 - bits);
                let moved = if from > to { b.shr(word, from - to) } else { b.shl(word, to - from) };
                let field = b.and(moved, repeated(((1 << bits) - 1) << to));
                b.op(Gen::Or.of(Type::B32), &[field.into(), repeated(0x80).into()])
            };
            let parts: Vec<Part> = (0..8 / bits).map(|p| place(b, p)).collect();
            for byte in 0..4u32 {
                // Selector 12 gives a zero byte, 7 the last byte of `high`.
                let selector = 0x0700_0c0c | byte << 16;
                out.extend(parts.iter().map(|p| b.op(op::V_PERM_B32, &[high.into(), (*p).into(), selector.into()])));
            }
        }
        out
    }

    /// The elements of a row that a chunk's weights are multiplied with; zeros behind the depth.
    fn elements(&self, b: &mut Builder, row: u32, chunk: Part) -> Vec<Part> {
        let s = self.s;
        let (t, view) = (self.cx.dtype(Arg::Input(0)), &self.cx.step.inputs[0].view);
        let size = t.size() as u32;
        let (count, base) = (16 / size, (view.offset + i64::from(row) * view.strides[0]) as u32 * size);
        let ends = !s.depth.is_multiple_of(s.rounds * s.together * b.wave_size() * s.fields);
        let k = b.mul(chunk, s.fields);
        let mut out = Vec::new();
        for first in (0..s.fields).step_by(count as usize) {
            let at = b.mul(k, size);
            let inside = ends.then(|| {
                let at = if first > 0 { b.add(k, first) } else { k };
                b.op(Gen::CmpGt.of(Type::U32), &[s.depth.into(), at.into()])
            });
            let at = self.guarded(b, inside, at);
            let loaded = values::load_some(b, t, self.data, Offset { reg: Some(at), imm: base + first * size }, count);
            out.extend(loaded.into_iter().map(|v| v.reg(b)));
        }
        out
    }
}

/// The sum of some values, pair by pair.
fn sum(b: &mut Builder, values: &[Part]) -> Part {
    let mut list = values.to_vec();
    while list.len() > 1 {
        let pairs = list.chunks(2).map(|p| match *p {
            [x, y] => b.op(Gen::Add.of(Type::F32), &[x.into(), y.into()]),
            _ => p[0],
        });
        list = pairs.collect();
    }
    list[0]
}
