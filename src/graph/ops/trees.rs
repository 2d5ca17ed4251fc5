//! Tree ensembles: one workitem walks one tree for one row, then one sums the leaves of all trees for one score.
//!
//! The walk has no branches: a leaf leads to itself, and every walk takes as many steps as the deepest tree has levels.

use super::ml::{both_signs, classify, features, floats, joined, labels, of_classes, of_scores, post, rows_of, vector};
use crate::graph::ask::Ask;
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Unary, Val};
use crate::graph::fused::{Access, Coder};
use crate::graph::infer::Inference;
use crate::graph::lazy::Lazy;
use crate::graph::lower::Lowering;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};
use std::collections::BTreeMap;

/// How a node compares.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Leq,
    Lt,
    Gte,
    Gt,
    Eq,
    Neq,
    Leaf,
}

impl Mode {
    fn of(name: &str) -> Res<Mode> {
        Ok(match name {
            "BRANCH_LEQ" => Mode::Leq,
            "BRANCH_LT" => Mode::Lt,
            "BRANCH_GTE" => Mode::Gte,
            "BRANCH_GT" => Mode::Gt,
            "BRANCH_EQ" => Mode::Eq,
            "BRANCH_NEQ" => Mode::Neq,
            "LEAF" => Mode::Leaf,
            other => return Err(Reason::attribute("nodes_modes", format!("has `{other}`"))),
        })
    }

    fn holds(self, c: &mut Coder, x: Val, limit: Val) -> Val {
        match self {
            Mode::Leq => c.binary(Binary::Le, x, limit),
            Mode::Lt => c.lt(x, limit),
            Mode::Gte => c.binary(Binary::Le, limit, x),
            Mode::Gt => c.lt(limit, x),
            Mode::Eq => c.eq(x, limit),
            Mode::Neq | Mode::Leaf => {
                let same = c.eq(x, limit);
                c.unary(Unary::Not, same)
            }
        }
    }
}

/// A node: leaves lead to themselves.
#[derive(Clone, Copy)]
struct Node {
    feature: usize,
    value: f64,
    mode: Mode,
    yes: usize,
    no: usize,
    /// What is missing goes where `yes` leads.
    missing: bool,
}

/// All trees.
struct Forest {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    depth: usize,
    /// For each node its row in the leaves' table.
    leaf: Vec<usize>,
    /// Rows of scores; the first is of zeros.
    table: Vec<Vec<f64>>,
}

impl Forest {
    /// Finds the depth, and refuses nodes that lead nowhere or in circles.
    fn finish(mut self, columns: usize) -> Res<Forest> {
        let n = self.nodes.len();
        let damaged = |what: &str| Reason::attribute("nodes_truenodeids", format!("{what}; the model is damaged"));
        for node in &self.nodes {
            if node.yes >= n || node.no >= n {
                return Err(damaged("leads to nodes that are not there"));
            }
            if node.mode != Mode::Leaf && node.feature >= columns {
                return Err(Reason::attribute(
                    "nodes_featureids",
                    format!("has feature {} of {columns}", node.feature),
                ));
            }
        }
        let mut level = self.roots.clone();
        while level.iter().any(|i| self.nodes[*i].mode != Mode::Leaf) {
            if self.depth > n {
                return Err(damaged("goes in circles"));
            }
            self.depth += 1;
            let mut next: Vec<usize> = level
                .iter()
                .filter(|i| self.nodes[**i].mode != Mode::Leaf)
                .flat_map(|i| [self.nodes[*i].yes, self.nodes[*i].no])
                .collect();
            next.sort_unstable();
            next.dedup();
            level = next;
        }
        Ok(self)
    }

