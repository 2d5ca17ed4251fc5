//! LSTM, GRU and RNN: one product for the inputs of all steps, then a recurrent layer.

use super::layout::sliced;
use crate::graph::ask::Ask;
use crate::graph::dim::{Dim, described};
use crate::graph::error::{Reason, Res};
use crate::graph::expr::{Binary, Expr, Scalar, Unary, Val};
use crate::graph::fused::{Access, StepKind};
use crate::graph::infer::Inference;
use crate::graph::kinds::recurrent::{Phase, Recurrent};
use crate::graph::lazy::Lazy;
use crate::graph::lower::{Lowering, splat};
use crate::graph::resolve::ValueId;
use crate::graph::view::View;
use crate::onnx::Attribute;
use crate::tensor::{DType, HostTensor};

/// An activation function with its parameters.
#[derive(Clone, Debug)]
struct Activation {
    name: String,
    alpha: Option<f32>,
    beta: Option<f32>,
}

impl Activation {
    fn apply(&self, e: &mut Expr, x: Val) -> Res<Val> {
        let t = e.type_of(x);
        let (alpha, beta) = (|d: f32| self.alpha.unwrap_or(d) as f64, |d: f32| self.beta.unwrap_or(d) as f64);
        let (zero, one) = (e.constant(t, 0.0), e.constant(t, 1.0));
        let line = |e: &mut Expr, a: f64, b: f64| {
            let (a, b) = (e.constant(t, a), e.constant(t, b));
            let y = e.binary(Binary::Mul, x, a);
            e.binary(Binary::Add, y, b)
        };
        Ok(match self.name.to_ascii_lowercase().as_str() {
            "sigmoid" => e.unary(Unary::Sigmoid, x),
            "tanh" => e.unary(Unary::Tanh, x),
            "relu" => e.binary(Binary::Max, x, zero),
            "affine" => line(e, alpha(1.0), beta(0.0)),
            "leakyrelu" => {
                let low = line(e, alpha(0.01), 0.0);
                let below = e.binary(Binary::Lt, x, zero);
                e.select(below, low, x)
            }
            "thresholdedrelu" => {
                let a = e.constant(t, alpha(1.0));
                let above = e.binary(Binary::Lt, a, x);
                e.select(above, x, zero)
            }
            "scaledtanh" => {
                let inner = line(e, beta(1.0), 0.0);
                let y = e.unary(Unary::Tanh, inner);
                let a = e.constant(t, alpha(1.0));
                e.binary(Binary::Mul, y, a)
            }
            "hardsigmoid" => {
                let y = line(e, alpha(0.2), beta(0.5));
                let y = e.binary(Binary::Max, y, zero);
                e.binary(Binary::Min, y, one)
            }
            "elu" => {
                let low = e.unary(Unary::ExpMinusOne, x);
                let a = e.constant(t, alpha(1.0));
                let low = e.binary(Binary::Mul, low, a);
                let below = e.binary(Binary::Lt, x, zero);
                e.select(below, low, x)
            }
            "softsign" => {
                let a = e.unary(Unary::Abs, x);
                let a = e.binary(Binary::Add, a, one);
                e.binary(Binary::Div, x, a)
            }
            "softplus" => {
                let high = e.binary(Binary::Max, x, zero);
                let a = e.unary(Unary::Abs, x);
                let a = e.unary(Unary::Neg, a);
                let a = e.unary(Unary::Exp, a);
                let rest = e.unary(Unary::LogOnePlus, a);
                e.binary(Binary::Add, high, rest)
            }
            other => return Err(Reason::attribute("activations", format!("has `{other}`, which is not supported"))),
        })
    }
}

/// What the operators have in common.
struct Layer {
    x: ValueId,
    steps: usize,
    batch: usize,
    hidden: usize,
    directions: Vec<bool>,
    /// `[batch, steps, ...]` instead of `[steps, batch, ...]`.
    batch_first: bool,
    clip: Option<f64>,
    /// For each direction those of its gates.
    activations: Vec<Activation>,
    dtype: DType,
}

