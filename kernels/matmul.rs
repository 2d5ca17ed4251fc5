//! Matrix products: both operands through the dense loaders, one workgroup per tile and batch.

use super::address::Offset;
use super::choice::{self, Considered, Extents};
use super::error::{Reason, Res};
use super::gemm::{self, Operands, Walk};
use super::loader::{self, Loader, Source};
use super::normed::Finish;
use super::split::{self, DepthPart, Product};
use super::tile::Tile;
use super::{Arg, Cx, Kernel, Writer, address};
use crate::graph::view::View;
use crate::mir::Part;
use crate::tensor::DType;

/// The product's extents.
pub(super) fn extents(cx: &Cx) -> Extents {
    let out = &cx.step.output.view;
    let r = out.rank();
    let (m, n, k) = (out.dims[r - 2], out.dims[r - 1], cx.step.inputs[0].view.dims[r - 1]);
    let [a, b] = [0, 1].map(|i| &cx.step.inputs[i].view.strides);
    let deep = (a[r - 1] == 1 && a[r - 2] != 1, b[r - 2] == 1 && b[r - 1] != 1);
    Extents {
        batches: out.dims[..r - 2].iter().product(),
        m,
        n,
        k,
        bytes: gemm::operand_bytes(cx, 1),
        deep,
        bands: true,
        apart: gemm::stores_apart(cx, &walk(r, m)),
    }
}

/// How its results are walked: rows of matrices of so many dimensions.
fn walk(rank: usize, rows: usize) -> Walk {
    Walk { m_dim: rank - 2, rows, n_dims: rank - 1..rank, swapped: false }
}

/// The tiles that are considered for it.
pub(super) fn candidates(cx: &Cx) -> Res<Considered> {
    Ok(choice::candidates(cx.target, gemm::types(cx)?, &extents(cx), 1, None))
}

/// The kernel of a product, and of what comes behind it.
pub(super) fn lower(cx: &Cx, finish: Option<&Finish>) -> Res<Vec<Kernel>> {
    let out = &cx.step.output.view;
    let r = out.rank();
    // What comes behind counts the workgroups of a row.
    let extents = Extents { bands: finish.is_none(), ..extents(cx) };
    let k = extents.k;
    let (tile, split) = choice::choose(cx.target, cx.tuning, gemm::types(cx)?, &extents, 1)?;
    let mut w = cx.kernel(tile.threads());
    let batch_dims = &out.dims[..r - 2];
    let (z, part) = split::part(&mut w, &split);
    let batch = address::coordinates(&mut w.b, z, batch_dims);
    let (first_m, first_n) = split::first(&mut w, &tile, &split);
    let a = operand(&mut w, cx, 0, (r - 1, r - 2), (k, part), first_m, &batch, &tile, tile.m)?;
    let b = operand(&mut w, cx, 1, (r - 2, r - 1), (k, part), first_n, &batch, &tile, tile.n)?;
    let mut ops = Operands { a, b };
    let sums = gemm::multiply(&mut w, &tile, &mut ops, part.split.chunk)?;
    let walk = walk(r, extents.m);
    let product = Product { tile: &tile, sums, walk, first: (first_m, first_n), z, extents, finish };
    split::store(w, cx, &product, part, |w, view, size| outer_offset(w, view, size, &batch, r - 2))
}

/// Offset of an access from its first `dims` dimensions.
fn outer_offset(w: &mut Writer, view: &View, size: usize, coords: &[Option<Part>], dims: usize) -> Offset {
    address::offset_of_dims(&mut w.b, view, size, coords, 0..dims, true)
}

/// Every line of dimension `dense` begins at a multiple of four bytes.
pub(super) fn lines_are_aligned(t: DType, view: &View, dense: usize) -> bool {
    let words = |elements: i64| (elements * t.size() as i64) % 4 == 0;
    words(view.offset) && (0..view.rank()).all(|d| d == dense || view.dims[d] == 1 || words(view.strides[d]))
}

/// A loader for operand `i`, whose depth is dimension `along.0` and whose width is dimension `along.1`.
fn operand(
    w: &mut Writer,
    cx: &Cx,
    i: usize,
    along: (usize, usize),
    (depth, part): (usize, DepthPart),
    first: Part,
    batch: &[Option<Part>],
    tile: &Tile,
    width: u32,
) -> Res<Loader> {
    let view = &cx.step.inputs[i].view;
    let (sk, sw) = (view.strides[along.0], view.strides[along.1]);
    let (sk, sw) = match (sk, sw, depth, view.dims[along.1]) {
        (_, 1, ..) => (sk, 1),
        (1, ..) => (1, sw),
        (_, _, 1, _) => (1, sw),
        (_, _, _, 1) => (sk, 1),
        _ => return Err(Reason::NotDense(i)),
    };
    if sk < 0 || sw < 0 {
        return Err(Reason::Backwards(i));
    }
    let buf = w.buffer(cx, Arg::Input(i))?;
    let outer = outer_offset(w, view, tile.types.stored_bytes() as usize, batch, view.rank() - 2);
    let src = Source {
        buf,
        base: outer.imm,
        scalar: outer.reg,
        first,
        k_stride: sk as u32,
        w_stride: sw as u32,
        depth: depth as u32,
        part,
        aligned: lines_are_aligned(cx.dtype(Arg::Input(i)), view, if sw == 1 { along.1 } else { along.0 }),
    };
    let item = w.b.workitem_id();
    let line = if sw == 1 { view.dims[along.1] } else { depth };
    Ok(loader::dense(&mut w.b, src, tile, width, line, item))
}
