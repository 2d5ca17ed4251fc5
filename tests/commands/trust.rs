//! What must not happen in silence: wrong results, lost files, crashes, endless work.

use crate::SEAL;
use crate::model::{file, int, integers, node, value, weights};
use barewave::tensor::{DType, HostTensor, ImageOptions, load_npz, save};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn command(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_barewave"));
    c.args(args).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    c
}

fn barewave(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn works(args: &[&str]) -> String {
    let out = barewave(args);
    assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// The command fails with this code and a message that contains all the words.
fn fails(args: &[&str], code: i32, words: &[&str]) -> String {
    failed(barewave(args), args, code, words)
}

fn failed(out: Output, args: &[&str], code: i32, words: &[&str]) -> String {
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(!err.contains("panicked") && !err.contains("internal error"), "{args:?}: {err}");
    for w in words {
        assert!(err.contains(w), "{args:?} should mention '{w}': {err}");
    }
    err
}

/// A directory for a test's files.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }
    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.at(name)
    }
    fn arrays(&self, name: &str, list: &[(&str, &HostTensor)]) -> String {
        save(&self.path(name), list, &ImageOptions::default()).unwrap();
        self.at(name)
    }
    fn names(&self) -> Vec<String> {
        let mut all: Vec<String> =
            std::fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }
}

const ADD: &str = "examples/vector_add/vector_add.onnx";
const DIGITS: &str = "examples/digits/digits.onnx";

fn ramp(n: usize, from: f32) -> HostTensor {
    HostTensor::from_f32(&[n], &(0..n).map(|i| from + i as f32).collect::<Vec<f32>>())
}

/// x, y: Nx3 -> x + y, x - y.
fn two_outputs() -> Vec<u8> {
    let dims = ["N", "3"];
    let nodes = [node("Add", &["x", "y"], &["s"], &[]), node("Sub", &["x", "y"], &["d"], &[])];
    file(&nodes, &[value("x", &dims), value("y", &dims)], &[value("s", &dims), value("d", &dims)], &[])
}

#[test]
fn archives_give_and_take_everything_by_name() {
    let dir = Dir::new();
    let (a, b) = (ramp(1024, 0.0), ramp(1024, 1000.0));
    let all = dir.arrays("all.npz", &[("a", &a), ("b", &b), ("unrelated", &ramp(3, 0.0))]);
    works(&["run", ADD, "--input", &format!("@{all}"), "--output", &dir.at("y.npz")]);
    let sum = &load_npz(&dir.path("y.npz")).unwrap()["sum"];
    assert_eq!(sum.to_f32()[..2], [1000.0, 1002.0]);
    // Several outputs: all of them without a name, and those that are named together.
    let m = dir.file("m.onnx", two_outputs());
    let (x, y) = (HostTensor::from_f32(&[2, 3], &[5.0; 6]), HostTensor::from_f32(&[2, 3], &[3.0; 6]));
    let all = format!("@{}", dir.arrays("in.npz", &[("y", &y), ("x", &x)]));
    let (out, named) = (dir.at("out.npz"), dir.at("named.npz"));
    works(&["run", &m, "--input", &all, "--output", &out]);
    works(&["run", &m, "--input", &all, "--output", &format!("d={named}"), "--output", &format!("s={named}")]);
    for name in ["out.npz", "named.npz"] {
        let out = load_npz(&dir.path(name)).unwrap();
        assert_eq!((out["s"].to_f32(), out["d"].to_f32()), (vec![8.0; 6], vec![2.0; 6]));
    }
    // A folder takes all of them too, and gives them.
    let folder = dir.at("all/");
    works(&["run", &m, "--input", &all, "--output", &folder]);
    let told = works(&["run", &m, "--input", &all, "--expect", &folder]);
    assert!(
        told.contains("s max error 0") && told.contains("d max error 0") && told.contains("2 instead of 2"),
        "{told}"
    );
    let told = works(&["run", &m, "--input", &all, "--expect", &out]);
    assert!(told.contains("s max error") && told.contains("d max error"), "{told}");
    // A wrong second output is seen, and a missing one.
    let (s, d) = (HostTensor::from_f32(&[2, 3], &[8.0; 6]), HostTensor::from_f32(&[2, 3], &[2.5; 6]));
    let wrong = dir.arrays("wrong.npz", &[("s", &s), ("d", &d)]);
    fails(&["run", &m, "--input", &all, "--expect", &wrong], 1, &["1 outputs differ"]);
    let missing = dir.arrays("missing.npz", &[("s", &s)]);
    fails(&["run", &m, "--input", &all, "--expect", &missing], 1, &["`d`", "missing.npz"]);
    let none = format!("@{}", dir.arrays("none.npz", &[("q", &x)]));
    fails(&["run", &m, "--input", &none], 1, &["none.npz", "'x'", "'q'"]);
}

