//! Extents and inputs as people have them, on the command line.

use crate::model::{Message, file, int, ints, node, typed, value, weights};
use barewave::tensor::{DType, HostTensor, ImageOptions, load_npz, save};
use std::path::Path;
use std::process::Command;

const I32: i64 = 6;
const I64: i64 = 7;
const BF16: i64 = 16;

/// Runs the command: exit status, standard output and error.
fn barewave(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_barewave")).args(args).output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

fn works(args: &[&str]) -> String {
    let (code, _, err) = barewave(args);
    assert_eq!(code, 0, "{args:?}: {err}");
    err
}

fn fails(args: &[&str], words: &[&str]) {
    let (code, _, err) = barewave(args);
    assert!(code != 0 && !err.contains("panicked") && !err.contains("internal error"), "{args:?}: {err}");
    for w in words {
        assert!(err.contains(w), "{args:?} should mention '{w}': {err}");
    }
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }
    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }
    fn model(&self, bytes: Vec<u8>) -> String {
        std::fs::write(self.at("m.onnx"), bytes).unwrap();
        self.at("m.onnx")
    }
    fn array(&self, name: &str, t: &HostTensor) -> String {
        save(Path::new(&self.at(name)), &[("array", t)], &ImageOptions::default()).unwrap();
        format!("@{}", self.at(name))
    }
    fn outputs(&self, name: &str) -> HostTensor {
        load_npz(Path::new(&self.at(name))).unwrap().remove("y").unwrap()
    }
}

/// `y = x + x`.
fn twice(dims: &[&str]) -> Vec<u8> {
    file(&[node("Add", &["x", "x"], &["y"], &[])], &[value("x", dims)], &[value("y", dims)], &[])
}

fn numbers(shape: &[usize]) -> HostTensor {
    let n: usize = shape.iter().product();
    HostTensor::from_f32(shape, &(0..n).map(|i| i as f32).collect::<Vec<_>>())
}

#[test]
fn inputs_that_are_made_up_are_bounded() {
    let dir = Dir::new();
    let m = dir.model(twice(&["seq", "3"]));
    let run =
        ["run", &m, "--device", "emu:gfx1100", "--random-inputs", "--max-memory", "1G", "--dim", "seq=30000000000"];
    fails(&run, &["input 'x' needs 360000000000 bytes", "--max-memory"]);
}

#[test]
fn a_file_serves_the_extents_it_was_compiled_for() {
    let dir = Dir::new();
    let m = dir.model(twice(&["seq", "3"]));
    let all = dir.at("all.hsaco");
    let report = works(&["compile", &m, "--target", "gfx1100", "--dim", "seq=1,4,0", "-o", &all]);
    assert!(report.contains("1, 1, 0 launches of 2 kernels"), "{report}");
    for n in [4, 1, 0] {
        let x = dir.array("x.npy", &numbers(&[n, 3]));
        works(&["run", &all, "--input", &x, "--output", &dir.at("y.npz")]);
        let y = dir.outputs("y.npz");
        assert_eq!(y.shape(), [n, 3]);
        assert_eq!(y.to_f32(), numbers(&[n, 3]).to_f32().iter().map(|v| 2.0 * v).collect::<Vec<_>>());
    }
    works(&["run", &all, "--random-inputs", "--dim", "seq=4", "--output", &dir.at("y.npz")]);
    assert_eq!(dir.outputs("y.npz").shape(), [4, 3]);
    let x = dir.array("x.npy", &numbers(&[2, 3]));
    fails(&["run", &all, "--input", &x], &["not compiled for these extents", "x=4x3xf32 (seq = 4)"]);
    fails(&["run", &all, "--random-inputs", "--dim", "seq=7"], &["not compiled for these extents"]);
    fails(&["run", &m, "--random-inputs", "--dim", "seq=1,2"], &["one extent for each name"]);
    fails(&["compile", &m, "--target", "gfx1100", "--dim", "seq=1", "--dim", "seq=2"], &["seq", "given twice"]);
    fails(&["compile", &m, "--target", "gfx1100", "--dim", "seq=1,x"], &["NAME=N,N"]);
    fails(&["compile", &m, "--target", "gfx1100", "--dim", &format!("seq={}1", "1,".repeat(300))], &["combinations"]);
}

