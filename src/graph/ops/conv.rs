//! Convolutions.
//!
//! A transposed convolution with strides is split into its phases: outputs whose position has the same remainder modulo
//! the stride see the same subset of the kernel's taps, so each phase is an ordinary convolution with a smaller, flipped
//! kernel that writes every stride-th output. Nothing is multiplied by zero and no scatter is needed.

use super::source::to_shape;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described, known};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Scalar};
use crate::graph::fused::{Access, Conv, Guard, StepKind, Window};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, Part, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::tensor::DType;

/// The attributes that convolutions and poolings share, completed by their defaults.
pub(super) struct Frame {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// `None`: computed from the input's extents.
    pub pads: Option<(Vec<usize>, Vec<usize>)>,
    /// With `pads` of `None`: the odd element goes to the end (`SAME_UPPER`) or to the beginning.
    pub same_upper: bool,
}

fn positive(list: Vec<i64>, n: usize, what: &str) -> Res<Vec<usize>> {
    if list.len() != n {
        return Err(Reason::attribute(what, format!("has {} entries for {n} spatial dimensions", list.len())));
    }
    let small = |v: i64| usize::try_from(v).ok().filter(|v| (1..=1 << 24).contains(v));
    list.iter().map(|&v| small(v).ok_or_else(|| Reason::attribute(what, format!("is {list:?}")))).collect()
}

