// Products and convolutions as one writes them by hand for clang: tiles in LDS, two buffers, the next tile on its way in registers.
// Shape and tile are macros. C[M,N] = A[M,K] B[K,N] for each of several matrices; a convolution gathers B from images, and its
// columns are the positions of all images.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

// What OpenCL's library would give, which is not needed this way.
#define ITEM ((int)__builtin_amdgcn_workitem_id_x())
#define LEAST4(x) ((x) < 4 ? (x) : 4)
static inline void meet(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#define THREADS (BM / TM * (BN / TN))
#define PART(count) (((count) + THREADS - 1) / THREADS)

#ifdef CONV
#define COLUMNS (IMAGES * P * Q)
static inline T element(global const T *x, int k, int n) {
    int c = k / (R * S), r = k / S % R, s = k % S;
    int image = n / (P * Q), p = n / Q % P, q = n % Q;
    int y = p * STRIDE + r - PAD, z = q * STRIDE + s - PAD;
    return y >= 0 && y < H && z >= 0 && z < W ? x[((image * CHANNELS + c) * H + y) * W + z] : (T)0;
}
static inline int place(int m, int n) { return (n / (P * Q) * M + m) * P * Q + n % (P * Q); }
#else
#define COLUMNS N
static inline T element(global const T *b, int k, int n) { return b[k * N + n]; }
static inline int place(int m, int n) { return m * N + n; }
#endif

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
product(global const T *restrict a, global const T *restrict b, global T *restrict c) {
    local T as[2][BK][BM + 4], bs[2][BK][BN];
    int item = ITEM, first_n = (int)__builtin_amdgcn_workgroup_id_x() * BN, first_m = (int)__builtin_amdgcn_workgroup_id_y() * BM;
    a += (int)__builtin_amdgcn_workgroup_id_z() * A_APART;
    b += (int)__builtin_amdgcn_workgroup_id_z() * B_APART;
    c += (int)__builtin_amdgcn_workgroup_id_z() * C_APART;
    int tx = item % (BN / TN), ty = item / (BN / TN);
    float sum[TM][TN];
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) sum[i][j] = 0;
    T ra[PART(BM * BK)], rb[PART(BN * BK)];
#define LOAD(k0)                                                                                      \
    for (int i = 0; i < PART(BM * BK); i++) {                                                         \
        int e = i * THREADS + item, k = (k0) + e % BK, m = first_m + e / BK;                          \
        ra[i] = m < M && k < K ? a[m * K + k] : (T)0;                                                 \
    }                                                                                                 \
    for (int i = 0; i < PART(BN * BK); i++) {                                                         \
        int e = i * THREADS + item, n = first_n + e % BN, k = (k0) + e / BN;                          \
        rb[i] = n < COLUMNS && k < K ? element(b, k, n) : (T)0;                                       \
    }
#define STORE(buffer)                                                                                 \
    for (int i = 0; i < PART(BM * BK); i++) {                                                         \
        int e = i * THREADS + item;                                                                   \
        if (BM * BK % THREADS == 0 || e < BM * BK) as[buffer][e % BK][e / BK] = ra[i];                \
    }                                                                                                 \
    for (int i = 0; i < PART(BN * BK); i++) {                                                         \
        int e = i * THREADS + item;                                                                   \
        if (BN * BK % THREADS == 0 || e < BN * BK) bs[buffer][e / BN][e % BN] = rb[i];                \
    }
    LOAD(0)
    STORE(0)
    meet();
    int buffer = 0;
    for (int k0 = BK; k0 < K + BK; k0 += BK) {
        if (k0 < K) { LOAD(k0) }
#pragma unroll
        for (int k = 0; k < BK; k++) {
            float x[TM], y[TN];
            for (int i = 0; i < TM; i++) x[i] = as[buffer][k][i / 4 * (BM / TM * 4) + ty * LEAST4(TM) + i % 4];
            for (int j = 0; j < TN; j++) y[j] = bs[buffer][k][j / 4 * (BN / TN * 4) + tx * LEAST4(TN) + j % 4];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] = __builtin_fmaf(x[i], y[j], sum[i][j]);
        }
        if (k0 < K) { STORE(buffer ^ 1) }
        meet();
        buffer ^= 1;
    }
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            int m = first_m + i / 4 * (BM / TM * 4) + ty * LEAST4(TM) + i % 4;
            int n = first_n + j / 4 * (BN / TN * 4) + tx * LEAST4(TN) + j % 4;
            if (m < M && n < COLUMNS) c[place(m, n)] = (T)sum[i][j];
        }
}

// Few rows: a workitem has some columns, and a wave's share of the depth.
#if !defined(CONV) && M <= 4
#define EACH 2
kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
rows(global const T *restrict a, global const T *restrict b, global T *restrict c) {
    local float parts[4][M][64 * EACH];
    int lane = ITEM % 64, slice = ITEM / 64, n = ((int)__builtin_amdgcn_workgroup_id_x() * 64 + lane) * EACH;
    float sum[M][EACH];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < EACH; j++) sum[i][j] = 0;
    if (n < N)
#pragma unroll 8
        for (int k = slice; k < K; k += 4)
            for (int j = 0; j < EACH; j++) {
                float y = n + j < N ? b[k * N + n + j] : (T)0;
                for (int i = 0; i < M; i++) sum[i][j] = __builtin_fmaf(a[i * K + k], y, sum[i][j]);
            }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < EACH; j++) parts[slice][i][lane * EACH + j] = sum[i][j];
    meet();
    for (int e = ITEM; e < M * 64 * EACH; e += 256) {
        int i = e / (64 * EACH), j = e % (64 * EACH), at = (int)__builtin_amdgcn_workgroup_id_x() * 64 * EACH + j;
        float all = parts[0][i][j] + parts[1][i][j] + parts[2][i][j] + parts[3][i][j];
        if (at < N) c[i * N + at] = (T)all;
    }
}
#endif
