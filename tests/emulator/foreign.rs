//! Code objects of Triton and IREE run unmodified, in strict mode, and give what the host computes; the static verifier finds
//! nothing in them.
//!
//! Triton is used when the interpreter named by BAREWAVE_PYTHON (else `python3`) can import it; IREE when
//! `iree-compile` is on the PATH or named by BAREWAVE_IREE_COMPILE. Neither needs a GPU to compile.

use crate::support::round_trip::round_trip;
use barewave::codeobj::ElfFile;
use barewave::emu::{EmuDevice, LaunchOptions, kernarg};
use barewave::verify;
use barewave_isa::Target;
use half::f16;
use pretty_assertions::assert_eq;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Small pseudo-random integers.
fn small(seed: u64, n: usize, low: i32, high: i32) -> Vec<i32> {
    let mut x = seed;
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            low + ((x >> 33) % (high - low) as u64) as i32
        })
        .collect()
}

enum Arg<'a> {
    Buffer(&'a mut Vec<u8>),
    Int(i32),
    Null,
}

/// Launches a kernel in strict mode: from a copy of the file that went through text and the assembler, then from the file
/// itself. Both must leave the same in the buffers.
fn launch(target: &str, elf: &[u8], kernel: &str, grid: [u32; 3], threads: u32, lds: u32, args: &mut [Arg]) {
    let again = round_trip(&format!("{target} {kernel}"), elf, Target::parse(target).unwrap());
    let mut copies: Vec<Vec<u8>> =
        args.iter().map(|a| if let Arg::Buffer(b) = a { b.to_vec() } else { Vec::new() }).collect();
    let mut copy: Vec<Arg> = args
        .iter()
        .zip(&mut copies)
        .map(|(a, b)| match a {
            Arg::Buffer(_) => Arg::Buffer(b),
            Arg::Int(n) => Arg::Int(*n),
            Arg::Null => Arg::Null,
        })
        .collect();
    for bytes in [elf, &again] {
        let file = ElfFile::parse(bytes).unwrap();
        for r in verify::check(&file, bytes, None, &verify::Options::default()).unwrap() {
            assert!(r.findings.list.is_empty(), "{target}, {}: {}", r.name, r.findings.list[0]);
        }
    }
    launch_file(target, &again, kernel, grid, threads, lds, &mut copy);
    launch_file(target, elf, kernel, grid, threads, lds, args);
    for (a, b) in args.iter().zip(&copies) {
        if let Arg::Buffer(a) = a {
            assert!(*a == b, "{target} {kernel}: the file that was assembled again computes something else");
        }
    }
}

/// Loads, launches in strict mode, reads buffers back.
fn launch_file(target: &str, elf: &[u8], kernel: &str, grid: [u32; 3], threads: u32, lds: u32, args: &mut [Arg]) {
    let target = Target::parse(target).unwrap();
    let device = EmuDevice::new(target).unwrap();
    let module = device.load(elf).unwrap();
    let k = module.kernel(kernel).unwrap();
    let mut places = Vec::new();
    let values: Vec<Vec<u8>> = args
        .iter()
        .map(|a| match a {
            Arg::Buffer(b) => {
                let p = device.alloc(b.len() as u64).unwrap();
                device.write(p, b).unwrap();
                places.push(p);
                p.to_le_bytes().to_vec()
            }
            Arg::Int(v) => v.to_le_bytes().to_vec(),
            Arg::Null => vec![0; 8],
        })
        .collect();
    let block = kernarg::pack(k.info(), &values).unwrap();
    let options = LaunchOptions { strict: true, dynamic_lds: lds, ..LaunchOptions::default() };
    device
        .launch(&k, grid, [threads, 1, 1], &block, &options)
        .unwrap_or_else(|f| panic!("{}: {f}", target.info().name));
    let mut places = places.into_iter();
    for a in args {
        if let Arg::Buffer(b) = a {
            device.read(places.next().unwrap(), b).unwrap();
        }
    }
}