#[test]
fn missing_inputs_are_listed() {
    let dir = Dir::new();
    fails(&["run", ADD], 2, &["a=1024xf32", "b=1024xf32", "--random-inputs"]);
    let err = fails(&["run", ADD, "--input", "a=1024xf32=0"], 2, &["b=1024xf32"]);
    assert!(!err.contains("a=1024"), "{err}");
    let sum = |args: &[&str]| {
        let file = dir.at("s.npy");
        works(&[&["run", ADD, "--output", &file], args].concat());
        std::fs::read(file).unwrap()
    };
    assert_eq!(sum(&["--random-inputs"]), sum(&["--random-inputs=0"]));
    assert_ne!(sum(&["--random-inputs=1"]), sum(&["--random-inputs=2"]));
    fails(&["run", ADD, "--input", "a=1024xf32=0", "--input", "a=1024xf32=1"], 2, &["a is given twice"]);
    let both = dir.arrays("all.npz", &[("a", &ramp(1024, 0.0)), ("b", &ramp(1024, 0.0))]);
    fails(&["run", ADD, "--input", "a=1024xf32=0", "--input", &format!("@{both}")], 2, &["'a' is given twice"]);
    let compiled = dir.at("add.hsaco");
    works(&["compile", ADD, "--target", "gfx942", "-o", &compiled]);
    fails(&["run", &compiled], 2, &["a=1024xf32"]);
}

#[test]
fn damaged_compiled_files_are_told() {
    let dir = Dir::new();
    let compiled = dir.at("add.hsaco");
    works(&["compile", "examples/digits/digits.onnx", "--target", "gfx942", "-o", &compiled]);
    let whole = std::fs::read(&compiled).unwrap();
    let bad = dir.at("bad.hsaco");
    // Anywhere behind what tells the file's kind: headers, code, plan, weights, the checksum itself.
    for at in (8..whole.len() - SEAL).step_by(whole.len() / 40).chain([whole.len() - 1]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&bad, bytes).unwrap();
        fails(&["run", &bad, "--random-inputs"], 1, &["damaged", "compile the model again"]);
    }
    // Tools that write the file anew leave the checksum out.
    std::fs::write(&bad, &whole[..whole.len() - SEAL]).unwrap();
    works(&["run", &bad, "--random-inputs"]);
}

#[test]
fn extents_come_from_arrays() {
    let dir = Dir::new();
    let m = dir.file("m.onnx", two_outputs());
    let array = |rows: usize| HostTensor::from_f32(&[rows, 3], &vec![1.0; rows * 3]);
    let x = format!("x=@{}", dir.arrays("x.npy", &[("x", &array(7))]));
    let y = format!("y=@{}", dir.arrays("y.npy", &[("y", &array(7))]));
    let five = format!("y=@{}", dir.arrays("five.npy", &[("y", &array(5))]));
    let out = dir.at("s.npz");
    works(&["run", &m, "--input", &x, "--input", &y, "--output", &out]);
    assert_eq!(load_npz(&dir.path("s.npz")).unwrap()["s"].shape(), [7, 3]);
    // One array tells the extents of the others.
    works(&["run", &m, "--input", &x, "--random-inputs"]);
    fails(&["run", &m, "--input", &x, "--input", &five], 1, &["`N`", "7", "5"]);
    fails(&["run", &m, "--input", &x, "--input", &y, "--dim", "N=8"], 1, &["`N`", "7", "8"]);
    fails(&["run", &m, "--random-inputs"], 1, &["--dim N=N", "Nx3xf32"]);
    fails(&["compile", &m, "--target", "gfx942", "-o", &dir.at("m.hsaco")], 1, &["--dim N=N"]);
    assert!(!dir.path("m.hsaco").exists());
    works(&["compile", &m, "--target", "gfx942", "--dim", "N=2", "-o", &dir.at("m.hsaco")]);
    fails(&["run", &dir.at("m.hsaco"), "--dim", "N=3", "--random-inputs"], 2, &["--dim N=3", "compiled"]);
    fails(&["run", &dir.at("m.hsaco"), "--input", &x, "--input", &y], 1, &["`x`", "[2, 3]", "[7, 3]"]);
    // A dimension without a name has the input's.
    let open = file(&[node("Relu", &["x"], &["y"], &[])], &[value("x", &["?", "3"])], &[value("y", &["?", "3"])], &[]);
    let open = dir.file("open.onnx", open);
    fails(&["run", &open, "--random-inputs"], 1, &["--dim x[0]=N"]);
    works(&["run", &open, "--random-inputs", "--dim", "x[0]=4"]);
}