#[test]
fn dimensions_of_minus_one_are_open() {
    let dir = Dir::new();
    let m = dir.model(twice(&["-1", "3"]));
    let x = dir.array("x.npy", &numbers(&[2, 3]));
    works(&["run", &m, "--input", &x, "--output", &dir.at("y.npz")]);
    assert_eq!(dir.outputs("y.npz").shape(), [2, 3]);
    fails(&["run", &m, "--random-inputs"], &["--dim x[0]=N"]);
    let wrong = dir.array("x.npy", &numbers(&[2, 4]));
    fails(&["run", &m, "--input", &wrong], &["dimension 1 is 4, not 3"]);
}

#[test]
fn outputs_of_another_shape_than_declared_are_told() {
    let dir = Dir::new();
    let of = |x: &[&str], y: &[&str]| {
        let m = dir.model(file(&[node("Relu", &["x"], &["y"], &[])], &[value("x", x)], &[value("y", y)], &[]));
        works(&["run", &m, "--random-inputs"])
    };
    for (y, declared) in [(&["3"][..], "3xf32"), (&["2", "2"], "2x2xf32"), (&[], "f32")] {
        let told = of(&["4"], y);
        assert!(
            told.contains(&format!("output `y` is declared as {declared}, but the model computes 4xf32")),
            "{told}"
        );
    }
    for y in [&["4"][..], &["N"], &["?"]] {
        let told = of(&["4"], y);
        assert!(!told.contains("declared"), "{told}");
    }
}

#[test]
fn integers_of_another_type_are_converted_with_a_note() {
    let dir = Dir::new();
    let nodes = [node("Add", &["x", "x"], &["y"], &[])];
    let of = |t| file(&nodes, &[typed("x", t, &["n"])], &[typed("y", t, &["n"])], &[]);
    let m = dir.model(of(I64));
    let x = dir.array("x.npy", &HostTensor::from_i32(&[2], &[3, -4]));
    let note = works(&["run", &m, "--input", &x, "--output", &dir.at("y.npz")]);
    assert!(note.contains("note: input 'x' is i64; the i32 given for it were converted"), "{note}");
    assert_eq!(dir.outputs("y.npz"), HostTensor::from_i64(&[2], &[6, -8]));
    // Only where nothing is lost.
    let m = dir.model(of(I32));
    let x = dir.array("x.npy", &HostTensor::from_i64(&[1], &[1 << 40]));
    fails(&["run", &m, "--input", &x], &["`x` is i32[1], but i64[1] was given"]);
    let x = dir.array("x.npy", &numbers(&[1]));
    fails(&["run", &m, "--input", &x], &["`x` is i32[1], but f32[1] was given"]);
}

#[test]
fn types_that_npy_files_do_not_have_are_read_back() {
    let dir = Dir::new();
    let nodes = [node("Add", &["x", "x"], &["y"], &[])];
    let m = dir.model(file(&nodes, &[typed("x", BF16, &["n"])], &[typed("y", BF16, &["n"])], &[]));
    let x = dir.array("x.npy", &HostTensor::from_f64(DType::BF16, &[2], &[1.5, -4.0]));
    let note = works(&["run", &m, "--input", &x, "--output", &dir.at("y.npz")]);
    assert!(note.contains("note: input 'x' is bf16; the f32 given for it were converted"), "{note}");
    assert_eq!(dir.outputs("y.npz"), HostTensor::from_f32(&[2], &[3.0, -8.0]));
    let x = dir.array("x.npy", &HostTensor::from_f32(&[1], &[1.001]));
    fails(&["run", &m, "--input", &x], &["`x` is bf16[1], but f32[1] was given"]);
}

#[test]
fn inputs_with_a_default_are_what_is_given() {
    let dir = Dir::new();
    let add = [node("Add", &["x", "w"], &["y"], &[])];
    let inputs = [value("x", &["2"]), value("w", &["2"])];
    let m = dir.model(file(&add, &inputs, &[value("y", &["2"])], &[weights("w", &[2], &[10.0, 20.0])]));
    let x = format!("x={}", dir.array("x.npy", &HostTensor::from_f32(&[2], &[1.0, 2.0])));
    let w = format!("w={}", dir.array("w.npy", &HostTensor::from_f32(&[2], &[5.0, 6.0])));
    let out = dir.at("y.npz");
    works(&["run", &m, "--input", &x, "--output", &out]);
    assert_eq!(dir.outputs("y.npz").to_f32(), [11.0, 22.0]);
    works(&["run", &m, "--input", &x, "--input", &w, "--output", &out]);
    assert_eq!(dir.outputs("y.npz").to_f32(), [6.0, 8.0]);
    // An archive that has it.
    let [x, w] = [[1.0, 2.0], [0.5, 1.0]].map(|v| HostTensor::from_f32(&[2], &v));
    save(Path::new(&dir.at("all.npz")), &[("x", &x), ("w", &w)], &ImageOptions::default()).unwrap();
    works(&["run", &m, "--input", &format!("@{}", dir.at("all.npz")), "--output", &out]);
    assert_eq!(dir.outputs("y.npz").to_f32(), [1.5, 3.0]);
}

