//! Damaged input: readers of files and text may refuse it, never panic, hang or allocate without bound.
//!
//! Each test takes valid input and damages it in thousands of deterministic ways: single bytes, runs of one value,
//! truncation, words replaced by extreme numbers.

use barewave::codeobj::ElfFile;
use barewave::compile::compile;
use barewave::emu::{EmuDevice, LaunchOptions};
use barewave::graph::{self, Options};
use barewave::mir;
use barewave::onnx::Model;
use barewave::runtime::plan::Plan;
use barewave::runtime::{EmulatedDevice, Session};
use barewave::tensor::SplitMix64;
use barewave::verify;
use barewave_isa::Target;
use std::path::Path;
use std::sync::Arc;

fn program(target: Target) -> barewave::Compiled {
    let model = Model::load(Path::new("examples/digits/digits.onnx")).unwrap();
    compile(&graph::fuse(&model, &Options::default()).unwrap(), target).unwrap()
}

/// One damaged copy.
fn damage(data: &[u8], rng: &mut SplitMix64) -> Vec<u8> {
    let mut out = data.to_vec();
    let mut at = |n: usize| (rng.next_u64() % n.max(1) as u64) as usize;
    match at(5) {
        0 => out.truncate(at(data.len())),
        1 => {
            for _ in 0..1 + at(8) {
                let i = at(data.len());
                out[i] = at(256) as u8;
            }
        }
        2 => {
            let (i, n, v) = (at(data.len()), at(64), [0u8, 0xff][at(2)]);
            let end = (i + n).min(data.len());
            out[i..end].fill(v);
        }
        3 => {
            let i = at(data.len().saturating_sub(8));
            let values = [0u64, 1, u64::MAX, 1 << 63, 0x7fff_ffff_ffff_ffff, 0xffff_ffff, data.len() as u64];
            let v = values[at(values.len())];
            let width = [2, 4, 8][at(3)];
            out[i..i + width].copy_from_slice(&v.to_le_bytes()[..width]);
        }
        _ => {
            let (i, j, n) = (at(data.len()), at(data.len()), at(48));
            for k in 0..n {
                if i + k < data.len() && j + k < data.len() {
                    out[i + k] = data[j + k];
                }
            }
        }
    }
    out
}

#[test]
fn code_objects() {
    // The headers are what is read: keep the file small.
    let code = program(Target::GFX942).code().clone();
    let mut rng = SplitMix64(1);
    let mut accepted = 0;
    for _ in 0..20_000 {
        accepted += usize::from(ElfFile::parse(&damage(&code, &mut rng)).is_ok());
    }
    assert!(accepted > 1000, "most damage hits code, not headers: {accepted}");
}

#[test]
fn damaged_code_is_checked_to_an_end() {
    for (target, seed) in [(Target::GFX1100, 20), (Target::GFX90A, 21), (Target::GFX906, 22)] {
        let p = program(target);
        let code = p.code().clone();
        let mut rng = SplitMix64(seed);
        let (mut found, mut refused) = (0, 0);
        for _ in 0..1_500 {
            let damaged = damage(&code, &mut rng);
            if let Ok(file) = ElfFile::parse(&damaged) {
                match verify::check(&file, &damaged, None, &verify::Options::default()) {
                    Ok(reports) => found += usize::from(reports.iter().any(|r| !r.findings.list.is_empty())),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(found > 100, "{target}: findings in {found} files, {refused} could not be checked");
        // what is not admitted is not loaded
        let damaged = damage(&code, &mut rng);
        if verify::admit(&damaged).is_err() {
            let device = EmulatedDevice::with_limit(p.target(), 200_000).unwrap();
            assert!(Session::from_parts(Arc::new(device), p.plan().clone(), &damaged, p.weights()).is_err());
        }
    }
}

#[test]
fn damaged_code_runs_to_an_error_or_an_end() {
    let p = program(Target::GFX1100);
    let code = p.code().clone();
    let mut rng = SplitMix64(2);
    for _ in 0..150 {
        let damaged = damage(&code, &mut rng);
        let device = EmuDevice::with_memory(p.target(), 1 << 30).unwrap();
        let Ok(module) = device.load(&damaged) else { continue };
        let memory = device.alloc(1 << 20).unwrap();
        for launch in &p.plan().launches {
            let Ok(kernel) = module.kernel(&launch.kernel) else { continue };
            let args: Vec<u8> = launch.args.iter().flat_map(|_| memory.to_le_bytes()).collect();
            let options = LaunchOptions { max_instructions: 200_000, ..LaunchOptions::default() };
            let _ = device.launch(&kernel, launch.grid, [launch.block, 1, 1], &args, &options);
        }
    }
}

#[test]
fn launch_plans() {
    let p = program(Target::GFX906);
    let text = serde_json::to_vec(p.plan()).unwrap();
    let code = p.code().clone();
    let mut rng = SplitMix64(3);
    for _ in 0..3_000 {
        if let Ok(plan) = serde_json::from_slice::<Plan>(&damage(&text, &mut rng)) {
            let device = EmulatedDevice::with_limit(p.target(), 200_000).unwrap();
            let _ = Session::from_parts(Arc::new(device), plan, &code, p.weights());
        }
    }
}

#[test]
fn machine_ir_text() {
    let p = program(Target::GFX90A);
    let mut rng = SplitMix64(4);
    for k in p.ir() {
        let text = k.source.to_string();
        for _ in 0..300 {
            let damaged = String::from_utf8_lossy(&damage(text.as_bytes(), &mut rng)).into_owned();
            if let Ok(f) = mir::parse(&damaged) {
                // What parses is verified before anything is done with it.
                let _ = barewave::passes::compile(f);
            }
        }
    }
}