fn layer(cx: &Lowering<'_>, gates: usize, defaults: &[&str]) -> Res<Layer> {
    let (x, r) = (cx.input(0)?, cx.input(2)?);
    let (shape, rs, dtype) = (cx.shape(x), cx.shape(r), cx.dtype(x));
    let directions = match cx.text("direction", "forward")?.to_ascii_lowercase().as_str() {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return Err(Reason::attribute("direction", format!("is `{other}`"))),
    };
    let batch_first = cx.int("layout", 0)? != 0;
    let (&[a, b, width], &[d, rows, hidden]) = (shape, rs) else {
        return Err(Reason::Shape(format!("data of shape {shape:?} and recurrent weights of shape {rs:?}")));
    };
    let (steps, batch) = if batch_first { (b, a) } else { (a, b) };
    let ws = cx.shape(cx.input(1)?);
    if d != directions.len() || rows != gates * hidden || ws != [d, rows, width] || width * hidden == 0 {
        return Err(Reason::Shape(format!("data {shape:?}, weights {ws:?} and recurrent weights {rs:?} do not fit")));
    }
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Reason::Type(format!("data of type {dtype}; f32, f16 and bf16 are supported")));
    }
    let mut names: Vec<String> = match cx.attribute("activations") {
        Some(Attribute::Texts(list)) if !list.is_empty() => list.clone(),
        _ => directions.iter().flat_map(|_| defaults.iter().map(|s| s.to_string())).collect(),
    };
    // The default that RNN's schema has lists both directions, whatever the layer's is.
    if directions.len() == 1 && names.len() == 2 * defaults.len() {
        names.truncate(defaults.len());
    }
    if names.len() != directions.len() * defaults.len() {
        return Err(Reason::attribute("activations", format!("has {} entries", names.len())));
    }
    let floats = |name: &str| match cx.attribute(name) {
        Some(Attribute::Floats(v)) => v.clone(),
        _ => Vec::new(),
    };
    // Parameters are listed for those functions that have them, in order.
    let (mut alphas, mut betas) = (floats("activation_alpha").into_iter(), floats("activation_beta").into_iter());
    let takes = |name: &str, list: &[&str]| list.iter().any(|n| n.eq_ignore_ascii_case(name));
    let activations = names.into_iter().map(|name| Activation {
        alpha: takes(&name, &["Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"])
            .then(|| alphas.next())
            .flatten(),
        beta: takes(&name, &["Affine", "ScaledTanh", "HardSigmoid"]).then(|| betas.next()).flatten(),
        name,
    });
    let activations: Vec<Activation> = activations.collect();
    let clip = cx.attribute("clip").map(|_| cx.float("clip", 0.0)).transpose()?.filter(|c| *c > 0.0);
    Ok(Layer { x, steps, batch, hidden, directions, batch_first, clip, activations, dtype })
}

impl Layer {
    fn count(&self) -> usize {
        self.directions.len()
    }

    /// Rows `from..from + n` of `[directions, rows]`-shaped input `i`, in units of the hidden size.
    fn rows(&self, cx: &mut Lowering<'_>, i: usize, from: usize, n: usize) -> Res<Lazy> {
        let h = self.hidden;
        let Some(v) = cx.optional(i) else {
            return Ok(splat(self.dtype, &[self.count(), n * h], Scalar::Float(0.0)));
        };
        let shape = cx.shape(v);
        if shape.len() != 2 || shape[0] != self.count() || shape[1] < (from + n) * h {
            let wanted = [self.count(), (from + n) * h];
            return Err(Reason::Shape(format!("input {i} has shape {shape:?}; at least {wanted:?} is needed")));
        }
        let plain = cx.plain(v);
        Ok(sliced(cx, &plain, &[(1, (from * h) as i64, 1, n * h)]))
    }

