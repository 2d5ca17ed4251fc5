//! ai.onnx.ml: linear models, scaling, encoding. Trees are in [`super::trees`].
//!
//! Labels and categories may be text: on the device it is codes like any integers. ZipMap gives the table that its maps are made of.

use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Unary, Val};
use crate::graph::fused::{Access, Coder};
use crate::graph::infer::{Inference, by_lowering};
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// A list of floats; empty when it is not given.
pub(super) fn floats<'m>(cx: &impl Ask<'m>, name: &str) -> Res<Vec<f64>> {
    match cx.attribute(name) {
        None => Ok(Vec::new()),
        Some(Attribute::Floats(v)) => Ok(v.iter().map(|x| *x as f64).collect()),
        Some(Attribute::Tensor(t)) => Ok(t.to_f64()),
        Some(_) => Err(Reason::attribute(name, "is not a list of numbers")),
    }
}

/// A constant vector.
pub(super) fn vector(cx: &mut Lowering<'_>, dtype: DType, values: &[f64]) -> Access {
    let id = cx.add_const("coefficients".into(), HostTensor::from_f64(dtype, &[values.len()], values));
    Access::new(id, View::dense(&[values.len()]))
}

fn read(access: Access, dtype: DType, shape: &[usize]) -> Lazy {
    Lazy::read(access, dtype).reshaped(shape)
}

/// Input 0 as rows of features, in a float type.
pub(super) fn features(cx: &mut Lowering<'_>) -> Res<(Lazy, usize, usize)> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let (rows, columns) = match shape[..] {
        [n] => (1, n),
        [m, n] => (m, n),
        _ => return Err(Reason::Shape(format!("features of shape {shape:?}; rows of features are needed"))),
    };
    if rows * columns == 0 {
        return Err(Reason::Shape(format!("features of shape {shape:?} have no elements")));
    }
    let t = if cx.dtype(x) == DType::F64 { DType::F64 } else { DType::F32 };
    let lazy = cx.without_base(x).reshaped(&[rows, columns]);
    let lazy = cx.combine(vec![lazy], &[rows, columns], |e, v| e.cast(v[0], t))?;
    Ok((lazy, rows, columns))
}

/// Applies a `post_transform` to `[rows, columns]` scores.
pub(super) fn post(cx: &mut Lowering<'_>, scores: Lazy, how: &str) -> Res<Lazy> {
    let shape = scores.shape.clone();
    let t = scores.dtype();
    match how {
        "NONE" => Ok(scores),
        "LOGISTIC" => cx.combine(vec![scores], &shape, |e, v| e.unary(Unary::Sigmoid, v[0])),
        "SOFTMAX" | "SOFTMAX_ZERO" => {
            let data = cx.stored_access(scores);
            let zero = how == "SOFTMAX_ZERO";
            let n = shape[1];
            // With SOFTMAX_ZERO, scores of zero are not shifted by the largest.
            let term = move |c: &mut Coder, x: Val, top: Val| {
                let y = c.sub(x, top);
                let y = c.unary(Unary::Exp, y);
                if !zero {
                    return y;
                }
                let least = c.constant(t, 1e-7);
                let size = c.unary(Unary::Abs, x);
                let counts = c.lt(least, size);
                let down = c.unary(Unary::Neg, top);
                let down = c.unary(Unary::Exp, down);
                let other = c.mul(x, down);
                c.select(counts, y, other)
            };
            Ok(cx.program(vec![data], &shape, |c| {
                let (row, column) = (c.coord(0), c.coord(1));
                let low = c.constant(t, f64::NEG_INFINITY);
                let top = c.var(low);
                c.repeat(n, |c, i| {
                    let at = c.place(&[row, i], &[0, n]);
                    let x = c.load(0, at);
                    let old = c.get(top);
                    let new = c.binary(Binary::Max, old, x);
                    c.set(top, new);
                });
                let top = c.get(top);
                let total = c.sum(t, n, |c, i| {
                    let at = c.place(&[row, i], &[0, n]);
                    let x = c.load(0, at);
                    term(c, x, top)
                });
                let at = c.place(&[row, column], &[0, n]);
                let x = c.load(0, at);
                let own = term(c, x, top);
                c.binary(Binary::Div, own, total)
            }))
        }
        other => Err(Reason::attribute(
            "post_transform",
            format!("is `{other}`; NONE, LOGISTIC, SOFTMAX and SOFTMAX_ZERO are supported"),
        )),
    }
}

