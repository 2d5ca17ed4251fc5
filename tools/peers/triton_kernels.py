"""The kernels of the Triton peer: a product with edges, and a convolution as a product."""
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, M, N, K, a_apart, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    down, across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    m = (first + pid % (GROUP * across) % height) * BM + tl.arange(0, BM)
    n = pid % (GROUP * across) // height * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a += batch * a_apart
    b += batch * K * N
    c += batch * M * N
    at, bt = a + (m % M)[:, None] * K + k[None, :], b + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        x = tl.load(at, mask=k[None, :] < K - k0, other=0.0)
        y = tl.load(bt, mask=k[:, None] < K - k0, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        at += BK
        bt += BK * N
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def rows(a, b, c, M, N, K, BN: tl.constexpr, BK: tl.constexpr):
    n, m = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1)
    k = tl.arange(0, BK)
    acc = tl.zeros((BK, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        x = tl.load(a + m * K + k0 + k, mask=k < K - k0, other=0.0)
        y = tl.load(b + (k0 + k)[:, None] * N + n[None, :], mask=(k[:, None] < K - k0) & (n[None, :] < N), other=0.0)
        acc += x[:, None].to(tl.float32) * y.to(tl.float32)
    tl.store(c + m * N + n, tl.sum(acc, axis=0).to(c.dtype.element_ty), mask=n < N)


@triton.jit
def convolution(w, x, y, M, images, channels, H, W, P, Q, R: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr,
                PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(1) * BM + tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    columns, depth = images * P * Q, channels * R * S
    image, p, q = n // (P * Q), n // Q % P, n % Q
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, depth, BK):
        k = k0 + tl.arange(0, BK)
        c, r, s = k // (R * S), k // S % R, k % S
        a = tl.load(w + m[:, None] * depth + k[None, :], mask=(m[:, None] < M) & (k[None, :] < depth), other=0.0)
        v, h = (p * STRIDE - PAD)[None, :] + r[:, None], (q * STRIDE - PAD)[None, :] + s[:, None]
        inside = (v >= 0) & (v < H) & (h >= 0) & (h < W) & (k[:, None] < depth) & (n[None, :] < columns)
        b = tl.load(x + ((image[None, :] * channels + c[:, None]) * H + v) * W + h, mask=inside, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    to = y + (image[None, :] * M + m[:, None]) * (P * Q) + (n % (P * Q))[None, :]
    tl.store(to, acc.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < columns))