fn bytes_of(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}
fn bytes_of_ints(v: &[i32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}
fn bytes_of_halves(v: &[i32]) -> Vec<u8> {
    v.iter().flat_map(|x| f16::from_f32(*x as f32).to_le_bytes()).collect()
}
fn floats(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}
fn words(b: &[u8]) -> Vec<i32> {
    b.chunks_exact(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// Product of integer matrices, m x k by k x n.
fn product(a: &[i32], b: &[i32], k: usize, n: usize) -> Vec<f32> {
    let m = a.len() / k;
    let at = |i: usize, j: usize| (0..k).map(|x| a[i * k + x] * b[x * n + j]).sum::<i32>() as f32;
    (0..m * n).map(|p| at(p / n, p % n)).collect()
}

fn check_softmax(name: &str, x: &[f32], y: &[f32], cols: usize) {
    for (r, (x, y)) in x.chunks(cols).zip(y.chunks(cols)).enumerate() {
        let top = x.iter().copied().fold(f32::MIN, f32::max) as f64;
        let sum: f64 = x.iter().map(|v| (*v as f64 - top).exp()).sum();
        for (c, (x, y)) in x.iter().zip(y).enumerate() {
            let want = (*x as f64 - top).exp() / sum;
            assert!((*y as f64 - want).abs() < 1e-6, "{name}: row {r}, column {c}: {y} instead of {want}");
        }
    }
}

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulator").join(file)
}

#[test]
fn triton_kernels() {
    let python = std::env::var("BAREWAVE_PYTHON").unwrap_or_else(|_| "python3".into());
    if !Command::new(&python).args(["-c", "import triton"]).output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: {python} cannot import triton (BAREWAVE_PYTHON names another interpreter)");
        return;
    }
    for t in ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"] {
        let dir = scratch(&format!("triton-{t}"));
        let wave = Target::parse(t).unwrap().info().wave_size.to_string();
        let script = here("triton_kernels.py");
        let out = Command::new(&python).arg(script).args([t, &wave]).arg(&dir).output().unwrap();
        assert!(out.status.success(), "{t}: {}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|l| l.split_whitespace().collect()).filter(|l: &Vec<&str>| l.len() == 4).collect();
        assert_eq!(lines.len(), 5, "{t}: {text}");
        for l in lines {
            let elf = std::fs::read(dir.join(format!("{}.hsaco", l[0]))).unwrap();
            let (threads, lds) = (l[2].parse().unwrap(), l[3].parse().unwrap());
            let go = |grid: [u32; 3], args: &mut Vec<Arg>| {
                // Triton adds two pointers of its own: scratch memory and profiling.
                args.extend([Arg::Null, Arg::Null]);
                launch(t, &elf, l[1], grid, threads, lds, args);
            };
            match l[0] {
                "add" => {
                    let (a, b) = (small(1, 1000, -99, 99), small(2, 1000, -99, 99));
                    let f = |v: &[i32]| v.iter().map(|x| *x as f32 / 8.0).collect::<Vec<f32>>();
                    let (mut pa, mut pb, mut pc) = (bytes_of(&f(&a)), bytes_of(&f(&b)), vec![0; 4000]);
                    go(
                        [4, 1, 1],
                        &mut vec![Arg::Buffer(&mut pa), Arg::Buffer(&mut pb), Arg::Buffer(&mut pc), Arg::Int(1000)],
                    );
                    let want: Vec<f32> = f(&a).iter().zip(f(&b)).map(|(x, y)| x + y).collect();
                    assert_eq!(floats(&pc), want, "{t}");
                }
                "softmax" => {
                    let x: Vec<f32> = small(3, 1600, -400, 400).iter().map(|v| *v as f32 / 100.0).collect();
                    let (mut px, mut py) = (bytes_of(&x), vec![0; 6400]);
                    go([8, 1, 1], &mut vec![Arg::Buffer(&mut px), Arg::Buffer(&mut py), Arg::Int(200)]);
                    check_softmax(t, &x, &floats(&py), 200);
                }
                "matmul" => {
                    let (a, b) = (small(4, 64 * 64, -4, 5), small(5, 64 * 96, -4, 5));
                    let (mut pa, mut pb, mut pc) = (bytes_of_halves(&a), bytes_of_halves(&b), vec![0; 4 * 64 * 96]);
                    go(
                        [2, 3, 1],
                        &mut vec![Arg::Buffer(&mut pa), Arg::Buffer(&mut pb), Arg::Buffer(&mut pc), Arg::Int(64)],
                    );
                    assert_eq!(floats(&pc), product(&a, &b, 64, 96), "{t}");
                }
                "histogram" => {
                    let x = small(6, 1024, 0, 1000);
                    let (mut px, mut counts) = (bytes_of_ints(&x), vec![0; 128]);
                    go([4, 1, 1], &mut vec![Arg::Buffer(&mut px), Arg::Buffer(&mut counts)]);
                    let mut want = vec![0; 32];
                    x.iter().for_each(|v| want[(*v & 31) as usize] += 1);
                    assert_eq!(words(&counts), want, "{t}");
                }
                _ => {
                    let x = small(7, 1024, -100, 1000);
                    let (mut px, mut py) = (bytes_of_ints(&x), vec![0; 4096]);
                    go([4, 1, 1], &mut vec![Arg::Buffer(&mut px), Arg::Buffer(&mut py)]);
                    let sums = |c: &[i32]| {
                        c.iter()
                            .scan(0, |s, v| {
                                *s += v;
                                Some(*s)
                            })
                            .collect::<Vec<i32>>()
                    };
                    let want: Vec<i32> = x.chunks(256).flat_map(sums).collect();
                    assert_eq!(words(&py), want, "{t}");
                }
            }
        }
        let _ = std::fs::remove_dir_all(dir);
    }
}

#[test]
fn iree_dispatches() {
    let compiler = std::env::var("BAREWAVE_IREE_COMPILE").unwrap_or_else(|_| "iree-compile".into());
    if !Command::new(&compiler).arg("--version").output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: no {compiler} (BAREWAVE_IREE_COMPILE names another)");
        return;
    }
    for t in ["gfx908", "gfx90a", "gfx942", "gfx1100", "gfx1201"] {
        let dir = scratch(&format!("iree-{t}"));
        let out = Command::new(&compiler)
            .arg(here("matmul_softmax.mlir"))
            .args(["--iree-hal-target-device=hip", &format!("--iree-rocm-target={t}")])
            .arg(format!("--iree-hal-dump-executable-files-to={}", dir.display()))
            .arg("-o")
            .arg(dir.join("out.vmfb"))
            .output()
            .unwrap();
        assert!(out.status.success(), "{t}: {}", String::from_utf8_lossy(&out.stderr));
        let files = std::fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path());
        let file = files.into_iter().find(|f| f.extension().is_some_and(|e| e == "hsaco")).expect("a code object");
        let elf = std::fs::read(file).unwrap();
        let kernels = barewave::codeobj::ElfFile::parse(&elf).unwrap().kernels;
        let find = |part: &str| kernels.iter().find(|k| k.name.contains(part)).expect("a kernel");
        let threads = |k: &barewave::codeobj::KernelInfo| k.meta.as_ref().unwrap().reqd_workgroup_size.unwrap()[0];
        let k = find("matmul");
        let (a, b) = (small(4, 64 * 128, -4, 5), small(5, 128 * 96, -4, 5));
        let (mut pa, mut pb, mut pc) = (bytes_of_halves(&a), bytes_of_halves(&b), vec![0; 4 * 64 * 96]);
        let args = &mut [Arg::Buffer(&mut pa), Arg::Buffer(&mut pb), Arg::Buffer(&mut pc)];
        // The compiler chose tiles of 64 x 32.
        launch(t, &elf, &k.name, [3, 1, 1], threads(k), 0, args);
        assert_eq!(floats(&pc), product(&a, &b, 128, 96), "{t}");
        let k = find("softmax");
        let x: Vec<f32> = small(3, 1600, -400, 400).iter().map(|v| *v as f32 / 100.0).collect();
        let (mut px, mut py) = (bytes_of(&x), vec![0; 6400]);
        // A lane takes a row.
        launch(t, &elf, &k.name, [1, 1, 1], threads(k), 0, &mut [Arg::Buffer(&mut px), Arg::Buffer(&mut py)]);
        check_softmax(t, &x, &floats(&py), 200);
        let _ = std::fs::remove_dir_all(dir);
    }
}