/// A constant vector of anything.
fn list(cx: &mut Lowering<'_>, values: HostTensor) -> Access {
    let view = View::dense(values.shape());
    Access::new(cx.add_const("list".into(), values), view)
}

/// The list in one of some attributes, the first that is given and not empty.
fn given<'m>(cx: &impl Ask<'m>, names: &[&str]) -> Res<Option<HostTensor>> {
    for name in names {
        let t = match cx.attribute(name) {
            None => continue,
            Some(Attribute::Ints(v)) => HostTensor::from_i64(&[v.len()], v),
            Some(Attribute::Floats(v)) => HostTensor::from_f32(&[v.len()], v),
            Some(Attribute::Texts(v)) => super::source::texts(&[v.len()], v)?,
            Some(Attribute::Tensor(t)) => t.reshaped(&[t.len()])?,
            Some(_) => return Err(Reason::attribute(name, "is not a list")),
        };
        if !t.is_empty() {
            return Ok(Some(t));
        }
    }
    Ok(None)
}

/// Labels of a classifier.
pub(super) fn labels<'m>(cx: &impl Ask<'m>, ints: &str) -> Res<HostTensor> {
    given(cx, &[ints, "classlabels_strings"])?.ok_or_else(|| Reason::attribute(ints, "is missing"))
}

/// Two lists, one behind the other, of one type.
pub(super) fn joined(a: &HostTensor, b: &HostTensor) -> Res<HostTensor> {
    if a.dtype() != b.dtype() {
        return Err(Reason::Type(format!("its lists have types {} and {}", a.dtype(), b.dtype())));
    }
    Ok(HostTensor::new(a.dtype(), &[a.len() + b.len()], [&a.bytes()[..], &b.bytes()[..]].concat())?)
}

/// Sets the labels of the largest scores and the scores.
pub(super) fn classify(cx: &mut Lowering<'_>, scores: Lazy, labels: HostTensor) -> Res<()> {
    let shape = scores.shape.clone();
    let (rows, n) = (shape[0], shape[1]);
    let t = scores.dtype();
    let stored = cx.stored(scores);
    if cx.wants(0) {
        let data = cx.operand_of(stored.clone(), View::is_dense);
        let table = list(cx, labels);
        let y = cx.program(vec![data, table], &[rows], |c| {
            let row = c.coord(0);
            let (low, zero) = (c.constant(t, f64::NEG_INFINITY), c.int(0));
            let (best, place) = (c.var(low), c.var(zero));
            c.repeat(n, |c, i| {
                let at = c.place(&[row, i], &[0, n]);
                let x = c.load(0, at);
                let (old, old_place) = (c.get(best), c.get(place));
                let better = c.lt(old, x);
                let new = c.select(better, x, old);
                c.set(best, new);
                let i = c.select(better, i, old_place);
                c.set(place, i);
            });
            let place = c.get(place);
            c.load(1, place)
        });
        cx.set(0, y);
    }
    cx.set(1, stored);
    Ok(())
}

/// `x * coefficients + intercepts` for rows of features.
fn linear(cx: &mut Lowering<'_>) -> Res<Lazy> {
    let (x, rows, columns) = features(cx)?;
    let t = x.dtype();
    let coefficients = floats(cx, "coefficients")?;
    let intercepts = floats(cx, "intercepts")?;
    let n = coefficients.len() / columns;
    if n * columns != coefficients.len() || n == 0 || !(intercepts.is_empty() || intercepts.len() == n) {
        return Err(Reason::attribute(
            "coefficients",
            format!("has {} entries for {columns} features and {} intercepts", coefficients.len(), intercepts.len()),
        ));
    }
    let id = cx.add_const("coefficients".into(), HostTensor::from_f64(t, &[n, columns], &coefficients));
    let weights = Access::new(id, View::dense(&[n, columns]).permuted(&[1, 0]));
    let left = cx.operand_of(x, super::matmul::good);
    let y = super::matmul::product(cx, left, weights, t)?;
    if intercepts.is_empty() {
        return Ok(y);
    }
    let bias = vector(cx, t, &intercepts);
    cx.combine(vec![y, read(bias, t, &[1, n])], &[rows, n], |e, v| e.binary(Binary::Add, v[0], v[1]))
}

