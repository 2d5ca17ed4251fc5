//! The matrix product kernel: `C[m,n] = sum over k of A[m,k] B[k,n]`, tiles in LDS, a block of C in registers.
//!
//! A workgroup computes a tile of C. Tiles of A and B of depth `k` go through LDS in two buffers: while a tile is
//! multiplied the next one is on its way from memory to registers, and one barrier per tile separates the writers of
//! one buffer from the readers of the other. A workitem owns `tm x tn` elements of C in chunks of four, so that LDS
//! is read 16 bytes at a time without bank conflicts; the fragments of depth `k + 1` are read while those of depth
//! `k` are multiplied. The step's expression is applied to the registers before they are stored.

use super::address::Offset;
use super::epilogue;
use super::fragment;
use super::tile::{Loader, Tile};
use super::values::{self, Value};
use super::{Arg, Cx, Writer, expr};
use crate::graph::view::View;
use crate::mir::{Gen, Lds, Opnd, Part, Pipeline, Type};

use barewave_isa::matrix::Fragment;

/// Added to the offset of rows beyond the end; with a column's own mark the sum stays out of bounds.
const ROW_OUT: u32 = 0x4000_0000;

/// How accesses (operands of the expression, the output) are walked: `view` has the dimensions
/// `[outer.., m, inner..]`.
pub(super) struct Walk {
    /// Which dimension is m.
    pub m_dim: usize,
    /// How many rows there are (of a group).
    pub rows: usize,
    /// Extents of the inner dimensions together are the columns.
    pub n_dims: std::ops::Range<usize>,
}

/// Positions of a workitem's elements.
struct Place {
    /// First row of the workitem in C (vector).
    m: Part,
    /// First column.
    n: Part,
    rows: usize,
    cols: usize,
}

/// The loaders of both operands, ready to issue.
pub(super) struct Operands {
    pub a: Loader,
    pub b: Loader,
}

/// Stages of the loop over k.
const LOAD: u8 = 0;
const MULTIPLY: u8 = 1;

/// LDS of the tiles between two barriers: one is read, the other filled.
const TILES_READ: Lds = Lds::Part { buffer: 0, phase: 0 };
const TILES_FILLED: Lds = Lds::Part { buffer: 0, phase: 1 };

/// Multiplies and gives the accumulators: `[row][chunk of columns]`.
pub(super) fn multiply(w: &mut Writer, tile: &Tile, ops: &mut Operands, depth: u32) -> Vec<Vec<Part>> {
    let place = tile.fragment();
    let (cm, cn) = tile.chunk();
    let (chunks_m, chunks_n) = (tile.tm / cm, tile.tn / cn);
    let (pitch_a, pitch_b) = (ops.a.pitch(), ops.b.pitch());
    let (size_a, size_b) = (tile.k * pitch_a * 4, tile.k * pitch_b * 4);
    // The second buffer is a power of two away from the first, so that one exclusive-or changes buffers.
    let swap = (size_a + size_b).next_power_of_two();
    w.b.lds(swap + size_a + size_b);
    let acc: Vec<Vec<Part>> =
        (0..tile.tm).map(|_| (0..chunks_n).map(|_| w.b.v(cn as u8)).collect::<Vec<_>>()).collect();
    for p in acc.iter().flatten() {
        for i in 0..p.len {
            w.b.copy_into(p.dword(i), 0u32);
        }
    }
    let b = &mut w.b;
    let item = b.workitem_id();
    let read_a = fragment::coordinate(b, &place, item, fragment::row, 4, None);
    let read_b = fragment::coordinate(b, &place, item, fragment::col, 4, None);
    let (read_a, read_b) = (vector_copy(b, read_a), vector_copy(b, read_b));
    // A round multiplies one tile while the next one comes from memory and goes to LDS. Loads behind the last tile are
    // guarded and go to the buffer that nobody reads any more.
    b.counted_loop("k", depth.next_multiple_of(tile.k), tile.k, Pipeline::Stated, true, |b, k| {
        b.fix_order();
        b.stage(LOAD);
        ops.a.issue(b, k);
        ops.b.issue(b, k);
        b.stage(MULTIPLY);
        b.in_lds(TILES_READ);
        let mut frags = read_fragments(b, tile, &place, read_a, read_b, (pitch_a, pitch_b), size_a, 0);
        for k in 0..tile.k {
            let ahead = (k + 1 < tile.k)
                .then(|| read_fragments(b, tile, &place, read_a, read_b, (pitch_a, pitch_b), size_a, k + 1));
            let (fa, fb) = &frags;
            for (row, acc_row) in acc.iter().enumerate() {
                let a = fa[row / cm as usize].dword(row as u8 % cm as u8);
                for (chunk, acc) in acc_row.iter().enumerate() {
                    for i in 0..cn as u8 {
                        b.fma_into(acc.dword(i), a, fb[chunk].dword(i));
                    }
                }
            }
            if let Some(f) = ahead {
                frags = f;
            }
        }
        let change = |b: &mut crate::mir::Builder, address: Part| {
            b.emit(Gen::Xor.of(Type::U32), &[address.into()], &[swap.into(), address.into()]);
        };
        change(b, read_a);
        change(b, read_b);
        b.stage(LOAD);
        b.in_lds(TILES_FILLED);
        ops.a.commit(b, 0);
        ops.b.commit(b, size_a);
        change(b, ops.a.lds());
        change(b, ops.b.lds());
        b.barrier();
        b.in_lds(Lds::Any);
    });
    debug_assert_eq!(chunks_m * cm, tile.tm);
    acc
}

