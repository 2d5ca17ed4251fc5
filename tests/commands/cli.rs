//! The command line as users and scripts see it: results, messages, exit codes.

use crate::SEAL;
use pretty_assertions::assert_eq;
use std::path::Path;
use std::process::{Command, Output};

/// Where the command is run; paths of the tests are relative to it.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn barewave(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_barewave")).args(args).current_dir(ROOT).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The command fails with this code and a message that contains all the words; nothing is printed as a result.
fn fails(args: &[&str], code: i32, words: &[&str]) {
    let out = barewave(args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(!err.contains("panicked"), "{args:?}: {err}");
    for w in words {
        assert!(err.contains(w), "{args:?} should mention '{w}': {err}");
    }
}

/// A bundle of code objects for gfx906, the first for the host.
fn offload_bundle(entries: &[&[u8]]) -> Vec<u8> {
    let ids: Vec<String> = (0..entries.len())
        .map(|i| {
            if i == 0 {
                "host-x86_64-unknown-linux--".into()
            } else {
                format!("hipv4-amdgcn-amd-amdhsa--gfx906:sramecc{}", ["+", "-"][i % 2])
            }
        })
        .collect();
    let mut out = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    out.extend((entries.len() as u64).to_le_bytes());
    let mut at = 4096u64;
    for (id, e) in ids.iter().zip(entries) {
        for n in [at, e.len() as u64, id.len() as u64] {
            out.extend(n.to_le_bytes());
        }
        out.extend(id.as_bytes());
        at = (at + e.len() as u64).next_multiple_of(4096);
    }
    for e in entries.iter().filter(|e| !e.is_empty()) {
        out.resize(out.len().next_multiple_of(4096), 0);
        out.extend(*e);
    }
    out
}

const DIGITS: &str = "examples/digits/digits.onnx";

#[test]
fn the_main_job() {
    let out = barewave(&["run", DIGITS, "--input", "examples/digits/7.png"]);
    let stdout = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    for w in ["device   emulated gfx942", "compile  ", "run      ", "kernels", "top 3:\n  7  0."] {
        assert!(stdout.contains(w), "{w} in {stdout}");
    }
}

#[test]
fn run_says_what_stands_for_a_target() {
    fails(&["run", DIGITS, "--target", "mi300x"], 2, &["--device emu:gfx942", "barewave compile"]);
    fails(&["run", DIGITS, "--target=rx9999"], 2, &["--device emu:", "barewave devices", "rx9999"]);
}

#[test]
fn convolutions_are_written_as_validation_prints_them() {
    for shape in ["1x6x17x20:12x3x3:2x1:1x0 dilated 1x2 groups 3", "1x8x9x9:8x3x3:1:1 groups 8"] {
        let out = barewave(&["bench", "conv", "--target", "gfx942", "--shape", shape]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert!(text(&out.stdout).contains(shape), "{}", text(&out.stdout));
    }
    for shape in ["1x8x9x9:8x3x3:1:1 groups 3", "1x8x9x9:8x3x3:1:1 groups", "1x8x9x9:8x3x3:1:1:1", "1x8x9x9:8x3x3:0"] {
        fails(&["bench", "conv", "--target", "gfx942", "--shape", shape], 2, &["NxCxHxW", "groups N"]);
    }
}

#[test]
fn a_compiled_file_runs_without_compiling() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("digits.hsaco");
    let file = file.to_str().unwrap();
    for target in ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100"] {
        let out = barewave(&["compile", DIGITS, "--target", target, "-o", file]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let out = barewave(&["run", file, "--input", "examples/digits/4.png", "--top", "1"]);
        let stdout = text(&out.stdout);
        assert!(stdout.contains("compile  none") && stdout.contains("\n  4  "), "{stdout}{}", text(&out.stderr));
        assert!(stdout.contains(&format!("emulated {target}")), "{stdout}");
    }
    for version in ["4", "6"] {
        let versioned = ["compile", DIGITS, "--target", "gfx1100", "--code-object-version", version, "-o", file];
        assert!(barewave(&versioned).status.success());
        assert_eq!(std::fs::read(file).unwrap()[8], version.parse::<u8>().unwrap() - 2, "ELF ABI version");
        let out = barewave(&["run", file, "--input", "examples/digits/4.png", "--top", "1"]);
        assert!(text(&out.stdout).contains("\n  4  "), "{}", text(&out.stderr));
    }
    barewave(&["compile", DIGITS, "--target", "gfx1100", "-o", file]);
    // The same input gives the same bytes.
    let first = std::fs::read(file).unwrap();
    barewave(&["compile", DIGITS, "--target", "gfx1100", "-o", file]);
    assert_eq!(first.len(), std::fs::read(file).unwrap().len());
    assert!(first == std::fs::read(file).unwrap(), "compilation is not deterministic");
    // A file for one target does not run on another.
    fails(&["run", file, "--device", "emu:gfx942"], 1, &["gfx1100", "gfx942"]);
}

#[test]
fn intermediate_forms() {
    let asm = text(&barewave(&["compile", DIGITS, "--target", "gfx906", "--emit", "asm"]).stdout);
    assert!(asm.contains("; conv: conv1+relu1") && asm.contains("v_fmac_f32") && asm.contains("s_endpgm"), "{asm}");
    // -o names a file for them, too.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digits.s");
    let out = barewave(&["compile", DIGITS, "--target", "gfx906", "--emit", "asm", "-o", file.to_str().unwrap()]);
    assert!(out.stdout.is_empty() && std::fs::read_to_string(&file).unwrap() == asm);
    let mir = text(&barewave(&["compile", DIGITS, "--target", "gfx1100", "--emit", "mir"]).stdout);
    let kernels: Vec<&str> = mir.split("\nkernel ").collect();
    assert_eq!(kernels.len(), 6);
    for k in kernels {
        let k = if k.starts_with("kernel ") { k.to_string() } else { format!("kernel {k}") };
        let parsed = barewave::mir::parse(&k).unwrap();
        assert_eq!(parsed.to_string().trim(), k.trim());
    }
    let plan = text(&barewave(&["compile", DIGITS, "--target", "gfx1100", "--emit", "plan"]).stdout);
    assert!(plan.contains("\"launches\"") && plan.contains("\"probabilities\""), "{plan}");
    let graph = text(&barewave(&["compile", DIGITS, "--target", "gfx1100", "--emit", "graph"]).stdout);
    assert!(graph.contains("conv1+relu1"), "{graph}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("d.hsaco");
    let out = barewave(&[
        "compile",
        DIGITS,
        "--target",
        "mi300x",
        "--stats",
        "--json",
        "--levels",
        "never",
        "-o",
        file.to_str().unwrap(),
    ]);
    let stats: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(stats.as_array().unwrap().len(), 6);
    assert!(stats.as_array().unwrap().iter().all(|k| k["spills"] == 0 && k["instructions"].as_u64().unwrap() > 20));
}

#[test]
fn wrong_files() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let whole = std::fs::read(Path::new(ROOT).join(DIGITS)).unwrap();
    std::fs::write(at("truncated.onnx"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(at("text.onnx"), "this is not a model").unwrap();
    std::fs::write(at("empty.onnx"), "").unwrap();
    std::fs::write(at("broken.hsaco"), [b"\x7fELF".as_slice(), &[0; 100]].concat()).unwrap();
    std::fs::write(at("broken.png"), "not a picture").unwrap();
    fails(&["run", &at("none.onnx")], 1, &["none.onnx"]);
    fails(&["run", &at("truncated.onnx")], 1, &["truncated.onnx"]);
    fails(&["run", &at("text.onnx")], 1, &["text.onnx", "ONNX"]);
    fails(&["run", &at("empty.onnx")], 1, &["empty.onnx"]);
    fails(&["run", &at("broken.hsaco")], 1, &["broken.hsaco"]);
    fails(&["run", DIGITS, "--input", &at("broken.png")], 1, &["broken.png"]);
    fails(&["run", DIGITS, "--input", &at("none.png")], 1, &["none.png"]);
    fails(&["run", DIGITS, "--input", &at("none.txt")], 1, &["none.txt", "No such file"]);
    fails(
        &["compile", DIGITS, "--target", "gfx906", "-o", &at("no/such/dir.hsaco")],
        1,
        &["cannot write", "dir.hsaco"],
    );
    fails(&["compile", DIGITS, "--target", "gfx906", "-o", dir.path().to_str().unwrap()], 1, &["cannot write"]);
    if Path::new("/dev/full").exists() {
        fails(&["run", DIGITS, "--output", "/no/such/place.npy"], 1, &["place.npy"]);
    }
}

#[test]
fn wrong_words() {
    fails(&["run", DIGITS, "--device", "emu:gfx943"], 2, &["gfx943", "gfx942"]);
    fails(&["compile", DIGITS, "--target", "mi300y"], 2, &["mi300y", "mi300"]);
    fails(&["compile", DIGITS, "--target", "gfx906", "--dim", "N"], 2, &["NAME=N"]);
    fails(&["compile", DIGITS], 2, &["--target"]);
    fails(&["frobnicate"], 2, &["frobnicate"]);
    fails(&["run", DIGITS, "--device", "cuda"], 2, &["cuda", "emu:TARGET"]);
    fails(&["run", DIGITS, "--input", "picture=1x1x8x8xf32=0"], 1, &["picture", "'image'"]);
    fails(&["run", DIGITS, "--input", "1x1x8x9xf32=0"], 1, &["image", "8"]);
    fails(&["run", DIGITS, "--input", "1x1x8x8xi32=0"], 1, &["image", "f32"]);
    fails(&["run", DIGITS, "--input", "image=1x1x8x8xf99=0"], 2, &["f99", "f32"]);
    fails(&["run", DIGITS, "--input", "1x1x8x8xf99=0"], 1, &["f99", "element type"]);
    fails(&["run", DIGITS, "--input", "examples/digits/1.png", "--input", "examples/digits/2.png"], 2, &["2 inputs"]);
    fails(&["run", DIGITS, "--output", "logits=/tmp/x.npy"], 1, &["logits", "'probabilities'"]);
    fails(&["conformance", "examples"], 1, &["no test cases"]);
}

#[test]
fn lists() {
    let devices = text(&barewave(&["devices"]).stdout);
    assert!(devices.contains("emu:gfx906") && devices.contains("emu:gfx1201"), "{devices}");
    let json: serde_json::Value = serde_json::from_slice(&barewave(&["devices", "--json"]).stdout).unwrap();
    assert!(json.as_array().unwrap().len() > 15);
    let help = barewave(&["run", "--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("Example:"));
}

#[test]
fn the_tables_can_be_read() {
    let isa = |args: &[&str]| text(&barewave(&[&["isa"], args].concat()).stdout);
    let page = isa(&["show", "v_readlane_b32", "--target", "gfx906"]);
    for w in [
        "VOP3         8 bytes, bits 00000000d2890000 of f8000000ffff8700",
        "may start hazards: vmem_sgpr, dpp_exec, div_fmas, lane_select\n",
        "Valu pipe, latency 16 cycles",
    ] {
        assert!(page.contains(w), "{w} in {page}");
    }
    let page = isa(&["show", "v_mfma_f32_32x32x8_f16"]);
    assert!(page.contains("lane layout on") && page.contains("k4: 32-63 v0[15:0]"), "{page}");
    let changes = isa(&["diff", "gfx90a", "gfx942"]);
    for w in ["\n- buffer_wbinvl1\n", "\n+ buffer_inv\n", "v_mfma_f32_32x32x8_f16: latency 68 -> 36, busy 64 -> 32"] {
        assert!(changes.contains(w), "{w} in {changes}");
    }
    let json: serde_json::Value = serde_json::from_str(&isa(&["diff", "gfx90a", "gfx942", "--json"])).unwrap();
    let holds = |list: &str, name: &str| json[list].as_array().unwrap().iter().any(|v| v == name || v["name"] == name);
    assert!(holds("removed", "buffer_wbinvl1") && holds("added", "buffer_inv"), "{json}");
    assert!(holds("retimed", "v_mfma_f32_32x32x8_f16"), "{json}");
    let coverage: serde_json::Value = serde_json::from_str(&isa(&["coverage", "--json"])).unwrap();
    for row in coverage.as_array().unwrap().iter().filter(|r| r["target"] != "gfx1250") {
        assert_eq!(row["compute"], row["compute_emulated"], "{row}");
        assert!(row["encodable"].as_u64() >= row["compute"].as_u64(), "{row}");
    }
    let list = isa(&["list", "gfx942", "--filter", "mfma"]);
    assert!(list.lines().count() > 20 && list.lines().all(|l| l.contains("mfma") && l.contains("MATRIX")), "{list}");
    fails(&["isa", "show", "v_mfma_f32_32x32x8"], 1, &["v_mfma_f32_32x32x8_f16", "isa list"]);
    fails(&["isa", "diff", "gfx90a", "gfx94"], 2, &["gfx94"]);
}

#[test]
fn damaged_code_is_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("digits.hsaco");
    let name = file.to_str().unwrap();
    for target in ["gfx942", "gfx1100"] {
        assert!(barewave(&["compile", DIGITS, "--target", target, "--levels", "never", "-o", name]).status.success());
        // The kernel of the second convolution forgets to wait for its arguments.
        let mut bytes = std::fs::read(&file).unwrap();
        let elf = barewave::codeobj::ElfFile::parse(&bytes).unwrap();
        let kernel = elf.kernel("conv_2").unwrap();
        let code = elf.file_range(kernel.entry, kernel.code_size).unwrap();
        let t = barewave_isa::Target::parse(target).unwrap();
        let decoder = barewave_isa::Decoder::new(t, barewave_isa::Mode::of(t));
        let mut at = code.start;
        loop {
            let inst = decoder.decode(&bytes[at..code.end]).unwrap();
            if t.decode_wait(&inst.inst()).is_some() {
                break;
            }
            at += inst.len();
        }
        let s_nop = 0xbf80_0000u32;
        bytes[at..at + 4].copy_from_slice(&s_nop.to_le_bytes());
        std::fs::write(&file, &bytes[..bytes.len() - SEAL]).unwrap();
        let words = ["kernel `conv_2` breaks a rule of the hardware and is not loaded", "`s_load_", "wait for"];
        fails(&["run", name, "--strict", "--random-inputs"], 1, &words);
    }
}

#[test]
fn check_says_what_is_wrong_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (source, good, bad) = (at("k.s"), at("good.hsaco"), at("bad.hsaco"));
    let text_of = |wait: &str| {
        format!(
            "\t.text\n\t.globl k\n\t.p2align 8\n\t.type k,@function\nk:\n\ts_load_dword s2, s[0:1], 0x0\n{wait}\
             \ts_add_u32 s3, s2, s2\n\ts_endpgm\n.Lend:\n\t.size k, .Lend-k\n\t.rodata\n\t.amdhsa_kernel k\n\
             \t.amdhsa_next_free_vgpr 1\n\t.amdhsa_next_free_sgpr 8\n\t.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\
             \t.amdhsa_kernarg_size 8\n\t.end_amdhsa_kernel\n"
        )
    };
    for (wait, file) in [("\ts_waitcnt lgkmcnt(0)\n", &good), ("", &bad)] {
        std::fs::write(&source, text_of(wait)).unwrap();
        let out = barewave(&["asm", &source, "--target", "gfx906", "-o", file]);
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
    let out = barewave(&["check", &good]);
    assert!(out.status.success(), "{}", text(&out.stdout));
    assert!(text(&out.stdout).contains("1 kernel, 4 instructions: nothing found"), "{}", text(&out.stdout));
    let out = barewave(&["check", &bad]);
    assert_eq!(out.status.code(), Some(1));
    let stdout = text(&out.stdout);
    for w in ["k\n", "wait", "s_add_u32 s3, s2, s2", "s2 is read", "s_load_dword", "wait for lgkmcnt 0", "found in 1"] {
        assert!(stdout.contains(w), "{w} in {stdout}");
    }
    assert!(text(&out.stderr).contains("1 finding"), "{}", text(&out.stderr));
    let out = barewave(&["check", &bad, "--json", "--kernel", "k"]);
    assert_eq!(out.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let finding = &json["code_objects"][0]["kernels"][0]["findings"][0];
    assert_eq!(finding["rule"], "wait");
    assert_eq!(finding["instruction"], "s_add_u32 s3, s2, s2");
    assert!(finding["address"].as_u64().is_some_and(|a| a % 256 == 8), "{finding}");
    fails(&["check", &good, "--kernel", "nope"], 1, &["nope", "it has: k"]);
    fails(&["check"], 2, &["FILE"]);
    fails(&["check", "Cargo.toml"], 1, &["Cargo.toml"]);
    // an offload bundle of both, and of a host entry that holds nothing
    let bundle = at("both.hipfb");
    std::fs::write(&bundle, offload_bundle(&[&[], &std::fs::read(&good).unwrap(), &std::fs::read(&bad).unwrap()]))
        .unwrap();
    let out = barewave(&["check", &bundle, "--json"]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let found: Vec<usize> = json["code_objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            assert!(c["id"].as_str().is_some_and(|id| id.starts_with("hipv4-amdgcn-amd-amdhsa--gfx906")), "{c}");
            c["kernels"][0]["findings"].as_array().map_or(0, Vec::len)
        })
        .collect();
    assert_eq!(found, [0, 1]);
    // what our compiler makes
    let model = at("digits.hsaco");
    for target in ["gfx803", "gfx908", "gfx90a", "gfx950", "gfx1010", "gfx1102", "gfx1201"] {
        assert!(barewave(&["compile", DIGITS, "--target", target, "--levels", "never", "-o", &model]).status.success());
        let out = barewave(&["check", &model]);
        assert!(out.status.success(), "{target}: {}", text(&out.stdout));
        assert!(
            text(&out.stdout).contains(target) && text(&out.stdout).contains(" kernels, "),
            "{}",
            text(&out.stdout)
        );
    }
    // a model whose code another tool has changed is not run
    let mut bytes = std::fs::read(&model).unwrap();
    let file = barewave::codeobj::ElfFile::parse(&bytes).unwrap();
    let k = &file.kernels[0];
    let code = file.file_range(k.entry, k.code_size).unwrap();
    let wait = 0xbfc7_0000u32.to_le_bytes();
    let at = code.clone().step_by(4).find(|&i| bytes[i..i + 4] == wait).expect("a wait for scalar loads");
    bytes[at..at + 4].copy_from_slice(&0xbf80_0000u32.to_le_bytes());
    std::fs::write(&model, &bytes[..bytes.len() - SEAL]).unwrap();
    fails(&["run", &model, "--input", "examples/digits/7.png"], 1, &["breaks a rule", "kmcnt", &k.name]);
}

#[test]
fn what_is_missing_is_listed() {
    let out = barewave(&["compile", "--check", DIGITS, "--target", "gfx942"]);
    assert_eq!((out.status.code(), text(&out.stdout).trim()), (Some(0), "9 of 9 nodes compile"));
    let out = barewave(&["compile", "--check", DIGITS, "--target", "gfx942", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(report["nodes"].as_array().unwrap().iter().all(|n| n["verdict"] == "supported"));
    // The same file with an operator that nobody knows.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("odd.onnx");
    let mut bytes = std::fs::read(Path::new(ROOT).join(DIGITS)).unwrap();
    while let Some(at) = bytes.windows(4).position(|w| w == b"Relu") {
        bytes[at..at + 4].copy_from_slice(b"Rely");
    }
    std::fs::write(&file, bytes).unwrap();
    let out = barewave(&["compile", "--check", file.to_str().unwrap(), "--target", "gfx942"]);
    assert_eq!(out.status.code(), Some(1));
    let report = text(&out.stdout);
    assert!(report.starts_with("Rely: not supported") && report.contains("node `relu1`"), "{report}");
    assert!(report.contains("1 of 9 nodes compile; 6 read what these do not compute"), "{report}");
    fails(&["compile", DIGITS, "--target", "gfx942", "--json"], 2, &["--stats or --check"]);
}

#[test]
fn completions_and_man_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let out = barewave(&["completions", shell]);
        assert!(out.status.success() && text(&out.stdout).contains("conformance"), "{shell}");
    }
    fails(&["completions", "csh"], 2, &["csh"]);
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man/man1");
    assert!(barewave(&["man", folder.to_str().unwrap()]).status.success());
    for (page, word) in [("barewave", "barewave"), ("barewave-compile", "target"), ("barewave-bench-gemm", "shape")] {
        let text = std::fs::read_to_string(folder.join(format!("{page}.1"))).unwrap();
        assert!(text.starts_with(".ie") && text.contains(word), "{page}: {text}");
    }
    fails(&["man", "Cargo.toml/x"], 1, &["Cargo.toml/x"]);
}