impl Frame {
    /// Reads the attributes; `kernel` is the extent of the weights where there are any.
    pub(super) fn read<'m>(cx: &impl Ask<'m>, spatial: usize, kernel: Option<&[usize]>) -> Res<Frame> {
        if !(1..=3).contains(&spatial) {
            return Err(Reason::Shape(format!("{spatial} spatial dimensions; 1 to 3 are supported")));
        }
        let kernel = match (cx.ints("kernel_shape")?, kernel) {
            (Some(k), None) => positive(k, spatial, "kernel_shape")?,
            (Some(k), Some(w)) => {
                let k = positive(k, spatial, "kernel_shape")?;
                if k != w {
                    return Err(Reason::attribute("kernel_shape", format!("{k:?} is not that of the weights, {w:?}")));
                }
                k
            }
            (None, Some(w)) if w.contains(&0) => {
                return Err(Reason::Shape(format!(
                    "the weights' kernel of {w:?} has no elements, which covers nothing"
                )));
            }
            (None, Some(w)) => w.to_vec(),
            (None, None) => return Err(Reason::attribute("kernel_shape", "is missing")),
        };
        let or_ones = |list: Option<Vec<i64>>, what| match list {
            Some(l) => positive(l, spatial, what),
            None => Ok(vec![1; spatial]),
        };
        let strides = or_ones(cx.ints("strides")?, "strides")?;
        let dilations = or_ones(cx.ints("dilations")?, "dilations")?;
        let auto = cx.text("auto_pad", "NOTSET")?;
        let pads = match auto {
            "NOTSET" | "" => match cx.ints("pads")? {
                None => Some((vec![0; spatial], vec![0; spatial])),
                Some(p) if p.len() == 2 * spatial => {
                    let small = |v: &i64| usize::try_from(*v).ok().filter(|&v| v <= 1 << 24);
                    let p: Option<Vec<usize>> = p.iter().map(small).collect();
                    let p = p.ok_or(Reason::attribute("pads", "has an entry that is negative or too large"))?;
                    Some((p[..spatial].to_vec(), p[spatial..].to_vec()))
                }
                Some(p) => {
                    return Err(Reason::attribute(
                        "pads",
                        format!("has {} entries for {spatial} spatial dimensions", p.len()),
                    ));
                }
            },
            "VALID" => Some((vec![0; spatial], vec![0; spatial])),
            "SAME_UPPER" | "SAME_LOWER" => None,
            other => {
                return Err(Reason::attribute(
                    "auto_pad",
                    format!("is `{other}`; NOTSET, VALID, SAME_UPPER and SAME_LOWER are supported"),
                ));
            }
        };
        Ok(Frame { kernel, strides, dilations, pads, same_upper: auto == "SAME_UPPER" })
    }

    /// Extent of the dilated kernel.
    pub(super) fn reach(&self, d: usize) -> usize {
        (self.kernel[d] - 1) * self.dilations[d] + 1
    }

    /// Padding before and after dimension `d`, of an input of this extent.
    fn pads(&self, d: usize, input: usize) -> (usize, usize) {
        if let Some((begin, end)) = &self.pads {
            return (begin[d], end[d]);
        }
        let steps = input.div_ceil(self.strides[d]);
        let total = (steps.saturating_sub(1) * self.strides[d] + self.reach(d)).saturating_sub(input);
        let small = total / 2;
        if self.same_upper { (small, total - small) } else { (total - small, small) }
    }

    /// Padding before and after, per dimension, for inputs of these extents.
    pub(super) fn padding(&self, input: &[usize]) -> (Vec<usize>, Vec<usize>) {
        input.iter().enumerate().map(|(d, &n)| self.pads(d, n)).unzip()
    }

    /// How many windows there are along dimension `d`; with `ceil` one that the input ends in counts too.
    pub(super) fn places(&self, d: usize, input: &Dim, ceil: bool) -> Res<Dim> {
        let stride = Dim::from(self.strides[d]);
        let Some((begin, end)) = &self.pads else { return Ok(input.quotient_up(&stride)) };
        let (begin, end) = (begin[d], end[d]);
        let padded = input + &Dim::from(begin.saturating_add(end));
        let room = &padded - &Dim::from(self.reach(d));
        // Where one may end behind the input, it may also be larger.
        let least = if ceil { 1 - i64::try_from(self.strides[d]).unwrap_or(i64::MAX) } else { 0 };
        if matches!(room, Dim::Known(n) if n < least) {
            let reach = self.reach(d);
            return Err(Reason::Shape(format!(
                "the window reaches over {reach} elements, the padded input has {padded}"
            )));
        }
        let one = Dim::Known(1);
        if !ceil {
            return Ok(&room.quotient(&stride) + &one);
        }
        // A window that would start after the input and its first padding does not exist.
        let all = &room.quotient_up(&stride) + &one;
        let last = (input + &Dim::from(begin)).quotient_up(&stride);
        Ok(all.smaller(&last.larger(&(&all - &one))))
    }

    /// The same for poolings, whose quotient onnxruntime and ONNX's own inference round towards zero: a window that is larger than the
    /// padded input by less than a stride has a place.
    pub(super) fn pooled(&self, d: usize, input: &Dim, ceil: bool) -> Res<Dim> {
        if let (Some((begin, end)), Some(n)) = (&self.pads, input.known()) {
            let beyond = self.reach(d).saturating_sub(n.saturating_add(begin[d]).saturating_add(end[d]));
            if beyond > 0 && beyond / self.strides[d] < 2 {
                return Ok((1 - beyond / self.strides[d]).into());
            }
        }
        self.places(d, input, ceil)
    }
}

/// Refuses results whose size cannot be computed with.
pub(super) fn check_size(dims: &[usize]) -> Res<()> {
    crate::tensor::element_count(dims)
        .map(|_| ())
        .ok_or_else(|| Reason::Size(format!("the result's shape {dims:?} is too large")))
}

fn check_float(cx: &Lowering<'_>, ids: &[ValueId]) -> Res<()> {
    match ids.iter().map(|&v| cx.dtype(v)).find(|t| !t.is_float() || t.is_small_float()) {
        Some(t) => Err(Reason::Type(format!("computes with type {t}; only floats are supported"))),
        None => Ok(()),
    }
}