fn vector_copy(b: &mut crate::mir::Builder, p: Part) -> Part {
    b.to_vector(p)
}

fn read_fragments(
    b: &mut crate::mir::Builder,
    tile: &Tile,
    place: &Fragment,
    read_a: Part,
    read_b: Part,
    (pitch_a, pitch_b): (u32, u32),
    size_a: u32,
    k: u32,
) -> (Vec<Part>, Vec<Part>) {
    let (cm, cn) = tile.chunk();
    let row = |c: u32| place.element(0, c * cm * tile.tn).0;
    let col = |c: u32| place.element(0, c * cn).1;
    let fa = (0..tile.tm / cm).map(|c| b.lds_read(cm as u8, read_a, (k * pitch_a + row(c)) * 4)).collect();
    let fb = (0..tile.tn / cn).map(|c| b.lds_read(cn as u8, read_b, size_a + (k * pitch_b + col(c)) * 4)).collect();
    (fa, fb)
}

/// Offsets of one access.
struct Plan {
    arg: Arg,
    size: usize,
    /// Scalar part and constant.
    outer: Offset,
    row_stride: i64,
    /// Vector byte offset of the workitem's first row.
    row: Option<Part>,
    /// Byte offset of each column chunk (first column), out of bounds where the column is; all from the first one by
    /// constants when `regular`.
    cols: Vec<Option<Part>>,
    col_stride: i64,
    dtype: crate::tensor::DType,
}

