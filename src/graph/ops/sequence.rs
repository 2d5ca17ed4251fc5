//! Sequences and optional values. How many elements a sequence has, and whether an optional has a value, is known when a model
//! is compiled; putting a tensor into one and taking it out computes nothing.

use super::control::{Rounds, branch, stacked};
use super::layout::{join, sliced};
use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::infer::{Content, Fact, Inference, by_lowering};
use crate::graph::lower::{Lowering, Value};
use crate::graph::shared::Shared;
use crate::tensor::{DType, HostTensor};

/// The elements of input `i`.
fn list(cx: &mut Lowering<'_>, i: usize) -> Res<Shared<Value>> {
    let v = cx.input(i)?;
    match cx.settled(v) {
        Value::List(list) => Ok(list),
        _ => Err(Reason::Type(format!(
            "input {i} is not a sequence (those that a Loop carries whose rounds are not known before it runs are not supported)"
        ))),
    }
}

/// A place among `n`, which input `i` gives and which may count from the end; `last` when it is not given.
fn place<'m>(cx: &impl Ask<'m>, i: usize, n: usize, last: usize) -> Res<usize> {
    if cx.optional(i).is_none() {
        return Ok(last);
    }
    let given = cx.const_ints(i, "the position")?;
    let [at] = given[..] else { return Err(Reason::Value("the position is not one number".into())) };
    let from_start = if at < 0 { at.saturating_add(n as i64) } else { at };
    let found = usize::try_from(from_start).ok().filter(|p| *p <= last);
    found.ok_or_else(|| Reason::Value(format!("position {at} is outside of a sequence of {n}")))
}

pub(super) fn construct(cx: &mut Lowering<'_>) -> Res<()> {
    let ids = cx.inputs();
    if let Some(other) = ids.iter().find(|v| cx.dtype(**v) != cx.dtype(ids[0])) {
        let (one, other) = (cx.dtype(ids[0]), cx.dtype(*other));
        return Err(Reason::Type(format!("its inputs have types {one} and {other}; they must be equal")));
    }
    let list = ids.into_iter().map(|v| cx.settled(v)).collect();
    cx.give(0, Value::List(list));
    Ok(())
}

pub(super) fn empty(cx: &mut Lowering<'_>) -> Res<()> {
    cx.give(0, Value::List(Shared::from_iter([])));
    Ok(())
}

pub(super) fn insert(cx: &mut Lowering<'_>) -> Res<()> {
    let mut list = list(cx, 0)?;
    let at = place(cx, 2, list.len(), list.len())?;
    let value = cx.settled(cx.input(1)?);
    list.insert(at, value);
    cx.give(0, Value::List(list));
    Ok(())
}

/// A sequence without its last element has none to give.
fn last(elements: usize) -> Res<usize> {
    elements.checked_sub(1).ok_or_else(|| Reason::Value("the sequence has no elements".into()))
}

pub(super) fn erase(cx: &mut Lowering<'_>) -> Res<()> {
    let mut list = list(cx, 0)?;
    let at = place(cx, 1, list.len(), last(list.len())?)?;
    list.remove(at);
    cx.give(0, Value::List(list));
    Ok(())
}

pub(super) fn at(cx: &mut Lowering<'_>) -> Res<()> {
    let list = list(cx, 0)?;
    cx.input(1)?;
    let at = place(cx, 1, list.len(), last(list.len())?)?;
    if let Some(value) = list.get(at).cloned() {
        cx.give(0, value);
    }
    Ok(())
}

pub(super) fn length(cx: &mut Lowering<'_>) -> Res<()> {
    let n = list(cx, 0)?.len() as i64;
    cx.set_const(0, HostTensor::from_i64(&[], &[n]));
    Ok(())
}

/// Parts that a tensor is split into; each is a value of its own.
const MOST_PARTS: usize = 1 << 16;

/// Parts of a tensor along an axis; of one element each, which then lose the axis unless it is kept, when no sizes are given.
pub(super) fn split(cx: &mut Lowering<'_>) -> Res<()> {
    let x = cx.input(0)?;
    let rank = cx.rank(x);
    let axis = cx.axis(cx.int("axis", 0)?, rank)?;
    let total = cx.shape(x)[axis];
    let equal = |each: usize| match total.div_ceil(each) {
        n if n > MOST_PARTS => {
            Err(Reason::Shape(format!("{total} rows make {n} parts of {each}; at most {MOST_PARTS} are supported")))
        }
        n => Ok((0..n).map(|i| each.min(total - i * each)).collect()),
    };
    let sizes: Vec<usize> = match cx.optional(1) {
        None => equal(1)?,
        Some(s) => {
            let given = super::source::to_shape(&cx.const_ints(1, "the split")?)?;
            match given[..] {
                [each] if cx.rank(s) == 0 && each > 0 => equal(each)?,
                _ => given,
            }
        }
    };
    if sizes.iter().try_fold(0usize, |a, &b| a.checked_add(b)) != Some(total) {
        return Err(Reason::Shape(format!("parts {sizes:?} do not make {total}")));
    }
    let keep = cx.optional(1).is_some() || cx.int("keepdims", 1)? != 0;
    let value = cx.settled(x);
    let lazy = cx.as_lazy(&value);
    let plain = cx.plain_of(lazy);
    let (mut parts, mut start) = (Vec::new(), 0);
    for n in sizes {
        let mut part = sliced(cx, &plain, &[(axis, start as i64, 1, n)]);
        if !keep {
            let mut shape = part.shape.clone();
            shape.remove(axis);
            part = part.reshaped(&shape);
        }
        parts.push(Value::Lazy(part));
        start += n;
    }
    cx.give(0, Value::List(parts.into_iter().collect()));
    Ok(())
}