    /// What the inputs contribute: `[steps, batch, directions * gates * hidden]`, with biases of the inputs and, for the first
    /// `recurrent` gates, of the recurrence.
    fn inputs(&self, cx: &mut Lowering<'_>, gates: usize, recurrent: usize) -> Res<Lazy> {
        let (d, h) = (self.count(), self.hidden);
        let data = cx.without_base(self.x);
        let data = if self.batch_first { cx.permute(data, &[1, 0, 2]) } else { data };
        let width = data.shape[2];
        let left = cx.operand_of(data.reshaped(&[self.steps * self.batch, width]), super::matmul::good);
        let w = cx.input(1)?;
        let w = cx.without_base(w).reshaped(&[d * gates * h, width]);
        let mut right = cx.operand_of(w, super::matmul::good);
        right.view = right.view.permuted(&[1, 0]);
        let y = super::matmul::product(cx, left, right, self.dtype)?;
        if cx.optional(3).is_none() {
            return Ok(y);
        }
        let own = self.rows(cx, 3, 0, gates)?;
        let mut terms = vec![own];
        if recurrent > 0 {
            let part = self.rows(cx, 3, gates, recurrent)?;
            let part = if recurrent < gates {
                let part = cx.stored(part);
                let rest = splat(self.dtype, &[d, (gates - recurrent) * h], Scalar::Float(0.0));
                super::layout::join(cx, vec![part, rest], 1)?
            } else {
                part
            };
            terms.push(part);
        }
        let bias = cx.combine(terms, &[d, gates * h], |e, v| match v.get(1) {
            Some(&r) => e.binary(Binary::Add, v[0], r),
            None => v[0],
        })?;
        let bias = cx.stored(bias).reshaped(&[1, d * gates * h]);
        let shape = y.shape.clone();
        cx.combine(vec![y, bias], &shape, |e, v| e.binary(Binary::Add, v[0], v[1]))
    }

    /// Initial state from input `i`.
    fn initial(&self, cx: &mut Lowering<'_>, i: usize) -> Res<Lazy> {
        let shape = [self.count(), self.batch, self.hidden];
        let Some(v) = cx.optional(i) else { return Ok(splat(self.dtype, &shape, Scalar::Float(0.0))) };
        let wanted = if self.batch_first { [shape[1], shape[0], shape[2]] } else { shape };
        if cx.shape(v) != wanted {
            return Err(Reason::Shape(format!("input {i} has shape {:?}, not {wanted:?}", cx.shape(v))));
        }
        let lazy = cx.without_base(v);
        Ok(if self.batch_first { cx.permute(lazy, &[1, 0, 2]) } else { lazy })
    }

    /// Sets the outputs of a layer over no steps: its states are what they were.
    fn without_steps(&self, cx: &mut Lowering<'_>, states: usize) -> Res<()> {
        let all = splat(self.dtype, &cx.result(0), Scalar::Float(0.0));
        cx.set(0, all);
        for s in 0..states {
            let state = self.initial(cx, 5 + s)?;
            let state = if self.batch_first { cx.permute(state, &[1, 0, 2]) } else { state };
            cx.set(1 + s, state);
        }
        Ok(())
    }

    /// Activation `f` of the backward direction, when it is not that of the forward one.
    fn other_activation(&self, f: usize) -> Option<&Activation> {
        let forward = self.activations.get(f)?;
        let back = self.activations.get(self.activations.len() / self.count() * (self.count() - 1) + f)?;
        let same =
            forward.name.eq_ignore_ascii_case(&back.name) && (forward.alpha, forward.beta) == (back.alpha, back.beta);
        (!same).then_some(back)
    }

    /// True when a parameter, the last one, tells the directions apart: 0 forward, 1 backward.
    fn is_split(&self) -> bool {
        (0..self.activations.len() / self.count()).any(|f| self.other_activation(f).is_some())
    }

