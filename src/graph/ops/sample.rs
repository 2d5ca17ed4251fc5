//! Operators that read a tensor at computed, possibly fractional places: GridSample, RoiAlign, DeformConv, AffineGrid; the largest
//! of regions (MaxRoiPool); and the overlapping sum Col2Im.

use super::conv::{Frame, check_size};
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Unary, Val};
use crate::graph::fused::Coder;
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::tensor::DType;

#[derive(Clone, Copy, PartialEq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// Reflects a coordinate at `low` and `high` until it lies between them.
fn reflected(c: &mut Coder, x: Val, low: f64, high: f64) -> Val {
    let t = c.type_of(x);
    let span = high - low;
    let (low, zero) = (c.constant(t, low), c.constant(t, 0.0));
    if span <= 0.0 {
        return low;
    }
    let from = c.sub(x, low);
    let from = c.unary(Unary::Abs, from);
    let span = c.constant(t, span);
    let turns = c.binary(Binary::Div, from, span);
    let turns = c.unary(Unary::Floor, turns);
    let whole = c.mul(turns, span);
    let rest = c.sub(from, whole);
    // An odd number of reflections walks backwards.
    let half = c.constant(t, 0.5);
    let half = c.mul(turns, half);
    let even = c.unary(Unary::Floor, half);
    let odd = c.sub(half, even);
    let odd = c.lt(zero, odd);
    let back = c.sub(span, rest);
    let rest = c.select(odd, back, rest);
    c.add(rest, low)
}

/// A tensor that is read at integer coordinates, with what is outside.
struct Image<'a> {
    operand: usize,
    dims: &'a [usize],
    padding: Padding,
    align: bool,
    /// Planes are those of the result's first two coordinates.
    planes: bool,
}

/// An integer coordinate in one dimension of an image: the element, and whether there is one, where not all places have one.
#[derive(Clone, Copy)]
struct Step {
    at: Val,
    inside: Option<Val>,
}