/// Adds a vector along dimension 1.
fn add_bias(cx: &mut Lowering<'_>, y: Lazy, bias: ValueId) -> Res<Lazy> {
    let shape = y.shape.clone();
    let mut dims = vec![1; shape.len()];
    dims[1] = shape[1];
    if cx.shape(bias).iter().product::<usize>() != shape[1] {
        return Err(Reason::Shape(format!("the bias has shape {:?}, there are {} channels", cx.shape(bias), shape[1])));
    }
    let b = cx.without_base(bias).reshaped(&dims);
    cx.combine(vec![y, b], &shape, |e, v| e.binary(Binary::Add, v[0], v[1]))
}

/// The data operand. A padding by zeros before it becomes padding of the convolution itself: returns the extents and the
/// padding to add before and after.
fn data_operand(cx: &mut Lowering<'_>, v: ValueId) -> (Access, Vec<usize>, Vec<usize>) {
    let spatial = cx.rank(v) - 2;
    let lazy = cx.lazy(v);
    if let Some(plain) = lazy.plain()
        && let Some(a) = plain.as_read()
        && let Some(g) = &a.guard
        && a.indirect.is_empty()
        && g.fill.as_f64() == 0.0
        && g.ranges[..2].iter().zip(&a.view.dims).all(|(&r, &d)| r == (0, d))
    {
        let mut view = a.view.clone();
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        for (d, &(lo, hi)) in g.ranges.iter().enumerate() {
            if d >= 2 {
                begin.push(lo);
                end.push(view.dims[d] - hi);
            }
            view = view.sliced(d, lo, 1, hi - lo);
        }
        if view.is_inner_dense(1) {
            return (Access::new(a.tensor, view), begin, end);
        }
    }
    let access = cx.operand_if(v, |view| view.is_inner_dense(1));
    (access, vec![0; spatial], vec![0; spatial])
}

/// Into how many groups the channels are split.
pub(super) fn groups<'m>(cx: &impl Ask<'m>) -> Res<usize> {
    let groups = usize::try_from(cx.int("group", 1)?).ok().filter(|g| *g > 0);
    groups.ok_or_else(|| Reason::attribute("group", "is not positive"))
}

pub(super) fn conv(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    check_float(cx, &[x, w])?;
    let (xs, ws) = (cx.shape(x).to_vec(), cx.shape(w).to_vec());
    let groups = groups(cx)?;
    let frame = Frame::read(cx, xs.len() - 2, Some(&ws[2..]))?;
    let (mut begin, _) = frame.padding(&xs[2..]);
    let dims = cx.result(0);
    let dtype = cx.dtype(x);
    // Sums of nothing.
    let mut y = if xs.contains(&0) || ws.contains(&0) {
        splat(dtype, &dims, Scalar::of(dtype, 0.0))
    } else {
        // Lines among images of one row are lines.
        let lines: Vec<usize> = (0..begin.len())
            .filter(|d| begin[*d] > 0 || [frame.kernel[*d], xs[2 + d], dims[2 + d]] != [1; 3])
            .collect();
        let of = |list: &[usize]| lines.iter().map(|d| list[*d]).collect::<Vec<_>>();
        let reach: usize = of(&frame.kernel).iter().sum();
        if !is_wide(&frame) || reach <= WIDEST {
            let (mut data, more, _) = data_operand(cx, x);
            begin.iter_mut().zip(more).for_each(|(b, m)| *b += m);
            let mut weights = cx.operand_if(w, View::is_dense);
            let mut window =
                Window { kernel: frame.kernel, strides: frame.strides, dilations: frame.dilations, pads: begin };
            let mut own = dims.clone();
            if window.kernel.iter().sum::<usize>() > WIDEST {
                let [kernel, strides, dilations, pads] =
                    [&window.kernel, &window.strides, &window.dilations, &window.pads].map(|list| of(list));
                window = Window { kernel, strides, dilations, pads };
                own = [&dims[..2], &of(&dims[2..])].concat();
                for view in [&mut data.view, &mut weights.view] {
                    view.dims = [&view.dims[..2], &of(&view.dims[2..])].concat();
                    view.strides =
                        view.strides[..2].iter().copied().chain(lines.iter().map(|d| view.strides[2 + d])).collect();
                }
            }
            cx.produce(StepKind::Conv(Conv::new(window, groups)), vec![data, weights], &own, dtype).reshaped(&dims)
        } else {
            let (data, weights) = (cx.without_base(x), cx.without_base(w));
            as_product(cx, data, weights, &frame, &begin, groups, &dims)?
        }
    };
    if let Some(bias) = cx.optional(2) {
        y = add_bias(cx, y, bias)?;
    }
    cx.set(0, y);
    Ok(())
}

