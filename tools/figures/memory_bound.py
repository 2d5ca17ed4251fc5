"""Prints the README's table of what memory bounds: how much of the bandwidth that kernels reach an operator takes by the cycle model.

Each operator is a model of its own that reads 134 MB, or 537 MB on gfx942 and gfx950, whose memory-side cache holds more. `barewave bench model` says
what its launches take together. Bytes that are read and written count once each; the bandwidth is that of `isa/latency/chips.csv` times the share of it
that kernels reach.

    python3 tools/figures/memory_bound.py [--barewave target/release/barewave] [--all] [--only OPERATOR]

Without --all rows at 92% or more on every target are left out. Needs numpy and ml_dtypes.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from onnx_file import Graph, number_of  # noqa: E402
from chips import bandwidths  # noqa: E402

TARGETS = ["gfx906", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]
READ = {"gfx942": 1 << 29, "gfx950": 1 << 29}
USUAL_READ = 1 << 27
ENOUGH = 92
FLOATS = ["f32", "f16", "bf16"]
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "bool": bool}


def ints(*values):
    return np.array(values, np.int64)


def one(op, output=lambda shape: shape, result=None, opset=17, weights=(), outputs=1, **attributes):
    """A model of one node that reads `x` and constants: makes its graph for a shape and a type."""

    def make(shape, dtype):
        g = Graph("figure", opset=opset)
        g.input("x", shape, dtype)
        names = []
        for i, w in enumerate(weights):
            names.append("" if w is None else f"w{i}")
            if w is not None:
                g.weight(f"w{i}", w)
        results = [f"y{i}" for i in range(outputs)]
        g.node(op, ["x", *names], results, **attributes)
        shapes = [output(shape)] * outputs
        types = [result or dtype, "int64"][:outputs]
        for name, s, t in zip(results, shapes, types):
            g.output(name, s, t)
        return g, sum(int(np.prod(s)) * np.dtype(t).itemsize for s, t in zip(shapes, types))

    return make


def channels_last(op, channels, output=lambda shape: shape, weights=(), opset=21, residual=False, **attributes):
    """The same of an operator that wants channels first, between two transpositions; of a residual's sum or not."""

    def make(shape, dtype):
        g = Graph("figure", opset=opset)
        g.input("x", shape, dtype)
        source = "x"
        if residual:
            g.input("z", shape, dtype)
            g.node("Add", ["x", "z"], ["sum"])
            source = "sum"
        for i, value in enumerate(weights):
            g.weight(f"w{i}", np.full(channels, value, dtype))
        g.node("Transpose", [source], ["a"], perm=[0, 3, 1, 2])
        g.node(op, ["a", *[f"w{i}" for i in range(len(weights))]], ["b"], **attributes)
        g.node("Transpose", ["b"], ["y0"], perm=[0, 2, 3, 1])
        g.output("y0", output(shape), dtype)
        second = int(np.prod(shape)) if residual else 0
        return g, (second + int(np.prod(output(shape)))) * np.dtype(dtype).itemsize

    return make


def rotary(shape, dtype):
    """Heads that are turned by angles of each position, which all heads share."""
    positions, half = shape[2], shape[3] // 2
    g = Graph("figure", opset=23)
    g.input("x", shape, dtype)
    g.weight("cos", np.ones((positions, half), dtype))
    g.weight("sin", np.ones((positions, half), dtype))
    g.weight("at", np.arange(positions)[None])
    g.node("RotaryEmbedding", ["x", "cos", "sin", "at"], ["y0"])
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize


def sampled(shape, dtype):
    """Images sampled at places that are another operand."""
    places = [shape[0], *shape[2:], 2]
    g = Graph("figure", opset=20)
    g.input("x", shape, dtype)
    g.input("places", places, dtype)
    g.node("GridSample", ["x", "places"], ["y0"], mode="linear")
    g.output("y0", shape, dtype)
    return g, (int(np.prod(places)) + int(np.prod(shape))) * np.dtype(dtype).itemsize


def without(axis):
    return lambda shape: shape[:axis] + shape[axis + 1:]