    /// The rows of leaves that each row of features ends at: `[rows, trees]`.
    fn walk(&self, cx: &mut Lowering<'_>, x: Lazy, rows: usize, columns: usize) -> Access {
        let t = x.dtype();
        let data = cx.stored_access(x);
        let ints = |cx: &mut Lowering<'_>, list: Vec<usize>| {
            let list: Vec<i32> = list.into_iter().map(|v| v as i32).collect();
            let id = cx.add_const("trees".into(), HostTensor::from_i32(&[list.len()], &list));
            Access::new(id, View::dense(&[list.len()]))
        };
        let of = |f: fn(&Node) -> usize| self.nodes.iter().map(f).collect::<Vec<_>>();
        let values: Vec<f64> = self.nodes.iter().map(|n| n.value).collect();
        let modes: Vec<Mode> = self.nodes.iter().map(|n| n.mode).filter(|m| *m != Mode::Leaf).collect();
        let first = modes.first().copied().unwrap_or(Mode::Leq);
        let mixed = modes.iter().any(|m| *m != first);
        let tracks = self.nodes.iter().any(|n| n.missing);
        let trees = self.roots.len();
        let mut operands = vec![data, ints(cx, self.roots.clone())];
        operands.push(ints(cx, of(|n| n.feature)));
        operands.push(vector(cx, t, &values));
        operands.push(ints(cx, of(|n| n.yes)));
        operands.push(ints(cx, of(|n| n.no)));
        operands.push(ints(cx, self.leaf.clone()));
        operands.push(ints(cx, of(|n| n.mode as usize)));
        operands.push(ints(cx, of(|n| n.missing as usize)));
        let y = cx.program(operands, &[rows, trees], |c| {
            let (row, tree) = (c.coord(0), c.coord(1));
            let root = c.load(1, tree);
            let at = c.var(root);
            c.repeat(self.depth, |c, _| {
                let node = c.get(at);
                let feature = c.load(2, node);
                let place = c.place(&[row, feature], &[rows, columns]);
                let x = c.load(0, place);
                let limit = c.load(3, node);
                let mut holds = first.holds(c, x, limit);
                if mixed {
                    let mode = c.load(7, node);
                    for m in [Mode::Leq, Mode::Lt, Mode::Gte, Mode::Gt, Mode::Eq, Mode::Neq] {
                        if m != first && modes.contains(&m) {
                            let this = c.int(m as i64);
                            let this = c.eq(mode, this);
                            let other = m.holds(c, x, limit);
                            holds = choose(c, this, other, holds);
                        }
                    }
                }
                if tracks {
                    let (flag, one) = (c.load(8, node), c.int(1));
                    let flag = c.eq(flag, one);
                    let nan = c.unary(Unary::IsNan, x);
                    let both = c.and(flag, nan);
                    holds = c.binary(Binary::Or, holds, both);
                }
                let (yes, no) = (c.load(4, node), c.load(5, node));
                let next = c.select(holds, yes, no);
                c.set(at, next);
            });
            let node = c.get(at);
            c.load(6, node)
        });
        cx.stored_access(y)
    }

    /// Scores `[rows, targets]`: the leaves' scores put together, and the base.
    fn scores(&self, cx: &mut Lowering<'_>, how: &str, base: &[f64]) -> Res<Lazy> {
        let (x, rows, columns) = features(cx)?;
        let t = x.dtype();
        let targets = self.table[0].len();
        let trees = self.roots.len();
        let leaves = self.walk(cx, x, rows, columns);
        let flat: Vec<f64> = self.table.iter().flatten().copied().collect();
        let mut operands = vec![leaves, vector(cx, t, &flat)];
        let base = (!base.is_empty()).then(|| (0..targets).map(|i| base[i % base.len()]).collect::<Vec<f64>>());
        if let Some(base) = &base {
            operands.push(vector(cx, t, base));
        }
        let combine = match how {
            "SUM" | "AVERAGE" => Binary::Add,
            "MIN" => Binary::Min,
            "MAX" => Binary::Max,
            other => return Err(Reason::attribute("aggregate_function", format!("is `{other}`"))),
        };
        Ok(cx.program(operands, &[rows, targets], |c| {
            let (row, target) = (c.coord(0), c.coord(1));
            let start = match combine {
                Binary::Min => f64::INFINITY,
                Binary::Max => f64::NEG_INFINITY,
                _ => 0.0,
            };
            let start = c.constant(t, start);
            let total = c.var(start);
            c.repeat(trees, |c, tree| {
                let at = c.place(&[row, tree], &[rows, trees]);
                let leaf = c.load(0, at);
                let at = c.place(&[leaf, target], &[0, targets]);
                let score = c.load(1, at);
                let old = c.get(total);
                let new = c.binary(combine, old, score);
                c.set(total, new);
            });
            let mut total = c.get(total);
            if how == "AVERAGE" {
                let n = c.constant(t, trees as f64);
                total = c.binary(Binary::Div, total, n);
            }
            if base.is_some() {
                let base = c.load(2, target);
                total = c.add(total, base);
            }
            c.cast(total, DType::F32)
        }))
    }
}

