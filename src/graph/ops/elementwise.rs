//! Operators that are one scalar operation per element, with broadcasting.

use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, aligned, broadcast_dims, known, product};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::infer::Inference;
use crate::graph::lazy::broadcast_shape;
use crate::graph::lower::Lowering;
use crate::graph::resolve::ValueId;
use crate::onnx::Attribute;
use crate::tensor::small::SmallFloat;
use crate::tensor::{DType, HostTensor};

type Cx<'a, 'm> = &'a mut Lowering<'m>;

/// One input, one expression of it.
pub(super) fn unary_with(cx: Cx<'_, '_>, f: impl FnOnce(&mut Expr, Val) -> Val) -> Res<()> {
    let x = cx.input(0)?;
    let y = cx.elementwise(&[x], |e, v| f(e, v[0]))?;
    cx.set(0, y);
    Ok(())
}

/// Like [`unary_with`], for operators that are defined for floats only.
pub(super) fn float_with(cx: Cx<'_, '_>, f: impl FnOnce(&mut Expr, Val) -> Val) -> Res<()> {
    let t = cx.dtype(cx.input(0)?);
    if !t.is_float() {
        return Err(Reason::Type(format!("input 0 has type {t}; only floats are supported")));
    }
    unary_with(cx, f)
}

fn unary(cx: Cx<'_, '_>, op: Unary) -> Res<()> {
    unary_with(cx, |e, x| e.unary(op, x))
}

fn float_unary(cx: Cx<'_, '_>, op: Unary) -> Res<()> {
    float_with(cx, |e, x| e.unary(op, x))
}

macro_rules! unaries {
    // `unary: abs = Abs, ...;` expands to `pub(super) fn abs(cx) -> Res<()> { unary(cx, Unary::Abs) }` ...
    ($($how:ident: $($name:ident = $op:ident),*;)*) => {
        $($(pub(super) fn $name(cx: &mut Lowering<'_>) -> Res<()> {
            $how(cx, Unary::$op)
        })*)*
    };
}

unaries! {
    unary: abs = Abs, neg = Neg, sign = Sign, not = Not, floor = Floor, ceil = Ceil, round = Round;
    float_unary: sqrt = Sqrt, exp = Exp, log = Log, tanh = Tanh, sigmoid = Sigmoid, reciprocal = Recip, erf = Erf,
        sin = Sin, cos = Cos, tan = Tan, asin = Asin, acos = Acos, atan = Atan, sinh = Sinh, cosh = Cosh,
        asinh = Asinh, acosh = Acosh, atanh = Atanh, is_nan = IsNan;
}

pub(super) fn is_inf(cx: &mut Lowering<'_>) -> Res<()> {
    let (neg, pos) = (cx.int("detect_negative", 1)? != 0, cx.int("detect_positive", 1)? != 0);
    float_with(cx, |e, x| {
        let t = e.type_of(x);
        let inf = e.unary(Unary::IsInf, x);
        let zero = e.constant(t, 0.0);
        match (neg, pos) {
            (true, true) => inf,
            (false, false) => e.constant(DType::Bool, 0.0),
            (true, false) => {
                let side = e.binary(Binary::Lt, x, zero);
                e.binary(Binary::And, inf, side)
            }
            (false, true) => {
                let side = e.binary(Binary::Lt, zero, x);
                e.binary(Binary::And, inf, side)
            }
        }
    })
}

/// Applies `f` to two inputs of one type. Before opset 7 broadcasting was asked for by attributes, which could align the
/// second input to an inner `axis` of the first.
fn binary_with(cx: Cx<'_, '_>, f: impl FnOnce(&mut Expr, Val, Val) -> Val) -> Res<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (ta, tb) = (cx.dtype(a), cx.dtype(b));
    if ta != tb {
        return Err(Reason::Type(format!("its inputs have types {ta} and {tb}; they must be equal")));
    }
    let build = |e: &mut Expr, v: &[Val]| f(e, v[0], v[1]);
    let y = match cx.attribute("axis") {
        Some(Attribute::Int(axis)) if cx.opset() < 7 && cx.int("broadcast", 0)? != 0 => {
            let (rank, own) = (cx.rank(a), cx.rank(b));
            let axis = cx.axis(*axis, rank)?;
            let mut shape = cx.shape(b).to_vec();
            shape.resize(rank.saturating_sub(axis).max(own), 1);
            let out = broadcast_shape([cx.shape(a), &shape[..]].into_iter())?;
            let b = cx.without_base(b).reshaped(&shape);
            let a = cx.lazy(a);
            cx.combine(vec![a, b], &out, build)?
        }
        _ => cx.elementwise(&[a, b], build)?,
    };
    cx.set(0, y);
    Ok(())
}