impl Image<'_> {
    /// Coordinates `x` and so many more in dimension `d`, where `x` is a float with an integer value.
    fn steps<const N: usize>(&self, c: &mut Coder, d: usize, x: Val, further: [i64; N]) -> [Step; N] {
        if self.padding == Padding::Zeros {
            let first = c.cast(x, DType::I32);
            return further.map(|n| {
                let at = c.plus(first, n);
                // What is less than 0 is more than any without a sign.
                let (own, end) = (c.cast(at, DType::U32), c.constant(DType::U32, self.dims[d] as f64));
                Step { at, inside: Some(c.lt(own, end)) }
            });
        }
        further.map(|n| {
            let more = c.constant(c.type_of(x), n as f64);
            let x = if n == 0 { x } else { c.add(x, more) };
            self.held(c, d, x)
        })
    }

    /// A coordinate that is moved inside.
    fn held(&self, c: &mut Coder, d: usize, x: Val) -> Step {
        let (t, n) = (c.type_of(x), self.dims[d] as f64);
        let (low, high) = (c.constant(t, 0.0), c.constant(t, n - 1.0));
        let x = match self.padding {
            Padding::Reflection if self.align => reflected(c, x, 0.0, n - 1.0),
            Padding::Reflection => reflected(c, x, -0.5, n - 0.5),
            Padding::Border | Padding::Zeros => x,
        };
        let x = c.binary(Binary::Max, x, low);
        let x = c.binary(Binary::Min, x, high);
        let x = if self.padding == Padding::Reflection { c.unary(Unary::Round, x) } else { x };
        Step { at: c.cast(x, DType::I32), inside: None }
    }

    /// The element at these steps behind `plane` planes.
    fn read(&self, c: &mut Coder, plane: Val, steps: &[Step]) -> Val {
        let coords: Vec<Val> = steps.iter().map(|s| s.at).collect();
        let own = c.place(&coords, self.dims);
        let base = c.times(plane, self.dims.iter().product::<usize>() as i64);
        let inside = steps.iter().filter_map(|s| s.inside).reduce(|a, b| c.and(a, b));
        let elements = self.dims.iter().product();
        match inside {
            _ if self.planes => c.load_in_plane(self.operand, (base, elements), own, inside),
            None => {
                let place = c.add(base, own);
                c.load(self.operand, place)
            }
            Some(inside) => {
                let place = c.add(base, own);
                let nowhere = c.int(-1);
                let place = c.select(inside, place, nowhere);
                c.load_checked(self.operand, place)
            }
        }
    }

    /// The nearest element to fractional coordinates.
    fn nearest(&self, c: &mut Coder, plane: Val, at: &[Val]) -> Val {
        let round = |(d, &x): (usize, &Val)| {
            let x = c.unary(Unary::Round, x);
            self.steps(c, d, x, [0])[0]
        };
        let steps: Vec<Step> = at.iter().enumerate().map(round).collect();
        self.read(c, plane, &steps)
    }

    /// Multilinear interpolation at fractional coordinates.
    fn linear(&self, c: &mut Coder, plane: Val, at: &[Val]) -> Val {
        let t = c.type_of(at[0]);
        let one = c.constant(t, 1.0);
        let (mut steps, mut weights) = (Vec::new(), Vec::new());
        for (d, &x) in at.iter().enumerate() {
            let f = c.unary(Unary::Floor, x);
            let w = c.sub(x, f);
            let other = c.sub(one, w);
            steps.push(self.steps(c, d, f, [0, 1]));
            weights.push([other, w]);
        }
        let mut total: Option<Val> = None;
        for corner in 0..1usize << at.len() {
            let bit = |d: usize| corner >> d & 1;
            let place: Vec<Step> = (0..at.len()).map(|d| steps[d][bit(d)]).collect();
            let weight = (1..at.len()).fold(weights[0][bit(0)], |w, d| c.mul(w, weights[d][bit(d)]));
            let value = self.read(c, plane, &place);
            let value = c.cast(value, t);
            let term = c.mul(value, weight);
            total = Some(total.map_or(term, |s| c.add(s, term)));
        }
        total.unwrap_or(one)
    }

    /// Cubic convolution (a = -0.75) over four neighbours in each dimension.
    fn cubic(&self, c: &mut Coder, plane: Val, at: &[Val]) -> Val {
        let t = c.type_of(at[0]);
        let (mut steps, mut weights) = (Vec::new(), Vec::new());
        for (d, &x) in at.iter().enumerate() {
            let f = c.unary(Unary::Floor, x);
            let w = c.sub(x, f);
            weights.push(cubic_weights(c, w));
            steps.push(self.steps(c, d, f, [-1, 0, 1, 2]));
        }
        let mut total = c.constant(t, 0.0);
        for tap in 0..4usize.pow(at.len() as u32) {
            let (mut rest, mut place, mut weight) = (tap, Vec::new(), None);
            for d in 0..at.len() {
                let k = rest % 4;
                rest /= 4;
                place.push(steps[d][k]);
                weight = Some(weight.map_or(weights[d][k], |w| c.mul(w, weights[d][k])));
            }
            let value = self.read(c, plane, &place);
            let mut term = c.cast(value, t);
            if let Some(w) = weight {
                term = c.mul(term, w);
            }
            total = c.add(total, term);
        }
        total
    }
}

/// Weights of the four neighbours of a place `w` behind the second.
fn cubic_weights(c: &mut Coder, w: Val) -> [Val; 4] {
    const A: f64 = -0.75;
    let t = c.type_of(w);
    let poly = |c: &mut Coder, x: Val, k: [f64; 4]| {
        let mut y = c.constant(t, k[0]);
        for k in &k[1..] {
            let k = c.constant(t, *k);
            y = c.mul(y, x);
            y = c.add(y, k);
        }
        y
    };
    let one = c.constant(t, 1.0);
    let far = c.add(w, one);
    let near = c.sub(one, w);
    let last = c.add(near, one);
    let outer = [A, -5.0 * A, 8.0 * A, -4.0 * A];
    let inner = [A + 2.0, -(A + 3.0), 0.0, 1.0];
    [poly(c, far, outer), poly(c, w, inner), poly(c, near, inner), poly(c, last, outer)]
}

/// Floats that positions are computed in: at least f32.
fn wide(t: DType) -> DType {
    if t == DType::F64 { DType::F64 } else { DType::F32 }
}

