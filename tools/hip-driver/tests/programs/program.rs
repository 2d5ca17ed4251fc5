//! A program in HIP C++ as clang compiles it: start code that registers an offload bundle, `<<<>>>` launches, managed
//! memory, linked against the driver. Skipped without clang 22.

use crate::common::hip;

const SOURCE: &str = r#"
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

#[test]
fn a_compiled_hip_program_runs() {
    let Some(program) = hip::compile(SOURCE, &["gfx942", "gfx1100"]) else { return };
    for (target, strict, status, text) in [
        ("gfx942", "0", 0, "1000 products"),
        ("gfx1100", "0", 0, "1000 products"),
        ("gfx942", "1", 0, "1000 products"),
        // The bundle has no code for this one: hipErrorNoBinaryForGpu.
        ("gfx906", "0", 12, "error 209"),
    ] {
        let out = program.run(&[("BAREWAVE_TARGET", target), ("BAREWAVE_STRICT", strict)]);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{target}: {err}");
        assert!(String::from_utf8_lossy(&out.stdout).contains(text), "{target}: {err}");
    }
}
