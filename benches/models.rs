//! Compile time and emulated run time of real models, printed with their peers in the same run.
//!
//! `BAREWAVE_ONNX_DATA=<onnx/backend/test/data of the onnx 1.22 wheel> cargo bench --bench models`
//!
//! Compile time is the processor time of the whole compiler in this process (user and system, all threads), from
//! reading the file to the bytes of the code object, median of five. Where `iree-compile` is on the PATH it compiles the
//! same model for the same target and the ratio is printed. Run time is wall time on the emulated device, best of
//! three; its limit is what the host needs for the model's multiply-adds alone, in a vectorised loop on all cores.

use barewave::codeobj::ElfFile;
use barewave::compile::compile;
use barewave::graph::{self, Options};
use barewave::onnx::Model;
use barewave::runtime::{Session, open};
use barewave::tensor::HostTensor;
use barewave::verify;
use barewave_isa::Target;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// User and system time of this process and all its threads.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or("");
    let ticks: u64 = after.split_whitespace().skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// `n` multiply-adds in 128 independent chains.
#[inline(always)]
fn chains(n: usize, step: impl Fn(f32, f32) -> f32) -> f32 {
    let mut acc = [0.0f32; 128];
    for i in 0..n / 128 {
        let x = i as f32;
        for a in &mut acc {
            *a = step(*a, x);
        }
    }
    acc.iter().sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused_chains(n: usize) -> f32 {
    chains(n, |a, x| a.mul_add(0.999, x))
}

fn best_chains(n: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: both features were just detected.
        return unsafe { fused_chains(n) };
    }
    chains(n, |a, x| a * 0.999 + x)
}

/// Multiply-adds per second of the host: a vectorised loop on every core, best of five.
fn host_fma_rate() -> f64 {
    const N: usize = 1 << 30;
    let threads = rayon::current_num_threads();
    let once = || {
        let start = Instant::now();
        let sum: f32 = (0..threads).into_par_iter().map(|_| best_chains(std::hint::black_box(N))).sum();
        std::hint::black_box(sum);
        (N * threads) as f64 / start.elapsed().as_secs_f64()
    };
    (0..5).map(|_| once()).fold(0.0, f64::max)
}

fn compile_ms(path: &Path, target: Target) -> f64 {
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let before = cpu_time();
            let model = Model::load(path).expect("the model is readable");
            let graph = graph::fuse(&model, &Options::default()).expect("the model is supported");
            let program = compile(&graph, target).expect("the model compiles");
            std::hint::black_box(program.code().len());
            (cpu_time() - before).as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[2]
}

/// Processor seconds of IREE for the same model and target, where it is installed.
fn iree_seconds(path: &Path, target: Target) -> Option<f64> {
    let dir = std::env::temp_dir();
    let mlir = dir.join("barewave-bench.mlir");
    let import = Command::new("iree-import-onnx").arg(path).arg("-o").arg(&mlir).status().ok()?;
    if !import.success() {
        return None;
    }
    let script = format!(
        "iree-compile --iree-hal-target-device=hip --iree-rocm-target={} {} -o {} 2>/dev/null; times",
        target.info().name,
        mlir.display(),
        dir.join("barewave-bench.vmfb").display()
    );
    let out = Command::new("bash").arg("-c").arg(script).output().ok()?;
    // `times` prints the shell's own times and then its children's: "0m1.2s 0m0.3s".
    let text = String::from_utf8_lossy(&out.stdout);
    let seconds = |w: &str| {
        let (m, s) = w.trim_end_matches('s').split_once('m')?;
        Some(m.parse::<f64>().ok()? * 60.0 + s.parse::<f64>().ok()?)
    };
    text.lines().last().map(|l| l.split_whitespace().filter_map(seconds).sum())
}

