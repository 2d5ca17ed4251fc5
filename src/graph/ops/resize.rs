//! Resize and Upsample.
//!
//! Each resized dimension becomes, on the host, a list of taps per output position: input indices and weights. Nearest
//! sampling has one tap: a repeated view for whole factors, a strided slice for whole divisors, an index table otherwise.
//! Linear sampling has two, cubic four: an index table and a weight vector per tap, and a pointwise expression that sums
//! the products. Dimensions are resized one after the other; linear ones share one kernel. The last two dimensions of floats
//! are resized by a kernel of their own ([`Resample`]), which makes images of rows and columns at once.
//!
//! Where a place decides between elements (nearest sampling, what lies outside of a region of interest) it is computed in f32,
//! and one in the middle between two but for f32's rounding is in the middle, as onnxruntime has it: scales such as 0.1
//! mean a tenth, not the f32 beside it. ONNX's reference computes these places in f64.

use super::pad::{index_table, indexed, indexed_by, without_tables};
use super::rank::around;
use super::source::{MAX_GENERATED, to_shape};
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, known};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Val};
use crate::graph::fused::{self, Access, Resample, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// What is nearer to the middle between two elements is a tie.
const TIE: f64 = 1e-6;

/// How positions are computed and sampled.
struct Options<'a> {
    mode: &'a str,
    coordinates: &'a str,
    nearest: &'a str,
    /// Version 10 takes the element behind a place between two, where it makes less of them.
    shrinks_up: bool,
    cubic_a: f64,
    exclude_outside: bool,
    extrapolation: f64,
    antialias: bool,
}

/// Input positions and weights of the output positions of one dimension.
struct Taps {
    /// The first input position of each output position, before it is moved inside.
    first: Vec<i64>,
    /// One list per tap, as long as the output.
    index: Vec<Vec<i32>>,
    weight: Vec<Vec<f64>>,
    /// Outside the region of interest (`tf_crop_and_resize`).
    outside: Vec<bool>,
}

/// Rounds to f32.
fn single(x: f64) -> f64 {
    x as f32 as f64
}

/// The place among `n` elements, resized to `out` by `scale`, that position `i` is sampled at; each operation's result is
/// rounded by `r`.
fn position(
    o: &Options<'_>,
    i: usize,
    (n, out): (usize, usize),
    scale: f64,
    roi: (f64, f64),
    r: fn(f64) -> f64,
) -> Res<f64> {
    let (len, length, p, scale) = (n as f64, out as f64, i as f64, r(scale));
    // The output's extent before it was rounded down: that is what ONNX's formulas mean by the resized length.
    let exact = r(scale * len);
    let half_pixel = || r(r((p + 0.5) / scale) - 0.5);
    Ok(match o.coordinates {
        "half_pixel" => half_pixel(),
        "half_pixel_symmetric" => {
            let adjustment = r(length / exact);
            let center = len / 2.0;
            let offset = r(center * r(1.0 - adjustment));
            r(r(offset + r((p + 0.5) / scale)) - 0.5)
        }
        "pytorch_half_pixel" => {
            if out > 1 {
                half_pixel()
            } else {
                0.0
            }
        }
        "align_corners" => {
            if out > 1 {
                r(r(p * (len - 1.0)) / r(exact - 1.0))
            } else {
                0.0
            }
        }
        "asymmetric" => r(p / scale),
        "tf_half_pixel_for_nn" => r((p + 0.5) / scale),
        "tf_crop_and_resize" => {
            if out > 1 {
                let along = r(r(p * r(roi.1 - roi.0)) * (len - 1.0));
                r(r(roi.0 * (len - 1.0)) + r(along / r(exact - 1.0)))
            } else {
                r(r(0.5 * r(roi.0 + roi.1)) * (len - 1.0))
            }
        }
        other => {
            return Err(Reason::attribute(
                "coordinate_transformation_mode",
                format!(
                    "is `{other}`; half_pixel, half_pixel_symmetric, \
                 pytorch_half_pixel, align_corners, asymmetric, tf_half_pixel_for_nn and tf_crop_and_resize are supported"
                ),
            ));
        }
    })
}

