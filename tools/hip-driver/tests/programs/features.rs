//! What programs ask of HIP beyond launches and copies: variables, printf, device-side allocation, graphs, cooperative
//! launches, streams of threads, virtual memory, sharing between processes, clocks, error codes. Each is a program in HIP
//! C++, run on a GCN and an RDNA device with and without strict mode. Skipped without clang 22.

use crate::common::hip::{Program, compile, compile_with};

const TARGETS: [&str; 2] = ["gfx942", "gfx1100"];

fn program(source: &str) -> Option<Program> {
    compile(source, &TARGETS)
}

#[test]
fn variables_by_their_host_address() {
    let source = r#"
extern "C" {
hipError_t hipMemcpyToSymbol(const void*, const void*, size_t, size_t, unsigned);
hipError_t hipMemcpyFromSymbol(void*, const void*, size_t, size_t, unsigned);
hipError_t hipGetSymbolAddress(void**, const void*);
hipError_t hipGetSymbolSize(size_t*, const void*);
}
__device__ int table[16];
__constant__ int factor;
__managed__ int shared = 5;
__global__ void multiply() { int i = __builtin_amdgcn_workitem_id_x(); if (i < 16) table[i] *= factor; if (!i) shared++; }
int main() {
  int in[16], out[16], five = 5, unknown;
  for (int i = 0; i < 16; i++) in[i] = i;
  OK(hipMemcpyToSymbol(&table, in, sizeof in, 0, 1));
  OK(hipMemcpyToSymbol(&factor, &five, 4, 0, 1));
  multiply<<<1, 64>>>();
  OK(hipDeviceSynchronize());
  OK(hipMemcpyFromSymbol(out, &table, 8 * 4, 8 * 4, 2));
  for (int i = 0; i < 8; i++) TRUE(out[i] == 5 * (8 + i));
  TRUE(shared == 6);
  shared = 10;
  multiply<<<1, 64>>>();
  OK(hipDeviceSynchronize());
  TRUE(shared == 11);
  void* at; size_t size;
  OK(hipGetSymbolAddress(&at, &table));
  OK(hipGetSymbolSize(&size, &table));
  TRUE(size == 64);
  OK(hipMemcpy(out, at, 64, 2));
  TRUE(out[15] == 15 * 25);
  IS(hipGetSymbolAddress(&at, &unknown), 13);
  IS(hipGetSymbolAddress(&at, 0), 13);
  IS(hipMemcpyToSymbol(&table, in, 60, 8, 1), 1);
  IS(hipMemcpyToSymbol(&table, in, 8, ~0ul, 1), 1);
  IS(hipMemcpyToSymbol(&table, in, 8, 0, 2), 21);
  printf("done\n");
}
"#;
    if let Some(p) = program(source) {
        p.prints(&TARGETS, "done\n");
    }
}

