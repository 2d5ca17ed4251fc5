//! The cycle model as users and scripts see it: `launch --cycles`, `bench`, `bench validate`.

use crate::model::{file, int, ints, node, typed, value};
use pretty_assertions::assert_eq;
use serde_json::Value;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn barewave(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_barewave")).args(args).current_dir(ROOT).output().unwrap()
}

pub(crate) fn works(args: &[&str]) -> String {
    let out = barewave(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&works(args)).unwrap()
}

fn fails(args: &[&str], code: i32, words: &[&str]) {
    let out = barewave(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(!err.contains("panicked"), "{args:?}: {err}");
    for w in words {
        assert!(err.contains(w), "{args:?} should mention '{w}': {err}");
    }
}

/// A code object from assembly, in a directory of its own.
fn assembled(dir: &tempfile::TempDir, target: &str, body: &str) -> String {
    let source = format!(
        "\t.amdgcn_target \"amdgcn-amd-amdhsa--{target}\"\n\t.text\n\t.globl k\n\t.p2align 8\n\t.type k,@function\nk:\n{body}\n\
         \t.rodata\n\t.p2align 6\n\t.amdhsa_kernel k\n\t.amdhsa_next_free_vgpr 16\n\t.amdhsa_next_free_sgpr 16\n\
         \t.amdhsa_accum_offset 16\n\t.end_amdhsa_kernel\n\
         \t.amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n  - .name: k\n    .symbol: k.kd\n    .kernarg_segment_size: 0\n\
         \x20   .group_segment_fixed_size: 0\n    .private_segment_fixed_size: 0\n    .kernarg_segment_align: 8\n    .wavefront_size: 64\n\
         \x20   .sgpr_count: 16\n    .vgpr_count: 16\n    .max_flat_workgroup_size: 256\n...\n\t.end_amdgpu_metadata\n"
    );
    let (from, to) = (dir.path().join("k.s"), dir.path().join("k.hsaco"));
    std::fs::write(&from, source).unwrap();
    works(&["asm", from.to_str().unwrap(), "--target", target, "-o", to.to_str().unwrap()]);
    to.to_str().unwrap().to_string()
}

/// Kernels in which a workgroup enters a loop several times, and some others: leaving rounds out changes their time by 2% at most.
#[test]
fn the_first_rounds_of_loops_stand_for_all() {
    for (family, shape, dtype, target) in [
        ("gemm", "4096x4096x1024", "f32", "gfx90a"),
        // Waves of two workgroups share a SIMD's matrix unit: they take turns for some rounds before the pace is theirs.
        ("gemm", "4096x4096x4096", "f32", "gfx942"),
        ("gemm", "2048x2048x512", "f32", "gfx1030"),
        ("gemm", "2048x4096x512", "f32", "gfx1100"),
        ("gemm", "2048x1024x1000", "f16", "gfx942"),
        ("gemm", "1x4096x4096", "f16", "gfx1100"),
        ("conv", "4x64x28x28:64x3x3", "f16", "gfx1201"),
        ("attention", "1x8x512x64", "f16", "gfx942"),
        ("reduce", "64x16384", "f32", "gfx906"),
    ] {
        let args = ["bench", family, "--target", target, "--shape", shape, "--dtype", dtype, "--json"];
        let cycles = |more: &[&str]| json(&[&args[..], more].concat())[0]["cycles"].as_f64().unwrap();
        let (shortened, whole) = (cycles(&[]), cycles(&["--whole-loops"]));
        assert!((shortened / whole - 1.0).abs() < 0.02, "{args:?}: {shortened}, and {whole} with all rounds");
    }
}

/// A product whose rounds are too many to simulate all of them has no figures, where a sum over no launches would be some.
#[test]
fn what_is_not_modelled_has_no_figures() {
    let args = ["bench", "gemm", "--target", "gfx1100", "--shape", "4096x4096x4096", "--whole-loops"];
    let out = barewave(&args);
    assert!(String::from_utf8_lossy(&out.stderr).contains("too irregular for the cycle model"));
    let row = String::from_utf8_lossy(&out.stdout).lines().last().unwrap_or_default().to_string();
    let figures: Vec<&str> = row.split_whitespace().skip(1).take(6).collect();
    assert_eq!(figures, ["-"; 6], "{row}");
    let json = &json(&[&args[..], &["--json"]].concat())[0];
    assert_eq!(
        (&json["microseconds"], &json["share_of_peak"], &json["not_modelled"]),
        (&Value::Null, &Value::Null, &1.into())
    );
}

#[test]
fn a_loop_takes_what_its_instructions_take() {
    let dir = tempfile::tempdir().unwrap();
    // 1000 rounds of ten dependent multiply-adds of four clocks.
    let body = "\ts_movk_i32 s0, 1000\n\tv_mov_b32 v1, 0\n.Lloop:\n".to_string()
        + &"\tv_fma_f32 v1, v1, v1, v1\n".repeat(10)
        + "\ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n\ts_cbranch_scc1 .Lloop\n\ts_endpgm";
    let code = assembled(&dir, "gfx90a", &body);
    let out = json(&["launch", &code, "--kernel", "k", "--grid", "1", "--block", "64", "--cycles", "--json"]);
    let m = &out["modelled"];
    let clocks = m["cycles"].as_f64().unwrap();
    // Ten multiply-adds, two scalar instructions and a taken branch: 40 + 8 + 16 clocks a round.
    assert!((55_000.0..75_000.0).contains(&clocks), "{m:#}");
    assert_eq!(m["instructions_per_wave"].as_f64().unwrap().round(), 13_003.0);
    assert_eq!(
        (&m["validated"], &m["bound"]),
        (&Value::Bool(true), &Value::from("tail")),
        "one wave on 110 compute units"
    );
    // The same twice as often on each SIMD: the vector ALU is shared.
    let full = json(&["launch", &code, "--kernel", "k", "--grid", "220", "--block", "256", "--cycles", "--json"]);
    let full = &full["modelled"];
    assert!(full["busy"]["valu"].as_f64().unwrap() > 0.9, "{full:#}");
    assert!(full["cycles"].as_f64().unwrap() > 1.2 * clocks, "{full:#}");
}

#[test]
fn kernels_that_do_not_end_or_fault_end_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let code = assembled(&dir, "gfx90a", ".Lloop:\n\ts_branch .Lloop\n\ts_endpgm");
    let args =
        ["launch", &code, "--kernel", "k", "--grid", "1", "--block", "64", "--cycles", "--max-instructions", "100000"];
    fails(&args, 1, &["instructions"]);
}

