//! Attention in one kernel: `softmax(score(Q K^T)) V` over tiles of keys, the scores never in memory (T. Dao et al.,
//! FlashAttention-2, 2023).
//!
//! A wave has a block of queries, an instruction's columns, and computes scores transposed: `S^T = K Q^T`. Then a lane has
//! scores of one query only, the softmax of a query is a matter of a lane's registers and of the few lanes that share
//! its column, and the registers of `S^T` are, as they are, the second operand of `O^T = V^T P^T`: the order of keys within a
//! product is free, so a tile of K is read from LDS in the order in which a lane then holds runs of consecutive keys, as it
//! reads them of V. Only where an instruction wants all keys of a product in every lane (WMMA of RDNA3) do the two halves of
//! the wave exchange what they have.
//!
//! The maximum and the sum of exponentials run along with the tiles: where the maximum grows, what was summed before is scaled
//! down. What is multiplied and what becomes weights meanwhile stands side by side, or one behind the other where that is estimated
//! to take less ([`rounds`]). A few queries are taken key by key ([`few`]). Where no matrix instruction takes the types a lane has a
//! query of its own ([`scalar`]). Sums are in one order, so results are the same from run to run.

mod few;
mod parts;
mod plan;
mod rounds;
mod scalar;
mod shares;

use super::address::{self, Offset};
use super::error::{Reason, Res};
use super::float::Float;
use super::fragment;
use super::gemm::{self, Sums, Walk};
use super::loader::{self, Loader, Source};
use super::matmul::lines_are_aligned;
use super::matrix::{MatrixForm, Side};
use super::split::DepthPart;
use super::tile::{Form, Order, Tile, WIDEST};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, expr, regroup};
use crate::graph::expr::{Binary, Expr, Op, Scalar};
use crate::graph::fused::{Attention, Undefined};
use crate::graph::view::View;
use crate::mir::{Builder, Gen, MInst, Opnd, Part, RegClass, Type, matrix_modifiers};
use crate::tensor::DType;
use barewave_isa::matrix::{Fragment, Operand, Step};
use barewave_isa::op;

use parts::Counted;
use plan::{How, Plan};
pub(super) use plan::{fits, key, makes, pages, seen, takes_any_keys};
use rounds::{Place, Rounds, Summed};
use shares::Share;

/// Maxima are taken as at least this, so that a query that sees no key has exponentials of 0, not of NaN. It is the least number that a
/// finite mask can hold.
const LOWEST: f64 = f32::MIN as f64;

/// Exponents may exceed what was the maximum by so many powers of two before what was summed is scaled down: weights then
/// still are far from the end of every type's range.
const SLACK: f64 = 8.0;

/// Scores that are this many, or more than this many over the factor, from 0 differ by nothing or by at least 128 over the factor: a
/// weight is that of the maximum, or vanishes, whatever the base. The product of such a maximum and the factor is rounded by so much
/// that the weights would be infinite or 0; by 64 powers of two at most where a maximum is less and the factor no more than 1.45.
const COARSE: f64 = (1u64 << 30) as f64;

/// How the keys of a tile are numbered: a lane's score in *slot* s (positions of an instruction's result, then results) of group G is
/// that of key `s % run + run G + run groups (s / run)`.
struct Keys {
    run: u32,
    groups: u32,
    /// What each bit of a lane's number adds to a key, as far as it names a group.
    lane: Vec<u32>,
    /// Bits of a position.
    position_bits: u32,
    /// What a row of the instruction's result stands for: pairs of row and key.
    rows: Vec<(u32, u32)>,
}

impl Keys {
    fn new(d: &Fragment, run: u32) -> Keys {
        let groups = 1 << d.lane.iter().filter(|s| s.row > 0).count();
        let mut keys = Keys { run, groups, lane: Vec::new(), position_bits: d.position.len() as u32, rows: Vec::new() };
        let mut next = run;
        for s in &d.lane {
            keys.lane.push(if s.row > 0 { next } else { 0 });
            if s.row > 0 {
                keys.rows.push((s.row, next));
                next *= 2;
            }
        }
        for (bit, s) in d.position.iter().enumerate() {
            keys.rows.push((s.row, keys.of_slot(1 << bit)));
        }
        keys
    }

    /// Key of a slot, of the lanes of group 0.
    fn of_slot(&self, slot: u32) -> u32 {
        slot % self.run + slot / self.run * self.run * self.groups
    }

