//! Operators that move elements without computing: they change views and shapes.

use super::source::MAX_GENERATED;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, aligned, broadcast_dims, described, known, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Expr, Val};
use crate::graph::fused::{Access, Indirect, Role, Tensor};
use crate::graph::infer::Inference;
use crate::graph::lazy::{Lazy, map_access};
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// Output 0 is input 0 under another shape.
pub(super) fn reshaped(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.result(0);
    if let Some(t) = cx.constant(x) {
        let t = t.reshaped(&shape)?;
        cx.set_const(0, t);
        return Ok(());
    }
    let y = cx.lazy(x).reshaped(&shape);
    cx.set(0, y);
    Ok(())
}

/// The axes given as an attribute (older versions) or as input 1.
fn axes<'m>(cx: &impl Ask<'m>) -> Res<Option<Vec<i64>>> {
    match cx.ints("axes")? {
        Some(a) => Ok(Some(a)),
        None if cx.optional(1).is_some() => Ok(Some(cx.const_ints(1, "the axes")?)),
        None => Ok(None),
    }
}

/// The order of dimensions.
fn order<'m>(cx: &impl Ask<'m>) -> Res<Vec<usize>> {
    let rank = cx.rank(cx.input(0)?);
    let perm = match cx.ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(p) => p.iter().map(|&a| cx.axis(a, rank)).collect::<Res<Vec<usize>>>()?,
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..rank) {
        return Err(Reason::attribute("perm", format!("{perm:?} is not an order of {rank} dimensions")));
    }
    Ok(perm)
}

pub(super) fn transpose(cx: &mut Lowering<'_>) -> Res<()> {
    let perm = order(cx)?;
    let lazy = cx.lazy(cx.input(0)?);
    let y = cx.permute(lazy, &perm);
    cx.set(0, y);
    Ok(())
}

/// The axis along which inputs are joined.
fn join_axis<'m>(cx: &impl Ask<'m>) -> Res<usize> {
    let axis = match cx.attribute("axis") {
        Some(_) => cx.int("axis", 0)?,
        None if cx.opset() < 4 => 1,
        None => return Err(Reason::attribute("axis", "is missing")),
    };
    cx.axis(axis, cx.rank(cx.input(0)?))
}

/// Two halves along longer axes are written one after the other: which is which is a table as long.
const MOST_HALVES: usize = 1 << 12;

/// Bytes behind each other at least, and places at most, of parts that a table puts together.
const LEAST_TURNED: usize = 16;
const MOST_TURNED: usize = 1 << 14;

pub(super) fn concat(cx: &mut Lowering<'_>) -> Res<()> {
    let ids: Vec<ValueId> = cx.inputs();
    let (dtype, axis, shape) = (cx.dtype(cx.input(0)?), join_axis(cx)?, cx.result(0));
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
    let parts: Vec<Lazy> = filled.into_iter().map(|v| cx.lazy(v)).collect();
    let two = match &parts[..] {
        [a, b] if same_source(a, b) && shape[axis] <= MOST_HALVES => Some([a, b]),
        _ => None,
    };
    let mut y = two.map_or(Ok(None), |two| alike(cx, two, axis, &shape))?;
    y = y.or_else(|| turned(cx, &parts, axis, &shape));
    if let (None, Some(two)) = (&y, two) {
        y = halves(cx, two, axis, &shape)?;
    }
    let y = match y {
        Some(y) => y,
        None => join(cx, parts, axis)?,
    };
    cx.set(0, y);
    Ok(())
}

/// True when two values are computed from parts of one tensor, each element from one of its elements.
fn same_source(a: &Lazy, b: &Lazy) -> bool {
    match (&a.inputs[..], &b.inputs[..]) {
        ([x], [y]) => a.base.is_none() && b.base.is_none() && x.tensor == y.tensor && x.is_plain() && y.is_plain(),
        _ => false,
    }
}