#[test]
fn functions_of_one_name_are_told_apart_by_their_overload() {
    let dir = Dir::new();
    let call = |to: &str, overload: &str| node("F", &["x"], &[to], &[]).text(7, "own").text(8, overload);
    let nodes = [call("a", "one"), call("b", "two"), node("Sub", &["a", "b"], &["y"], &[])];
    let function = |op: &str, overload: &str| {
        let named = Message::default().text(1, "F").text(4, "u").text(5, "v").message(7, node(op, &["u"], &["v"], &[]));
        named.message(9, Message::default().text(1, "").int(2, 20)).text(10, "own").text(13, overload)
    };
    let whole = Message(file(&nodes, &[value("x", &["2"])], &[value("y", &["2"])], &[]));
    let whole = whole.message(8, Message::default().text(1, "own").int(2, 1));
    let m = dir.model(whole.message(25, function("Neg", "one")).message(25, function("Abs", "two")).0);
    let x = dir.array("x.npy", &HostTensor::from_f32(&[2], &[1.0, -2.0]));
    works(&["run", &m, "--input", &x, "--output", &dir.at("y.npz")]);
    assert_eq!(dir.outputs("y.npz").to_f32(), [-2.0, 0.0]);
}

#[test]
fn values_that_decide_shapes_are_taken_from_the_inputs() {
    let dir = Dir::new();
    let nodes = [node("Reshape", &["x", "s"], &["r"], &[]), node("Add", &["r", "k"], &["y"], &[])];
    let inputs = [value("x", &["n"]), typed("s", I64, &["rank"]), value("k", &[])];
    let m = dir.model(file(&nodes, &inputs, &[value("y", &["a", "b"])], &[]));
    let x = dir.array("x.npy", &numbers(&[6]));
    // int32 for the shape; one number in brackets for the scalar.
    let s = dir.array("s.npy", &HostTensor::from_i32(&[2], &[-1, 2]));
    let k = dir.array("k.npy", &HostTensor::from_f32(&[1], &[10.0]));
    let inputs = ["--input", &format!("x={x}"), "--input", &format!("s={s}"), "--input", &format!("k={k}")];
    let out = dir.at("y.npz");
    let note = works(&[&["run", &m, "--output", &out][..], &inputs[..]].concat());
    assert!(note.contains("the value of input `s` decides shapes"), "{note}");
    let y = dir.outputs("y.npz");
    assert_eq!((y.shape(), y.to_f32()[5]), (&[3, 2][..], 15.0));
    // Without a value there is nothing to decide by.
    let hsaco = dir.at("m.hsaco");
    let dims = ["--dim", "n=6", "--dim", "rank=2"];
    fails(
        &[&["compile", &m, "--target", "gfx942", "-o", &hsaco][..], &dims[..]].concat(),
        &["(Reshape)", "(input 1) depends on the model's inputs"],
    );
}

#[test]
fn a_number_alone_is_of_the_type_of_the_input() {
    let dir = Dir::new();
    let nodes = [node("Reshape", &["x", "s"], &["r"], &[]), node("Add", &["r", "k"], &["y"], &[])];
    let inputs = [value("x", &["n"]), typed("s", I64, &["rank"]), value("k", &[])];
    let m = dir.model(file(&nodes, &inputs, &[value("y", &["m"])], &[]));
    let x = format!("x={}", dir.array("x.npy", &numbers(&[6])));
    let out = dir.at("y.npz");
    let run =
        |x: &str, s: &str, k: &str| barewave(&["run", &m, "--input", x, "--input", s, "--input", k, "--output", &out]);
    assert_eq!(run(&x, "s=6", "k=2.5").0, 0);
    let y = dir.outputs("y.npz");
    assert_eq!((y.shape(), y.to_f32()[5]), (&[6][..], 7.5));
    let (code, _, err) = run(&x, "s=6.5", "k=1");
    assert!(code == 1 && err.contains("input 's': 6.5 is no i64"), "{code} {err}");
    let m = dir.model(twice(&["4"]));
    fails(&["run", &m, "--input", "x=5"], &["input 'x' is 4xf32", "x=4xf32=NUMBER fills them all"]);
}