/// The wave's side of a request to the host, as AMD's device library makes it.
pub(super) const HOSTCALL: &str = r#"
typedef unsigned long u64;
struct Header { u64 next, lanes; unsigned service, control; };
struct Buffer { Header* headers; u64 (*payloads)[64][8]; u64 doorbell, free, ready, mask; };
#define SYSTEM __ATOMIC_ACQ_REL, __MEMORY_SCOPE_SYSTEM
__device__ void ask(unsigned service, u64* slot) {
  Buffer* b = *(Buffer**)((char*)__builtin_amdgcn_implicitarg_ptr() + 80);
  unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  unsigned first = __builtin_amdgcn_readfirstlane(lane);
  u64 packet = 0;
  if (lane == first) {
    packet = __hip_atomic_load(&b->free, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
    while (!__hip_atomic_compare_exchange_strong(&b->free, &packet, b->headers[packet & b->mask].next,
             __ATOMIC_ACQUIRE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)) {}
  }
  unsigned low = __builtin_amdgcn_readfirstlane((unsigned)packet);
  unsigned high = __builtin_amdgcn_readfirstlane((unsigned)(packet >> 32));
  packet = (u64)high << 32 | low;
  Header* h = b->headers + (packet & b->mask);
  u64* own = b->payloads[packet & b->mask][lane];
  u64 lanes = __builtin_amdgcn_ballot_w64(true);
  for (int i = 0; i < 8; i++) own[i] = slot[i];
  if (lane == first) {
    h->service = service; h->lanes = lanes; h->control = 1;
    u64 top = __hip_atomic_load(&b->ready, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    do h->next = top; while (!__hip_atomic_compare_exchange_strong(&b->ready, &top, packet,
             __ATOMIC_RELEASE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM));
    __hip_atomic_fetch_add((u64*)(b->doorbell + 8), 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
    while (__hip_atomic_load(&h->control, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) & 1) __builtin_amdgcn_s_sleep(1);
  }
  __builtin_amdgcn_wave_barrier();
  for (int i = 0; i < 2; i++) slot[i] = __hip_atomic_load(own + i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  if (lane == first) {
    u64 top = __hip_atomic_load(&b->free, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    u64 next = packet + b->mask + 1;
    do b->headers[next & b->mask].next = top; while (!__hip_atomic_compare_exchange_strong(&b->free, &top, next,
             __ATOMIC_RELEASE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM));
  }
}
"#;

#[test]
fn kernels_print_and_allocate() {
    let source = r#"
__global__ void print(int* counts) {
  int i = __builtin_amdgcn_workitem_id_x();
  if (i & 1) return;
  // "%d of %s\n", i, "four": first the stream, then format and arguments.
  u64 one[8] = {1 | 4 << 5, 0, 0x20666f2064252020ul >> 16 | (u64)'%' << 48 | (u64)'s' << 56, '\n', (u64)i};
  ask(2, one);
  u64 two[8] = {one[0] | 2 | 1 << 5, 'f' | 'o' << 8 | 'u' << 16 | (u64)'r' << 24};
  two[0] = one[0] & ~0xfful | 2 | 1 << 5;
  ask(2, two);
  counts[i] = two[0];
}
__global__ void allocate(int** place) {
  u64 slot[8] = {0, 4096};
  if (__builtin_amdgcn_workitem_id_x() == 0) { ask(3, slot); *place = (int*)slot[0]; (*place)[1000] = 77; }
}
__global__ void check(int* wrong) {
  // AMD's allocator tells a slab (2 MiB) and what is no block of one (whole pages) by their addresses.
  int i = __builtin_amdgcn_workitem_id_x();
  u64 slot[8] = {0, i & 1 ? 2ul << 20 : 3080ul + i};
  ask(3, slot);
  wrong[i] = !slot[0] || slot[0] % (i & 1 ? 2ul << 20 : 4096ul);
  slot[1] = 0;
  ask(3, slot);
}
__global__ void release(int** place) {
  u64 slot[8] = {(u64)*place, 0};
  if (__builtin_amdgcn_workitem_id_x() == 0) ask(3, slot);
}
int main() {
  int* counts; int** place; int seen;
  OK(hipMallocManaged((void**)&counts, 4 * 8, 1));
  OK(hipMallocManaged((void**)&place, 8, 1));
  print<<<1, 8>>>(counts);
  OK(hipDeviceSynchronize());
  for (int i = 0; i < 8; i += 2) TRUE(counts[i] == 10);
  allocate<<<1, 64>>>(place);
  OK(hipDeviceSynchronize());
  OK(hipMemcpy(&seen, *place + 1000, 4, 2));
  TRUE(seen == 77);
  check<<<1, 8>>>(counts);
  OK(hipDeviceSynchronize());
  for (int i = 0; i < 8; i++) TRUE(!counts[i]);
  release<<<1, 64>>>(place);
  OK(hipDeviceSynchronize());
  IS(hipMemcpy(&seen, *place + 1000, 4, 2), 1);
  printf("done\n");
}
"#;
    if let Some(p) = program(&format!("{HOSTCALL}{source}")) {
        p.prints(&TARGETS, "0 of four\n2 of four\n4 of four\n6 of four\ndone\n");
    }
}

#[test]
fn graphs_in_full() {
    let source = r#"
typedef struct G* Graph; typedef struct N* Node; typedef struct X* Exec; typedef struct U* User;
struct Kernel { dim3 block; void** extra; void* func; dim3 grid; void** params; unsigned shared; };
struct Set { void* dst; unsigned element; size_t height, pitch; unsigned value; size_t width; };
struct Location { unsigned kind; int id; };
struct Pool { unsigned kind, handles; Location location; void* security; size_t most; unsigned char reserved[56]; };
struct Alloc { Pool pool; const void* access; size_t count, bytes; void* at; };
struct Any { unsigned kind, zero[3]; union { long long pad[29]; Set set; Graph graph; }; long long end; };
extern "C" {
hipError_t hipGraphCreate(Graph*, unsigned);
hipError_t hipGraphDestroy(Graph);
hipError_t hipGraphAddKernelNode(Node*, Graph, const Node*, size_t, const Kernel*);
hipError_t hipGraphKernelNodeGetParams(Node, Kernel*);
hipError_t hipGraphAddNode(Node*, Graph, const Node*, size_t, Any*);
hipError_t hipGraphMemsetNodeGetParams(Node, Set*);
hipError_t hipGraphAddMemAllocNode(Node*, Graph, const Node*, size_t, Alloc*);
hipError_t hipGraphAddMemFreeNode(Node*, Graph, const Node*, size_t, void*);
hipError_t hipGraphAddMemcpyNode1D(Node*, Graph, const Node*, size_t, void*, const void*, size_t, unsigned);
hipError_t hipGraphAddMemcpyNodeToSymbol(Node*, Graph, const Node*, size_t, const void*, const void*, size_t, size_t, unsigned);
hipError_t hipGraphAddDependencies(Graph, const Node*, const Node*, size_t);
hipError_t hipGraphRemoveDependencies(Graph, const Node*, const Node*, size_t);
hipError_t hipGraphInstantiate(Exec*, Graph, Node*, char*, size_t);
hipError_t hipGraphLaunch(Exec, hipStream_t);
hipError_t hipGraphExecDestroy(Exec);
hipError_t hipGraphExecUpdate(Exec, Graph, Node*, unsigned*);
hipError_t hipGraphNodeSetEnabled(Exec, Node, unsigned);
hipError_t hipGraphNodeGetEnabled(Exec, Node, unsigned*);
hipError_t hipGraphChildGraphNodeGetGraph(Node, Graph*);
hipError_t hipDeviceGetGraphMemAttribute(int, unsigned, void*);
hipError_t hipUserObjectCreate(User*, void*, void (*)(void*), unsigned, unsigned);
hipError_t hipGraphRetainUserObject(Graph, User, unsigned, unsigned);
hipError_t hipGraphDebugDotPrint(Graph, const char*, unsigned);
hipError_t hipStreamBeginCapture(hipStream_t, unsigned);
hipError_t hipStreamEndCapture(hipStream_t, Graph*);
hipError_t hipStreamGetCaptureInfo_v2(hipStream_t, unsigned*, unsigned long*, Graph*, const Node**, size_t*);
}
__device__ int symbol;
__global__ void add(int* x, int n) { x[__builtin_amdgcn_workitem_id_x()] += n + symbol; }
static void count(void* p) { ++*(int*)p; }
int main() {
  int *x, out[64], n = 3, destroyed = 0, five = 5;
  OK(hipMalloc((void**)&x, 256));
  Graph g; Node fill, to, kernel, copy, child, again; Exec exec; User user;
  OK(hipGraphCreate(&g, 0));
  OK(hipUserObjectCreate(&user, &destroyed, count, 1, 1));
  OK(hipGraphRetainUserObject(g, user, 1, 1));
  Any any = {2}; any.set = Set{x, 4, 1, 0, 7, 64};
  OK(hipGraphAddNode(&fill, g, 0, 0, &any));
  OK(hipGraphAddMemcpyNodeToSymbol(&to, g, &fill, 1, &symbol, &five, 4, 0, 1));
  void* params[] = {&x, &n};
  Kernel k = {dim3(64), 0, (void*)add, dim3(1), params, 0};
  Node both[] = {fill, to}, twice[] = {fill, fill};
  IS(hipGraphAddKernelNode(&kernel, g, twice, 2, &k), 1);
  OK(hipGraphAddKernelNode(&kernel, g, both, 2, &k));
  n = 100;  // The node has its own copy.
  OK(hipGraphAddMemcpyNode1D(&copy, g, &kernel, 1, out, x, 256, 2));
  IS(hipGraphAddDependencies(g, &kernel, &copy, 1), 1);
  OK(hipGraphRemoveDependencies(g, &kernel, &copy, 1));
  IS(hipGraphRemoveDependencies(g, &kernel, &copy, 1), 1);
  OK(hipGraphAddDependencies(g, &kernel, &copy, 1));
  Set set; OK(hipGraphMemsetNodeGetParams(fill, &set));
  TRUE(set.dst == x && set.value == 7 && set.width == 64 && set.element == 4 && set.height == 1);
  Kernel got; OK(hipGraphKernelNodeGetParams(kernel, &got));
  TRUE(got.func == (void*)add && got.block.x == 64 && *(int**)got.params[0] == x && *(int*)got.params[1] == 3);
  IS(hipGraphMemsetNodeGetParams(kernel, &set), 1);
  OK(hipGraphInstantiate(&exec, g, 0, 0, 0));
  OK(hipGraphLaunch(exec, 0)); OK(hipDeviceSynchronize());
  TRUE(out[0] == 15 && out[63] == 15);
  unsigned enabled, result;
  OK(hipGraphNodeSetEnabled(exec, kernel, 0)); OK(hipGraphNodeGetEnabled(exec, kernel, &enabled)); TRUE(!enabled);
  OK(hipGraphLaunch(exec, 0)); OK(hipDeviceSynchronize());
  TRUE(out[0] == 7);
  OK(hipGraphNodeSetEnabled(exec, kernel, 1));
  // A graph of another shape does not fit, one of the same does.
  Graph h; Node blamed;
  OK(hipGraphCreate(&h, 0));
  OK(hipGraphAddNode(&again, h, 0, 0, &any));
  IS(hipGraphExecUpdate(exec, h, &blamed, &result), 910);
  TRUE(result == 2);
  // A graph inside of another is a copy.
  Any inner = {4}; inner.graph = g;
  OK(hipGraphAddNode(&child, h, &again, 1, &inner));
  Graph held; OK(hipGraphChildGraphNodeGetGraph(child, &held)); TRUE(held != g);
  Exec outer; OK(hipGraphInstantiate(&outer, h, 0, 0, 0));
  OK(hipGraphLaunch(outer, 0)); OK(hipDeviceSynchronize());
  TRUE(out[5] == 15);
  IS(hipGraphDebugDotPrint(g, "/nonexistent/graph.dot", 0), 304);
  OK(hipGraphExecDestroy(exec)); OK(hipGraphExecDestroy(outer)); OK(hipGraphDestroy(h)); OK(hipGraphDestroy(g));
  // Memory that a graph allocates has its address from the start.
  Graph m; Node alloc, fill2, free; Alloc a = {}; size_t live;
  OK(hipGraphCreate(&m, 0));
  a.pool.kind = 1; a.pool.location = {1, 0}; a.bytes = 1 << 20;
  OK(hipGraphAddMemAllocNode(&alloc, m, 0, 0, &a));
  TRUE(a.at != 0);
  any.set = Set{a.at, 4, 1, 0, 9, 1 << 18};
  OK(hipGraphAddNode(&fill2, m, &alloc, 1, &any));
  OK(hipGraphInstantiate(&exec, m, 0, 0, 0));
  OK(hipGraphLaunch(exec, 0)); OK(hipDeviceSynchronize());
  OK(hipDeviceGetGraphMemAttribute(0, 0, &live)); TRUE(live == 1 << 20);
  IS(hipGraphLaunch(exec, 0), 1);
  OK(hipMemcpy(out, a.at, 256, 2)); TRUE(out[9] == 9);
  OK(hipFree(a.at));
  IS(hipFree(a.at), 1);
  OK(hipGraphLaunch(exec, 0)); OK(hipDeviceSynchronize());
  OK(hipFree(a.at));
  OK(hipGraphExecDestroy(exec)); OK(hipGraphDestroy(m));
  OK(hipDeviceGetGraphMemAttribute(0, 0, &live)); TRUE(live == 0);
  // What a capture forbids ends it, and what it tells.
  hipStream_t s; unsigned status; unsigned long id; Graph part; const Node* nodes; size_t count;
  OK(hipStreamCreate(&s));
  OK(hipStreamBeginCapture(s, 0));
  add<<<1, 64, 0, s>>>(x, 1);
  void* p; IS(hipMalloc(&p, 16), 900); IS(hipDeviceSynchronize(), 900); IS(hipMemset(x, 0, 4), 906);
  OK(hipStreamGetCaptureInfo_v2(s, &status, &id, 0, 0, 0)); TRUE(status == 2);
  IS(hipStreamEndCapture(s, &g), 901); TRUE(g == 0);
  OK(hipStreamBeginCapture(s, 0));
  add<<<1, 64, 0, s>>>(x, 1);
  OK(hipStreamGetCaptureInfo_v2(s, &status, &id, &part, &nodes, &count));
  TRUE(status == 1 && count == 1);
  Node first = nodes[0];
  OK(hipStreamEndCapture(s, &g)); TRUE(part == g);
  OK(hipGraphKernelNodeGetParams(first, &got)); TRUE(got.func == (void*)add);
  OK(hipMalloc(&p, 16));
  OK(hipGraphDestroy(g));
  TRUE(destroyed == 1);
  printf("done\n");
}
"#;
    if let Some(p) = program(source) {
        p.prints(&TARGETS, "done\n");
    }
}

#[test]
fn launches_of_every_kind() {
    let source = r#"
struct Params { void* func; dim3 grid, block; void** args; size_t shared; hipStream_t stream; };
struct Attribute { unsigned id, pad; unsigned value[16]; };
struct Config { dim3 grid, block; size_t shared; hipStream_t stream; Attribute* list; unsigned count; };
typedef struct E* Event;
extern "C" {
hipError_t hipExtLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t, Event, Event, int);
hipError_t hipLaunchCooperativeKernel(const void*, dim3, dim3, void**, unsigned, hipStream_t);
hipError_t hipLaunchKernelExC(const Config*, const void*, void**);
hipError_t hipLaunchCooperativeKernelMultiDevice(Params*, int, unsigned);
hipError_t hipLaunchKernel_spt(const void*, dim3, dim3, void**, size_t, hipStream_t);
hipError_t hipStreamSynchronize_spt(hipStream_t);
hipError_t hipMemcpy_spt(void*, const void*, size_t, unsigned);
hipError_t hipConfigureCall(dim3, dim3, size_t, hipStream_t);
hipError_t hipSetupArgument(const void*, size_t, size_t);
hipError_t hipLaunchByPtr(const void*);
hipError_t hipEventCreate(Event*);
hipError_t hipEventElapsedTime(float*, Event, Event);
const char* hipKernelNameRefByPtr(const void*, hipStream_t);
int strcmp(const char*, const char*);
}
__global__ void add(int* x, int n) { x[__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x()] += n; }
// All workgroups meet: each waits until it sees the others.
__global__ void meet(unsigned* seen, unsigned groups) {
  if (__builtin_amdgcn_workitem_id_x() == 0) {
    __hip_atomic_fetch_add(seen, 1, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    while (__hip_atomic_load(seen, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < groups) __builtin_amdgcn_s_sleep(1);
  }
}
int main() {
  int *x, n = 1, out; unsigned groups = 16;
  OK(hipMalloc((void**)&x, 4096)); OK(hipMemset(x, 0, 4096));
  void* args[] = {&x, &n}; void* both[] = {&x, &groups};
  Event start, stop; float ms;
  OK(hipEventCreate(&start)); OK(hipEventCreate(&stop));
  OK(hipExtLaunchKernel((void*)add, dim3(2), dim3(64), args, 0, 0, start, stop, 0));
  OK(hipDeviceSynchronize()); OK(hipEventElapsedTime(&ms, start, stop)); TRUE(ms >= 0);
  IS(hipEventElapsedTime(0, start, stop), 1);
  OK(hipMemset(x, 0, 4));
  OK(hipLaunchCooperativeKernel((void*)meet, dim3(groups), dim3(64), both, 0, 0));
  OK(hipDeviceSynchronize()); OK(hipMemcpy(&out, x, 4, 2)); TRUE(out == 16);
  IS(hipLaunchCooperativeKernel((void*)meet, dim3(1 << 20), dim3(64), both, 0, 0), 720);
  Attribute cooperative = {2, 0, {1}};
  OK(hipMemset(x, 0, 4096));
  Config config = {dim3(groups), dim3(64), 0, 0, &cooperative, 1};
  OK(hipLaunchKernelExC(&config, (void*)meet, both));
  OK(hipDeviceSynchronize()); OK(hipMemcpy(&out, x, 4, 2)); TRUE(out == 16);
  hipStream_t s; OK(hipStreamCreate(&s));
  Params list = {(void*)add, dim3(1), dim3(64), args, 0, s};
  OK(hipLaunchCooperativeKernelMultiDevice(&list, 1, 0));
  IS(hipLaunchCooperativeKernelMultiDevice(&list, 2, 0), 1);
  OK(hipStreamSynchronize(s)); OK(hipMemcpy(&out, x, 4, 2)); TRUE(out == 17);
  OK(hipLaunchKernel_spt((void*)add, dim3(1), dim3(64), args, 0, 0));
  OK(hipStreamSynchronize_spt(0)); OK(hipMemcpy_spt(&out, x, 4, 2)); TRUE(out == 18);
  OK(hipConfigureCall(dim3(1), dim3(64), 0, 0));
  OK(hipSetupArgument(&x, 8, 0)); OK(hipSetupArgument(&n, 4, 8));
  OK(hipLaunchByPtr((void*)add));
  OK(hipMemcpy(&out, x, 4, 2)); TRUE(out == 19);
  IS(hipLaunchByPtr((void*)add), 52);
  TRUE(!strcmp(hipKernelNameRefByPtr((void*)add, 0), "_Z3addPii"));
  OK(hipStreamDestroy(s));
  IS(hipStreamSynchronize(s), 709);
  printf("done\n");
}
"#;
    if let Some(p) = program(source) {
        p.prints(&TARGETS, "done\n");
    }
}

#[test]
fn memory_without_an_address_and_between_processes() {
    let source = r#"
struct Location { unsigned kind; int id; };
struct Props { unsigned kind, handles; Location location; void* windows; unsigned long flags; };
struct Access { Location location; unsigned flags; };
struct Handle { char bytes[64]; };
typedef struct E* Event;
extern "C" {
hipError_t hipMemGetAllocationGranularity(size_t*, const Props*, unsigned);
hipError_t hipMemAddressReserve(void**, size_t, size_t, void*, unsigned long long);
hipError_t hipMemAddressFree(void*, size_t);
hipError_t hipMemCreate(void**, size_t, const Props*, unsigned long long);
hipError_t hipMemRelease(void*);
hipError_t hipMemMap(void*, size_t, size_t, void*, unsigned long long);
hipError_t hipMemUnmap(void*, size_t);
hipError_t hipMemSetAccess(void*, size_t, const Access*, size_t);
hipError_t hipIpcGetMemHandle(Handle*, void*);
hipError_t hipIpcOpenMemHandle(void**, Handle, unsigned);
hipError_t hipIpcCloseMemHandle(void*);
hipError_t hipIpcGetEventHandle(Handle*, Event);
hipError_t hipIpcOpenEventHandle(Event*, Handle);
hipError_t hipEventCreateWithFlags(Event*, unsigned);
hipError_t hipEventRecord(Event, hipStream_t);
hipError_t hipEventDestroy(Event);
hipError_t hipEventSynchronize(Event);
int pipe(int*); int fork(); long read(int, void*, size_t); long write(int, const void*, size_t);
int waitpid(int, int*, int);
}
__global__ void add(int* x, int n) { x[__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x()] += n; }
int child(int from) {
  Handle stale, gone, memory, event; int* x; Event e;
  TRUE(read(from, &stale, 64) == 64 && read(from, &gone, 64) == 64);
  TRUE(read(from, &memory, 64) == 64 && read(from, &event, 64) == 64);
  IS(hipIpcOpenMemHandle((void**)&x, stale, 1), 17);
  IS(hipIpcOpenEventHandle(&e, gone), 1);
  OK(hipIpcOpenEventHandle(&e, event));
  OK(hipEventSynchronize(e));
  OK(hipIpcOpenMemHandle((void**)&x, memory, 1));
  add<<<1, 64>>>(x, 100);
  OK(hipDeviceSynchronize());
  OK(hipIpcCloseMemHandle(x));
  IS(hipIpcCloseMemHandle(x), 1);
  return 0;
}
int main() {
  int to_child[2], out[64], status;
  TRUE(!pipe(to_child));
  int pid = fork();
  if (!pid) return child(to_child[0]);
  // Two pieces of memory side by side in one range.
  size_t g; char* at; void *one, *two; Props props = {1, 1, {1, 0}}; Access access = {{1, 0}, 3};
  OK(hipMemGetAllocationGranularity(&g, &props, 0));
  OK(hipMemAddressReserve((void**)&at, 2 * g, 0, 0, 0));
  OK(hipMemCreate(&one, g, &props, 0)); OK(hipMemCreate(&two, g, &props, 0));
  IS(hipMemCreate(&two, g - 1, &props, 0), 1);
  OK(hipMemMap(at, g, 0, one, 0)); OK(hipMemMap(at + g, g, 0, two, 0));
  IS(hipMemMap(at, g, 0, two, 0), 1);
  OK(hipMemSetAccess(at, 2 * g, &access, 1));
  OK(hipMemset(at, 0, 2 * g));
  int* x = (int*)(at + g) - 32;
  add<<<1, 64>>>(x, 4);
  OK(hipDeviceSynchronize());
  OK(hipMemcpy(out, x, 256, 2));
  TRUE(out[0] == 4 && out[31] == 4 && out[32] == 4 && out[63] == 4);
  OK(hipMemRelease(one)); OK(hipMemRelease(two));
  IS(hipMemAddressFree(at, 2 * g), 1);
  OK(hipMemUnmap(at, 2 * g));
  OK(hipMemAddressFree(at, 2 * g));
  // Handles of what is gone, whose descriptors are others' when the child opens them.
  Handle memory, event, stale, gone; Event e; void* opened;
  OK(hipMalloc((void**)&x, 256));
  OK(hipIpcGetMemHandle(&stale, x));
  OK(hipFree(x));
  OK(hipEventCreateWithFlags(&e, 4 | 2));
  OK(hipIpcGetEventHandle(&gone, e));
  OK(hipEventDestroy(e));
  // The child adds to an allocation of ours.
  OK(hipMalloc((void**)&x, 256)); OK(hipMemset(x, 0, 256));
  add<<<1, 64>>>(x, 1);
  OK(hipIpcGetMemHandle(&memory, x));
  IS(hipIpcOpenMemHandle(&opened, memory, 1), 201);
  IS(hipEventCreateWithFlags(&e, 4), 1);
  OK(hipEventCreateWithFlags(&e, 4 | 2));
  OK(hipIpcGetEventHandle(&event, e));
  OK(hipEventRecord(e, 0));
  TRUE(write(to_child[1], &stale, 64) == 64 && write(to_child[1], &gone, 64) == 64);
  TRUE(write(to_child[1], &memory, 64) == 64 && write(to_child[1], &event, 64) == 64);
  TRUE(waitpid(pid, &status, 0) == pid && status == 0);
  add<<<1, 64>>>(x, 1);
  OK(hipMemcpy(out, x, 256, 2));
  TRUE(out[0] == 102 && out[63] == 102);
  OK(hipFree(x));
  // The same address again, but not the same memory.
  int* y; Handle later;
  OK(hipMalloc((void**)&y, 256));
  OK(hipIpcGetMemHandle(&later, y));
  TRUE(__builtin_memcmp(&memory, &later, 64));
  OK(hipFree(y));
  printf("done\n");
}
"#;
    if let Some(p) = program(source) {
        p.prints(&TARGETS, "done\n");
    }
}

#[test]
fn clocks_and_what_devices_say() {
    let source = r#"
extern "C" {
hipError_t hipDeviceGetAttribute(int*, unsigned, int);
hipError_t hipDeviceSetLimit(unsigned, size_t);
hipError_t hipDeviceGetLimit(size_t*, unsigned);
hipError_t hipSetDeviceFlags(unsigned);
hipError_t hipGetDeviceFlags(unsigned*);
hipError_t hipDeviceReset(void);
hipError_t hipHostUnregister(void*);
int clock_gettime(int, long*);
}
#define NOW() __builtin_readsteadycounter()
__global__ void wait(unsigned long ticks) { unsigned long from = NOW(); while (NOW() - from < ticks) {} }
int main() {
  long a[2], b[2]; int rate, units; size_t stack; unsigned flags;
  OK(hipDeviceGetAttribute(&rate, 10017, 0));
  TRUE(rate == 100000);
  OK(hipDeviceGetAttribute(&units, 63, 0));
  clock_gettime(1, a);
  wait<<<1, 1>>>(30 * rate);
  OK(hipDeviceSynchronize());
  clock_gettime(1, b);
  TRUE((b[0] - a[0]) * 1000 + (b[1] - a[1]) / 1000000 >= 29);
  OK(hipDeviceSetLimit(0, 4096)); OK(hipDeviceGetLimit(&stack, 0)); TRUE(stack == 4096);
  IS(hipDeviceGetLimit(&stack, 77), 215); IS(hipDeviceSetLimit(0, 1ul << 40), 1);
  OK(hipSetDeviceFlags(4)); IS(hipSetDeviceFlags(3), 1); IS(hipSetDeviceFlags(0x100), 1);
  OK(hipDeviceReset()); OK(hipGetDeviceFlags(&flags)); TRUE(flags == 0);
  IS(hipHostUnregister(0), 1);
  printf("%d\n", units);
}
"#;
    if let Some(p) = program(source) {
        p.prints(&["gfx942"], "304\n");
        p.prints(&["gfx1100"], "96\n");
        let out = p.run(&[("BAREWAVE_COMPUTE_UNITS", "7")]);
        assert_eq!(String::from_utf8_lossy(&out.stdout), "7\n");
        for bad in [("BAREWAVE_COMPUTE_UNITS", "many"), ("BAREWAVE_CLOCK", "fast"), ("BAREWAVE_TIMEOUT", "soon")] {
            let out = p.run(&[bad]);
            let err = String::from_utf8_lossy(&out.stderr);
            assert!(!out.status.success() && err.contains(bad.0), "{err}");
        }
    }
}

#[test]
fn pools_advice_and_flags_of_allocations() {
    let source = r#"
extern "C" {
hipError_t hipMallocAsync(void**, size_t, hipStream_t);
hipError_t hipFreeAsync(void*, hipStream_t);
hipError_t hipDeviceGetDefaultMemPool(void**, int);
hipError_t hipMemPoolGetAttribute(void*, unsigned, void*);
hipError_t hipMemPoolSetAttribute(void*, unsigned, void*);
hipError_t hipMemPoolTrimTo(void*, size_t);
hipError_t hipMemAdvise(const void*, size_t, unsigned, int);
hipError_t hipMemRangeGetAttribute(void*, size_t, unsigned, const void*, size_t);
hipError_t hipHostMalloc(void**, size_t, unsigned);
hipError_t hipExtMallocWithFlags(void**, size_t, unsigned);
hipError_t hipDrvPointerGetAttributes(unsigned, unsigned*, void**, void*);
}
int main() {
  // What a stream frees it can have again at once; a second free of it is a mistake.
  hipStream_t s; void *a, *b, *pool; size_t held, used, keep = ~0ul;
  OK(hipStreamCreate(&s));
  OK(hipDeviceGetDefaultMemPool(&pool, 0));
  OK(hipMallocAsync(&a, 1 << 20, s)); OK(hipFreeAsync(a, s)); IS(hipFreeAsync(a, s), 1);
  OK(hipMallocAsync(&b, 1 << 20, s)); TRUE(a == b);
  OK(hipMemPoolSetAttribute(pool, 4, &keep));
  OK(hipFreeAsync(b, s)); OK(hipStreamSynchronize(s));
  OK(hipMemPoolGetAttribute(pool, 5, &held)); OK(hipMemPoolGetAttribute(pool, 7, &used));
  TRUE(held == 1 << 20 && used == 0);
  OK(hipMemPoolTrimTo(pool, 0)); OK(hipMemPoolGetAttribute(pool, 5, &held)); TRUE(held == 0);
  // Advice is for pages; a range of which not all have it does not have it.
  char* m; int mostly;
  OK(hipMallocManaged((void**)&m, 3 * 4096, 1));
  OK(hipMemAdvise(m + 4096, 100, 1, 0));
  OK(hipMemRangeGetAttribute(&mostly, 4, 1, m + 4096, 4096)); TRUE(mostly == 1);
  OK(hipMemRangeGetAttribute(&mostly, 4, 1, m, 8192)); TRUE(mostly == 0);
  IS(hipMemAdvise(m, 4 * 4096, 1, 0), 1);
  OK(hipFree(m));
  IS(hipHostMalloc(&a, 64, 0xc0000000), 1); IS(hipHostMalloc(&a, 64, 999), 1);
  IS(hipExtMallocWithFlags(&a, 64, 2), 1);
  OK(hipHostMalloc(&a, 64, 0x40000000));
  unsigned which[] = {2, 12}, type; size_t size; void* to[] = {&type, &size};
  OK(hipDrvPointerGetAttributes(2, which, to, a)); TRUE(type == 1 && size == 64);
  OK(hipFree(a));
  printf("done\n");
}
"#;
    if let Some(p) = program(source) {
        p.prints(&TARGETS, "done\n");
    }
}

#[test]
fn what_kernels_print_when_they_have_ended() {
    let source = r#"
extern "C" hipError_t hipDeviceSetLimit(unsigned, size_t);
extern "C" hipError_t hipDeviceGetLimit(size_t*, unsigned);
extern "C" hipError_t hipExtHostAlloc(void**, size_t, unsigned);
#define GLOBAL __attribute__((address_space(1)))
#define AT(p, type, offset) (*(type)((const __attribute__((address_space(4))) char*)(p) + (offset)))
// As the device libraries have it: bytes used, bytes there, records.
extern "C" __device__ __attribute__((used, noinline)) GLOBAL char* __printf_alloc(unsigned bytes) {
  GLOBAL char* buffer = AT(__builtin_amdgcn_implicitarg_ptr(), GLOBAL char* const __attribute__((address_space(4)))*, 72);
  GLOBAL unsigned* head = (GLOBAL unsigned*)buffer;
  unsigned before = __hip_atomic_load(head, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  do {
    if (8 + before + bytes > head[1]) return 0;
  } while (!__hip_atomic_compare_exchange_strong(head, &before, before + bytes, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                 __HIP_MEMORY_SCOPE_AGENT));
  return buffer + 8 + before;
}
extern "C" __device__ int printf(const char*, ...);
__global__ void tell(const char* text, double d, int lanes) {
  int i = __builtin_amdgcn_workitem_id_x();
  if (i < lanes) printf("%d: %s, %.2f, %s%c\n", i, "fixed", d * i, text, '!');
  if (!i) printf("nothing else\n");
}
int main() {
  char* text;
  size_t room;
  OK(hipDeviceGetLimit(&room, 1));
  TRUE(room == 4 << 20);
  IS(hipExtHostAlloc((void**)&text, 16, 0xc0000000), 1);
  OK(hipExtHostAlloc((void**)&text, 16, 0x40000000));
  OK(hipMemcpy(text, "from memory", 12, 1));
  tell<<<1, 64>>>(text, 0.25, 2);
  OK(hipDeviceSynchronize());
  // Room for the header and the first two records, of 4 + 8 + 8 + 8 + 8 + 16 + 8 bytes.
  OK(hipDeviceSetLimit(1, 8 + 2 * 60));
  tell<<<1, 64>>>(text, 1.0, 5);
  OK(hipDeviceSynchronize());
  return 0;
}
"#;
    if let Some(p) = compile_with(source, &TARGETS, &["-mprintf-kind=buffered"]) {
        p.prints(
            &TARGETS,
            "0: fixed, 0.00, from memory!\n1: fixed, 0.25, from memory!\nnothing else\n\
             0: fixed, 0.00, from memory!\n1: fixed, 1.00, from memory!\n",
        );
    }
}

#[test]
fn stacks_as_large_as_a_program_sets_them() {
    let source = r#"
extern "C" hipError_t hipDeviceSetLimit(unsigned, size_t);
extern "C" hipError_t hipDeviceGetLimit(size_t*, unsigned);
extern "C" hipError_t hipDeviceReset(void);
__device__ __attribute__((noinline)) int deep(int n) {
  volatile int own[256];
  own[n & 255] = n;
  return n ? deep(n - 1) + own[n & 255] : 0;
}
__global__ void sum(int* out, int n) { out[0] = deep(n); }
int main() {
  int *x, got;
  size_t size;
  OK(hipMalloc((void**)&x, 4));
  OK(hipDeviceGetLimit(&size, 0));
  TRUE(size == 1024);
  IS(hipDeviceSetLimit(0, 1 << 20), 1);
  OK(hipDeviceSetLimit(0, 100 << 10));
  OK(hipDeviceGetLimit(&size, 0));
  TRUE(size == 100 << 10);
  sum<<<1, 1>>>(x, 80);
  OK(hipDeviceSynchronize());
  OK(hipMemcpy(&got, x, 4, 2));
  TRUE(got == 80 * 81 / 2);
  OK(hipDeviceSetLimit(0, 16 << 10));
  sum<<<1, 1>>>(x, 80);
  TRUE(hipDeviceSynchronize() != 0);
  OK(hipDeviceReset());
  printf("done\n");
}
"#;
    let Some(p) = program(source) else { return };
    // Without checks: what clang saves in a function's frame may never have been written.
    for target in TARGETS {
        let out = p.run(&[("BAREWAVE_TARGET", target)]);
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text == "done\n", "{target}: {text}\n{err}");
        assert!(err.contains("is outside of"), "the small stack overflows: {err}");
    }
}

#[test]
fn pools_are_shared_between_processes() {
    let source = r#"
struct Props { unsigned alloc_type, handle_types, location_kind; int device; void* security; size_t most; char rest[56]; };
struct Export { char bytes[64]; };
typedef void* Pool;
extern "C" {
hipError_t hipMemPoolCreate(Pool*, const Props*);
hipError_t hipMemPoolDestroy(Pool);
hipError_t hipMemPoolExportToShareableHandle(void*, Pool, unsigned, unsigned);
hipError_t hipMemPoolImportFromShareableHandle(Pool*, void*, unsigned, unsigned);
hipError_t hipMemPoolExportPointer(Export*, void*);
hipError_t hipMemPoolImportPointer(void**, Pool, Export*);
hipError_t hipMallocFromPoolAsync(void**, size_t, Pool, hipStream_t);
hipError_t hipFreeAsync(void*, hipStream_t);
int pipe(int*); int fork(); long read(int, void*, size_t); long write(int, const void*, size_t);
int waitpid(int, int*, int); int close(int);
}
__global__ void add(int* x, int n) { x[__builtin_amdgcn_workitem_id_x()] += n; }
int other(int from, int to) {
  // The descriptor of a pool comes by some other way; here the process that is asked has it in /proc.
  int fd;
  Export data;
  if (read(from, &fd, 4) != 4 || read(from, &data, 64) != 64) return 1;
  Pool own;
  Props props = {1, 1, 1, 0};
  OK(hipMemPoolCreate(&own, &props));
  int mine;
  OK(hipMemPoolExportToShareableHandle(&mine, own, 1, 0));
  Pool pool;
  IS(hipMemPoolImportFromShareableHandle(&pool, (void*)(size_t)from, 1, 0), 2);
  // Only the lower half of the pointer is the descriptor.
  OK(hipMemPoolImportFromShareableHandle(&pool, (void*)((size_t)mine | 0xf7f6ul << 48), 1, 0));
  int* x;
  IS(hipMallocFromPoolAsync((void**)&x, 256, pool, 0), 1);
  IS(hipMemPoolImportPointer((void**)&x, own, &data), 1);
  OK(hipMemPoolImportPointer((void**)&x, pool, &data));
  add<<<1, 64>>>(x, 1000);
  OK(hipDeviceSynchronize());
  OK(hipFree(x));
  OK(hipMemPoolDestroy(pool));
  OK(hipMemPoolDestroy(own));
  char done = 1;
  return write(to, &done, 1) == 1 ? 0 : 1;
}
int main() {
  int down[2], up[2];
  if (pipe(down) || pipe(up)) return 1;
  int pid = fork();
  if (!pid) return other(down[0], up[1]);
  Pool pool, plain;
  Props props = {1, 1, 1, 0}, alone = {1, 0, 1, 0};
  OK(hipMemPoolCreate(&pool, &props));
  OK(hipMemPoolCreate(&plain, &alone));
  int *x, fd, in[64], out[64];
  OK(hipMallocFromPoolAsync((void**)&x, sizeof in, pool, 0));
  for (int i = 0; i < 64; i++) in[i] = i;
  OK(hipMemcpy(x, in, sizeof in, 1));
  IS(hipMemPoolExportToShareableHandle(&fd, plain, 1, 0), 1);
  IS(hipMemPoolExportToShareableHandle(0, pool, 1, 0), 1);
  IS(hipMemPoolExportToShareableHandle(&fd, pool, 0, 0), 1);
  IS(hipMemPoolExportToShareableHandle(&fd, pool, 1, 1), 1);
  OK(hipMemPoolExportToShareableHandle(&fd, pool, 1, 0));
  Export data;
  IS(hipMemPoolExportPointer(&data, 0), 1);
  IS(hipMemPoolExportPointer(&data, in), 2);
  OK(hipMemPoolExportPointer(&data, x));
  char done = 0;
  int status = 1;
  if (write(down[1], &fd, 4) != 4 || write(down[1], &data, 64) != 64) return 1;
  // The other process has said something, or is gone.
  close(up[1]);
  if (read(up[0], &done, 1) != 1) return 1;
  TRUE(waitpid(pid, &status, 0) == pid && status == 0);
  OK(hipMemcpy(out, x, sizeof out, 2));
  for (int i = 0; i < 64; i++) TRUE(out[i] == i + 1000);
  // What was shared is given back and used again.
  OK(hipFreeAsync(x, 0));
  OK(hipDeviceSynchronize());
  OK(hipMalloc((void**)&x, sizeof in));
  OK(hipMemcpy(x, in, sizeof in, 1));
  OK(hipMemPoolDestroy(pool));
  printf("done\n");
}
"#;
    if let Some(p) = program(source) {
        p.prints(&TARGETS, "done\n");
    }
}