fn taps(o: &Options<'_>, n: usize, out: usize, scale: f64, roi: (f64, f64)) -> Res<Taps> {
    let len = n as f64;
    let count = match o.mode {
        "nearest" => 1,
        "linear" => 2,
        _ => 4,
    };
    let mut t = Taps { first: vec![], index: vec![vec![]; count], weight: vec![vec![]; count], outside: vec![] };
    for i in 0..out {
        let rounded = position(o, i, (n, out), scale, roi, single)?;
        t.outside.push(o.coordinates == "tf_crop_and_resize" && !(0.0..=len - 1.0).contains(&rounded));
        let x = if o.mode == "nearest" { rounded } else { position(o, i, (n, out), scale, roi, |x| x)? };
        let inside = |i: f64| i.clamp(0.0, len - 1.0) as i32;
        match o.mode {
            "nearest" => {
                let in_the_middle = (x - x.floor() - 0.5).abs() < TIE;
                let r = match o.nearest {
                    "round_prefer_floor" if in_the_middle => x.floor(),
                    "round_prefer_ceil" if in_the_middle => x.ceil(),
                    "round_prefer_floor" | "round_prefer_ceil" => (x + 0.5).floor(),
                    "floor" if o.shrinks_up && scale < 1.0 => x.ceil(),
                    "floor" => x.floor(),
                    "ceil" => x.ceil(),
                    other => {
                        return Err(Reason::attribute(
                            "nearest_mode",
                            format!(
                                "is `{other}`; round_prefer_floor, round_prefer_ceil, floor and \
                             ceil are supported"
                            ),
                        ));
                    }
                };
                t.first.push(r as i64);
                t.index[0].push(inside(r));
                t.weight[0].push(1.0);
            }
            "linear" => {
                let low = x.floor();
                let part = x - low;
                t.first.push(low as i64);
                for (k, w) in [1.0 - part, part].into_iter().enumerate() {
                    t.index[k].push(inside(low + k as f64));
                    t.weight[k].push(w);
                }
            }
            _ => {
                let low = x.floor();
                let s = x - low;
                t.first.push(low as i64 - 1);
                let mut w = [s + 1.0, s, 1.0 - s, 2.0 - s].map(|x| cubic(o.cubic_a, x));
                if o.exclude_outside {
                    for (k, w) in w.iter_mut().enumerate() {
                        if !(0.0..len).contains(&(low + k as f64 - 1.0)) {
                            *w = 0.0;
                        }
                    }
                    let sum: f64 = w.iter().sum();
                    w.iter_mut().for_each(|w| *w /= sum);
                }
                for (k, w) in w.into_iter().enumerate() {
                    t.index[k].push(inside(low + k as f64 - 1.0));
                    t.weight[k].push(w);
                }
            }
        }
    }
    Ok(t)
}

/// The weight of an element at distance `s` in cubic sampling.
fn cubic(a: f64, s: f64) -> f64 {
    match s.abs() {
        s if s <= 1.0 => ((a + 2.0) * s - (a + 3.0)) * s * s + 1.0,
        s if s < 2.0 => ((a * s - 5.0 * a) * s + 8.0 * a) * s - 4.0 * a,
        _ => 0.0,
    }
}

/// The taps of antialiased sampling of one dimension: where the result is smaller than the data, the filter is stretched, so that it covers
/// all elements that an output stands for. Its weights are normalised; each output reads as many neighbours as the filter has.
fn filters(o: &Options<'_>, n: usize, out: usize, scale: f64, roi: (f64, f64)) -> Res<Taps> {
    let stretch = scale.min(1.0);
    let reach = if o.mode == "linear" { 1.0 } else { 2.0 };
    let first = (-reach / stretch).floor() as i64 + 1;
    let count = usize::try_from(2i64.saturating_sub(first.saturating_mul(2))).unwrap_or(0);
    if out.saturating_mul(count) > MAX_GENERATED {
        return Err(Reason::Size(format!(
            "{out} filters of {count} elements are too many; {MAX_GENERATED} in all are supported"
        )));
    }
    let mut t = Taps { first: Vec::new(), index: Vec::new(), weight: vec![Vec::new(); count], outside: Vec::new() };
    for i in 0..out {
        let x = position(o, i, (n, out), scale, roi, |x| x)?;
        // The element to the left of the place, which is not the place itself.
        let left = x.ceil() as i64 - 1;
        let from = left + first;
        let weight = |k: usize| {
            let at = from + k as i64;
            let s = (at as f64 - x) * stretch;
            let inside = !o.exclude_outside || (0..n as i64).contains(&at);
            let w = if o.mode == "linear" { (1.0 - s.abs()).clamp(0.0, 1.0) } else { cubic(o.cubic_a, s) };
            if inside { w } else { 0.0 }
        };
        let list: Vec<f64> = (0..count).map(weight).collect();
        let sum: f64 = list.iter().sum();
        t.weight.iter_mut().zip(list).for_each(|(all, w)| all.push(w / sum));
        t.first.push(from);
    }
    Ok(t)
}