fn binary(cx: Cx<'_, '_>, op: Binary) -> Res<()> {
    binary_with(cx, |e, a, b| e.binary(op, a, b))
}

macro_rules! binaries {
    // `add = Add, ...` expands to `pub(super) fn add(cx) -> Res<()> { binary(cx, Binary::Add) }` ...
    ($($name:ident = $op:ident),*) => {
        $(pub(super) fn $name(cx: &mut Lowering<'_>) -> Res<()> {
            binary(cx, Binary::$op)
        })*
    };
}

binaries! {
    add = Add, sub = Sub, mul = Mul, div = Div, and = And, or = Or, xor = Xor, equal = Eq, less = Lt, less_or_equal = Le
}

pub(super) fn greater(cx: &mut Lowering<'_>) -> Res<()> {
    binary_with(cx, |e, a, b| e.binary(Binary::Lt, b, a))
}

pub(super) fn greater_or_equal(cx: &mut Lowering<'_>) -> Res<()> {
    binary_with(cx, |e, a, b| e.binary(Binary::Le, b, a))
}

pub(super) fn modulo(cx: &mut Lowering<'_>) -> Res<()> {
    let c_style = cx.int("fmod", 0)? != 0;
    binary(cx, if c_style { Binary::Rem } else { Binary::Mod })
}

pub(super) fn bit_shift(cx: &mut Lowering<'_>) -> Res<()> {
    match cx.text("direction", "")? {
        "LEFT" => binary(cx, Binary::Shl),
        "RIGHT" => binary(cx, Binary::Shr),
        other => Err(Reason::attribute("direction", format!("is `{other}`; LEFT and RIGHT are supported"))),
    }
}

/// `x^n` of a whole number above 0 by products of squares. Each rounding is half an ULP at most, and a square has its root's twice: within 4 ULP up to
/// `x^5`.
fn whole_power(e: &mut Expr, x: Val, n: u32) -> Val {
    match n {
        1 => x,
        n => {
            let root = whole_power(e, x, n / 2);
            let square = e.binary(Binary::Mul, root, root);
            if n % 2 == 0 { square } else { e.binary(Binary::Mul, square, x) }
        }
    }
}

pub(super) fn pow(cx: &mut Lowering<'_>) -> Res<()> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (ta, tb) = (cx.dtype(a), cx.dtype(b));
    let exponent = cx.constant(b).and_then(|t| t.scalar_f64());
    // Of 16 bits roundings are those of f32. That of a reciprocal counts as often as it is a factor.
    let (least, most) = match ta {
        t if t.is_half() => (-4.0, 8.0),
        t if t.is_float() => (-2.0, 5.0),
        _ => (f64::INFINITY, 3.0),
    };
    let build = |e: &mut Expr, x: Val, y: Val| {
        match exponent {
            Some(n) if n.fract() == 0.0 && (2.0..=most).contains(&n) => return whole_power(e, x, n as u32),
            Some(n) if n.fract() == 0.0 && (least..=-2.0).contains(&n) => {
                let inverse = e.unary(Unary::Recip, x);
                return whole_power(e, inverse, -n as u32);
            }
            Some(0.5) if ta.is_float() => return e.unary(Unary::Sqrt, x),
            Some(-1.0) if ta.is_float() => return e.unary(Unary::Recip, x),
            _ => {}
        }
        // An integer raised to a float is computed in the float's type.
        let common = if ta.is_float() { ta } else { tb };
        let (x, y) = (e.cast(x, common), e.cast(y, common));
        let r = e.binary(Binary::Pow, x, y);
        e.cast(r, ta)
    };
    if ta == tb {
        return binary_with(cx, build);
    }
    let y = cx.elementwise(&[a, b], |e, v| build(e, v[0], v[1]))?;
    cx.set(0, y);
    Ok(())
}