/// `cond ? a : b` of booleans.
fn choose(c: &mut Coder, cond: Val, a: Val, b: Val) -> Val {
    let yes = c.and(cond, a);
    let not = c.unary(Unary::Not, cond);
    let no = c.and(not, b);
    c.binary(Binary::Or, yes, no)
}

/// A list of one of two attributes: floats, or a tensor for doubles.
fn either(cx: &Lowering<'_>, name: &str) -> Res<Vec<f64>> {
    match cx.attribute(name) {
        Some(_) => floats(cx, name),
        None => floats(cx, &format!("{name}_as_tensor")),
    }
}

/// The trees of TreeEnsembleClassifier and TreeEnsembleRegressor, whose scores begin with `prefix`.
fn forest(cx: &Lowering<'_>, prefix: &str, targets: usize) -> Res<Forest> {
    let ints = |name: &str| -> Res<Vec<i64>> { Ok(cx.ints(name)?.unwrap_or_default()) };
    let (trees, ids) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
    let (features, yes, no) = (ints("nodes_featureids")?, ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let missing = ints("nodes_missing_value_tracks_true")?;
    let values = either(cx, "nodes_values")?;
    let modes: Vec<String> = match cx.attribute("nodes_modes") {
        Some(Attribute::Texts(list)) => list.clone(),
        _ => return Err(Reason::attribute("nodes_modes", "is missing")),
    };
    let n = trees.len();
    if [ids.len(), features.len(), yes.len(), no.len(), values.len(), modes.len()] != [n; 6] || n == 0 {
        return Err(Reason::attribute("nodes_treeids", "and the other lists of nodes have different lengths"));
    }
    let place: BTreeMap<(i64, i64), usize> = (0..n).map(|i| ((trees[i], ids[i]), i)).collect();
    let mut nodes = Vec::with_capacity(n);
    let mut reached = vec![false; n];
    for i in 0..n {
        let mode = Mode::of(&modes[i])?;
        let to = |id: i64| match mode {
            Mode::Leaf => Some(i),
            _ => place.get(&(trees[i], id)).copied(),
        };
        let lost =
            || Reason::attribute("nodes_truenodeids", format!("node {} of tree {} leads nowhere", ids[i], trees[i]));
        let (yes, no) = (to(yes[i]).ok_or_else(lost)?, to(no[i]).ok_or_else(lost)?);
        if mode != Mode::Leaf {
            (reached[yes], reached[no]) = (true, true);
        }
        let feature = if mode == Mode::Leaf { 0 } else { usize::try_from(features[i]).unwrap_or(usize::MAX) };
        let missing = missing.get(i).is_some_and(|m| *m != 0);
        nodes.push(Node { feature, value: values[i], mode, yes, no, missing });
    }
    // A tree begins at the first of its nodes that no other leads to.
    let mut roots: BTreeMap<i64, usize> = BTreeMap::new();
    (0..n).filter(|i| !reached[*i]).for_each(|i| {
        roots.entry(trees[i]).or_insert(i);
    });
    let (mut leaf, mut table) = (vec![0; n], vec![vec![0.0; targets]]);
    let (score_trees, score_nodes) = (ints(&format!("{prefix}_treeids"))?, ints(&format!("{prefix}_nodeids"))?);
    let (score_ids, weights) = (ints(&format!("{prefix}_ids"))?, either(cx, &format!("{prefix}_weights"))?);
    if [score_nodes.len(), score_ids.len(), weights.len()] != [score_trees.len(); 3] {
        return Err(Reason::attribute("class_weights", "and the other lists of scores have different lengths"));
    }
    for (i, w) in weights.iter().enumerate() {
        let node = place.get(&(score_trees[i], score_nodes[i]));
        let target = usize::try_from(score_ids[i]).ok().filter(|t| *t < targets);
        let (Some(&node), Some(target)) = (node, target) else {
            return Err(Reason::attribute("class_nodeids", "names nodes or scores that are not there"));
        };
        if leaf[node] == 0 {
            leaf[node] = table.len();
            table.push(vec![0.0; targets]);
        }
        table[leaf[node]][target] += w;
    }
    let forest = Forest { nodes, roots: roots.into_values().collect(), depth: 0, leaf, table };
    let columns = cx.shape(cx.input(0)?).last().copied().unwrap_or(0);
    forest.finish(columns)
}

fn targets<'m>(cx: &impl Ask<'m>) -> Res<usize> {
    let targets = usize::try_from(cx.int("n_targets", 1)?).ok().filter(|n| *n > 0);
    targets.ok_or_else(|| Reason::attribute("n_targets", "is not positive"))
}