#[test]
fn bench_models_kernels_of_every_family() {
    let list = json(&["bench", "gemm", "--target", "mi300x", "--shape", "512x512x512", "--json"]);
    let gemm = &list[0];
    assert!(gemm["share_of_peak"].as_f64().unwrap() < 1.0 && gemm["microseconds"].as_f64().unwrap() > 1.0, "{gemm:#}");
    assert_eq!(gemm["not_modelled"], 0);
    for (family, shape) in [
        ("conv", "1x16x14x14:32x3x3:1:1"),
        ("attention", "1x2x64x32"),
        ("elementwise", "1024x1024"),
        ("reduce", "512x512"),
    ] {
        let list = json(&["bench", family, "--target", "gfx1030", "--shape", shape, "--json"]);
        assert!(list[0]["cycles"].as_f64().unwrap() > 0.0, "{family}: {list:#}");
        assert_eq!(list[0]["not_modelled"], 0, "{family}: {list:#}");
    }
    let text = works(&["bench", "model", "examples/digits/digits.onnx", "--target", "gfx1201"]);
    assert!(text.contains("(not validated)"), "{text}");
}

#[test]
fn bench_model_tells_runs_behind_each_other_and_what_is_not_for_a_compiled_model() {
    let digits = "examples/digits/digits.onnx";
    let text = works(&["bench", "model", digits, "--target", "gfx1100", "--explain"]);
    assert!(text.contains("right behind another run") && text.contains("chosen by estimate: tile"), "{text}");
    let run = json(&["bench", "model", digits, "--target", "gfx1100", "--levels", "never", "--json"]);
    let of = |name: &str| run[name].as_f64().unwrap();
    assert!(of("microseconds_again") <= of("microseconds"), "{run:#}");
    // Each launch reads what the one before it wrote.
    let dram = |i: usize| run["launches"][i]["modelled"]["traffic"]["dram"].as_f64().unwrap();
    assert!(dram(1) == 0.0 && dram(0) > 0.0, "{run:#}");
    // Half as many bytes of weights.
    let all = ["bench", "model", digits, "--target", "gfx1100", "--levels", "never", "--json"];
    let half = json(&[&all[..], &["--dtype", "f16"]].concat());
    let moved = |run: &Value| {
        run["launches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l["modelled"]["traffic"]["dram"].as_f64().unwrap())
            .sum::<f64>()
    };
    assert!(moved(&half) < 0.75 * moved(&run), "{half:#}");
    let dir = tempfile::tempdir().unwrap();
    let compiled = dir.path().join("digits.hsaco");
    let compiled = compiled.to_str().unwrap();
    works(&["compile", digits, "--target", "gfx1100", "-o", compiled]);
    works(&["bench", "model", compiled, "--target", "gfx1100"]);
    fails(&["bench", "model", compiled, "--target", "gfx906"], 2, &["was compiled for gfx1100"]);
    fails(&["bench", "model", compiled, "--dim", "N=4"], 2, &["for ONNX files"]);
    fails(&["bench", "model", compiled, "--dtype", "f16"], 2, &["for ONNX files"]);
    fails(&["bench", "model", digits, "--target", "gfx1100", "--measured", "t.csv"], 2, &["bench gemm"]);
    let beside = ["bench", "model", digits, "--target", "gfx1100", "--against", compiled];
    assert!(works(&beside).ends_with("our time over its time: 1.00\n"));
}

/// Of many products of few rows no row is read but their own.
#[test]
fn rows_of_the_next_product_stay_in_memory() {
    for (target, layout) in [("gfx1100", "NN"), ("gfx1030", "NT")] {
        let shape = ["--shape", "32x3x8x50257", "--layout", layout];
        let list = json(&[&["bench", "gemm", "--target", target, "--json"], &shape[..]].concat());
        let read = list[0]["launches"][0]["modelled"]["traffic"]["dram"].as_f64().unwrap();
        let operands = 32.0 * (3.0 + 8.0) * 50257.0 * 4.0;
        assert!(read < 1.3 * operands, "{read} of {operands} on {target}");
    }
}

/// Keys and values come as scalars where no matrix instruction takes the type: memory that is read like other memory.
#[test]
fn scalar_loads_of_data_are_traffic() {
    for target in ["gfx906", "gfx1030", "gfx1100"] {
        let list = json(&["bench", "attention", "--target", target, "--shape", "1x8x2048x64", "--json"]);
        let launches = list[0]["launches"].as_array().unwrap();
        assert_eq!(launches.len(), 1, "{target}: {list:#}");
        let of = |level: &str| launches[0]["modelled"]["traffic"][level].as_f64().unwrap();
        // Queries, keys, values and results, once; keys and values for each wave of queries.
        let each = 8.0 * 2048.0 * 64.0 * 4.0;
        assert!((of("footprint") / (4.0 * each) - 1.0).abs() < 0.1, "{} on {target}", of("footprint"));
        assert!(of("l2") > 32.0 * 2.0 * each * 0.9, "{} on {target}", of("l2"));
    }
}

/// An ONNX file and its name.
fn written(dir: &tempfile::TempDir, name: &str, bytes: Vec<u8>) -> String {
    std::fs::write(dir.path().join(name), bytes).unwrap();
    dir.path().join(name).to_str().unwrap().to_string()
}

/// The first workgroups of a pooling begin at the upper edge of an image, where windows have a row less.
#[test]
fn workgroups_at_an_edge_do_not_stand_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = [
        node("Transpose", &["x"], &["planes"], &[ints("perm", &[0, 3, 1, 2])]),
        node(
            "MaxPool",
            &["planes"],
            &["pooled"],
            &[ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])],
        ),
        node("Transpose", &["pooled"], &["y"], &[ints("perm", &[0, 2, 3, 1])]),
    ];
    let [x, y] = [value("x", &["16", "112", "112", "64"]), value("y", &["16", "56", "56", "64"])];
    let path = written(&dir, "pool.onnx", file(&nodes, &[x], &[y], &[]));
    for target in ["gfx906", "gfx942", "gfx1100"] {
        let run = json(&["bench", "model", &path, "--target", target, "--json"]);
        let launches = run["launches"].as_array().unwrap();
        let touched: f64 = launches.iter().map(|l| l["modelled"]["traffic"]["footprint"].as_f64().unwrap()).sum();
        let bytes = 16.0 * 64.0 * (112.0 * 112.0 + 56.0 * 56.0) * 4.0;
        assert_eq!(launches.len(), 1, "{target}: {run:#}");
        assert!((touched / bytes - 1.0).abs() < 0.02, "{touched} of {bytes} bytes on {target}");
    }
}

