//! Operators that move elements without computing: they change views and shapes.

use super::source::to_shape;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::Val;
use crate::graph::fused::{Role, Tensor};
use crate::graph::lazy::{Lazy, broadcast_shape, map_access};
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::element_count;

/// Sets output 0 to input 0 under another shape.
fn set_reshaped(cx: &mut Lowering<'_>, shape: &[usize]) -> Res<()> {
    let x = cx.input(0)?;
    let have = cx.shape(x).to_vec();
    if Some(have.iter().product::<usize>()) != element_count(shape) {
        return Err(Reason::Shape(format!("shape {have:?} cannot become {shape:?}")));
    }
    if let Some(t) = cx.constant(x) {
        let t = t.reshaped(shape)?;
        cx.set_const(0, t);
        return Ok(());
    }
    let y = cx.lazy(x).reshaped(shape);
    cx.set(0, y);
    Ok(())
}

pub(super) fn reshape(cx: &mut Lowering<'_>) -> Res<()> {
    let want = if cx.opset() < 5 && cx.attribute("shape").is_some() {
        cx.ints("shape")?.unwrap_or_default()
    } else {
        cx.const_ints(1, "the new shape")?
    };
    let x = cx.input(0)?;
    let have = cx.shape(x).to_vec();
    let allow_zero = cx.int("allowzero", 0)? != 0;
    let mut shape = Vec::with_capacity(want.len());
    let mut infer = None;
    for (i, &d) in want.iter().enumerate() {
        shape.push(match d {
            0 if !allow_zero => *have
                .get(i)
                .ok_or_else(|| Reason::Shape(format!("dimension {i} of {want:?} copies none of {have:?}")))?,
            -1 if infer.is_none() => {
                infer = Some(i);
                1
            }
            _ => usize::try_from(d).map_err(|_| Reason::Shape(format!("{want:?} is not a shape")))?,
        });
    }
    if let Some(i) = infer {
        let known: usize = to_shape(&shape.iter().map(|&d| d as i64).collect::<Vec<_>>())?.iter().product();
        let total: usize = have.iter().product();
        if known == 0 || !total.is_multiple_of(known) {
            return Err(Reason::Shape(format!("shape {have:?} cannot become {want:?}")));
        }
        shape[i] = total / known;
    }
    set_reshaped(cx, &shape)
}

pub(super) fn flatten(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let axis = cx.int("axis", 1)?;
    let axis = if axis == shape.len() as i64 { shape.len() } else { cx.axis(axis, shape.len())? };
    set_reshaped(cx, &[shape[..axis].iter().product(), shape[axis..].iter().product()])
}

/// The axes given as an attribute (older versions) or as input 1.
fn axes(cx: &Lowering<'_>) -> Res<Option<Vec<i64>>> {
    match cx.ints("axes")? {
        Some(a) => Ok(Some(a)),
        None if cx.optional(1).is_some() => Ok(Some(cx.const_ints(1, "the axes")?)),
        None => Ok(None),
    }
}

pub(super) fn squeeze(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let mut drop = vec![false; shape.len()];
    match axes(cx)? {
        None => drop = shape.iter().map(|&d| d == 1).collect(),
        Some(list) => {
            for a in list {
                let a = cx.axis(a, shape.len())?;
                if shape[a] != 1 {
                    return Err(Reason::Shape(format!("dimension {a} of {shape:?} is not 1")));
                }
                drop[a] = true;
            }
        }
    }
    let kept: Vec<usize> = shape.iter().zip(&drop).filter(|&(_, &d)| !d).map(|(&n, _)| n).collect();
    set_reshaped(cx, &kept)
}

pub(super) fn unsqueeze(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let list = axes(cx)?.ok_or(Reason::Value("the axes are missing".into()))?;
    let rank = shape.len() + list.len();
    let mut new = vec![false; rank];
    for a in list {
        let a = cx.axis(a, rank)?;
        if std::mem::replace(&mut new[a], true) {
            return Err(Reason::Shape(format!("axis {a} is given twice")));
        }
    }
    let mut old = shape.into_iter();
    let out: Vec<usize> = new.iter().map(|&n| if n { 1 } else { old.next().unwrap_or(1) }).collect();
    set_reshaped(cx, &out)
}

pub(super) fn transpose(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let rank = cx.rank(x);
    let perm = match cx.ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(p) => p.iter().map(|&a| cx.axis(a, rank)).collect::<Res<Vec<usize>>>()?,
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) {
        return Err(Reason::attribute("perm", format!("{perm:?} is not an order of {rank} dimensions")));
    }
    let lazy = cx.lazy(x);
    let y = cx.permute(lazy, &perm);
    cx.set(0, y);
    Ok(())
}