pub(super) fn grid_sample(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, grid) = (cx.input(0)?, cx.input(1)?);
    let (shape, places, dtype) = (cx.shape(x).to_vec(), cx.shape(grid).to_vec(), cx.dtype(x));
    let spatial = shape.len().saturating_sub(2);
    if spatial == 0 || places.len() != shape.len() || places[0] != shape[0] || places[spatial + 1] != spatial {
        return Err(Reason::Shape(format!("a grid of shape {places:?} does not fit data of shape {shape:?}")));
    }
    let align = cx.int("align_corners", 0)? != 0;
    let mode = cx.text("mode", "linear")?;
    let padding = match cx.text("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return Err(Reason::attribute("padding_mode", format!("is `{other}`"))),
    };
    let out = [&shape[..2], &places[1..=spatial]].concat();
    check_size(&out)?;
    if out.contains(&0) || shape.contains(&0) || !dtype.is_float() {
        return Err(Reason::Shape(format!(
            "samples {dtype} data of shape {shape:?}; floats with elements are supported"
        )));
    }
    if !["linear", "bilinear", "nearest", "cubic", "bicubic"].contains(&mode) {
        return Err(Reason::attribute("mode", format!("is `{mode}`; linear, nearest and cubic are supported")));
    }
    let t = wide(dtype);
    let operands = [x, grid].map(|v| cx.operand_if(v, View::is_dense)).to_vec();
    let image = Image { operand: 0, dims: &shape[2..], padding, align, planes: true };
    let y = cx.program(operands, &out, |c| {
        let all: Vec<Val> = (0..out.len()).map(|d| c.coord(d)).collect();
        let mut at = vec![all[0]];
        at.extend(&all[2..]);
        let row = c.place(&at, &[&[out[0]], &out[2..]].concat());
        let first = c.times(row, spatial as i64);
        // The last coordinate stands first in the grid.
        let mut coords = Vec::new();
        for d in 0..spatial {
            let place = c.plus(first, (spatial - 1 - d) as i64);
            let g = c.load(1, place);
            let g = c.cast(g, t);
            let n = shape[2 + d] as f64;
            let (scale, shift) = if align { ((n - 1.0) / 2.0, (n - 1.0) / 2.0) } else { (n / 2.0, (n - 1.0) / 2.0) };
            let (scale, shift) = (c.constant(t, scale), c.constant(t, shift));
            let g = c.mul(g, scale);
            let g = c.add(g, shift);
            // Borders are met before the neighbours are looked for, but for the cubic's.
            coords.push(match padding {
                Padding::Border if !mode.ends_with("cubic") => {
                    let (low, high) = (c.constant(t, 0.0), c.constant(t, n - 1.0));
                    let g = c.binary(Binary::Max, g, low);
                    c.binary(Binary::Min, g, high)
                }
                Padding::Reflection if !mode.ends_with("cubic") => {
                    let (low, high) = if align { (0.0, n - 1.0) } else { (-0.5, n - 0.5) };
                    let g = reflected(c, g, low, high);
                    let (low, high) = (c.constant(t, 0.0), c.constant(t, n - 1.0));
                    let g = c.binary(Binary::Max, g, low);
                    c.binary(Binary::Min, g, high)
                }
                _ => g,
            });
        }
        let plane = c.place(&all[..2], &shape[..2]);
        let value = match mode {
            "nearest" => image.nearest(c, plane, &coords),
            "linear" | "bilinear" => image.linear(c, plane, &coords),
            _ => image.cubic(c, plane, &coords),
        };
        c.cast(value, dtype)
    });
    cx.set(0, y);
    Ok(())
}

pub(super) fn affine_grid(cx: &mut Lowering<'_>) -> Res<()> {
    let theta = cx.input(0)?;
    let size = super::source::to_shape(&cx.const_ints(1, "the size")?)?;
    let align = cx.int("align_corners", 0)? != 0;
    let (dtype, spatial) = (cx.dtype(theta), size.len().saturating_sub(2));
    if !(2..=3).contains(&spatial) || cx.shape(theta) != [size[0], spatial, spatial + 1] || size.contains(&0) {
        return Err(Reason::Shape(format!("matrices of shape {:?} do not fit the size {size:?}", cx.shape(theta))));
    }
    let out = [&size[..1], &size[2..], &[spatial]].concat();
    check_size(&out)?;
    let t = wide(dtype);
    let operands = vec![cx.operand_if(theta, View::is_dense)];
    let y = cx.program(operands, &out, |c| {
        let (batch, row) = (c.coord(0), c.coord(spatial + 1));
        let first = c.place(&[batch, row], &[size[0], spatial]);
        let first = c.times(first, spatial as i64 + 1);
        let at = c.plus(first, spatial as i64);
        let shift = c.load(0, at);
        let mut total = c.cast(shift, t);
        for d in 0..spatial {
            // Column d belongs to the d-th dimension from the end.
            let dim = spatial - 1 - d;
            let (i, n) = (c.coord(1 + dim), size[2 + dim] as f64);
            let i = c.cast(i, t);
            let (scale, from) = match align {
                true if n == 1.0 => (0.0, 0.0),
                true => (2.0 / (n - 1.0), -1.0),
                false => (2.0 / n, -1.0 + 1.0 / n),
            };
            let (scale, from) = (c.constant(t, scale), c.constant(t, from));
            let x = c.mul(i, scale);
            let x = c.add(x, from);
            let at = c.plus(first, d as i64);
            let m = c.load(0, at);
            let m = c.cast(m, t);
            let term = c.mul(m, x);
            total = c.add(total, term);
        }
        c.cast(total, dtype)
    });
    cx.set(0, y);
    Ok(())
}