def permuted(*perm):
    return one("Transpose", lambda shape: [shape[p] for p in perm], perm=list(perm))


def last_is(n):
    return lambda shape: [*shape[:-1], n]


def normed(op, axis=-1, bias=False):
    """A normalisation over the last dimensions from an axis on, which are scaled, and moved by a bias or not."""

    def make(shape, dtype):
        g = Graph("figure", opset=23)
        g.input("x", shape, dtype)
        names = ["s", "b"] if bias else ["s"]
        for name in names:
            g.weight(name, np.ones(shape[axis:], dtype))
        g.node(op, ["x", *names], ["y0"], axis=axis)
        g.output("y0", shape, dtype)
        return g, int(np.prod(shape)) * np.dtype(dtype).itemsize

    return make


def masked_softmax(shape, dtype):
    """Softmax of scores to which a mask of each image is added."""
    g = Graph("figure", opset=17)
    g.input("x", shape, dtype)
    g.input("mask", [shape[0], 1, 1, shape[-1]], dtype)
    g.node("Add", ["x", "mask"], ["masked"])
    g.node("Softmax", ["masked"], ["y0"], axis=-1)
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize


def biased_softmax(shape, dtype):
    """Softmax of scores to which a bias of each head is added, the same for all windows."""
    g = Graph("figure", opset=17)
    g.input("x", shape, dtype)
    g.weight("bias", np.ones([1, *shape[1:]], dtype))
    g.node("Add", ["x", "bias"], ["biased"])
    g.node("Softmax", ["biased"], ["y0"], axis=-1)
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize


def over_channels(op, last=False):
    """Softmax or a normalisation over channels that come first; they stay there, or are last in the result."""

    def make(shape, dtype):
        g = Graph("figure", opset=23)
        g.input("x", shape, dtype)
        g.weight("s", np.ones(shape[1], dtype))
        g.node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1])
        g.node(op, ["a", *([] if op == "Softmax" else ["s"])], ["b"], axis=-1)
        if last:
            g.node("Identity", ["b"], ["y0"])
        else:
            g.node("Transpose", ["b"], ["y0"], perm=[0, 3, 1, 2])
        g.output("y0", [shape[0], *shape[2:], shape[1]] if last else shape, dtype)
        return g, int(np.prod(shape)) * np.dtype(dtype).itemsize

    return make


def written_out(shape, dtype):
    """A normalisation over channels as torch writes it node by node."""
    g = Graph("figure", opset=18)
    g.input("x", shape, dtype)
    g.weight("axis", ints(1))
    for name, value in [("two", 2), ("least", 1e-6)]:
        g.weight(name, np.array(value, dtype))
    for name in ["s", "b"]:
        g.weight(name, np.ones([shape[1], 1, 1], dtype))
    g.node("ReduceMean", ["x", "axis"], ["mean"], keepdims=1)
    g.node("Sub", ["x", "mean"], ["d"])
    g.node("Pow", ["d", "two"], ["square"])
    g.node("ReduceMean", ["square", "axis"], ["variance"], keepdims=1)
    g.node("Add", ["variance", "least"], ["above"])
    g.node("Sqrt", ["above"], ["root"])
    g.node("Div", ["d", "root"], ["normal"])
    g.node("Mul", ["s", "normal"], ["scaled"])
    g.node("Add", ["scaled", "b"], ["y0"])
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize


def quantised_sum(shape, dtype):
    """Two tensors of bytes that are widened, added and quantised again: a residual of a quantised network."""
    g = Graph("figure", opset=21)
    for name in ["x", "z"]:
        g.input(name, shape, dtype)
    g.weight("s", np.array(0.01, np.float32))
    g.weight("zero", np.array(3, dtype))
    for name in ["x", "z"]:
        g.node("DequantizeLinear", [name, "s", "zero"], [f"{name}w"])
    g.node("Add", ["xw", "zw"], ["sum"])
    g.node("QuantizeLinear", ["sum", "s", "zero"], ["y0"])
    g.output("y0", shape, dtype)
    return g, 2 * int(np.prod(shape)) * np.dtype(dtype).itemsize  # the second operand, too