/// Extents of a window that convolution kernels take add up to this.
const WIDEST: usize = 31;

/// True for windows that are better laid out for a matrix product.
pub(super) fn is_wide(frame: &Frame) -> bool {
    frame.kernel.iter().sum::<usize>() > WIDEST
}

/// A convolution as a matrix product of the weights with the windows of the data. Windows are a view of the data, which
/// overlaps itself; they are copied only where the dimensions of a window do not form a line.
pub(super) fn as_product(
    cx: &mut Lowering<'_>,
    data: Lazy,
    weights: Lazy,
    frame: &Frame,
    begin: &[usize],
    groups: usize,
    dims: &[usize],
) -> Res<Lazy> {
    let (dtype, spatial) = (data.dtype(), begin.len());
    let (n, channels) = (data.shape[0], data.shape[1] / groups);
    let extent = |d: usize| (dims[2 + d] - 1) * frame.strides[d] + frame.reach(d);
    let mut access = cx.operand_of(data, |_| true);
    if (0..spatial).any(|d| begin[d] > 0 || extent(d) > access.view.dims[2 + d]) {
        let mut view = access.view.clone();
        let mut ranges = vec![(0, view.dims[0]), (0, view.dims[1])];
        for d in 0..spatial {
            let inner = view.dims[2 + d];
            view.offset -= begin[d] as i64 * view.strides[2 + d];
            view.dims[2 + d] = extent(d);
            ranges.push((begin[d], (begin[d] + inner).min(extent(d))));
        }
        access.view = view;
        access.guard = Some(Guard { ranges, fill: Scalar::of(dtype, 0.0) });
        let padded = Lazy::read(access, dtype);
        let shape = padded.shape.clone();
        access = cx.stored_access(padded);
        debug_assert_eq!(access.view.dims, shape);
    }
    let s = &access.view.strides;
    let taps: usize = frame.kernel.iter().product();
    let places: usize = dims[2..].iter().product();
    let mut walk = vec![(n, s[0]), (groups, s[1] * channels as i64), (channels, s[1])];
    walk.extend((0..spatial).map(|d| (frame.kernel[d], s[2 + d] * frame.dilations[d] as i64)));
    walk.extend((0..spatial).map(|d| (dims[2 + d], s[2 + d] * frame.strides[d] as i64)));
    let (extents, strides): (Vec<usize>, Vec<i64>) = walk.into_iter().unzip();
    check_size(&extents)?;
    let windows = View { offset: access.view.offset, dims: extents, strides };
    let windows = Lazy::read(Access::new(access.tensor, windows), dtype);
    let windows = windows.reshaped(&[n, groups, channels * taps, places]);
    let windows = cx.operand_of(windows, super::matmul::good);
    let weights = weights.reshaped(&[groups, dims[1] / groups, channels * taps]);
    let weights = cx.operand_of(weights, super::matmul::good);
    Ok(super::matmul::product(cx, weights, windows, dtype)?.reshaped(dims))
}

/// Each phase of a transposed convolution is a kernel.
const MAX_PHASES: usize = 4096;

/// What one phase of one dimension does.
struct Phase {
    /// First output position and number of positions; they are `stride` apart.
    start: usize,
    count: usize,
    /// First tap and number of taps of the kernel, `tap_step` apart; 0 taps: only the bias.
    tap: usize,
    taps: usize,
    tap_step: usize,
    /// Padding of the convolution (negative: the input's first elements are not seen).
    pad: i64,
    dilation: usize,
}

