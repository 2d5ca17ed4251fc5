//! What HIP's own tests expect beyond the features of `features`: codes for impossible launches, workgroups and grids
//! that meet, variables of modules, what waits and what does not, counts of pools. Each is a program in HIP C++, run on a
//! GCN and an RDNA device with and without strict mode. Skipped without clang 22.

use crate::common::hip::compile;

const TARGETS: [&str; 2] = ["gfx942", "gfx1100"];

fn done(source: &str) {
    if let Some(p) = compile(source, &TARGETS) {
        p.prints(&TARGETS, "done\n");
    }
}

#[test]
fn impossible_launches_have_the_codes_of_their_call() {
    done(
        r#"
typedef struct ihipModule_t* hipModule_t;
typedef struct ihipFunction_t* hipFunction_t;
extern "C" {
hipError_t hipModuleLoad(hipModule_t*, const char*);
hipError_t hipModuleUnload(hipModule_t);
hipError_t hipModuleGetFunction(hipFunction_t*, hipModule_t, const char*);
hipError_t hipModuleGetGlobal(void**, size_t*, hipModule_t, const char*);
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
  hipStream_t, void**, void**);
hipError_t hipExtModuleLaunchKernel(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, size_t,
  hipStream_t, void**, void**, void*, void*, unsigned);
hipError_t hipLaunchCooperativeKernel(const void*, dim3, dim3, void**, unsigned, hipStream_t);
hipError_t hipFuncGetAttribute(int*, unsigned, hipFunction_t);
hipError_t hipFuncSetAttribute(const void*, unsigned, int);
hipError_t hipFuncSetCacheConfig(const void*, unsigned);
char* strrchr(const char*, int);
char* strcpy(char*, const char*);
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(1, 128))) small() {}
extern "C" __global__ void store(int* x) { x[__builtin_amdgcn_workgroup_id_x()] = 42; }
__constant__ char constants[100] = {1};
__managed__ int counter = 10;
extern "C" __global__ void use(char* x) { *x = constants[*x]; }
extern "C" __global__ void count() { counter++; }
int main(int, char** argv) {
  const void* f = (const void*)nothing;
  IS(hipLaunchKernel(f, dim3(0), dim3(1), 0, 0, 0), 1);
  IS(hipLaunchKernel(f, dim3(1), dim3(1, 0), 0, 0, 0), 1);
  IS(hipLaunchKernel(f, dim3(1), dim3(1025), 0, 0, 0), 9);
  IS(hipLaunchKernel(f, dim3(1), dim3(1), 0, 65537, 0), 2);
  IS(hipLaunchKernel((const void*)small, dim3(1), dim3(129), 0, 0, 0), 719);
  IS(hipLaunchCooperativeKernel(f, dim3(0), dim3(1), 0, 0, 0), 9);
  IS(hipLaunchCooperativeKernel(f, dim3(1), dim3(1025), 0, 0, 0), 9);
  IS(hipLaunchCooperativeKernel(f, dim3(1), dim3(1), 0, 65537, 0), 720);
  hipStream_t s; OK(hipStreamCreate(&s)); OK(hipStreamDestroy(s));
  IS(hipLaunchKernel(f, dim3(1), dim3(1), 0, 0, s), 1);
  IS(hipLaunchCooperativeKernel(f, dim3(1), dim3(1), 0, 0, s), 709);
  IS(hipFuncSetAttribute(f, 9, 101), 1); IS(hipFuncSetAttribute(f, 9, -2), 1); OK(hipFuncSetAttribute(f, 9, 50));
  IS(hipFuncSetAttribute(f, 8, 65537), 1); OK(hipFuncSetAttribute(f, 8, 1024)); IS(hipFuncSetCacheConfig(f, ~0u), 1);

  char path[4096]; strcpy(path, argv[0]); strcpy(strrchr(path, '/') + 1, "a.hipfb");
  hipModule_t m; hipFunction_t n, again, st;
  IS(hipModuleLoad(&m, ""), 1);
  OK(hipModuleLoad(&m, path));
  OK(hipModuleGetFunction(&n, m, "nothing")); OK(hipModuleGetFunction(&again, m, "nothing")); TRUE(n == again);
  IS(hipModuleLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0), 400);
  IS(hipModuleLaunchKernel(n, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0), 1);
  IS(hipModuleLaunchKernel(n, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0), 1);
  IS(hipModuleLaunchKernel(n, 1u << 31, 1, 1, 1, 1, 1, 0, 0, 0, 0), 1);
  IS(hipModuleLaunchKernel(n, 1, 65537, 1, 1, 1, 1, 0, 0, 0, 0), 1);
  IS(hipModuleLaunchKernel(n, 1, 1, 1, 11, 11, 11, 0, 0, 0, 0), 1);
  IS(hipModuleLaunchKernel(n, 1, 1, 1, 1, 1, 1, 65537, 0, 0, 0), 1);
  IS(hipModuleLaunchKernel(n, 1, 1, 1, 1, 1, 1, 0, s, 0, 0), 1);
  // What ends at once costs nothing, in however many workgroups.
  OK(hipModuleLaunchKernel(n, 0x7fffffff, 1, 1, 1, 1, 1, 0, 0, 0, 0));
  IS(hipExtModuleLaunchKernel(n, 1, 1, 1, 1025, 1, 1, 0, 0, 0, 0, 0, 0, 0), 1);
  IS(hipExtModuleLaunchKernel(n, 3, 1, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0), 1);
  OK(hipModuleGetFunction(&st, m, "store"));
  int* x; OK(hipMalloc((void**)&x, 64)); void* args[] = {&x}; int out;
  // A workgroup is never larger than the grid.
  OK(hipExtModuleLaunchKernel(st, 1, 1, 1, 64, 1, 1, 0, 0, args, 0, 0, 0, 0));
  OK(hipMemcpy(&out, x, 4, 2)); TRUE(out == 42);
  void* end[] = {(void*)3};
  IS(hipModuleLaunchKernel(st, 1, 1, 1, 1, 1, 1, 0, 0, 0, end), 1);
  int v; IS(hipFuncGetAttribute(&v, 0, 0), 400);
  OK(hipFuncGetAttribute(&v, 2, n)); TRUE(v == 100);

  // A managed variable of a module has memory of its own.
  hipFunction_t c; void* at; size_t size;
  OK(hipModuleGetFunction(&c, m, "count"));
  OK(hipModuleLaunchKernel(c, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)); OK(hipDeviceSynchronize());
  OK(hipModuleGetGlobal(&at, &size, m, "counter"));
  TRUE(size == 4 && *(int*)at == 11 && counter == 10);
  IS(hipModuleGetGlobal(0, 0, m, "counter"), 1); IS(hipModuleGetGlobal(&at, &size, m, ""), 1);
  OK(hipModuleUnload(m)); IS(hipModuleUnload(m), 500); IS(hipModuleUnload(0), 400);
  printf("done\n");
}
"#,
    );
}

