//! Models that run in stages: what they compute decides how they go on.

use crate::support::build::{Builder, int};
use barewave::onnx::{Attribute, Dim, Graph, Model, ValueInfo};
use barewave::runtime::{AnyShape, EmulatedDevice};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, compile, graph};
use barewave_isa::Target;
use std::collections::BTreeMap;
use std::sync::Arc;

fn stages(model: &Model, target: Target) -> AnyShape {
    let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let compiler = Compiler::new(target, compile::Options::default());
    AnyShape::new(device, compiler, Arc::new(model.clone()), 2)
}

/// Runs a model in stages on strict devices, each twice.
fn staged(model: &Model, inputs: &[HostTensor]) -> Vec<Vec<f64>> {
    let mut all = [Target::GFX906, Target::GFX1100].map(|target| {
        let mut stages = stages(model, target);
        let first = stages.run(inputs).unwrap().0;
        assert_eq!(stages.run(inputs).unwrap().0, first, "a second run gives the same");
        first.iter().map(HostTensor::to_f64).collect::<Vec<_>>()
    });
    assert_eq!(all[0], all[1]);
    std::mem::take(&mut all[0])
}

/// The nodes that were added since there were `from`, as a graph.
fn subgraph(b: &mut Builder, from: usize, inputs: &[(&str, DType)], outputs: &[&str]) -> Attribute {
    let info = |name: &str, dtype| ValueInfo { name: name.into(), dtype, shape: None };
    Attribute::Graph(Box::new(Graph {
        nodes: b.model.graph.nodes.split_off(from),
        inputs: inputs.iter().map(|(n, t)| info(n, Some(*t))).collect(),
        outputs: outputs.iter().map(|n| info(n, None)).collect(),
        ..Graph::default()
    }))
}

fn scalar(b: &mut Builder, value: f32) -> String {
    b.constant(HostTensor::from_f32(&[], &[value]))
}

/// Any number of elements.
fn open(b: &mut Builder) {
    b.model.graph.inputs.iter_mut().for_each(|i| i.shape = Some(vec![Dim::Symbol("n".into())]));
}

#[test]
fn a_loop_goes_on_until_what_it_computes_says_otherwise() {
    let mut b = Builder::new(21, 1);
    let x = b.input_of(HostTensor::from_f32(&[3], &[1.0, 2.0, 3.0]));
    let (two, limit) = (scalar(&mut b, 2.0), scalar(&mut b, 100.0));
    let r = b.node("Relu", &[&x], &[]);
    let from = b.model.graph.nodes.len();
    let double = b.node("Mul", &["state", &two], &[]);
    let sum = b.node("ReduceSum", &[&double], &[("keepdims", int(0))]);
    let go = b.node("Less", &[&sum, &limit], &[]);
    let kept = b.node("Add", &[&double, &x], &[]);
    let parameters = [("round", DType::I64), ("go", DType::Bool), ("state", DType::F32)];
    let body = subgraph(&mut b, from, &parameters, &[&go, &double, &kept]);
    let y = b.node_n("Loop", &["", "", &r], &[("body", body)], 2);
    let last = b.node("Neg", &[&y[0]], &[]);
    [&last, &y[1]].iter().for_each(|o| b.output(o));
    open(&mut b);
    let got = staged(&b.model, &b.inputs);
    assert_eq!(got[0], [-32.0, -64.0, -96.0]);
    assert_eq!(got[1][..6], [3.0, 6.0, 9.0, 5.0, 10.0, 15.0]);
    assert_eq!(got[1].len(), 15);
    // More rounds of the same shapes compile nothing.
    let mut any = stages(&b.model, Target::GFX942);
    let mut run = |x: f32| any.run(&[HostTensor::from_f32(&[3], &[x; 3])]).unwrap().0[0].to_f64();
    assert_eq!(run(4.0), [-64.0; 3]);
    assert_eq!(run(0.25), [-64.0; 3]);
    assert_eq!(any.compiled(), 3, "front, body and rest");
}

#[test]
fn what_a_loop_carries_may_grow() {
    let mut b = Builder::new(21, 2);
    let x = b.input_of(HostTensor::from_f32(&[2], &[1.0, 2.0]));
    let limit = scalar(&mut b, 10.0);
    let from = b.model.graph.nodes.len();
    let longer = b.node("Concat", &["state", &x], &[("axis", int(0))]);
    let sum = b.node("ReduceSum", &[&longer], &[("keepdims", int(0))]);
    let go = b.node("Less", &[&sum, &limit], &[]);
    let parameters = [("round", DType::I64), ("go", DType::Bool), ("state", DType::F32)];
    let body = subgraph(&mut b, from, &parameters, &[&go, &longer]);
    let y = b.node("Loop", &["", "", &x], &[("body", body)]);
    b.output(&y);
    open(&mut b);
    assert_eq!(staged(&b.model, &b.inputs)[0], [1.0, 2.0].repeat(4));
}