/// Applies the step's expression to the accumulators and stores them. `outer` gives an access's offset from
/// everything but rows and columns.
pub(super) fn store(
    w: &mut Writer,
    cx: &Cx,
    tile: &Tile,
    acc: &[Vec<Part>],
    walk: &Walk,
    first: (Part, Part),
    mut outer: impl FnMut(&mut Writer, &View, usize) -> Offset,
) -> Result<(), String> {
    let fragment = tile.fragment();
    let cn = tile.chunk().1 as usize;
    let chunks_n = tile.tn as usize / cn;
    let item = w.b.workitem_id();
    let m = fragment::coordinate(&mut w.b, &fragment, item, fragment::row, 1, Some(first.0));
    let n = fragment::coordinate(&mut w.b, &fragment, item, fragment::col, 1, Some(first.1));
    let out_view = &cx.step.output.view;
    let place = Place {
        m: vector_copy(&mut w.b, m),
        n: vector_copy(&mut w.b, n),
        rows: walk.rows,
        cols: out_view.dims[walk.n_dims.clone()].iter().product(),
    };
    let args: Vec<Arg> = epilogue::operands(cx).into_iter().map(Arg::Input).chain([Arg::Output]).collect();
    let views: Vec<&View> = args.iter().map(|a| view_of(cx, *a)).collect();
    // Columns as few dimensions as all accesses agree on.
    let runs = crate::graph::collapse::groups(&views, walk.n_dims.clone());
    let inner: Vec<View> = views
        .iter()
        .map(|v| {
            let (dims, strides) = crate::graph::collapse::apply(v, &runs);
            View { offset: 0, dims, strides }
        })
        .collect();
    let dims = inner[0].dims.clone();
    let last = *dims.last().unwrap_or(&1);
    let wide = cn == 4
        && last.is_multiple_of(4)
        && args.iter().zip(&inner).all(|(a, v)| cx.dtype(*a).size() == 4 && matches!(v.strides.last(), Some(0 | 1)))
        && inner.last().and_then(|v| v.strides.last()) == Some(&1)
        && args.iter().all(|a| cx.dtype(*a) != crate::tensor::DType::Bool);
    // Each group of columns is handled at once: four neighbours, or one.
    let group = if wide { 4 } else { 1 };
    let groups_per_chunk = cn / group;
    let mut col_coords = Vec::new();
    for c in 0..chunks_n * groups_per_chunk {
        let delta = fragment.element(0, (c * group) as u32).1;
        let at = if delta > 0 { w.b.add(place.n, delta) } else { place.n };
        let inside = (!place.cols.is_multiple_of(tile.n as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(place.cols as u32).into(), at.into()]));
        let coords = super::address::coordinates(&mut w.b, at, &dims);
        col_coords.push((coords, inside));
    }
    let mut plans = Vec::new();
    for (k, &arg) in args.iter().enumerate() {
        let (view, dtype) = (views[k], cx.dtype(arg));
        let size = dtype.size();
        let outer = outer(w, view, size);
        let row_stride = view.strides[walk.m_dim] * size as i64;
        let row = (row_stride != 0).then(|| w.b.mul(place.m, row_stride as i32));
        let mut cols = Vec::new();
        for (coords, inside) in &col_coords {
            let o = super::address::offset_of_dims(&mut w.b, &inner[k], size, coords, 0..dims.len(), false);
            cols.push(match (o.reg, inside) {
                (reg, Some(mask)) if arg == Arg::Output => {
                    let reg = reg.unwrap_or_else(|| w.b.to_vector(0u32));
                    Some(w.b.guard(*mask, reg))
                }
                (reg, _) => reg,
            });
        }
        let col_stride = inner[k].strides.last().copied().unwrap_or(0);
        plans.push(Plan { arg, size, outer, row_stride, row, cols, col_stride, dtype });
    }
    for (row, acc_row) in acc.iter().enumerate() {
        let delta = fragment.element(0, row as u32 * tile.tn).0;
        let at = if delta > 0 { w.b.add(place.m, delta) } else { place.m };
        let inside = (!place.rows.is_multiple_of(tile.m as usize))
            .then(|| w.b.op(Gen::CmpGt.of(Type::U32), &[(place.rows as u32).into(), at.into()]));
        store_row(w, cx, &plans, delta as usize, inside, acc_row, group)?;
    }
    Ok(())
}

fn view_of<'a>(cx: &'a Cx, arg: Arg) -> &'a View {
    match arg {
        Arg::Input(i) => &cx.step.inputs[i].view,
        _ => &cx.step.output.view,
    }
}

