// Kernels for `tests/check_clang.rs`: clang compiles them for every target at every level of optimisation, and `barewave
// check` must find nothing in any of them. The prelude of tests/clang/mod.rs comes in front; HAS_MFMA, HAS_MFMA_F64,
// HAS_WMMA11, HAS_WMMA12 and HAS_DOT say what a target has.

#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
typedef float f2 __attribute__((ext_vector_type(2)));
typedef float f3 __attribute__((ext_vector_type(3)));
typedef float f4 __attribute__((ext_vector_type(4)));
typedef float f8 __attribute__((ext_vector_type(8)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef double d2 __attribute__((ext_vector_type(2)));
typedef double d4 __attribute__((ext_vector_type(4)));
typedef half h2 __attribute__((ext_vector_type(2)));
typedef half h4 __attribute__((ext_vector_type(4)));
typedef half h8 __attribute__((ext_vector_type(8)));
typedef half h16 __attribute__((ext_vector_type(16)));
typedef int i4 __attribute__((ext_vector_type(4)));
typedef uint u4 __attribute__((ext_vector_type(4)));
typedef uint u8v __attribute__((ext_vector_type(8)));
typedef short s4 __attribute__((ext_vector_type(4)));
typedef uchar b4 __attribute__((ext_vector_type(4)));
#define NOINLINE __attribute__((noinline))
#define G __global
#define K __kernel void

// plain arithmetic and memory
K copy_words(G const uint *a, G uint *o) { o[GID] = a[GID]; }
K add_floats(G const float *a, G const float *b, G float *o, uint n) { if (GID < n) o[GID] = a[GID] + b[GID]; }
K saxpy(G float *y, G const float *x, float a, uint n) { for (uint i = GID; i < n; i += 4096) y[i] = a * x[i] + y[i]; }
K copy_bytes(G const uchar *a, G uchar *o) { o[GID] = a[GID] + 1; }
K copy_shorts(G const short *a, G int *o) { o[GID] = a[GID] * 3; }
K copy_vectors(G const f4 *a, G f4 *o) { o[GID] = a[GID].wzyx * 2.0f; }
K copy_threes(G const float *a, G float *o) {
    f3 v = (f3)(a[3 * GID], a[3 * GID + 1], a[3 * GID + 2]); v = v * v.zxy; o[3 * GID] = v.x; o[3 * GID + 1] = v.y; o[3 * GID + 2] = v.z; }
K structures(G const uint *a, G uint *o) {
    struct { uint x, y; float z; uchar t[5]; } s; s.x = a[GID]; s.y = s.x * 5; s.z = s.y; for (int i = 0; i < 5; i++) s.t[i] = s.x >> i;
    o[GID] = s.x + s.y + (uint)s.z + s.t[s.x & 3]; }
K long_integers(G const ulong *a, G ulong *o) { ulong x = a[GID], y = a[GID + 1]; o[GID] = x * y + (x >> (y & 63)) - (x << 7); }
K divide_integers(G const uint *a, G uint *o) { o[GID] = a[GID] / (a[GID + 1] | 1) + a[GID] % (a[GID + 2] | 3); }
K divide_longs(G const ulong *a, G ulong *o) { o[GID] = a[GID] / (a[GID + 1] | 1); }
K divide_floats(G const float *a, G float *o) { o[GID] = a[GID] / a[GID + 1] + __builtin_sqrtf(a[GID + 2]); }
K divide_doubles(G const double *a, G double *o) { o[GID] = a[GID] / a[GID + 1]; }
K fma_doubles(G const double *a, G double *o) {
    double s = 0; for (int i = 0; i < 9; i++) s = __builtin_fma(a[GID + i], a[i], s); o[GID] = s; }
K halves(G const half *a, G half *o) { half x = a[GID], y = a[GID + 1]; o[GID] = x * y + (half)2 / (x + (half)1); }
K packed_halves(G const h2 *a, G h2 *o) { h2 x = a[GID], y = a[GID + 1]; o[GID] = x * y + x.yx; }
K convert(G const float *a, G uint *o) {
    float x = a[GID]; half h = (half)x; double d = x; o[GID] = (uint)x + (int)(d * 3.0) + __builtin_astype(h, ushort) + (uchar)x; }
K transcendental(G const float *a, G float *o) {
    float x = a[GID]; o[GID] = __builtin_exp2f(x) + __builtin_log2f(x) * __builtin_amdgcn_rcpf(x) + __builtin_amdgcn_sinf(x) + __builtin_amdgcn_rsqf(x); }
K bits(G const uint *a, G uint *o) {
    uint x = a[GID]; o[GID] = __builtin_popcount(x) + __builtin_clz(x | 1) + __builtin_bitreverse32(x) + ((x >> 3) & 0x3f) + __builtin_amdgcn_perm(x, x * 3, 0x05010400); }
K byte_vectors(G const b4 *a, G b4 *o) { b4 x = a[GID]; x = x * x.yzwx + (b4)(1, 2, 3, 4); o[GID] = x; }
K booleans(G const float *a, G uint *o) {
    bool p = a[GID] > 0, q = a[GID + 1] < a[GID], r = a[2] == a[GID]; o[GID] = (p && q) || (!r && (p != q)); }
K saturate(G const int *a, G int *o) { int x = a[GID]; o[GID] = x > 127 ? 127 : x < -128 ? -128 : x; }
K constants(G uint *o) { static const __constant uint t[13] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9}; o[GID] = t[GID % 13] * 0x12345678u; }

// control flow
K nested_ifs(G const int *a, G int *o) {
    int x = a[GID], r = 0; if (x > 10) { if (x > 100) r = x * 3; else if (x > 50) r = x - 7; else r = a[x]; } else if (x < -5) r = -x; o[GID] = r; }
K loop_breaks(G const uint *a, G uint *o) {
    uint s = 0; for (uint i = 0; i < 100; i++) { uint v = a[(GID + i) & 1023]; if (v == 7) continue; if (v > 1000) break; s += v; } o[GID] = s; }
K loops_in_loops(G const uint *a, G uint *o, uint n) {
    uint s = 0; for (uint i = 0; i < n; i++) for (uint j = i; j < a[i]; j++) { uint k = j; while (k & 1) { k >>= 1; s ^= a[k]; } s += j; } o[GID] = s; }
K long_loop(G const float *a, G float *o, uint n) {
    float s = 0, t = 1; for (uint i = 0; i < n; i++) { s = s * a[i] + t; t = t - s * a[i + 1]; s += a[i + GID] * a[i + 2]; t *= 0.5f; } o[GID] = s + t; }
K switch_small(G const uint *a, G uint *o) {
    uint r; switch (a[GID]) { case 0: r = 5; break; case 1: r = a[1]; break; case 2: r = a[2] * 3; break; default: r = 9; } o[GID] = r; }
K switch_table(G const uint *a, G uint *o) {
    uint x = a[GID], r = 1;
    switch (x & 15) { case 0: r = x * 3; break; case 1: r = x + 7; case 2: r ^= a[x & 7]; break; case 3: r = ~x; break; case 4: r = x / 7; break;
        case 5: r = x << 3; break; case 6: r = a[5]; break; case 7: r = x - a[6]; break; case 8: r = 1; case 9: r += 5; break; case 10: r = a[3] * a[4]; break;
        case 11: r = x % 11; break; case 12: return; default: r = 77; }
    o[GID] = r; }
K switch_uniform(G const uint *a, G uint *o, uint which) {
    switch (which) { case 3: o[GID] = a[GID]; break; case 5: o[GID] = a[GID] * 2; break; case 9: o[GID] = a[GID] + 9; break; case 12: o[0] = 4; break; case 15: o[GID] = 5; } }
K early_return(G const uint *a, G uint *o, uint n) { if (GID >= n) return; uint x = a[GID]; if (x == 0) return; o[x & 255] = GID; }
K state_machine(G const uint *a, G uint *o) {
    uint s = 0, n = 0, i = GID & 63; while (n < 200) { uint c = a[i & 255]; if (s == 0) s = c & 1 ? 1 : 2; else if (s == 1) { if (c > 9) s = 3; i += c; } else if (s == 2) { i++; s = 0; } else break; n++; }
    o[GID] = s * 1000 + n; }
K uniform_loop(G const uint *a, G uint *o, uint n) { uint s = 0; for (uint i = 0; i < n; i++) s += a[i]; o[GROUP] = s; }
K traps(G const uint *a, G uint *o) { if (a[GID] == 0xdead) __builtin_trap(); o[GID] = 1; }
K mandelbrot(G const float *a, G uint *o) {
    float cr = a[0] + (GID & 63) * a[1], ci = a[2], x = 0, y = 0; uint n = 0; while (n < 200 && x * x + y * y < 4.0f) { float t = x * x - y * y + cr; y = 2.0f * x * y + ci; x = t; n++; } o[GID] = n; }
K collatz(G const uint *a, G uint *o) { uint x = a[GID] | 1, n = 0; while (x != 1 && n < 1000) { x = x & 1 ? 3 * x + 1 : x / 2; n++; } o[GID] = n; }

// private memory, calls
K private_array(G const uint *a, G uint *o) { uint p[16]; for (int i = 0; i < 16; i++) p[i] = a[(GID + i) & 255] * i; o[GID] = p[a[GID] & 15] + p[a[GID + 1] & 15]; }
K volatile_array(G const uint *a, G uint *o) { volatile uint p[32]; for (int i = 0; i < 32; i++) p[i] = a[i]; o[GID] = p[GID & 31]; }
K large_array(G const uint *a, G uint *o) { uint p[1500]; for (int i = 0; i < 1500; i++) p[i] = a[i]; for (int i = 1; i < 1500; i++) p[i] ^= p[(a[i] + i) % 1500]; o[GID] = p[GID % 1500]; }
K private_bytes(G const uchar *a, G uchar *o) { uchar p[64]; for (int i = 0; i < 64; i++) p[i ^ (a[i] & 3)] = a[GID + i]; o[GID] = p[a[GID] & 63]; }
K many_values(G const float *a, G float *o) {
    float v[64]; for (int i = 0; i < 64; i++) v[i] = a[GID + i * 64];
    for (int k = 0; k < 64; k++) { float t = v[k]; for (int i = 0; i < 64; i++) v[i] = v[i] * t + a[i]; } float s = 0; for (int i = 0; i < 64; i++) s += v[i]; o[GID] = s; }
NOINLINE uint twice(uint x) { return x * 2 + 1; }
K calls(G const uint *a, G uint *o) { o[GID] = twice(a[GID]) + twice(a[GID + 1]); }
NOINLINE uint inner(G const uint *a, uint x) { uint s = 0; for (uint i = 0; i < (x & 7); i++) s += a[i + x]; return s; }
NOINLINE uint outer(G const uint *a, uint x) { return inner(a, x) * 3 + inner(a, x + 1) + twice(x); }
K calls_of_calls(G const uint *a, G uint *o) { uint s = 0; for (uint i = 0; i < 5; i++) s += outer(a, a[GID + i]); o[GID] = s; }
NOINLINE f8 wide(f8 a, f8 b, f4 c, d2 d, ulong e, h4 h) { f8 r = a * b; r.s0 += c.x + (float)d.y + (float)e + (float)h.z; return r; }
K wide_calls(G const float *a, G float *o) {
    f8 x = *(G const f8 *)(a + 8 * GID); f8 y = wide(x, x.s76543210, x.lo, (d2)(x.s0, x.s1), GID, (h4)((half)x.s1)); *(G f8 *)(o + 8 * GID) = y + x; }
uint fibonacci(uint n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
K recursion(G const uint *a, G uint *o) { o[GID] = fibonacci(a[GID] & 15); }
uint odd(uint n); NOINLINE uint even(uint n) { return n == 0 ? 1 : odd(n - 1); } NOINLINE uint odd(uint n) { return n == 0 ? 0 : even(n - 1); }
K mutual_recursion(G const uint *a, G uint *o) { o[GID] = even(a[GID] & 31); }
NOINLINE uint by_reference(uint *p, uint n) { uint s = 0; for (uint i = 0; i < n; i++) { s += p[i]; p[i] = s; } return s; }
K pointers_to_private(G const uint *a, G uint *o) { uint p[8]; for (int i = 0; i < 8; i++) p[i] = a[GID * 8 + i]; uint r = by_reference(p, a[0] & 7); o[GID] = r + p[3]; }
NOINLINE uint f_a(uint x) { return x + 1; } NOINLINE uint f_b(uint x) { return x * x; } NOINLINE uint f_c(uint x) { return x ^ 0x55; }
K function_pointers(G const uint *a, G uint *o) { uint (*f)(uint) = a[0] == 1 ? f_a : a[0] == 2 ? f_b : f_c; o[GID] = f(a[GID]); }
K divergent_pointers(G const uint *a, G uint *o) { uint (*f)(uint) = a[GID] & 1 ? f_a : f_b; o[GID] = f(a[GID + 1]) + a[GID]; }
K call_in_branch(G const uint *a, G uint *o) { uint x = a[GID], r = x; if (x & 1) r = twice(x) + a[x & 255]; else if (x & 2) r = inner(a, x); o[GID] = r; }

// LDS
K reverse_in_lds(G const uint *a, G uint *o) { __local uint t[256]; t[LID] = a[GID]; BARRIER(); o[GID] = t[255 - LID]; }
K scan(G const uint *a, G uint *o) {
    __local uint t[2][256]; uint p = 0; t[0][LID] = a[GID]; BARRIER();
    for (uint d = 1; d < 256; d <<= 1) { t[1 - p][LID] = t[p][LID] + (LID >= d ? t[p][LID - d] : 0); p = 1 - p; BARRIER(); } o[GID] = t[p][LID]; }
K tree_sum(G const float *a, G float *o) {
    __local float t[256]; t[LID] = a[GID]; BARRIER(); for (uint s = 128; s > 0; s >>= 1) { if (LID < s) t[LID] += t[LID + s]; BARRIER(); } if (LID == 0) o[GROUP] = t[0]; }
K transpose(G const float *a, G float *o) { __local float t[16][17]; uint x = LID % 16, y = LID / 16; t[y][x] = a[GID]; BARRIER(); o[GROUP * LSIZE + x * 16 + y] = t[x][y]; }
K product(G const float *a, G const float *b, G float *o, uint n) {
    __local float ta[16][17], tb[16][17]; uint x = LID % 16, y = LID / 16; float s = 0;
    for (uint k = 0; k < n; k += 16) { ta[y][x] = a[(GROUP * 16 + y) * n + k + x]; tb[y][x] = b[(k + y) * n + x]; BARRIER();
        for (uint i = 0; i < 16; i++) s = __builtin_fmaf(ta[y][i], tb[i][x], s); BARRIER(); } o[GID] = s; }
K lds_vectors(G const f4 *a, G f4 *o) { __local f4 t[64]; t[LID & 63] = a[GID]; BARRIER(); f4 r = t[(LID + 1) & 63] + t[(LID + 9) & 63]; o[GID] = r; }
K lds_bytes(G const uchar *a, G uchar *o) { __local uchar t[512]; t[LID] = a[GID]; t[LID + 256] = a[GID + 1]; BARRIER(); o[GID] = t[(LID * 7) & 511]; }
K lds_doubles(G const double *a, G double *o) { __local double t[128]; t[LID & 127] = a[GID]; BARRIER(); o[GID] = t[(LID + 5) & 127] * 2.0; }
K histogram(G const uint *a, G uint *o) {
    __local uint h[16]; if (LID < 16) h[LID] = 0; BARRIER(); __atomic_fetch_add(&h[a[GID] & 15], 1, __ATOMIC_RELAXED); BARRIER(); if (LID < 16) __atomic_fetch_add(&o[LID], h[LID], __ATOMIC_RELAXED); }
K bitonic(G uint *o) {
    __local uint t[256]; t[LID] = o[GID]; BARRIER();
    for (uint k = 2; k <= 256; k <<= 1) for (uint j = k >> 1; j > 0; j >>= 1) { uint x = LID ^ j; if (x > LID) { bool up = !(LID & k); if ((t[LID] > t[x]) == up) { uint v = t[LID]; t[LID] = t[x]; t[x] = v; } } BARRIER(); } o[GID] = t[LID]; }
K generic_pointers(G uint *o, uint which) { __local uint t[64]; uint p[4] = {1, 2, 3, 4}; t[LID & 63] = LID; BARRIER(); uint *q = which == 0 ? (uint *)t : which == 1 ? (uint *)o : p; q[which] += 5; o[GID + 1] = q[which] + p[which & 3]; }

// atomics, fences
K atomics_global(G uint *o, G ulong *p) {
    uint x = __atomic_fetch_add(&o[0], 1, __ATOMIC_RELAXED); __atomic_fetch_xor(&o[1], x, __ATOMIC_SEQ_CST); __atomic_fetch_max(&o[2], x, __ATOMIC_ACQ_REL); __atomic_fetch_add(&p[0], 7ul, __ATOMIC_RELAXED);
    o[GID + 8] = __atomic_exchange_n(&o[3], x, __ATOMIC_ACQUIRE); }
K compare_exchange(G uint *o) { uint old = __atomic_load_n(o, __ATOMIC_RELAXED); while (!__atomic_compare_exchange_n(o, &old, old * 3 + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)); o[GID + 1] = old; }
K message_passing(G uint *o) { if (LID == 0) { o[4 * GROUP + 1] = 5; __atomic_store_n(&o[4 * GROUP], 1, __ATOMIC_RELEASE); while (__atomic_load_n(&o[4 * (GROUP ^ 1)], __ATOMIC_ACQUIRE) == 0); o[4 * GROUP + 2] = o[4 * (GROUP ^ 1) + 1]; } }
K fences(G uint *o) { o[GID] = 1; __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); o[GID + 1] = o[GID + 2]; __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, ""); o[GID + 3] = 1; }
K lds_compare_exchange(G uint *o) { __local ulong lock; if (LID == 0) lock = 0; BARRIER(); ulong old = 0; while (!__atomic_compare_exchange_n(&lock, &old, old + LID, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); BARRIER(); o[GID] = (uint)lock; }

// lanes
K lanes(G const uint *a, G uint *o) {
    uint x = a[GID], y = __builtin_amdgcn_readlane(x, 5) + __builtin_amdgcn_readfirstlane(x * 3); x += __builtin_amdgcn_mov_dpp(x, 0x4e, 0xf, 0xf, true) + __builtin_amdgcn_ds_bpermute((LID ^ 1) << 2, y + LID);
    o[GID] = x ^ y ^ __builtin_amdgcn_ds_swizzle(x, 0x1f); }
K update_lanes(G const uint *a, G uint *o) { uint x = a[GID]; for (int i = 0; i < 4; i++) x += __builtin_amdgcn_update_dpp(0, x, 0x111, 0xf, 0xe, false); o[GID] = x; }
K lane_counts(G const uint *a, G uint *o) { o[GID] = __builtin_amdgcn_mbcnt_lo(a[0], 0) + __builtin_amdgcn_mbcnt_hi(a[1], 4); }
K vote(G const uint *a, G uint *o) { ulong m = __builtin_amdgcn_uicmp(a[GID], 7, 33); o[GID] = __builtin_popcountll(m) + (uint)(m >> 32); }
K readlane_loop(G const uint *a, G uint *o) { uint s = 0; for (uint i = 0; i < 32; i++) s = s * 3 + __builtin_amdgcn_readlane(a[GID], i); o[GID] = s; }
K clocks(G uint *o) { ulong t = __builtin_readcyclecounter(); o[GID] = (uint)t; __builtin_amdgcn_s_sleep(2); o[GID + 1] = (uint)(__builtin_readcyclecounter() - t); }
K launch_values(G uint *o) { o[GID] = __builtin_amdgcn_workgroup_id_y() + __builtin_amdgcn_workgroup_id_z() * 7 + __builtin_amdgcn_workitem_id_y() + __builtin_amdgcn_workitem_id_z() + __builtin_amdgcn_grid_size_x(); }
K dynamic_vectors(G const f16v *a, G f16v *o, uint n) { f16v v = a[GID]; for (uint i = 0; i < n; i++) v[i & 15] += v[(i * 7) & 15]; o[GID] = v; }
K indexed_by_lane(G const uint *a, G uint *o) { u8v v = *(G const u8v *)(a + 8 * GID); v[a[GID] & 7] = 5; o[GID] = v[a[GID + 1] & 7]; }
K modes(G const float *a, G float *o) { __builtin_amdgcn_s_setreg(2177, 3); float x = a[GID] * a[GID + 1]; __builtin_amdgcn_s_setreg(2177, 0); o[GID] = x + __builtin_amdgcn_s_getreg(2177); }
K buffers(G const float *a, G float *o, u4 r) { o[GID] = a[GID]; __builtin_amdgcn_s_dcache_inv(); o[GID + 1] = a[GID + 1]; }

// matrix and dot instructions
#ifdef HAS_MFMA
K mfma_chain(G const h4 *a, G f4 *o) { f4 c = 0; for (int i = 0; i < 4; i++) c = __builtin_amdgcn_mfma_f32_16x16x16f16(a[GID + i], a[GID + 7 * i], c, 0, 0, 0); o[GID] = c; }
K mfma_dependent(G const h4 *a, G uint *o) {
    f4 c = 0; c = __builtin_amdgcn_mfma_f32_16x16x16f16(a[GID], a[GID + 1], c, 0, 0, 0); h4 z; for (int i = 0; i < 4; i++) z[i] = (half)(c[i] * 0.25f);
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(z, a[GID], c, 0, 0, 0); o[GID] = (uint)(c[0] + c[1] + c[2] + c[3]); }
K mfma_f32(G const float *a, G f16v *o) { f16v c = 0; for (int i = 0; i < 8; i++) { c = __builtin_amdgcn_mfma_f32_32x32x2f32(a[GID + i], a[GID + 2 * i], c, 0, 0, 0); c[i] += 1.0f; } o[GID] = c; }
K mfma_small(G const float *a, G f4 *o) { f4 c = o[GID]; c = __builtin_amdgcn_mfma_f32_4x4x1f32(a[GID], a[GID + 1], c, 0, 0, 0); f4 d = __builtin_amdgcn_mfma_f32_4x4x1f32(c.x, c.y, c, 0, 0, 0); o[GID] = c * d; }
K mfma_integers(G const uint *a, G i4 *o, uint n) { i4 c = 0;
    for (uint i = 0; i < n; i++) { i4 d = c;
#ifdef HAS_MFMA_942
        c = __builtin_amdgcn_mfma_i32_16x16x32_i8(((G const long *)a)[GID + i], ((G const long *)a)[i], c, 0, 0, 0);
#else
        c = __builtin_amdgcn_mfma_i32_16x16x16i8(a[GID + i], a[i], c, 0, 0, 0);
#endif
        c ^= d; } o[GID] = c; }
K mfma_in_lds(G const h4 *a, G f16v *o, uint n) {
    __local h4 t[2][256]; f16v c = 0; t[0][LID] = a[GID]; BARRIER();
    for (uint i = 0; i < n; i++) { h4 next = a[GID + i * 256]; c = __builtin_amdgcn_mfma_f32_32x32x8f16(t[i & 1][LID], t[i & 1][LID ^ 3], c, 0, 0, 0); t[1 - (i & 1)][LID] = next; BARRIER(); } o[GID] = c; }
#endif
#ifdef HAS_MFMA_F64
K mfma_f64(G const double *a, G d4 *o) { d4 c = 0; for (int i = 0; i < 4; i++) c = __builtin_amdgcn_mfma_f64_16x16x4f64(a[GID + i], a[GID], c, 0, 0, 0); d4 d = c; d.x = __builtin_amdgcn_mfma_f64_4x4x4f64(c.x, c.y, c.z, 0, 0, 0); o[GID] = d; }
#endif
#ifdef HAS_WMMA11
K wmma(G const h16 *a, G f8 *o) { f8 c = 0; for (int i = 0; i < 4; i++) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a[LID + i], a[LID + 3 * i], c); h16 z = a[LID]; for (int i = 0; i < 8; i++) z[i] = (half)c[i]; o[GID] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(z, a[LID], c); }
#endif
#ifdef HAS_WMMA12
K wmma(G const h8 *a, G f8 *o) { f8 c = 0; for (int i = 0; i < 4; i++) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a[LID + i], a[LID + 3 * i], c); h8 z = a[LID]; for (int i = 0; i < 8; i++) z[i] = (half)c[i]; o[GID] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(z, a[LID], c); }
#endif
#ifdef HAS_DOT
K dots(G const h2 *a, G float *o) { float s = 0; for (int i = 0; i < 8; i++) s = __builtin_amdgcn_fdot2(a[GID + i], a[i], s, false); o[GID] = s; }
#endif