#[test]
fn an_if_may_hold_what_only_a_run_tells() {
    let mut b = Builder::new(21, 3);
    let x = b.input_of(HostTensor::from_f32(&[4], &[1.0, 0.0, -3.0, 5.0]));
    let (two, zero) = (scalar(&mut b, 2.0), scalar(&mut b, 0.0));
    let sum = b.node("ReduceSum", &[&x], &[("keepdims", int(0))]);
    let positive = b.node("Greater", &[&sum, &zero], &[]);
    let from = b.model.graph.nodes.len();
    let places = b.node("NonZero", &[&x], &[]);
    let turned = b.node("Transpose", &[&places], &[]);
    let found = b.node("GatherND", &[&x, &turned], &[]);
    let then = subgraph(&mut b, from, &[], &[&found]);
    let doubled = b.node("Mul", &[&x, &two], &[]);
    let other = subgraph(&mut b, from, &[], &[&doubled]);
    let taken = b.node("If", &[&positive], &[("then_branch", then), ("else_branch", other)]);
    let y = b.node("Add", &[&taken, &two], &[]);
    b.output(&y);
    open(&mut b);
    assert_eq!(staged(&b.model, &b.inputs)[0], [3.0, -1.0, 7.0]);
    let negative = [HostTensor::from_f32(&[3], &[1.0, 0.0, -3.0])];
    assert_eq!(staged(&b.model, &negative)[0], [4.0, 2.0, -4.0]);
}

#[test]
fn what_the_model_finds_decides_how_it_goes_on() {
    // The elements of relu(x) that are not zero, and their number's double.
    let mut b = Builder::new(17, 21);
    let x = b.input(&[80, 70]);
    let r = b.node("Relu", &[&x], &[]);
    let places = b.node("NonZero", &[&r], &[]);
    let turned = b.node("Transpose", &[&places], &[]);
    let found = b.node("GatherND", &[&r, &turned], &[]);
    let two = b.constant(HostTensor::from_f32(&[], &[2.0]));
    let y = b.node("Mul", &[&found, &two], &[]);
    let all = b.node("ReduceMean", &[&r], &[("keepdims", int(0))]);
    [y, all].iter().for_each(|o| b.output(o));
    let got = staged(&b.model, &b.inputs);
    let data = b.inputs[0].to_f64();
    let want: Vec<f64> = data.iter().filter(|v| **v > 0.0).map(|v| v * 2.0).collect();
    assert_eq!(got[0], want);
    let mean = want.iter().sum::<f64>() / 2.0 / data.len() as f64;
    assert!((got[1][0] - mean).abs() < 1e-5 * mean);
}

#[test]
fn what_waits_for_a_run_counts_as_compiling() {
    // A new shape that an earlier node computes; behind it an operator that there is, or one that there is not.
    for (op, complete) in [("Softmax", true), ("Fourier", false)] {
        let mut b = Builder::new(17, 5);
        let (x, s) = (b.input(&[3, 4]), b.input_of(HostTensor::from_i64(&[2], &[2, 6])));
        let r = b.node("Reshape", &[&x, &s], &[]);
        let y = b.node(op, &[&r], &[]);
        b.output(&y);
        let compiler = Compiler::new(Target::GFX942, compile::Options::default());
        let support = compiler.supports(&b.model, &barewave::graph::Options::default()).unwrap();
        assert_eq!(support.is_complete(), complete, "{support}");
        assert!(support.to_string().contains("when the model runs"), "{support}");
    }
}

#[test]
fn what_is_found_of_each_class_is_found_at_once() {
    // What is above 0, 0.1, 0.2, and then what of each is above twice as much.
    let mut b = Builder::new(17, 3);
    let x = b.input(&[90]);
    let mut want = Vec::new();
    for class in 0..3 {
        let mut found = x.clone();
        for times in [1.0, 2.0] {
            let least = scalar(&mut b, class as f32 * 0.1 * times);
            let above = b.node("Greater", &[&found, &least], &[]);
            let places = b.node("NonZero", &[&above], &[]);
            let turned = b.node("Transpose", &[&places], &[]);
            found = b.node("GatherND", &[&found, &turned], &[]);
        }
        b.output(&found);
        let least = f64::from(class as f32 * 0.1 * 2.0);
        want.push(b.inputs[0].to_f64().into_iter().filter(|v| *v > least).collect::<Vec<_>>());
    }
    assert_eq!(staged(&b.model, &b.inputs), want);
    // Three are known first, three behind them, and then all is.
    let (mut model, mut parts) = (b.model.clone(), 0);
    let mut made = BTreeMap::from([(x.clone(), b.inputs[0].clone())]);
    while let Some(cut) = graph::cut(&model, &graph::Options::default()).unwrap() {
        assert_eq!(cut.at().len(), 3);
        let mut first = stages(&cut.first, Target::GFX942);
        let inputs: Vec<HostTensor> = first.inputs().map(|i| made[&i.name].clone()).collect();
        let outputs = first.run(&inputs).unwrap().0;
        made.extend(cut.first.graph.outputs.iter().map(|o| o.name.clone()).zip(outputs));
        let rest = cut.rest(made);
        (model, made) = (rest.0, rest.1);
        made.insert(x.clone(), b.inputs[0].clone());
        parts += 1;
    }
    assert_eq!(parts, 2);
}
