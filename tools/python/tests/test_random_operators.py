"""Random models of each family of operators: attributes, shapes and types at random, with onnxruntime as the judge.

`BAREWAVE_ITERATIONS` says how many models of each family are tried (1000 by default), `BAREWAVE_FIRST_SEED` where they start. A failure
names family and seed; `python test_random_operators.py FAMILY SEED` writes that model to the current folder.
"""

import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import barewave

onnxruntime = pytest.importorskip("onnxruntime")

ITERATIONS = int(os.environ.get("BAREWAVE_ITERATIONS", 1000))
FIRST = int(os.environ.get("BAREWAVE_FIRST_SEED", 0))
TARGETS = ["gfx942", "gfx1100", "gfx906", "gfx1201", "gfx1030", "gfx90a"]
FLOATS = [np.float32] * 6 + [np.float16, np.float64]
INTS = [np.int32, np.int64, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64]


class Case:
    """A model under construction, and what it is run with."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inputs, self.weights, self.feeds = [], [], [], {}
        self.outputs, self.count, self.opset, self.tolerance, self.ml = [], 0, 21, 1e-4, False

    def int(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def coin(self, chance=0.5):
        return bool(self.rng.random() < chance)

    def pick(self, *options):
        return options[self.int(0, len(options) - 1)]

    def shape(self, low=1, high=4, largest=7):
        return [self.int(1, largest) for _ in range(self.int(low, high))]

    def values(self, shape, kind=np.float32, low=-2.0, high=2.0):
        if kind == np.bool_:
            return self.rng.integers(0, 2, shape).astype(np.bool_)
        if np.issubdtype(kind, np.integer):
            least = max(np.iinfo(kind).min, -40)
            return self.rng.integers(least, 41, shape).astype(kind)
        return self.rng.uniform(low, high, shape).astype(kind)

    def give(self, value, constant=None):
        """A value as an input of the model, or as a constant."""
        self.count += 1
        name = f"x{self.count}"
        if self.coin(0.3) if constant is None else constant:
            self.weights.append(numpy_helper.from_array(value, name))
        else:
            self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
            self.feeds[name] = value
        return name

    def data(self, shape, kind=np.float32, low=-2.0, high=2.0, constant=None):
        return self.give(self.values(shape, kind, low, high), constant)

    def ints(self, *values):
        return self.give(np.array(values, np.int64), True)

    def node(self, op, *inputs, outputs=1, domain="", **attributes):
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def model(self):
        graph = helper.make_graph(self.nodes, "random", self.inputs, [helper.make_empty_tensor_value_info(o) for o in self.outputs], self.weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def unary(c):
    op = c.pick("Abs", "Neg", "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh",
                "Sigmoid", "Erf", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish",
                "ThresholdedRelu", "Ceil", "Floor", "Round", "Sign", "Reciprocal", "Gelu", "Clip", "IsNaN", "Shrink", "Not", "BitwiseNot")
    kinds = {"Abs": FLOATS + INTS, "Neg": FLOATS + [np.int32, np.int64, np.int8], "Sign": FLOATS + INTS, "Relu": FLOATS[:6] + [np.int32, np.int8],
             "Not": [np.bool_], "BitwiseNot": INTS, "Clip": [np.float32, np.int32, np.int64, np.uint8], "Shrink": [np.float32]}
    x = c.values(c.shape(0), c.pick(*kinds.get(op, [np.float32])))
    if op in ("Log", "Sqrt"):
        x = np.abs(x) + x.dtype.type(0.01)
    elif op in ("Asin", "Acos", "Atanh"):
        x = x * x.dtype.type(0.45)
    elif op == "Acosh":
        x = np.abs(x) + x.dtype.type(1)
    elif op == "Tan":
        x = x * x.dtype.type(0.6)
    elif op == "Reciprocal":
        x = np.where(np.abs(x) < 0.1, x.dtype.type(1), x)
    inputs, attributes = [c.give(np.asarray(x), False)], {}
    if op in ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid") and c.coin():
        attributes["alpha"] = float(c.rng.uniform(0.1, 1.5))
    if op == "Gelu":
        attributes["approximate"] = c.pick("none", "tanh")
    if op == "Clip":
        low = x.dtype.type(3) if c.coin() else None
        inputs += [c.give(np.array(low)) if low is not None else "", c.give(np.array(20, x.dtype))]
    c.outputs = [c.node(op, *inputs, **attributes)]


def binary(c):
    arithmetic, compare = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Pow"], ["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]
    op = c.pick(*arithmetic, *compare, "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "PRelu", "Where", "Sum", "Mean")
    out = c.shape(0)
    side = lambda: [1 if c.coin(0.3) else d for d in out[c.int(0, len(out)) if c.coin(0.3) else 0:]]
    kind = c.pick(np.float32, np.float32, np.float64, np.int32, np.int64)
    if op in ("Max", "Min") and c.coin():
        kind = c.pick(np.float16, np.uint32, np.uint64, np.int8, np.uint8)
    if op in ("And", "Or", "Xor"):
        kind = np.bool_
    elif op.startswith("Bitwise"):
        kind = c.pick(*INTS)
    elif op == "BitShift":
        kind = c.pick(np.uint8, np.uint32, np.uint64)
    elif op in ("PRelu", "Sum", "Mean"):
        kind = np.float32
    if op == "Mod":
        kind = c.pick(np.int32, np.int64, np.int8, np.uint8, np.int16, np.float32)
    x, y, attributes = c.values(side(), kind), c.values(side(), kind), {}
    if op in ("Div", "Mod"):
        y = np.where(y == 0, np.array(3, kind), y).astype(kind)
    if op == "Mod" and kind == np.float32:
        attributes["fmod"] = 1
        y = np.where(np.abs(y) < 0.3, np.float32(0.7), y)
    if op == "Pow":
        y = np.abs(y) % 4 if np.issubdtype(kind, np.integer) else y
        x = x % 7 if np.issubdtype(kind, np.integer) else np.abs(x) + kind(0.1)
        x, y = np.asarray(x).astype(kind), np.asarray(y).astype(kind)
    if op == "BitShift":
        attributes["direction"], y = c.pick("LEFT", "RIGHT"), (np.asarray(y) % 8).astype(kind)
    if op == "PRelu":
        x = c.values(out, kind)
    names = [c.give(np.asarray(x), False), c.give(np.asarray(y))]
    if op == "Where":
        names.insert(0, c.data(side(), np.bool_))
    if op in ("Sum", "Mean", "Max", "Min") and c.coin():
        names.append(c.data(side(), kind))
    c.outputs = [c.node(op, *names, **attributes)]


def cast(c):
    kinds = [np.float32, np.float16, np.float64, np.bool_, *INTS]
    a, b = c.pick(*kinds), c.pick(*kinds)
    unsigned = b in (np.uint8, np.uint16, np.uint32, np.uint64)
    x = c.values(c.shape(0), a, 0 if unsigned else -40, 100)
    if np.issubdtype(a, np.floating) and b == np.int8:
        x = np.clip(x, -100, 100)
    y = c.node("Cast", c.give(np.asarray(x), False), to=helper.np_dtype_to_tensor_dtype(np.dtype(b)))
    c.outputs = [y]


def reduction(c):
    op = c.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
                "ReduceLogSumExp", "ArgMax", "ArgMin", "CumSum", "TopK")
    shape = c.shape(1, 4, 9)
    kind = c.pick(np.float32, np.float32, np.float32, np.int32) if op not in ("ReduceProd", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "CumSum", "ReduceMean") else np.float32
    x = c.values(shape, kind)
    if op == "ReduceLogSum":
        x = np.abs(x) + x.dtype.type(0.1)
    if op in ("ArgMax", "ArgMin", "TopK"):
        x = c.rng.permutation(int(np.prod(shape))).reshape(shape).astype(kind)
        axis = c.int(-len(shape), len(shape) - 1)
        if op == "TopK":
            k = c.ints(c.int(1, shape[axis]))
            c.outputs = c.node(op, c.give(x, False), k, outputs=2, axis=axis, largest=c.int(0, 1), sorted=1)
        else:
            c.outputs = [c.node(op, c.give(x, False), axis=axis, keepdims=c.int(0, 1), select_last_index=c.int(0, 1))]
        return
    if op == "CumSum":
        c.outputs = [c.node(op, c.give(x, False), c.give(np.array(c.int(-len(shape), len(shape) - 1)), True), exclusive=c.int(0, 1), reverse=c.int(0, 1))]
        return
    axes = [int(a) - (len(shape) if c.coin(0.3) else 0) for a in c.rng.permutation(len(shape))[: c.int(0, len(shape))]]
    names = [c.give(x, False)] + ([c.ints(*axes)] if axes or c.coin() else [])
    c.outputs = [c.node(op, *names, keepdims=c.int(0, 1), noop_with_empty_axes=c.int(0, 1))]


def normalisation(c):
    op = c.pick("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "InstanceNormalization", "BatchNormalization", "GroupNormalization",
                "LpNormalization", "MeanVarianceNormalization", "LRN")
    shape = c.shape(1, 4, 40) if c.coin(0.2) else c.shape(1, 4, 9)
    if op in ("InstanceNormalization", "GroupNormalization", "BatchNormalization", "LRN"):
        shape = [c.int(1, 3), c.int(1, 8)] + [c.int(2, 6) for _ in range(c.int(1, 2))]
    if op == "MeanVarianceNormalization":
        shape = [c.int(2, 4) for _ in range(4)]
    x = c.data(shape, constant=False)
    axis = c.int(-len(shape), len(shape) - 1)
    if op in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
        attributes = {"axis": axis} | ({"p": c.int(1, 2)} if op == "LpNormalization" else {})
        c.outputs = [c.node(op, x, **attributes)]
    elif op == "LayerNormalization":
        part = shape[axis:] if axis < 0 else shape[axis:]
        c.outputs = [c.node(op, x, c.data(part), *([c.data(part)] if c.coin() else []), axis=axis, epsilon=c.pick(1e-5, 1e-2))]
        if int(np.prod(part)) < 2:
            c.tolerance = 1e-2
    elif op == "MeanVarianceNormalization":
        c.outputs = [c.node(op, x, axes=c.pick([0, 2, 3], [2, 3], [1, 2, 3], [0, 1, 2, 3]))]
    elif op == "LRN":
        c.outputs = [c.node(op, x, size=c.pick(1, 3, 5), alpha=0.2, beta=0.7, bias=1.2)]
    else:
        n, groups = shape[1], 1
        if op == "GroupNormalization":
            groups = c.pick(*[g for g in range(1, n + 1) if n % g == 0])
        names = [x, c.data([n], constant=True), c.data([n], constant=True)]
        if op == "BatchNormalization":
            names += [c.data([n], constant=True), c.data([n], low=0.3, high=2, constant=True)]
        c.outputs = [c.node(op, *names, epsilon=1e-3, **({"num_groups": groups} if op == "GroupNormalization" else {}))]


def convolution(c):
    transposed, spatial = c.coin(0.3), c.pick(1, 2, 2, 2, 3)
    groups = c.pick(1, 1, 2, 3)
    cin, cout = groups * c.int(1, 5), groups * c.int(1, 6)
    kernel, stride = [c.int(1, 4) for _ in range(spatial)], [c.int(1, 3) for _ in range(spatial)]
    dilation = [c.int(1, 2) for _ in range(spatial)]
    image = [c.int((k - 1) * d + 1, 11) for k, d in zip(kernel, dilation)]
    attributes = {"group": groups, "strides": stride, "dilations": dilation}
    if not transposed and c.coin(0.2):
        attributes |= {"auto_pad": c.pick("SAME_UPPER", "SAME_LOWER", "VALID"), "dilations": [1] * spatial}
    elif c.coin():
        attributes["pads"] = [c.int(0, min(2, (k - 1) * d)) for k, d in zip(kernel, dilation)] * 2
    if transposed and c.coin(0.3):
        attributes["output_padding"] = [c.int(0, max(s, d) - 1) for s, d in zip(stride, dilation)]
    x, op = c.data([c.int(1, 3), cin, *image], constant=False), "ConvTranspose" if transposed else "Conv"
    w = c.data([cin, cout // groups, *kernel] if transposed else [cout, cin // groups, *kernel], constant=c.coin(0.8))
    y = c.node(op, x, w, *([c.data([cout], constant=c.coin(0.8))] if c.coin() else []), **attributes)
    if c.coin():
        y = c.node(c.pick("Relu", "Sigmoid", "HardSwish"), y)
    c.outputs = [y]


def pooling(c):
    spatial = c.pick(1, 2, 2, 3)
    op = c.pick("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "Indices")
    kernel = [c.int(1, 4) for _ in range(spatial)]
    dilation = [1 if op in ("LpPool", "AveragePool") else c.int(1, 2) for _ in range(spatial)]
    x = c.data([c.int(1, 3), c.int(1, 5), *[c.int((k - 1) * d + 1, 12) for k, d in zip(kernel, dilation)]], constant=False)
    if op.startswith("Global"):
        c.outputs = [c.node(op, x)]
        return
    attributes = {"kernel_shape": kernel, "strides": [c.int(1, 3) for _ in range(spatial)]}
    if op in ("MaxPool", "Indices"):
        attributes["dilations"] = dilation
    # Windows that leave elements out have no padding that all agree on.
    overlap = all(s <= k for s, k in zip(attributes["strides"], kernel))
    if c.coin(0.2) and overlap and all(d == 1 for d in dilation):
        attributes["auto_pad"] = c.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif c.coin():
        attributes["pads"] = [c.int(0, min(k - 1, 1)) for k in kernel] * 2
    if op != "LpPool" and "auto_pad" not in attributes:
        attributes["ceil_mode"] = c.int(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = c.int(0, 1)
    if op == "LpPool":
        attributes["p"] = c.int(1, 3)
    if op == "Indices":
        c.outputs = c.node("MaxPool", x, outputs=2, **attributes)
    else:
        c.outputs = [c.node(op, x, **attributes)]


def product(c):
    op = c.pick("MatMul", "MatMul", "Gemm", "Einsum", "Siblings")
    size = lambda: c.int(1, 40) if c.coin(0.3) else c.int(1, 9)
    m, k, n = size(), size(), size()
    if op == "Siblings":
        x = c.data([c.int(1, 3), m, k], constant=False)
        for _ in range(c.int(2, 4)):
            width = 2 * c.int(1, 8)
            y = c.node("MatMul", x, c.data([k, width], constant=True))
            y = c.node("Add", y, c.data([width], constant=True))
            if c.coin():
                y = c.node("Transpose", c.node("Reshape", y, c.ints(0, 0, 2, width // 2)), perm=[0, 2, 1, 3])
            c.outputs.append(c.node(c.pick("Identity", "Softmax", "Tanh", "Relu"), y))
    elif op == "MatMul":
        batch = c.shape(0, 2, 3)
        side = lambda: [1 if c.coin(0.2) else d for d in batch[c.int(0, len(batch)):]] if c.coin() else batch
        kind = c.pick(np.float32, np.float32, np.float64, np.int32)
        a = [k] if c.coin(0.1) else [*side(), m, k]
        b = [k] if c.coin(0.1) else [*side(), k, n]
        c.outputs = [c.node(op, c.data(a, kind, constant=False), c.data(b, kind))]
    elif op == "Gemm":
        ta, tb = c.int(0, 1), c.int(0, 1)
        extra = [c.data(c.pick([n], [m, n], [1, n], [m, 1], [1], []))] if c.coin(0.7) else []
        c.outputs = [c.node(op, c.data([k, m] if ta else [m, k], constant=False), c.data([n, k] if tb else [k, n]), *extra,
                            transA=ta, transB=tb, alpha=c.pick(1.0, 0.5), beta=c.pick(1.0, 2.0))]
    else:
        d = {ch: c.int(1, 5) for ch in "abcde"}
        equation = c.pick("ab,bc->ac", "abc,acd->abd", "abc,cd->abd", "ab->ba", "ab->a", "ab,ab->", "abc,abc->ab", "a,b->ab", "abcd,aecd->abe", "abc->cab", "ab,cb->ac", "abcd,acde->abce")
        parts = equation.split("->")[0].split(",")
        c.outputs = [c.node(op, *[c.data([d[ch] for ch in p], constant=False if i == 0 else None) for i, p in enumerate(parts)], equation=equation)]


def layout(c):
    shape = c.shape(1, 4, 6)
    kind = c.pick(np.float32, np.float32, np.int64, np.int8, np.bool_, np.float16)
    y = c.data(shape, kind, constant=False)
    for _ in range(c.int(1, 4)):
        rank = len(shape)
        op = c.pick("Transpose", "Reshape", "Slice", "Concat", "Expand", "Tile", "Pad", "Split", "Unsqueeze", "Squeeze", "Flatten", "Reverse")
        if op == "Transpose":
            perm = [int(p) for p in c.rng.permutation(rank)]
            y, shape = c.node(op, y, perm=perm), [shape[p] for p in perm]
        elif op == "Reshape":
            total, new = int(np.prod(shape)), []
            rest = total
            for _ in range(c.int(0, 3)):
                new.append(c.pick(*[d for d in range(1, rest + 1) if rest % d == 0]))
                rest //= new[-1]
            new.append(rest)
            given = [*new[:-1], -1] if c.coin() else new
            y, shape = c.node(op, y, c.ints(*given)), new
        elif op in ("Slice", "Reverse"):
            d = c.int(0, rank - 1)
            start, step = c.int(0, shape[d] - 1), c.int(1, 3)
            if op == "Reverse":
                y = c.node("Slice", y, c.ints(-1), c.ints(-(2**62)), c.ints(d), c.ints(-step))
                shape = [(n + step - 1) // step if i == d else n for i, n in enumerate(shape)]
            else:
                y = c.node("Slice", y, c.ints(start), c.ints(2**62), c.ints(d - rank), c.ints(step))
                shape = [(n - start + step - 1) // step if i == d else n for i, n in enumerate(shape)]
        elif op == "Concat":
            d = c.int(0, rank - 1)
            other = [c.int(1, 3) if i == d else n for i, n in enumerate(shape)]
            y = c.node(op, *c.pick((y, c.data(other, kind)), (c.data(other, kind), y)), axis=d)
            shape = [n + other[d] if i == d else n for i, n in enumerate(shape)]
        elif op == "Expand":
            to = [n if n != 1 or c.coin() else c.int(1, 3) for n in shape]
            to = [c.int(1, 2), *to] if c.coin() and rank < 5 else to
            y, shape = c.node(op, y, c.ints(*to)), to
        elif op == "Tile":
            times = [c.int(1, 2) for _ in shape]
            y, shape = c.node(op, y, c.ints(*times)), [n * t for n, t in zip(shape, times)]
        elif op == "Pad" and kind != np.bool_:
            mode = c.pick("constant", "edge", "reflect") if kind == np.float32 else "constant"
            pads = [c.int(0, 2 if mode == "constant" else min(1, n - 1)) for n in shape * 2]
            y, shape = c.node(op, y, c.ints(*pads), mode=mode), [n + a + b for n, a, b in zip(shape, pads, pads[rank:])]
        elif op == "Split":
            d = c.int(0, rank - 1)
            if shape[d] > 1:
                first = c.int(1, shape[d] - 1)
                parts = c.node(op, y, c.ints(first, shape[d] - first), outputs=2, axis=d)
                c.outputs.append(parts[1])
                y, shape = parts[0], [first if i == d else n for i, n in enumerate(shape)]
        elif op == "Unsqueeze" and rank < 5:
            d = c.int(0, rank)
            y, shape = c.node(op, y, c.ints(d)), [*shape[:d], 1, *shape[d:]]
        elif op == "Squeeze" and 1 in shape and rank > 1:
            d = shape.index(1)
            y, shape = c.node(op, y, c.ints(d)), shape[:d] + shape[d + 1:]
        elif op == "Flatten":
            d = c.int(0, rank)
            y, shape = c.node(op, y, axis=d), [int(np.prod(shape[:d])), int(np.prod(shape[d:]))]
        if int(np.prod(shape)) > 4000:
            break
    c.outputs.append(c.node("Identity", y))


def gathering(c):
    op = c.pick("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot", "Compress", "NonZero", "ReverseSequence", "Trilu",
                "EyeLike", "Unique", "Where2")
    shape = c.shape(2, 4, 6)
    kind = c.pick(np.float32, np.float32, np.int64, np.int32)
    axis = c.int(0, len(shape) - 1)
    signed = axis - (len(shape) if c.coin(0.3) else 0)
    x = c.data(shape, kind, constant=False)
    index = lambda s, n, kind=np.int64: c.give(c.rng.integers(-n, n, s).astype(kind))
    if op == "Gather":
        c.outputs = [c.node(op, x, index(c.shape(0, 2, 4), shape[axis], c.pick(np.int32, np.int64)), axis=signed)]
    elif op == "GatherElements":
        other = [c.int(1, n) for n in shape]
        c.outputs = [c.node(op, x, index(other, shape[axis]), axis=signed)]
    elif op == "GatherND":
        batch = c.int(0, len(shape) - 1)
        depth = c.int(1, len(shape) - batch)
        lead = shape[:batch] + c.shape(0 if batch else 1, 2, 3)
        spots = np.stack([c.rng.integers(-n, n, lead) for n in shape[batch:batch + depth]], -1)
        c.outputs = [c.node(op, x, c.give(spots.astype(np.int64)), batch_dims=batch)]
    elif op == "ScatterElements":
        other = [c.int(1, n) for n in shape]
        reduction = c.pick("none", "add", "mul", "max", "min")
        spots = np.argsort(c.rng.random([shape[axis] if i == axis else n for i, n in enumerate(other)]), axis=axis)
        spots = np.take(spots, np.arange(other[axis]), axis=axis)
        if reduction != "none" and c.coin():
            spots = c.rng.integers(0, shape[axis], other)
        c.outputs = [c.node(op, x, c.give(spots.astype(np.int64)), c.data(other, kind), axis=signed, reduction=reduction)]
    elif op == "ScatterND":
        depth = c.int(1, len(shape))
        count = c.int(1, int(np.prod(shape[:depth])))
        reduction = c.pick("none", "add", "mul", "max", "min")
        spots = c.rng.permutation(int(np.prod(shape[:depth])))[:count]
        spots = np.stack(np.unravel_index(spots, shape[:depth]), -1).astype(np.int64)
        c.outputs = [c.node(op, x, c.give(spots), c.data([count, *shape[depth:]], kind), reduction=reduction)]
    elif op == "OneHot":
        depth = c.int(2, 6)
        spots = c.give(c.rng.integers(-depth, depth, c.shape(1, 3, 4)).astype(np.int64), False)
        c.outputs = [c.node(op, spots, c.give(np.array(depth), True), c.data([2], kind), axis=c.pick(-1, 0, 1))]
    elif op == "Compress":
        flags = c.values([shape[axis]], np.bool_)
        c.outputs = [c.node(op, x, c.give(flags), axis=signed)]
    elif op == "NonZero":
        c.outputs = [c.node(op, c.data(shape, c.pick(np.bool_, np.int32), constant=False))]
    elif op == "ReverseSequence":
        batch = c.int(0, 1)
        lengths = c.rng.integers(0, shape[1 - batch] + 1, shape[batch]).astype(np.int64)
        c.outputs = [c.node(op, x, c.give(lengths), batch_axis=batch, time_axis=1 - batch)]
    elif op == "Trilu":
        c.outputs = [c.node(op, x, c.give(np.array(c.int(-3, 3)), True), upper=c.int(0, 1))]
    elif op == "EyeLike":
        c.outputs = [c.node(op, c.data(shape[:2], kind, constant=False), k=c.int(-2, 2))]
    elif op == "Unique":
        c.outputs = c.node(op, c.give(c.rng.integers(0, 4, shape[:c.int(1, 2)]).astype(np.float32), False), outputs=4, sorted=c.int(0, 1), **({"axis": 0} if c.coin() else {}))
    else:
        c.outputs = [c.node("Where", c.data(shape, np.bool_, constant=False), x, c.data([], kind))]


def resizing(c):
    op = c.pick("Resize", "Resize", "Resize", "GridSample", "RoiAlign", "DepthToSpace", "SpaceToDepth", "Col2Im", "AffineGrid", "NonMaxSuppression")
    h, w = c.int(1, 8), c.int(1, 8)
    x = c.data([c.int(1, 2), c.int(1, 3), h, w], constant=False)
    if op == "Resize":
        mode = c.pick("nearest", "linear", "cubic")
        attributes = {"mode": mode, "coordinate_transformation_mode": c.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")}
        if mode == "nearest":
            attributes["nearest_mode"] = c.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        if mode == "cubic":
            attributes |= {"cubic_coeff_a": c.pick(-0.75, -0.5), "exclude_outside": c.int(0, 1)}
        if mode != "nearest" and c.coin(0.3):
            attributes["antialias"] = 1
        # Where a coordinate lies between two elements, rounding in f32 decides in onnxruntime: scales are exact.
        # With aligned corners it takes rounded extents, where ONNX's own tests take the product of extent and scale.
        if mode == "nearest" or c.coin():
            least = 1 if attributes["coordinate_transformation_mode"] == "align_corners" else 0.5
            c.outputs = [c.node(op, x, "", c.give(np.array([1, 1, c.pick(least, 2, 3), c.pick(1, 2, 4)], np.float32), True), **attributes)]
        else:
            n, ch = c.feeds[x].shape[:2]
            c.outputs = [c.node(op, x, "", "", c.ints(n, ch, c.int(1, 12), c.int(1, 12)), **attributes)]
    elif op == "GridSample":
        grid = c.data([c.feeds[x].shape[0], c.int(1, 5), c.int(1, 5), 2], low=-1.3, high=1.3, constant=False)
        c.outputs = [c.node(op, x, grid, mode=c.pick("linear", "nearest", "cubic"), padding_mode=c.pick("zeros", "border", "reflection"), align_corners=c.int(0, 1))]
    elif op == "RoiAlign":
        n = c.int(1, 4)
        boxes = np.sort(c.rng.uniform(0, 8, (n, 2, 2)), axis=1).reshape(n, 4).astype(np.float32)
        of = c.rng.integers(0, c.feeds[x].shape[0], n).astype(np.int64)
        c.outputs = [c.node(op, x, c.give(boxes, False), c.give(of), output_height=c.int(1, 4), output_width=c.int(1, 4), sampling_ratio=c.int(0, 3),
                            spatial_scale=c.pick(1.0, 0.5), mode="avg", coordinate_transformation_mode=c.pick("half_pixel", "output_half_pixel"))]
    elif op in ("DepthToSpace", "SpaceToDepth"):
        block, ch = c.int(2, 3), c.int(1, 3)
        if op == "DepthToSpace":
            c.outputs = [c.node(op, c.data([2, ch * block * block, h, w], constant=False), blocksize=block, mode=c.pick("DCR", "CRD"))]
        else:
            c.outputs = [c.node(op, c.data([2, ch, h * block, w * block], constant=False), blocksize=block)]
    elif op == "Col2Im":
        kernel, image = [c.int(1, 3), c.int(1, 3)], [c.int(3, 7), c.int(3, 7)]
        stride = [c.int(1, 2), c.int(1, 2)]
        count = [(n - k) // s + 1 for n, k, s in zip(image, kernel, stride)]
        data = c.data([1, c.int(1, 3) * kernel[0] * kernel[1], count[0] * count[1]], constant=False)
        c.outputs = [c.node(op, data, c.ints(*image), c.ints(*kernel), strides=stride)]
    elif op == "AffineGrid":
        c.outputs = [c.node(op, c.data([2, 2, 3], constant=False), c.ints(2, 3, c.int(2, 5), c.int(2, 5)), align_corners=c.int(0, 1))]
    else:
        n, classes = c.int(1, 12), c.int(1, 3)
        corners = c.rng.uniform(0, 5, (1, n, 2))
        boxes = np.concatenate([corners, corners + c.rng.uniform(0.5, 3, (1, n, 2))], -1).astype(np.float32)
        scores = c.rng.permutation(classes * n).reshape(1, classes, n).astype(np.float32) / 10
        limits = [c.ints(c.int(1, 5)), c.give(np.array([c.pick(0.3, 0.6)], np.float32), True), c.give(np.array([0.2], np.float32), True)]
        c.outputs = [c.node(op, c.give(boxes, False), c.give(scores, False), *limits)]


def recurrent(c):
    op, both = c.pick("LSTM", "GRU", "RNN"), c.pick("forward", "reverse", "bidirectional")
    steps, batch, width, hidden = c.int(1, 5), c.int(1, 4), c.int(1, 9), c.pick(1, 3, 8, 33, 70)
    gates, n = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if both == "bidirectional" else 1
    names = [c.data([steps, batch, width], constant=False), *[c.data([n, gates * hidden, k], low=-0.5, high=0.5, constant=True) for k in (width, hidden)]]
    names.append(c.data([n, 2 * gates * hidden], low=-0.5, high=0.5, constant=True) if c.coin() else "")
    names.append(c.give(c.rng.integers(1, steps + 1, batch).astype(np.int32)) if c.coin(0.3) else "")
    names.append(c.data([n, batch, hidden]) if c.coin(0.4) else "")
    attributes = {"direction": both, "hidden_size": hidden}
    if op == "LSTM":
        names.append(c.data([n, batch, hidden]) if c.coin(0.4) else "")
        names.append(c.data([n, 3 * hidden], low=-0.5, high=0.5, constant=True) if c.coin(0.2) else "")
    if op == "GRU":
        attributes["linear_before_reset"] = c.int(0, 1)
    if c.coin(0.2):
        attributes["clip"] = 0.8
    if op == "RNN" and c.coin():
        attributes["activations"] = [c.pick("Relu", "Sigmoid", "Tanh")] * n
    c.outputs = c.node(op, *names, outputs=3 if op == "LSTM" else 2, **attributes)


def quantised(c):
    op = c.pick("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "MatMulNBits",
                "DynamicQuantizeMatMul", "QLinearAdd", "QGemm")
    kind, other = c.pick(np.uint8, np.int8), c.pick(np.uint8, np.int8)
    bytes_ = lambda shape, kind=kind: c.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
    scale = lambda shape=(): c.give(c.rng.uniform(0.005, 0.05, shape).astype(np.float32), True)
    zero = lambda shape=(), kind=kind: c.give(bytes_(shape, kind), True)
    m, k, n = c.int(1, 20), c.int(1, 40), c.int(1, 20)
    c.tolerance = "one"
    if op in ("QuantizeLinear", "DequantizeLinear"):
        shape = c.shape(1, 4, 6)
        axis = c.int(0, len(shape) - 1)
        own = [shape[axis]] if c.coin() else []
        x = c.data(shape, constant=False) if op == "QuantizeLinear" else c.give(bytes_(shape), False)
        c.outputs = [c.node(op, x, scale(own), zero(own), axis=axis)]
    elif op == "DynamicQuantizeLinear":
        c.outputs = c.node(op, c.data(c.shape(), constant=False), outputs=3)
    elif op == "MatMulInteger":
        extra = [zero(), zero(kind=other)][: c.int(0, 2)]
        c.outputs = [c.node(op, c.give(bytes_(c.shape(0, 1, 3) + [m, k]), False), c.give(bytes_([k, n], other)), *extra)]
    elif op == "DynamicQuantizeMatMul":
        c.outputs = [c.node(op, c.data([m, k], constant=False), c.give(bytes_([k, n], np.int8), True), scale(), zero(kind=np.int8), domain="com.microsoft")]
        c.tolerance = 1e-3
    elif op == "QLinearMatMul":
        c.outputs = [c.node(op, c.give(bytes_([m, k]), False), scale(), zero(), c.give(bytes_([k, n], other), True), scale(), zero(kind=other), c.give(np.array(0.3, np.float32), True), zero())]
    elif op == "QGemm":
        c.outputs = [c.node(op, c.give(bytes_([m, k]), False), scale(), zero(), c.give(bytes_([k, n], np.int8), True), scale(), zero(kind=np.int8),
                            c.give(c.rng.integers(-999, 999, n).astype(np.int32), True), c.give(np.array(0.3, np.float32), True), zero(), domain="com.microsoft")]
    elif op == "QLinearAdd":
        shape = c.shape()
        c.outputs = [c.node(op, c.give(bytes_(shape), False), scale(), zero(), c.give(bytes_(shape), False), scale(), zero(), scale(), zero(), domain="com.microsoft")]
    elif op == "MatMulNBits":
        bits, block, n = c.pick(4, 8), c.pick(16, 32, 64), c.int(1, 20)
        blocks = -(-k // block)
        names = [c.data([m, k], constant=False), c.give(c.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8), True), c.give(c.rng.uniform(-0.1, 0.1, n * blocks).astype(np.float32), True)]
        if c.coin():
            names.append(c.give(c.rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8), True))
        c.outputs, c.tolerance = [c.node(op, *names, K=k, N=n, bits=bits, block_size=block, domain="com.microsoft")], 1e-4
    else:
        groups, ch, spatial = c.pick(1, 1, 2), c.int(1, 4), c.pick(1, 2)
        kernel = [c.int(1, 3) for _ in range(spatial)]
        x = c.give(bytes_([1, groups * ch, *[c.int(kk, 8) for kk in kernel]]), False)
        w = c.give(bytes_([groups * c.int(1, 4), ch, *kernel], other), True)
        attributes = {"group": groups, "pads": [c.int(0, 1) for _ in kernel] * 2, "strides": [c.int(1, 2) for _ in kernel]}
        if op == "ConvInteger":
            c.outputs = [c.node(op, x, w, zero(), *([zero(kind=other)] if c.coin() else []), **attributes)]
        else:
            c.outputs = [c.node(op, x, scale(), zero(), w, scale(), zero(kind=other), c.give(np.array(0.3, np.float32), True), zero(), **attributes)]


def transforms(c):
    op = c.pick("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "Det", "Range", "ConstantOfShape")
    if op == "DFT":
        shape = c.shape(1, 3, 9) + [c.pick(1, 2)]
        axis = c.int(0, len(shape) - 2)
        inverse, one = (0, c.int(0, 1) if shape[-1] == 1 else 0) if c.coin() else (1 if shape[-1] == 2 else 0, 0)
        c.opset = 17
        c.outputs = [c.node(op, c.data(shape, constant=False), axis=axis, inverse=inverse, onesided=one)]
    elif op == "STFT":
        frame = c.int(2, 16)
        signal = c.data([c.int(1, 2), c.int(frame, 40), 1], constant=False)
        c.outputs = [c.node(op, signal, c.give(np.array(c.int(1, 6)), True), c.data([frame], constant=True), c.give(np.array(frame), True), onesided=c.int(0, 1))]
    elif op.endswith("Window"):
        c.outputs = [c.node("Add", c.node(op, c.give(np.array(c.int(2, 20)), True), periodic=c.int(0, 1)), c.data([1], constant=False))]
    elif op == "MelWeightMatrix":
        y = c.node(op, c.give(np.array(c.int(2, 8)), True), c.give(np.array(c.pick(16, 32, 64)), True), c.give(np.array(16000), True), *[c.give(np.array(v, np.float32), True) for v in (20.0, 7000.0)])
        c.outputs = [c.node("Add", y, c.data([1], constant=False))]
    elif op == "Det":
        n = c.int(1, 5)
        c.outputs = [c.node(op, c.data(c.shape(0, 2, 3) + [n, n], constant=False))]
        c.tolerance = 1e-3
    elif op == "Range":
        kind = c.pick(np.float32, np.int64, np.int32)
        y = c.node(op, *[c.give(np.array(v, kind), True) for v in (c.int(-5, 5), c.int(6, 20), c.int(1, 4))])
        c.outputs = [c.node("Add", y, c.data([1], kind, constant=False))]
    else:
        value = numpy_helper.from_array(c.values([1], c.pick(np.float32, np.int64)))
        y = c.node(op, c.ints(*c.shape(1, 3)), value=value)
        c.outputs = [c.node("Add", y, c.data([1], np.dtype(helper.tensor_dtype_to_np_dtype(value.data_type)).type, constant=False))]


def attention(c):
    b, h, s, t, d = c.int(1, 2), c.int(1, 4), c.int(1, 40) if c.coin(0.3) else c.int(1, 9), c.int(1, 40) if c.coin(0.3) else c.int(1, 9), c.pick(4, 8, 16, 20, 64)
    q, k, v = (c.data([b, h, n, d], constant=False) for n in (s, t, t))
    form = c.pick("plain", "masked", "causal", "grouped", "layers")
    if form == "grouped":
        group = c.int(1, 3)
        q = c.data([b, h * group, s, d], constant=False)
        spread = lambda x: c.node("Reshape", c.node("Expand", c.node("Unsqueeze", x, c.ints(2)), c.ints(b, h, group, t, d)), c.ints(b, h * group, t, d))
        k, v = spread(k), spread(v)
    if form == "layers":
        x = c.data([b, s, h * d], constant=False)
        heads = lambda: c.node("Transpose", c.node("Reshape", c.node("Add", c.node("MatMul", x, c.data([h * d, h * d], low=-0.3, high=0.3, constant=True)), c.data([h * d], constant=True)), c.ints(0, 0, h, d)), perm=[0, 2, 1, 3])
        q, k, v, t = heads(), heads(), heads(), s
    scores = c.node("MatMul", q, c.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = c.node(c.pick("Div", "Mul"), scores, c.give(np.array(c.pick(2.0, 0.5), np.float32), True))
    if form == "masked":
        scores = c.node("Add", scores, c.data([b, 1, 1, t], low=-5, high=0, constant=False))
    if form == "causal":
        scores = c.node("Where", c.give(np.tril(np.ones((s, t), np.bool_)), True), scores, c.give(np.array(-1e9, np.float32), True))
    y = c.node("MatMul", c.node("Softmax", scores, axis=-1), v)
    if c.coin():
        y = c.node("Reshape", c.node("Transpose", y, perm=[0, 2, 1, 3]), c.ints(0, 0, -1))
    c.outputs = [y]


def machines(c):
    op = c.pick("TreeEnsembleRegressor", "TreeEnsembleClassifier", "LinearRegressor", "LinearClassifier", "Scaler", "Normalizer", "Binarizer", "Imputer", "LabelEncoder", "ArrayFeatureExtractor", "SVMRegressor")
    rows, width = c.int(1, 9), c.int(1, 6)
    x, ml = c.data([rows, width], constant=False), {"domain": "ai.onnx.ml"}
    if op.startswith("Tree"):
        trees, columns = c.int(1, 5), {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
        leaves = []
        for tree in range(trees):
            depth = c.int(0, 3)
            inner = 2**depth - 1
            for n in range(2 * inner + 1):
                leaf = n >= inner
                row = (tree, n, 0 if leaf else c.int(0, width - 1), 0.0 if leaf else float(np.float32(c.rng.uniform(-1, 1))), "LEAF" if leaf else c.pick("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"),
                       0 if leaf else 2 * n + 1, 0 if leaf else 2 * n + 2)
                for key, value in zip(columns, row):
                    columns[key].append(value)
                if leaf:
                    leaves.append((tree, n))
        # Of two classes onnxruntime gives labels that are none of the model's.
        classes = c.int(3, 5) if op.endswith("Classifier") else c.int(1, 3)
        if op.endswith("Classifier"):
            ends = [(t, n, k) for t, n in leaves for k in range(classes)]
            prefix, extra = "class", {"classlabels_int64s": list(range(5, 5 + classes)), "post_transform": c.pick("NONE", "SOFTMAX", "LOGISTIC")}
        else:
            ends = [(t, n, c.int(0, classes - 1)) for t, n in leaves]
            prefix, extra = "target", {"n_targets": classes, "aggregate_function": c.pick("SUM", "AVERAGE")}
        weights = c.rng.uniform(0, 1, len(ends)).astype(np.float32).tolist()
        attributes = {f"nodes_{k}": v for k, v in columns.items()} | {f"{prefix}_treeids": [e[0] for e in ends], f"{prefix}_nodeids": [e[1] for e in ends],
                      f"{prefix}_ids": [e[2] for e in ends], f"{prefix}_weights": weights}
        made = c.node(op, x, outputs=2 if prefix == "class" else 1, **attributes, **extra, **ml)
        c.outputs = made if prefix == "class" else [made]
    elif op == "LinearRegressor":
        n = c.int(1, 3)
        c.outputs = [c.node(op, x, coefficients=c.values([n * width]).tolist(), intercepts=c.values([n]).tolist(), targets=n, **ml)]
    elif op == "LinearClassifier":
        n = c.int(2, 4)
        c.outputs = c.node(op, x, outputs=2, coefficients=c.values([n * width]).tolist(), intercepts=c.values([n]).tolist(), classlabels_ints=list(range(n)), post_transform=c.pick("NONE", "SOFTMAX", "LOGISTIC"), multi_class=0, **ml)
    elif op == "Scaler":
        c.outputs = [c.node(op, x, offset=c.values([width]).tolist(), scale=c.values([width]).tolist(), **ml)]
    elif op == "Normalizer":
        c.outputs = [c.node(op, x, norm=c.pick("L1", "L2", "MAX"), **ml)]
    elif op == "Binarizer":
        c.outputs = [c.node(op, x, threshold=0.3, **ml)]
    elif op == "Imputer":
        value = c.feeds[x]
        value[value > 1] = np.nan
        c.outputs = [c.node(op, x, imputed_value_floats=c.values([c.pick(1, width)]).tolist(), replaced_value_float=float("nan"), **ml)]
    elif op == "LabelEncoder":
        x = c.give(c.rng.integers(0, 6, c.shape(1, 2)).astype(np.int64), False)
        c.outputs = [c.node(op, x, keys_int64s=[0, 1, 2, 3], values_floats=c.values([4]).tolist(), default_float=-7.0, **ml)]
    elif op == "ArrayFeatureExtractor":
        c.outputs = [c.node(op, x, c.give(c.rng.integers(0, width, c.int(1, 5)).astype(np.int64), True), **ml)]
    else:
        n = c.int(1, 6)
        c.outputs = [c.node(op, x, coefficients=c.values([n]).tolist(), support_vectors=c.values([n * width]).tolist(), rho=[0.3], n_supports=n, kernel_type=c.pick("LINEAR", "RBF", "POLY", "SIGMOID"), kernel_params=[0.5, 0.1, 2.0], **ml)]


FAMILIES = {f.__name__: f for f in (unary, binary, cast, reduction, normalisation, convolution, pooling, product, layout, gathering, resizing, recurrent,
                                    quantised, transforms, attention, machines)}


def make(family, seed):
    case = Case([seed, list(FAMILIES).index(family)])
    FAMILIES[family](case)
    return case


def difference(got, want, tolerance):
    """What is wrong, if something is."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.size == 0 or not np.issubdtype(want.dtype, np.number):
        return None if np.array_equal(got, want) else "other values"
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.issubdtype(want.dtype, np.floating):
        # A quantised result may differ by one where a value lies between two.
        worst = np.abs(a - b).max()
        return None if worst <= (1 if tolerance == "one" and want.dtype.itemsize == 1 else 0) else f"differs by {worst}"
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    size = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
    limit = 1e-4 if tolerance == "one" else tolerance
    limit = max(limit, 4e-3) if want.dtype == np.float16 else limit
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(a - b) / size)
    worst = np.where(np.isnan(error), np.inf, error).max()
    return None if worst <= limit else f"differs by {worst:.2e} of the largest"