pub(super) fn col2im(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let image = super::source::to_shape(&cx.const_ints(1, "the image's shape")?)?;
    let block = super::source::to_shape(&cx.const_ints(2, "the block's shape")?)?;
    let (shape, dtype, n) = (cx.shape(x).to_vec(), cx.dtype(x), image.len());
    let list = |name: &str, default: i64, len: usize| -> Res<Vec<usize>> {
        let list = cx.ints(name)?.unwrap_or_else(|| vec![default; len]);
        let fits = list.len() == len && list.iter().all(|v| (default..1 << 24).contains(v));
        if fits { super::source::to_shape(&list) } else { Err(Reason::attribute(name, format!("is {list:?}"))) }
    };
    let (dilations, strides, pads) = (list("dilations", 1, n)?, list("strides", 1, n)?, list("pads", 0, 2 * n)?);
    let taps: usize = block.iter().product();
    if shape.len() != 3 || block.len() != n || taps == 0 || !shape[1].is_multiple_of(taps) || image.contains(&0) {
        return Err(Reason::Shape(format!(
            "data of shape {shape:?} does not make images of {image:?} from blocks of {block:?}"
        )));
    }
    let mut columns = Vec::new();
    for d in 0..n {
        let room = (image[d] + pads[d] + pads[n + d]).checked_sub(dilations[d] * (block[d] - 1) + 1);
        columns.push(room.map_or(0, |r| r / strides[d] + 1));
    }
    if columns.iter().product::<usize>() != shape[2] || shape.contains(&0) {
        return Err(Reason::Shape(format!("data of shape {shape:?} does not have {columns:?} blocks")));
    }
    let channels = shape[1] / taps;
    let out = [&[shape[0], channels], &image[..]].concat();
    check_size(&out)?;
    let operands = vec![cx.operand_if(x, View::is_dense)];
    let y = cx.program(operands, &out, |c| {
        let at: Vec<Val> = (0..out.len()).map(|d| c.coord(d)).collect();
        let plane = c.place(&at[..2], &out[..2]);
        let plane = c.times(plane, taps as i64);
        c.sum(dtype, taps, |c, tap| {
            let (mut rest, mut inside, mut blocks) = (tap, None, Vec::new());
            for d in (0..n).rev() {
                let (q, k) = c.divide(rest, block[d]);
                rest = q;
                let reach = c.times(k, dilations[d] as i64);
                let place = c.plus(at[2 + d], pads[d] as i64);
                let place = c.sub(place, reach);
                // Shifted so that the division is of a number that is not negative.
                let lift = (dilations[d] * block[d]).div_ceil(strides[d]);
                let lifted = c.plus(place, (lift * strides[d]) as i64);
                let (q, r) = c.divide(lifted, strides[d]);
                let step = c.plus(q, -(lift as i64));
                let zero = c.int(0);
                let hit = c.eq(r, zero);
                let there = c.within(step, 0, columns[d] as i64);
                let both = c.and(hit, there);
                inside = Some(inside.map_or(both, |m| c.and(m, both)));
                blocks.insert(0, step);
            }
            let column = c.place(&blocks, &columns);
            let row = c.add(plane, tap);
            let place = c.place(&[row, column], &[0, shape[2]]);
            let value = c.load_checked(0, place);
            let zero = c.constant(dtype, 0.0);
            match inside {
                Some(m) => c.select(m, value, zero),
                None => value,
            }
        })
    });
    cx.set(0, y);
    Ok(())
}