pub(super) fn regressor(cx: &mut Lowering<'_>) -> Res<()> {
    let targets = targets(cx)?;
    let forest = forest(cx, "target", targets)?;
    let base = either(cx, "base_values")?;
    let (how, after) = (cx.text("aggregate_function", "SUM")?, cx.text("post_transform", "NONE")?);
    let y = forest.scores(cx, how, &base)?;
    let y = post(cx, y, after)?;
    cx.set(0, y);
    Ok(())
}

pub(super) fn classifier(cx: &mut Lowering<'_>) -> Res<()> {
    let mut labels = labels(cx, "classlabels_int64s")?;
    let after = cx.text("post_transform", "NONE")?;
    let used = cx.ints("class_ids")?.unwrap_or_default();
    let one = used.first().is_some_and(|f| used.iter().all(|c| c == f));
    let forest = forest(cx, "class", labels.len().max(2))?;
    let base = either(cx, "base_values")?;
    let mut scores = forest.scores(cx, "SUM", &base)?;
    let (rows, n) = (scores.shape[0], scores.shape[1]);
    if labels.len() == 1 {
        // What is not of the only class is of class 0, or of that without a name.
        let other = HostTensor::from_ints(labels.dtype(), &[1], &[0]);
        labels = joined(&other, &labels)?;
    }
    if one && n == 2 {
        // One score for both classes.
        let plain = cx.plain_of(scores);
        let own = super::layout::sliced(cx, &plain, &[(1, used[0].clamp(0, 1), 1, 1)]);
        scores = if after == "NONE" {
            let rest = cx.combine(vec![own.clone()], &[rows, 1], |e, v| {
                let one = e.constant(DType::F32, 1.0);
                e.binary(Binary::Sub, one, v[0])
            })?;
            super::layout::join(cx, vec![rest, own], 1)?
        } else {
            both_signs(cx, own, rows)?
        };
    }
    let y = post(cx, scores, after)?;
    classify(cx, y, labels)
}