def channels_first(op, weights, relu=False, opset=17, **attributes):
    """An operator with constants of each channel, and Relu behind it or not."""

    def make(shape, dtype):
        g = Graph("figure", opset=opset)
        g.input("x", shape, dtype)
        for i, value in enumerate(weights):
            g.weight(f"w{i}", np.full(shape[1] if op != "PRelu" else [shape[1], 1, 1], value, dtype))
        g.node(op, ["x", *[f"w{i}" for i in range(len(weights))]], ["b" if relu else "y0"], **attributes)
        if relu:
            g.node("Relu", ["b"], ["y0"])
        g.output("y0", shape, dtype)
        return g, int(np.prod(shape)) * np.dtype(dtype).itemsize

    return make


def plus_channels(shape, dtype):
    """A bias of each channel, where channels are first."""
    g = Graph("figure", opset=17)
    g.input("x", shape, dtype)
    g.weight("b", np.ones([shape[1], 1, 1], dtype))
    g.node("Add", ["x", "b"], ["y0"])
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize


def where(shape, dtype):
    """One of two matrices, element by element as booleans say."""
    g = Graph("figure", opset=17)
    for name in ["x", "z"]:
        g.input(name, shape, dtype)
    g.input("c", shape, "bool")
    g.node("Where", ["c", "x", "z"], ["y0"])
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * (2 * np.dtype(dtype).itemsize + 1)


def masked_fill(shape, dtype):
    """A number where booleans of each image, which all heads share, do not say otherwise."""
    g = Graph("figure", opset=17)
    g.input("x", shape, dtype)
    g.input("c", [shape[0], 1, *shape[2:]], "bool")
    g.weight("least", np.array(-10000, dtype))
    g.node("Where", ["c", "x", "least"], ["y0"])
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize + int(np.prod(shape)) // shape[1]


def cast(to):
    return one("Cast", result=to, to=number_of(to))


def dequantized(to, axis=None):
    """Bytes times a scale of all, or of each column."""

    def make(shape, dtype):
        g = Graph("figure", opset=21)
        g.input("x", shape, dtype)
        scale = np.array(0.0131, to) if axis is None else np.full(shape[axis], 0.0131, to)
        g.weight("s", scale)
        g.weight("z", np.zeros(scale.shape, dtype))
        g.node("DequantizeLinear", ["x", "s", "z"], ["y0"], **({} if axis is None else {"axis": axis}))
        g.output("y0", shape, to)
        return g, int(np.prod(shape)) * np.dtype(to).itemsize

    return make


def dynamic(shape, dtype):
    """Two launches: the second reads all of it again."""
    g = Graph("figure", opset=17)
    g.input("x", shape, dtype)
    g.node("DynamicQuantizeLinear", ["x"], ["y0", "s", "z"])
    g.output("y0", shape, np.uint8)
    g.output("s", [], np.float32)
    g.output("z", [], np.uint8)
    return g, int(np.prod(shape)) * (np.dtype(dtype).itemsize + 1)


def gathered(shape, dtype):
    """Rows that indices say, as many as there are."""
    g = Graph("figure", opset=17)
    g.input("x", shape, dtype)
    g.weight("i", np.arange(shape[0])[::-1].copy())
    g.node("Gather", ["x", "i"], ["y0"], axis=0)
    g.output("y0", shape, dtype)
    return g, int(np.prod(shape)) * np.dtype(dtype).itemsize