    /// Key of row `row` (a power of two, or 0) of the first result.
    fn of_row(&self, row: u32) -> u32 {
        self.rows.iter().find(|r| r.0 == row).map_or(0, |r| r.1)
    }

    /// The keys of a tile in the order of the rows that an instruction with so many has for them.
    fn order(&self, side: u32, keys: u32) -> Order {
        let results =
            (0..(keys / side).ilog2()).map(|bit| (self.of_slot(1 << (self.position_bits + bit)), side << bit));
        Order::of(self.rows.iter().map(|(row, key)| (*key, *row)).chain(results))
    }
}

/// A kernel being written.
struct Flash<'a> {
    cx: &'a Cx<'a>,
    kind: &'a Attention,
    plan: Plan,
    a: Side,
    keys: Keys,
    float: Float,
    /// Coordinates of the outer dimensions.
    batch: Vec<Option<Part>>,
    /// First query of the workgroup; the lane's query; its first key in a tile.
    first: Part,
    query: Part,
    lane_key: Part,
    /// What each bit of a lane's number adds to its query, of a wave.
    columns: Vec<u32>,
    /// The workgroup's part of the keys, where they are shared: its number and first key.
    part: Option<(Part, Part)>,
    /// What it computes of its share of all, where that is how work is divided.
    share: Option<Share>,
    /// Exponents are scores times this.
    factor: f64,
    /// The expression of scores, where it does more than scale.
    score: Option<&'a Expr>,
}

/// Where an operand of the scores' expression is for a lane: its query's part, and what a key adds.
struct Operands {
    list: Vec<(usize, Offset, i64)>,
}

/// True for attentions that can share a launch.
pub(super) fn chains(cx: &Cx) -> bool {
    matches!(plan::choose(cx.graph, cx.step, cx.target), Some(How::Few(_)))
}

/// Operands that one which shares a launch loads before it waits for the step before: what there is of caches.
pub(super) fn loaded_ahead(kind: &Attention) -> Vec<usize> {
    if few::loads_ahead(kind) { [1, 2].map(|i| few::past(kind, i)).to_vec() } else { Vec::new() }
}

pub(super) fn lower(cx: &Cx, kind: &Attention) -> Res<Vec<Kernel>> {
    let how = plan::choose(cx.graph, cx.step, cx.target).ok_or(Reason::Malformed("an attention that no form fits"))?;
    let grouped = plan::grouped(cx.step);
    let cx = &Cx { step: grouped.as_ref().unwrap_or(cx.step), ..*cx };
    let plan = match how {
        How::Tiles(plan) => plan,
        How::Few(few) => return few::lower(cx, kind, &few),
        How::Scalars(plan) => return scalar::lower(cx, kind, plan),
    };
    let (a, b, d) = plan.sides().ok_or(Reason::Malformed("a matrix form without fragments"))?;
    let tile = plan.tile(plan.depth);
    let mut w = cx.kernel(tile.threads());
    let r = cx.step.output.view.rank();
    let share = match plan.shares {
        Some(shares) => {
            // What is asked for here is there in each round.
            for i in 0..cx.step.inputs.len() {
                w.buffer(cx, Arg::Input(i))?;
            }
            Some(shares.open(&mut w.b))
        }
        None => None,
    };
    let z = share.map_or_else(|| w.b.workgroup_id(1), |s| s.batch);
    let batch = address::coordinates(&mut w.b, z, &cx.step.output.view.dims[..r - 2]);
    let block = share.map_or_else(|| w.b.workgroup_id(0), |s| s.block_of_batch);
    let block = if share.is_none() && kind.causal.is_some() {
        // Those that see most keys begin first.
        let last = w.b.scalar(plan.blocks() - 1);
        w.b.sub(last, block)
    } else {
        block
    };
    let first = w.b.mul(block, plan.queries);
    let item = w.b.workitem_id();
    let waves = fragment::runs(&[(plan.form.waves.0, fragment::down(plan.form.side()))], &[], 32);
    let column = |s: &Step| fragment::down(s.col);
    let columns = d.lane.iter().map(|s| s.col).collect();
    let lane = d.lane.iter().map(column).chain(waves.lane).collect();
    let query = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
    let query = fragment::coordinate(&mut w.b, &query, item, fragment::row, 1, Some(first));
    let keys = Keys::new(&d, plan.run);
    let lane = keys.lane.iter().map(|k| fragment::down(*k)).collect();
    let lane_key = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
    let number = w.b.and(item, plan.lanes() - 1);
    let lane_key = fragment::coordinate(&mut w.b, &lane_key, number, fragment::row, 1, None);
    let part = (plan.parts > 1).then(|| {
        let number = w.b.workgroup_id(2);
        (number, w.b.mul(number, plan.chunk))
    });
    let part = part.or(share.map(|s| (s.ends.first, w.b.mul(s.tile, plan.keys))));
    let (factor, score) = exponents(kind, 1.0);
    let float = Float(Type::F32);
    let flash =
        Flash { cx, kind, plan, a, keys, float, batch, first, query, lane_key, columns, part, share, factor, score };
    flash.write(w, &b)
}