#[test]
fn words_that_make_no_sense_are_refused() {
    for bad in ["nan", "inf", "-1", "x"] {
        fails(&["run", ADD, "--random-inputs", &format!("--rtol={bad}")], 2, &["tolerance"]);
        fails(&["run", ADD, "--random-inputs", &format!("--atol={bad}")], 2, &["tolerance"]);
        fails(&["run", ADD, "--random-inputs", &format!("--timeout={bad}")], 2, &["timeout"]);
    }
    // A number with a sign is a value, as any other that is wrong, not an option.
    for (option, word) in
        [("--rtol", "tolerance"), ("--timeout", "time"), ("--max-memory", "bytes"), ("--repeat", "-1")]
    {
        fails(&["run", ADD, "--random-inputs", option, "-1"], 2, &["'-1'", option, word]);
    }
    fails(&["run", ADD, "--random-inputs", "--max-instructions", "0"], 2, &["--max-instructions"]);
    let picture = ["run", DIGITS, "--input", "examples/digits/7.png"];
    for [option, bad] in [["--mean", "nan"], ["--std", "0.5,inf"], ["--mean", "x"]] {
        fails(&[&picture[..], &[option, bad]].concat(), 2, &[option, "finite"]);
    }
    works(&[&picture[..], &["--mean", "-0.5"]].concat());
    for near in ["1024xf4=1", "99999999999999999999xf32=1", "1024xfloat=1", "2,3xf32=1"] {
        fails(&["run", ADD, "--input", &format!("a={near}")], 2, &[near, "f32", "1x3xf32=0"]);
    }
    fails(&["run", ADD, "--random-inputs", "--repeat", "0"], 2, &["--repeat"]);
    fails(&["run", ADD, "--random-inputs", "--device", "foo"], 2, &["foo", "emu:TARGET"]);
    for (name, value) in [
        ("BAREWAVE_DUMP", "bogus"),
        ("BAREWAVE_DUMP", "waits,bogus"),
        ("BAREWAVE_HOST", "bogus"),
        ("RAYON_NUM_THREADS", "99999"),
    ] {
        let args = ["run", ADD, "--random-inputs"];
        let out = command(&args).env(name, value).output().unwrap();
        failed(out, &args, 2, &[name, value.trim_start_matches("waits,")]);
    }
    let out = command(&["run", ADD, "--random-inputs"]).env("BAREWAVE_DUMP", "waits").output().unwrap();
    assert!(out.status.success() && text(&out.stderr).contains("; after waits"), "{}", text(&out.stderr));
    let out = command(&["run", ADD, "--random-inputs"]).env("BAREWAVE_HOST", "portable").output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn mistakes_in_files_show_before_the_run() {
    let dir = Dir::new();
    let x = ["run", ADD, "--random-inputs"];
    let with = |more: &[&str], code, words: &[&str]| {
        let out = barewave(&[&x[..], more].concat());
        assert!(out.stdout.is_empty(), "{more:?} ran first: {}", text(&out.stdout));
        failed(out, more, code, words);
    };
    with(&["--output", "/no/such/y.npy"], 1, &["y.npy"]);
    // As of compile, which has not looked at the model then.
    let missing = fails(&["compile", "none.onnx", "--target", "gfx942", "-o", "/no/such/y"], 1, &["/no/such/y"]);
    assert!(!missing.contains("none.onnx") && !missing.contains(".tmp"), "{missing}");
    with(&["--output", &dir.at("y.txt")], 1, &["y.txt", ".npy"]);
    with(&["--output", &dir.at("y.png")], 1, &["y.png", "image"]);
    with(&["--output", &format!("sum={}", dir.0.path().display())], 1, &["unknown kind"]);
    with(&["--output", "q=y.npy"], 1, &["'q'", "'sum'"]);
    with(&["--output", "y.npy", "--output", "z.npy"], 2, &["z.npy", "'sum'"]);
    with(&["--expect", &dir.at("none.npy")], 1, &["none.npy"]);
    let other = dir.arrays("other.npy", &[("x", &ramp(7, 0.0))]);
    with(&["--expect", &other], 1, &["other.npy", "[7]", "[1024]"]);
    let double = dir.arrays("double.npy", &[("x", &HostTensor::from_f64(DType::F64, &[1024], &[0.0; 1024]))]);
    with(&["--expect", &double], 1, &["f64", "f32"]);
    assert_eq!(dir.names(), ["double.npy", "other.npy"]);
}

#[test]
fn results_as_json() {
    let dir = Dir::new();
    let out = dir.at("y.npz");
    let told = works(&[
        "run",
        DIGITS,
        "--input",
        "examples/digits/7.png",
        "--output",
        &out,
        "--json",
        "--timing",
        "--levels",
        "never",
    ]);
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(json["top"][0]["index"], 7);
    assert_eq!(json["launches"].as_array().unwrap().len(), 6);
    assert_eq!(json["outputs"][0]["name"], "probabilities");
    assert_eq!(json["written"][0]["file"], out.as_str());
    let told = works(&["run", DIGITS, "--input", "examples/digits/7.png", "--expect", &out, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(json["expected"][0]["passes"], true);
    assert_eq!(json["device"], "emulated gfx942");
}

#[cfg(unix)]
#[test]
fn what_is_not_a_file_is_never_replaced() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let dir = Dir::new();
    let compile = |to: &str| works(&["compile", ADD, "--target", "gfx942", "-o", to]);
    compile("/dev/null");
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let file = dir.file("file", "old");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink("file", dir.path("link")).unwrap();
    compile(&dir.at("link"));
    assert!(std::fs::symlink_metadata(dir.path("link")).unwrap().is_symlink());
    assert!(std::fs::read(&file).unwrap().starts_with(b"\x7fELF"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Standard output, and what the umask leaves.
    let out = barewave(&["compile", ADD, "--target", "gfx942", "-o", "-"]);
    assert!(out.status.success() && out.stdout == std::fs::read(&file).unwrap());
    let new = dir.at("new");
    let script = format!("umask 027; exec \"$0\" compile {ADD} --target gfx942 -o {new}");
    let mut sh = Command::new("sh");
    sh.args(["-c", &script, env!("CARGO_BIN_EXE_barewave")]);
    sh.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    assert!(sh.output().unwrap().status.success());
    assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o640);
    // A FIFO passes on.
    assert!(Command::new("mkfifo").arg(dir.path("fifo")).status().unwrap().success());
    let fifo = dir.path("fifo");
    let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
    compile(&dir.at("fifo"));
    assert!(reader.join().unwrap().starts_with(b"\x7fELF"));
    assert!(std::fs::symlink_metadata(dir.path("fifo")).unwrap().file_type().is_fifo());
}

#[cfg(unix)]
#[test]
fn nothing_half_written_stays() {
    let dir = Dir::new();
    let x = dir.arrays("x.npz", &[("a", &ramp(1024, 0.0)), ("b", &ramp(1024, 0.0))]);
    let before = dir.names();
    for kind in ["npy", "npz", "pb"] {
        // The limit on file sizes ends the process in the middle, as a signal or a full disk does.
        let y = dir.at(&format!("y.{kind}"));
        let script = format!("ulimit -f 1; exec \"$0\" run {ADD} --input @{x} --output {y}");
        let mut sh = Command::new("sh");
        sh.args(["-c", &script, env!("CARGO_BIN_EXE_barewave")]);
        sh.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        assert!(!sh.output().unwrap().status.success());
        assert_eq!(dir.names(), before, "{kind}");
    }
    if Path::new("/dev/full").exists() {
        fails(&["compile", ADD, "--target", "gfx942", "-o", "/dev/full"], 1, &["/dev/full"]);
        for args in [&["devices"][..], &["isa", "list", "gfx942"], &["run", ADD, "--random-inputs"], &["--help"]] {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let mut c = command(args);
            let out = c.stdout(Stdio::from(full)).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
            failed(out, args, 1, &[]);
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let status = command(args).stdout(Stdio::null()).stderr(Stdio::from(full)).status().unwrap();
            assert_eq!(status.code(), Some(0), "{args:?} with messages to a full disk");
        }
    }
}

/// Gives the time that a command took; it must end by itself.
fn timed(args: &[&str]) -> (Output, Duration) {
    let start = Instant::now();
    (barewave(args), start.elapsed())
}

/// A kernel that never ends.
fn endless(dir: &Dir) -> String {
    let source = "
        .amdgcn_target \"amdgcn-amd-amdhsa--gfx942\"
        .text
        .globl spin
        .p2align 8
        .type spin,@function
    spin:
        s_branch spin
        s_endpgm
        .size spin, .-spin
        .rodata
        .p2align 6
        .amdhsa_kernel spin
            .amdhsa_next_free_vgpr 8
            .amdhsa_next_free_sgpr 16
            .amdhsa_accum_offset 8
        .end_amdhsa_kernel
        .amdgpu_metadata
        amdhsa.version: [1, 2]
        amdhsa.target: amdgcn-amd-amdhsa--gfx942
        amdhsa.kernels:
          - .name: spin
            .symbol: spin.kd
            .kernarg_segment_size: 0
            .kernarg_segment_align: 8
            .group_segment_fixed_size: 0
            .private_segment_fixed_size: 0
            .wavefront_size: 64
            .sgpr_count: 16
            .vgpr_count: 8
            .max_flat_workgroup_size: 1024
        .end_amdgpu_metadata
    ";
    let (from, to) = (dir.file("spin.s", source), dir.at("spin.hsaco"));
    works(&["asm", &from, "--target", "gfx942", "-o", &to]);
    to
}

#[test]
fn endless_kernels_end() {
    let dir = Dir::new();
    let spin = endless(&dir);
    let launch = ["launch", &spin, "--kernel", "spin", "--grid", "4", "--block", "64"];
    for (more, words) in [
        (&["--timeout", "0.5"][..], &["timeout", "spin"][..]),
        (&["--max-instructions", "1000000"], &["1000000 instructions", "spin"]),
        (&[], &["instructions", "max-instructions"]),
    ] {
        let args = [&launch[..], more].concat();
        let (out, time) = timed(&args);
        failed(out, &args, 1, words);
        assert!(time < Duration::from_secs(300), "{more:?} took {time:?}");
    }
    // As for the HIP driver, the environment can say it; the command line has the last word.
    let endless = [&launch[..], &["--max-instructions", "100000000000"]].concat();
    let out = command(&endless).env("BAREWAVE_TIMEOUT", "0.5").output().unwrap();
    failed(out, &endless, 1, &["timeout", "spin"]);
    let out = command(&endless).env("BAREWAVE_TIMEOUT", "soon").output().unwrap();
    failed(out, &endless, 2, &["BAREWAVE_TIMEOUT", "soon"]);
    let either = [&endless[..], &["--timeout", "0.5"]].concat();
    let out = command(&either).env("BAREWAVE_TIMEOUT", "0").output().unwrap();
    failed(out, &either, 1, &["timeout", "spin"]);
}

#[test]
fn memory_is_bounded() {
    let dir = Dir::new();
    let spin = endless(&dir);
    let launch = ["launch", &spin, "--kernel", "spin", "--grid", "1", "--block", "64"];
    for arg in ["out:99999999999xf32", "in:99999999999xf32=0"] {
        let err = fails(&[&launch[..], &["--arg", arg, "--max-memory", "1G"]].concat(), 1, &["--max-memory"]);
        assert!(err.contains(arg), "{err}");
    }
    fails(&["run", ADD, "--input", "a=99999999999999xf32=0", "--random-inputs"], 1, &["--max-memory"]);
    fails(&["run", ADD, "--random-inputs", "--max-memory", "1K"], 1, &["memory"]);
    // A wrong number of arguments is wrong usage.
    fails(&[&launch[..], &["--arg", "i32:5", "--arg", "i32:5"]].concat(), 2, &["argument"]);
}

#[test]
fn names_do_not_reach_the_terminal_as_commands() {
    let dir = Dir::new();
    let mut relu = node("Relu", &["x\x1b[31m"], &["y\ns_endpgm"], &[]);
    relu = relu.text(3, "evil\n\ts_trap 2\x1b]0;title\x07");
    let m = file(&[relu], &[value("x\x1b[31m", &["4"])], &[value("y\ns_endpgm", &["4"])], &[]);
    let m = dir.file("m.onnx", m);
    let clean = |out: &Output| {
        let all = text(&out.stdout) + &text(&out.stderr);
        assert!(!all.contains('\x1b') && !all.contains('\x07'), "{all:?}");
        all
    };
    let asm = barewave(&["compile", &m, "--target", "gfx942", "--emit", "asm"]);
    let asm = clean(&asm);
    assert!(asm.contains("evil") && !asm.lines().any(|l| l.trim_start().starts_with("s_trap")), "{asm}");
    clean(&barewave(&["run", &m]));
    clean(&barewave(&["run", &m, "--random-inputs", "--timing", "--top", "2"]));
    clean(&barewave(&["run", "no\x1b[31m.onnx"]));
    clean(&barewave(&["compile", &m, "--target", "gfx942", "--emit", "graph"]));
    // What reorders text or cannot be seen is shown as well, and JSON stays JSON.
    let turned = "m\u{202e}\u{200b}\u{9b}";
    let relu = node("Nothing", &["x"], &["y"], &[]).text(3, turned);
    let m = dir.file("turned.onnx", file(&[relu], &[value("x", &["4"])], &[value("y", &["4"])], &[]));
    let out = barewave(&["run", &m, "--random-inputs"]);
    assert!(text(&out.stderr).contains("m\\u{202e}\\u{200b}\\u{9b}"), "{}", text(&out.stderr));
    let out = barewave(&["compile", &m, "--target", "gfx942", "--check", "--json"]);
    let all = text(&out.stdout);
    assert!(!all.contains('\u{202e}') && !all.contains('\u{9b}'), "{all}");
    serde_json::from_str::<serde_json::Value>(&all).unwrap_or_else(|e| panic!("{e}: {all}"));
}

/// A normalisation that is written out in nodes of which one is refused is none: the node and those behind it are told.
#[test]
fn nodes_of_a_normalisation_are_judged_each() {
    let dir = Dir::new();
    let verdict = |name: &str| {
        let nodes = [
            node("Mul", &["x", "x"], &["square"], &[]),
            node("ReduceMean", &["square", "axes"], &["mean"], &[int(name, 1)]),
            node("Add", &["mean", "epsilon"], &["sum"], &[]),
            node("Sqrt", &["sum"], &["root"], &[]),
            node("Div", &["x", "root"], &["y"], &[]),
        ];
        let constants = [weights("epsilon", &[], &[0.1]), integers("axes", &[1], &[-1])];
        let m = file(&nodes, &[value("x", &["4", "8"])], &[value("y", &["4", "8"])], &constants);
        let m = dir.file("norm.onnx", m);
        let out = barewave(&["compile", &m, "--target", "gfx942", "--check"]);
        (out.status.code(), text(&out.stdout))
    };
    let (status, report) = verdict("keepdims");
    assert!(status == Some(0) && report.contains("5 of 5 nodes compile"), "{report}");
    let (status, report) = verdict("keepdimz");
    assert!(status == Some(1) && report.contains("keepdimz") && report.contains("1 of 5 nodes compile"), "{report}");
}

#[cfg(unix)]
#[test]
fn a_model_that_shrinks_ends_with_a_message() {
    let dir = Dir::new();
    // Large weights that are read late.
    let n = 4 << 20;
    let w = weights("w", &[n], &vec![1.0; n as usize]);
    let size = n.to_string();
    let m = file(&[node("Add", &["x", "w"], &["y"], &[])], &[value("x", &[&size])], &[value("y", &[&size])], &[w]);
    let m = dir.file("m.onnx", m);
    let shrunk = dir.path("m.onnx");
    let args = ["run", &m, "--random-inputs"];
    // At whatever moment it happens, the command ends well, or with a message and status 1.
    for wait in [5, 20, 40, 80, 160] {
        let whole = std::fs::read(&shrunk).unwrap();
        let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        std::fs::File::options().write(true).open(&shrunk).unwrap().set_len(100).unwrap();
        let out = child.wait_with_output().unwrap();
        let code = out.status.code();
        assert!(code == Some(0) || code == Some(1), "{:?}: {}", out.status, text(&out.stderr));
        assert!(code == Some(0) || text(&out.stderr).contains("m.onnx"), "{}", text(&out.stderr));
        std::fs::write(&shrunk, whole).unwrap();
    }
}
