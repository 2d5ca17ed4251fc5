"""Compiles Triton kernels for an AMD target without a GPU: `triton_kernels.py TARGET WAVE OUTDIR`.

Writes NAME.hsaco for each kernel and one line a kernel to stdout: NAME SYMBOL THREADS LDS-BYTES.
"""
import os
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(c + i, tl.load(a + i, mask=m) + tl.load(b + i, mask=m), mask=m)


@triton.jit
def softmax(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * cols + i, mask=i < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * cols + i, e / tl.sum(e, axis=0), mask=i < cols)


@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    N = tl.num_programs(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def histogram(x, counts, BLOCK: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(counts + (v & 31), tl.full((BLOCK,), 1, tl.int32))


@triton.jit
def scan(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.cumsum(tl.load(x + i), axis=0))


KERNELS = [
    (add, {"a": "*fp32", "b": "*fp32", "c": "*fp32", "n": "i32"}, {"BLOCK": 256}),
    (softmax, {"x": "*fp32", "y": "*fp32", "cols": "i32"}, {"BLOCK": 256}),
    (matmul, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}, {"BM": 32, "BN": 32, "BK": 32}),
    (histogram, {"x": "*i32", "counts": "*i32"}, {"BLOCK": 256}),
    (scan, {"x": "*i32", "y": "*i32"}, {"BLOCK": 256}),
]


def main():
    arch, wave, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.environ.setdefault("TRITON_CACHE_DIR", os.path.join(out, "cache"))
    for fn, signature, constants in KERNELS:
        types = dict(signature, **{k: "constexpr" for k in constants})
        source = ASTSource(fn=fn, signature=types, constexprs=constants)
        k = triton.compile(source, target=GPUTarget("hip", arch, wave), options={"num_warps": 4})
        name = fn.__name__
        with open(os.path.join(out, name + ".hsaco"), "wb") as f:
            f.write(k.asm["hsaco"])
        print(name, k.metadata.name, k.metadata.num_warps * k.metadata.warp_size, k.metadata.shared, flush=True)


main()