#[test]
fn an_output_that_is_listed_twice_is_written_once() {
    let dir = Dir::new();
    let outputs = [value("y", &["n"]), value("y", &["n"])];
    let m = dir.model(file(&[node("Neg", &["x"], &["y"], &[])], &[value("x", &["n"])], &outputs, &[]));
    let x = dir.array("x.npy", &numbers(&[6]));
    works(&["run", &m, "--input", &x, "--output", &dir.at("y.npz")]);
    assert_eq!(dir.outputs("y.npz").to_f32()[5], -5.0);
}

#[test]
fn everything_that_is_missing_is_told_at_once() {
    let dir = Dir::new();
    let nodes = [
        node("Frobnicate", &["x"], &["a"], &[]),
        node("Transmogrify", &["x"], &["b"], &[]),
        node("Transmogrify", &["x"], &["c"], &[]),
        node("Relu", &["x"], &["d"], &[int("sharp", 1)]),
    ];
    let out = |n: &str| value(n, &["3"]);
    let m = dir.model(file(&nodes, &[value("x", &["3"])], &["a", "b", "c", "d"].map(out), &[]));
    let words = ["Frobnicate: not supported", "Transmogrify: not supported", "2 times", "attribute `sharp`"];
    fails(&["run", &m, "--random-inputs"], &words);
    fails(&["compile", &m, "--target", "gfx942", "-o", &dir.at("m.hsaco")], &words);
}

/// A model that runs in stages, because what it computes decides its output's extent, reports as any other.
#[test]
fn staged_runs_report_as_others_do() {
    let nodes = [node("Relu", &["x"], &["r"], &[]), node("NonZero", &["r"], &["y"], &[])];
    let dir = Dir::new();
    let m = dir.model(file(&nodes, &[value("x", &["80", "70"])], &[typed("y", I64, &["2", "n"])], &[]));
    let run = |more: &[&str]| {
        let args = [&["run", &m, "--input", "80x70xf32=random:3", "--device", "emu:gfx1100"], more].concat();
        let (code, out, err) = barewave(&args);
        assert_eq!(code, 0, "{err}");
        out
    };
    let out = run(&["--top", "2", "--timing"]);
    for word in ["in stages", "wave instructions", "pointwise_0", "top 2:"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    let json: serde_json::Value = serde_json::from_str(&run(&["--json", "--top", "1", "--timing"])).unwrap();
    assert!(json["staged_ms"].as_f64().unwrap() > 0.0 && json["compile_ms"].is_null(), "{json}");
    assert_eq!(json["outputs"][0]["shape"][0], 2);
    assert_eq!(json["top"].as_array().unwrap().len(), 1);
    assert_eq!(json["launches"].as_array().unwrap().len() as u64, json["kernels"].as_u64().unwrap());
    assert!(json["launches"][0]["kernel"].is_string(), "{json}");
}

/// An archive for every model of a folder may hold nothing, for one that takes nothing.
#[test]
fn models_without_inputs_take_an_archive_of_nothing() {
    let dir = Dir::new();
    let nodes = [node("RandomNormal", &[], &["y"], &[ints("shape", &[2, 3])])];
    let m = dir.model(file(&nodes, &[], &[value("y", &["2", "3"])], &[]));
    // The end of an archive is all of it.
    std::fs::write(dir.at("empty.npz"), [&b"PK\x05\x06"[..], &[0; 18]].concat()).unwrap();
    let x = format!("@{}", dir.at("empty.npz"));
    works(&["run", &m, "--input", &x, "--output", &dir.at("y.npz")]);
    assert_eq!(dir.outputs("y.npz").shape(), [2, 3]);
    let m = dir.model(twice(&["2"]));
    fails(&["run", &m, "--input", &x], &["holds none of the model's inputs 'x'"]);
}