/// The phases of one dimension: output `o` is the sum over input `i` and tap `k` with `i * s + k * d - pad = o`.
fn phases(out: usize, kernel: usize, s: usize, d: usize, pad: usize) -> Vec<Phase> {
    let g = gcd(s, d);
    let (tap_step, dilation) = (s / g, d / g);
    let mut list = Vec::new();
    for r in 0..s.min(out) {
        // Outputs r, r + s, ...; q counts i when k = tap: i * s = o + pad - tap * d.
        let count = (out - r).div_ceil(s);
        let tap = (0..tap_step.min(kernel)).find(|k| (r + pad) as i64 % s as i64 == (k * d) as i64 % s as i64);
        let Some(tap) = tap else {
            list.push(Phase { start: r, count, tap: 0, taps: 0, tap_step, pad: 0, dilation });
            continue;
        };
        let taps = (kernel - tap).div_ceil(tap_step);
        // Output number t of the phase reads inputs first + t - j * dilation for tap number j; flipped, position
        // t + j' * dilation - pad with j' = taps - 1 - j.
        let first = ((r + pad) as i64 - (tap * d) as i64) / s as i64;
        let pad = ((taps - 1) * dilation) as i64 - first;
        list.push(Phase { start: r, count, tap, taps, tap_step, pad, dilation });
    }
    list
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The attributes of a transposed convolution.
struct Transposed {
    frame: Frame,
    extra: Vec<usize>,
    want: Option<Vec<usize>>,
}

impl Transposed {
    fn read<'m>(cx: &impl Ask<'m>, kernel: &[usize]) -> Res<Transposed> {
        let spatial = kernel.len();
        let frame = Frame::read(cx, spatial, Some(kernel))?;
        let extra = match cx.ints("output_padding")? {
            Some(p) if p.len() == spatial => to_shape(&p)?,
            Some(_) => return Err(Reason::attribute("output_padding", "has the wrong length")),
            None => vec![0; spatial],
        };
        let want = match cx.ints("output_shape")? {
            Some(p) if p.len() == spatial => Some(to_shape(&p)?),
            Some(p) if p.len() == spatial + 2 => Some(to_shape(&p[2..])?),
            Some(_) => return Err(Reason::attribute("output_shape", "has the wrong length")),
            None => None,
        };
        Ok(Transposed { frame, extra, want })
    }

    /// The result's extent without padding.
    fn full(&self, d: usize, input: &Dim) -> Dim {
        let steps = &(input - &Dim::Known(1)) * &self.frame.strides[d].into();
        &steps + &self.frame.reach(d).saturating_add(self.extra[d]).into()
    }

    /// The result's extent.
    fn places(&self, d: usize, input: &Dim) -> Dim {
        match (&self.want, &self.frame.pads) {
            (Some(want), _) => want[d].into(),
            (None, None) => input * &self.frame.strides[d].into(),
            (None, Some((begin, end))) => {
                (&self.full(d, input) - &begin[d].saturating_add(end[d]).into()).larger(&Dim::Known(0))
            }
        }
    }

    /// Padding in front, for an extent of the input and one of the result.
    fn begin(&self, d: usize, input: usize, out: usize) -> usize {
        match (&self.want, &self.frame.pads) {
            (None, Some((begin, _))) => begin[d],
            _ => {
                let total = self.full(d, &input.into()).known().unwrap_or(0).saturating_sub(out);
                if self.frame.same_upper { total / 2 } else { total - total / 2 }
            }
        }
    }
}