/// How AMD's device library lets workgroups of a grid, and grids, wait for each other.
const MEETING: &str = r#"
struct Counters { unsigned count, unused; };
struct Meeting { Counters* all; unsigned rank, grids; unsigned long before, total; Counters own; unsigned groups; };
__device__ Meeting* meeting() { return *(Meeting**)((char*)__builtin_amdgcn_implicitarg_ptr() + 88); }
template <unsigned MARK> __device__ void arrive(unsigned* n, unsigned members) {
  unsigned before = __hip_atomic_fetch_add(n, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  if ((before & (MARK - 1)) == members - 1)
    __hip_atomic_fetch_add(n, MARK - members, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  else
    while (((__hip_atomic_load(n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)) ^ before) < MARK) __builtin_amdgcn_s_sleep(1);
}
__device__ void group() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
  __builtin_amdgcn_s_barrier();
}
__device__ void grid() {
  group();
  Meeting* m = meeting();
  if (!__builtin_amdgcn_workitem_id_x()) arrive<65536>(&m->own.count, m->groups);
  // No fence here either.
  __builtin_amdgcn_s_barrier();
}
__device__ void grids() {
  grid();
  Meeting* m = meeting();
  if (!__builtin_amdgcn_workitem_id_x() && !__builtin_amdgcn_workgroup_id_x()) arrive<256>(&m->all->count, m->grids);
  grid();
}
"#;

#[test]
fn workgroups_and_grids_meet() {
    let source = r#"
extern "C" {
hipError_t hipSetDevice(int);
hipError_t hipHostMalloc(void**, size_t, unsigned);
hipError_t hipLaunchCooperativeKernel(const void*, dim3, dim3, void**, unsigned, hipStream_t);
hipError_t hipLaunchCooperativeKernelMultiDevice(void*, int, unsigned);
}
struct Params { void* f; dim3 grid, block; void** args; size_t shared; hipStream_t stream; };
__global__ void sum(int* part, int* whole) {
  int g = __builtin_amdgcn_workgroup_id_x(), groups = meeting()->groups;
  for (int round = 0; round < 3; round++) {
    if (!__builtin_amdgcn_workitem_id_x()) part[g] = g + round;
    grid();
    int s = 0;
    for (int i = 0; i < groups; i++) s += part[i];
    if (!__builtin_amdgcn_workitem_id_x()) whole[round * groups + g] = s;
    grid();
  }
}
__global__ void tell(unsigned long* out) {
  Meeting* m = meeting();
  if (!__builtin_amdgcn_workitem_id_x() && !__builtin_amdgcn_workgroup_id_x())
    __hip_atomic_store(out + m->rank, 1 + m->before * 1000 + m->total, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  grids();
  if (!__builtin_amdgcn_workitem_id_x() && !__builtin_amdgcn_workgroup_id_x()) {
    unsigned long s = 0;
    for (int i = 0; i < m->grids; i++) s += __hip_atomic_load(out + i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    __hip_atomic_store(out + 8 + m->rank, s, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
}
int main() {
  const int groups = 24;
  int *part, *whole, out[3 * groups];
  OK(hipMalloc((void**)&part, 4 * groups)); OK(hipMalloc((void**)&whole, sizeof out));
  void* args[] = {&part, &whole};
  OK(hipLaunchCooperativeKernel((const void*)sum, dim3(groups), dim3(100), args, 0, 0));
  OK(hipMemcpy(out, whole, sizeof out, 2));
  for (int i = 0; i < 3 * groups; i++) TRUE(out[i] == groups * (groups - 1) / 2 + i / groups * groups);
  unsigned long* told; OK(hipHostMalloc((void**)&told, 128, 0));
  void* where[] = {&told};
  Params list[2];
  for (int d = 0; d < 2; d++) {
    hipStream_t s; OK(hipSetDevice(d)); OK(hipStreamCreate(&s));
    list[d] = {(void*)tell, dim3(3 + d), dim3(64), where, 0, s};
  }
  OK(hipLaunchCooperativeKernelMultiDevice(list, 2, 0));
  for (int d = 0; d < 2; d++) OK(hipStreamSynchronize(list[d].stream));
  unsigned long all = 7 * 64, first = 1 + all, second = 1 + 3 * 64 * 1000 + all;
  TRUE(told[0] == first && told[1] == second && told[8] == first + second && told[9] == first + second);
  printf("done\n");
}
"#;
    if let Some(p) = compile(&format!("{MEETING}{source}"), &TARGETS) {
        p.prints(&["gfx942,gfx942", "gfx1100,gfx1100"], "done\n");
    }
}

#[test]
fn what_stays_on_the_device_need_not_be_waited_for() {
    done(
        r#"
typedef struct ihipMemPool_t* hipMemPool_t;
extern "C" {
hipError_t hipHostMalloc(void**, size_t, unsigned);
hipError_t hipHostRegister(void*, size_t, unsigned);
hipError_t hipHostUnregister(void*);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipPointerSetAttribute(const void*, unsigned, void*);
hipError_t hipPointerGetAttribute(void*, unsigned, void*);
hipError_t hipMallocAsync(void**, size_t, hipStream_t);
hipError_t hipFreeAsync(void*, hipStream_t);
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t*, int);
hipError_t hipMemPoolGetAttribute(hipMemPool_t, unsigned, void*);
hipError_t hipDeviceReset();
hipError_t hipStreamAttachMemAsync(hipStream_t, void*, size_t, unsigned);
void* aligned_alloc(size_t, size_t);
}
__global__ void wait(int* go) {
  while (!__hip_atomic_load(go, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)) __builtin_amdgcn_s_sleep(8);
}
int main() {
  int* go; OK(hipHostMalloc((void**)&go, 4, 0)); *go = 0;
  char *a, *b; OK(hipMalloc((void**)&a, 4096)); OK(hipMalloc((void**)&b, 4096));
  wait<<<1, 1>>>(go);
  // All of these come behind the kernel, and none of them waits for it.
  OK(hipMemset(a, 7, 4096)); OK(hipMemcpy(b, a, 4096, 3));
  IS(hipStreamQuery(0), 600);
  *(volatile int*)go = 1;
  char out[4096]; OK(hipMemcpy(out, b, 4096, 2));
  for (int i = 0; i < 4096; i++) TRUE(out[i] == 7);
  OK(hipStreamQuery(0));
  unsigned yes = 1, set = 0; OK(hipPointerSetAttribute(&yes, 6, b));
  OK(hipPointerGetAttribute(&set, 6, b + 100)); TRUE((unsigned char)set == 1);
  int host; IS(hipPointerSetAttribute(&yes, 6, &host), 17); IS(hipPointerGetAttribute(out, 4, a), 1);
  // The size is a number of 32 bits.
  unsigned size[2] = {0, 99}; OK(hipPointerGetAttribute(size, 12, a)); TRUE(size[0] == 4096 && size[1] == 99);

  // After a wait for one stream what it did is done for all.
  hipStream_t s; OK(hipStreamCreate(&s));
  for (int i = 0; i < 200; i++) {
    wait<<<1, 1, 0, s>>>(go);
    OK(hipMemset(go, 1, 4));
    OK(hipStreamQuery(s));
  }

  // Memory that a stream frees is the program's no longer.
  hipMemPool_t pool; OK(hipDeviceGetDefaultMemPool(&pool, 0));
  void *x, *y; unsigned long used, most;
  *go = 0; OK(hipMallocAsync(&x, 1 << 20, s));
  wait<<<1, 1, 0, s>>>(go);
  OK(hipFreeAsync(x, s)); OK(hipMallocAsync(&y, 1 << 20, s)); TRUE(x == y);
  OK(hipMemPoolGetAttribute(pool, 7, &used)); OK(hipMemPoolGetAttribute(pool, 8, &most));
  TRUE(used == 1 << 20 && most == 1 << 20);
  *(volatile int*)go = 1; OK(hipFreeAsync(y, s)); OK(hipStreamSynchronize(s));

  // Host memory may come back from the allocator while it is registered; what is not there cannot be registered.
  void* page = aligned_alloc(4096, 4096);
  OK(hipHostRegister(page, 4096, 0)); OK(hipHostRegister(page, 4096, 0)); OK(hipHostUnregister(page));
  IS(hipHostUnregister(page), 713); IS(hipHostRegister(page, 1ul << 45, 0), 1);
  IS(hipStreamAttachMemAsync(0, go, 0, 4), 1);
  OK(hipDeviceReset()); IS(hipFree(a), 1);
  printf("done\n");
}
"#,
    );
}

#[test]
fn graphs_keep_to_what_was_given() {
    done(
        r#"
typedef struct ihipGraph* hipGraph_t; typedef struct node* hipGraphNode_t; typedef struct exec* hipGraphExec_t;
typedef struct object* hipUserObject_t;
extern "C" {
hipError_t hipGraphCreate(hipGraph_t*, unsigned);
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, void*, const void*, size_t,
  unsigned);
hipError_t hipGraphAddKernelNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, const void*);
hipError_t hipGraphInstantiate(hipGraphExec_t*, hipGraph_t, void*, void*, size_t);
hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t, hipGraphNode_t, void*, const void*, size_t, unsigned);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);
hipError_t hipGraphKernelNodeSetAttribute(hipGraphNode_t, unsigned, const void*);
hipError_t hipGraphKernelNodeGetAttribute(hipGraphNode_t, unsigned, void*);
hipError_t hipUserObjectCreate(hipUserObject_t*, void*, void (*)(void*), unsigned, unsigned);
hipError_t hipUserObjectRelease(hipUserObject_t, unsigned);
hipError_t hipUserObjectRetain(hipUserObject_t, unsigned);
hipError_t hipGraphRetainUserObject(hipGraph_t, hipUserObject_t, unsigned, unsigned);
hipError_t hipGraphReleaseUserObject(hipGraph_t, hipUserObject_t, unsigned);
hipError_t hipStreamBeginCapture(hipStream_t, unsigned);
hipError_t hipStreamEndCapture(hipStream_t, hipGraph_t*);
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t, hipGraphNode_t*, size_t, unsigned);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t, unsigned*, unsigned long*, hipGraph_t*, const hipGraphNode_t**, size_t*);
hipError_t hipMemsetAsync(void*, int, size_t, hipStream_t);
hipError_t hipDrvGetErrorString(unsigned, const char**);
int strcmp(const char*, const char*);
}
__global__ void nothing() {}
struct KernelNode { dim3 block; void** extra; void* f; dim3 grid; void** args; unsigned shared; };
int gone = 0;
int main() {
  char *a, *b; OK(hipMalloc((void**)&a, 1 << 20)); OK(hipMalloc((void**)&b, 1 << 20));
  static char out[1 << 20];
  hipGraph_t g; hipGraphNode_t copy, fetch, k; hipGraphExec_t e;
  OK(hipGraphCreate(&g, 0)); OK(hipMemset(a, 5, 1 << 20));
  OK(hipGraphAddMemcpyNode1D(&copy, g, 0, 0, b, a, 1 << 20, 3));
  OK(hipGraphAddMemcpyNode1D(&fetch, g, &copy, 1, out, b, 1 << 20, 2));
  KernelNode p = {dim3(1), 0, (void*)nothing, dim3(1), 0, 0};
  OK(hipGraphAddKernelNode(&k, g, &copy, 1, &p));
  // An attribute has 32 bytes, whatever is around it.
  unsigned char window[64] = {}, read[64]; for (int i = 32; i < 64; i++) read[i] = 77;
  *(float*)(window + 12) = 0.5f;
  OK(hipGraphKernelNodeSetAttribute(k, 1, window)); OK(hipGraphKernelNodeGetAttribute(k, 1, read));
  for (int i = 0; i < 64; i++) TRUE(read[i] == (i < 32 ? window[i] : 77));
  OK(hipGraphInstantiate(&e, g, 0, 0, 0));
  IS(hipGraphExecMemcpyNodeSetParams1D(e, copy, b, a, 100, 4), 1);
  OK(hipGraphExecMemcpyNodeSetParams1D(e, copy, b, a, 1 << 20, 3));
  OK(hipGraphLaunch(e, 0));
  // Pageable memory is there when the call returns.
  for (int i = 0; i < 1 << 20; i++) TRUE(out[i] == 5);

  // References to what is gone change nothing.
  hipUserObject_t o; OK(hipUserObjectCreate(&o, &gone, [](void* p) { ++*(int*)p; }, 1, 1));
  OK(hipGraphRetainUserObject(g, o, 1, 1)); OK(hipGraphReleaseUserObject(g, o, 4)); TRUE(gone == 1);
  OK(hipGraphRetainUserObject(g, o, 2, 1)); OK(hipGraphReleaseUserObject(g, o, 1)); OK(hipUserObjectRetain(o, 1));
  OK(hipUserObjectRelease(o, 1)); TRUE(gone == 1); IS(hipUserObjectRetain(0, 1), 1);

  // What a program replaced among the nodes that come next needs nothing behind it.
  hipStream_t s; OK(hipStreamCreate(&s)); OK(hipStreamBeginCapture(s, 0));
  OK(hipMemsetAsync(a, 1, 16, s));
  unsigned status; hipGraph_t into; const hipGraphNode_t* nodes; size_t n;
  OK(hipStreamGetCaptureInfo_v2(s, &status, 0, &into, &nodes, &n)); TRUE(status == 1 && n == 1);
  hipGraphNode_t other; OK(hipGraphAddKernelNode(&other, into, 0, 0, &p));
  OK(hipStreamUpdateCaptureDependencies(s, &other, 1, 1));
  OK(hipMemsetAsync(b, 1, 16, s)); OK(hipStreamEndCapture(s, &into)); TRUE(into);
  const char* text; OK(hipDrvGetErrorString(910, &text));
  TRUE(!strcmp(text, "the graph update was not performed because it included changes which violated constraints "
    "specific to instantiated graph update"));
  printf("done\n");
}
"#,
    );
}