/// Folds any number of inputs of one type.
fn variadic(cx: Cx<'_, '_>, op: Binary, finish: impl FnOnce(&mut Expr, Val, usize) -> Val) -> Res<()> {
    let ids: Vec<ValueId> = cx.inputs();
    let first = *ids.first().ok_or(Reason::Value("it has no inputs".into()))?;
    if let Some(&other) = ids.iter().find(|&&v| cx.dtype(v) != cx.dtype(first)) {
        return Err(Reason::Type(format!(
            "its inputs have types {} and {}; they must be equal",
            cx.dtype(first),
            cx.dtype(other)
        )));
    }
    // Long lists are combined in groups, so that no kernel gets too many operands.
    let n = ids.len();
    let shape = broadcast_shape(ids.iter().map(|&v| cx.shape(v)))?;
    let mut acc = cx.elementwise(&ids[..1], |_, v| v[0])?;
    for (i, group) in ids[1..].chunks(8).enumerate() {
        if i > 0 {
            acc = cx.stored(acc);
        }
        for &v in group {
            let lazy = if acc.base.is_some() { cx.without_base(v) } else { cx.lazy(v) };
            let partial = broadcast_shape([&acc.shape[..], &lazy.shape[..]].into_iter())?;
            acc = cx.combine(vec![acc, lazy], &partial, |e, v| e.binary(op, v[0], v[1]))?;
        }
    }
    let y = cx.combine(vec![acc], &shape, |e, v| finish(e, v[0], n))?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn min(cx: &mut Lowering<'_>) -> Res<()> {
    variadic(cx, Binary::Min, |_, v, _| v)
}

pub(super) fn max(cx: &mut Lowering<'_>) -> Res<()> {
    variadic(cx, Binary::Max, |_, v, _| v)
}

pub(super) fn sum(cx: &mut Lowering<'_>) -> Res<()> {
    variadic(cx, Binary::Add, |_, v, _| v)
}

pub(super) fn mean(cx: &mut Lowering<'_>) -> Res<()> {
    variadic(cx, Binary::Add, |e, v, n| {
        let n = e.constant(e.type_of(v), n as f64);
        e.binary(Binary::Div, v, n)
    })
}

pub(super) fn where_(cx: &mut Lowering<'_>) -> Res<()> {
    let ids = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    let t = ids.map(|v| cx.dtype(v));
    if t[0] != DType::Bool || t[1] != t[2] {
        return Err(Reason::Type(format!(
            "its inputs have types {}, {} and {}; bool and twice the same are needed",
            t[0], t[1], t[2]
        )));
    }
    let y = cx.elementwise(&ids, |e, v| e.select(v[0], v[1], v[2]))?;
    cx.set(0, y);
    Ok(())
}

fn cast_to(cx: Cx<'_, '_>, to: DType) -> Res<()> {
    let x = cx.input(0)?;
    if cx.dtype(x) == to {
        cx.pass(0, x);
        return Ok(());
    }
    let from = cx.dtype(x);
    // Integers that a narrow float does not hold are floats first, which are rounded like any others.
    let rounds = !from.is_float() && (to.is_small_float() || to.is_half() && from.bits() > 8);
    let saturate = cx.int("saturate", 1)? != 0;
    let mode = cx.text("round_mode", "up")?.to_string();
    unary_with(cx, |e, x| match to {
        DType::F8E8M0 => to_power(e, x, &mode),
        _ if to.is_small_float() && saturate => limited(e, x, to),
        _ => {
            let x = if rounds { e.cast(x, DType::F32) } else { x };
            e.cast(x, to)
        }
    })
}

/// A float as a small one; what is too large becomes the largest.
pub(super) fn limited(e: &mut Expr, x: Val, to: DType) -> Val {
    let from = e.type_of(x);
    let largest = SmallFloat::of(to).map_or(f64::INFINITY, |f| f.decode(f.largest()));
    let x = if from.is_float() { x } else { e.cast(x, DType::F32) };
    // What integers of a type are at most.
    let most = match from {
        DType::Bool => 1.0,
        _ if from.is_int() => 2f64.powi(from.bits() as i32 - i32::from(from.is_signed_int())),
        _ => f64::INFINITY,
    };
    if most <= largest {
        return e.cast(x, to);
    }
    let t = e.type_of(x);
    let (low, high) = (e.constant(t, -largest), e.constant(t, largest));
    let x = e.binary(Binary::Max, x, low);
    let x = e.binary(Binary::Min, x, high);
    e.cast(x, to)
}

/// A float as a power of two, by rounding its magnitude.
fn to_power(e: &mut Expr, x: Val, mode: &str) -> Val {
    let x = e.cast(x, DType::F32);
    let mut bits = e.bits(x, DType::U32);
    if mode != "nearest" {
        let sign = e.literal(DType::U32, Scalar::Int(0x7fff_ffff));
        let own = e.binary(Binary::And, bits, sign);
        let mut up = own;
        if mode == "up" {
            let rest = e.literal(DType::U32, Scalar::Int(0x7f_ffff));
            up = e.binary(Binary::Add, own, rest);
        }
        let exponent = e.literal(DType::U32, Scalar::Int(0x7f80_0000));
        let cut = e.binary(Binary::And, up, exponent);
        // Infinities and NaN stay what they are.
        let finite = e.binary(Binary::Lt, own, exponent);
        bits = e.select(finite, cut, own);
    }
    let x = e.bits(bits, DType::F32);
    e.cast(x, DType::F8E8M0)
}

/// What a value is converted to.
fn target<'m>(cx: &impl Ask<'m>) -> Res<DType> {
    match cx.attribute("to") {
        // The first version gave the type's name.
        Some(Attribute::Text(name)) => match name.as_str() {
            "FLOAT" => Ok(DType::F32),
            "DOUBLE" => Ok(DType::F64),
            "INT32" => Ok(DType::I32),
            "INT64" => Ok(DType::I64),
            "BOOL" => Ok(DType::Bool),
            other => Err(Reason::attribute("to", format!("is `{other}`, which is not supported"))),
        },
        Some(Attribute::Int(code)) => i32::try_from(*code)
            .ok()
            .and_then(DType::from_onnx)
            .ok_or_else(|| Reason::attribute("to", format!("is type {code}, which is not supported"))),
        _ => Err(Reason::attribute("to", "is missing")),
    }
}