/// Sampling of one dimension by taps of which each output has many.
fn filtered(cx: &mut Lowering<'_>, lazy: Lazy, d: usize, taps: &Taps) -> Lazy {
    let (dtype, mut shape) = (lazy.dtype(), lazy.shape.clone());
    let [outer, n, inner] = around(&shape, d);
    let (out, count) = (taps.first.len(), taps.weight.len());
    let weights: Vec<f64> = (0..out).flat_map(|i| taps.weight.iter().map(move |w| w[i])).collect();
    let starts = cx.add_const("filter starts".into(), HostTensor::from_i64(&[out], &taps.first));
    let weights = cx.add_const("filter weights".into(), HostTensor::from_f64(dtype, &[out, count], &weights));
    let tables = [Access::new(starts, View::dense(&[out])), Access::new(weights, View::dense(&[out, count]))];
    let mut operands = vec![cx.operand_of(lazy, View::is_dense)];
    operands.extend(tables);
    let y = cx.program(operands, &[outer, out, inner], |c| {
        let (a, j, q) = (c.coord(0), c.coord(1), c.coord(2));
        let start = c.load_int(1, j);
        c.sum(dtype, count, |c, k| {
            let at = c.add(start, k);
            let at = c.clamp(at, 0, n as i64);
            let at = c.place(&[a, at, q], &[outer, n, inner]);
            let x = c.load(0, at);
            let at = c.place(&[j, k], &[out, count]);
            let w = c.load(2, at);
            c.binary(Binary::Mul, x, w)
        })
    });
    shape[d] = out;
    let y = y.reshaped(&shape);
    cx.stored(y)
}

/// Nearest sampling of one dimension.
fn select(cx: &mut Lowering<'_>, lazy: Lazy, d: usize, index: &[i32]) -> Lazy {
    let (n, out) = (lazy.shape[d], index.len());
    let factor = out / n;
    if factor > 1 && factor * n == out && index.iter().enumerate().all(|(o, &i)| i as usize == o / factor) {
        let mut split = lazy.shape.clone();
        split.insert(d + 1, 1);
        let mut full = split.clone();
        full[d + 1] = factor;
        let mut shape = lazy.shape.clone();
        shape[d] = out;
        let lazy = lazy.reshaped(&split);
        let repeated = match lazy.broadcast(&full) {
            Some(l) => l,
            None => cx.stored(lazy).broadcast(&full).expect("a stored tensor can be broadcast"),
        };
        return repeated.reshaped(&shape);
    }
    let lazy = plain(cx, lazy);
    let step = if out > 1 { (index[1] - index[0]) as i64 } else { 1 };
    if index.iter().enumerate().all(|(o, &i)| i as i64 == index[0] as i64 + o as i64 * step) {
        return super::layout::sliced(cx, &lazy, &[(d, index[0] as i64, step, out)]);
    }
    let varies = |a: &Access| a.indirect.iter().any(|t| t.view.strides[d] != 0);
    let lazy = if lazy.inputs.iter().any(varies) { without_tables(cx, lazy) } else { lazy };
    let y = indexed(cx, lazy, d, index);
    cx.normal(y)
}

fn plain(cx: &mut Lowering<'_>, lazy: Lazy) -> Lazy {
    match lazy.plain() {
        Some(p) => p,
        None => cx.stored(lazy).plain().expect("a stored tensor has plain dimensions"),
    }
}