pub(super) fn concat(cx: &mut Lowering<'_>) -> Res<()> {
    let ids: Vec<ValueId> = cx.inputs();
    let first = *ids.first().ok_or(Reason::Value("it has no inputs".into()))?;
    let (dtype, rank) = (cx.dtype(first), cx.rank(first));
    let axis = match cx.attribute("axis") {
        Some(_) => cx.int("axis", 0)?,
        None if cx.opset() < 4 => 1,
        None => return Err(Reason::attribute("axis", "is missing")),
    };
    let axis = cx.axis(axis, rank)?;
    let mut shape = cx.shape(first).to_vec();
    shape[axis] = 0;
    for &v in &ids {
        let s = cx.shape(v);
        let fits = s.len() == rank && (0..rank).all(|d| d == axis || s[d] == shape[d]);
        if !fits || cx.dtype(v) != dtype {
            return Err(Reason::Shape(format!(
                "inputs {}{:?} and {}{s:?} do not fit along axis {axis}",
                dtype,
                cx.shape(first),
                cx.dtype(v)
            )));
        }
        shape[axis] = shape[axis].saturating_add(s[axis]);
    }
    super::conv::check_size(&shape)?;
    let filled: Vec<ValueId> = ids.iter().copied().filter(|&v| !cx.shape(v).contains(&0)).collect();
    match filled[..] {
        [] => {
            cx.set(0, crate::graph::lower::splat(dtype, &shape, crate::graph::expr::Scalar::of(dtype, 0.0)));
            return Ok(());
        }
        [only] => {
            cx.pass(0, only);
            return Ok(());
        }
        _ => {}
    }
    let parts = filled.into_iter().map(|v| cx.lazy(v)).collect();
    let y = join(cx, parts, axis)?;
    cx.set(0, y);
    Ok(())
}

/// Writes values one after the other along dimension `axis` of a new tensor. None of them may be empty.
pub(super) fn join(cx: &mut Lowering<'_>, parts: Vec<Lazy>, axis: usize) -> Res<Lazy> {
    let (dtype, mut shape) = (parts[0].dtype(), parts[0].shape.clone());
    let first = shape.clone();
    shape[axis] = 0;
    for p in &parts {
        let fits = p.shape.len() == first.len() && (0..first.len()).all(|d| d == axis || p.shape[d] == first[d]);
        if !fits || p.dtype() != dtype {
            return Err(Reason::Shape(format!("shapes {first:?} and {:?} do not fit along axis {axis}", p.shape)));
        }
        shape[axis] += p.shape[axis];
    }
    let name = cx.output_name(0);
    let out = cx.graph.add_tensor(Tensor { name, dtype, shape: shape.clone(), role: Role::Intermediate });
    let whole = View::dense(&shape);
    let mut start = 0;
    for p in parts {
        let n = p.shape[axis];
        cx.write(p, out, &whole.sliced(axis, start, 1, n));
        start += n;
    }
    Ok(Lazy::read(crate::graph::fused::Access::new(out, whole), dtype))
}

pub(super) fn split(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0)?, cx.rank(x))?;
    let total = cx.shape(x)[axis];
    let count = cx.node().outputs.len();
    let sizes: Vec<i64> = match cx.ints("split")? {
        Some(s) => s,
        None if cx.optional(1).is_some() => cx.const_ints(1, "the split")?,
        None => {
            let n = cx.int("num_outputs", count as i64)?.max(1) as usize;
            let each = total.div_ceil(n);
            (0..n).map(|i| each.min(total.saturating_sub(i * each)) as i64).collect()
        }
    };
    let sizes = to_shape(&sizes)?;
    if sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b)) != Some(total) || sizes.len() < count {
        return Err(Reason::Shape(format!("parts {sizes:?} do not make {total}")));
    }
    let plain = cx.plain(x);
    let mut start = 0;
    for (i, &n) in sizes.iter().enumerate() {
        let part = sliced(cx, &plain, &[(axis, start as i64, 1, n)]);
        cx.set(i, part);
        start += n;
    }
    Ok(())
}

/// Cuts `(axis, start, step, length)` out of a plain value.
pub(super) fn sliced(cx: &mut Lowering<'_>, plain: &Lazy, cuts: &[(usize, i64, i64, usize)]) -> Lazy {
    let mut y = plain.clone();
    if cuts.iter().any(|c| c.3 == 0) {
        for &(d, _, _, n) in cuts {
            y.shape[d] = n;
        }
        let dtype = y.dtype();
        return crate::graph::lower::splat(dtype, &y.shape, crate::graph::expr::Scalar::of(dtype, 0.0));
    }
    if y.inputs.iter().any(|a| a.guard.is_some()) {
        let l = cx.normal(y);
        y = cx.stored(l).plain().expect("a stored tensor has plain dimensions");
    }
    for &(d, start, step, n) in cuts {
        for a in &mut y.inputs {
            *a = map_access(a, |v| v.sliced(d, start as usize, step, n), |r| r.to_vec());
        }
        y.grid[d] = n;
    }
    cx.normal(y)
}