/// Two values one after the other that need not be stored: each element is one's or the other's, by its place (the turned
/// halves of a rotary embedding). `None` when their views do not allow it.
fn halves(cx: &mut Lowering<'_>, parts: [&Lazy; 2], axis: usize, shape: &[usize]) -> Res<Option<Lazy>> {
    let mut list = Vec::new();
    let mut start = 0;
    for part in parts {
        let n = part.shape[axis];
        let Some(part) = super::assigned::placed(cx, part.clone(), axis, start, shape) else { return Ok(None) };
        list.push(part);
        start += n;
    }
    let first = parts[0].shape[axis];
    if shape[axis] > MAX_GENERATED {
        return Ok(None);
    }
    let flags: Vec<i64> = (0..shape[axis]).map(|i| i64::from(i < first)).collect();
    let mut dims = vec![1; shape.len()];
    dims[axis] = shape[axis];
    let flags = cx.add_const("first".into(), HostTensor::from_ints(DType::Bool, &dims, &flags));
    let flags = Lazy::read(Access::new(flags, View::dense(&dims)), DType::Bool);
    let [a, b] = list.try_into().map_err(|_| Reason::Shape("two parts are needed".into()))?;
    cx.combine(vec![flags, a, b], shape, |e, v| e.select(v[0], v[1], v[2])).map(Some)
}

/// Parts of a dimension of one tensor, in whatever order (windows that are shifted around an image's edge): a table says where each place of it lies. Not of
/// single elements, which are sooner copied.
fn turned(cx: &mut Lowering<'_>, parts: &[Lazy], axis: usize, shape: &[usize]) -> Option<Lazy> {
    let dtype = parts.first()?.dtype();
    let inner: usize = shape[axis + 1..].iter().product();
    if inner * dtype.size() < LEAST_TURNED || shape[axis] > MOST_TURNED {
        return None;
    }
    let plain: Vec<Lazy> = parts.iter().map(|p| p.clone().plain()).collect::<Option<_>>()?;
    let reads: Vec<&Access> = plain.iter().map(Lazy::as_read).collect::<Option<_>>()?;
    let stride = reads.iter().find(|a| a.view.dims[axis] > 1)?.view.strides[axis];
    let first = reads.iter().map(|a| a.view.offset).min()?;
    // As long as all of it, from the first place on.
    let widened = |a: &Access| {
        let mut whole = a.clone();
        let View { dims, strides, offset } = &mut whole.view;
        (strides[axis], *offset) = (stride, first);
        // Along a single place there are no steps.
        (0..dims.len()).filter(|d| *d != axis && dims[*d] == 1).for_each(|d| strides[d] = 0);
        for view in whole.indirect.iter_mut().map(|i| &mut i.view).chain([&mut whole.view]) {
            view.dims[axis] = shape[axis];
        }
        whole
    };
    let alike = |a: &&Access| {
        let steps = a.view.dims[axis] == 1 || a.view.strides[axis] == stride;
        a.guard.is_none() && a.view.rank() == shape.len() && steps
    };
    if !reads.iter().all(alike) {
        return None;
    }
    let mut whole = widened(reads[0]);
    let same = reads.iter().all(|a| widened(a) == whole);
    let fixed = whole.indirect.iter().all(|i| i.view.strides[axis] == 0);
    if !same || !fixed || stride <= 0 {
        return None;
    }
    let mut entries = Vec::new();
    for a in &reads {
        let ahead = a.view.offset - first;
        entries.extend((ahead % stride == 0).then(|| (0..a.view.dims[axis] as i64).map(|i| ahead / stride + i))?);
    }
    // They may lie one behind the other.
    if !entries.iter().copied().eq(0..entries.len() as i64) {
        let extent = *entries.iter().max()? as usize + 1;
        let table = HostTensor::from_ints(DType::I32, &[entries.len()], &entries);
        let index = cx.add_const("places".into(), table);
        let mut view = View { offset: 0, dims: shape.to_vec(), strides: vec![0; shape.len()] };
        view.strides[axis] = 1;
        whole.view.strides[axis] = 0;
        whole.indirect.push(Indirect { index, view, stride, extent });
    }
    let mut y = Lazy::read(whole, dtype);
    y.nodes = plain.iter().flat_map(|p| p.nodes.iter().copied()).collect();
    Some(y)
}