/// What results are made of beside a line that workitems hold is not waited for chunk by chunk.
#[test]
fn operands_beside_held_lines_come_together() {
    let dir = tempfile::tempdir().unwrap();
    let extents = ["4", "25087"];
    let x = || value("x", &extents);
    let plain = file(&[node("Softmax", &["x"], &["y"], &[])], &[x()], &[value("y", &extents)], &[]);
    let more = [
        node("Softmax", &["x"], &["s"], &[]),
        node("Mul", &["s", "w"], &["m"], &[]),
        node("Add", &["m", "b"], &["y"], &[]),
    ];
    let inputs = [x(), value("w", &extents), value("b", &extents)];
    let more = file(&more, &inputs, &[value("y", &extents)], &[]);
    let paths = [written(&dir, "plain.onnx", plain), written(&dir, "more.onnx", more)];
    for target in ["gfx906", "gfx942", "gfx950"] {
        let [plain, more] = paths.each_ref().map(|path| {
            let run = json(&["bench", "model", path, "--target", target, "--json"]);
            assert_eq!(run["launches"].as_array().unwrap().len(), 1, "{target}: {run:#}");
            run["microseconds"].as_f64().unwrap()
        });
        assert!(more < 1.5 * plain, "{more} us with other operands, {plain} without, on {target}");
    }
}

#[test]
fn bench_model_takes_a_file_of_extents() {
    let dir = tempfile::tempdir().unwrap();
    let twice =
        file(&[node("Add", &["x", "x"], &["y"], &[])], &[value("x", &["n", "m"])], &[value("y", &["n", "m"])], &[]);
    let model = written(&dir, "twice.onnx", twice);
    let csv = |text: &str| written(&dir, "shapes.csv", text.as_bytes().to_vec());
    let run = |shapes: &str| ["bench", "model", &model, "--target", "gfx942", "--shapes", shapes].map(String::from);
    let all = csv("n,m\n64,1024\n# more\n4096, 4096\n");
    let args = run(&all);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--json"]).collect();
    let list = json(&args);
    let us: Vec<f64> = list.as_array().unwrap().iter().map(|r| r["microseconds"].as_f64().unwrap()).collect();
    assert!(us.len() == 2 && us[1] > 3.0 * us[0] && list[1]["shape"] == "n=4096 m=4096", "{list:#}");
    for (text, word) in [("n,m\n1,2\n3\n", "line 3"), ("n,m\n", "no line with extents"), ("n,m\n1,x\n", "line 2")] {
        let args = run(&csv(text));
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), 1, &[word]);
    }
}

#[test]
fn gathers_are_modelled_with_places_all_over_the_table() {
    const I64: i64 = 7;
    let dir = tempfile::tempdir().unwrap();
    // Rows of a kilobyte, as many as the table has: of these 1 - 1/e come up. And a row whose elements are drawn from one another.
    for (axis, table, indices, out, footprint) in [
        (0, ["65536", "256"], "65536", ["65536", "256"], 65536.0 * 1024.0 * (1.0 + 0.632) + 524288.0),
        (1, ["4096", "4096"], "4096", ["4096", "4096"], 4096.0 * 4096.0 * 4.0 * 2.0),
    ] {
        let inputs = [value("x", &table), typed("i", I64, &[indices])];
        let gather =
            file(&[node("Gather", &["x", "i"], &["y"], &[int("axis", axis)])], &inputs, &[value("y", &out)], &[]);
        let path = written(&dir, "gather.onnx", gather);
        for target in ["gfx906", "gfx942", "gfx1100", "gfx1201"] {
            let run = json(&["bench", "model", &path, "--target", target, "--json"]);
            let touched = run["launches"][0]["modelled"]["traffic"]["footprint"].as_f64().unwrap();
            assert!((touched / footprint - 1.0).abs() < 0.1, "axis {axis} on {target}: {touched} for {footprint}");
        }
    }
}