/// One row of a workitem's block.
fn store_row(
    w: &mut Writer,
    cx: &Cx,
    plans: &[Plan],
    delta: usize,
    inside: Option<Part>,
    acc: &[Part],
    group: usize,
) -> Result<(), String> {
    // Row part of each access's offset.
    let mut rows: Vec<Offset> = Vec::new();
    for p in plans {
        let shift = (delta as i64 * p.row_stride) as u32;
        let mut reg = p.row;
        let mut imm = p.outer.imm;
        if p.row_stride >= 0 {
            imm = imm.wrapping_add(shift);
        } else if let Some(r) = reg {
            reg = Some(w.b.add(r, shift));
        }
        if let (Some(mask), Arg::Output) = (inside, p.arg) {
            let r = reg.unwrap_or_else(|| w.b.to_vector(0u32));
            let out = w.b.to_vector(ROW_OUT);
            reg = Some(w.b.select(mask, r, out));
        }
        rows.push(Offset { reg, imm });
    }
    let mut once: Vec<Option<Vec<Value>>> = vec![None; plans.len()];
    let groups = acc.iter().map(|p| p.len as usize).sum::<usize>() / group;
    for g in 0..groups {
        let per_chunk = acc[0].len as usize / group;
        let values = acc[g / per_chunk].slice((g % per_chunk * group) as u8, group as u8);
        let mut operands: Vec<Vec<Value>> = vec![Vec::new(); cx.step.inputs.len()];
        for (k, p) in plans.iter().enumerate() {
            let Arg::Input(i) = p.arg else { continue };
            let same_for_all = p.cols.iter().all(Option::is_none);
            operands[i] = match &once[k] {
                Some(v) if same_for_all => v.clone(),
                _ => load_group(w, cx, p, rows[k], g, group)?,
            };
            if same_for_all {
                once[k] = Some(operands[i].clone());
            }
        }
        let mut results = Vec::new();
        for e in 0..group {
            let input = |i: u32| operands[i as usize][e.min(operands[i as usize].len() - 1)];
            let acc = Value::Word(values.dword(e as u8).into());
            results.push(expr::eval(&mut w.b, &cx.step.expr, &input, Some(acc))?);
        }
        let (k, p) = plans.iter().enumerate().next_back().expect("the output is an access");
        let buf = w.buffer(cx, Arg::Output)?;
        let at = join(w, rows[k], p.cols[g], p.outer.reg);
        if group == 1 {
            values::store(&mut w.b, p.dtype, buf, Offset { reg: at.0, imm: at.2 }, results[0])?;
        } else {
            let in_place = (0..group).all(|e| results[e] == Value::Word(values.dword(e as u8).into()));
            let data = if in_place { values } else { super::pointwise::gather(&mut w.b, &results) };
            let voff: Opnd = at.0.map_or(Opnd::Off, Opnd::V);
            let soff: Opnd = at.1.map_or(0u32.into(), Opnd::V);
            w.b.store(buf, data, voff, soff, at.2);
        }
    }
    Ok(())
}

/// Loads the elements of an operand that go with one group of columns.
fn load_group(w: &mut Writer, cx: &Cx, p: &Plan, row: Offset, g: usize, group: usize) -> Result<Vec<Value>, String> {
    let buf = w.buffer(cx, p.arg)?;
    let at = join(w, row, p.cols[g], p.outer.reg);
    if group > 1 && p.col_stride == 1 {
        debug_assert_eq!(p.size, 4);
        let voff: Opnd = at.0.map_or(Opnd::Off, Opnd::V);
        let soff: Opnd = at.1.map_or(0u32.into(), Opnd::V);
        let x = w.b.load(buf, group as u8, voff, soff, at.2);
        return Ok((0..group as u8).map(|e| Value::Word(x.dword(e).into())).collect());
    }
    let reg = at.0;
    Ok(vec![values::load(&mut w.b, p.dtype, buf, Offset { reg, imm: at.2 })?])
}

/// Vector, scalar and constant parts of a whole offset. The scalar is folded into the vector for accesses that can
/// take only one register.
fn join(w: &mut Writer, row: Offset, col: Option<Part>, outer: Option<Part>) -> (Option<Part>, Option<Part>, u32) {
    let v = match (row.reg, col) {
        (Some(r), Some(c)) => Some(w.b.add(r, c)),
        (r, c) => r.or(c),
    };
    let v = match (v, outer) {
        (Some(v), Some(s)) => Some(w.b.add(v, s)),
        (v, s) => v.or(s),
    };
    (v, None, row.imm)
}
