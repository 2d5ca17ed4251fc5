//! Matrix products of normalised rows ([`Standardized`]).
//!
//! Rows are multiplied as they are. Who moves them to LDS counts them meanwhile ([`tally`](super::loader::tally)), so that behind its loop a
//! workgroup knows the mean and the deviation of its rows, and corrects its sums before the step's expression sees them: two
//! multiply-adds for each. Where others want the normalised rows, each workgroup of a row of tiles reads some columns of its rows again
//! and writes them.
//!
//! Where the depth is shared what is counted of its parts is added up as sums are.

use super::address::Offset;
use super::choice::{self, Extents, Machine, Split};
use super::error::Res;
use super::float::Float;
use super::gemm;
use super::loader::tally::{self, Levels, Tally};
use super::normed;
use super::rounds;
use super::tile::{Form, Layout, Tile};
use super::values::{self, Value};
use super::{Arg, Cx, Kernel, Writer, expr, matmul, sized};
use crate::graph::Turned;
use crate::graph::fused::{Gated, MadeRows, Standardized, Step, StepKind};
use crate::mir::{Gen, Part, Type};
use crate::tensor::DType;
use barewave_isa::Target;

/// Of what is counted beside matrix instructions that others run in the shadow of, the share that takes time.
const SEEN: f64 = 0.3;

/// Instructions of a wave behind its loop, and how often it waits for LDS and for others there. Counted.
const AFTER: f64 = 110.0;
const MEETINGS: f64 = 4.0;

/// The share of the way to what the device shares that is left to wait for when rows are made.
const WAITED: f64 = 0.5;

pub(super) fn lower(cx: &Cx, s: &Standardized) -> Res<Vec<Kernel>> {
    let product = product(cx.step);
    matmul::lower(&Cx { step: &product, ..*cx }, None, Some(&Rows { s, cx }))
}

/// Rows can be counted: no two workitems have the same elements.
fn fits(tile: &Tile, split: &Split) -> bool {
    match tile.form {
        Form::Matrix(_) | Form::Vector { .. } => true,
        Form::Sliced(f) => split.count == 1 && f.has_lanes_apart(),
        Form::Few(_) | Form::Winograd { .. } => false,
    }
}

/// What is counted leaves a SIMD two waves, where sums in vector registers would.
fn has_registers(target: Target, tile: &Tile) -> bool {
    let info = target.info();
    !matches!(tile.form, Form::Vector { .. }) || 2 * tile.sums() < target.most_vgprs(info.wave_size, 2)
}

/// Bytes of LDS of a workgroup.
fn room(tile: &Tile) -> u32 {
    let tiles = match tile.form {
        Form::Sliced(f) => f.room(tile).max(f.members() * tile.m * tally::PART),
        _ => tile.buffers * (Layout::most(tile, tile.m) + Layout::most(tile, tile.n)),
    };
    tiles + tally::behind(tile)
}

/// The product alone; it reads its own of the step's operands.
fn product(step: &Step) -> Step {
    let kind = if step.kind.pairs() { StepKind::Gated(Gated { rows: None }) } else { StepKind::MatMul };
    Step { kind, ..step.clone() }
}

/// True where products of normalised rows take less time than they do and the normalisation as launches of their own.
pub(super) fn are_worth(cx: &Cx, turned: &[Turned]) -> bool {
    let StepKind::Normalize(norm) = cx.step.kind else { return false };
    let more = |t: &Turned| {
        let s = t.step.kind.standardized()?;
        let product = product(&t.step);
        let whole = Cx { step: &t.step, ..*cx };
        let cx = Cx { step: &product, ..*cx };
        let apart = Cx { step: &cx.graph.steps[t.at], ..cx };
        if sized::fits(cx.graph, apart.step) {
            return None;
        }
        let types = gemm::types(&cx).ok()?;
        let (clocks, ..) = Rows { s, cx: &whole }.choose(&cx, &matmul::extents_in_rows(&cx)).ok()?;
        let (before, ..) =
            choice::quickest(cx.target, cx.tuning, types, &matmul::extents(&apart), |_, _| Some(0.0)).ok()?;
        Some(clocks - before)
    };
    let more: Option<Vec<f64>> = turned.iter().map(more).collect();
    let view = &cx.step.output.view;
    let rows = view.dims[..view.rank() - 1].iter().product::<usize>();
    let length = view.dims[view.rank() - 1];
    let (dtype, cost) = (cx.dtype(Arg::Output), cx.step.expr.cost());
    let apart = normed::apart(cx.target, (rows, length), &norm, cost, dtype);
    more.is_some_and(|list| list.iter().sum::<f64>() < apart)
}

/// The rows of a product.
pub(super) struct Rows<'a> {
    s: &'a Standardized,
    /// The whole step.
    cx: &'a Cx<'a>,
}