pub(super) fn slice(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let (starts, ends, axes, steps);
    if cx.opset() < 10 && cx.attribute("starts").is_some() {
        starts = cx.ints("starts")?.unwrap_or_default();
        ends = cx.ints("ends")?.ok_or(Reason::attribute("ends", "is missing"))?;
        axes = cx.ints("axes")?;
        steps = None;
    } else {
        starts = cx.const_ints(1, "the starts")?;
        ends = cx.const_ints(2, "the ends")?;
        axes = if cx.optional(3).is_some() { Some(cx.const_ints(3, "the axes")?) } else { None };
        steps = if cx.optional(4).is_some() { Some(cx.const_ints(4, "the steps")?) } else { None };
    }
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Reason::Value("starts, ends, axes and steps have different lengths".into()));
    }
    let mut cuts = Vec::new();
    for i in 0..starts.len() {
        let d = cx.axis(axes[i], shape.len())?;
        let (n, step) = (shape[d] as i64, steps[i]);
        if step == 0 {
            return Err(Reason::Value("a step is 0".into()));
        }
        let wrap = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (start, end) = (wrap(starts[i]).clamp(low.max(0), high.max(0)), wrap(ends[i]).clamp(low, high));
        let count = if step > 0 { (end - start).max(0) as u64 } else { (start - end).max(0) as u64 };
        let count = count.div_ceil(step.unsigned_abs()) as usize;
        cuts.push((d, start, if count > 1 { step } else { 1 }, count));
    }
    let plain = cx.plain(x);
    let y = sliced(cx, &plain, &cuts);
    cx.set(0, y);
    Ok(())
}

pub(super) fn expand(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let want = to_shape(&cx.const_ints(1, "the shape")?)?;
    let shape = broadcast_shape([cx.shape(x), &want[..]].into_iter())?;
    if shape == cx.shape(x) {
        cx.pass(0, x);
        return Ok(());
    }
    let x = cx.without_base(x);
    let y = cx.combine(vec![x], &shape, |_, v: &[Val]| v[0])?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn tile(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let rank = cx.rank(x);
    let mut repeats = vec![1usize; rank];
    if cx.opset() < 6 {
        let axis = cx.const_ints(2, "the axis")?;
        let tiles = to_shape(&cx.const_ints(1, "the tiles")?)?;
        let (&[axis], &[tiles]) = (&axis[..], &tiles[..]) else {
            return Err(Reason::Value("tiles and axis are not one number".into()));
        };
        repeats[cx.axis(axis, rank)?] = tiles;
    } else {
        repeats = to_shape(&cx.const_ints(1, "the repeats")?)?;
        if repeats.len() != rank {
            return Err(Reason::Shape(format!("{} repeats for {rank} dimensions", repeats.len())));
        }
    }
    // [a, b] -> [r0, a, r1, b] with repeating dimensions -> [r0 * a, r1 * b]
    let shape = cx.shape(x).to_vec();
    let split: Vec<usize> = shape.iter().flat_map(|&d| [1, d]).collect();
    let full: Vec<usize> = shape.iter().zip(&repeats).flat_map(|(&d, &r)| [r, d]).collect();
    let out: Vec<i64> = shape.iter().zip(&repeats).map(|(&d, &r)| d.saturating_mul(r) as i64).collect();
    let out = to_shape(&out)?;
    let lazy = cx.without_base(x).reshaped(&split);
    let y = cx.combine(vec![lazy], &full, |_, v: &[Val]| v[0])?.reshaped(&out);
    cx.set(0, y);
    Ok(())
}

fn four_dims(cx: &Lowering<'_>) -> Res<([usize; 4], usize)> {
    let shape = cx.shape(cx.input(0)?);
    let dims: [usize; 4] =
        shape.try_into().map_err(|_| Reason::Shape(format!("input 0 has shape {shape:?}; 4 dimensions are needed")))?;
    let b = match cx.attribute("blocksize") {
        Some(Attribute::Int(b)) if *b > 0 => *b as usize,
        _ => return Err(Reason::attribute("blocksize", "is missing or not positive")),
    };
    Ok((dims, b))
}

pub(super) fn depth_to_space(cx: &mut Lowering<'_>) -> Res<()> {
    let ([n, c, h, w], b) = four_dims(cx)?;
    if b > 1 << 16 || c % (b * b) != 0 {
        return Err(Reason::Shape(format!("{c} channels are not a multiple of {b} * {b}")));
    }
    let depth = c / (b * b);
    let (split, perm) = match cx.text("mode", "DCR")? {
        "DCR" => ([n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3]),
        other => return Err(Reason::attribute("mode", format!("is `{other}`; DCR and CRD are supported"))),
    };
    let lazy = cx.lazy(cx.input(0)?).reshaped(&split);
    let y = cx.permute(lazy, &perm).reshaped(&[n, depth, h * b, w * b]);
    cx.set(0, y);
    Ok(())
}

pub(super) fn space_to_depth(cx: &mut Lowering<'_>) -> Res<()> {
    let ([n, c, h, w], b) = four_dims(cx)?;
    if b > 1 << 16 || h % b != 0 || w % b != 0 {
        return Err(Reason::Shape(format!("the extents {h} and {w} are not multiples of {b}")));
    }
    let lazy = cx.lazy(cx.input(0)?).reshaped(&[n, c, h / b, b, w / b, b]);
    let y = cx.permute(lazy, &[0, 3, 5, 1, 2, 4]).reshaped(&[n, c * b * b, h / b, w / b]);
    cx.set(0, y);
    Ok(())
}