    /// Emits the layer and sets the outputs.
    fn finish(
        &self,
        cx: &mut Lowering<'_>,
        gates: usize,
        inputs: Lazy,
        initial: Vec<Lazy>,
        mut parameters: Vec<Lazy>,
        temporaries: usize,
        phases: Vec<Phase>,
    ) -> Res<()> {
        let (d, h, b) = (self.count(), self.hidden, self.batch);
        if self.is_split() {
            let sides: Vec<f64> = (0..d * h).map(|i| (i / h) as f64).collect();
            let id = cx.add_const("directions".into(), HostTensor::from_f64(self.dtype, &[d, h], &sides));
            parameters.push(Lazy::read(Access::new(id, View::dense(&[d, h])), self.dtype));
        }
        let states = initial.len();
        let mut operands = vec![cx.stored_access(inputs)];
        let r = cx.input(2)?;
        let r = cx.without_base(r);
        let r = cx.permute(r, &[0, 2, 1]);
        operands.push(cx.stored_access(r));
        let block = |cx: &mut Lowering<'_>, parts: Vec<Lazy>| -> Res<_> {
            let parts: Vec<Lazy> = parts
                .into_iter()
                .map(|p| {
                    let shape = [&[1], &p.shape[..]].concat();
                    p.reshaped(&shape)
                })
                .collect();
            let whole = match &parts[..] {
                [one] => one.clone(),
                _ => super::layout::join(cx, parts, 0)?,
            };
            Ok(cx.stored_access(whole))
        };
        operands.push(block(cx, initial)?);
        let count = parameters.len();
        if count > 0 {
            operands.push(block(cx, parameters)?);
        }
        let given = cx.optional(4);
        if let Some(v) = given
            && (cx.shape(v) != [b] || cx.dtype(v) != DType::I32)
        {
            return Err(Reason::Shape(format!("lengths of shape {:?} for {b} sequences", cx.shape(v))));
        }
        // Lengths that are all steps say nothing.
        let all = |t: &HostTensor| t.to_i64().iter().all(|n| *n == self.steps as i64);
        let lengths = given.filter(|v| !cx.constant(*v).is_some_and(all));
        if let Some(v) = lengths {
            operands.push(cx.operand_if(v, View::is_dense));
        }
        let kind = Recurrent {
            steps: self.steps,
            batch: b,
            hidden: h,
            gates,
            states,
            temporaries,
            parameters: count,
            reverse: self.directions.clone(),
            lengths: lengths.is_some(),
            phases,
        };
        let whole = cx.produce(StepKind::Recurrent(kind), operands, &[self.steps + states, d, b, h], self.dtype);
        let whole = cx.stored(whole);
        let plain = cx.plain_of(whole);
        let y = sliced(cx, &plain, &[(0, 0, 1, self.steps)]);
        let y = if self.batch_first { cx.permute(y, &[2, 0, 1, 3]) } else { y };
        cx.set(0, y);
        for s in 0..states {
            let last = sliced(cx, &plain, &[(0, (self.steps + s) as i64, 1, 1)]).reshaped(&[d, b, h]);
            let last = if self.batch_first { cx.permute(last, &[1, 0, 2]) } else { last };
            cx.set(1 + s, last);
        }
        Ok(())
    }

    /// Parts of `[directions, n * hidden]` as parameters.
    fn parameter(&self, cx: &mut Lowering<'_>, i: usize, at: usize) -> Res<Lazy> {
        let part = self.rows(cx, i, at, 1)?;
        Ok(if part.inputs.is_empty() { part } else { cx.stored(part) })
    }
}

/// Writes the expressions of a layer; operands are numbered as [`Phase::updates`] says.
struct Writer<'a> {
    layer: &'a Layer,
    gates: usize,
    vectors: usize,
    parameters: usize,
    e: Expr,
}

