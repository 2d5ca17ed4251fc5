//! Einsum as matrix products: operands are taken together from left to right, each time as one batched product over the
//! labels that nobody needs afterwards.

use crate::graph::ask::Ask;
use crate::graph::dim::Dim;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar};
use crate::graph::fused::{Access, Reduce, ReduceOp, StepKind};
use crate::graph::infer::Inference;
use crate::graph::lazy::{Lazy, map_access};
use crate::graph::lower::{Lowering, splat};
use crate::graph::view::View;
use std::collections::BTreeMap;

/// A value whose dimensions have labels, each once.
struct Labelled {
    value: Lazy,
    labels: Vec<char>,
}

impl Labelled {
    fn extent(&self, label: char) -> Option<usize> {
        self.labels.iter().position(|l| *l == label).map(|d| self.value.shape[d])
    }
}

/// Labels of the dimensions that an ellipsis stands for, counted from the last.
fn ellipsis(n: usize) -> impl Iterator<Item = char> {
    (0..n as u32).rev().filter_map(|i| char::from_u32(0xe000 + i))
}

/// The labels of one term for a value of `rank` dimensions.
fn labels(term: &str, rank: usize) -> Res<Vec<char>> {
    let mut out = Vec::new();
    let named = term.chars().filter(|c| c.is_alphabetic()).count();
    let (before, behind) = match term.split_once("...") {
        Some((a, b)) => (a, Some(b)),
        None => (term, None),
    };
    out.extend(before.chars());
    if let Some(behind) = behind {
        out.extend(ellipsis(rank.saturating_sub(named)));
        out.extend(behind.chars());
    }
    if out.len() != rank || term.replace("...", "").chars().any(|c| !c.is_alphabetic()) {
        return Err(Reason::attribute("equation", format!("has the term `{term}` for {rank} dimensions")));
    }
    Ok(out)
}

/// Labels that stand twice become one dimension, the diagonal.
fn diagonal(cx: &mut Lowering<'_>, mut x: Labelled) -> Res<Labelled> {
    while let Some((first, second)) = twice(&x.labels) {
        let n = x.value.shape[first];
        if x.value.shape[second] != n {
            return Err(Reason::Shape(format!("label `{}` has two extents", x.labels[first])));
        }
        let stored = cx.stored(x.value);
        let mut plain = stored.plain().expect("a stored tensor has plain dimensions");
        for a in &mut plain.inputs {
            *a = map_access(
                a,
                |v| {
                    let mut v = v.clone();
                    v.strides[first] += v.strides[second];
                    v.strides.remove(second);
                    v.dims.remove(second);
                    v
                },
                |r| r.to_vec(),
            );
        }
        plain.grid.remove(second);
        x.labels.remove(second);
        x.value = cx.normal(plain);
    }
    Ok(x)
}

fn twice(labels: &[char]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|i| (i + 1..labels.len()).find(|j| labels[i] == labels[*j]).map(|j| (i, j)))
}

/// Dimensions in the order of `labels`; those that it lacks get the extent 1.
fn arranged(cx: &mut Lowering<'_>, x: &Labelled, order: &[char]) -> Lazy {
    let perm: Vec<usize> = order.iter().filter_map(|l| x.labels.iter().position(|m| m == l)).collect();
    let dims: Vec<usize> = order.iter().map(|l| x.extent(*l).unwrap_or(1)).collect();
    cx.permute(x.value.clone(), &perm).reshaped(&dims)
}

/// Sums over the labels that `keep` lacks.
fn summed(cx: &mut Lowering<'_>, x: Labelled, keep: &[char]) -> Labelled {
    let (stay, go): (Vec<char>, Vec<char>) = x.labels.iter().partition(|l| keep.contains(l));
    if go.is_empty() {
        return x;
    }
    let dtype = x.value.dtype();
    let lazy = arranged(cx, &x, &[&stay[..], &go[..]].concat());
    let shape: Vec<usize> = lazy.shape[..stay.len()].to_vec();
    let (rows, n) = (shape.iter().product::<usize>(), lazy.shape[stay.len()..].iter().product::<usize>());
    let stored = cx.stored(lazy.reshaped(&[rows, n]));
    let access = cx.operand_of(stored, View::is_dense);
    let kind = StepKind::Reduce(Reduce { op: ReduceOp::Sum, prologue: Expr::acc(dtype) });
    let value = cx.produce(kind, vec![access], &[rows], dtype).reshaped(&shape);
    Labelled { value, labels: stay }
}