fn resample(
    cx: &mut Lowering<'_>,
    v: ValueId,
    out: &[usize],
    scales: &[f64],
    roi: &[(f64, f64)],
    o: &Options<'_>,
) -> Res<Lazy> {
    let dtype = cx.dtype(v);
    let shape = cx.shape(v).to_vec();
    let changed: Vec<usize> = (0..shape.len())
        .filter(|&d| {
            out[d] != shape[d] || scales[d] != 1.0 || (o.coordinates == "tf_crop_and_resize" && roi[d] != (0.0, 1.0))
        })
        .collect();
    let mut lazy = cx.without_base(v);
    let all: Vec<Taps> = changed.iter().map(|&d| taps(o, shape[d], out[d], scales[d], roi[d])).collect::<Res<_>>()?;
    if o.mode == "nearest" {
        for (&d, t) in changed.iter().zip(&all) {
            lazy = select(cx, lazy, d, &t.index[0]);
        }
    } else {
        if !dtype.is_float() {
            return Err(Reason::Type(format!("interpolates type {dtype}; only floats are supported, or mode nearest")));
        }
        let stretched: Vec<Taps> = match o.antialias {
            true => changed.iter().map(|&d| filters(o, shape[d], out[d], scales[d], roi[d])).collect::<Res<_>>()?,
            false => Vec::new(),
        };
        if let Some(lazy) = images(cx, &lazy, &changed, if o.antialias { &stretched } else { &all }) {
            return outside(cx, lazy, &changed, &all, out, o);
        }
        if o.antialias {
            for (&d, taps) in changed.iter().zip(&stretched) {
                lazy = filtered(cx, lazy, d, taps);
            }
            return outside(cx, lazy, &changed, &all, out, o);
        }
        // Linear: all dimensions at once, 2^n reads. Cubic: one dimension after the other, 4 reads each.
        let together = if o.mode == "linear" { changed.len().max(1) } else { 1 };
        let mut done = 0;
        while done < changed.len() {
            let group = done..(done + together.min(3)).min(changed.len());
            lazy = interpolate(cx, lazy, &changed[group.clone()], &all[group.clone()])?;
            done = group.end;
        }
    }
    outside(cx, lazy, &changed, &all, out, o)
}

/// What lies outside of the region of interest gets a value of its own.
fn outside(
    cx: &mut Lowering<'_>,
    mut lazy: Lazy,
    changed: &[usize],
    taps: &[Taps],
    out: &[usize],
    o: &Options<'_>,
) -> Res<Lazy> {
    let dtype = lazy.dtype();
    for (&d, t) in changed.iter().zip(taps) {
        if t.outside.contains(&true) {
            let mut dims = vec![1; out.len()];
            dims[d] = out[d];
            let mask: Vec<i64> = t.outside.iter().map(|&b| b as i64).collect();
            let id = cx.add_const("outside".into(), HostTensor::from_ints(DType::Bool, &dims, &mask));
            let mask = Lazy::read(Access::new(id, View::dense(&dims)), DType::Bool);
            let fill = Scalar::of(dtype, o.extrapolation);
            lazy = cx.combine(vec![lazy, mask], out, |e, v| {
                let fill = e.literal(dtype, fill);
                e.select(v[1], fill, v[0])
            })?;
        }
    }
    Ok(lazy)
}

/// The weighted sum over all combinations of the taps of some dimensions.
fn interpolate(cx: &mut Lowering<'_>, lazy: Lazy, dims: &[usize], taps: &[Taps]) -> Res<Lazy> {
    let dtype = lazy.dtype();
    // The value is read several times: it has to be stored.
    let stored = cx.stored(lazy);
    let source = plain(cx, stored);
    let mut shape = source.shape.clone();
    let mut weights: Vec<Vec<Lazy>> = Vec::new();
    for (&d, t) in dims.iter().zip(taps) {
        shape[d] = t.outside.len();
        let mut of_dim = Vec::new();
        for w in &t.weight {
            let mut wd = vec![1; shape.len()];
            wd[d] = w.len();
            let id = cx.add_const("interpolation weights".into(), HostTensor::from_f64(dtype, &wd, w));
            of_dim.push(Lazy::read(Access::new(id, View::dense(&wd)), dtype));
        }
        weights.push(of_dim);
    }
    let mut tables = Vec::new();
    for t in taps {
        tables.push(t.index.iter().map(|list| (index_table(cx, list), list.len())).collect::<Vec<_>>());
    }
    let per = taps.first().map_or(1, |t| t.index.len());
    let combinations = per.pow(dims.len() as u32);
    let mut terms = Vec::new();
    for c in 0..combinations {
        let mut read = source.clone();
        for (i, (&d, of_dim)) in dims.iter().zip(&tables).enumerate() {
            read = indexed_by(cx, read, d, of_dim[c / per.pow(i as u32) % per]);
        }
        terms.push(cx.normal(read));
    }
    terms.extend(weights.into_iter().flatten());
    cx.combine(terms, &shape, |e: &mut Expr, v: &[Val]| {
        // Sum over the taps of the first dimension, then of the next, ...
        let mut values = v[..combinations].to_vec();
        for i in 0..dims.len() {
            let w = &v[combinations + i * per..][..per];
            values = values
                .chunks(per)
                .map(|chunk| {
                    let products: Vec<Val> = chunk.iter().zip(w).map(|(&x, &w)| e.binary(Binary::Mul, x, w)).collect();
                    products.into_iter().reduce(|a, b| e.binary(Binary::Add, a, b)).expect("chunks are not empty")
                })
                .collect();
        }
        values[0]
    })
}