#[test]
fn occupancy_counts_compute_units_and_handles_stay() {
    done(
        r#"
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphNode* hipGraphNode_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef struct ihipFunction_t* hipFunction_t;
extern "C" {
hipError_t hipDeviceGetAttribute(int*, unsigned, int);
hipError_t hipDeviceSetLimit(unsigned, size_t);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int*, const void*, int, size_t);
hipError_t hipOccupancyMaxPotentialBlockSize(int*, int*, const void*, size_t, int);
hipError_t hipLaunchCooperativeKernel(const void*, dim3, dim3, void**, unsigned, hipStream_t);
hipError_t hipGetFuncBySymbol(hipFunction_t*, const void*);
hipError_t hipHostMalloc(void**, size_t, unsigned);
hipError_t hipStreamQuery(hipStream_t);
hipError_t hipMemcpyAsync(void*, const void*, size_t, int, hipStream_t);
hipError_t hipGraphCreate(hipGraph_t*, unsigned);
hipError_t hipDrvGraphAddMemsetNode(hipGraphNode_t*, hipGraph_t, const hipGraphNode_t*, size_t, const void*, void*);
hipError_t hipDrvGraphExecMemsetNodeSetParams(hipGraphExec_t, hipGraphNode_t, const void*, void*);
hipError_t hipGraphInstantiate(hipGraphExec_t*, hipGraph_t, hipGraphNode_t*, char*, size_t);
hipError_t hipGraphLaunch(hipGraphExec_t, hipStream_t);
}
__global__ void nothing() {}
__global__ void sleeps() { for (int i = 0; i < 20000; i++) __builtin_amdgcn_s_sleep(8); }
struct DriverSet { void* to; size_t pitch; unsigned value, element; size_t width, height; };
int main() {
  // What fits on a compute unit fits in its workitems, and all of it on the device: one more does not.
  int room, units, blocks, grid, block;
  OK(hipDeviceGetAttribute(&room, 57, 0)); OK(hipDeviceGetAttribute(&units, 63, 0));
  for (int size = 32; size <= 1024; size *= 2) {
    OK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (void*)nothing, size, 0));
    TRUE(blocks > 0 && blocks * size <= room);
    OK(hipLaunchCooperativeKernel((void*)nothing, dim3(blocks * units), dim3(size), 0, 0, 0));
    IS(hipLaunchCooperativeKernel((void*)nothing, dim3(blocks * units + 1), dim3(size), 0, 0, 0), 720);
  }
  OK(hipOccupancyMaxPotentialBlockSize(&grid, &block, (void*)nothing, 0, 0)); TRUE(grid * block <= units * room);
  IS(hipDeviceSetLimit(99, 1024), 1);
  hipFunction_t f, g; OK(hipGetFuncBySymbol(&f, (void*)nothing)); OK(hipGetFuncBySymbol(&g, (void*)nothing)); TRUE(f == g);

  // From host to host everything is done when the call returns.
  char *a, *b, *d; OK(hipHostMalloc((void**)&a, 64, 0)); OK(hipHostMalloc((void**)&b, 64, 0)); OK(hipMalloc((void**)&d, 4096));
  sleeps<<<1, 64>>>(); OK(hipMemcpyAsync(a, b, 64, 0, 0)); OK(hipStreamQuery(0));

  // Nodes of the driver's interface have its order of parameters.
  hipGraph_t graph; hipGraphNode_t node; hipGraphExec_t e; char out[64];
  OK(hipGraphCreate(&graph, 0));
  DriverSet set = {d, 16, 7, 1, 10, 3};
  OK(hipMemset(d, 1, 4096)); OK(hipDrvGraphAddMemsetNode(&node, graph, 0, 0, &set, 0));
  OK(hipGraphInstantiate(&e, graph, 0, 0, 0)); OK(hipGraphLaunch(e, 0)); OK(hipMemcpy(out, d, 64, 2));
  for (int i = 0; i < 64; i++) TRUE(out[i] == (i % 16 < 10 && i < 48 ? 7 : 1));
  set.value = 9; OK(hipDrvGraphExecMemsetNodeSetParams(e, node, &set, 0)); OK(hipGraphLaunch(e, 0));
  OK(hipMemcpy(out, d, 64, 2)); TRUE(out[0] == 9 && out[10] == 1);
  printf("done\n");
}
"#,
    );
}

#[test]
fn memory_freed_before_the_first_kernel_is_watched() {
    let source = r#"
__global__ void use(int* x) { *x = 1; }
int main() {
  // Nothing else was on the device: what is allocated for the kernel must not take this place.
  int* x; OK(hipMalloc((void**)&x, 64)); OK(hipFree(x));
  use<<<1, 1>>>(x); IS(hipDeviceSynchronize(), 700);
  printf("done\n");
}
"#;
    let Some(p) = compile(source, &TARGETS) else { return };
    for target in TARGETS {
        let out = p.run(&[("BAREWAVE_TARGET", target), ("BAREWAVE_STRICT", "1")]);
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(text == "done\n" && err.contains("freed before"), "{target}: {text}{err}");
    }
}