#[test]
fn bench_puts_measured_times_and_peers_beside_ours() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("gemm.csv");
    let header = "gfx,layout,dtype,out,compute,M,N,B,K,value,unit,MT0,MT1,DU,MI,WG,TT,GSU,LSU,PGR,PLR,VW,GRVW";
    // Column by column: the transposed B of a table is our transposed A, and its rows are our columns.
    let row =
        "gfx90a,NT,f16,f32,f32,256,128,1,512,10,pct,64,64,32,\"[32, 32, 8, 1]\",\"[64, 4, 1]\",\"[1, 32]\",1,1,1,1,2,2";
    std::fs::write(&table, format!("{header}\n{row}\n")).unwrap();
    let bench =
        |rest: &[&str]| json(&[&["bench", "gemm", "--target", "gfx90a", "--dtype", "f16", "--json"], rest].concat());
    let list =
        bench(&["--shape", "128x256x512", "--layout", "nn", "--layout", "TN", "--measured", table.to_str().unwrap()]);
    assert_eq!((&list[0]["shape"], &list[0]["vendor"]), (&Value::from("128x256x512 NN"), &Value::Null));
    // 10% of 1024 operations a clock on 110 compute units at 1700 MHz.
    let measured = 2.0 * 128.0 * 256.0 * 512.0 / (0.1 * 1024.0 * 110.0) / 1700.0;
    let vendor = &list[1]["vendor"];
    assert!((vendor["microseconds"].as_f64().unwrap() - measured).abs() < 1e-6 * measured, "{vendor:#} {measured}");
    assert!(vendor["over_ours"].as_f64().unwrap() > 0.0 && vendor["chip"] == "gfx90a", "{vendor:#}");
    let candidates = list[0]["candidates"].as_array().unwrap();
    assert!(
        candidates.len() == 4 && candidates[0]["cycles"].as_f64() <= candidates[3]["cycles"].as_f64(),
        "{candidates:?}"
    );

    // Our own kernel as the peer takes what it takes.
    let add = dir.path().join("add.hsaco");
    let add = add.to_str().unwrap();
    works(&["compile", "examples/vector_add/vector_add.onnx", "--target", "gfx90a", "-o", add]);
    let kernels =
        json(&["compile", "examples/vector_add/vector_add.onnx", "--target", "gfx90a", "--stats", "--json", "-o", add]);
    let kernel = kernels[0]["kernel"].as_str().unwrap();
    let mut args =
        vec!["bench", "elementwise", "--target", "gfx90a", "--shape", "1024", "--against", add, "--kernel", kernel];
    args.extend([
        "--grid",
        "1",
        "--block",
        "256",
        "--arg",
        "in:1024xf32=0",
        "--arg",
        "in:1024xf32=0",
        "--arg",
        "out:1024xf32",
    ]);
    let text = works(&args);
    assert!(text.contains("by the same model") && text.contains("our time over its time: "), "{text}");
    fails(&["bench", "gemm", "--target", "gfx90a", "--shape", "8x8x8", "--against", add], 2, &["--kernel"]);
    fails(&[&args[..], &["--shape", "7"]].concat(), 2, &["one shape"]);
    args[8] = "--kernel";
    args[9] = "none";
    fails(&args, 1, &["no kernel 'none'"]);
    let reduce = ["bench", "reduce", "--target", "gfx90a", "--shape", "8x8"];
    fails(&[&reduce[..], &["--layout", "TN"]].concat(), 2, &["--layout"]);
    fails(&[&reduce[..], &["--measured", table.to_str().unwrap()]].concat(), 2, &["--measured"]);
}

#[test]
fn integer_products_are_measured_against_integer_peaks() {
    for (target, layout) in [("gfx906", "NN"), ("gfx942", "TT"), ("gfx1030", "NT")] {
        let list = json(&[
            "bench",
            "gemm",
            "--target",
            target,
            "--shape",
            "2x256x256x256",
            "--dtype",
            "i8",
            "--layout",
            layout,
            "--json",
        ]);
        let share = list[0]["share_of_peak"].as_f64().unwrap();
        assert!(share > 0.0 && share < 1.0, "{target}: {list:#}");
        assert_eq!(list[0]["not_modelled"], 0, "{target}: {list:#}");
    }
}

#[test]
fn large_elementwise_kernels_are_bound_by_memory() {
    let list = json(&["bench", "elementwise", "--target", "gfx906", "--shape", "8192x8192", "--json"]);
    assert_eq!(list[0]["bound"], "dram", "{list:#}");
    // Three tensors of 256 MiB at no more than 1024 GB/s.
    assert!(list[0]["microseconds"].as_f64().unwrap() > 786.0, "{list:#}");
}

#[test]
fn no_product_is_above_the_peak() {
    for (target, dtype) in
        [("gfx90a", "f32"), ("gfx950", "f32"), ("gfx906", "f64"), ("gfx1030", "f64"), ("gfx942", "f16")]
    {
        let shape = if dtype == "f64" { "512x512x512" } else { "4096x4096x4096" };
        let list = json(&["bench", "gemm", "--target", target, "--shape", shape, "--dtype", dtype, "--json"]);
        let share = list[0]["share_of_peak"].as_f64().unwrap();
        assert!((0.3..=1.0).contains(&share), "{target} {dtype}: {share}");
    }
}

#[test]
fn wrong_use_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shapes.csv");
    let shapes = |text: &str| {
        std::fs::write(&file, text).unwrap();
        ["bench", "gemm", "--target", "gfx906", "--shapes", file.to_str().unwrap(), "--json"].map(String::from)
    };
    let words = shapes("shape,what\n\n# small\n64x64x64,first\nbad\n");
    fails(&words.each_ref().map(String::as_str), 1, &["shapes.csv", "line 5", "'bad' is no shape"]);
    let words = shapes("shape,what\n\n# small\n64x64x64,first\n32x32x32\n");
    assert_eq!(json(&words.each_ref().map(String::as_str)).as_array().map(Vec::len), Some(2));
    fails(&["bench", "gemm", "--target", "gfx942"], 2, &["--shape"]);
    fails(&["bench", "gemm", "--target", "gfx942", "--shape", "12xq"], 2, &["MxNxK"]);
    fails(&["bench", "gemm", "--target", "gfx77", "--shape", "1x1x1"], 2, &["gfx77"]);
    fails(&["bench", "gemm", "--target", "gfx942", "--shape", "8x8x8", "--dtype", "f12"], 2, &["f12"]);
    fails(&["bench", "conv", "--target", "gfx942", "--shape", "1x1x4x4:1x9x9"], 2, &["NxCxHxW"]);
    fails(&["bench", "validate"], 2, &["--gemm"]);
    fails(&["bench", "validate", "--gemm", "no/such/file.csv"], 1, &["no/such/file.csv"]);
    fails(&["bench", "validate", "--gemm", "table.csv.xz"], 1, &["xz -dk table.csv.xz"]);
    fails(&["bench", "validate", "--traces", "src"], 1, &["sqtt"]);
    fails(&["bench", "validate", "--llvm-mca", "no/such/tool"], 1, &["no/such/tool", "cannot be run"]);
}