/// The last two dimensions resized at once, where no other is and elements lie as images do.
fn images(cx: &mut Lowering<'_>, lazy: &Lazy, dims: &[usize], taps: &[Taps]) -> Option<Lazy> {
    let (dtype, mut shape) = (lazy.dtype(), lazy.shape.clone());
    let outer = shape.len().checked_sub(2).filter(|outer| dims.iter().all(|d| d >= outer))?;
    let of = |d: usize| match dims.iter().position(|other| *other == d) {
        Some(i) => {
            let (count, places) = (taps[i].weight.len(), taps[i].first.len());
            let weights = (0..places).flat_map(|p| taps[i].weight.iter().map(move |w| w[p] as f32)).collect();
            // So far outside all neighbours are the element at the edge.
            let extent = shape[d] as i64;
            let first = taps[i].first.iter().map(|at| (*at).clamp(-(count as i64), extent) as i32).collect();
            fused::Taps { count, first, weights }
        }
        None => fused::Taps::same(shape[d]),
    };
    let mut kind = Resample { rows: of(outer), columns: of(outer + 1), channels_last: false };
    let fits = Resample::takes(dtype) && !dims.is_empty() && kind.rows.count.max(kind.columns.count) <= Resample::MOST;
    if !fits {
        return None;
    }
    (shape[outer], shape[outer + 1]) = (kind.rows.places(), kind.columns.places());
    // Channels that lie behind columns in memory stay there.
    if let Some(channel) = outer.checked_sub(1).filter(|d| shape[*d] > 1) {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.remove(channel);
        order.push(channel);
        let turned = lazy.as_read().and(lazy.permuted(&order)).and_then(|l| l.plain());
        let access = turned.as_ref().and_then(|l| l.as_read()).filter(|a| a.view.is_dense()).cloned();
        if let Some(access) = access.filter(|a| a.is_plain() && a.view.rank() == shape.len()) {
            kind.channels_last = true;
            let dims: Vec<usize> = order.iter().map(|d| shape[*d]).collect();
            let y = cx.produce(StepKind::Resample(kind), vec![access], &dims, dtype);
            let mut back: Vec<usize> = (0..shape.len() - 1).collect();
            back.insert(channel, shape.len() - 1);
            return Some(cx.permute(y, &back));
        }
    }
    let operand = cx.operand_of(lazy.clone(), View::is_dense);
    Some(cx.produce(StepKind::Resample(kind), vec![operand], &shape, dtype))
}

fn check_scales(scales: &[f64], rank: usize) -> Res<()> {
    if scales.len() != rank || scales.iter().any(|s| !s.is_finite() || *s <= 0.0) {
        return Err(Reason::Shape(format!("scales {scales:?} for {rank} dimensions")));
    }
    Ok(())
}

fn scaled(shape: &[usize], scales: &[f64]) -> Res<Vec<usize>> {
    // Products round to float32, of which the scales are: 20 by 0.7 is 14.
    let dims: Vec<i64> = shape.iter().zip(scales).map(|(&d, s)| (d as f32 * *s as f32).floor() as i64).collect();
    to_shape(&dims)
}