/// TreeEnsemble of version 5: nodes in one list, leaves in another.
pub(super) fn ensemble(cx: &mut Lowering<'_>) -> Res<()> {
    let ints = |name: &str| -> Res<Vec<usize>> {
        let list = cx.ints(name)?.unwrap_or_default();
        list.into_iter()
            .map(|v| usize::try_from(v).map_err(|_| Reason::attribute(name, "has a negative entry")))
            .collect()
    };
    let (yes, no) = (ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (ints("nodes_trueleafs")?, ints("nodes_falseleafs")?);
    let (features, roots) = (ints("nodes_featureids")?, ints("tree_roots")?);
    let missing = ints("nodes_missing_value_tracks_true")?;
    let (splits, modes) = (
        floats(cx, "nodes_splits")?,
        match cx.attribute("nodes_modes") {
            Some(Attribute::Tensor(t)) => t.to_i64(),
            _ => return Err(Reason::attribute("nodes_modes", "is missing")),
        },
    );
    let (weights, targets_of) = (floats(cx, "leaf_weights")?, ints("leaf_targetids")?);
    let targets = targets(cx)?;
    let (n, leaves) = (yes.len(), weights.len());
    let lists = [no.len(), yes_leaf.len(), no_leaf.len(), features.len(), splits.len(), modes.len()];
    if lists != [n; 6] || targets_of.len() != leaves || leaves == 0 || roots.iter().any(|r| *r >= n.max(1)) {
        return Err(Reason::attribute("nodes_truenodeids", "and the other lists of nodes have different lengths"));
    }
    // Nodes first, then leaves.
    let mut nodes = Vec::new();
    let members = floats(cx, "membership_values")?;
    let mut sets = members.split(|v| v.is_nan());
    let mut extra: Vec<Node> = Vec::new();
    let total = n + leaves;
    for i in 0..n {
        let to = |id: usize, leaf: bool| if leaf { n + id } else { id };
        let (yes, no) = (to(yes[i], yes_leaf[i] != 0), to(no[i], no_leaf[i] != 0));
        let missing = missing.get(i).is_some_and(|m| *m != 0);
        let modes_of = [Mode::Leq, Mode::Lt, Mode::Gte, Mode::Gt, Mode::Eq, Mode::Neq];
        let node = |mode, value, no| Node { feature: features[i], value, mode, yes, no, missing };
        match modes[i] {
            6 => {
                // A set: a chain of comparisons with its members.
                let set = sets.next().unwrap_or(&[]);
                let Some((first, rest)) = set.split_first() else {
                    nodes.push(node(Mode::Eq, f64::NAN, no));
                    continue;
                };
                let mut behind = no;
                for value in rest {
                    extra.push(node(Mode::Eq, *value, behind));
                    behind = total + extra.len() - 1;
                }
                nodes.push(node(Mode::Eq, *first, behind));
            }
            m => {
                let mode = usize::try_from(m).ok().and_then(|m| modes_of.get(m).copied());
                nodes.push(node(
                    mode.ok_or_else(|| Reason::attribute("nodes_modes", format!("has mode {m}")))?,
                    splits[i],
                    no,
                ));
            }
        }
    }
    let (mut leaf, mut table) = (vec![0; n], vec![vec![0.0; targets]]);
    for i in 0..leaves {
        let at = n + i;
        nodes.push(Node { feature: 0, value: 0.0, mode: Mode::Leaf, yes: at, no: at, missing: false });
        let mut row = vec![0.0; targets];
        *row.get_mut(targets_of[i]).ok_or_else(|| Reason::attribute("leaf_targetids", "is out of range"))? = weights[i];
        leaf.push(table.len());
        table.push(row);
    }
    leaf.extend(extra.iter().map(|_| 0));
    nodes.append(&mut extra);
    let columns = cx.shape(cx.input(0)?).last().copied().unwrap_or(0);
    let forest = Forest { nodes, roots, depth: 0, leaf, table }.finish(columns)?;
    let how = match cx.int("aggregate_function", 1)? {
        0 => "AVERAGE",
        1 => "SUM",
        2 => "MIN",
        3 => "MAX",
        other => return Err(Reason::attribute("aggregate_function", format!("is {other}"))),
    };
    let after = match cx.int("post_transform", 0)? {
        0 => "NONE",
        1 => "SOFTMAX",
        2 => "LOGISTIC",
        3 => "SOFTMAX_ZERO",
        _ => "PROBIT",
    };
    let y = forest.scores(cx, how, &[])?;
    let mut y = post(cx, y, after)?;
    let dtype = cx.dtype(cx.input(0)?);
    if dtype != y.dtype() && dtype.is_float() {
        let shape = y.shape.clone();
        y = cx.combine(vec![y], &shape, |e, v| e.cast(v[0], dtype))?;
    }
    cx.set(0, y);
    Ok(())
}

// ---- rules ----

pub(super) fn of_regressor(cx: &mut Inference<'_>) -> Res<()> {
    of_scores(cx, targets(cx)?)
}

pub(super) fn of_classifier(cx: &mut Inference<'_>) -> Res<()> {
    let labels = labels(cx, "classlabels_int64s")?;
    of_classes(cx, &labels, labels.len().max(2))
}

/// TreeEnsemble gives scores in the type of the data, where that is a float.
pub(super) fn of_ensemble(cx: &mut Inference<'_>) -> Res<()> {
    let (x, n) = (cx.input(0)?, targets(cx)?);
    let t = if cx.dtype(x).is_float() { cx.dtype(x) } else { DType::F32 };
    let (rows, _) = rows_of(cx)?;
    cx.give(0, t, vec![rows, n.into()])
}