pub(super) fn roi_align(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, rois, batch) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (shape, dtype, count) = (cx.shape(x).to_vec(), cx.dtype(x), cx.shape(rois).first().copied().unwrap_or(0));
    super::gather::check_index(cx, batch)?;
    let max = match cx.text("mode", "avg")? {
        "avg" => false,
        "max" => true,
        other => return Err(Reason::attribute("mode", format!("is `{other}`; avg and max are supported"))),
    };
    let half = match cx
        .text("coordinate_transformation_mode", if cx.opset() < 16 { "output_half_pixel" } else { "half_pixel" })?
    {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(Reason::attribute("coordinate_transformation_mode", format!("is `{other}`"))),
    };
    let size = |v: i64| usize::try_from(v).ok().filter(|v| (1..1 << 16).contains(v));
    let bins = [size(cx.int("output_height", 1)?), size(cx.int("output_width", 1)?)];
    let ratio = usize::try_from(cx.int("sampling_ratio", 0)?)
        .map_err(|_| Reason::attribute("sampling_ratio", "is negative"))?;
    let scale = cx.float("spatial_scale", 1.0)?;
    let (&[n, channels, h, w], [Some(bh), Some(bw)]) = (&shape[..], bins) else {
        return Err(Reason::Shape(format!("data of shape {shape:?} has no regions of {bins:?}")));
    };
    if cx.shape(rois) != [count, 4]
        || cx.shape(batch) != [count]
        || count == 0
        || shape.contains(&0)
        || !dtype.is_float()
    {
        return Err(Reason::Shape(format!(
            "regions of shape {:?} for {dtype} data of shape {shape:?}",
            cx.shape(rois)
        )));
    }
    let t = wide(dtype);
    let out = [count, channels, bh, bw];
    let operands = [x, rois, batch].map(|v| cx.operand_if(v, View::is_dense)).to_vec();
    let y = cx.program(operands, &out, |c| {
        let [r, channel, i, j] = [0, 1, 2, 3].map(|d| c.coord(d));
        let b = c.load_int(2, r);
        let b = c.clamp(b, 0, n as i64);
        let plane = c.place(&[b, channel], &[n, channels]);
        let first = c.times(r, 4);
        let (k, shift) = (c.constant(t, scale), c.constant(t, if half { -0.5 } else { 0.0 }));
        let edge = |c: &mut Coder, d: i64| {
            let at = c.plus(first, d);
            let e = c.load(1, at);
            let e = c.cast(e, t);
            let e = c.mul(e, k);
            c.add(e, shift)
        };
        let [x1, y1, x2, y2] = [0, 1, 2, 3].map(|d| edge(c, d));
        // Start, extent of a bin and samples along it, in both directions.
        let axis = |c: &mut Coder, low: Val, high: Val, bins: usize, bin: Val| {
            let mut length = c.sub(high, low);
            if !half {
                let one = c.constant(t, 1.0);
                length = c.binary(Binary::Max, length, one);
            }
            let parts = c.constant(t, bins as f64);
            let step = c.binary(Binary::Div, length, parts);
            let samples = if ratio > 0 { c.constant(t, ratio as f64) } else { c.unary(Unary::Ceil, step) };
            let bin = c.cast(bin, t);
            let offset = c.mul(bin, step);
            let start = c.add(low, offset);
            (start, step, samples)
        };
        let (sy, step_y, ny) = axis(c, y1, y2, bh, i);
        let (sx, step_x, nx) = axis(c, x1, x2, bw, j);
        let zero = c.constant(t, 0.0);
        let start = if max { c.constant(t, f64::NEG_INFINITY) } else { zero };
        let total = c.var(start);
        let sample = |c: &mut Coder, iy: Val, ix: Val| {
            let place = |c: &mut Coder, start: Val, step: Val, n: Val, i: Val| {
                let half = c.constant(t, 0.5);
                let i = c.add(i, half);
                let i = c.mul(i, step);
                let i = c.binary(Binary::Div, i, n);
                c.add(start, i)
            };
            let (y, x) = (place(c, sy, step_y, ny, iy), place(c, sx, step_x, nx, ix));
            let value = region_sample(c, plane, [y, x], [h, w], max);
            let old = c.get(total);
            let new = if max { c.binary(Binary::Max, old, value) } else { c.add(old, value) };
            c.set(total, new);
        };
        if ratio > 0 {
            c.repeat(ratio * ratio, |c, s| {
                let (iy, ix) = c.divide(s, ratio);
                let (iy, ix) = (c.cast(iy, t), c.cast(ix, t));
                sample(c, iy, ix);
            });
        } else {
            let (iy, ix) = (c.var(zero), c.var(zero));
            let count = c.mul(ny, nx);
            let some = c.lt(zero, count);
            c.repeat_while(some, |c| {
                let (y, x) = (c.get(iy), c.get(ix));
                sample(c, y, x);
                let one = c.constant(t, 1.0);
                let x = c.add(x, one);
                let more = c.lt(x, nx);
                let next = c.add(y, one);
                let (x, y) = (c.select(more, x, zero), c.select(more, y, next));
                c.set(ix, x);
                c.set(iy, y);
                c.lt(y, ny)
            });
        }
        let total = c.get(total);
        let value = if max {
            let none = c.constant(t, f64::NEG_INFINITY);
            let empty = c.eq(total, none);
            c.select(empty, zero, total)
        } else {
            let count = c.mul(ny, nx);
            let one = c.constant(t, 1.0);
            let count = c.binary(Binary::Max, count, one);
            c.binary(Binary::Div, total, count)
        };
        c.cast(value, dtype)
    });
    cx.set(0, y);
    Ok(())
}

