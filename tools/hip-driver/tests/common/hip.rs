//! Programs in HIP C++, compiled by clang as users' are: start code that registers an offload bundle, `<<<>>>` launches,
//! linked against the driver.

use super::driver;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What AMD's headers would declare.
pub const PRELUDE: &str = r#"
typedef unsigned long size_t;
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
typedef struct ihipStream_t* hipStream_t;
typedef unsigned hipError_t;
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __shared__ __attribute__((shared))
#define __managed__ __attribute__((managed))
extern "C" {
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = 0);
hipError_t __hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*);
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t hipMalloc(void**, size_t);
hipError_t hipFree(void*);
hipError_t hipMallocManaged(void**, size_t, unsigned);
hipError_t hipMemcpy(void*, const void*, size_t, unsigned);
hipError_t hipMemset(void*, int, size_t);
hipError_t hipDeviceSynchronize(void);
hipError_t hipGetLastError(void);
hipError_t hipStreamCreate(hipStream_t*);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipStreamDestroy(hipStream_t);
int printf(const char*, ...);
}
#define OK(call) do { unsigned e_ = (call); if (e_) { printf("line %d: %s gives %u\n", __LINE__, #call, e_); return 1; } } while (0)
#define IS(call, code) do { unsigned e_ = (call); if (e_ != (code)) { printf("line %d: %s gives %u\n", __LINE__, #call, e_); return 1; } } while (0)
#define TRUE(what) do { if (!(what)) { printf("line %d: %s is false\n", __LINE__, #what); return 1; } } while (0)
"#;

fn clang(arguments: &[&str], dir: &Path) {
    let out = Command::new("clang-22").args(arguments).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// An offload bundle the way `clang-offload-bundler` lays it out.
fn bundle(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    const PAGE: usize = 4096;
    let table: usize = entries.iter().map(|(name, _)| 24 + name.len()).sum();
    let mut file = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    file.extend((entries.len() as u64).to_le_bytes());
    let mut at = (file.len() + table).next_multiple_of(PAGE);
    for (name, code) in entries {
        for n in [at, code.len(), name.len()] {
            file.extend((n as u64).to_le_bytes());
        }
        file.extend(name.bytes());
        at = (at + code.len()).next_multiple_of(PAGE);
    }
    for (_, code) in entries {
        file.resize(file.len().next_multiple_of(PAGE), 0);
        file.extend(code);
    }
    file
}

/// A compiled program, in a folder of its own.
pub struct Program {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

/// Compiles [`PRELUDE`] and a program for some architectures; `None`, with a word on it, where there is no clang 22.
pub fn compile(source: &str, architectures: &[&str]) -> Option<Program> {
    compile_with(source, architectures, &[])
}

/// The same with options for the code of the device.
pub fn compile_with(source: &str, architectures: &[&str], options: &[&str]) -> Option<Program> {
    if Command::new("clang-22").arg("--version").output().is_err() {
        println!("skipped: clang-22 is not on the PATH");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("a.hip"), format!("{PRELUDE}{source}")).unwrap();
    let mut entries = vec![("host-x86_64-unknown-linux-gnu-".to_string(), Vec::new())];
    for arch in architectures {
        let option = format!("--offload-arch={arch}");
        let device = ["-x", "hip", &option, "--offload-device-only", "--no-gpu-bundle-output"];
        clang(&[&device[..], options, &["-nogpulib", "-nogpuinc", "-O2", "a.hip", "-o", "a.co"]].concat(), dir);
        entries.push((format!("hipv4-amdgcn-amd-amdhsa--{arch}"), std::fs::read(dir.join("a.co")).unwrap()));
    }
    std::fs::write(dir.join("a.hipfb"), bundle(&entries)).unwrap();
    let host = ["-x", "hip", "--offload-host-only", "--offload-arch=gfx942", "-nogpuinc", "-O2"];
    let embed = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", "a.hipfb", "a.hip", "-c", "-o", "a.o"];
    clang(&[&host[..], &embed].concat(), dir);
    let search = format!("-L{}", driver().parent().unwrap().display());
    clang(&["a.o", &search, "-lamdhip64", "-o", "program"], dir);
    let path = dir.join("program");
    Some(Program { _folder: folder, path })
}

impl Program {
    /// Runs it on the emulated driver with such an environment.
    pub fn run(&self, environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(&self.path);
        command.env("LD_LIBRARY_PATH", driver().parent().unwrap());
        for name in ["BAREWAVE_TARGET", "BAREWAVE_STRICT", "BAREWAVE_LOG", "BAREWAVE_CLOCK", "AMD_LOG_LEVEL"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).output().unwrap()
    }

    /// Runs it on several targets, strict mode too; each run must end well and print this.
    pub fn prints(&self, targets: &[&str], expected: &str) {
        for target in targets {
            for strict in ["0", "1"] {
                let out = self.run(&[("BAREWAVE_TARGET", target), ("BAREWAVE_STRICT", strict)]);
                let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
                assert!(out.status.success(), "{target}, strict {strict}: {:?}\n{text}\n{err}", out.status);
                assert_eq!(text, expected, "{target}, strict {strict}: {err}");
            }
        }
    }
}