pub(super) fn cast(cx: &mut Lowering<'_>) -> Res<()> {
    let to = target(cx)?;
    cast_to(cx, to)
}

pub(super) fn cast_like(cx: &mut Lowering<'_>) -> Res<()> {
    let to = cx.dtype(cx.input(1)?);
    cast_to(cx, to)
}

/// The same bits as another type of the same size.
pub(super) fn bit_cast(cx: &mut Lowering<'_>) -> Res<()> {
    let (x, to) = (cx.input(0)?, target(cx)?);
    let from = cx.dtype(x);
    if from.size() != to.size() {
        return Err(Reason::Type(format!("takes the bits of {from} for {to}, which has another size")));
    }
    let through = |t: DType| if t == DType::Bool { DType::U8 } else { t };
    unary_with(cx, |e, x| {
        let x = e.cast(x, through(from));
        let y = if through(from) == through(to) { x } else { e.bits(x, through(to)) };
        e.cast(y, to)
    })
}

// ---- rules ----

/// The dimensions that all inputs broadcast to.
fn broadcast(cx: &mut Inference<'_>) -> Res<Vec<Dim>> {
    let ids = cx.inputs();
    if let ([a, b], Some(_)) = (&ids[..], cx.attribute("axis"))
        && cx.opset() < 7
        && cx.int("broadcast", 0)? != 0
    {
        // The second input is aligned to an inner axis of the first.
        let same = cx.dims(*b) == cx.dims(*a) || cx.rank(*b) <= cx.rank(*a);
        return if same { Ok(cx.dims(*a).to_vec()) } else { broadcast_dims(ids.iter().map(|v| cx.dims(*v))) };
    }
    let dims = broadcast_dims(ids.iter().map(|v| cx.dims(*v)))?;
    cx.tie(aligned(ids.iter().map(|v| cx.dims(*v))));
    Ok(dims)
}

/// An element for each place, of a type.
fn of_type(cx: &mut Inference<'_>, dtype: DType) -> Res<()> {
    let dims = broadcast(cx)?;
    cx.give(0, dtype, dims)
}

/// Results have the type of input 0.
pub(super) fn of_first(cx: &mut Inference<'_>) -> Res<()> {
    let first = *cx.inputs().first().ok_or(Reason::Value("it has no inputs".into()))?;
    of_type(cx, cx.dtype(first))
}

/// Results are true or false.
pub(super) fn of_truth(cx: &mut Inference<'_>) -> Res<()> {
    cx.input(0)?;
    of_type(cx, DType::Bool)
}

/// Which numbers are equal, where sizes do not decide that: none is negative.
pub(super) fn of_equal(cx: &mut Inference<'_>) -> Res<()> {
    of_truth(cx)?;
    let ids = cx.inputs();
    let Some(pairs) = abreast(cx, &ids) else { return Ok(()) };
    let equal = |pair: &Vec<Dim>| match &pair[..] {
        [a, b] if a == b => Some(1),
        [a, b] if a.is_never(b) || b.is_never(a) => Some(0),
        _ => None,
    };
    let found: Option<Vec<i64>> = pairs.iter().map(equal).collect();
    let shape = known(&broadcast(cx)?);
    if let (Some(found), Some(shape)) = (found, shape.filter(|s| s.iter().product::<usize>() == pairs.len())) {
        cx.give_value(0, HostTensor::from_ints(DType::Bool, &shape, &found));
    }
    Ok(())
}