impl Writer<'_> {
    fn operand(&mut self, i: usize) -> Val {
        // Kernels compute in f32 whatever is stored.
        self.e.input(i, DType::F32)
    }

    /// What inputs and recurrence say about a gate.
    fn sum(&mut self, gate: usize) -> Val {
        let (x, r) = (self.operand(gate), self.operand(self.gates + gate));
        self.e.binary(Binary::Add, x, r)
    }

    fn vector(&mut self, i: usize) -> Val {
        self.operand(2 * self.gates + i)
    }

    fn parameter(&mut self, i: usize) -> Val {
        self.operand(2 * self.gates + self.vectors + i)
    }

    fn result(&mut self, i: usize) -> Val {
        self.operand(2 * self.gates + self.vectors + self.parameters + i)
    }

    /// Activation `f` of a clipped value.
    fn activate(&mut self, f: usize, x: Val) -> Res<Val> {
        let mut x = x;
        if let Some(c) = self.layer.clip {
            let t = self.e.type_of(x);
            let (low, high) = (self.e.constant(t, -c), self.e.constant(t, c));
            x = self.e.binary(Binary::Max, x, low);
            x = self.e.binary(Binary::Min, x, high);
        }
        self.activate_free(f, x)
    }

    /// Activation `f` of a value as it is.
    fn activate_free(&mut self, f: usize, x: Val) -> Res<Val> {
        let y = self.layer.activations[f].apply(&mut self.e, x)?;
        let Some(back) = self.layer.other_activation(f) else { return Ok(y) };
        let z = back.apply(&mut self.e, x)?;
        let side = self.parameter(self.parameters - 1);
        let half = self.e.constant(self.e.type_of(side), 0.5);
        let forward = self.e.binary(Binary::Lt, side, half);
        Ok(self.e.select(forward, y, z))
    }

    fn add(&mut self, a: Val, b: Val) -> Val {
        self.e.binary(Binary::Add, a, b)
    }

    fn mul(&mut self, a: Val, b: Val) -> Val {
        self.e.binary(Binary::Mul, a, b)
    }

    /// `1 - a`
    fn rest(&mut self, a: Val) -> Val {
        let one = self.e.constant(self.e.type_of(a), 1.0);
        self.e.binary(Binary::Sub, one, a)
    }
}

impl Layer {
    fn expression(
        &self,
        gates: usize,
        vectors: usize,
        parameters: usize,
        f: impl FnOnce(&mut Writer<'_>) -> Res<Val>,
    ) -> Res<Expr> {
        let parameters = parameters + usize::from(self.is_split());
        let mut w = Writer { layer: self, gates, vectors, parameters, e: Expr::new() };
        let v = f(&mut w)?;
        Ok(w.e.finish(v))
    }
}

pub(super) fn rnn(cx: &mut Lowering<'_>) -> Res<()> {
    let l = layer(cx, 1, &["Tanh"])?;
    if l.steps == 0 {
        return l.without_steps(cx, 1);
    }
    let inputs = l.inputs(cx, 1, 1)?;
    let h = l.initial(cx, 5)?;
    let update = l.expression(1, 1, 0, |w| {
        let s = w.sum(0);
        w.activate(0, s)
    })?;
    let phases = vec![Phase { source: 0, gates: (0, 1), updates: vec![(0, update)] }];
    l.finish(cx, 1, inputs, vec![h], Vec::new(), 0, phases)
}

/// Gates `z` (update), `r` (reset), `h` (hidden).
pub(super) fn gru(cx: &mut Lowering<'_>) -> Res<()> {
    let l = layer(cx, 3, &["Sigmoid", "Tanh"])?;
    if l.steps == 0 {
        return l.without_steps(cx, 1);
    }
    let before = cx.int("linear_before_reset", 0)? != 0;
    // The recurrent bias of the hidden gate is inside of the reset where the product is.
    let inputs = l.inputs(cx, 3, if before { 2 } else { 3 })?;
    let h = l.initial(cx, 5)?;
    let blend = |w: &mut Writer<'_>, z: Val, new: Val| {
        let (h, rest) = (w.vector(0), w.rest(z));
        let (a, b) = (w.mul(rest, new), w.mul(z, h));
        w.add(a, b)
    };
    if before {
        let bias = cx.optional(3).map(|_| l.parameter(cx, 3, 5)).transpose()?;
        let count = usize::from(bias.is_some());
        let update = l.expression(3, 1, count, |w| {
            let (z, r) = (w.sum(0), w.sum(1));
            let (z, r) = (w.activate(0, z)?, w.activate(0, r)?);
            let mut product = w.operand(3 + 2);
            if count > 0 {
                let bias = w.parameter(0);
                product = w.add(product, bias);
            }
            let (x, part) = (w.operand(2), w.mul(r, product));
            let sum = w.add(x, part);
            let new = w.activate(1, sum)?;
            Ok(blend(w, z, new))
        })?;
        let phases = vec![Phase { source: 0, gates: (0, 3), updates: vec![(0, update)] }];
        return l.finish(cx, 3, inputs, vec![h], bias.into_iter().collect(), 0, phases);
    }
    // First the gates and the state as the reset lets it through, then the product with that.
    let z = l.expression(3, 3, 0, |w| {
        let z = w.sum(0);
        w.activate(0, z)
    })?;
    let reset = l.expression(3, 3, 0, |w| {
        let r = w.sum(1);
        let r = w.activate(0, r)?;
        let h = w.vector(0);
        Ok(w.mul(r, h))
    })?;
    let update = l.expression(3, 3, 0, |w| {
        let sum = w.sum(2);
        let new = w.activate(1, sum)?;
        let z = w.vector(1);
        Ok(blend(w, z, new))
    })?;
    let phases = vec![
        Phase { source: 0, gates: (0, 2), updates: vec![(1, z), (2, reset)] },
        Phase { source: 2, gates: (2, 1), updates: vec![(0, update)] },
    ];
    l.finish(cx, 3, inputs, vec![h], Vec::new(), 2, phases)
}

