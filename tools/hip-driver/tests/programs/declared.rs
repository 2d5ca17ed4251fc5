//! What HIP declares and is hardly used, what an assertion in a kernel does, and what calls cost. Each is a program in HIP
//! C++, run on a GCN and an RDNA device. Skipped without clang 22.

use crate::common::hip::compile;

const TARGETS: [&str; 2] = ["gfx942", "gfx1100"];

#[test]
fn names_textures_and_tracers_are_declared() {
    let source = r#"
struct Channels { int x, y, z, w; unsigned kind; };
struct Location { unsigned kind; int id; };
struct Props { unsigned kind, handles; Location location; void* security; size_t most; unsigned char reserved[56]; };
extern "C" {
Channels hipCreateChannelDesc(int, int, int, int, unsigned);
void __hipRegisterTexture(void**, void*, const void*, const char*, int, int, int);
void __hipRegisterSurface(void**, void*, const void*, const char*, int, int);
hipError_t hipCreateTextureObject(void**, const void*, const void*, const void*);
hipError_t hipCreateSurfaceObject(void**, const void*);
hipError_t hipBindTexture(size_t*, const void*, const void*, const Channels*, size_t);
const char* hipApiName(unsigned);
int hipGetStreamDeviceId(hipStream_t);
void hipRegisterTracerCallback(int (*)(unsigned, unsigned, const void*, void*));
hipError_t hipGetDeviceCount(int*);
hipError_t hipSetDevice(int);
hipError_t hipDeviceGetDefaultMemPool(void**, int);
hipError_t hipDeviceGetMemPool(void**, int);
hipError_t hipDeviceSetMemPool(int, void*);
hipError_t hipMemPoolCreate(void**, const Props*);
}
static int traced;
static int trace(unsigned, unsigned, const void*, void*) { traced++; return 0; }
int main() {
  Channels c = hipCreateChannelDesc(32, 16, 8, 4, 2);
  TRUE(c.x == 32 && c.y == 16 && c.z == 8 && c.w == 4 && c.kind == 2);
  // Declared when the program starts, an error when used.
  void *module = 0, *object = &object;
  int texture = 0, surface = 0;
  __hipRegisterTexture(&module, &texture, &texture, "texture", 2, 0, 0);
  __hipRegisterSurface(&module, &surface, &surface, "surface", 2, 0);
  IS(hipCreateTextureObject(&object, 0, 0, 0), 801);
  IS(hipCreateSurfaceObject(&object, 0), 801);
  IS(hipBindTexture(0, &texture, 0, &c, 4), 801);
  TRUE(hipApiName(1) && *hipApiName(1));
  hipStream_t own; int count;
  OK(hipGetDeviceCount(&count));
  TRUE(count == 2 && hipGetStreamDeviceId(0) == 0);
  OK(hipSetDevice(1)); OK(hipStreamCreate(&own)); OK(hipSetDevice(0));
  TRUE(hipGetStreamDeviceId(own) == 1);
  hipRegisterTracerCallback(trace);
  OK(hipDeviceSynchronize());
  hipRegisterTracerCallback(0);
  // Pools of devices that there are not.
  void* pool; Props props = {1, 0, {1, 7}};
  IS(hipMemPoolCreate(&pool, &props), 1);
  IS(hipDeviceGetDefaultMemPool(&pool, 2), 101); IS(hipDeviceGetMemPool(&pool, -1), 1);
  OK(hipDeviceGetMemPool(&pool, 1)); IS(hipDeviceSetMemPool(2, pool), 1);
  printf("done\n");
}
"#;
    if let Some(p) = compile(source, &TARGETS) {
        p.prints(&["gfx942,gfx942", "gfx1100,gfx1100"], "done\n");
    }
}

#[test]
fn assertions_that_fail_end_the_kernel() {
    let source = r#"
// As `__assert_fail` of AMD's device library: one lane after another tells the host, then the wave traps.
__global__ void check(const int* x) {
  int i = __builtin_amdgcn_workitem_id_x();
  if (x[i] == 7) return;
  // All at once: to stderr, "%d!\n".
  u64 text[8] = {1 | 2 | 3 << 5, 1, '%' | 'd' << 8 | '!' << 16 | '\n' << 24, (u64)i};
  ask(2, text);
  __builtin_trap();
}
int main() {
  int *x, good[64];
  for (int i = 0; i < 64; i++) good[i] = 7;
  OK(hipMalloc((void**)&x, 256)); OK(hipMemcpy(x, good, 256, 1));
  check<<<1, 64>>>(x); OK(hipDeviceSynchronize());
  good[41] = 0; OK(hipMemcpy(x, good, 256, 1));
  check<<<1, 64>>>(x);
  unsigned e = hipDeviceSynchronize();
  printf("%u\n", e);
}
"#;
    let Some(p) = compile(&format!("{}{source}", super::features::HOSTCALL), &TARGETS) else { return };
    for target in TARGETS {
        let out = p.run(&[("BAREWAVE_TARGET", target)]);
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(text == "719\n" || text == "710\n", "{target}: {text}{err}");
        assert!(err.contains("41!\n") && err.contains("trap"), "{target}: {err}");
    }
}

#[test]
fn large_blocks_and_tiny_launches_cost_little() {
    let source = r#"
typedef struct File File;
extern "C" { extern File* stderr; int fprintf(File*, const char*, ...); int clock_gettime(int, long*); }
__global__ void nothing() {}
__global__ void count(int* x) { if (!__builtin_amdgcn_workitem_id_x()) ++*x; }
static double now() { long t[2]; clock_gettime(2, t); return t[0] + t[1] * 1e-9; }
int main() {
  // The size of a block plays no part in what it costs to free it: 96 GiB took for ever, 8 GiB seconds.
  void* p; double from = now();
  for (int i = 0; i < 200; i++) { OK(hipMalloc(&p, 96ul << 30)); OK(hipFree(p)); }
  printf("%s\n", now() - from < 2 ? "constant" : "slow");
  // Launches of a wave wake nobody up: when they did, processor time was enough for 7,000 a second. What ends at once, and
  // what does not.
  int *x, out; OK(hipMalloc((void**)&x, 4)); OK(hipMemset(x, 0, 4));
  for (int round = 0; round < 2; round++) {
    OK(hipDeviceSynchronize());
    from = now();
    const int n = 50000;
    for (int i = 0; i < n; i++) if (round) count<<<1, 64>>>(x); else nothing<<<1, 64>>>();
    OK(hipDeviceSynchronize());
    double rate = n / (now() - from);
    fprintf(stderr, "%.0f launches for each second of processor time\n", rate);
    printf("%s\n", rate > 50000 ? "quick" : "slow");
  }
  OK(hipMemcpy(&out, x, 4, 2)); TRUE(out == 50000);
}
"#;
    let Some(p) = compile(source, &TARGETS) else { return };
    for target in TARGETS {
        let out = p.run(&[("BAREWAVE_TARGET", target)]);
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(text, "constant\nquick\nquick\n", "{target}: {err}");
        println!("{target}: {err}");
    }
}
