//! A program in HIP C++ as clang compiles it: start code that registers an offload bundle, `<<<>>>` launches, managed
//! memory, linked against the driver. Skipped without clang 22.

mod common;

use common::driver;
use std::path::Path;
use std::process::Command;

/// The declarations that AMD's headers would give, and a program.
const SOURCE: &str = r#"
typedef unsigned long size_t;
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
typedef struct ihipStream_t* hipStream_t;
typedef unsigned hipError_t;
extern "C" {
hipError_t __hipPushCallConfiguration(dim3, dim3, size_t, hipStream_t);
hipError_t __hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*);
hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t hipMallocManaged(void**, size_t, unsigned);
hipError_t hipDeviceSynchronize(void);
hipError_t hipGetLastError(void);
int printf(const char*, ...);
}
__attribute__((global)) void scale(float* x, float by, int n) {
  extern __attribute__((shared)) float tile[];
  int lane = __builtin_amdgcn_workitem_id_x(), i = __builtin_amdgcn_workgroup_id_x() * 64 + lane;
  tile[lane] = i < n ? x[i] : 0;
  __builtin_amdgcn_s_barrier();
  if (i < n) x[i] = tile[lane] * by;
}
int main() {
  float* x;
  if (hipMallocManaged((void**)&x, 4000, 1)) return 11;
  for (int i = 0; i < 1000; i++) x[i] = i;
  scale<<<dim3(16), dim3(64), 256, 0>>>(x, 2.5f, 1000);
  unsigned launched = hipGetLastError(), done = hipDeviceSynchronize();
  if (launched || done) { printf("error %u\n", launched ? launched : done); return 12; }
  for (int i = 0; i < 1000; i++) if (x[i] != 2.5f * i) return 13;
  printf("1000 products\n");
}
"#;

fn clang(arguments: &[&str], dir: &Path) {
    let out = Command::new("clang-22").args(arguments).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// An offload bundle the way `clang-offload-bundler` lays it out.
fn bundle(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
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

#[test]
fn a_compiled_hip_program_runs() {
    if Command::new("clang-22").arg("--version").output().is_err() {
        println!("skipped: clang-22 is not on the PATH");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    std::fs::write(dir.join("a.hip"), SOURCE).unwrap();
    let mut entries = vec![("host-x86_64-unknown-linux-gnu-", Vec::new())];
    for (arch, name) in [("gfx942", "hipv4-amdgcn-amd-amdhsa--gfx942"), ("gfx1100", "hipv4-amdgcn-amd-amdhsa--gfx1100")]
    {
        let arch = format!("--offload-arch={arch}");
        let device = ["-x", "hip", &arch, "--offload-device-only", "--no-gpu-bundle-output"];
        clang(&[&device[..], &["-nogpulib", "-nogpuinc", "-O2", "a.hip", "-o", "a.co"]].concat(), dir);
        entries.push((name, std::fs::read(dir.join("a.co")).unwrap()));
    }
    std::fs::write(dir.join("a.hipfb"), bundle(&entries)).unwrap();
    let host = ["-x", "hip", "--offload-host-only", "--offload-arch=gfx942", "-nogpuinc", "-O2"];
    let embed = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", "a.hipfb", "a.hip", "-c", "-o", "a.o"];
    clang(&[&host[..], &embed].concat(), dir);
    let library = driver();
    let search = format!("-L{}", library.parent().unwrap().display());
    clang(&["a.o", &search, "-lamdhip64", "-o", "program"], dir);
    for (target, strict, status, text) in [
        ("gfx942", "0", 0, "1000 products"),
        ("gfx1100", "0", 0, "1000 products"),
        ("gfx942", "1", 0, "1000 products"),
        // The bundle has no code for this one: hipErrorNoBinaryForGpu.
        ("gfx906", "0", 12, "error 209"),
    ] {
        let out = Command::new(dir.join("program"))
            .env("LD_LIBRARY_PATH", library.parent().unwrap())
            .env("BAREWAVE_TARGET", target)
            .env("BAREWAVE_STRICT", strict)
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{target}: {err}");
        assert!(String::from_utf8_lossy(&out.stdout).contains(text), "{target}: {err}");
    }
}
