"""Prints the README's table of a language model while it decodes: a layer of Llama-7B's shape with weights of 4 bits, by the cycle model.

The layer takes one token of each sequence behind 1,023 others: 4096 wide, 32 heads of 128, 11,008 between, weights of 4 bits in blocks of 32 with scales of
f16, caches of f16 that it gives out with the new token in them. The share of the memory's bandwidth counts weights, scales and caches (read once, written once); the
bandwidth is that of `isa/latency/chips.csv`.

    python3 tools/figures/decode.py [--barewave target/release/barewave] [--save FILE]

With --save the layer for one sequence is written to a file and nothing is modelled. Needs numpy.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from onnx_file import Graph  # noqa: E402

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
WIDE, HEADS, BETWEEN, PAST, BLOCK = 4096, 32, 11008, 1023, 32
SEQUENCES = [1, 4, 8, 16]
SEQUENCES_ON = ["gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201"]


def layer(sequences):
    """The layer's graph, and the bytes it moves at least."""
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
    g.input("x", [sequences, 1, WIDE], "float16")
    g.input("past_key", cache, "float16")
    g.input("past_value", cache, "float16")
    angles = np.outer(np.arange(2 * PAST), 1e4 ** (-np.arange(size // 2) / (size // 2)))
    g.weight("cos", np.cos(angles).astype(np.float16))
    g.weight("sin", np.sin(angles).astype(np.float16))
    g.weight("lengths", np.full(sequences, PAST, np.int32))
    g.weight("total", np.array(PAST + 1, np.int32))
    q, k, v = (packed(norm("x", "n0") if n == "q" else "n0", n, WIDE, WIDE) for n in "qkv")
    g.node("GroupQueryAttention", [q, k, v, "past_key", "past_value", "lengths", "total", "cos", "sin"], ["a", "key", "value"],
           domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS, do_rotary=1)
    moved += 4 * 2 * int(np.prod(cache))
    g.node("Add", ["x", packed("a", "o", WIDE, WIDE)], ["h"])
    n1 = norm("h", "n1")
    gate, up = packed(n1, "gate", WIDE, BETWEEN), packed(n1, "up", WIDE, BETWEEN)
    g.node("Sigmoid", [gate], ["sigmoid"])
    g.node("Mul", [gate, "sigmoid"], ["silu"])
    g.node("Mul", ["silu", up], ["product"])
    g.node("Add", ["h", packed("product", "down", BETWEEN, WIDE)], ["y"])
    g.output("y", [sequences, 1, WIDE], "float16")
    for name in ["key", "value"]:
        g.output(name, [sequences, HEADS, PAST + 1, size], "float16")
    return g, moved


def bandwidths():
    """GB/s of each target's memory."""
    lines = [l for l in (ROOT / "isa/latency/chips.csv").read_text().splitlines() if l and not l.startswith("#")]
    return {target: float(value.split()[0])
            for row in csv.DictReader(lines) if row["constant"] == "dram_gbs"
            for target, value in row.items() if target != "constant"}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--barewave", default=str(ROOT / "target/release/barewave"))
    options.add_argument("--save")
    options = options.parse_args()
    if options.save:
        layer(1)[0].save(options.save)
        return
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for n in SEQUENCES:
            g, moved = layer(n)
            files[n] = (f"{folder}/{n}.onnx", moved)
            g.save(files[n][0])

        def modelled(n, target):
            """Microseconds and launches."""
            out = subprocess.run([options.barewave, "bench", "model", files[n][0], "--target", target, "--json"], capture_output=True, text=True)
            if out.returncode:
                sys.exit(out.stderr)
            return json.loads(out.stdout)

        reach = bandwidths()
        print("| | " + " | ".join(TARGETS) + " |\n|---|" + "---|" * len(TARGETS))
        us = {t: modelled(1, t)["microseconds"] for t in TARGETS}
        print("| us | " + " | ".join(f"{us[t]:.1f}" for t in TARGETS) + " |")
        share = {t: files[1][1] / (reach[t] * 1e3 * us[t]) for t in TARGETS}
        print("| percent of the memory's bandwidth | " + " | ".join(f"{100 * share[t]:.0f}" for t in TARGETS) + " |")
        for t in SEQUENCES_ON:
            print(f"{t}: " + ", ".join(f"{n} sequences {modelled(n, t)['microseconds']:.1f} us" for n in SEQUENCES[1:]))


if __name__ == "__main__":
    main()