fn finish(
    cx: &mut Lowering<'_>,
    v: ValueId,
    out: &[usize],
    scales: &[f64],
    roi: &[(f64, f64)],
    o: &Options<'_>,
) -> Res<()> {
    if out.contains(&0) || cx.shape(v).contains(&0) {
        return Err(Reason::Shape(format!("the result's shape {out:?} has no elements")));
    }
    if out.iter().any(|&d| d > MAX_GENERATED) {
        return Err(Reason::Size(format!("the result's shape {out:?} is too large")));
    }
    let y = resample(cx, v, out, scales, roi, o)?;
    cx.set(0, y);
    Ok(())
}

fn upsample_scales<'m>(cx: &impl Ask<'m>) -> Res<Vec<f64>> {
    match cx.attribute("scales") {
        Some(Attribute::Floats(s)) => Ok(s.iter().map(|&v| v as f64).collect()),
        Some(_) => Err(Reason::attribute("scales", "is not a list of numbers")),
        None if cx.opset() < 7 => Ok(vec![1.0, 1.0, cx.float("height_scale", 1.0)?, cx.float("width_scale", 1.0)?]),
        None => cx.const_floats(1, "the scales"),
    }
}

pub(super) fn upsample(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let scales = upsample_scales(cx)?;
    check_scales(&scales, shape.len())?;
    let mode = match cx.text("mode", "nearest")? {
        "nearest" => "nearest",
        "linear" | "bilinear" => "linear",
        other => return Err(Reason::attribute("mode", format!("is `{other}`; nearest and linear are supported"))),
    };
    let o = Options {
        mode,
        coordinates: "asymmetric",
        nearest: "floor",
        shrinks_up: false,
        cubic_a: 0.0,
        exclude_outside: false,
        extrapolation: 0.0,
        antialias: false,
    };
    let out = cx.result(0);
    finish(cx, x, &out, &scales, &vec![(0.0, 1.0); shape.len()], &o)
}

/// What Resize makes of a shape.
struct Target {
    /// Before opset 11, when there were fewer attributes and inputs.
    old: bool,
    axes: Vec<usize>,
    scales: Vec<f64>,
    out: Vec<usize>,
}

/// True when input `i` is given and has elements.
fn given<'m>(cx: &impl Ask<'m>, i: usize) -> bool {
    cx.optional(i).is_some_and(|v| !cx.constant(v).is_some_and(HostTensor::is_empty))
}

fn resized_axes<'m>(cx: &impl Ask<'m>, rank: usize) -> Res<Vec<usize>> {
    match cx.ints("axes")? {
        Some(a) => a.iter().map(|&a| cx.axis(a, rank)).collect(),
        None => Ok((0..rank).collect()),
    }
}

impl Target {
    /// The inputs with scales and with sizes.
    fn inputs<'m>(cx: &impl Ask<'m>) -> [usize; 2] {
        if cx.opset() < 11 { [1, usize::MAX] } else { [2, 3] }
    }

    fn read<'m>(cx: &impl Ask<'m>, shape: &[usize]) -> Res<Target> {
        let rank = shape.len();
        let axes = resized_axes(cx, rank)?;
        let (mut scales, mut out) = (vec![1.0; rank], shape.to_vec());
        let [scales_at, sizes_at] = Target::inputs(cx);
        if given(cx, scales_at) {
            let list = cx.const_floats(scales_at, "the scales")?;
            check_scales(&list, axes.len())?;
            axes.iter().zip(list).for_each(|(&a, s)| scales[a] = s);
            out = scaled(shape, &scales)?;
        } else if given(cx, sizes_at) {
            let mut sizes = to_shape(&cx.const_ints(sizes_at, "the sizes")?)?;
            if sizes.len() != axes.len() {
                return Err(Reason::Shape(format!("{} sizes for {} dimensions", sizes.len(), axes.len())));
            }
            let ratio = |(&a, &s): (&usize, &usize)| s as f64 / shape[a] as f64;
            let policy = cx.text("keep_aspect_ratio_policy", "stretch")?;
            let common = match policy {
                "stretch" => None,
                "not_larger" => axes.iter().zip(&sizes).map(ratio).reduce(f64::min),
                "not_smaller" => axes.iter().zip(&sizes).map(ratio).reduce(f64::max),
                other => {
                    return Err(Reason::attribute(
                        "keep_aspect_ratio_policy",
                        format!("is `{other}`; stretch, not_larger and not_smaller are supported"),
                    ));
                }
            };
            if let Some(s) = common {
                for (i, &a) in axes.iter().enumerate() {
                    sizes[i] = (s * shape[a] as f64 + 0.5).floor() as usize;
                    scales[a] = s;
                }
            }
            for (i, &a) in axes.iter().enumerate() {
                out[a] = sizes[i];
                if common.is_none() {
                    scales[a] = sizes[i] as f64 / shape[a] as f64;
                }
            }
        } else {
            return Err(Reason::Value("neither scales nor sizes are given".into()));
        }
        Ok(Target { old: cx.opset() < 11, axes, scales, out })
    }
}

