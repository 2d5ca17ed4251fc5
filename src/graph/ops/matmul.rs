//! Matrix products.

use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, aligned, broadcast_dims, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Op, Scalar, Val};
use crate::graph::fused::{Access, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::{Lazy, broadcast_shape};
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::DType;

/// Rows or columns of the last two dimensions are dense.
pub(super) fn good(v: &View) -> bool {
    let r = v.rank();
    (r < 1 || v.strides[r - 1] == 1 || v.dims[r - 1] == 1) || (r >= 2 && (v.strides[r - 2] == 1 || v.dims[r - 2] == 1))
}

/// `a [batch.., m, k] * b [batch.., k, n]`, batch dimensions broadcast.
pub(super) fn product(cx: &mut Lowering<'_>, a: Access, b: Access, dtype: DType) -> Res<Lazy> {
    let (ra, rb) = (a.view.rank(), b.view.rank());
    let (m, k) = (a.view.dims[ra - 2], a.view.dims[ra - 1]);
    let (k2, n) = (b.view.dims[rb - 2], b.view.dims[rb - 1]);
    if k != k2 {
        return Err(Reason::Shape(format!(
            "matrices of shape {:?} and {:?} do not fit: {k} is not {k2}",
            a.view.dims, b.view.dims
        )));
    }
    let batch = broadcast_shape([&a.view.dims[..ra - 2], &b.view.dims[..rb - 2]].into_iter())?;
    let dims = [&batch[..], &[m, n]].concat();
    super::conv::check_size(&dims)?;
    if dims.contains(&0) || k == 0 {
        return Ok(splat(dtype, &dims, Scalar::of(dtype, 0.0)));
    }
    let spread = |access: Access, last: [usize; 2]| {
        let view = access.view.broadcast(&[&batch[..], &last].concat()).expect("the batch dimensions broadcast");
        Access::new(access.tensor, view)
    };
    let inputs = vec![spread(a, [m, k]), spread(b, [k, n])];
    Ok(cx.produce(StepKind::MatMul, inputs, &dims, dtype))
}

/// Both operands have one type that matrix products are defined on.
fn check_types(a: DType, b: DType) -> Res<()> {
    let whole = matches!(a, DType::I32 | DType::I64 | DType::U32 | DType::U64);
    if a == b && (a.is_float() && !a.is_small_float() || whole) {
        return Ok(());
    }
    Err(Reason::Type(format!(
        "its inputs have types {a} and {b}; twice the same float type, or i32, i64, u32 or u64, is supported"
    )))
}

/// The operands of a product; of one without elements, which is zero, nothing is read.
fn factors(cx: &mut Lowering<'_>, a: ValueId, b: ValueId) -> (Access, Access) {
    if cx.shape(a).contains(&0) || cx.shape(b).contains(&0) {
        let dims = |v| View::dense(cx.shape(v));
        let none = crate::graph::fused::TensorId(u32::MAX);
        return (Access::new(none, dims(a)), Access::new(none, dims(b)));
    }
    (cx.operand_if(a, good), cx.operand_if(b, good))
}

/// A factor that is nothing but a read scaled by a constant: what is read, and the constant. Exporters scale queries and keys
/// before their product.
fn scaled(cx: &mut Lowering<'_>, v: ValueId) -> Option<(Lazy, f64)> {
    if cx.constant(v).is_some() || !matches!(cx.dtype(v), DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
        return None;
    }
    let lazy = cx.lazy(v);
    let nodes = lazy.expr.nodes();
    let number = |v: Val| match nodes[v.index()].op {
        Op::Const(Scalar::Float(c)) if c.is_finite() && c != 0.0 => Some(c),
        _ => None,
    };
    let factor = match nodes[lazy.expr.result().index()].op {
        Op::Binary(Binary::Mul, x, y) if nodes[x.index()].op == Op::Input(0) => number(y)?,
        Op::Binary(Binary::Mul, x, y) if nodes[y.index()].op == Op::Input(0) => number(x)?,
        Op::Binary(Binary::Div, x, y) if nodes[x.index()].op == Op::Input(0) => 1.0 / number(y)?,
        _ => return None,
    };
    let plain = lazy.base.is_none() && lazy.inputs.len() == 1 && lazy.inputs[0].is_plain();
    plain.then(|| (Lazy { expr: Expr::copy(lazy.dtype()), ..lazy }, factor))
}

pub(super) fn matmul(cx: &mut Lowering<'_>) -> Res<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let dtype = cx.dtype(a);
    let (row, column) = (cx.rank(a) == 1, cx.rank(b) == 1);
    let empty = cx.shape(a).contains(&0) || cx.shape(b).contains(&0);
    let scales = if empty { [None, None] } else { [scaled(cx, a), scaled(cx, b)] };
    let factor: f64 = scales.iter().flatten().map(|s| s.1).product();
    let (a, b) = match scales {
        [None, None] => factors(cx, a, b),
        [p, q] => {
            let mut side = |scale: Option<(Lazy, f64)>, v| match scale {
                Some((lazy, _)) => cx.operand_of(lazy, good),
                None => cx.operand_if(v, good),
            };
            (side(p, a), side(q, b))
        }
    };
    // A vector is a matrix of one row (left) or one column (right), which the result then lacks.
    let a = if row { Access::new(a.tensor, a.view.repeated(0, 1)) } else { a };
    let b = if column { Access::new(b.tensor, b.view.repeated(1, 1)) } else { b };
    let mut y = product(cx, a, b, dtype)?;
    if factor != 1.0 {
        let shape = y.shape.clone();
        y = cx.combine(vec![y], &shape, |e, v| {
            let factor = e.constant(dtype, factor);
            e.binary(Binary::Mul, v[0], factor)
        })?;
    }
    let shape = cx.result(0);
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

pub(super) fn gemm(cx: &mut Lowering<'_>) -> Res<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let dtype = cx.dtype(a);
    let (alpha, beta) = (cx.float("alpha", 1.0)?, cx.float("beta", 1.0)?);
    if !dtype.is_float() && (alpha.fract() != 0.0 || beta.fract() != 0.0) {
        return Err(Reason::Type(format!("its factors {alpha} and {beta} are no integers, as its elements are")));
    }
    let flip = |access: Access, yes: bool| {
        if yes { Access::new(access.tensor, access.view.permuted(&[1, 0])) } else { access }
    };
    let (ta, tb) = (cx.int("transA", 0)? != 0, cx.int("transB", 0)? != 0);
    let (left, right) = factors(cx, a, b);
    let y = product(cx, flip(left, ta), flip(right, tb), dtype)?;
    let shape = y.shape.clone();
    let mut terms = vec![y];
    if let Some(c) = cx.optional(2) {
        if broadcast_shape([&shape[..], cx.shape(c)].into_iter())? != shape {
            return Err(Reason::Shape(format!("input 2 of shape {:?} does not broadcast to {shape:?}", cx.shape(c))));
        }
        terms.push(cx.without_base(c));
    }
    let y = cx.combine(terms, &shape, |e, v| {
        let factor = e.constant(dtype, alpha);
        let y = e.binary(Binary::Mul, v[0], factor);
        match v.get(1) {
            None => y,
            Some(&c) => {
                let factor = e.constant(dtype, beta);
                let c = e.binary(Binary::Mul, c, factor);
                e.binary(Binary::Add, y, c)
            }
        }
    })?;
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

fn misfit(a: &[Dim], b: &[Dim]) -> Reason {
    Reason::Shape(format!("matrices of shape {} and {} do not fit", described(a), described(b)))
}

/// Dimensions of the product of matrices, or batches of them; a vector is a matrix of one row (left) or one column (right),
/// which the result then lacks.
pub(super) fn product_dims(a: &[Dim], b: &[Dim]) -> Res<Vec<Dim>> {
    let (Some((k, left)), Some((last, right))) = (a.split_last(), b.split_last()) else {
        return Err(Reason::Shape("an input is a scalar".into()));
    };
    let (rows, column) = (left.split_last(), right.split_last());
    let inner = column.map_or(last, |(k, _)| k);
    if k.differs(inner) {
        return Err(Reason::Shape(format!(
            "matrices of shape {} and {} do not fit: {k} is not {inner}",
            described(a),
            described(b)
        )));
    }
    let none: &[Dim] = &[];
    let batches = [rows.map_or(none, |(_, batch)| batch), column.map_or(none, |(_, batch)| batch)];
    let mut dims = broadcast_dims(batches.into_iter())?;
    dims.extend(rows.map(|(m, _)| m.clone()));
    dims.extend(column.map(|_| last.clone()));
    Ok(dims)
}

pub(super) fn of_matmul(cx: &mut Inference<'_>) -> Res<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    check_types(cx.dtype(a), cx.dtype(b))?;
    let dims = product_dims(cx.dims(a), cx.dims(b))?;
    cx.tie(product_ties(cx.dims(a), cx.dims(b)));
    cx.give(0, cx.dtype(a), dims)
}

/// Extents that a product of matrices, or batches of them, needs to be equal.
fn product_ties(a: &[Dim], b: &[Dim]) -> Vec<(Dim, Dim)> {
    let (inner, batch) = match b {
        [batch @ .., k, _] => (Some(k), batch),
        _ => (b.first(), &b[..0]),
    };
    let mut ties = aligned([&a[..a.len().saturating_sub(2)], batch].into_iter());
    ties.extend(a.last().cloned().zip(inner.cloned()));
    ties
}

pub(super) fn of_gemm(cx: &mut Inference<'_>) -> Res<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    check_types(cx.dtype(a), cx.dtype(b))?;
    let side = |v, flipped: &str| match (cx.dims(v), cx.int(flipped, 0)?) {
        ([m, k], 0) => Ok([m.clone(), k.clone()]),
        ([k, m], _) => Ok([m.clone(), k.clone()]),
        _ => Err(Reason::Shape(format!(
            "its inputs have shapes {} and {}; matrices are needed",
            described(cx.dims(a)),
            described(cx.dims(b))
        ))),
    };
    let ([m, k], [l, n]) = (side(a, "transA")?, side(b, "transB")?);
    if k.differs(&l) {
        return Err(misfit(cx.dims(a), cx.dims(b)));
    }
    cx.tie(vec![(k, l)]);
    cx.give(0, cx.dtype(a), vec![m, n])
}