/// The largest element of each bin of a region whose corners are rounded to elements (Fast R-CNN); 0 in empty bins.
pub(super) fn max_roi_pool(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, rois) = (cx.input(0)?, cx.input(1)?);
    let (shape, dtype, regions) = (cx.shape(x).to_vec(), cx.dtype(x), cx.shape(rois).to_vec());
    let bins = pooled_shape(cx)?;
    let scale = cx.float("spatial_scale", 1.0)?;
    let (&[n, channels, h, w], &[count, 5]) = (&shape[..], &regions[..]) else {
        return Err(Reason::Shape(format!("data of shape {shape:?} has no regions of shape {regions:?}")));
    };
    if shape.contains(&0) || count == 0 || !dtype.is_float() {
        return Err(Reason::Shape(format!("regions of shape {regions:?} for {dtype} data of shape {shape:?}")));
    }
    let t = wide(dtype);
    let operands = [x, rois].map(|v| cx.operand_if(v, View::is_dense)).to_vec();
    let y = cx.program(operands, &[count, channels, bins[0], bins[1]], |c| {
        let [r, channel, i, j] = [0, 1, 2, 3].map(|d| c.coord(d));
        let first = c.times(r, 5);
        let number = |c: &mut Coder, d: i64| {
            let at = c.plus(first, d);
            let v = c.load(1, at);
            c.cast(v, t)
        };
        let b = number(c, 0);
        let b = c.cast(b, DType::I32);
        let b = c.clamp(b, 0, n as i64);
        let (k, half, one) = (c.constant(t, scale), c.constant(t, 0.5), c.constant(t, 1.0));
        // Halves are rounded away from zero.
        let corner = |c: &mut Coder, d: i64| {
            let v = number(c, d);
            let v = c.mul(v, k);
            let (sign, size) = (c.unary(Unary::Sign, v), c.unary(Unary::Abs, v));
            let size = c.add(size, half);
            let size = c.unary(Unary::Floor, size);
            c.mul(sign, size)
        };
        let [x1, y1, x2, y2] = [1, 2, 3, 4].map(|d| corner(c, d));
        // The elements of a bin, from the first to before the last.
        let range = |c: &mut Coder, low: Val, high: Val, bins: usize, bin: Val, extent: usize| {
            let length = c.sub(high, low);
            let length = c.add(length, one);
            let length = c.binary(Binary::Max, length, one);
            let parts = c.constant(t, bins as f64);
            let step = c.binary(Binary::Div, length, parts);
            let bin = c.cast(bin, t);
            let next = c.add(bin, one);
            let (from, to) = (c.mul(bin, step), c.mul(next, step));
            let (from, to) = (c.unary(Unary::Floor, from), c.unary(Unary::Ceil, to));
            [from, to].map(|v| {
                let v = c.add(v, low);
                let v = c.cast(v, DType::I32);
                c.clamp(v, 0, extent as i64 + 1)
            })
        };
        let [top, bottom] = range(c, y1, y2, bins[0], i, h);
        let [left, right] = range(c, x1, x2, bins[1], j, w);
        let none = c.constant(t, f64::NEG_INFINITY);
        let (most, row, column) = (c.var(none), c.var(top), c.var(left));
        let (tall, wide) = (c.lt(top, bottom), c.lt(left, right));
        let some = c.and(tall, wide);
        c.repeat_while(some, |c| {
            let (y, x) = (c.get(row), c.get(column));
            let at = c.place(&[b, channel, y, x], &[n, channels, h, w]);
            let (value, old) = (c.load(0, at), c.get(most));
            let value = c.cast(value, t);
            let new = c.binary(Binary::Max, old, value);
            c.set(most, new);
            let (x, below) = (c.plus(x, 1), c.plus(y, 1));
            let more = c.lt(x, right);
            let (x, y) = (c.select(more, x, left), c.select(more, y, below));
            c.set(column, x);
            c.set(row, y);
            c.lt(y, bottom)
        });
        let (most, zero) = (c.get(most), c.constant(t, 0.0));
        let value = c.select(some, most, zero);
        c.cast(value, dtype)
    });
    cx.set(0, y);
    Ok(())
}