pub(super) fn transpose(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    check_float(cx, &[x, w])?;
    let (xs, ws) = (cx.shape(x).to_vec(), cx.shape(w).to_vec());
    if xs.len() < 3 || ws.len() != xs.len() {
        return Err(Reason::Shape(format!("data of shape {xs:?} and weights of shape {ws:?} do not fit")));
    }
    let spatial = xs.len() - 2;
    let groups = groups(cx)?;
    if ws[0] != xs[1] || xs[1] % groups != 0 {
        return Err(Reason::Shape(format!(
            "data of shape {xs:?} and weights of shape {ws:?} do not fit in {groups} groups"
        )));
    }
    let transposed = Transposed::read(cx, &ws[2..])?;
    let dims = cx.result(0);
    let begin: Vec<usize> = (0..spatial).map(|d| transposed.begin(d, xs[2 + d], dims[2 + d])).collect();
    let frame = transposed.frame;
    let dtype = cx.dtype(x);
    // Sums of nothing.
    if xs.contains(&0) || ws.contains(&0) {
        let none = splat(dtype, &dims, Scalar::of(dtype, 0.0));
        let y = cx.optional(2).map_or(Ok(none.clone()), |bias| add_bias(cx, none, bias))?;
        cx.set(0, y);
        return Ok(());
    }
    let data = cx.operand_if(x, |v| v.is_inner_dense(1));
    let weights = cx.plain(w);
    if frame.strides.iter().any(|&s| s > MAX_PHASES) {
        return Err(Reason::attribute("strides", format!("{:?} is too large", frame.strides)));
    }
    let per_dim: Vec<Vec<Phase>> = (0..spatial)
        .map(|d| phases(dims[2 + d], frame.kernel[d], frame.strides[d], frame.dilations[d], begin[d]))
        .collect();
    let mut parts = Vec::new();
    let combinations: usize = per_dim.iter().map(Vec::len).product();
    if combinations > MAX_PHASES {
        return Err(Reason::attribute("strides", format!("{:?} is too large", frame.strides)));
    }
    for c in 0..combinations {
        let mut rest = c;
        let mut phase: Vec<&Phase> = Vec::new();
        for list in per_dim.iter().rev() {
            phase.insert(0, &list[rest % list.len()]);
            rest /= list.len();
        }
        let mut slices = vec![(0, 1, dims[0]), (0, 1, dims[1])];
        slices.extend(phase.iter().zip(&frame.strides).map(|(p, &s)| (p.start, s, p.count)));
        let slices = Some(slices);
        let mut view = data.view.clone();
        let mut pads = Vec::new();
        for (d, p) in phase.iter().enumerate() {
            let crop = (-p.pad).max(0) as usize;
            pads.push(p.pad.max(0) as usize);
            if crop > 0 && crop < view.dims[2 + d] {
                view = view.sliced(2 + d, crop, 1, view.dims[2 + d] - crop);
            } else if crop > 0 {
                view.dims[2 + d] = 0;
            }
        }
        if phase.iter().any(|p| p.taps == 0) || view.is_empty() {
            parts.push(Part { kind: StepKind::Pointwise, inputs: vec![], slices, acc: Some(Scalar::Float(0.0)) });
            continue;
        }
        let taps = phase_weights(cx, &weights, &phase, groups);
        let window = Window {
            kernel: phase.iter().map(|p| p.taps).collect(),
            strides: vec![1; spatial],
            dilations: phase.iter().map(|p| p.dilation).collect(),
            pads,
        };
        let inputs = vec![Access::new(data.tensor, view), taps];
        parts.push(Part { kind: StepKind::Conv(Conv::new(window, groups)), inputs, slices, acc: None });
    }
    let mut y = cx.produce_parts(parts, &dims, dtype);
    if let Some(bias) = cx.optional(2) {
        y = add_bias(cx, y, bias)?;
    }
    cx.set(0, y);
    Ok(())
}

/// The weights of one phase as those of an ordinary convolution: taps selected and flipped, channels exchanged.
fn phase_weights(cx: &mut Lowering<'_>, weights: &Lazy, phase: &[&Phase], groups: usize) -> Access {
    let cuts: Vec<(usize, i64, i64, usize)> = phase
        .iter()
        .enumerate()
        .map(|(d, p)| (2 + d, (p.tap + (p.taps - 1) * p.tap_step) as i64, -(p.tap_step as i64), p.taps))
        .collect();
    let cut = super::layout::sliced(cx, weights, &cuts);
    let (c, m) = (cut.shape[0], cut.shape[1]);
    let kernel = cut.shape[2..].to_vec();
    let mut split = vec![groups, c / groups, m];
    split.extend(&kernel);
    let mut perm = vec![0, 2, 1];
    perm.extend(3..3 + kernel.len());
    let swapped = cx.permute(cut.reshaped(&split), &perm);
    let mut shape = vec![groups * m, c / groups];
    shape.extend(&kernel);
    cx.operand_of(swapped.reshaped(&shape), View::is_dense)
}