/// The same of two halves that are walked alike: one walk over both, in which the half is a dimension of its own.
fn alike(cx: &mut Lowering<'_>, parts: [&Lazy; 2], axis: usize, shape: &[usize]) -> Res<Option<Lazy>> {
    let [Some(a), Some(b)] = parts.map(|p| p.clone().plain()) else { return Ok(None) };
    let ([x], [y]) = (&a.inputs[..], &b.inputs[..]) else { return Ok(None) };
    let n = a.shape[axis];
    let plain = [x, y].into_iter().all(|i| i.is_plain() && i.view.dims == a.shape);
    if !plain || x.tensor != y.tensor || a.shape != b.shape || x.view.strides != y.view.strides || n == 1 {
        return Ok(None);
    }
    let grid = [&shape[..axis], &[2, n], &shape[axis + 1..]].concat();
    let split = |view: &View, apart: i64| {
        let mut strides = view.strides.clone();
        strides.insert(axis, apart);
        View { offset: view.offset, dims: grid.clone(), strides }
    };
    let both = Access::new(x.tensor, split(&x.view, y.view.offset - x.view.offset));
    let of = |cx: &mut Lowering<'_>, inputs: Vec<Access>, part: &Lazy| {
        let all = cx.normal(Lazy { shape: grid.clone(), grid: grid.clone(), inputs, ..part.clone() });
        all.reshaped(shape)
    };
    let [first, second] = [&a, &b].map(|p| of(cx, vec![both.clone()], p));
    if a.expr == b.expr {
        return Ok(Some(first));
    }
    let flags = cx.add_const("first".into(), HostTensor::from_ints(DType::Bool, &[2], &[1, 0]));
    let none = View { offset: 0, dims: a.shape.clone(), strides: vec![0; shape.len()] };
    let flags = Lazy { expr: Expr::copy(DType::Bool), ..of(cx, vec![Access::new(flags, split(&none, 1))], &a) };
    cx.combine(vec![flags, first, second], shape, |e, v| e.select(v[0], v[1], v[2])).map(Some)
}

/// Writes values one after the other along dimension `axis` of a new tensor. Those without elements (a cache that holds nothing yet)
/// are left out; one has some.
pub(super) fn join(cx: &mut Lowering<'_>, mut parts: Vec<Lazy>, axis: usize) -> Res<Lazy> {
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
    parts.retain(|p| p.shape[axis] != 0);
    if parts.len() == 1 {
        return Ok(parts.remove(0));
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
    let sizes = (0..cx.node().outputs.len()).map(|i| cx.result(i)[axis]).collect::<Vec<usize>>();
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

/// A cut through one dimension: the axis, the first element, the step, how many.
struct Cut {
    axis: usize,
    start: Dim,
    step: i64,
    count: Dim,
}

/// Where an end of a cut stands among `n` elements: from the end when it is negative, and not outside of `low..=high`. A
/// run-time size is taken to be at least 1, and as large as what is counted from its end.
fn bounded(at: &Dim, n: &Dim, low: i64, high: &Dim) -> Dim {
    match (at, n) {
        // What is far outside means one end.
        (Dim::Known(v), Dim::Open(_)) if *v >= i64::from(i32::MAX) => high.clone(),
        (Dim::Known(v), Dim::Open(_)) if *v <= -i64::from(i32::MAX) => Dim::Known(low),
        (Dim::Known(v), Dim::Open(_)) if *v < 0 => n + at,
        (Dim::Known(0 | 1), Dim::Open(_)) => at.clone(),
        (Dim::Known(v), _) if *v < 0 => (n + at).larger(&Dim::Known(low)).smaller(high),
        (Dim::Known(_), _) => at.larger(&Dim::Known(low)).smaller(high),
        (Dim::Open(_), _) => at.smaller(high),
    }
}

/// What is not negative whatever sizes are.
fn counted(d: Dim) -> Dim {
    if let Dim::Known(n) = d { Dim::Known(n.max(0)) } else { d }
}

/// What a node cuts out of dimensions.
fn cuts<'m>(cx: &impl Ask<'m>, shape: &[Dim], list: impl Fn(usize, &str) -> Res<Vec<Dim>>) -> Res<Vec<Cut>> {
    let (starts, ends, axes, steps);
    if cx.opset() < 10 && cx.attribute("starts").is_some() {
        let given = |name| Res::Ok(cx.ints(name)?.map(|l| l.into_iter().map(Dim::Known).collect::<Vec<_>>()));
        starts = given("starts")?.unwrap_or_default();
        ends = given("ends")?.ok_or(Reason::attribute("ends", "is missing"))?;
        axes = cx.ints("axes")?;
        steps = None;
    } else {
        starts = list(1, "the starts")?;
        ends = list(2, "the ends")?;
        axes = if cx.optional(3).is_some() { Some(cx.const_ints(3, "the axes")?) } else { None };
        steps = if cx.optional(4).is_some() { Some(cx.const_ints(4, "the steps")?) } else { None };
    }
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Reason::Value("starts, ends, axes and steps have different lengths".into()));
    }
    let mut cuts = Vec::new();
    for (i, &step) in steps.iter().enumerate() {
        let axis = cx.axis(axes[i], shape.len())?;
        if step == 0 {
            return Err(Reason::Value("a step is 0".into()));
        }
        let n = &shape[axis];
        let last = n - &Dim::Known(1);
        let (low, high) = if step > 0 { (0, n) } else { (-1, &last) };
        let (start, end) = (bounded(&starts[i], n, 0, &counted(high.clone())), bounded(&ends[i], n, low, high));
        let room = if step > 0 { &end - &start } else { &start - &end };
        let room = if n.is(0) { n.clone() } else { counted(room) };
        let count = room.quotient_up(&Dim::Known(step.saturating_abs()));
        let step = if matches!(count, Dim::Known(0 | 1)) { 1 } else { step };
        cuts.push(Cut { axis, start, step, count });
    }
    Ok(cuts)
}