def judge(family, seed):
    """Nothing, or what is wrong with a random model; "refused" where onnxruntime does not run it."""
    case = make(family, seed)
    model = case.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        want = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, case.feeds)
    except Exception:
        return "refused"
    try:
        session = barewave.InferenceSession(model, device=f"emu:{TARGETS[seed % len(TARGETS)]}", strict=True, cache=False)
        got = session.run(None, case.feeds)
    except barewave.BarewaveError as e:
        return f"{case.nodes[-1].op_type}: {e}"
    for i, (g, w) in enumerate(zip(got, want)):
        wrong = difference(np.asarray(g), np.asarray(w), case.tolerance)
        if wrong:
            return f"{[n.op_type for n in case.nodes]}, output {i}: {wrong}"
    return None


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    wrong, refused = [], 0
    for seed in range(FIRST, FIRST + ITERATIONS):
        found = judge(family, seed)
        refused += found == "refused"
        if found and found != "refused":
            wrong.append(f"{family} {seed}: {found}")
    assert not wrong, f"{len(wrong)} of {ITERATIONS}:\n" + "\n".join(wrong[:20])
    assert refused * 4 < ITERATIONS, f"onnxruntime refuses {refused} of {ITERATIONS} models"


if __name__ == "__main__":
    case = make(sys.argv[1], int(sys.argv[2]))
    onnx.save(case.model(), "random.onnx")
    np.savez("random.npz", **case.feeds)
    print(judge(sys.argv[1], int(sys.argv[2])), TARGETS[int(sys.argv[2]) % len(TARGETS)])