/// What scores are times in exponents of two, and the expression that makes scores of products where that does more than scale these by `most` or
/// less.
fn exponents(kind: &Attention, most: f64) -> (f64, Option<&Expr>) {
    let scale = scale_of(&kind.score).filter(|s| *s > 0.0 && *s <= most);
    let log2e = std::f64::consts::LOG2_E;
    scale.map_or((log2e, Some(&kind.score)), |s| (s * log2e, None))
}

/// The expression's score of a product. `loaded` gives its operands by number, booleans as bytes.
fn scored(w: &mut Writer, cx: &Cx, score: &Expr, product: Part, loaded: impl Fn(usize) -> Option<Value>) -> Res<Part> {
    let operands = cx.step.inputs.len() - 3;
    let mut values = Vec::with_capacity(operands);
    for n in 0..operands {
        values.push(match loaded(n) {
            Some(x) if cx.dtype(Arg::Input(3 + n)) == DType::Bool => {
                let x = x.reg(&mut w.b);
                Some(Value::Mask(w.b.op(Gen::CmpNe.of(Type::U32), &[0u32.into(), x.into()])))
            }
            x => x,
        });
    }
    let input = |i: u32| values[i as usize - 3].unwrap_or(Value::Word(0u32.into()));
    Ok(expr::eval(&mut w.b, score, &input, Some(Value::Word(product.into())))?.reg(&mut w.b))
}

/// The factor, where an expression only multiplies by one.
fn scale_of(e: &Expr) -> Option<f64> {
    let constant = |v: crate::graph::expr::Val| match e.nodes()[v.index()].op {
        Op::Const(Scalar::Float(c)) => Some(c),
        _ => None,
    };
    let acc = |v: crate::graph::expr::Val| e.nodes()[v.index()].op == Op::Acc;
    match e.nodes().last()?.op {
        Op::Acc => Some(1.0),
        Op::Binary(Binary::Mul, x, y) if acc(x) => constant(y),
        Op::Binary(Binary::Mul, x, y) if acc(y) => constant(x),
        Op::Binary(Binary::Div, x, y) if acc(x) => constant(y).map(|c| 1.0 / c),
        _ => None,
    }
}

/// What results are multiplied by, their sum of weights in one, and where they are defined if they are to be 0 elsewhere. A query that
/// sees no key has a sum of 0; of NaNs the sum is one.
fn inverse(b: &mut Builder, float: Float, undefined: Undefined, sum: Part) -> (Part, Option<Part>) {
    let inverse = b.op(Gen::Rcp.of(Type::F32), &[sum.into()]);
    match undefined {
        Undefined::Nan => (inverse, None),
        Undefined::NanUnlessHidden => {
            let nothing = float.op(b, Gen::CmpEq, 0.0f32, sum);
            (b.select(nothing, 0.0f32, inverse), None)
        }
        Undefined::Zero => (inverse, Some(float.op(b, Gen::CmpLt, 0.0f32, sum))),
    }
}

/// A result, or 0 where it is not defined.
fn cleared(b: &mut Builder, defined: Option<Part>, x: Part) -> Part {
    defined.map_or(x, |mask| b.select(mask, x, 0.0f32))
}