/// Gates `i` (input), `o` (output), `f` (forget), `c` (cell); states hidden and cell.
pub(super) fn lstm(cx: &mut Lowering<'_>) -> Res<()> {
    let l = layer(cx, 4, &["Sigmoid", "Tanh", "Tanh"])?;
    if l.steps == 0 {
        return l.without_steps(cx, 2);
    }
    let inputs = l.inputs(cx, 4, 4)?;
    let states = vec![l.initial(cx, 5)?, l.initial(cx, 6)?];
    let holes: Vec<Lazy> =
        if cx.optional(7).is_some() { (0..3).map(|i| l.parameter(cx, 7, i)).collect::<Res<_>>()? } else { Vec::new() };
    let coupled = cx.int("input_forget", 0)? != 0;
    let count = holes.len();
    // A gate sees the cell through its peephole.
    let gate = |w: &mut Writer<'_>, g: usize, hole: usize, cell: Val| {
        let mut s = w.sum(g);
        if count > 0 {
            let p = w.parameter(hole);
            let seen = w.mul(p, cell);
            s = w.add(s, seen);
        }
        w.activate(0, s)
    };
    let cell = l.expression(4, 2, count, |w| {
        let c = w.vector(1);
        let i = gate(w, 0, 0, c)?;
        let f = if coupled { w.rest(i) } else { gate(w, 2, 2, c)? };
        let new = w.sum(3);
        let new = w.activate(1, new)?;
        let (old, new) = (w.mul(f, c), w.mul(i, new));
        Ok(w.add(old, new))
    })?;
    let hidden = l.expression(4, 2, count, |w| {
        let c = w.result(0);
        let o = gate(w, 1, 1, c)?;
        let y = w.activate_free(2, c)?;
        Ok(w.mul(o, y))
    })?;
    let phases = vec![Phase { source: 0, gates: (0, 4), updates: vec![(1, cell), (0, hidden)] }];
    l.finish(cx, 4, inputs, states, holes, 0, phases)
}

// ---- rules ----

/// States of all steps, and the last ones.
pub(super) fn of_layer(cx: &mut Inference<'_>) -> Res<()> {
    let (x, r) = (cx.input(0)?, cx.input(2)?);
    let ([a, b, _], [d, _, hidden]) = (cx.dims(x), cx.dims(r)) else {
        let (x, r) = (described(cx.dims(x)), described(cx.dims(r)));
        return Err(Reason::Shape(format!("data of shape {x} and recurrent weights of shape {r}")));
    };
    let owned = |list: &[&Dim]| -> Vec<Dim> { list.iter().map(|d| (*d).clone()).collect() };
    let (all, last) = if cx.int("layout", 0)? != 0 {
        (owned(&[a, b, d, hidden]), owned(&[a, d, hidden]))
    } else {
        (owned(&[a, d, b, hidden]), owned(&[d, b, hidden]))
    };
    cx.give(0, cx.dtype(x), all)?;
    cx.give(1, cx.dtype(x), last.clone())?;
    cx.give(2, cx.dtype(x), last)
}
