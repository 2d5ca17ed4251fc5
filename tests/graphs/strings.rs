//! Strings: as codes on the device, as texts on the host between stages, in compiled files.

use crate::support::build::{Builder, int, ints, text};
use barewave::compile::{Compiled, KernelCache};
use barewave::onnx::{Attribute, Dim, Model, ValueInfo};
use barewave::runtime::{AnyShape, EmulatedDevice, Session};
use barewave::tensor::{DType, HostTensor};
use barewave::{Compiler, Shapes, compile};
use barewave_isa::Target;
use std::sync::Arc;

const TARGETS: [Target; 2] = [Target::GFX906, Target::GFX1100];

fn strings(list: &[&str]) -> HostTensor {
    HostTensor::from_texts(&[list.len()], list.iter().copied()).unwrap()
}

/// A string input of any length.
fn input(b: &mut Builder, name: &str) -> String {
    let shape = Some(vec![Dim::Symbol("n".into())]);
    b.model.graph.inputs.push(ValueInfo { name: name.into(), dtype: Some(DType::Str), shape });
    name.into()
}

fn compiler(target: Target) -> Compiler {
    let cache = Arc::new(KernelCache::in_memory());
    Compiler::new(target, compile::Options { cache, ..Default::default() })
}

/// Outputs of a model that is ready for anything, and how often it was compiled.
fn run(model: &Model, target: Target, given: &[&[&str]]) -> (Vec<Vec<HostTensor>>, usize) {
    let device = Arc::new(EmulatedDevice::new(target, true).unwrap());
    let mut any = AnyShape::new(device, compiler(target), Arc::new(model.clone()), 4);
    let outputs = given.iter().map(|list| any.run(&[strings(list)]).unwrap().0).collect();
    (outputs, any.compiled())
}

#[test]
fn what_moves_and_compares_strings_runs_on_the_device() {
    let mut b = Builder::new(21, 1);
    let x = input(&mut b, "x");
    let other = b.constant(strings(&["zero"]));
    let hit = b.node("Equal", &[&x, &other], &[]);
    let name = b.constant(HostTensor::from_texts(&[], ["größer"]).unwrap());
    let y = b.node("Where", &[&hit, &name, &x], &[]);
    let twice = b.node("Concat", &[&y, &x], &[("axis", int(0))]);
    let keys = ["one", "größer"].map(str::to_string).to_vec();
    let keys = [("keys_strings", Attribute::Texts(keys)), ("values_int64s", ints(&[1 << 60, 7]))];
    let numbers = b.node("LabelEncoder", &[&y], &keys);
    b.model.graph.nodes.iter_mut().filter(|n| n.op == "LabelEncoder").for_each(|n| n.domain = "ai.onnx.ml".into());
    [&twice, &numbers].iter().for_each(|o| b.output(o));
    for target in TARGETS {
        let shapes = Shapes { dims: [("n".to_string(), 3)].into(), ..Shapes::default() };
        let compiled = compiler(target).compile(&b.model, &shapes).unwrap();
        // A compiled file holds the model's own strings.
        let mut file = Vec::new();
        compiled.write_to(barewave::codeobj::Abi::V5, &mut file).unwrap();
        let loaded = Compiled::from_bytes(file.into(), "strings.hsaco".as_ref()).unwrap();
        let mut session = Session::new(Arc::new(EmulatedDevice::new(target, true).unwrap()), &loaded).unwrap();
        let got = session.run(&[strings(&["zero", "one", ""])]).unwrap().0;
        assert_eq!(got[0].texts().unwrap(), ["größer", "one", "", "zero", "one", ""]);
        assert_eq!(got[1].to_i64(), [7, 1 << 60, -1]);
    }
}

#[test]
fn what_reads_strings_runs_between_stages_that_are_compiled_once() {
    let mut b = Builder::new(21, 2);
    let x = input(&mut b, "x");
    let parts = b.node_n("StringSplit", &[&x], &[("delimiter", text("-"))], 2);
    let end = b.constant(strings(&["!"]));
    let loud = b.node("StringConcat", &[&parts[0], &end], &[]);
    let hits = b.node("RegexFullMatch", &[&loud], &[("pattern", text("[a-c]+!"))]);
    let hits = b.node("Cast", &[&hits], &[("to", int(1))]);
    let counts = b.node("Cast", &[&parts[1]], &[("to", int(1))]);
    let sum = b.node("ReduceSum", &[&hits], &[("keepdims", int(0))]);
    let y = b.node("Mul", &[&counts, &sum], &[]);
    let written = b.node("Cast", &[&y], &[("to", int(8))]);
    [&loud, &y, &written].iter().for_each(|o| b.output(o));
    for target in TARGETS {
        let (got, compiled) = run(&b.model, target, &[&["ab-x", "c"], &["b-y", "a"], &["q-r", "s"]]);
        assert_eq!(got[0][0].texts().unwrap(), ["ab!", "x!", "c!", "!"]);
        assert_eq!((got[0][1].to_f64(), got[1][1].to_f64()), (vec![4.0, 2.0], vec![4.0, 2.0]));
        assert_eq!(got[2][2].texts().unwrap(), ["0", "0"]);
        let (_, once) = run(&b.model, target, &[&["ab-x", "c"]]);
        assert_eq!(compiled, once, "other strings of these shapes compile nothing");
    }
}

#[test]
fn strings_that_cannot_be_are_refused() {
    let refused = |build: &dyn Fn(&mut Builder, &str) -> String, words: &[&str]| {
        let mut b = Builder::new(21, 3);
        let x = input(&mut b, "x");
        let y = build(&mut b, &x);
        b.output(&y);
        let device = Arc::new(EmulatedDevice::new(Target::GFX942, true).unwrap());
        let mut any = AnyShape::new(device, compiler(Target::GFX942), Arc::new(b.model.clone()), 1);
        let e = any.run(&[strings(&["a", "b"])]).unwrap_err().to_string();
        assert!(words.iter().all(|w| e.contains(w)), "{words:?}: {e}");
    };
    refused(&|b, x| b.node("Add", &[x, x], &[]), &["Add", "input 0 holds strings"]);
    refused(&|b, x| b.node("Cast", &[x], &[("to", int(7))]), &["Cast", "\"a\" is not a number of type i64"]);
    refused(&|b, x| b.node("RegexFullMatch", &[x], &[("pattern", text("("))]), &["pattern", "`(`"]);
    let mut b = Builder::new(21, 4);
    let x = input(&mut b, "x");
    let y = b.node("StringConcat", &[&x, &x], &[]);
    b.output(&y);
    let shapes = Shapes { dims: [("n".to_string(), 3)].into(), ..Shapes::default() };
    let e = compiler(Target::GFX942).compile(&b.model, &shapes).unwrap_err().to_string();
    assert!(e.contains("run the ONNX file itself"), "{e}");
}