/// Attribute `pooled_shape` of [`max_roi_pool`].
fn pooled_shape<'m>(cx: &impl Ask<'m>) -> Res<[usize; 2]> {
    let list = cx.ints("pooled_shape")?.unwrap_or_default();
    match list[..] {
        [h @ 1..65536, w @ 1..65536] => Ok([h as usize, w as usize]),
        _ => Err(Reason::attribute("pooled_shape", format!("is {list:?}, not two extents"))),
    }
}

/// Bilinear sample of operand 0; up to one element outside counts as the border, farther counts 0. `max` takes the largest
/// weighted neighbour instead of their sum.
fn region_sample(c: &mut Coder, plane: Val, at: [Val; 2], dims: [usize; 2], max: bool) -> Val {
    let t = c.type_of(at[0]);
    let (zero, one) = (c.constant(t, 0.0), c.constant(t, 1.0));
    let mut inside = None;
    let mut ends = Vec::new();
    for (x, n) in at.into_iter().zip(dims) {
        let (low, high) = (c.constant(t, -1.0), c.constant(t, n as f64));
        let above = c.binary(Binary::Le, low, x);
        let below = c.binary(Binary::Le, x, high);
        let both = c.and(above, below);
        inside = Some(inside.map_or(both, |m| c.and(m, both)));
        let top = c.constant(t, n as f64 - 1.0);
        let x = c.binary(Binary::Max, x, zero);
        let x = c.binary(Binary::Min, x, top);
        let f = c.unary(Unary::Floor, x);
        let next = c.add(f, one);
        let next = c.binary(Binary::Min, next, top);
        let w = c.sub(x, f);
        let other = c.sub(one, w);
        let (f, next) = (c.cast(f, DType::I32), c.cast(next, DType::I32));
        ends.push([(f, other), (next, w)]);
    }
    let mut total = None;
    for (y, wy) in ends[0] {
        for (x, wx) in ends[1] {
            let place = c.place(&[plane, y, x], &[0, dims[0], dims[1]]);
            let v = c.load(0, place);
            let v = c.cast(v, t);
            let w = c.mul(wy, wx);
            let v = c.mul(v, w);
            total = Some(total.map_or(v, |s| if max { c.binary(Binary::Max, s, v) } else { c.add(s, v) }));
        }
    }
    let total = total.unwrap_or(zero);
    match inside {
        Some(m) => c.select(m, total, zero),
        None => total,
    }
}