/// One of two, of sizes too.
pub(super) fn of_choice(cx: &mut Inference<'_>) -> Res<()> {
    let [condition, x, y] = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    of_type(cx, cx.dtype(x))?;
    let chosen = cx.constant(condition).filter(|t| t.len() <= MOST_CHOSEN).map(HostTensor::to_i64);
    if let (Some(chosen), Some(pairs)) = (chosen.filter(|c| !c.is_empty()), abreast(cx, &[x, y])) {
        let n = pairs.len().max(chosen.len());
        let places = product(&broadcast(cx)?).known();
        if places == Some(n) && [pairs.len(), chosen.len()].iter().all(|len| [1, n].contains(len)) {
            let at = |i: usize| pairs[i % pairs.len()][usize::from(chosen[i % chosen.len()] == 0)].clone();
            cx.give_numbers(0, (0..n).map(at).collect());
        }
    }
    Ok(())
}

/// Conditions that choose among sizes are no more.
const MOST_CHOSEN: usize = 64;

/// The numbers in values at each of their places, as far as sizes are known, where these are in lists of one length or single.
fn abreast(cx: &Inference<'_>, ids: &[ValueId]) -> Option<Vec<Vec<Dim>>> {
    let lists: Vec<Vec<Dim>> = ids.iter().map(|v| cx.sized_numbers(*v)).collect::<Option<_>>()?;
    let n = lists.iter().map(Vec::len).max()?;
    let fits = n > 0 && lists.iter().all(|l| l.len() == n || l.len() == 1);
    fits.then(|| (0..n).map(|i| lists.iter().map(|l| l[i % l.len()].clone()).collect()).collect())
}

/// Arithmetic, of sizes too.
fn of_arithmetic(cx: &mut Inference<'_>, f: impl Fn(&Dim, &Dim) -> Dim) -> Res<()> {
    of_first(cx)?;
    let ids = cx.inputs();
    let Some(places) = abreast(cx, &ids) else { return Ok(()) };
    let at = |terms: Vec<Dim>| terms.into_iter().reduce(|a, b| f(&a, &b)).unwrap_or(Dim::Known(0));
    cx.give_numbers(0, places.into_iter().map(at).collect());
    Ok(())
}

pub(super) fn of_sum(cx: &mut Inference<'_>) -> Res<()> {
    of_arithmetic(cx, |a, b| a + b)
}

pub(super) fn of_difference(cx: &mut Inference<'_>) -> Res<()> {
    of_arithmetic(cx, |a, b| a - b)
}

pub(super) fn of_product(cx: &mut Inference<'_>) -> Res<()> {
    of_arithmetic(cx, |a, b| a * b)
}

pub(super) fn of_quotient(cx: &mut Inference<'_>) -> Res<()> {
    of_arithmetic(cx, Dim::quotient)
}

pub(super) fn of_min(cx: &mut Inference<'_>) -> Res<()> {
    of_arithmetic(cx, Dim::smaller)
}

pub(super) fn of_max(cx: &mut Inference<'_>) -> Res<()> {
    of_arithmetic(cx, Dim::larger)
}

fn of_conversion(cx: &mut Inference<'_>, to: DType) -> Res<()> {
    let x = cx.input(0)?;
    if to == DType::Str || cx.dtype(x) == DType::Str {
        return super::strings::of_conversion(cx, to);
    }
    cx.give(0, to, cx.dims(x).to_vec())?;
    if let (Some(list), true) = (cx.sized_numbers(x), to.is_int()) {
        cx.give_numbers(0, list);
    }
    Ok(())
}

pub(super) fn of_cast(cx: &mut Inference<'_>) -> Res<()> {
    of_conversion(cx, target(cx)?)
}

pub(super) fn of_cast_like(cx: &mut Inference<'_>) -> Res<()> {
    of_conversion(cx, cx.dtype(cx.input(1)?))
}

pub(super) fn of_bits(cx: &mut Inference<'_>) -> Res<()> {
    let to = target(cx)?;
    cx.give(0, to, cx.dims(cx.input(0)?).to_vec())
}