#[test]
fn a_table_of_measured_products_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gemm.csv");
    let header = "gfx,layout,dtype,out,compute,M,N,B,K,value,unit,MT0,MT1,DU,MI,WG,TT,GSU,LSU,PGR,PLR,VW,GRVW";
    let row =
        "gfx1030,NN,f32,f32,f32,8448,48000,1,2816,94.381,pct,128,128,8,[],\"[16, 8, 1]\",\"[8, 16]\",1,1,true,true,4,4";
    std::fs::write(&path, format!("{header}\n{row}\n")).unwrap();
    let list = json(&["bench", "validate", "--gemm", path.to_str().unwrap(), "--ours", "0", "--json"]);
    assert_eq!((&list[0]["chip"], &list[0]["bucket"]), (&Value::from("gfx1030"), &Value::from("over2")));
    assert!(list[0]["median"].as_f64().unwrap() < 0.1, "{list:#}");
    // Of rows in two halves one is judged by the other.
    let rows: Vec<String> = (1..40).map(|i| row.replace("8448", &(128 * i).to_string())).collect();
    std::fs::write(&path, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
    let held_out =
        json(&["bench", "validate", "--gemm", path.to_str().unwrap(), "--ours", "0", "--held-out", "--json"]);
    let of = |kind: &str| held_out.as_array().unwrap().iter().filter(|e| e["kind"] == kind).collect::<Vec<_>>();
    let judged: u64 = of("gemm").iter().map(|e| e["rows"].as_u64().unwrap()).sum();
    assert!((10..30).contains(&judged), "{held_out:#}");
    // The nearest rows of the same kernel tell it too; nothing contradicts.
    assert!(of("gemm").iter().all(|e| e["nearest_median"].as_f64().unwrap() < 0.5), "{held_out:#}");
    assert_eq!(of("gemm")[0]["contradictions"]["too_quick"], 0, "{held_out:#}");
    // A list of groups, and of nothing else.
    assert!(held_out.as_array().unwrap().iter().all(|e| e["bucket"].is_string() && e["p90"].is_f64()), "{held_out:#}");
    std::fs::write(&path, format!("{header}\ngfx1030,NN\n")).unwrap();
    fails(&["bench", "validate", "--gemm", path.to_str().unwrap()], 1, &["line 2", "2 cells"]);
}

#[test]
fn convolutions_are_compared_by_the_solver_that_won() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conv.csv");
    let header = "db,dims,C,H,W,kernel,K,N,pad,stride,dil,layout,dtype,groups,best_solver,best_ms,igemm_ms,winograd_ms";
    let row = |channels: usize, solver: &str, ms: f64| {
        format!("gfx906_60.HIP,2d,{channels},56,56,1x1,256,16,0x0,1x1,1x1,NCHW,FP32,1,{solver},{ms},,\n")
    };
    let rows: Vec<String> = (1..9).map(|i| row(64 * i, "ConvAsm1x1U", 0.2 * i as f64)).collect();
    std::fs::write(&path, format!("{header}\n{}{}", rows.concat(), row(64, "ConvOclDirectFwd", 9.0))).unwrap();
    let list = json(&["bench", "validate", "--conv", path.to_str().unwrap(), "--ours", "0", "--json"]);
    let groups: Vec<Value> = list.as_array().unwrap().clone();
    let of = |dtype: &'static str| groups.iter().filter(move |e| e["dtype"] == dtype);
    let counted: u64 = of("f32").map(|e| e["rows"].as_u64().unwrap()).sum();
    assert_eq!(counted, 8, "{list:#}");
    assert!(of("f32").all(|e| e["not_modelled"]["ConvOclDirectFwd"] == 1), "{list:#}");
    assert!(of("f32 asm 1x1").all(|e| e["median"].as_f64().unwrap() < 0.5), "{list:#}");
    let text = works(&["bench", "validate", "--conv", path.to_str().unwrap(), "--ours", "0"]);
    assert!(text.contains("not modelled, rows won on gfx906_60.HIP, f32: ConvOclDirectFwd 1"), "{text}");
}

#[test]
fn compile_and_run_tell_modelled_times() {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("digits.hsaco");
    let code = code.to_str().unwrap();
    let digits = "examples/digits/digits.onnx";
    let table = works(&["compile", digits, "--target", "gfx1100", "--stats", "-o", code]);
    for w in ["bound", "of peak", "us by the cycle model", "% of the peak"] {
        assert!(table.contains(w), "{w}: {table}");
    }
    let list = json(&["compile", digits, "--target", "gfx1201", "--stats", "--json", "-o", code]);
    for k in list.as_array().unwrap() {
        assert!(k["modelled"]["microseconds"].as_f64().unwrap() > 0.0, "{k:#}");
        assert_eq!(k["modelled"]["validated"], false);
    }
    let text = works(&["run", code, "--random-inputs", "--timing"]);
    assert!(text.contains("modelled") && text.contains("(not validated)"), "{text}");
}

