//! What models compute of constants alone and is large is computed once, before they are compiled.

use crate::support::agree::{close, finish};
use crate::support::apart;
use crate::support::build::{Builder, int, ints};
use barewave::graph::{Options as Extents, fuse};
use barewave::onnx::{Attribute, Dim, Model};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Options};
use barewave_isa::Target;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Matrices of more than 65,536 elements.
const SIZE: usize = 300;

fn settled(model: &Model, target: Target) -> Cow<'_, Model> {
    Compiler::new(target, Options::default()).settle(model)
}

/// The kinds of the steps that are left of a model, which computes what it computed before.
fn steps(b: &Builder, what: &str, extents: &Extents) -> Vec<&'static str> {
    let want = apart::outputs(&b.model, &b.inputs).unwrap();
    let mut kinds = Vec::new();
    for target in [Target::GFX906, Target::GFX1100] {
        let model = settled(&b.model, target);
        let got = apart::outputs(&model, &b.inputs).unwrap();
        want.iter().zip(&got).for_each(|(w, g)| close(&g.to_f64(), &w.to_f64(), 1e-5, what));
        kinds = fuse(&model, extents).unwrap().steps.iter().map(|s| s.kind.name()).collect();
    }
    kinds
}

/// A product with what `of` makes of weights.
fn product(of: impl FnOnce(&mut Builder) -> String) -> Builder {
    let mut b = Builder::new(18, 7);
    let x = b.input(&[4, SIZE]);
    let w = of(&mut b);
    let y = b.node("MatMul", &[&x, &w], &[]);
    finish(&mut b, "", &[y]);
    b
}

#[test]
fn weights_that_are_computed_of_weights_are_constants() {
    let standardised = product(|b| {
        let (w, gain, first) = (b.weight(&[SIZE, SIZE]), b.weight(&[SIZE]), b.ints(&[0]));
        let mean = b.node("ReduceMean", &[&w, &first], &[]);
        let centred = b.node("Sub", &[&w, &mean], &[]);
        let scaled = b.node("Mul", &[&centred, &gain], &[]);
        b.node("Transpose", &[&scaled], &[("perm", ints(&[1, 0]))])
    });
    assert_eq!(steps(&standardised, "standardised", &Extents::default()), ["matmul"]);
    let merged = product(|b| {
        let (w, a, c) = (b.weight(&[SIZE, SIZE]), b.weight(&[SIZE, 8]), b.weight(&[8, SIZE]));
        let low = b.node("MatMul", &[&a, &c], &[]);
        b.node("Add", &[&w, &low], &[])
    });
    assert_eq!(steps(&merged, "merged", &Extents::default()), ["matmul"]);
}

#[test]
fn tables_are_put_together_once_also_where_declared_extents_make_them() {
    let mut b = Builder::new(18, 8);
    let x = b.input(&[2, SIZE, SIZE]);
    let shape = b.node("Shape", &[&x], &[]);
    let (one, places) = (b.ints(&[1]), b.constant(HostTensor::from_ints(DType::I64, &[2, 1], &[5, 7])));
    let n = b.node("Gather", &[&shape, &one], &[("axis", int(0))]);
    let square = b.node("Concat", &[&n, &n], &[("axis", int(0))]);
    let zero = Attribute::Tensor(HostTensor::from_f32(&[1], &[0.0]));
    let table = b.node("ConstantOfShape", &[&square], &[("value", zero)]);
    let rows = b.weight(&[2, SIZE]);
    let table = b.node("ScatterND", &[&table, &places, &rows], &[]);
    let y = b.node("Add", &[&x, &table], &[]);
    finish(&mut b, "", &[y]);
    b.model.graph.inputs[0].shape.as_mut().unwrap()[0] = Dim::Symbol("batch".into());
    let extents = Extents { dims: BTreeMap::from([("batch".to_string(), 2)]), ..Extents::default() };
    assert_eq!(steps(&b, "table", &extents), ["pointwise"]);
}

#[test]
fn what_grows_or_is_drawn_or_costs_nothing_stays() {
    let narrow = |b: &mut Builder| {
        let w = b.constant(HostTensor::from_ints(DType::I8, &[SIZE, SIZE], &vec![3; SIZE * SIZE]));
        let scale = b.constant(HostTensor::from_f32(&[], &[0.5]));
        b.node("DequantizeLinear", &[&w, &scale], &[])
    };
    let halves = |b: &mut Builder| {
        let w = b.constant(HostTensor::from_f64(DType::F16, &[SIZE, SIZE], &vec![0.5; SIZE * SIZE]));
        b.node("Cast", &[&w], &[("to", int(1))])
    };
    let turned = |b: &mut Builder| {
        let w = b.weight(&[SIZE, SIZE]);
        b.node("Transpose", &[&w], &[("perm", ints(&[1, 0]))])
    };
    let drawn = |b: &mut Builder| {
        let noise = b.node("RandomNormal", &[], &[("shape", ints(&[SIZE, SIZE]))]);
        let w = b.weight(&[SIZE, SIZE]);
        b.node("Add", &[&w, &noise], &[])
    };
    let small = |b: &mut Builder| {
        let (w, v) = (b.weight(&[SIZE, 4]), b.weight(&[4]));
        b.node("Add", &[&w, &v], &[])
    };
    for b in [product(narrow), product(halves), product(turned), product(drawn), product(small)] {
        assert!(matches!(settled(&b.model, Target::GFX906), Cow::Borrowed(_)), "{:?}", b.model.graph.nodes);
    }
}