impl Flash<'_> {
    fn write(self, mut w: Writer, b_side: &Side) -> Res<Vec<Kernel>> {
        let (plan, e) = (self.plan, self.plan.e);
        let item = w.b.workitem_id();
        let mut k = self.loader(&mut w, 1, item)?;
        let mut v = self.loader(&mut w, 2, item)?;
        k.go_sideways(&mut w.b, plan.keys, e.keys as u32, item);
        let queries = self.load_queries(&mut w, b_side)?;
        let operands = self.operands(&mut w)?;
        let places = self.places(&mut w.b, item, [&mut k, &mut v]);
        let float = self.float;
        let rounds = Rounds::new(&self, &mut w.b, [k, v], places, queries, operands);
        let Summed { mut results, max, sum: mut whole } = rounds.write(&mut w)?;
        let mut shared = None;
        // Here, since each wave finds out for itself whether it stores.
        let stored = self.stored_tile();
        regroup::free(&mut w.b, &stored);
        if let Some(share) = &self.share {
            let (all_keys, done) = (w.b.label(), w.b.label());
            w.b.branch_lt(share.ends.others, 1u32, all_keys);
            let counted = self.share_of_block(&mut w, share, done, &results, (max, whole));
            let (theirs, sum) = self.put_together(&mut w, &counted, results.len());
            for (own, all) in results.iter().zip(&theirs) {
                (0..own.len).for_each(|i| w.b.copy_into(own.dword(i), all.dword(i)));
            }
            w.b.copy_into(whole, sum);
            w.b.place(all_keys, "whole");
            shared = Some(counted);
        } else if let Some((number, _)) = self.part {
            let counted = self.share(&mut w, number, &results, (max, whole));
            (results, whole) = self.put_together(&mut w, &counted, results.len());
            shared = Some(counted);
        }
        let (inverse, defined) = inverse(&mut w.b, float, self.kind.undefined, whole);
        for p in &results {
            self.scale(&mut w.b, *p, inverse);
            for d in (0..p.len).map(|i| p.dword(i)).filter(|_| defined.is_some()) {
                let x = w.b.to_vector(d);
                let x = cleared(&mut w.b, defined, x);
                w.b.copy_into(d, x);
            }
        }
        let per = plan.form.side() * plan.form.side() / plan.lanes();
        self.store(w, results, (per, &stored), shared)
    }

    /// A key of the workgroup's part among all.
    fn key(&self, b: &mut Builder, own: Part) -> Part {
        self.part.map_or(own, |(_, first)| b.add(own, first))
    }

    /// A loader of K or V.
    fn loader(&self, w: &mut Writer, i: usize, item: Part) -> Res<Loader> {
        let (plan, e) = (self.plan, self.plan.e);
        let view = &self.cx.step.inputs[i].view;
        let r = view.rank();
        let (sk, sw) = (view.strides[r - 2], view.strides[r - 1]);
        let size = plan.types.stored_bytes() as usize;
        let buf = w.buffer(self.cx, Arg::Input(i))?;
        let outer = self.outer(w, view, size);
        // K's k is the depth, its width are keys; V's k are keys.
        let (k_of_tile, depth, width, own_width) = match i {
            1 => (plan.depth, e.depth, e.keys, plan.keys),
            _ => (plan.keys, e.keys, e.width, plan.width),
        };
        let first_key = self.part.map(|p| p.1);
        let part = if i == 1 { DepthPart::whole(plan.depth) } else { DepthPart::guarded(0, first_key) };
        // Either direction may be the dense one.
        let wide = sw == 1 && (i == 2 || sk != 1);
        let (sk, sw) = if wide { (sk, 1) } else { (1, if sk == 1 { sw } else { sk }) };
        let dense = if wide { r - 1 } else { r - 2 };
        let aligned = lines_are_aligned(self.cx.dtype(Arg::Input(i)), view, dense);
        let first = first_key.filter(|_| i == 1).unwrap_or_else(|| w.b.scalar(0));
        let src = Source {
            each: 1,
            buf,
            base: outer.imm,
            scalar: outer.reg,
            first,
            k_stride: sk as u32,
            w_stride: sw as u32,
            depth: depth as u32,
            part,
            aligned,
            // Keys behind the last are not loaded anyway.
            end: if i == 1 { None } else { loader::end_of(view, (r - 2, r - 1), size, own_width) },
            columns: None,
        };
        let line = if wide { width } else { depth };
        let tile = plan.tile(k_of_tile);
        // Keys lie as lanes read them, so that those who read together reach all banks.
        let order = if i == 1 && !wide && tile.cell() == WIDEST {
            self.keys.order(plan.form.side(), plan.keys)
        } else {
            Order::PLAIN
        };
        let together = loader::most_together(size as u32, line as u32, aligned);
        Ok(loader::dense_together(&mut w.b, src, &tile, (own_width, order), together, item))
    }

    /// Offset of an access from its outer dimensions.
    fn outer(&self, w: &mut Writer, view: &View, size: usize) -> Offset {
        address::offset_of_dims(&mut w.b, view, size, &self.batch, 0..view.rank() - 2, true)
    }

    /// The lane's queries, as the first product's second operand: for each step what a lane reads in it.
    fn load_queries(&self, w: &mut Writer, side: &Side) -> Res<Vec<Part>> {
        let plan = self.plan;
        let view = &self.cx.step.inputs[0].view;
        let (r, size) = (view.rank(), plan.types.stored_bytes());
        let buf = w.buffer(self.cx, Arg::Input(0))?;
        let outer = self.outer(w, view, size as usize);
        let item = w.b.workitem_id();
        let held = side.own.max(plan.run);
        // The lane's first element of a step.
        let lane = side.lanes.iter().map(|s| fragment::down(s.col * held)).collect();
        let depth = Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
        let number = w.b.and(item, plan.lanes() - 1);
        let depth = fragment::coordinate(&mut w.b, &depth, number, fragment::row, 1, None);
        let row = w.b.mul(self.query, (view.strides[r - 2] * i64::from(size)) as i32);
        let at = w.b.mad(depth, size, row);
        let at = match outer.reg {
            Some(o) => w.b.add(at, o),
            None => at,
        };
        let at = w.b.to_vector(at);
        let inside = (!plan.e.queries.is_multiple_of(plan.queries as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(plan.e.queries as u32).into(), self.query.into()]));
        let at = inside.map_or(at, |m| w.b.guard(m, at));
        let together = self.together(view, plan.e.depth as u32);
        let mut out = Vec::new();
        for step in 0..plan.steps() {
            let first = step * plan.step();
            let part = w.b.v((held * size / 4) as u8);
            let last = first + plan.step() > plan.e.depth as u32;
            for e in (0..held).step_by(together as usize) {
                let mut from = at;
                if last {
                    let limit = (plan.e.depth as u32).saturating_sub(first + e);
                    let depth = w.b.to_vector(depth);
                    let inside = w.b.op(Gen::CmpGt.of(Type::U32), &[limit.into(), depth.into()]);
                    from = w.b.guard(inside, at);
                }
                let imm = outer.imm + (first + e) * size;
                if together * size >= 4 {
                    let (word, count) = ((e * size / 4) as u8, (together * size / 4) as u8);
                    w.b.load_into(part.slice(word, count), buf, from, 0u32, imm);
                    continue;
                }
                // Halves, two of which share a register.
                let half = w.b.load_op(op::BUFFER_LOAD_USHORT, buf, from, 0u32, imm);
                let word = part.dword((e / 2) as u8);
                if e % 2 == 0 {
                    w.b.copy_into(word, half);
                } else {
                    let both = values::pack_halves(&mut w.b, word, half);
                    w.b.copy_into(word, both);
                }
            }
            out.push(part);
        }
        Ok(out)
    }

    /// Elements of a line that one load may take, of those that a lane reads together.
    fn together(&self, view: &View, line: u32) -> u32 {
        let size = self.plan.types.stored_bytes();
        let aligned = values::is_word_aligned(self.cx.dtype(Arg::Input(0)), view);
        let fits = |n: &u32| *n <= self.plan.run && line.is_multiple_of(*n) && aligned;
        if size >= 4 { 1 } else { [8, 4, 2].into_iter().find(fits).unwrap_or(1) }
    }

    /// Registers for sums of an instruction, of the class that it adds to.
    fn sums(&self, b: &mut Builder, dwords: u8) -> Part {
        let slot = b.target().op(self.plan.form.instruction).and_then(|i| i.dsts.first());
        let vectors = slot.is_some_and(|s| s.class.contains(barewave_isa::Class::VGPR));
        if vectors { b.v(dwords) } else { b.a(dwords) }
    }

    /// k that a lane reads for a step of scores.
    fn held(&self) -> u32 {
        self.a.own.max(self.plan.run)
    }

    /// Cells of keys that a lane reads for weights that are multiplied together: where every lane of an instruction has all keys, those
    /// of both halves of the wave.
    fn cells(&self) -> u32 {
        if self.a.groups < self.keys.groups { self.keys.groups } else { 1 }
    }

    /// Registers that a read of either product takes.
    fn words(&self) -> u32 {
        self.held().max(self.cells() * self.plan.run) * self.plan.types.bytes() / 4
    }

    /// Tiles of K and V in LDS, and where a lane reads in them.
    fn places(&self, b: &mut Builder, item: Part, [k, v]: [&mut Loader; 2]) -> [Place; 2] {
        let (plan, held) = (&self.plan, self.held());
        let lanes = |lane: Vec<Step>| Fragment { lane, position: Vec::new(), bits: 32, spacing: 32 };
        // Rows of the first operand are keys; of the second product's, elements of values.
        let of_k = self.a.lanes.iter().map(|s| Step { row: s.col * held, col: self.keys.of_row(s.row) });
        let of_v = self.a.lanes.iter().map(|s| Step { row: s.col * plan.run, col: s.row });
        let (of_k, of_v) = (lanes(of_k.collect()), lanes(of_v.collect()));
        let number = b.and(item, plan.lanes() - 1);
        [(k, of_k, plan.depth), (v, of_v, plan.keys)].map(|(loader, lane, depth)| {
            let layout = loader.layout();
            let base = b.lds(layout.bytes(depth));
            loader.go_to(b, base);
            let address = layout.address(b, &lane, number);
            let address = b.add(address, base);
            Place { address: b.to_vector(address), layout }
        })
    }

    /// Where the loop over keys ends: a causal mask hides what lies behind the last query of the workgroup.
    fn limit(&self, b: &mut Builder) -> Opnd {
        if let Some(share) = &self.share {
            return b.mul(share.tiles, self.plan.keys).into();
        }
        let all = self.plan.e.keys as u32;
        let end = match (self.kind.causal, self.part) {
            (None, None) => return all.into(),
            (None, Some(_)) => b.scalar(all),
            (Some(past), _) => b.add(self.first, (past + i64::from(self.plan.queries)) as u32),
        };
        let end = self.part.map_or(end, |(_, first)| b.sub(end, first));
        // At least one round.
        let end = b.generic(Gen::Max.of(Type::I32), &[end.into(), 1u32.into()]);
        let most = if self.part.is_some() { self.plan.chunk } else { all };
        b.generic(Gen::Min.of(Type::U32), &[end.into(), most.into()]).into()
    }

    /// A product's instruction.
    fn product(&self, b: &mut Builder, sum: Part, x: Part, y: Part, onto: Opnd) {
        let op = self.plan.form.instruction;
        let mods = matrix_modifiers(op, &self.plan.form.op);
        b.push(MInst { mods, ..MInst::new(op, &[sum.into()], &[x.into(), y.into(), onto]) });
    }

    /// Places of the operands of the scores' expression.
    fn operands(&self, w: &mut Writer) -> Res<Operands> {
        let mut list = Vec::new();
        for i in 3..3 + self.kind.operands {
            let view = &self.cx.step.inputs[i].view;
            let (r, size) = (view.rank(), self.cx.dtype(Arg::Input(i)).size());
            w.buffer(self.cx, Arg::Input(i))?;
            let outer = self.outer(w, view, size);
            let (row, key) = (view.strides[r - 2] * size as i64, view.strides[r - 1] * size as i64);
            let mut at = w.b.mul(self.query, row as i32);
            at = w.b.mad(self.lane_key, key as i32, at);
            if let Some(o) = outer.reg {
                at = w.b.add(at, o);
            }
            let at = w.b.to_vector(at);
            list.push((i, Offset { reg: Some(at), imm: outer.imm }, key));
        }
        Ok(Operands { list })
    }

    /// The step's expression of scores, from a slot on.
    fn evaluated(
        &self,
        w: &mut Writer,
        scores: Vec<Part>,
        score: &Expr,
        operands: &Operands,
        (first, mut slot): (Part, u32),
    ) -> Res<Vec<Part>> {
        let bases: Vec<(usize, Offset, i64)> = operands
            .list
            .iter()
            .map(|(i, at, key)| {
                let ahead = w.b.mul(first, *key as i32);
                let reg = at.reg.map(|r| w.b.add(r, ahead));
                (*i, Offset { reg, imm: at.imm }, *key)
            })
            .collect();
        let mut out = Vec::new();
        for run in scores.chunks(self.plan.run as usize) {
            let mut loaded: Vec<Vec<Value>> = vec![Vec::new(); self.cx.step.inputs.len()];
            for base in &bases {
                loaded[base.0] = self.load_run(w, *base, slot, run.len() as u32)?;
            }
            for (e, s) in run.iter().enumerate() {
                let input = |i: u32| loaded[i as usize].get(e).copied().unwrap_or(Value::Word(0u32.into()));
                out.push(expr::eval(&mut w.b, score, &input, Some(Value::Word((*s).into())))?.reg(&mut w.b));
            }
            slot += run.len() as u32;
        }
        Ok(out)
    }

    /// The elements of an operand for consecutive keys, from that of a slot on: 16 bytes at a time where they lie together.
    fn load_run(&self, w: &mut Writer, (i, at, key): (usize, Offset, i64), slot: u32, count: u32) -> Res<Vec<Value>> {
        let (t, view) = (self.cx.dtype(Arg::Input(i)), &self.cx.step.inputs[i].view);
        let buf = w.buffer(self.cx, Arg::Input(i))?;
        let wide = values::comes_in_fours(t)
            && key == t.size() as i64
            && values::is_word_aligned(t, view)
            && view.dims.last().is_some_and(|n| n.is_multiple_of(self.plan.run as usize));
        let together = if wide { (16 / t.size() as u32).min(count) } else { 1 };
        let mut out = Vec::new();
        for e in (0..count).step_by(together as usize) {
            let imm = at.imm.wrapping_add((key * i64::from(self.keys.of_slot(slot) + e)) as u32);
            let at = Offset { imm, ..at };
            match together {
                1 => out.push(values::load(&mut w.b, t, buf, at)),
                n => out.extend(values::load_some(&mut w.b, t, buf, at, n)),
            }
        }
        Ok(out)
    }

    /// How many of the first keys all queries of the workgroup see; none where all see all.
    fn seen_by_all(&self, b: &mut Builder) -> Option<Part> {
        let keys = self.plan.e.keys as u32;
        let Some(past) = self.kind.causal else {
            return (!keys.is_multiple_of(self.plan.keys)).then(|| b.scalar(keys));
        };
        let seen = b.add(self.first, (past + 1) as u32);
        let seen = b.generic(Gen::Max.of(Type::I32), &[seen.into(), 0u32.into()]);
        Some(b.generic(Gen::Min.of(Type::U32), &[seen.into(), keys.into()]))
    }

    /// Hides keys behind the end, and those that a causal mask hides, from a slot on.
    fn hide(&self, b: &mut Builder, scores: &[Part], (first, slot): (Part, u32)) {
        let plan = self.plan;
        let behind = !plan.e.keys.is_multiple_of(plan.keys as usize);
        let hidden = b.to_vector(f32::NEG_INFINITY);
        if behind {
            let key = b.add(self.lane_key, first);
            let key = b.to_vector(key);
            for (s, slot) in scores.iter().zip(slot..) {
                let limit = (plan.e.keys as u32).saturating_sub(self.keys.of_slot(slot));
                let outside = b.op(Gen::CmpLe.of(Type::U32), &[limit.into(), key.into()]);
                b.select_into(*s, outside, hidden);
            }
        }
        if let Some(past) = self.kind.causal {
            // How many more keys the query sees than the lane's first.
            let key = b.add(self.lane_key, first);
            let seen = b.sub(self.query, key);
            let seen = b.add(seen, past as u32);
            let seen = b.to_vector(seen);
            for (s, slot) in scores.iter().zip(slot..) {
                let outside = b.op(Gen::CmpGt.of(Type::I32), &[self.keys.of_slot(slot).into(), seen.into()]);
                b.select_into(*s, outside, hidden);
            }
        }
    }

    /// Bits of a lane's number that name a group.
    fn group_bits(&self) -> impl Iterator<Item = u32> {
        self.keys.lane.iter().enumerate().filter(|(_, k)| **k > 0).map(|(bit, _)| 1u32 << bit)
    }

    /// Multiplies sums by a number of the lane.
    fn scale(&self, b: &mut Builder, p: Part, by: Part) {
        let vector = b.function().vreg(p.reg).class == RegClass::V;
        for i in 0..p.len {
            let d = p.dword(i);
            if vector {
                b.emit(Gen::Mul.of(Type::F32), &[d.into()], &[d.into(), by.into()]);
                continue;
            }
            let x = b.to_vector(d);
            let x = self.float.mul(b, x, by);
            b.copy_into(d, x);
        }
    }

    /// How results lie.
    fn walk(&self) -> Walk {
        let r = self.cx.step.output.view.rank();
        Walk { m_dim: r - 2, rows: self.plan.e.queries, n_dims: r - 1..r, swapped: false, positions: None }
    }

    /// The tile of results, whose lines waves put together in LDS where an instruction leaves a lane no neighbours of a line that could be
    /// stored together. LDS has room for that as far as no fewer workgroups share it.
    fn stored_tile(&self) -> Tile {
        let plan = &self.plan;
        let tile = plan.tile(plan.depth);
        let neighbours = plan.form.op.fragment(Operand::D).and_then(|d| d.position.first().map(|s| s.row == 1));
        if !gemm::stores_together(self.cx, &self.walk()) || neighbours == Some(true) {
            return tile;
        }
        let form = Form::Matrix(MatrixForm { in_rows: true, ..plan.form });
        let k = plan.room(self.cx.target) / ((tile.m + tile.n) * tile.types.bytes());
        Tile { k, form, ..tile }
    }

    /// The step's expression and the store.
    fn store(
        self,
        mut w: Writer,
        results: Vec<Part>,
        (per, tile): (u32, &Tile),
        shared: Option<Counted>,
    ) -> Res<Vec<Kernel>> {
        let (plan, e) = (self.plan, self.plan.e);
        // What lies behind the last column is not stored, whatever it is.
        let mut parts = results;
        parts.resize((plan.width / plan.form.side()) as usize, parts[0]);
        let sums = Sums { parts, per, dwords: 1 };
        let none = w.b.scalar(0);
        gemm::store(&mut w, self.cx, (tile, &sums), &self.walk(), (self.first, none), None, |w, view, size| {
            self.outer(w, view, size)
        })?;
        let mut grid = [plan.blocks(), e.batches as u32, plan.parts];
        let mut sharing = [1, 1, plan.parts];
        let flops = 2 * (e.batches * e.queries * e.keys * (e.depth + e.width)) as u64;
        let Some(Counted { done, bytes: [workspace, counters], .. }) = shared else {
            return Ok(vec![w.finish(grid, flops)]);
        };
        w.b.place(done, "done");
        if let Some((share, shares)) = self.share.zip(plan.shares) {
            share.close(&mut w.b);
            grid = [shares.groups, 1, 1];
            sharing = grid;
        }
        let kernel = w.finish(grid, flops);
        Ok(vec![Kernel { workspace, counters, sharing, ..kernel }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mir::matrix_instruction;
    use barewave_emu::observe::LaneAccess;
    use barewave_isa::Target;
    use barewave_timing::{Chip, lds};

    /// Reads of keys take no longer than those of memory that lies side by side.
    #[test]
    fn keys_of_a_read_are_in_different_banks() {
        const KEYS: u32 = 64;
        let mut seen = 0;
        for (name, side) in
            ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"].into_iter().flat_map(|t| [(t, 16), (t, 32)])
        {
            let target = Target::parse(name).unwrap();
            let Some((instruction, op)) = matrix_instruction(target, [Type::F16; 2], Type::F32, side) else { continue };
            let form = MatrixForm { swapped: true, ..MatrixForm::new(instruction, op).unwrap() };
            let (a, d) = (form.operand(Operand::A).unwrap(), form.op.fragment(Operand::D).unwrap());
            let keys = Keys::new(&d, 8);
            let order = keys.order(form.side(), KEYS);
            let held = a.own.max(8);
            let read = |at: &dyn Fn(u32) -> u32| -> u32 {
                let lanes = 0..1 << a.lanes.len();
                let list = lanes.map(|lane| LaneAccess { lane, address: u64::from(at(lane)) * 16, bytes: 16 });
                lds::clocks(&Chip::of(target).unwrap(), &list.collect::<Vec<_>>(), false)
            };
            let cell = |lane: u32| {
                let bits = a.lanes.iter().enumerate().filter(|(bit, _)| lane >> bit & 1 > 0);
                bits.map(|(_, s)| s.col * held / 8 * KEYS + order.place(keys.of_row(s.row))).sum()
            };
            assert!(read(&cell) <= read(&|lane| lane), "{name}, {side} keys");
            let all: std::collections::BTreeSet<u32> = (0..KEYS).map(|key| order.place(key)).collect();
            assert_eq!(all, (0..KEYS).collect(), "{name}, {side} keys");
            (0..KEYS).for_each(|key| assert_eq!(order.column(order.place(key)), key));
            seen += 1;
        }
        assert!(seen >= 8, "{seen}");
    }
}
