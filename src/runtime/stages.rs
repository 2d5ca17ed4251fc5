//! Models that run in stages.
//!
//! Where a value that the model computes decides how the rest looks (how many elements a NonZero finds, which branch an If
//! takes), the part that computes the value is run, and the rest is compiled for what it was. Where the host has to work on
//! what is in strings, or a Loop goes round until something that it computes says otherwise, that stands between two parts
//! which do not depend on it, so that both are kept. The body of such a Loop is a model itself, of any shape: what it carries
//! may change its shape from round to round. ([`graph::cut`](crate::graph::cut()) makes the parts.)

use super::any_shape::{AnyShape, AnyShapeError};
use super::error::SessionError;
use super::session::RunReport;
use crate::compile;
use crate::graph::{self, Between, Cut, Reason};
use crate::onnx::{Graph, Model, ValueInfo};
use crate::tensor::{AsTensor, DType, HostTensor, Words};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A loop without a number of rounds is stopped after so many: it is taken for one that does not end.
const MOST_ROUNDS: i64 = 1 << 17;

/// What the rounds of a loop collect takes no more than this, as any tensor.
const MOST_BYTES: usize = 1 << 30;

type Run = Result<(Vec<HostTensor>, RunReport), AnyShapeError>;

/// A model that runs in stages.
pub struct Stages<'a> {
    any: &'a mut AnyShape,
    cut: Box<Cut>,
}

/// The parts of a model that is cut at one place, kept for the next run.
pub(super) struct Kept {
    /// The values that the model is cut at.
    at: Vec<String>,
    first: AnyShape,
    /// Of a Loop between the parts.
    body: Option<AnyShape>,
    /// Where it is the same for all values.
    rest: Option<AnyShape>,
}

impl<'a> Stages<'a> {
    pub(super) fn new(any: &'a mut AnyShape, cut: Cut) -> Stages<'a> {
        Stages { any, cut: Box::new(cut) }
    }

    /// Runs the model once, with the inputs that it was made ready for.
    pub fn run<T: AsTensor>(self, inputs: &[T]) -> Result<(Vec<HostTensor>, RunReport), AnyShapeError> {
        self.any.run_stages(*self.cut, inputs)
    }
}

impl AnyShape {
    /// A model for a part of this one.
    fn stage(&self, model: Model, most: usize) -> AnyShape {
        let mut stage = AnyShape::as_it_is(self.device.clone(), self.compiler.clone(), Arc::new(model), most);
        stage.timed = self.timed;
        stage.observer = self.observer.clone();
        stage
    }

    /// Runs the part in front of a cut, what is between, then the rest.
    fn run_stages<T: AsTensor>(&mut self, cut: Cut, inputs: &[T]) -> Run {
        let whole = self.model.clone();
        let given: BTreeMap<&str, &T> = whole.required_inputs().map(|v| v.name.as_str()).zip(inputs).collect();
        let pick = |model: &Model, made: &BTreeMap<String, HostTensor>| -> Result<Vec<HostTensor>, SessionError> {
            let find = |v: &ValueInfo| match (made.get(&v.name), given.get(v.name.as_str())) {
                (Some(t), _) => Ok(t.clone()),
                (None, Some(t)) => Ok(t.view().to_tensor()),
                (None, None) => Err(SessionError::InputCount {
                    expected: given.len() + 1,
                    names: v.name.clone(),
                    given: given.len(),
                }),
            };
            model.required_inputs().map(find).collect()
        };
        let mut kept = match self.kept.take() {
            Some(kept) if kept.at == cut.at() => kept,
            _ => {
                let first = self.stage(cut.first.clone(), self.most);
                Box::new(Kept { at: cut.at().to_vec(), first, body: None, rest: None })
            }
        };
        let (outputs, mut report) = kept.first.run_stage(&pick(&cut.first, &BTreeMap::new())?)?;
        let names = cut.first.graph.outputs.iter().map(|o| o.name.clone());
        let mut made: BTreeMap<String, HostTensor> = names.zip(outputs).collect();
        if let Some(between) = cut.between() {
            let (outputs, now) = match between.body() {
                Some(body) => self.run_loop(&mut kept.body, between, body, &made)?,
                None => (between.on_host(&made).map_err(compile::Error::from)?, RunReport::default()),
            };
            made.extend(between.node.outputs.iter().cloned().zip(outputs));
            report = report.then(now);
        }
        let fixed = cut.between().is_some();
        let (rest, made) = cut.rest(made);
        let values = pick(&rest, &made)?;
        let mut rest = match kept.rest.take() {
            Some(rest) if fixed => rest,
            _ => self.stage(rest, if fixed { self.most } else { 1 }),
        };
        let known = rest.compiled;
        let (outputs, now) = rest.run_stage(&values)?;
        self.compiled += rest.compiled - known;
        self.named = Some(rest.output_names());
        kept.rest = fixed.then_some(rest);
        self.kept = Some(kept);
        Ok((outputs, report.then(now)))
    }