pub(super) fn slice(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape: Vec<Dim> = cx.shape(x).iter().map(|&d| d.into()).collect();
    let numbers = |i: usize, what: &str| Ok(cx.const_ints(i, what)?.into_iter().map(Dim::Known).collect());
    let known = |d: &Dim| d.known().unwrap_or(0);
    let cuts: Vec<_> =
        cuts(cx, &shape, numbers)?.iter().map(|c| (c.axis, known(&c.start) as i64, c.step, known(&c.count))).collect();
    let plain = cx.plain(x);
    let mut y = sliced(cx, &plain, &cuts);
    // What goes back is stored the other way round: kernels add parts of addresses, of which a buffer's check lets none be negative.
    if cuts.iter().any(|c| c.2 < 0 && c.3 > 1) && !y.shape.contains(&0) {
        y = cx.stored(y);
    }
    cx.set(0, y);
    Ok(())
}

pub(super) fn expand(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.result(0);
    if shape == cx.shape(x) {
        cx.pass(0, x);
        return Ok(());
    }
    let x = cx.without_base(x);
    let y = cx.combine(vec![x], &shape, |_, v: &[Val]| v[0])?;
    cx.set(0, y);
    Ok(())
}

/// How often each dimension is repeated.
fn repeats(cx: &Inference<'_>) -> Res<Vec<Dim>> {
    let rank = cx.rank(cx.input(0)?);
    if cx.opset() >= 6 {
        let list = cx.numbers(1, "the repeats")?;
        if list.len() != rank {
            return Err(Reason::Shape(format!("{} repeats for {rank} dimensions", list.len())));
        }
        return Ok(list);
    }
    let axis = cx.const_ints(2, "the axis")?;
    let tiles = cx.const_ints(1, "the tiles")?;
    let (&[axis], &[tiles]) = (&axis[..], &tiles[..]) else {
        return Err(Reason::Value("tiles and axis are not one number".into()));
    };
    let mut repeats = vec![Dim::Known(1); rank];
    repeats[cx.axis(axis, rank)?] = Dim::Known(tiles);
    Ok(repeats)
}

pub(super) fn tile(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, out) = (cx.shape(x).to_vec(), cx.result(0));
    if out.contains(&0) {
        let dtype = cx.dtype(x);
        cx.set(0, crate::graph::lower::splat(dtype, &out, crate::graph::expr::Scalar::of(dtype, 0.0)));
        return Ok(());
    }
    // [a, b] -> [r0, a, r1, b] with repeating dimensions -> [r0 * a, r1 * b]
    let split: Vec<usize> = shape.iter().flat_map(|&d| [1, d]).collect();
    let full: Vec<usize> = shape.iter().zip(&out).flat_map(|(&d, &n)| [n / d, d]).collect();
    let lazy = cx.without_base(x).reshaped(&split);
    let y = cx.combine(vec![lazy], &full, |_, v: &[Val]| v[0])?.reshaped(&out);
    cx.set(0, y);
    Ok(())
}