pub(super) fn deform_conv(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, weights, offsets) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (xs, ws, dtype) = (cx.shape(x).to_vec(), cx.shape(weights).to_vec(), cx.dtype(x));
    let (&[n, channels, h, w], &[m, per_group, kh, kw]) = (&xs[..], &ws[..]) else {
        return Err(Reason::Shape(format!(
            "data of shape {xs:?} and weights of shape {ws:?}; two spatial dimensions are supported"
        )));
    };
    let groups = usize::try_from(cx.int("group", 1)?).unwrap_or(0);
    let offset_groups = usize::try_from(cx.int("offset_group", 1)?).unwrap_or(0);
    let frame = Frame::read(cx, 2, Some(&ws[2..]))?;
    let (begin, end) = frame.padding(&xs[2..]);
    let mut out = vec![n, m];
    for d in 0..2 {
        let room = (xs[2 + d] + begin[d] + end[d]).checked_sub(frame.reach(d));
        out.push(room.map_or(0, |r| r / frame.strides[d] + 1));
    }
    let taps = kh * kw;
    let area = out[2] * out[3];
    if groups == 0
        || offset_groups == 0
        || per_group * groups != channels
        || m % groups != 0
        || channels % offset_groups != 0
        || out.contains(&0)
        || cx.shape(offsets) != [n, offset_groups * taps * 2, out[2], out[3]]
        || !dtype.is_float()
    {
        return Err(Reason::Shape(format!(
            "data {xs:?}, weights {ws:?} and offsets {:?} do not fit",
            cx.shape(offsets)
        )));
    }
    check_size(&out)?;
    let (bias, mask) = (cx.optional(3), cx.optional(4));
    for (i, v, shape) in [(3, bias, &[m][..]), (4, mask, &[n, offset_groups * taps, out[2], out[3]])] {
        if let Some(given) = v.map(|v| cx.shape(v)).filter(|given| *given != shape) {
            return Err(Reason::Shape(format!("input {i} has shape {given:?}, not {shape:?}")));
        }
    }
    let t = wide(dtype);
    let mut operands = [x, weights, offsets].map(|v| cx.operand_if(v, View::is_dense)).to_vec();
    for v in [bias, mask].into_iter().flatten() {
        operands.push(cx.operand_if(v, View::is_dense));
    }
    let mask_operand = 3 + usize::from(bias.is_some());
    let dims = [h, w];
    let image = Image { operand: 0, dims: &dims, padding: Padding::Zeros, align: true, planes: false };
    let y = cx.program(operands, &out, |c| {
        let [b, o, i, j] = [0, 1, 2, 3].map(|d| c.coord(d));
        let (group, _) = c.divide(o, m / groups);
        let place = c.place(&[i, j], &out[2..]);
        let total = c.sum(t, per_group * taps, |c, k| {
            let (channel, tap) = c.divide(k, taps);
            let (ky, kx) = c.divide(tap, kw);
            let first = c.times(group, per_group as i64);
            let channel = c.add(first, channel);
            let (og, _) = c.divide(channel, channels / offset_groups);
            let mut coords = Vec::new();
            for (d, (step, kd)) in [(i, ky), (j, kx)].into_iter().enumerate() {
                let which = c.place(&[b, og, tap], &[0, offset_groups, taps]);
                let which = c.times(which, 2);
                let which = c.plus(which, d as i64);
                let at = c.place(&[which, place], &[0, area]);
                let offset = c.load(2, at);
                let offset = c.cast(offset, t);
                let step = c.times(step, frame.strides[d] as i64);
                let kd = c.times(kd, frame.dilations[d] as i64);
                let base = c.add(step, kd);
                let base = c.plus(base, -(begin[d] as i64));
                let base = c.cast(base, t);
                coords.push(c.add(base, offset));
            }
            let plane = c.place(&[b, channel], &[0, channels]);
            let mut value = image.linear(c, plane, &coords);
            if mask.is_some() {
                let which = c.place(&[b, og, tap, place], &[0, offset_groups, taps, area]);
                let m = c.load(mask_operand, which);
                let m = c.cast(m, t);
                value = c.mul(value, m);
            }
            let at = c.place(&[o, k], &[0, per_group * taps]);
            let weight = c.load(1, at);
            let weight = c.cast(weight, t);
            c.mul(value, weight)
        });
        let total = if bias.is_some() {
            let v = c.load(3, o);
            let v = c.cast(v, t);
            c.add(total, v)
        } else {
            total
        };
        c.cast(total, dtype)
    });
    cx.set(0, y);
    Ok(())
}

// ---- rules; what does not fit is left to lowering, which says why ----

pub(super) fn of_grid_sample(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (data, grid) = (cx.dims(x), cx.dims(cx.input(1)?));
    let ([n, c, spatial @ ..], [_, places @ .., _]) = (data, grid) else { return by_lowering(cx) };
    if places.len() != spatial.len() {
        return by_lowering(cx);
    }
    cx.give(0, cx.dtype(x), [&[n.clone(), c.clone()], places].concat())
}

pub(super) fn of_affine_grid(cx: &mut Inference<'_>) -> Res<()> {
    let size = cx.numbers(1, "the size")?;
    let [n, _, spatial @ ..] = &size[..] else { return by_lowering(cx) };
    cx.give(0, cx.dtype(cx.input(0)?), [std::slice::from_ref(n), spatial, &[spatial.len().into()]].concat())
}

pub(super) fn of_col2im(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (image, block) = (cx.numbers(1, "the image's shape")?, cx.numbers(2, "the block's shape")?);
    let (taps, [n, c, _]) = (product(&block), cx.dims(x)) else { return by_lowering(cx) };
    if taps.is(0) {
        return by_lowering(cx);
    }
    cx.give(0, cx.dtype(x), [&[n.clone(), c.quotient(&taps)], &image[..]].concat())
}

pub(super) fn of_roi_align(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let bins = [cx.int("output_height", 1)?, cx.int("output_width", 1)?].map(Dim::Known);
    let ([_, c, _, _], [count, ..]) = (cx.dims(x), cx.dims(cx.input(1)?)) else { return by_lowering(cx) };
    cx.give(0, cx.dtype(x), [&[count.clone(), c.clone()], &bins[..]].concat())
}

pub(super) fn of_max_roi_pool(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let bins = pooled_shape(cx)?.map(Dim::from);
    let ([_, c, _, _], [count, ..]) = (cx.dims(x), cx.dims(cx.input(1)?)) else { return by_lowering(cx) };
    cx.give(0, cx.dtype(x), [&[count.clone(), c.clone()], &bins[..]].concat())
}