/// Processor time of the static verifier over a model's code, milliseconds: of twenty runs, for a clock that ticks every
/// 10 ms.
fn check_ms(path: &Path, target: Target) -> f64 {
    const TIMES: u32 = 20;
    let model = Model::load(path).expect("the model is readable");
    let graph = graph::fuse(&model, &Options::default()).expect("the model is supported");
    let code = compile(&graph, target).expect("the model compiles").code().clone();
    let before = cpu_time();
    for _ in 0..TIMES {
        let file = ElfFile::parse(&code).expect("our code objects are readable");
        let reports = verify::check(&file, &code, None, &verify::Options::default()).expect("it can be checked");
        assert!(reports.iter().all(|r| r.findings.list.is_empty()));
    }
    (cpu_time() - before).as_secs_f64() * 1e3 / f64::from(TIMES)
}

fn run_seconds(path: &Path, target: Target) -> (f64, u64, u64) {
    let model = Model::load(path).expect("the model is readable");
    let graph = graph::fuse(&model, &Options::default()).expect("the model is supported");
    let program = compile(&graph, target).expect("the model compiles");
    let flops = program.plan().launches.iter().map(|l| l.flops).sum();
    let inputs: Vec<HostTensor> = program
        .plan()
        .inputs
        .iter()
        .map(|p| HostTensor::from_f32(&p.shape, &vec![0.5; p.shape.iter().product()]))
        .collect();
    let device = open(&format!("emu:{}", target.info().name), None, false).expect("emulated devices exist");
    let mut session = Session::new(device.device, &program).expect("the model loads");
    let mut best = (f64::INFINITY, 0);
    for _ in 0..3 {
        let (_, report) = session.run(&inputs).expect("the model runs");
        if report.time.as_secs_f64() < best.0 {
            best = (report.time.as_secs_f64(), report.instructions.unwrap_or(0));
        }
    }
    (best.0, best.1, flops)
}

fn main() {
    let Some(data) = std::env::var_os("BAREWAVE_ONNX_DATA") else {
        println!("set BAREWAVE_ONNX_DATA to onnx/backend/test/data of the onnx 1.22 wheel");
        return;
    };
    let rate = host_fma_rate();
    println!(
        "host: {} threads, {:.1} G multiply-adds/s in a vectorised loop",
        rayon::current_num_threads(),
        rate / 1e9
    );
    println!(
        "\n{:14} {:8} {:>12} {:>18} {:>12} {:>8}",
        "model", "target", "compile CPU", "of it checking", "IREE CPU", "ratio"
    );
    let path = |name: &str| -> PathBuf { Path::new(&data).join(format!("light/light_{name}.onnx")) };
    for (name, targets) in
        [("resnet50", &["gfx942", "gfx1100"][..]), ("squeezenet", &["gfx942"]), ("densenet121", &["gfx942"])]
    {
        for t in targets {
            let target = Target::parse(t).expect("a known target");
            let ours = compile_ms(&path(name), target);
            let peer = iree_seconds(&path(name), target);
            let theirs = peer.map_or("-".to_string(), |s| format!("{s:.1} s"));
            let ratio = peer.map_or("-".to_string(), |s| format!("{:.0}x", s * 1e3 / ours));
            let check = check_ms(&path(name), target);
            let share = format!("{check:.1} ms {:.1}%", 100.0 * check / ours);
            println!("{name:14} {t:8} {ours:>9.0} ms {share:>18} {theirs:>12} {ratio:>8}");
        }
    }
    println!(
        "\n{:14} {:8} {:>10} {:>18} {:>12} {:>14}",
        "model", "target", "emulated", "instructions", "limit", "share of limit"
    );
    for (name, t) in [("resnet50", "gfx942"), ("resnet50", "gfx1100"), ("squeezenet", "gfx942")] {
        let target = Target::parse(t).expect("a known target");
        let (seconds, instructions, flops) = run_seconds(&path(name), target);
        let limit = flops as f64 / 2.0 / rate;
        println!(
            "{name:14} {t:8} {seconds:>8.2} s {instructions:>18} {limit:>10.2} s {:>13.0}%",
            100.0 * limit / seconds
        );
    }
}