fn block<'m>(cx: &impl Ask<'m>) -> Res<usize> {
    match cx.attribute("blocksize") {
        Some(Attribute::Int(b)) if (1..=1 << 16).contains(b) => Ok(*b as usize),
        _ => Err(Reason::attribute("blocksize", "is missing, not positive or too large")),
    }
}

/// Whether channels come before or after the parts of a block.
fn channels_first<'m>(cx: &impl Ask<'m>) -> Res<bool> {
    match cx.text("mode", "DCR")? {
        "DCR" => Ok(false),
        "CRD" => Ok(true),
        other => Err(Reason::attribute("mode", format!("is `{other}`; DCR and CRD are supported"))),
    }
}

pub(super) fn depth_to_space(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, b) = (cx.input(0)?, block(cx)?);
    let (shape, out) = (cx.shape(x).to_vec(), cx.result(0));
    let (n, depth, h, w) = (shape[0], out[1], shape[2], shape[3]);
    let (split, perm) = if channels_first(cx)? {
        ([n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3])
    } else {
        ([n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2])
    };
    let lazy = cx.lazy(x).reshaped(&split);
    let y = cx.permute(lazy, &perm).reshaped(&out);
    cx.set(0, y);
    Ok(())
}

pub(super) fn space_to_depth(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, b) = (cx.input(0)?, block(cx)?);
    let (shape, out) = (cx.shape(x).to_vec(), cx.result(0));
    let lazy = cx.lazy(x).reshaped(&[shape[0], shape[1], out[2], b, out[3], b]);
    let y = cx.permute(lazy, &[0, 3, 5, 1, 2, 4]).reshaped(&out);
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

/// Output 0 has the elements of input 0 under other dimensions.
fn give_reshaped(cx: &mut Inference<'_>, dims: Vec<Dim>) -> Res<()> {
    let x = cx.input(0)?;
    if product(cx.dims(x)).differs(&product(&dims)) {
        let (have, want) = (described(cx.dims(x)), described(&dims));
        return Err(Reason::Shape(format!("shape {have} cannot become {want}")));
    }
    cx.tie(vec![(product(cx.dims(x)), product(&dims))]);
    let shape = known(&dims);
    if let (Some(t), Some(shape)) = (cx.constant(x), shape) {
        let t = t.reshaped(&shape)?;
        cx.give_value(0, t);
        return Ok(());
    }
    let list = cx.sized_numbers(x);
    cx.give(0, cx.dtype(x), dims)?;
    if let Some(list) = list {
        cx.give_numbers(0, list);
    }
    Ok(())
}

pub(super) fn of_reshape(cx: &mut Inference<'_>) -> Res<()> {
    let want = match cx.ints("shape")? {
        Some(list) if cx.opset() < 5 => list.into_iter().map(Dim::Known).collect(),
        _ => cx.numbers(1, "the new shape")?,
    };
    let have = cx.dims(cx.input(0)?).to_vec();
    let allow_zero = cx.int("allowzero", 0)? != 0;
    let mut dims = Vec::with_capacity(want.len());
    let mut rest = None;
    for (i, d) in want.iter().enumerate() {
        dims.push(match d {
            Dim::Known(0) if !allow_zero => {
                let copied = have.get(i).cloned();
                let none = || format!("dimension {i} of {} copies none of {}", described(&want), described(&have));
                copied.ok_or_else(|| Reason::Shape(none()))?
            }
            Dim::Known(-1) if rest.is_none() => {
                rest = Some(i);
                Dim::Known(1)
            }
            Dim::Known(n) if *n < 0 => {
                return Err(Reason::Shape(format!("{} is not a shape", described(&want))));
            }
            d => d.clone(),
        });
    }
    if let Some(i) = rest {
        let (part, total) = (product(&dims), product(&have));
        let n = if part.is(0) { Dim::Known(0) } else { total.quotient(&part) };
        if part.is(0) || total.differs(&(&part * &n)) {
            let (have, want) = (described(&have), described(&want));
            return Err(Reason::Shape(format!("shape {have} cannot become {want}")));
        }
        dims[i] = n;
    }
    give_reshaped(cx, dims)
}