#[test]
fn listings_show_where_hot_loops_wait() {
    let dir = tempfile::tempdir().unwrap();
    let body = "\ts_movk_i32 s0, 100\n.Lloop:\n\tds_read_b32 v2, v0\n\ts_waitcnt lgkmcnt(0)\n\tv_add_f32 v1, v1, v2\n\
                \ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n\ts_cbranch_scc1 .Lloop\n\ts_endpgm";
    let code = assembled(&dir, "gfx90a", body);
    let text = works(&["disasm", &code, "--cycles"]);
    assert!(text.contains("round of ") && text.contains(" lds"), "{text}");
    let line = text.lines().find(|l| l.contains("v_add_f32") || l.contains("s_waitcnt")).unwrap();
    assert!(line.contains("// "), "{text}");
    // Only the loop has remarks.
    assert!(!text.lines().any(|l| l.contains("s_endpgm") && l.contains("//")), "{text}");
    fails(&["disasm", &code, "--cycles", "--full"], 2, &["--full"]);
    // What a round leaves out is said.
    assert!(!text.contains("left out") && !text.contains("not taken"), "{text}");
    let body = "\ts_movk_i32 s0, 100\n.Lloop:\n\tv_add_f32 v1, v1, v2\n\t.long 0xffffffff\n\ts_cbranch_vccz .Lover\n\ts_swappc_b64 s[2:3], s[4:5]\n\
                .Lover:\n\ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n\ts_cbranch_scc1 .Lloop\n\ts_endpgm";
    let text = works(&["disasm", &assembled(&dir, "gfx90a", body), "--cycles"]);
    for w in ["unknown instructions are left out", "called code is left out", "branches inside are not taken"] {
        assert!(text.contains(w), "{w}: {text}");
    }
}