/// The product of two values, of which only the labels in `keep` remain.
fn product(cx: &mut Lowering<'_>, a: Labelled, b: Labelled, keep: &[char]) -> Res<Labelled> {
    // What only one of them has and nobody needs is summed first.
    let needed = |other: &Labelled| [&other.labels[..], keep].concat();
    let (for_a, for_b) = (needed(&b), needed(&a));
    let (a, b) = (summed(cx, a, &for_a), summed(cx, b, &for_b));
    let both = |l: &char| a.labels.contains(l) && b.labels.contains(l);
    let batch: Vec<char> = a.labels.iter().copied().filter(|l| both(l) && keep.contains(l)).collect();
    let inner: Vec<char> = a.labels.iter().copied().filter(|l| both(l) && !keep.contains(l)).collect();
    let own = |x: &Labelled| -> Vec<char> { x.labels.iter().copied().filter(|l| !both(l)).collect() };
    let (left, right) = (own(&a), own(&b));
    let labels = [&batch[..], &left[..], &right[..]].concat();
    let extent = |l: &char| match (a.extent(*l), b.extent(*l)) {
        (Some(x), Some(y)) => x.max(y),
        (x, y) => x.or(y).unwrap_or(1),
    };
    for l in a.labels.iter().filter(|l| both(l)) {
        let (x, y) = (a.extent(*l), b.extent(*l));
        if x != y && x != Some(1) && y != Some(1) {
            return Err(Reason::Shape(format!("label `{l}` has two extents")));
        }
    }
    let dtype = a.value.dtype();
    let shape: Vec<usize> = labels.iter().map(extent).collect();
    let one_sided =
        inner.iter().any(|l| a.extent(*l) != b.extent(*l)) || batch.iter().any(|l| a.extent(*l) != b.extent(*l));
    if inner.is_empty() || one_sided {
        // No sum: a product element by element (and a sum of that where extents of 1 are stretched).
        let all = [&labels[..], &inner[..]].concat();
        let full: Vec<usize> = all.iter().map(extent).collect();
        let (x, y) = (arranged(cx, &a, &all), arranged(cx, &b, &all));
        let (x, y) = (cx.stored(x), cx.stored(y));
        let value = cx.combine(vec![x, y], &full, |e, v| e.binary(Binary::Mul, v[0], v[1]))?;
        return Ok(summed(cx, Labelled { value, labels: all }, &labels));
    }
    let count = |list: &[char]| list.iter().map(extent).product::<usize>();
    let (g, m, n, k) = (count(&batch), count(&left), count(&right), count(&inner));
    let x = arranged(cx, &a, &[&batch[..], &left[..], &inner[..]].concat()).reshaped(&[g, m, k]);
    let y = arranged(cx, &b, &[&batch[..], &inner[..], &right[..]].concat()).reshaped(&[g, k, n]);
    let x = cx.operand_of(x, super::matmul::good);
    let y = cx.operand_of(y, super::matmul::good);
    let value = super::matmul::product(cx, three(x, [g, m, k]), three(y, [g, k, n]), dtype)?;
    Ok(Labelled { value: value.reshaped(&shape), labels })
}

/// The access with exactly these dimensions.
fn three(access: Access, dims: [usize; 3]) -> Access {
    debug_assert_eq!(access.view.dims, dims);
    access
}

/// The labels of each input's dimensions, and of the result's.
struct Equation {
    terms: Vec<Vec<char>>,
    result: Vec<char>,
}