pub(super) fn of_flatten(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.dims(cx.input(0)?).to_vec();
    let axis = cx.int("axis", 1)?;
    let axis = if axis == dims.len() as i64 { dims.len() } else { cx.axis(axis, dims.len())? };
    give_reshaped(cx, vec![product(&dims[..axis]), product(&dims[axis..])])
}

pub(super) fn of_squeeze(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.dims(cx.input(0)?).to_vec();
    let mut drop: Vec<bool> = dims.iter().map(|d| d.is(1)).collect();
    if let Some(list) = axes(cx)? {
        drop = vec![false; dims.len()];
        for a in list {
            let a = cx.axis(a, dims.len())?;
            if dims[a].differs(&Dim::Known(1)) {
                return Err(Reason::Shape(format!("dimension {a} of {} is not 1", described(&dims))));
            }
            drop[a] = true;
        }
    }
    let kept = dims.into_iter().zip(drop).filter(|(_, drop)| !drop).map(|(d, _)| d).collect();
    give_reshaped(cx, kept)
}

pub(super) fn of_unsqueeze(cx: &mut Inference<'_>) -> Res<()> {
    let dims = cx.dims(cx.input(0)?).to_vec();
    let list = axes(cx)?.ok_or(Reason::Value("the axes are missing".into()))?;
    let rank = dims.len() + list.len();
    let mut new = vec![false; rank];
    for a in list {
        let a = cx.axis(a, rank)?;
        if std::mem::replace(&mut new[a], true) {
            return Err(Reason::Shape(format!("axis {a} is given twice")));
        }
    }
    let (mut old, one) = (dims.into_iter(), Dim::Known(1));
    let out = new.iter().map(|&n| if n { one.clone() } else { old.next().unwrap_or(one.clone()) }).collect();
    give_reshaped(cx, out)
}

pub(super) fn of_transpose(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let dims = order(cx)?.into_iter().map(|d| cx.dims(x)[d].clone()).collect();
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_concat(cx: &mut Inference<'_>) -> Res<()> {
    let ids = cx.inputs();
    let first = *ids.first().ok_or(Reason::Value("it has no inputs".into()))?;
    let (dtype, axis) = (cx.dtype(first), join_axis(cx)?);
    let mut dims = cx.dims(first).to_vec();
    dims[axis] = Dim::Known(0);
    for &v in &ids {
        let own = cx.dims(v);
        let fits = own.len() == dims.len() && (0..dims.len()).all(|d| d == axis || !own[d].differs(&dims[d]));
        if !fits || cx.dtype(v) != dtype {
            let (one, other) = (described(cx.dims(first)), described(own));
            let t = cx.dtype(v);
            return Err(Reason::Shape(format!("inputs {dtype}{one} and {t}{other} do not fit along axis {axis}")));
        }
        let own = own.to_vec();
        dims[axis] = &dims[axis] + &own[axis];
        cx.tie((0..dims.len()).filter(|d| *d != axis).map(|d| (dims[d].clone(), own[d].clone())).collect());
    }
    let lists: Option<Vec<Vec<Dim>>> = ids.iter().map(|v| cx.sized_numbers(*v)).collect();
    cx.give(0, dtype, dims)?;
    if let Some(lists) = lists.filter(|_| cx.rank(first) == 1) {
        cx.give_numbers(0, lists.concat());
    }
    Ok(())
}

pub(super) fn of_split(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0)?, cx.rank(x))?;
    let (dims, count) = (cx.dims(x).to_vec(), cx.node().outputs.len());
    let total = &dims[axis];
    let sizes: Vec<Dim> = match cx.ints("split")? {
        Some(s) => s.into_iter().map(Dim::Known).collect(),
        None if cx.optional(1).is_some() => cx.numbers(1, "the split")?,
        None => {
            let n = cx.int("num_outputs", count as i64)?;
            if n != count as i64 {
                return Err(Reason::attribute("num_outputs", format!("is {n} for {count} outputs")));
            }
            let each = total.quotient_up(&Dim::Known(n));
            let left = |i: i64| counted(total - &(&each * &Dim::Known(i)));
            let part =
                |i: i64| if i + 1 < n && left(i).known().is_none() { each.clone() } else { left(i).smaller(&each) };
            (0..n).map(part).collect()
        }
    };
    let sum = sizes.iter().fold(Dim::Known(0), |a, b| &a + b);
    if sum.differs(total) || sizes.len() < count || sizes.iter().any(|s| matches!(s, Dim::Known(n) if *n < 0)) {
        return Err(Reason::Shape(format!("parts {} do not make {total}", described(&sizes))));
    }
    for (i, n) in sizes.into_iter().enumerate().take(count) {
        let mut part = dims.clone();
        part[axis] = n;
        cx.give(i, cx.dtype(x), part)?;
    }
    Ok(())
}