pub(super) fn resize(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let rank = shape.len();
    let mode = match cx.text("mode", "nearest")? {
        m @ ("nearest" | "linear" | "cubic") => m,
        other => {
            return Err(Reason::attribute("mode", format!("is `{other}`; nearest, linear and cubic are supported")));
        }
    };
    let Target { old, axes, scales, out } = Target::read(cx, &shape)?;
    let coordinates = if old { "asymmetric" } else { cx.text("coordinate_transformation_mode", "half_pixel")? };
    let mut roi = vec![(0.0, 1.0); rank];
    if coordinates == "tf_crop_and_resize" {
        let list = cx.const_floats(1, "the region of interest")?;
        if list.len() != 2 * axes.len() {
            return Err(Reason::Shape(format!(
                "the region of interest has {} numbers for {} dimensions",
                list.len(),
                axes.len()
            )));
        }
        axes.iter().enumerate().for_each(|(i, &a)| roi[a] = (list[i], list[i + axes.len()]));
    }
    let o = Options {
        mode,
        coordinates,
        nearest: if old { "floor" } else { cx.text("nearest_mode", "round_prefer_floor")? },
        shrinks_up: old,
        cubic_a: cx.float("cubic_coeff_a", -0.75)?,
        exclude_outside: cx.int("exclude_outside", 0)? != 0,
        extrapolation: cx.float("extrapolation_value", 0.0)?,
        antialias: cx.int("antialias", 0)? != 0,
    };
    finish(cx, x, &out, &scales, &roi, &o)
}

// ---- rules ----

/// Dimensions times scales, rounded down.
fn of_scales(cx: &mut Inference<'_>, axes: &[usize], scales: &[f64]) -> Res<()> {
    let x = cx.input(0)?;
    check_scales(scales, axes.len())?;
    let mut dims = cx.dims(x).to_vec();
    for (&d, &scale) in axes.iter().zip(scales) {
        dims[d] = match dims[d].known() {
            Some(n) => Dim::from(scaled(&[n], &[scale])?[0]),
            None if scale.fract() == 0.0 => &dims[d] * &Dim::Known(scale as i64),
            None if (1.0 / scale).fract() == 0.0 => dims[d].quotient(&Dim::Known((1.0 / scale) as i64)),
            None => cx.told_by_run(0, d),
        };
    }
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_upsample(cx: &mut Inference<'_>) -> Res<()> {
    let scales = upsample_scales(cx)?;
    let axes: Vec<usize> = (0..cx.rank(cx.input(0)?)).collect();
    of_scales(cx, &axes, &scales)
}

pub(super) fn of_resize(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    if let Some(shape) = known(cx.dims(x))
        && !cx.is_open()
    {
        let out = Target::read(cx, &shape)?.out;
        return cx.give(0, cx.dtype(x), out.into_iter().map(Dim::from).collect());
    }
    let axes = resized_axes(cx, cx.rank(x))?;
    let [scales_at, sizes_at] = Target::inputs(cx);
    if given(cx, scales_at) {
        let scales = cx.const_floats(scales_at, "the scales")?;
        return of_scales(cx, &axes, &scales);
    }
    let sizes = cx.numbers(sizes_at, "the sizes")?;
    let exact = cx.text("keep_aspect_ratio_policy", "stretch")? == "stretch";
    let mut dims = cx.dims(x).to_vec();
    for (&d, n) in axes.iter().zip(sizes) {
        dims[d] = if exact { n } else { cx.told_by_run(0, d) };
    }
    cx.give(0, cx.dtype(x), dims)
}