#[test]
fn launches_that_differ_are_not_silent() {
    let dir = tempfile::tempdir().unwrap();
    let run = |body: &str| {
        let code = assembled(&dir, "gfx90a", body);
        works(&["launch", &code, "--kernel", "k", "--grid", "8", "--block", "64", "--cycles"])
    };
    // As many rounds as the workgroup's number says, and one.
    let rounds = "\ts_add_u32 s0, s0, 1\n.Lloop:\n\tv_add_f32 v1, v1, v2\n\ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n\ts_cbranch_scc1 .Lloop\n\ts_endpgm";
    let text = run(rounds);
    assert!(
        text.contains("approximated: workgroups count by the clocks of the instructions that they execute"),
        "{text}"
    );
    let vector = "\tv_mov_b32 v1, 4\n.Lloop:\n\tv_add_u32 v1, -1, v1\n\tv_cmp_ne_u32 vcc, 0, v1\n\ts_cbranch_vccnz .Lloop\n\ts_endpgm";
    let text = run(vector);
    assert!(text.contains("approximated: a loop ends when vector instructions say so"), "{text}");
    assert!(!text.contains("count by"), "{text}");
    let text = run(
        "\ts_movk_i32 s0, 4\n.Lloop:\n\ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n\ts_cbranch_scc1 .Lloop\n\ts_endpgm",
    );
    assert!(!text.contains("approximated"), "{text}");
    // The code says that it is for up to 256 workitems.
    let code = assembled(&dir, "gfx90a", "\ts_endpgm");
    let note = |block: &str| {
        let out = barewave(&["launch", &code, "--kernel", "k", "--grid", "8", "--block", block, "--cycles"]);
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(note("64").contains("64 workitems are modelled; k is for up to 256") && !note("256").contains("note"));
}

/// Workgroups that go through memory side by side in steps that it tells: each of its bytes is read once, as many rounds of a loop as are recorded of each.
#[test]
fn steps_that_memory_tells_are_no_places() {
    let dir = tempfile::tempdir().unwrap();
    let body = "\ts_getpc_b64 s[4:5]\n.Lhere:\n\ts_add_u32 s4, s4, .Ldata-.Lhere\n\ts_addc_u32 s5, s5, 0\n\ts_lshl_b32 s1, s0, 8\n\
                \tv_lshl_add_u32 v3, v0, 2, s1\n\ts_movk_i32 s6, 256\n.Lloop:\n\tglobal_load_dword v4, v3, s[4:5]\n\ts_waitcnt vmcnt(0)\n\
                \tv_and_b32 v5, 0, v4\n\tv_add_u32 v3, v3, v5\n\tv_add_u32 v3, 0x800, v3\n\ts_sub_u32 s6, s6, 1\n\ts_cmp_lg_u32 s6, 0\n\
                \ts_cbranch_scc1 .Lloop\n\ts_endpgm\n\t.p2align 8\n.Ldata:\n\t.zero 524288";
    let code = assembled(&dir, "gfx90a", body);
    let list = json(&["launch", &code, "--kernel", "k", "--grid", "8", "--block", "64", "--cycles", "--json"]);
    assert_eq!(list["modelled"]["traffic"]["footprint"], 524288.0, "{list:#}");
}

/// What data decides is recorded again in full, from the same memory.
#[test]
fn counters_count_once_where_data_decides() {
    let dir = tempfile::tempdir().unwrap();
    let count = |decides: &str| {
        // As many rounds as the counter behind the code says, and one.
        let body = format!(
            "\ts_getpc_b64 s[4:5]\n.Lhere:\n\ts_mov_b64 exec, 1\n\tv_mov_b32 v2, 0\n\tv_mov_b32 v3, 40\n\
             \tglobal_atomic_add v4, v2, v3, s[4:5] offset:.Lcounter-.Lhere glc\n\tglobal_load_dword v5, v2, s[4:5]\n\
             \ts_waitcnt vmcnt(0)\n\tv_readfirstlane_b32 s0, v4\n\tv_readfirstlane_b32 s1, {decides}\n\
             \ts_cmp_eq_u32 s1, -1\n\ts_cbranch_scc1 .Lend\n\ts_add_u32 s0, s0, 1\n.Lloop:\n\tv_add_f32 v1, v1, v2\n\
             \ts_sub_u32 s0, s0, 1\n\ts_cmp_lg_u32 s0, 0\n\ts_cbranch_scc1 .Lloop\n.Lend:\n\ts_endpgm\n.Lcounter:\n\t.long 0"
        );
        let code = assembled(&dir, "gfx90a", &body);
        let list = json(&["launch", &code, "--kernel", "k", "--grid", "1", "--block", "64", "--cycles", "--json"]);
        list["modelled"]["instructions_per_wave"].as_f64().unwrap()
    };
    assert_eq!(count("v5"), count("v3"));
}

#[test]
fn instructions_take_what_the_tables_say() {
    let list = json(&["ubench", "--target", "gfx90a", "v_fma_f32", "v_exp_f32", "v_mfma_f32_32x32x8f16", "--json"]);
    for i in list["instructions"].as_array().unwrap() {
        let near = |found: &Value, table: &Value| {
            let (a, b) = (found.as_f64().unwrap(), table.as_f64().unwrap());
            assert!((a - b).abs() <= 0.05 * b, "{i:#}");
        };
        near(&i["busy"], &i["table"]["busy"]);
        near(&i["latency"], &i["table"]["latency"]);
    }
}

#[test]
fn ladders_conflicts_and_pairs_are_what_the_model_has() {
    let of = |target: &str| {
        let list = json(&["ubench", "--target", target, "--all", "--json"]);
        move |what: &str| {
            let found = list["figures"].as_array().unwrap().iter().find(|f| f["what"].as_str().unwrap().contains(what));
            found.unwrap_or_else(|| panic!("{what}: {list:#}"))["value"].as_f64().unwrap()
        }
    };
    for target in ["gfx942", "gfx1100"] {
        let figure = of(target);
        let walked = ["4 KiB", "128 KiB", "512 KiB", "32768 KiB"].map(|w| figure(&format!("load, {w} walked")));
        // First level, L2 twice, and the memory-side cache.
        assert!(walked[0] + 50.0 < walked[1] && walked[1] == walked[2] && walked[2] + 50.0 < walked[3], "{walked:?}");
        let [narrow, wide] = ["4", "8"].map(|b| figure(&format!("LDS read of {b} bytes a lane, stride 1")));
        assert!((wide / narrow - 2.0).abs() < 0.1, "{target}: {narrow} {wide}");
    }
    // In the shadow of a matrix instruction of 16 passes.
    let pair = of("gfx942")("v_mfma_f32_32x32x1_2b_f32 + v_add_f32");
    assert!((64.0..=68.0).contains(&pair), "{pair}");
    let text = works(&["ubench", "--target", "gfx908", "--all"]);
    assert!(text.contains("v_mfma_f32_32x32x1f32 "), "{text}");
}

#[test]
fn a_card_contributes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("card.csv");
    let file = file.to_str().unwrap();
    for target in ["gfx803", "gfx908", "gfx942", "gfx1030", "gfx1201"] {
        let text = works(&["ubench", "--target", target, "--all", "-o", file]);
        for w in ["LDS latency", "dependent load", "launch", "v_add_f32"] {
            assert!(text.contains(w), "{target}: {w}: {text}");
        }
        // The model's own figures are those of the tables.
        assert_eq!(works(&["isa", "latency", "import", file]), "0 cells would change\n", "{target}");
    }
    // A file that cannot be written is found before the work.
    let nowhere = dir.path().join("none/card.csv");
    fails(
        &["ubench", "--target", "gfx942", "--all", "-o", nowhere.to_str().unwrap()],
        1,
        &["cannot write", "card.csv"],
    );
    let run = ["run", "examples/digits/digits.onnx", "--random-inputs", "--profile"];
    fails(&[&run[..], &[nowhere.with_extension("html").to_str().unwrap()]].concat(), 1, &["error: cannot write"]);
    std::fs::write(file, "class,gfx942\nvalu,5/4 m\n").unwrap();
    let change = &json(&["isa", "latency", "import", file, "--json"])[0];
    assert_eq!((&change["class"], &change["to"][0], &change["from"][0]), (&Value::from("valu"), &5.into(), &4.into()));
    std::fs::write(file, "class,gfx942\nvalu,five m\n").unwrap();
    fails(&["isa", "latency", "import", file], 1, &["line 2", "five"]);
    // The same kernels on a device: its clock counts instructions, but all of it runs.
    let text = works(&["ubench", "--device", "emu:gfx1100", "--all", "-o", file]);
    assert!(text.starts_with("gfx1100 on emu:gfx1100 (emulated"), "{text}");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("# an emulated device: no measurement\n") && !text.contains(" m\n"), "{text}");
    fails(&["ubench", "--target", "gfx942", "v_nonsense"], 2, &["v_nonsense"]);
    fails(&["ubench", "--target", "gfx942"], 2, &["--all"]);
    fails(&["ubench", "v_add_f32"], 2, &["--target"]);
    fails(&["ubench", "--target", "gfx942", "s_branch"], 2, &["no loop can be generated"]);
}

/// A run as a Chrome trace and as a page.
#[test]
fn profiles_show_every_launch() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (trace, page) = (file("run.json"), file("run.html"));
    let run = |profile: &str| {
        let input = "examples/digits/7.png";
        works(&[
            "run",
            "examples/digits/digits.onnx",
            "--device",
            "emu:gfx1100",
            "--input",
            input,
            "--profile",
            profile,
            "--levels",
            "never",
        ])
    };
    assert!(run(&trace).contains(&trace));
    let events: Value = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap().clone();
    for row in [1, 2] {
        let launches: Vec<&Value> =
            events.iter().filter(|e| e["ph"] == "X" && e["pid"] == 1 && e["tid"] == row).collect();
        assert_eq!(launches.len(), 6);
        for pair in launches.windows(2) {
            let end = pair[0]["ts"].as_f64().unwrap() + pair[0]["dur"].as_f64().unwrap();
            assert!((pair[1]["ts"].as_f64().unwrap() - end).abs() < 1e-6, "one after the other");
        }
        assert_eq!(launches[5]["name"], "softmax_5");
    }
    run(&page);
    let page = std::fs::read_to_string(&page).unwrap();
    for part in
        ["<table id=\"kernels\">", "id=\"measured\"", "id=\"modelled\"", "id=\"roofline\"", "softmax_5:", "conv1+relu1"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("src=") && !page.contains("href="), "the page needs nothing else");
    let wrong = file("run.txt");
    fails(&["run", "examples/digits/digits.onnx", "--profile", &wrong], 2, &["a file ending in .html or .json"]);
}

