"""Prints the README's table of a language model while it decodes: layers of Llama-7B's shape with weights of 4 bits, by the cycle model.

A layer takes one token of each sequence behind 1,023 others: 4096 wide, 32 heads of 128, 11,008 between, weights of 4 bits in blocks of 32 with scales of
f16, caches of f16 that it gives out with the new token in them. A layer is a model by itself, or one of eight in a model. The share of the memory's bandwidth counts weights, scales and
caches (read once, written once); the bandwidth is that of `isa/latency/chips.csv`, and what a kernel that only streams gets of it is there, too.

    python3 tools/figures/decode.py [--barewave target/release/barewave] [--save FILE] [--layers N]

With --save the model for one sequence, of one layer or N, is written to a file and nothing is modelled. Needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from onnx_file import Graph  # noqa: E402
from chips import constants  # noqa: E402

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
WIDE, HEADS, BETWEEN, PAST, BLOCK = 4096, 32, 11008, 1023, 32
LAYERS = 8
SEQUENCES = [1, 4, 8, 16]
SEQUENCES_ON = ["gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201"]


def model(sequences, layers=1):
    """A model of some layers, and the bytes that each of them moves at least."""
    random = np.random.default_rng(1)
    g = Graph("decode", opset=21)
    moved = 0

    def packed(x, name, depth, columns):
        nonlocal moved
        w = random.integers(0, 256, (columns, depth // BLOCK, BLOCK // 2), np.uint8)
        scales = (random.uniform(0.5, 1.5, columns * depth // BLOCK) / 64).astype(np.float16)
        g.weight(f"{name}.w", w)
        g.weight(f"{name}.s", scales)
        g.node("MatMulNBits", [x, f"{name}.w", f"{name}.s"], [name], domain="com.microsoft", K=depth, N=columns, bits=4, block_size=BLOCK)
        moved += w.nbytes + scales.nbytes
        return name

    def norm(x, name):
        g.weight(f"{name}.scale", np.ones(WIDE, np.float16))
        g.node("SimplifiedLayerNormalization", [x, f"{name}.scale"], [name], axis=-1, epsilon=1e-5)
        return name

    size = WIDE // HEADS
    cache = [sequences, HEADS, PAST, size]

    def layer(x, name):
        """What it makes of x; its names begin with another one."""
        nonlocal moved
        n0, n1, a, h, silu, y, key, value = (f"{name}{n}" for n in ["n0", "n1", "a", "h", "silu", "y", "key", "value"])
        past = [f"{name}past_{n}" for n in ["key", "value"]]
        for n in past:
            g.input(n, cache, "float16")
        norm(x, n0)
        q, k, v = (packed(n0, f"{name}{n}", WIDE, WIDE) for n in "qkv")
        g.node("GroupQueryAttention", [q, k, v, *past, "lengths", "total", "cos", "sin"], [a, key, value],
               domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS, do_rotary=1)
        moved += 4 * 2 * int(np.prod(cache))
        g.node("Add", [x, packed(a, f"{name}o", WIDE, WIDE)], [h])
        norm(h, n1)
        gate, up = packed(n1, f"{name}gate", WIDE, BETWEEN), packed(n1, f"{name}up", WIDE, BETWEEN)
        g.node("Sigmoid", [gate], [f"{name}sigmoid"])
        g.node("Mul", [gate, f"{name}sigmoid"], [silu])
        g.node("Mul", [silu, up], [f"{name}product"])
        g.node("Add", [h, packed(f"{name}product", f"{name}down", BETWEEN, WIDE)], [y])
        for n in [key, value]:
            g.output(n, [sequences, HEADS, PAST + 1, size], "float16")
        return y

    g.input("x", [sequences, 1, WIDE], "float16")
    angles = np.outer(np.arange(2 * PAST), 1e4 ** (-np.arange(size // 2) / (size // 2)))
    g.weight("cos", np.cos(angles).astype(np.float16))
    g.weight("sin", np.sin(angles).astype(np.float16))
    g.weight("lengths", np.full(sequences, PAST, np.int32))
    g.weight("total", np.array(PAST + 1, np.int32))
    x = "x"
    for n in range(layers):
        x = layer(x, f"l{n}." if layers > 1 else "")
    g.output(x, [sequences, 1, WIDE], "float16")
    return g, moved // layers


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--barewave", default=str(ROOT / "target/release/barewave"))
    options.add_argument("--save")
    options.add_argument("--layers", type=int, default=1)
    options = options.parse_args()
    if options.save:
        model(1, options.layers)[0].save(options.save)
        return
    with tempfile.TemporaryDirectory() as folder:
        files, moved = {}, {}
        for sequences, layers in [(n, 1) for n in SEQUENCES] + [(1, LAYERS)]:
            g, moved[sequences] = model(sequences, layers)
            files[sequences, layers] = f"{folder}/{sequences}x{layers}.onnx"
            g.save(files[sequences, layers])

        def microseconds(target, sequences, layers=1):
            """Of one layer."""
            out = subprocess.run([options.barewave, "bench", "model", files[sequences, layers], "--target", target, "--json"], capture_output=True, text=True)
            if out.returncode:
                sys.exit(out.stderr)
            return json.loads(out.stdout)["microseconds"] / layers

        reach, share = constants("dram_gbs"), constants("dram_share")
        print("| | " + " | ".join(TARGETS) + " |\n|---|" + "---|" * len(TARGETS))

        def row(what, of, digits=0):
            print(f"| {what} | " + " | ".join(f"{of(t):.{digits}f}" for t in TARGETS) + " |")

        us = {layers: {t: microseconds(t, 1, layers) for t in TARGETS} for layers in [1, LAYERS]}
        times = {
            "one layer": us[1],
            f"a layer of {LAYERS}": us[LAYERS],
            "each behind the first": {t: (LAYERS * us[LAYERS][t] - us[1][t]) / (LAYERS - 1) for t in TARGETS},
        }
        for what, of in times.items():
            row(f"{what}, us", lambda t: of[t], 1)
        for what, of in times.items():
            row(f"{what}: percent of the memory's peak bandwidth", lambda t: 100 * moved[1] / (reach[t] * 1e3 * of[t]))
        for what, of in times.items():
            row(f"{what}: percent of what a stream reaches", lambda t: 100 * moved[1] / (share[t] * reach[t] * 1e3 * of[t]))
        for t in SEQUENCES_ON:
            print(f"{t}: " + ", ".join(f"{n} sequences {microseconds(t, n):.1f} us" for n in SEQUENCES[1:]))


if __name__ == "__main__":
    main()