def scattered(op):
    """A quarter of the rows are others, whose places indices say."""

    def make(shape, dtype):
        g = Graph("figure", opset=18)
        some = [shape[0] // 4, shape[1]]
        g.input("x", shape, dtype)
        g.input("u", some, dtype)
        rows = np.arange(some[0]) * 4
        if op == "ScatterND":
            g.input("i", [some[0], 1], "int64")
            g.node(op, ["x", "i", "u"], ["y0"])
        else:
            g.input("i", some, "int64")
            g.node(op, ["x", "i", "u"], ["y0"], axis=0)
        g.output("y0", shape, dtype)
        indices = some[0] if op == "ScatterND" else some[0] * some[1]
        # Updates are read and written.
        return g, (int(np.prod(shape)) + 2 * int(np.prod(some))) * np.dtype(dtype).itemsize + 8 * indices

    return make


def of_sum(op, kept, row=False):
    """Softmax or a normalisation of the sum of two matrices, and of a row where there is to be one; the sum is a result, too, or not."""

    def make(shape, dtype):
        g = Graph("figure", opset=23)
        for name in ["x", "z"]:
            g.input(name, shape, dtype)
        g.node("Add", ["x", "z"], ["both" if row else "sum"])
        if row:
            g.weight("b", np.ones(shape[-1], dtype))
            g.node("Add", ["both", "b"], ["sum"])
        scales = []
        if op != "Softmax":
            g.weight("s", np.ones(shape[-1], dtype))
            scales = ["s"]
        g.node(op, ["sum", *scales], ["y0"], axis=-1)
        results = ["y0", "sum"] if kept else ["y0"]
        for name in results:
            g.output(name, shape, dtype)
        return g, (1 + len(results)) * int(np.prod(shape)) * np.dtype(dtype).itemsize  # the second operand, too

    return make


def quantized(to, axis):
    """Quantisation by a scale of each line, or of each column, and zero points."""

    def make(shape, dtype):
        g = Graph("figure", opset=21)
        g.input("x", shape, dtype)
        g.weight("s", np.full(shape[axis], 0.0131, dtype))
        g.weight("z", np.zeros(shape[axis], to))
        g.node("QuantizeLinear", ["x", "s", "z"], ["y0"], axis=axis)
        g.output("y0", shape, to)
        return g, int(np.prod(shape)) * np.dtype(to).itemsize

    return make


def of_two(op):
    """A model of one node that reads two matrices, which together have as many elements as others read."""

    def make(shape, dtype):
        g = Graph("figure", opset=20)
        for name in ["x", "z"]:
            g.input(name, shape, dtype)
        g.node(op, ["x", "z"], ["y0"])
        g.output("y0", shape, dtype)
        return g, 2 * int(np.prod(shape)) * np.dtype(dtype).itemsize  # the second operand, too

    return make


def pooled(op, stride):
    """A pool of windows of 3x3, with a border where they go by single steps or by two."""
    out = lambda d: (d - 1) // stride + 1
    return one(op, lambda s: [*s[:2], out(s[2]), out(s[3])], kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4)


def of_parts(op, *columns):
    """Parts of rows that are put together, or rows that are parted."""

    def make(shape, dtype):
        g = Graph("figure", opset=17)
        names = [f"p{i}" for i in range(len(columns))]
        if op == "Concat":
            for name, n in zip(names, columns):
                g.input(name, [shape[0], n], dtype)
            g.node("Concat", names, ["y0"], axis=1)
            g.output("y0", shape, dtype)
        else:
            g.input("x", shape, dtype)
            g.weight("n", ints(*columns))
            g.node("Split", ["x", "n"], names, axis=1)
            for name, n in zip(names, columns):
                g.output(name, [shape[0], n], dtype)
        return g, int(np.prod(shape)) * np.dtype(dtype).itemsize

    return make


FUNCTIONS = ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Reciprocal", "Relu",
             "Sigmoid", "Sin", "Sinh", "Softplus", "Sqrt", "Tan", "Tanh"]