pub(super) fn linear_regressor(cx: &mut Lowering<'_>) -> Res<()> {
    let how = cx.text("post_transform", "NONE")?;
    let y = linear(cx)?;
    let y = post(cx, y, how)?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn linear_classifier(cx: &mut Lowering<'_>) -> Res<()> {
    let how = cx.text("post_transform", "NONE")?;
    let labels = labels(cx, "classlabels_ints")?;
    let mut y = linear(cx)?;
    let (rows, n) = (y.shape[0], y.shape[1]);
    if n == 1 && labels.len() == 2 {
        y = both_signs(cx, y, rows)?;
    } else if n != labels.len() {
        return Err(Reason::attribute("classlabels_ints", format!("has {} labels for {n} scores", labels.len())));
    }
    let y = post(cx, y, how)?;
    classify(cx, y, labels)
}

/// One score as two: its opposite and itself.
pub(super) fn both_signs(cx: &mut Lowering<'_>, score: Lazy, rows: usize) -> Res<Lazy> {
    let t = score.dtype();
    let signs = vector(cx, t, &[-1.0, 1.0]);
    let score = cx.stored(score);
    cx.combine(vec![score, read(signs, t, &[1, 2])], &[rows, 2], |e, v| e.binary(Binary::Mul, v[0], v[1]))
}

pub(super) fn scaler(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let shape = cx.shape(x).to_vec();
    let (offset, scale) = (floats(cx, "offset")?, floats(cx, "scale")?);
    let last = shape.last().copied().unwrap_or(1);
    if [&offset, &scale].iter().any(|l| l.len() != 1 && l.len() != last) {
        return Err(Reason::attribute("scale", format!("or offset do not fit data of shape {shape:?}")));
    }
    let terms = [&offset, &scale].map(|l| {
        let n = l.len();
        read(vector(cx, DType::F32, l), DType::F32, &[n])
    });
    let [offset, scale] = terms;
    let lazy = cx.without_base(x);
    let y = cx.combine(vec![lazy, offset, scale], &shape, |e, v| {
        let x = e.cast(v[0], DType::F32);
        let x = e.binary(Binary::Sub, x, v[1]);
        e.binary(Binary::Mul, x, v[2])
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn normalizer(cx: &mut Lowering<'_>) -> Res<()> {
    let how = cx.text("norm", "MAX")?;
    let given = cx.input(0)?;
    let shape = cx.shape(given).to_vec();
    let (x, rows, n) = features(cx)?;
    let t = x.dtype();
    if !["MAX", "L1", "L2"].contains(&how) {
        return Err(Reason::attribute("norm", format!("is `{how}`; MAX, L1 and L2 are supported")));
    }
    let data = cx.stored_access(x);
    let y = cx.program(vec![data], &[rows, n], |c| {
        let (row, column) = (c.coord(0), c.coord(1));
        let zero = c.constant(t, 0.0);
        let start = if how == "MAX" { c.constant(t, f64::NEG_INFINITY) } else { zero };
        let norm = c.var(start);
        c.repeat(n, |c, i| {
            let at = c.place(&[row, i], &[0, n]);
            let x = c.load(0, at);
            let old = c.get(norm);
            let new = match how {
                "MAX" => c.binary(Binary::Max, old, x),
                "L1" => {
                    let x = c.unary(Unary::Abs, x);
                    c.add(old, x)
                }
                _ => {
                    let x = c.mul(x, x);
                    c.add(old, x)
                }
            };
            c.set(norm, new);
        });
        let mut total = c.get(norm);
        if how == "L2" {
            total = c.unary(Unary::Sqrt, total);
        }
        let at = c.place(&[row, column], &[0, n]);
        let x = c.load(0, at);
        let none = c.eq(total, zero);
        let y = c.binary(Binary::Div, x, total);
        let y = c.select(none, x, y);
        c.cast(y, DType::F32)
    });
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

pub(super) fn imputer(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, t) = (cx.shape(x).to_vec(), cx.dtype(x));
    let (values, replaced) = if t.is_float() {
        (floats(cx, "imputed_value_floats")?, cx.float("replaced_value_float", 0.0)?)
    } else {
        let list = cx.ints("imputed_value_int64s")?.unwrap_or_default();
        (list.into_iter().map(|v| v as f64).collect(), cx.int("replaced_value_int64", 0)? as f64)
    };
    let n = values.len();
    if n == 0 || (n != 1 && Some(&n) != shape.last()) {
        return Err(Reason::attribute("imputed_value_floats", format!("has {n} entries for data of shape {shape:?}")));
    }
    let table = vector(cx, t, &values);
    let lazy = cx.without_base(x);
    let y = cx.combine(vec![lazy, read(table, t, &[n])], &shape, |e, v| {
        let missing = if replaced.is_nan() {
            e.unary(Unary::IsNan, v[0])
        } else {
            let r = e.constant(t, replaced);
            e.binary(Binary::Eq, v[0], r)
        };
        e.select(missing, v[1], v[0])
    })?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn binarizer(cx: &mut Lowering<'_>) -> Res<()> {
    let threshold = cx.float("threshold", 0.0)?;
    super::elementwise::unary_with(cx, |e, x| {
        let t = e.type_of(x);
        let limit = e.constant(t, threshold);
        let above = e.binary(Binary::Lt, limit, x);
        e.cast(above, t)
    })
}

/// Columns of the data by index.
pub(super) fn array_features(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, index) = (cx.input(0)?, cx.input(1)?);
    super::gather::check_index(cx, index)?;
    let shape = cx.shape(x).to_vec();
    let n = shape.last().copied().unwrap_or(0);
    let rows = shape[..shape.len().saturating_sub(1)].iter().product::<usize>();
    let count = cx.shape(index).iter().product::<usize>();
    let mut out = shape.clone();
    match out.len() {
        0 => return Err(Reason::Shape("the data is a scalar".into())),
        1 => out = vec![1, count],
        d => out[d - 1] = count,
    }
    if n * rows * count == 0 {
        return Err(Reason::Shape(format!("{count} columns of data of shape {shape:?}")));
    }
    let operands = [x, index].map(|v: ValueId| cx.operand_if(v, View::is_dense)).to_vec();
    let y = cx.program(operands, &[rows, count], |c| {
        let (row, j) = (c.coord(0), c.coord(1));
        let i = c.load_int(1, j);
        let i = c.clamp(i, 0, n as i64);
        let at = c.place(&[row, i], &[rows, n]);
        c.load(0, at)
    });
    cx.set(0, y.reshaped(&out));
    Ok(())
}

pub(super) fn feature_vectorizer(cx: &mut Lowering<'_>) -> Res<()> {
    let mut parts = Vec::new();
    for v in cx.inputs() {
        let shape = cx.shape(v).to_vec();
        let rows = if shape.len() > 1 { shape[0] } else { 1 };
        let n = shape.iter().product::<usize>() / rows.max(1);
        let lazy = cx.without_base(v).reshaped(&[rows, n]);
        parts.push(cx.combine(vec![lazy], &[rows, n], |e, v| e.cast(v[0], DType::F32))?);
    }
    if parts.is_empty() || parts.iter().any(|p| p.len() == 0) {
        return Err(Reason::Shape("an input has no elements".into()));
    }
    let y = super::layout::join(cx, parts, 1)?;
    cx.set(0, y);
    Ok(())
}

/// The table of scores as it is.
pub(super) fn zip_map(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    cx.pass(0, x);
    Ok(())
}

/// A column for each category.
pub(super) fn one_hot_encoder(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let from = cx.dtype(x);
    let names: [&str; 1] = if from == DType::Str { ["cats_strings"] } else { ["cats_int64s"] };
    let categories = given(cx, &names)?.ok_or_else(|| Reason::attribute(names[0], "is missing"))?;
    let (n, t) = (categories.len(), categories.dtype());
    let table = list(cx, categories);
    let mut shape = cx.shape(x).to_vec();
    shape.push(1);
    let lazy = cx.without_base(x).reshaped(&shape);
    if let Some(last) = shape.last_mut() {
        *last = n;
    }
    super::conv::check_size(&shape)?;
    let y = cx.combine(vec![lazy, read(table, t, &[n])], &shape, |e, v| {
        let x = e.cast(v[0], t);
        let hit = e.binary(Binary::Eq, x, v[1]);
        e.cast(hit, DType::F32)
    })?;
    cx.set(0, y);
    Ok(())
}

/// A value for each element by a table of keys and values; `default` for what is no key. Lists are not empty.
fn look_up(cx: &mut Lowering<'_>, keys: HostTensor, values: HostTensor, default: &HostTensor) -> Res<()> {
    let x = cx.input(0)?;
    let (shape, from) = (cx.shape(x).to_vec(), cx.dtype(x));
    let (n, total) = (keys.len(), shape.iter().product::<usize>());
    if values.len() != n || total == 0 {
        return Err(Reason::Shape(format!("{n} keys and {} values for data of shape {shape:?}", values.len())));
    }
    let keys = match (keys.dtype() == from, keys.dtype() == DType::Str || from == DType::Str) {
        (true, _) => keys,
        (false, false) => HostTensor::from_f64(from, &[n], &keys.to_f64()),
        (false, true) => return Err(Reason::Type(format!("data of type {from} for keys of {}", keys.dtype()))),
    };
    // The default stands behind the values.
    let values = joined(&values, default)?;
    let operands = vec![cx.operand_if(x, View::is_dense), list(cx, keys), list(cx, values)];
    let y = cx.program(operands, &[total], |c| {
        let i = c.coord(0);
        let x = c.load(0, i);
        let last = c.int(n as i64);
        let found = c.var(last);
        c.repeat(n, |c, k| {
            let key = c.load(1, k);
            let mut hit = c.eq(x, key);
            if from.is_float() {
                // NaN is a key like any other.
                let (a, b) = (c.unary(Unary::IsNan, x), c.unary(Unary::IsNan, key));
                let both = c.and(a, b);
                hit = c.binary(Binary::Or, hit, both);
            }
            let old = c.get(found);
            let new = c.select(hit, k, old);
            c.set(found, new);
        });
        let place = c.get(found);
        c.load(2, place)
    });
    cx.set(0, y.reshaped(&shape));
    Ok(())
}

/// What an encoder gives for an unknown key, by the type of its values.
fn default_of(cx: &Lowering<'_>, t: DType, text: &str) -> Res<HostTensor> {
    Ok(match (cx.attribute("default_tensor"), t) {
        (Some(Attribute::Tensor(t)), _) if t.len() == 1 => t.reshaped(&[1])?,
        (_, DType::Str) => super::source::texts(&[1], &[cx.text("default_string", text)?])?,
        (_, t) if t.is_float() => HostTensor::from_f64(t, &[1], &[cx.float("default_float", 0.0)?]),
        (_, t) => HostTensor::from_ints(t, &[1], &[cx.int("default_int64", -1)?]),
    })
}

/// Keys and values of a LabelEncoder.
fn pairs<'m>(cx: &impl Ask<'m>) -> Res<(HostTensor, HostTensor)> {
    let side = |side: &str| {
        let names = ["tensor", "strings", "int64s", "floats"].map(|end| format!("{side}_{end}"));
        given(cx, &names.each_ref().map(String::as_str))
    };
    let missing = || Reason::attribute("keys_tensor", "and the other keys, or values, are missing");
    Ok(match given(cx, &["classes_strings"])? {
        // The first version: strings stand for their numbers, and the other way round.
        Some(classes) => {
            let numbers: Vec<i64> = (0..classes.len() as i64).collect();
            let numbers = HostTensor::from_i64(&[classes.len()], &numbers);
            if cx.dtype(cx.input(0)?) == DType::Str { (classes, numbers) } else { (numbers, classes) }
        }
        None => (side("keys")?.ok_or_else(missing)?, side("values")?.ok_or_else(missing)?),
    })
}

/// One value for another, by a table.
pub(super) fn label_encoder(cx: &mut Lowering<'_>) -> Res<()> {
    let (keys, values) = pairs(cx)?;
    let default = default_of(cx, values.dtype(), "_Unused")?;
    look_up(cx, keys, values, &default)
}

/// Keys and values of a CategoryMapper.
fn categories<'m>(cx: &impl Ask<'m>) -> Res<(HostTensor, HostTensor)> {
    let side = |name: &str| given(cx, &[name])?.ok_or_else(|| Reason::attribute(name, "is missing"));
    let (texts, numbers) = (side("cats_strings")?, side("cats_int64s")?);
    Ok(if cx.dtype(cx.input(0)?) == DType::Str { (texts, numbers) } else { (numbers, texts) })
}

/// Strings for their numbers, or numbers for their strings.
pub(super) fn category_mapper(cx: &mut Lowering<'_>) -> Res<()> {
    let (keys, values) = categories(cx)?;
    let default = default_of(cx, values.dtype(), "_Unused")?;
    look_up(cx, keys, values, &default)
}

// ---- rules; what does not fit is left to lowering, which says why ----

/// Number of rows of input 0, which is one row when it has one dimension, and the type that is computed with.
pub(super) fn rows_of(cx: &Inference<'_>) -> Res<(Dim, DType)> {
    let x = cx.input(0)?;
    let t = if cx.dtype(x) == DType::F64 { DType::F64 } else { DType::F32 };
    match cx.dims(x) {
        [_] => Ok((Dim::Known(1), t)),
        [rows, _] => Ok((rows.clone(), t)),
        dims => Err(Reason::Shape(format!("features of shape {}; rows of features are needed", described(dims)))),
    }
}

/// A score for each of some targets.
pub(super) fn of_scores(cx: &mut Inference<'_>, targets: usize) -> Res<()> {
    let (rows, t) = rows_of(cx)?;
    cx.give(0, t, vec![rows, targets.into()])
}

/// The most likely of these labels for each row, and a score for each of `classes`.
pub(super) fn of_classes(cx: &mut Inference<'_>, labels: &HostTensor, classes: usize) -> Res<()> {
    let (rows, t) = rows_of(cx)?;
    cx.give(0, labels.dtype(), vec![rows.clone()])?;
    cx.give(1, t, vec![rows, classes.into()])
}

pub(super) fn of_linear_regressor(cx: &mut Inference<'_>) -> Res<()> {
    let columns = cx.dims(cx.input(0)?).last().and_then(Dim::known);
    match columns.and_then(|c| floats(cx, "coefficients").map(|l| l.len().checked_div(c)).transpose()) {
        Some(targets) => of_scores(cx, targets?),
        None => by_lowering(cx),
    }
}

pub(super) fn of_linear_classifier(cx: &mut Inference<'_>) -> Res<()> {
    let labels = labels(cx, "classlabels_ints")?;
    of_classes(cx, &labels, labels.len())
}

/// Of the data's shape, in f32.
pub(super) fn of_features(cx: &mut Inference<'_>) -> Res<()> {
    cx.give(0, DType::F32, cx.dims(cx.input(0)?).to_vec())
}

/// Of the data's shape, in the type of the values that a table gives.
pub(super) fn of_label_encoder(cx: &mut Inference<'_>) -> Res<()> {
    let (_, values) = pairs(cx)?;
    cx.give(0, values.dtype(), cx.dims(cx.input(0)?).to_vec())
}

pub(super) fn of_category_mapper(cx: &mut Inference<'_>) -> Res<()> {
    let (_, values) = categories(cx)?;
    cx.give(0, values.dtype(), cx.dims(cx.input(0)?).to_vec())
}

pub(super) fn of_array_features(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let count = product(cx.dims(cx.input(1)?));
    let dims = match cx.dims(x) {
        [] => return by_lowering(cx),
        [_] => vec![Dim::Known(1), count],
        [outer @ .., _] => [outer, &[count]].concat(),
    };
    cx.give(0, cx.dtype(x), dims)
}

pub(super) fn of_feature_vectorizer(cx: &mut Inference<'_>) -> Res<()> {
    let (mut rows, mut columns) = (Dim::Known(1), Dim::Known(0));
    for v in cx.inputs() {
        match cx.dims(v) {
            [first, rest @ ..] if !rest.is_empty() => {
                rows = first.clone();
                columns = &columns + &product(rest);
            }
            dims => columns = &columns + &product(dims),
        }
    }
    cx.give(0, DType::F32, vec![rows, columns])
}

pub(super) fn of_one_hot_encoder(cx: &mut Inference<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let names = [if cx.dtype(x) == DType::Str { "cats_strings" } else { "cats_int64s" }];
    let categories = given(cx, &names)?.ok_or_else(|| Reason::attribute(names[0], "is missing"))?;
    cx.give(0, DType::F32, [cx.dims(x), &[categories.len().into()]].concat())
}