// ---- rules ----

/// Extents of the kernel, where the weights' are known, of data and weights that fit.
fn kernel(cx: &Inference<'_>, x: ValueId, w: ValueId) -> Res<Option<Vec<usize>>> {
    let (xs, ws) = (cx.dims(x), cx.dims(w));
    if xs.len() < 3 || ws.len() != xs.len() {
        let (xs, ws) = (described(xs), described(ws));
        return Err(Reason::Shape(format!("data of shape {xs} and weights of shape {ws} do not fit")));
    }
    Ok(known(&ws[2..]))
}

/// Output 0 is a convolution with a kernel whose extents only a run tells.
fn of_open_kernel(cx: &mut Inference<'_>, x: ValueId, channels: Dim, dtype: DType) -> Res<()> {
    let mut dims = vec![cx.dims(x)[0].clone(), channels];
    dims.extend((2..cx.rank(x)).map(|d| cx.told_by_run(0, d)));
    cx.give(0, dtype, dims)
}

/// Refuses weights without a window. Batches, channels and images may be empty.
fn has_window(ws: &[Dim]) -> Res<()> {
    match ws.iter().skip(2).any(|d| d.is(0)) {
        true => Err(Reason::Shape(format!("weights of shape {} have no window", described(ws)))),
        false => Ok(()),
    }
}

/// Output 0 is a convolution of some data with some weights, in a type.
pub(super) fn of_convolution(cx: &mut Inference<'_>, x: ValueId, w: ValueId, dtype: DType) -> Res<()> {
    let Some(kernel) = kernel(cx, x, w)? else {
        let channels = cx.dims(w)[0].clone();
        return of_open_kernel(cx, x, channels, dtype);
    };
    let groups = groups(cx)?;
    let frame = Frame::read(cx, kernel.len(), Some(&kernel))?;
    let (xs, ws) = (cx.dims(x), cx.dims(w));
    let whole = ws[0].known().is_none_or(|m| m % groups == 0);
    if !whole || xs[1].differs(&(&ws[1] * &groups.into())) {
        let (xs, ws) = (described(xs), described(ws));
        return Err(Reason::Shape(format!(
            "data of shape {xs} and weights of shape {ws} do not fit in {groups} groups"
        )));
    }
    has_window(ws)?;
    let channels = (xs[1].clone(), &ws[1] * &groups.into());
    let mut dims = vec![xs[0].clone(), ws[0].clone()];
    for d in 0..kernel.len() {
        dims.push(frame.places(d, &xs[2 + d], false)?);
    }
    cx.tie(vec![channels]);
    cx.give(0, dtype, dims)
}

pub(super) fn of_conv(cx: &mut Inference<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    of_convolution(cx, x, w, cx.dtype(x))
}

pub(super) fn of_transpose(cx: &mut Inference<'_>) -> Res<()> {
    let (x, w) = (cx.input(0)?, cx.input(1)?);
    let Some(kernel) = kernel(cx, x, w)? else {
        let channels = &cx.dims(w)[1] * &groups(cx)?.into();
        return of_open_kernel(cx, x, channels, cx.dtype(x));
    };
    let transposed = Transposed::read(cx, &kernel)?;
    let (xs, ws) = (cx.dims(x), cx.dims(w));
    has_window(ws)?;
    let mut dims = vec![xs[0].clone(), &ws[1] * &groups(cx)?.into()];
    dims.extend((0..kernel.len()).map(|d| transposed.places(d, &xs[2 + d])));
    cx.give(0, cx.dtype(x), dims)
}