impl Rows<'_> {
    /// The tile with which it takes least time, and its clocks.
    pub fn choose(&self, product: &Cx, e: &Extents) -> Res<(f64, Tile, Split)> {
        let machine = Machine::of(product.target);
        let more = |tile: &Tile, split: &Split| {
            let fits = split.shares.is_none()
                && fits(tile, split)
                && has_registers(product.target, tile)
                && split.span() as usize == e.k
                && tile.threads() >= tile.m
                && room(tile) <= product.target.info().lds_bytes
                && matmul::reads_to_the_end(product, (tile, split), e.k);
            fits.then(|| self.clocks(&machine, tile, split, e))
        };
        choice::quickest(product.target, product.tuning, gemm::types(product)?, e, more)
    }

    /// Clocks besides those of the product.
    fn clocks(&self, machine: &Machine, tile: &Tile, split: &Split, e: &Extents) -> f64 {
        let (target, t) = (self.cx.target, tile.types.storage);
        let info = target.info();
        // All waves that a SIMD has in turn.
        let groups = e.m.div_ceil(tile.m as usize) * e.n.div_ceil(tile.n as usize) * split.count as usize;
        let all = groups * (tile.threads() / info.wave_size) as usize;
        let waves = all.div_ceil((target.cus() * info.simds) as usize) as f64;
        let dwords = f64::from(tile.m) * f64::from(split.chunk) * f64::from(tile.types.stored_bytes()) / 4.0;
        let counted = dwords / f64::from(tile.threads()) * tally::instructions(target, t, self.s.norm.center);
        let sliced = matches!(tile.form, Form::Sliced(_));
        let seen = if sliced || rounds::in_shadow(target, tile) { SEEN } else { 1.0 };
        let met = MEETINGS * choice::lds_answer(target);
        let made = if self.s.made.is_some() { WAITED * machine.device_latency } else { 0.0 };
        (counted * seen + AFTER) * machine.issue * waves + met + made
    }

    /// The mean of rows counts.
    pub fn center(&self) -> bool {
        self.s.norm.center
    }

    /// What was counted once all is multiplied. Makes rows for others.
    pub fn end(&self, w: &mut Writer, tile: &Tile, tally: &Tally, first: Part, e: &Extents) -> Res<Levels> {
        let made = match &self.s.made {
            Some(made) => Some(Making::begin(self.cx, made, w, (tile, e), first)?),
            None => None,
        };
        let levels = tally.levels(w, tile, e.k, &self.s.norm)?;
        if let Some(made) = made {
            made.end(w, &levels)?;
        }
        Ok(levels)
    }

    /// What goes with `count` columns from one on (a vector), `behind` so many others, in all rows: the sums of factors, where they are asked
    /// for, and the bias.
    pub fn columns(&self, w: &mut Writer, column: Part, behind: usize, count: u32) -> Res<Columns> {
        let at = w.b.shl(column, 2u32);
        let at = w.b.to_vector(at);
        let mut of = |i: usize| -> Res<Part> {
            let buf = w.buffer(self.cx, Arg::Input(i))?;
            Ok(w.b.load(buf, count as u8, at, 0u32, (self.cx.step.inputs[i].view.offset as u32 + behind as u32) * 4))
        };
        let sums = if self.s.norm.center { Some(of(2)?) } else { None };
        Ok(Columns { sums, bias: of(3)? })
    }

    /// Sums of a row's products with some columns, corrected by what LDS has of the row: a pair.
    pub fn corrected(&self, w: &mut Writer, sums: Part, pair: Part, columns: &Columns) -> Part {
        let (float, out) = (Float(Type::F32), w.b.v(sums.len));
        let sums = gemm::in_vectors(w, sums);
        for i in 0..sums.len {
            let mut x = sums.dword(i);
            if let Some(c) = columns.sums {
                x = float.fma(&mut w.b, pair.dword(0), c.dword(i), x);
            }
            let operands = [pair.dword(1).into(), x.into(), columns.bias.dword(i).into()];
            w.b.emit(Gen::Fma.of(Type::F32), &[out.dword(i).into()], &operands);
        }
        out
    }
}

/// What goes with columns.
pub(super) struct Columns {
    sums: Option<Part>,
    bias: Part,
}

/// Normalised rows on their way: pieces of `piece` neighbours.
struct Making<'a> {
    cx: &'a Cx<'a>,
    made: &'a MadeRows,
    dtype: DType,
    piece: u32,
    pieces: Vec<Piece>,
}

/// A piece of a workitem.
struct Piece {
    /// Its row in the tile and in all, and its first column.
    row: Part,
    whole_row: Part,
    column: Part,
    inside: Part,
    values: Vec<Value>,
}