    /// As [`AnyShape::run`]; a stage in which nothing is computed needs no device.
    fn run_stage(&mut self, inputs: &[HostTensor]) -> Run {
        let graph = &self.model.graph;
        let given: BTreeMap<&str, &HostTensor> =
            self.model.required_inputs().map(|v| v.name.as_str()).zip(inputs).collect();
        let value = |name: &str| given.get(name).copied().or_else(|| graph.initializers.get(name)).cloned();
        let passed = graph.outputs.iter().map(|o| value(&o.name)).collect::<Option<Vec<_>>>();
        match passed.filter(|_| graph.nodes.is_empty()) {
            Some(outputs) => Ok((outputs, RunReport::default())),
            None => self.run(inputs),
        }
    }

    /// Runs a Loop, round by round.
    fn run_loop(
        &mut self,
        kept: &mut Option<AnyShape>,
        between: &Between,
        body: &Graph,
        made: &BTreeMap<String, HostTensor>,
    ) -> Run {
        let refused = |reason| compile::Error::from(between.refused(reason));
        let mut inputs = between.inputs(made).into_iter();
        let first = |t: HostTensor| t.to_i64().first().copied();
        let most = inputs.next().flatten().and_then(first);
        let mut go = inputs.next().flatten().and_then(first).unwrap_or(1) != 0;
        let mut carried: Vec<HostTensor> = inputs.flatten().collect();
        let states = carried.len();
        if body.inputs.len() != states + 2 || body.outputs.len() < states + 1 {
            let what = format!("has {} inputs for {states} values", body.inputs.len());
            return Err(refused(Reason::Attribute { name: "body".into(), what }).into());
        }
        let outside: Vec<HostTensor> = between.captured.iter().filter_map(|n| made.get(n).cloned()).collect();
        let mut collected: Vec<Vec<HostTensor>> = vec![Vec::new(); body.outputs.len() - states - 1];
        let mut report = RunReport::default();
        let (mut round, mut bytes) = (0, 0usize);
        while go && most.is_none_or(|m| round < m) {
            if most.is_none() && round == MOST_ROUNDS {
                return Err(refused(Reason::Rounds(format!("it does not end within {MOST_ROUNDS} rounds"))).into());
            }
            let number = HostTensor::from_i64(&[], &[round]);
            let flag = HostTensor::from_ints(DType::Bool, &[], &[1]);
            let values: Vec<HostTensor> =
                [number, flag].into_iter().chain(std::mem::take(&mut carried)).chain(outside.iter().cloned()).collect();
            let stage = match kept {
                Some(stage) => stage,
                None => kept.insert(self.stage(body_model(&self.model, between, body, &values), self.most)),
            };
            let known = stage.compiled;
            let (outputs, now) = stage.run_stage(&values)?;
            self.compiled += stage.compiled - known;
            report = report.then(now);
            let mut outputs = outputs.into_iter();
            go = outputs.next().and_then(first).unwrap_or(0) != 0;
            carried = outputs.by_ref().take(states).collect();
            for (list, t) in collected.iter_mut().zip(outputs) {
                bytes = bytes.saturating_add(t.byte_len());
                list.push(t);
            }
            if bytes > MOST_BYTES {
                return Err(refused(Reason::Size(format!("what {round} rounds collect is too large"))).into());
            }
            round += 1;
        }
        let declared = &body.outputs[states + 1..];
        let stacks = collected.into_iter().zip(declared).map(|(list, info)| stack(&list, info).map_err(refused));
        carried.extend(stacks.collect::<Result<Vec<_>, _>>()?);
        Ok((carried, report))
    }
}

/// The body of a Loop as a model, whose inputs are its parameters and what it reads from outside.
fn body_model(whole: &Model, between: &Between, body: &Graph, values: &[HostTensor]) -> Model {
    let names = body.inputs.iter().map(|i| &i.name).chain(&between.captured);
    let info =
        |(name, t): (&String, &HostTensor)| ValueInfo { name: name.clone(), dtype: Some(t.dtype()), shape: None };
    let mut graph = body.clone();
    graph.inputs = names.zip(values).map(info).collect();
    for (name, t) in &between.constants {
        graph.initializers.entry(name.clone()).or_insert_with(|| t.clone());
    }
    // Parameters hide what has their names outside.
    graph.inputs.iter().for_each(|i| drop(graph.initializers.remove(&i.name)));
    Model { graph, opsets: whole.opsets.clone(), ..Model::default() }
}

/// What the rounds gave, one behind the other along a new dimension.
fn stack(list: &[HostTensor], declared: &ValueInfo) -> Result<HostTensor, Reason> {
    let Some(first) = list.first() else { return graph::nothing_collected(declared) };
    let (dtype, shape) = (first.dtype(), [&[list.len()], first.shape()].concat());
    if list.iter().any(|t| t.shape() != first.shape() || t.dtype() != dtype) {
        return Err(Reason::Shape(format!("what it collects as `{}` has another shape in each round", declared.name)));
    }
    let bytes: Vec<u8> = list.iter().flat_map(|t| t.bytes().iter().copied()).collect();
    let mut words = Words::default();
    list.iter()
        .filter_map(HostTensor::words)
        .try_for_each(|own| words.merge(own))
        .map_err(|e| Reason::Value(e.to_string()))?;
    Ok(HostTensor::new(dtype, &shape, bytes)?.with_words(Arc::new(words)))
}