pub(super) fn concat(cx: &mut Lowering<'_>) -> Res<()> {
    let list = list(cx, 0)?;
    last(list.len())?;
    let new = cx.int("new_axis", 0)? != 0;
    let list: Vec<Value> = list.iter().cloned().collect();
    let rank = cx.as_lazy(&list[0]).shape.len() + usize::from(new);
    let axis = match cx.attribute("axis") {
        Some(_) => cx.axis(cx.int("axis", 0)?, rank)?,
        None => return Err(Reason::attribute("axis", "is missing")),
    };
    let y = if new {
        stacked(cx, &list, axis)?
    } else {
        let all: Vec<_> = list.iter().map(|v| cx.as_lazy(v)).collect();
        let some: Vec<_> = all.iter().filter(|l| l.len() > 0).cloned().collect();
        match &some[..] {
            [] => all[0].clone(),
            [only] => only.clone(),
            _ => join(cx, some, axis)?,
        }
    };
    cx.set(0, y);
    Ok(())
}

pub(super) fn optional(cx: &mut Lowering<'_>) -> Res<()> {
    match cx.optional(0) {
        Some(v) => cx.pass(0, v),
        None => cx.give(0, Value::Nothing),
    }
    Ok(())
}

/// True when input 0 is there and no optional without a value.
fn is_there(cx: &mut Lowering<'_>) -> bool {
    match cx.optional(0) {
        Some(v) => !matches!(cx.settled(v), Value::Nothing),
        None => false,
    }
}

pub(super) fn get(cx: &mut Lowering<'_>) -> Res<()> {
    if !is_there(cx) {
        return Err(Reason::Value("the optional has no value".into()));
    }
    let v = cx.input(0)?;
    cx.pass(0, v);
    Ok(())
}

pub(super) fn has(cx: &mut Lowering<'_>) -> Res<()> {
    let there = is_there(cx);
    cx.set_const(0, HostTensor::from_ints(DType::Bool, &[], &[i64::from(there)]));
    Ok(())
}

/// The body's outputs for each element of the first sequence, with what stands beside it in other sequences, and tensors.
pub(super) fn map(cx: &mut Lowering<'_>) -> Res<()> {
    let body = branch(cx, "body")?;
    let count = list(cx, 0)?.len();
    let ids = cx.inputs();
    if body.parameters.len() != ids.len() {
        return Err(Reason::attribute("body", format!("has {} inputs for {}", body.parameters.len(), ids.len())));
    }
    let mut rounds = Rounds::of(cx)?;
    let given: Vec<Value> = ids.into_iter().map(|v| cx.settled(v)).collect();
    let mut made: Vec<Vec<Value>> = vec![Vec::new(); body.outputs.len()];
    for i in 0..count {
        let element = |v: &Value| match v {
            Value::List(list) => list
                .get(i)
                .cloned()
                .ok_or_else(|| Reason::Value(format!("a sequence has {} of {count} elements", list.len()))),
            other => Ok(other.clone()),
        };
        let parameters = given.iter().map(element).collect::<Res<_>>()?;
        rounds.check(cx, body, count)?;
        let outputs = rounds.lower(cx, body, parameters)?;
        made.iter_mut().zip(outputs).for_each(|(list, v)| list.push(v));
    }
    for (i, list) in made.into_iter().enumerate() {
        cx.give(i, Value::List(list.into_iter().collect()));
    }
    Ok(())
}

// ---- rules: those of operators that change or ask a sequence in one place, which is not to be walked through for that ----

/// What is known of the elements of input `i`, if it is a sequence.
fn facts<'c>(cx: &'c Inference<'_>, i: usize) -> Option<&'c Shared<Fact>> {
    match &cx.fact(cx.optional(i)?)?.content {
        Some(Content::List(list)) => Some(list),
        _ => None,
    }
}

pub(super) fn of_insert(cx: &mut Inference<'_>) -> Res<()> {
    let value = cx.fact(cx.input(1)?).cloned();
    let (Some(mut list), Some(value)) = (facts(cx, 0).cloned(), value) else { return by_lowering(cx) };
    list.insert(place(cx, 2, list.len(), list.len())?, value);
    cx.say(0, Fact::of_list(list));
    Ok(())
}

pub(super) fn of_erase(cx: &mut Inference<'_>) -> Res<()> {
    let Some(mut list) = facts(cx, 0).cloned() else { return by_lowering(cx) };
    list.remove(place(cx, 1, list.len(), last(list.len())?)?);
    cx.say(0, Fact::of_list(list));
    Ok(())
}

pub(super) fn of_at(cx: &mut Inference<'_>) -> Res<()> {
    cx.input(1)?;
    let Some(list) = facts(cx, 0) else { return by_lowering(cx) };
    let at = place(cx, 1, list.len(), last(list.len())?)?;
    if let Some(fact) = list.get(at).cloned() {
        cx.say(0, fact);
    }
    Ok(())
}

pub(super) fn of_length(cx: &mut Inference<'_>) -> Res<()> {
    let Some(list) = facts(cx, 0) else { return by_lowering(cx) };
    cx.give_value(0, HostTensor::from_i64(&[], &[list.len() as i64]));
    Ok(())
}