impl<'a> Making<'a> {
    /// Asks for the elements: the workgroups of a row of tiles have some columns of the rows each.
    fn begin(
        cx: &'a Cx<'a>,
        made: &'a MadeRows,
        w: &mut Writer,
        (tile, e): (&Tile, &Extents),
        first: Part,
    ) -> Res<Making<'a>> {
        let (source, dtype) = (&cx.step.inputs[0].view, cx.dtype(Arg::Output));
        let size = dtype.size() as u32;
        let aligned = [source, &made.view].iter().all(|v| values::is_word_aligned(dtype, v));
        let fits = |n: &u32| n * size <= 16 && e.k.is_multiple_of(*n as usize) && aligned;
        let (threads, groups) = (tile.threads(), e.n.div_ceil(tile.n as usize) as u32);
        let own = |piece: u32| (e.k as u32 / piece).div_ceil(groups);
        // As few neighbours as leave a piece for each workitem; words of them at least.
        let all = [2, 4, 8].into_iter().filter(fits);
        let piece = all.clone().find(|p| tile.m * own(*p) <= threads).or(all.max()).unwrap_or(1);
        let own = own(piece);
        let (item, group) = (w.b.workitem_id(), w.b.workgroup_id(0));
        let buf = w.buffer(cx, Arg::Input(0))?;
        let before = w.b.mul(group, own);
        let mut pieces = Vec::new();
        for round in 0..(tile.m * own).div_ceil(threads) {
            let b = &mut w.b;
            let number = if round > 0 { b.add(item, round * threads) } else { item };
            let (row, place) = b.divmod(number, own);
            let column = b.add(place, before);
            let column = b.mul(column, piece);
            let whole_row = b.add(row, first);
            let mut inside = b.op(Gen::CmpGt.of(Type::U32), &[(e.k as u32).into(), column.into()]);
            for (end, at) in [(tile.m, row), (e.m as u32, whole_row)] {
                let at = b.to_vector(at);
                let before = b.op(Gen::CmpGt.of(Type::U32), &[end.into(), at.into()]);
                inside = b.mask_and(inside, before);
            }
            // Nobody asks for a row that there is not.
            let row = b.generic(Gen::Min.of(Type::U32), &[row.into(), (tile.m - 1).into()]);
            let at = Making::place(w, source, size, (whole_row, column), inside);
            let values = values::load_some(&mut w.b, dtype, buf, at, piece);
            pieces.push(Piece { row, whole_row, column, inside, values });
        }
        Ok(Making { cx, made, dtype, piece, pieces })
    }

    /// Where a piece is in a view.
    fn place(
        w: &mut Writer,
        view: &crate::graph::view::View,
        size: u32,
        (row, column): (Part, Part),
        inside: Part,
    ) -> Offset {
        let b = &mut w.b;
        let at = b.mul(column, size);
        let at = b.mad(row, view.strides[0] as u32 * size, at);
        let at = b.guard(inside, at);
        Offset { reg: Some(at), imm: view.offset as u32 * size }
    }

    /// Normalises and stores.
    fn end(&self, w: &mut Writer, levels: &Levels) -> Res<()> {
        let (float, size) = (Float(Type::F32), self.dtype.size() as u32);
        for p in &self.pieces {
            let at = w.b.mul(p.row, 4 * levels.team);
            let at = w.b.to_vector(at);
            let mean = w.b.lds_read(1, at, levels.means);
            let at = w.b.mul(p.row, 8 * levels.team);
            let at = w.b.to_vector(at);
            let factor = w.b.lds_read(1, at, levels.pairs + 4);
            let mut operands = Vec::new();
            for i in 0..self.made.operands {
                let arg = Arg::Input(Standardized::FACTORS + i);
                let (buf, t) = (w.buffer(self.cx, arg)?, self.cx.dtype(arg));
                let at = w.b.mul(p.column, t.size() as u32);
                let offset = self.cx.step.inputs[Standardized::FACTORS + i].view.offset as u32;
                let at = Offset { reg: Some(w.b.guard(p.inside, at)), imm: offset * t.size() as u32 };
                operands.push(values::load_some(&mut w.b, t, buf, at, self.piece));
            }
            let mut results = Vec::new();
            for (e, x) in p.values.iter().enumerate() {
                let x = float.sub(&mut w.b, x.word(), mean);
                let z = float.mul(&mut w.b, x, factor);
                let operand = |i: u32| operands[i as usize - Standardized::FACTORS][e];
                results.push(expr::eval(&mut w.b, &self.made.expr, &operand, Some(Value::Word(z.into())))?);
            }
            let at = Making::place(w, &self.made.view, size, (p.whole_row, p.column), p.inside);
            let buf = w.buffer(self.cx, Arg::Output)?;
            values::store_some(&mut w.b, self.dtype, buf, at, &results);
        }
        Ok(())
    }
}