pub(super) fn of_slice(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let mut dims = cx.dims(x).to_vec();
    let cuts = cuts(cx, &dims, |i, what| cx.numbers(i, what))?;
    for c in &cuts {
        dims[c.axis] = c.count.clone();
    }
    let list = cx.sized_numbers(x).filter(|_| dims.len() == 1);
    cx.give(0, cx.dtype(x), dims)?;
    if let (Some(list), [Cut { start, step, count, .. }]) = (list, &cuts[..])
        && let (Some(start), Some(count)) = (start.known(), count.known())
    {
        let at = |i: usize| list.get((start as i64 + i as i64 * step) as usize).cloned();
        if let Some(part) = (0..count).map(at).collect() {
            cx.give_numbers(0, part);
        }
    }
    Ok(())
}

pub(super) fn of_expand(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let want = cx.numbers(1, "the shape")?;
    if want.iter().any(|d| matches!(d, Dim::Known(n) if *n < 0)) {
        return Err(Reason::Shape(format!("{} is not a shape", described(&want))));
    }
    let dims = broadcast_dims([cx.dims(x), &want[..]].into_iter())?;
    cx.tie(aligned([cx.dims(x), &want[..]].into_iter()));
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_tile(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let repeats = repeats(cx)?;
    if repeats.iter().any(|d| matches!(d, Dim::Known(n) if *n < 0)) {
        return Err(Reason::Shape(format!("{} are not numbers of repeats", described(&repeats))));
    }
    let dims = cx.dims(x).iter().zip(&repeats).map(|(d, r)| d * r).collect();
    cx.give(0, cx.dtype(x), dims)
}

/// Batch, channels, height and width of input 0, and the size of a block.
fn planes(cx: &Inference<'_>) -> Res<([Dim; 4], Dim)> {
    let dims = cx.dims(cx.input(0)?);
    let four = dims.to_vec().try_into();
    let misfit = |_| Reason::Shape(format!("input 0 has shape {}; 4 dimensions are needed", described(dims)));
    Ok((four.map_err(misfit)?, block(cx)?.into()))
}

pub(super) fn of_depth_to_space(cx: &mut Inference<'_>) -> Res<()> {
    let ([n, c, h, w], b) = planes(cx)?;
    channels_first(cx)?;
    let area = &b * &b;
    let depth = c.quotient(&area);
    if c.differs(&(&depth * &area)) {
        return Err(Reason::Shape(format!("{c} channels are not a multiple of {b} * {b}")));
    }
    cx.give(0, cx.dtype(cx.input(0)?), vec![n, depth, &h * &b, &w * &b])
}

pub(super) fn of_space_to_depth(cx: &mut Inference<'_>) -> Res<()> {
    let ([n, c, h, w], b) = planes(cx)?;
    let (high, wide) = (h.quotient(&b), w.quotient(&b));
    if h.differs(&(&high * &b)) || w.differs(&(&wide * &b)) {
        return Err(Reason::Shape(format!("the extents {h} and {w} are not multiples of {b}")));
    }
    cx.give(0, cx.dtype(cx.input(0)?), vec![n, &c * &(&b * &b), high, wide])
}