LINES = lambda n: [n // 4096, 4096]
EIGHTS = lambda length: lambda n: [n // length // 8 * 8, length]
IMAGES = lambda n: [n // (64 * 128 * 128), 64, 128, 128]
PIXELS = lambda n: [n // (64 * 64 * 64), 64, 64, 64]
PLANES = lambda side: lambda n: [n // (64 * side * side) // 8 * 8, 64, side, side]
PADDED = one("Pad", lambda s: [*s[:2], s[2] + 2, s[3] + 2], weights=[ints(0, 0, 1, 1, 0, 0, 1, 1)])


def resized(mode, factor, last=False):
    """Images that are so many times as large, with channels first or last."""
    scales = [1, 1, factor, factor]
    if not last:
        return one("Resize", lambda s: [*s[:2], int(factor * s[2]), int(factor * s[3])], mode=mode, opset=13,
                   weights=[None, np.array(scales, np.float32)])

    def make(shape, dtype):
        g = Graph("figure", opset=13)
        g.input("x", shape, dtype)
        g.weight("s", np.array(scales, np.float32))
        g.node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2])
        g.node("Resize", ["a", "", "s"], ["b"], mode=mode)
        g.node("Transpose", ["b"], ["y0"], perm=[0, 2, 3, 1])
        out = [shape[0], int(factor * shape[1]), int(factor * shape[2]), shape[3]]
        g.output("y0", out, dtype)
        return g, int(np.prod(out)) * np.dtype(dtype).itemsize

    return make


LARGEST = one("ReduceMax", without(1), axes=[1], keepdims=0, opset=13)
SUM = one("ReduceSum", without(1), weights=[ints(1)], keepdims=0)
WHERE = one("ArgMax", without(1), result="int64", axis=1, keepdims=0)
# Name, types, shape by elements, graph.
KERNELS = [
    ("CumSum", "lines of 4096", FLOATS, LINES, one("CumSum", weights=[ints(1).reshape(())])),
    ("CumSum", "4096 columns", FLOATS, LINES, one("CumSum", weights=[ints(0).reshape(())])),
    ("CumSum", "4 lines", ["f32"], lambda n: [4, n // 4], one("CumSum", weights=[ints(1).reshape(())])),
    ("CumSum", "16 columns (read twice)", FLOATS[1:], lambda n: [n // 16, 16], one("CumSum", weights=[ints(0).reshape(())])),
    ("ReduceSum", "lines of 4096", FLOATS, LINES, SUM),
    ("ReduceSum", "4096 columns", FLOATS, LINES, one("ReduceSum", without(0), weights=[ints(0)], keepdims=0)),
    *[("CumSum", f"lines of {n}", FLOATS, EIGHTS(n), one("CumSum", weights=[ints(1).reshape(())])) for n in [77, 197]],
    *[(op, f"lines of {n}", [*FLOATS, "i8"], EIGHTS(n), make) for op, make in [("ReduceMax", LARGEST), ("ArgMax", WHERE)] for n in [77, 197]],
    *[("ReduceLogSumExp", f"lines of {n}", FLOATS, EIGHTS(n), one("ReduceLogSumExp", without(1), axes=[1], keepdims=0)) for n in [77, 197]],
    *[("ReduceSum", f"{n} columns", FLOATS, EIGHTS(n), one("ReduceSum", without(0), weights=[ints(0)], keepdims=0)) for n in [255, 1000]],
    ("ReduceMax", "48 lines", FLOATS, lambda n: [48, n // 48], LARGEST),
    ("ArgMax", "48 lines", FLOATS, lambda n: [48, n // 48], WHERE),
    ("ArgMax", "lines of 4096", [*FLOATS, "i8"], LINES, WHERE),
    *[(op, "lines of 4096", FLOATS, LINES, one(op, opset=20)) for op in FUNCTIONS],
    *[(op, "of two matrices", FLOATS, lambda n: LINES(n // 2), of_two(op)) for op in ["Add", "Div", "Pow"]],
    ("Softmax", "lines of 4096", FLOATS, LINES, one("Softmax", axis=-1)),
    *[("Softmax", f"lines of {n}", FLOATS, EIGHTS(n), one("Softmax", axis=-1)) for n in [21, 33, 84, 197]],
    ("Softmax", "lines of 197, an odd number", FLOATS, lambda n: [n // 394 * 2 - 1, 197], one("Softmax", axis=-1)),
    *[("Softmax", f"lines of {n}", FLOATS, EIGHTS(n), one("Softmax", axis=-1)) for n in [3, 10, 16]],
    *[("Softmax", f"lines of {n}", FLOATS, lambda e, n=n: [e // n, n], one("Softmax", axis=-1)) for n in [50257, 128256]],
    *[("Softmax", f"{h} heads of {n} by {n} with a bias of each", FLOATS, lambda e, n=n, h=h: [e // (h * n * n) // 8 * 8, h, n, n], biased_softmax)
      for h, n in [(3, 49), (6, 64), (12, 197)]],
    ("Softmax", "2 channels of 128x128", FLOATS, lambda n: [n // 32768, 2, 128 * 128], one("Softmax", axis=1)),
    ("LpNormalization", "64 channels of 128x128", FLOATS, IMAGES, one("LpNormalization", axis=1, opset=22)),
    *[("LpNormalization", f"lines of {n}, by magnitudes", FLOATS, EIGHTS(n), one("LpNormalization", axis=-1, p=1, opset=22))
      for n in [77, 4096]],
    ("ReduceLogSumExp", "1000 columns", FLOATS, EIGHTS(1000), one("ReduceLogSumExp", without(0), axes=[0], keepdims=0)),
    *[(op, f"parts of {' and '.join(map(str, columns))} columns", ["f32", "f16", "i8"], EIGHTS(sum(columns)), of_parts(op, *columns))
      for op in ["Concat", "Split"] for columns in [(3, 5), (77, 33)]],
    *[(op, f"3x3 by {'two' if stride == 2 else 'one'}, planes of {side}x{side}", [*FLOATS[:2], *(["i8"] if op == "MaxPool" else [])],
       PLANES(side), pooled(op, stride))
      for op in ["MaxPool", "AveragePool"] for stride in [1, 2] for side in [7, 14, 28, 56]],
    *[("QuantizeLinear", f"to {name}, a scale of each {what}", FLOATS, LINES, quantized(to, axis))
      for name, to in [("i8", np.int8), ("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)]
      for what, axis in [("line", 0), ("column", 1)]],
    ("LayerNormalization", "lines of 4096", FLOATS, LINES, normed("LayerNormalization")),
    *[(op, f"lines of {n}", FLOATS, EIGHTS(n), normed(op)) for op in ["LayerNormalization", "RMSNormalization"]
      for n in [77, 197, 768]],
    ("LayerNormalization", "lines of 768 with a bias", FLOATS, EIGHTS(768), normed("LayerNormalization", bias=True)),
    *[("LayerNormalization", f"over {c} channels of {n}x{n}{', then last' if last else ''}", FLOATS,
       lambda e, c=c, n=n: [e // (c * n * n), c, n, n], over_channels("LayerNormalization", last)) for c, n in [(96, 56), (384, 14), (768, 7)]
      for last in [False, True]],
    ("LayerNormalization", "over 96 channels of 56x56, written out", FLOATS[:2], lambda e: [e // (96 * 56 * 56), 96, 56, 56], written_out),
    ("GroupNormalization", "of all of 96 channels of 56x56", FLOATS[:2], lambda e: [e // (96 * 56 * 56), 96, 56, 56],
     channels_first("GroupNormalization", [1, 0], opset=21, num_groups=1)),
    ("LayerNormalization", "64 channels of 14x14", FLOATS, PLANES(14), normed("LayerNormalization", axis=-3)),
    *[("Softmax", f"12 heads of {n} by {n} with a mask", FLOATS, lambda e, n=n: [e // (12 * n * n), 12, n, n], masked_softmax) for n in [77, 197]],
    *[("Softmax", f"{c} channels of 128x128", FLOATS, lambda e, c=c: [e // (c * 128 * 128), c, 128, 128], one("Softmax", axis=1))
      for c in [21, 150]],
    *[(op, f"of a sum{' with a row' if row else ''}{', which is a result, too' if kept else ''}", FLOATS, lambda n: LINES(n // 2),
       of_sum(op, kept, row))
      for op in ["LayerNormalization", "RMSNormalization", "Softmax"] for kept, row in [(True, False), (False, False), (True, True)]],
    ("LRN", "64 channels of 128x128", FLOATS, IMAGES, one("LRN", size=5)),
    ("GroupNormalization", "320 channels of 64x64 last", FLOATS,
     lambda n: [n // (320 * 4096), 64, 64, 320],
     channels_last("GroupNormalization", 320, weights=[1, 0], num_groups=32)),
    ("GroupNormalization", "320 channels of 64x64 last, of a sum", FLOATS,
     lambda n: [n // (2 * 320 * 4096), 64, 64, 320],
     channels_last("GroupNormalization", 320, weights=[1, 0], residual=True, num_groups=32)),
    *[("InstanceNormalization", f"{c} channels of {n}x{n} last", FLOATS, lambda e, c=c, n=n: [e // (c * n * n), n, n, c],
       channels_last("InstanceNormalization", c, weights=[1, 0])) for c, n in [(64, 128), (128, 64)]],
    *[("InstanceNormalization", f"planes of {n}x{n}", FLOATS, PLANES(n), channels_first("InstanceNormalization", [1, 0])) for n in [7, 64]],
    ("BatchNormalization", "and Relu, 64 planes of 56x56", FLOATS, PLANES(56), channels_first("BatchNormalization", [2, 1, 1, 2], relu=True)),
    ("PRelu", "64 planes of 56x56", FLOATS, PLANES(56), channels_first("PRelu", [0.1])),
    *[("Add", f"a bias of each of 64 channels of {n}x{n}", FLOATS, PLANES(n), plus_channels) for n in [7, 14]],
    ("Where", "of two matrices", [*FLOATS, "i8"], lambda n: LINES(n // 2), where),
    ("Where", "12 heads of 256x256 with a mask that they share", FLOATS, lambda n: [n // (12 * 65536), 12, 256, 256], masked_fill),
    *[("Cast", f"to {np.dtype(to).name}", types, LINES, cast(to)) for to, types in
      [(np.float32, ["f16", "bf16", "bool"]), (np.float16, ["f32", "bf16", "bool"]), (bool, FLOATS), (np.int64, ["f32", "bool"])]],
    *[("ReduceMean", f"planes of {n}x{n}", FLOATS, PLANES(n), one("ReduceMean", lambda s: [*s[:2], 1, 1], axes=[2, 3], keepdims=1)) for n in [7, 56]],
    *[("ReduceMean", f"64 channels of {n}x{n} last", FLOATS, lambda e, n=n: [e // (64 * n * n), n, n, 64],
       one("ReduceMean", lambda s: [s[0], 1, 1, s[3]], axes=[1, 2], keepdims=1))
      for n in [7, 56]],
    *[("DequantizeLinear", f"to {np.dtype(to).name}{', a scale of each ' + what if what else ''}", ["i8"], LINES, dequantized(to, axis))
      for to in [np.float32, np.float16, ml_dtypes.bfloat16] for what, axis in [("", None), ("line", 0), ("column", 1)]],
    ("QuantizeLinear", "of a sum of two that were quantised", ["i8"], lambda n: LINES(n // 2), quantised_sum),
    ("DynamicQuantizeLinear", "lines of 4096", ["f32"], LINES, dynamic),
    *[("Gather", f"rows of {n}", [*FLOATS[:2], "i8"], EIGHTS(n), gathered) for n in [77, 768]],
    *[("Slice", f"{n - 8} of {n} columns", [*FLOATS[:2], "i8"], EIGHTS(n),
       one("Slice", last_is(n - 8), weights=[ints(3), ints(n - 5), ints(1)])) for n in [77, 768]],
    *[("ScatterND", f"a quarter of rows of {n}", FLOATS[:2], EIGHTS(n), scattered("ScatterND")) for n in [64, 768]],
    ("ScatterElements", "a quarter of rows of 64", ["f32"], EIGHTS(64), scattered("ScatterElements")),
    ("LRN", "64 channels of 27x27", FLOATS, PLANES(27), one("LRN", size=5)),
    ("RotaryEmbedding", "32 heads of 128", FLOATS, lambda n: [1, 32, n // 4096, 128], rotary),
    ("GridSample", "linear, 64 channels of 64x64", FLOATS, PIXELS, sampled),
    ("MaxPool", "3x3, 256 channels of 64x64 last", FLOATS, lambda n: [n // (256 * 4096), 64, 64, 256],
     channels_last("MaxPool", 256, kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    ("MaxPool", "3x3, planes of 128x128", FLOATS, IMAGES, one("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    *[("Resize", f"{mode}, {times} as large", types, PIXELS, resized(mode, factor))
      for mode, types in [("linear", FLOATS), ("cubic", FLOATS), ("nearest", ["f32", "f16", "i8"])]
      for factor, times in [(2, "twice"), (1.5, "1.5 times"), (0.5, "half")]],
    *[("Resize", f"{mode}, twice as large, 64 channels last", FLOATS[:2], lambda n: [n // (64 * 64 * 64), 64, 64, 64], resized(mode, 2, True))
      for mode in ["linear", "cubic"]],
    ("Pad", "planes of 64x64", [*FLOATS, "i8"], PIXELS, PADDED),
    ("Transpose", "rows of 1000", [*FLOATS, "i8"], EIGHTS(1000), permuted(1, 0)),
    ("Transpose", "rows of 64", [*FLOATS, "i8"], lambda n: [n // 64, 64], permuted(1, 0)),
    *[("Transpose", f"of many matrices of {n}x{m}", ["f32", "f16", "i8"], lambda e, n=n, m=m: [e // (n * m) // 8 * 8, n, m], permuted(0, 2, 1))
      for n, m in [(77, 77), (49, 32)]],
    *[("Transpose", f"{c} channels of {n}x{n} last", ["f16", "i8"], lambda e, c=c, n=n: [e // (c * n * n), c, n, n], permuted(0, 2, 3, 1))
      for c, n in [(32, 8), (512, 7), (96, 55)]],
    ("Transpose", "3 channels last", [*FLOATS, "i8"], lambda n: [n // (3 * 224 * 224), 3, 224, 224], permuted(0, 2, 3, 1)),
    ("Transpose", "windows of 7x7x768 to images of 56x56", FLOATS[1:], lambda n: [n // (56 * 56 * 768), 8, 8, 7, 7, 768],
     permuted(0, 1, 3, 2, 4, 5)),
    ("Transpose", "patches of 2x2x512 to images of 64x64", FLOATS[1:], lambda n: [n // (64 * 64 * 512), 32, 32, 2, 2, 512],
     permuted(0, 5, 1, 3, 2, 4)),
    ("TopK", "8 of 4096", FLOATS, LINES, one("TopK", last_is(8), weights=[ints(8)], outputs=2, axis=-1)),
    ("TopK", "8 of 64", FLOATS[:2], EIGHTS(64), one("TopK", last_is(8), weights=[ints(8)], outputs=2, axis=-1)),
    ("TopK", "8 of 256", FLOATS, EIGHTS(256), one("TopK", last_is(8), weights=[ints(8)], outputs=2, axis=-1)),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--barewave", default=ROOT / "target/release/barewave")
    parser.add_argument("--all", action="store_true", help="rows at %d%%%% or more everywhere, too" % ENOUGH)
    parser.add_argument("--only", metavar="OPERATOR", help="this operator's rows")
    args = parser.parse_args()
    reached = bandwidths()
    print("| kernel | " + " | ".join(TARGETS) + " |\n|---|" + "---|" * len(TARGETS))
    with tempfile.TemporaryDirectory() as folder:
        for op, what, types, shape_of, make in KERNELS:
            if args.only not in (None, op):
                continue
            for kind in types:
                dtype = TYPES[kind]
                shares = []
                for target in TARGETS:
                    shape = shape_of(READ.get(target, USUAL_READ) // np.dtype(dtype).itemsize)
                    graph, written = make(shape, dtype)
                    file = f"{folder}/model.onnx"
                    graph.save(file)
                    run = subprocess.run([args.barewave, "bench", "model", file, "--target", target, "--json"],
                                         capture_output=True, text=True)
                    if run.returncode:
                        sys.exit(f"{op} {kind} on {target}: {run.stderr.strip()}")
                    moved = int(np.prod(shape)) * np.dtype(dtype).itemsize + written
                    shares.append(round(100 * moved / reached[target] / json.loads(run.stdout)["microseconds"]))
                if args.all or op == "CumSum" or min(shares) < ENOUGH:
                    print(f"| {op} {kind}, {what} | " + " | ".join(map(str, shares)) + " |", flush=True)


if __name__ == "__main__":
    main()