/// LLVM's own model of gfx942 is another judge of what one wave does in a loop: of issue and matrix passes, not of memory.
#[test]
fn loops_take_what_llvm_says() {
    if Command::new("llvm-mca-22").arg("--version").output().is_err() {
        eprintln!("skipped: llvm-mca-22 is not installed");
        return;
    }
    let list = json(&["bench", "validate", "--llvm-mca", "llvm-mca-22", "--json"]);
    let list = list.as_array().unwrap();
    assert!(list.len() >= 5, "{list:?}");
    for row in list {
        let ratio = row["clocks"].as_f64().unwrap() / row["llvm_clocks"].as_f64().unwrap();
        let near = if row["family"] == "gemm" { 0.9..1.1 } else { 0.5..2.5 };
        assert!(near.contains(&ratio), "{row}");
    }
}

#[test]
fn better_tiles_are_searched_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiles.csv");
    let tiles = path.to_str().unwrap();
    let shape = ["--target", "gfx942", "--shape", "64x96x512", "--json"];
    let found = json(&[&["bench", "gemm", "--search=8", "--tune-out", tiles][..], &shape].concat());
    let tried = found[0]["search"]["tried"].as_array().unwrap();
    assert!(tried.len() > 2 && found[0]["search"]["chosen_over_best"].as_f64().unwrap() >= 1.0, "{found}");
    assert!(std::fs::read_to_string(tiles).unwrap().starts_with("target,type,layout,products,m,n,k,"));
    // Any of them can be asked for: the kernel is another, and its time is what the search said.
    for t in tried {
        let number = |v: &Value| v.as_u64().unwrap();
        let cells = [&t["tile"][0], &t["tile"][1], &t["tile"][2], &t["parts"]].map(|v| number(v).to_string()).join(",");
        let way = t["way"].as_str().map(|w| format!(",{w}")).unwrap_or_default();
        std::fs::write(&path, format!("gfx942,f32,NN,1,64,96,512,{cells}{way}\n")).unwrap();
        let entry = json(&[&["bench", "gemm", "--tune", tiles][..], &shape].concat());
        let modelled = &entry[0]["launches"][0]["modelled"];
        assert_eq!(modelled["cycles"].as_f64().unwrap().round(), t["cycles"].as_f64().unwrap(), "{t}");
    }
    std::fs::write(&path, "gfx942,f32,NN,1,64,96,512,7,7,7,1\n").unwrap();
    let none = [&["bench", "gemm", "--tune", tiles][..], &shape].concat();
    fails(&none, 1, &["7x7x7", "--explain"]);
    std::fs::write(&path, "gfx942,f32\n").unwrap();
    fails(&none, 1, &["tiles.csv", "line 1: 2 cells"]);
    fails(&["bench", "softmax", "--search", "--target", "gfx942", "--shape", "8x8"], 2, &["gemm and conv"]);
}

/// Equal shares ask for as much as whole tiles do, and for their parts, whatever the last of the workgroups has left.
#[test]
fn workgroups_that_have_less_do_not_stand_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiles.csv");
    let requested = |parts: u32| {
        std::fs::write(&path, format!("gfx950,f16,NT,1,4992,1664,4136,224,256,64,{parts}\n")).unwrap();
        let product = ["--target", "gfx950", "--dtype", "f16", "--layout", "NT", "--shape", "4992x1664x4136"];
        let list = json(&[&["bench", "gemm", "--json", "--tune", path.to_str().unwrap()][..], &product].concat());
        list[0]["launches"][0]["modelled"]["traffic"]["requested"].as_f64().unwrap()
    };
    let [whole, shares] = [1, 0].map(requested);
    assert!((0.95..1.3).contains(&(shares / whole)), "{shares} of {whole}");
}

#[test]
fn places_that_programs_find_by_data_are_all_over_what_they_load() {
    let dir = tempfile::tempdir().unwrap();
    let planes = ["8", "16", "512", "512"];
    // Every pixel of a grid of the image's size: nine tenths of the image's lines at least, where zeros would have one of each plane. Regions of a
    // few pixels that count them.
    let grid = [value("x", &planes), value("g", &["8", "512", "512", "2"])];
    let sampled = (node("GridSample", &["x", "g"], &["y"], &[]), &grid[..], planes);
    let regions = [value("x", &planes), value("r", &["4096", "4"]), typed("b", 7, &["4096"])];
    let pool = [int("output_height", 2), int("output_width", 2), int("sampling_ratio", 1)];
    let aligned = (node("RoiAlign", &["x", "r", "b"], &["y"], &pool), &regions[..], ["4096", "16", "2", "2"]);
    for ((operator, inputs, out), least) in [(sampled, 0.9), (aligned, 0.1)] {
        let path = written(&dir, "places.onnx", file(&[operator], inputs, &[value("y", &out)], &[]));
        for target in ["gfx906", "gfx1100"] {
            let run = json(&["bench", "model", &path, "--target", target, "--json"]);
            let touched = run["launches"][0]["modelled"]["traffic"]["footprint"].as_f64().unwrap();
            let image = 8.0 * 16.0 * 512.0 * 512.0 * 4.0;
            assert!(touched > least * image, "{touched} of {image} on {target}");
        }
    }
}
