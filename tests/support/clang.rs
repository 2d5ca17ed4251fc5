//! Foreign code objects: OpenCL C compiled by clang for any target.

use barewave::codeobj::ElfFile;
use barewave::emu::{EmuDevice, Fault, LaunchOptions, LaunchStats};
use barewave::verify;
use barewave_isa::Target;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What every kernel may use.
const PRELUDE: &str = "
typedef unsigned int uint; typedef unsigned long ulong; typedef unsigned char uchar; typedef unsigned short ushort;
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define LID __builtin_amdgcn_workitem_id_x()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define LSIZE __builtin_amdgcn_workgroup_size_x()
#define GID (GROUP * LSIZE + LID)
#define BARRIER() do { __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"); __builtin_amdgcn_s_barrier(); __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\"); } while (0)
";

/// True when clang can compile for AMD GPUs here; says so when not.
pub fn available() -> bool {
    let ok = Command::new("clang-22").arg("--version").output().is_ok_and(|o| o.status.success());
    if !ok {
        eprintln!("skipped: clang-22 is not installed");
    }
    ok
}

/// Compiles OpenCL C; `flags` are added to the command line.
pub fn compile(target: Target, source: &str, flags: &[&str]) -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stem = format!("emu-{}-{n}-{}", std::process::id(), target.info().name);
    let (cl, out): (PathBuf, PathBuf) = (dir.join(format!("{stem}.cl")), dir.join(format!("{stem}.co")));
    std::fs::write(&cl, format!("{PRELUDE}{source}")).unwrap();
    let o = Command::new("clang-22")
        .args(["-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-O3", "-nogpulib", "-w"])
        .arg(format!("-mcpu={}", target.info().name))
        .args(flags)
        .arg("-o")
        .args([&out, &cl])
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let bytes = std::fs::read(&out).unwrap();
    nothing_is_found(&format!("clang's code for {}", target.info().name), &bytes);
    if std::env::var_os("BAREWAVE_KEEP").is_none() {
        let _ = std::fs::remove_file(&cl);
        let _ = std::fs::remove_file(&out);
    }
    bytes
}

/// The static verifier has nothing to say about a code object.
pub fn nothing_is_found(name: &str, elf: &[u8]) {
    let file = ElfFile::parse(elf).unwrap();
    for r in verify::check(&file, elf, None, &verify::Options::default()).unwrap() {
        assert!(r.findings.list.is_empty(), "{name}, {}: {}", r.name, r.findings.list[0]);
    }
}

/// An argument: a buffer that is read back, or bytes by value.
pub enum Arg<'a> {
    /// Device buffer with these contents; the result is stored back.
    Buffer(&'a mut Vec<u8>),
    /// By value.
    Value(&'a [u8]),
}

/// Loads, launches and reads buffers back. A run that is not strict is followed by a strict one, which must find
/// nothing and give the same bytes.
pub fn run(
    target: Target,
    elf: &[u8],
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    args: &mut [Arg],
    options: &LaunchOptions,
) -> Result<LaunchStats, Fault> {
    if options.strict {
        return run_once(target, elf, kernel, grid, block, args, options);
    }
    let mut copies: Vec<Vec<u8>> = args
        .iter()
        .map(|a| match a {
            Arg::Buffer(b) => (*b).clone(),
            Arg::Value(v) => v.to_vec(),
        })
        .collect();
    let stats = run_once(target, elf, kernel, grid, block, args, options)?;
    let strict = LaunchOptions { strict: true, ..options.clone() };
    let mut again: Vec<Arg> = copies
        .iter_mut()
        .zip(args.iter())
        .map(|(c, a)| match a {
            Arg::Buffer(_) => Arg::Buffer(c),
            Arg::Value(v) => Arg::Value(v),
        })
        .collect();
    run_once(target, elf, kernel, grid, block, &mut again, &strict)?;
    for (a, b) in args.iter().zip(&again) {
        if let (Arg::Buffer(a), Arg::Buffer(b)) = (a, b) {
            assert!(a == b, "strict mode computed something else");
        }
    }
    Ok(stats)
}

/// As [`run`] without the strict run.
pub fn run_once(
    target: Target,
    elf: &[u8],
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    args: &mut [Arg],
    options: &LaunchOptions,
) -> Result<LaunchStats, Fault> {
    let device = EmuDevice::with_memory(target, 1 << 32).unwrap();
    let module = device.load(elf).unwrap();
    let mut bytes = Vec::new();
    let mut addrs = Vec::new();
    for a in args.iter() {
        match a {
            Arg::Buffer(b) => {
                let p = device.alloc(b.len() as u64).unwrap();
                device.write(p, b).unwrap();
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                bytes.extend_from_slice(&p.to_le_bytes());
                addrs.push(p);
            }
            Arg::Value(v) => {
                bytes.resize(bytes.len().next_multiple_of(v.len()), 0);
                bytes.extend_from_slice(v);
            }
        }
    }
    let stats = device.launch(&module.kernel(kernel).unwrap(), grid, block, &bytes, options)?;
    let mut addrs = addrs.into_iter();
    for a in args {
        if let Arg::Buffer(b) = a {
            device.read(addrs.next().unwrap(), b).unwrap();
        }
    }
    Ok(stats)
}

/// Bytes of 32-bit values and back.
pub fn bytes_of(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}
/// Singles from bytes.
pub fn floats(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}
/// Integers from bytes.
pub fn ints(b: &[u8]) -> Vec<u32> {
    b.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}
/// Bytes of integers.
pub fn bytes_of_ints(v: &[u32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}
/// A deterministic sequence of 32-bit numbers.
pub fn random(seed: u32, n: usize) -> Vec<u32> {
    let mut x = seed.wrapping_mul(747796405).wrapping_add(2891336453);
    (0..n)
        .map(|_| {
            x = x.wrapping_mul(747796405).wrapping_add(2891336453);
            let w = ((x >> ((x >> 28) + 4)) ^ x).wrapping_mul(277803737);
            (w >> 22) ^ w
        })
        .collect()
}
/// Random singles in [-1, 1).
pub fn random_floats(seed: u32, n: usize) -> Vec<f32> {
    random(seed, n).into_iter().map(|x| x as i32 as f32 / 2147483648.0).collect()
}