impl Equation {
    fn read<'m>(cx: &impl Ask<'m>) -> Res<Equation> {
        let equation: String = cx.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
        let ids = cx.inputs();
        let (terms, out) = match equation.split_once("->") {
            Some((terms, out)) => (terms.to_string(), Some(out.to_string())),
            None => (equation.clone(), None),
        };
        let terms: Vec<&str> = terms.split(',').collect();
        if terms.len() != ids.len() || ids.is_empty() {
            return Err(Reason::attribute("equation", format!("has {} terms for {} inputs", terms.len(), ids.len())));
        }
        let given = ids.iter().zip(&terms);
        let lists: Vec<Vec<char>> = given.map(|(v, term)| labels(term, cx.rank(*v))).collect::<Res<_>>()?;
        let wide = lists.iter().flatten().filter(|l| **l >= '\u{e000}').max();
        let dots = wide.map_or(0, |l| *l as usize - 0xe000 + 1);
        let result: Vec<char> = match out {
            Some(out) => {
                let named = out.replace("...", "").chars().count();
                labels(&out, named + if out.contains("...") { dots } else { 0 })?
            }
            None => {
                // The labels that stand once, in alphabetical order, behind the ellipsis.
                let all: String = terms.concat().replace("...", "");
                let mut once: Vec<char> = all.chars().filter(|c| all.matches(*c).count() == 1).collect();
                once.sort_unstable();
                ellipsis(dots).chain(once).collect()
            }
        };
        if let Some(l) = result.iter().find(|l| !lists.iter().any(|list| list.contains(l))) {
            return Err(Reason::attribute("equation", format!("has the label `{l}` in its result only")));
        }
        Ok(Equation { terms: lists, result })
    }
}

pub(super) fn einsum(cx: &mut Lowering<'_>) -> Res<()> {
    let ids = cx.inputs();
    let Equation { terms, result } = Equation::read(cx)?;
    let dtype = cx.dtype(ids[0]);
    if let Some(other) = ids.iter().map(|v| cx.dtype(*v)).find(|t| *t != dtype) {
        return Err(Reason::Type(format!("its inputs have the types {dtype} and {other}; one type is needed")));
    }
    // Sums of nothing.
    if ids.iter().any(|v| cx.shape(*v).contains(&0)) {
        let zeros = splat(dtype, &cx.result(0), Scalar::of(dtype, 0.0));
        cx.set(0, zeros);
        return Ok(());
    }
    let mut values = Vec::new();
    for (&v, labels) in ids.iter().zip(terms) {
        let value = cx.without_base(v);
        values.push(diagonal(cx, Labelled { value, labels })?);
    }
    let mut rest = values.into_iter();
    let mut total = rest.next().expect("there is an input");
    let mut rest: Vec<Labelled> = rest.collect();
    while !rest.is_empty() {
        let next = rest.remove(0);
        let keep: Vec<char> = result.iter().chain(rest.iter().flat_map(|r| &r.labels)).copied().collect();
        total = product(cx, total, next, &keep)?;
    }
    let total = summed(cx, total, &result);
    let y = arranged(cx, &total, &result);
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

/// Dimensions by their labels.
pub(super) fn of_einsum(cx: &mut Inference<'_>) -> Res<()> {
    let ids = cx.inputs();
    let Equation { terms, result } = Equation::read(cx)?;
    let mut extents: BTreeMap<char, Dim> = BTreeMap::new();
    let mut ties = Vec::new();
    for (v, labels) in ids.iter().zip(&terms) {
        for (l, d) in labels.iter().zip(cx.dims(*v)) {
            let all = extents.entry(*l).or_insert(Dim::Known(1));
            // A dimension of an ellipsis may be 1 in some of the inputs.
            if all.is(1) {
                *all = d.clone();
            } else if !d.is(1) && d.differs(all) {
                return Err(Reason::Shape(format!("label `{l}` has the extents {all} and {d}")));
            } else if !d.is(1) {
                ties.push((all.clone(), d.clone()));
            }
        }
    }
    cx.tie(ties);
    let dims = result.iter().filter_map(|l| extents.get(l).cloned()).collect();
    cx.give(0, cx.dtype(ids[0]), dims)
}
