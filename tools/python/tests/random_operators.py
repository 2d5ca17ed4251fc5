"""Families of ONNX's own operators: element by element, products, windows, reductions, layout, sampling, signals."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from random_case import F16, F32, I8, I32, I64, U8, family


# ---- elementwise ----


@family
def unary(c):
    op = c.pick(*("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish LeakyRelu Log Mish Neg "
                  "Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Gelu IsInf IsNaN Not "
                  "BitwiseNot Identity Shrink".split()))
    c.opset = 20
    low, high = {"Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-0.9, 0.9), "Acosh": (1, 9), "Log": (0.1, 9), "Sqrt": (0, 9), "Tan": (-1, 1)}.get(op, (-5, 5))
    dtype = np.bool_ if op == "Not" else c.pick(U8, I8, I32, I64, np.uint16) if op == "BitwiseNot" else F32
    if op in ("Abs", "Neg", "Sign", "Identity", "Relu") and c.coin():
        dtype = c.pick(I8, I32, I64)
    x = c.array(c.shape(), dtype, low, high)
    if dtype == F32 and x.size and c.coin() and op in ("IsInf", "IsNaN", "Round", "Floor", "Ceil", "Abs", "Neg", "Relu", "Tanh", "Sigmoid", "Exp", "Erf"):
        x.flat[c.between(0, x.size - 1)] = c.pick(np.inf, -np.inf, np.nan, 0.5, -2.5, -0.0)
    a = {"Celu": dict(alpha=0.7), "Elu": dict(alpha=1.5), "HardSigmoid": dict(alpha=0.3, beta=0.4), "LeakyRelu": dict(alpha=0.2),
         "Selu": dict(alpha=1.2, gamma=0.9), "ThresholdedRelu": dict(alpha=0.8), "Gelu": dict(approximate=c.pick("none", "tanh")),
         "Shrink": dict(lambd=0.7, bias=0.3), "IsInf": dict(detect_negative=c.between(0, 1))}.get(op, {})
    c.op(op, [c.input(x)], **a)


def two(c):
    """Two shapes that broadcast."""
    a = c.shape()
    b = [d if c.coin() else 1 for d in a[c.between(0, len(a)):]] if a else c.shape()
    return (a, b) if c.coin() else (b, a)


@family
def binary(c):
    op = c.pick("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Mod", "Max", "Min", "BitShift", "Mean", "Sum")
    a, b = two(c)
    if op == "PRelu":
        a, b = c.shape(3), [c.pick(1, 5)]
        a[2] = 5
    dtype = {"PRelu": F32, "Mean": F32, "Sum": F32, "BitShift": c.pick(U8, np.uint32, np.uint64)}.get(op) or c.pick(F32, F32, I32, I64)
    low = 1 if op in ("Div", "Mod", "BitShift") or op == "Pow" else -5
    x, y = c.array(a, dtype, -5 if op in ("Div", "Mod") else low, 6), c.array(b, dtype, low, 4)
    if op == "Mod" and c.coin():
        y = -y
    attributes = {"Mod": dict(fmod=1 if dtype == F32 else c.between(0, 1)), "BitShift": dict(direction=c.pick("LEFT", "RIGHT"))}.get(op, {})
    if op == "BitShift":
        x, y = x.clip(0, 6), y.clip(0, 6)
    c.op(op, [c.give(x, False), c.give(y)], **attributes)


@family
def compare_and_select(c):
    a, b = two(c)
    op = c.pick("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "Where", "Clip", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
    c.opset = 18
    if op == "Where":
        s = c.shape()
        part = lambda: [d if c.coin() else 1 for d in s]
        dtype = c.pick(F32, I32, I64, U8)
        return c.op(op, [c.give(c.array(part(), np.bool_)), c.give(c.array(part(), dtype)), c.input(c.array(s, dtype))])
    if op == "Clip":
        dtype = c.pick(F32, I32, I64, I8, U8)
        low, high = c.give(np.array(-1 if dtype != U8 else 1, dtype)), c.give(np.array(2, dtype))
        return c.op(op, [c.input(c.array(a, dtype)), c.pick(low, ""), c.pick(high, "")])
    dtype = np.bool_ if op in ("And", "Or", "Xor") else c.pick(I32, I64, U8, I8) if op.startswith("Bitwise") else c.pick(F32, I32, I64)
    c.op(op, [c.input(c.array(a, dtype)), c.give(c.array(b, dtype))])


@family
def casts(c):
    kinds = [F32, F16, np.float64, I8, np.int16, I32, I64, U8, np.uint16, np.uint32, np.uint64, np.bool_]
    a, b = c.pick(*kinds), c.pick(*kinds)
    x = c.array(c.shape(), a, 0, 100)
    c.op("Cast", [c.input(x)], to=helper.np_dtype_to_tensor_dtype(np.dtype(b)))


# ---- products ----


@family
def convolutions(c):
    op = c.pick("Conv", "Conv", "ConvTranspose")
    n, group = c.between(1, 3), c.between(1, 3)
    cin, cout, k = c.between(1, 4), c.between(1, 5), c.shape(n, 1, 4)
    x = [c.between(1, 2), group * cin, *c.shape(n, 4, 9)]
    w = [group * cout, cin, *k] if op == "Conv" else [group * cin, cout, *k]
    a = dict(group=group, strides=c.shape(n, 1, 3), dilations=c.shape(n, 1, 2))
    how = c.between(0, 3)
    if how == 0:
        a["auto_pad"] = c.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        if op == "ConvTranspose" or a["auto_pad"] != "VALID":
            a["dilations"] = [1] * n
    elif how == 1:
        a["pads"] = c.shape(2 * n, 0, 2)
    if op == "ConvTranspose" and "auto_pad" in a:
        a["strides"] = [min(s, t) for s, t in zip(a["strides"], k)]
    elif op == "ConvTranspose" and c.coin():
        a["output_padding"] = [c.between(0, s - 1) for s in a["strides"]]
    inputs = [c.floats(*x), c.floats(*w, constant=c.coin())] + ([c.floats(group * cout, constant=c.coin())] if c.coin() else [])
    y = c.op(op, inputs, wanted=False, **a)
    c.op(c.pick("Relu", "Sigmoid", "Identity", "HardSwish", "Gelu"), [y])
    c.opset = 20


@family
def products(c):
    if c.coin():
        m, k, n = c.shape(3, 1, 20)
        ta, tb = c.between(0, 1), c.between(0, 1)
        bias = [c.floats(*c.pick([m, n], [n], [1, n], [m, 1], []), constant=c.coin())] if c.coin() else []
        x, w = c.floats(*([k, m] if ta else [m, k])), c.floats(*([n, k] if tb else [k, n]), constant=c.coin())
        return c.op("Gemm", [x, w, *bias], transA=ta, transB=tb, alpha=c.pick(1.0, 0.5), beta=c.pick(1.0, 2.0))
    m, k, n, p, q = c.shape(5, 1, 9)
    left = c.pick([k], [m, k], [q, m, k], [p, q, m, k], [p, 1, m, k])
    right = c.pick([k], [k, n], [q, k, n], [1, q, k, n])
    dtype = c.pick(F32, F32, F32, I32, np.float64)
    c.op("MatMul", [c.floats(*left, dtype=dtype), c.floats(*right, constant=c.coin(), dtype=dtype)])


@family
def einsums(c):
    equation = c.pick("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "i,j->ij", "bhid,bhjd->bhij", "...ij,...jk->...ik", "ij,ij->i", "ijk,kl->ijl",
                      "abc,cd,de->abe", "bij,kj->bki", "i,i", "ij,j")
    extents = {s: c.between(1, 5) for s in "abcdehijkl"}
    parts = equation.split("->")[0].split(",")
    if "..." in equation:
        batch = c.shape(c.between(0, 2))
        shapes = [[*batch, *(extents[s] for s in p.replace("...", ""))] for p in parts]
    else:
        shapes = [[extents[s] for s in p] for p in parts]
    c.op("Einsum", [c.floats(*s) for s in shapes], equation=equation)


@family
def attentions(c):
    c.opset = 23
    b, hk, g, s, t, d, v = c.between(1, 2), c.between(1, 3), c.between(1, 2), c.between(1, 6), c.between(1, 7), c.between(1, 9), c.between(1, 9)
    h = hk * g
    flat = c.coin()
    q = c.floats(*([b, s, h * d] if flat else [b, h, s, d]), low=-1, high=1)
    k = c.floats(*([b, t, hk * d] if flat else [b, hk, t, d]), low=-1, high=1)
    w = c.floats(*([b, t, hk * v] if flat else [b, hk, t, v]))
    a = dict(q_num_heads=h, kv_num_heads=hk) if flat else {}
    a |= c.pick({}, dict(is_causal=1), dict(scale=0.3), dict(softcap=2.0))
    # A single query after a cache is causal for onnxruntime in its own way.
    past = c.between(1, 4) if c.coin() and not (s == 1 and "is_causal" in a) else 0
    inputs = [q, k, w]
    mask = c.between(0, 2)
    if mask or past:
        m = c.array(c.pick([s, t + past], [b, 1, s, t + past]), F32)
        m = m > -2 if mask == 2 else m
        if mask == 2:
            m[..., 0] = True
        inputs.append(c.input(m) if mask else "")
    if past:
        inputs += [c.floats(b, hk, past, d), c.floats(b, hk, past, v)]
    c.op("Attention", inputs, outputs=3 if past else 1, **a)


# ---- windows and normalisation ----


@family
def pools(c):
    op = c.pick("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool", "MaxPool2", "LRN", "MaxUnpool")
    n = c.between(1, 3)
    x = [c.between(1, 2), c.between(1, 4), *c.shape(n, 4, 9)]
    if op.startswith("Global"):
        return c.op(op, [c.floats(*x)], p=c.between(1, 3) if "Lp" in op else None)
    if op == "LRN":
        return c.op(op, [c.floats(*x)], size=c.pick(1, 3, 5), alpha=0.4, beta=0.6, bias=1.5)
    k = c.shape(n, 1, 3)
    x[2:] = [max(d, 5) for d in x[2:]]
    if op == "MaxUnpool":
        y = c.op("MaxPool", [c.floats(*x)], outputs=2, kernel_shape=[2] * n, strides=[2] * n)
        return c.op(op, y, kernel_shape=[2] * n, strides=[2] * n)
    a = dict(kernel_shape=k, strides=c.shape(n, 1, 3), ceil_mode=c.between(0, 1), dilations=c.shape(n, 1, 2))
    c.opset = 22
    if op == "AveragePool":
        a["count_include_pad"] = c.between(0, 1)
    if op == "LpPool":
        a["p"] = c.between(1, 3)
    if c.coin():
        a["pads"] = [c.between(0, k[i % n] - 1) for i in range(2 * n)]
    elif c.coin():
        a["auto_pad"] = c.pick("SAME_UPPER", "SAME_LOWER", "VALID")
        a["dilations"] = [1] * n
        # Pads that would be negative: onnxruntime begins behind the first element.
        a["strides"] = [min(s, t) for s, t in zip(a["strides"], k)]
    c.op(op.removesuffix("2"), [c.floats(*x)], outputs=2 if op == "MaxPool2" else 1, **a)


@family
def normalisations(c):
    op = c.pick("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LpNormalization",
                "MeanVarianceNormalization", "RMSNormalization")
    x = c.shape(c.between(3, 4), 2, 8)
    w = lambda *s: c.floats(*s, low=0.5, high=2, constant=c.coin())
    if op == "BatchNormalization":
        return c.op(op, [c.floats(*x), *(w(x[1]) for _ in range(4))], epsilon=1e-3)
    if op == "InstanceNormalization":
        return c.op(op, [c.floats(*x), w(x[1]), w(x[1])], epsilon=1e-3)
    if op in ("LayerNormalization", "RMSNormalization"):
        c.opset = 23
        axis = c.between(0, len(x) - 1)
        inputs = [c.floats(*x), w(*x[axis:])] + ([w(*x[axis:])] if op[0] == "L" and c.coin() else [])
        return c.op(op, inputs, axis=c.pick(axis, axis - len(x)), epsilon=1e-3)
    if op == "GroupNormalization":
        c.opset = 21
        groups = c.between(1, 3)
        x[1] = groups * c.between(1, 3)
        return c.op(op, [c.floats(*x), w(x[1]), w(x[1])], num_groups=groups, epsilon=1e-3)
    if op == "LpNormalization":
        return c.op(op, [c.floats(*x)], axis=c.between(-len(x), len(x) - 1), p=c.between(1, 2))
    axes = sorted(c.rng.choice(len(x), c.between(1, len(x)), replace=False).tolist())
    c.op(op, [c.floats(*x)], axes=axes)


@family
def softmaxes(c):
    x = c.shape(c.between(1, 4), 1, 9)
    c.opset = c.pick(11, 13)
    c.op(c.pick("Softmax", "LogSoftmax", "Hardmax"), [c.floats(*x)], axis=c.between(-len(x), len(x) - 1))


@family
def reductions(c):
    op = c.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
    x = c.shape(None, 1, 6)
    dtype = c.pick(F32, F32, I32, I64) if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSumSquare") else F32
    c.opset = c.pick(13, 18)
    axes = c.rng.choice(len(x), c.between(0, len(x)), replace=False).tolist() if x else []
    axes = [a - len(x) if c.coin() else a for a in axes]
    low = 0.1 if op == "ReduceLogSum" else -2
    value = c.input(c.array(x, dtype, low, 2))
    keep = c.between(0, 1)
    if c.opset == 18 or op == "ReduceSum":
        empty = c.between(0, 1)
        return c.op(op, [value] + ([c.ints(axes)] if axes or c.coin() else []), keepdims=keep, noop_with_empty_axes=empty)
    c.op(op, [value], keepdims=keep, axes=axes or None)


@family
def searches(c):
    op = c.pick("ArgMax", "ArgMin", "TopK", "CumSum", "NonZero", "Unique", "Compress", "OneHot")
    x = c.shape(c.between(1, 4), 1, 7)
    axis = c.between(-len(x), len(x) - 1)
    dtype = c.pick(F32, F32, I32, I64)
    value = c.array(x, dtype, -3, 3)
    if c.coin():
        value = value.round()
    if op in ("ArgMax", "ArgMin"):
        return c.op(op, [c.input(value)], axis=axis, keepdims=c.between(0, 1), select_last_index=c.between(0, 1))
    if op == "TopK":
        k = c.between(1, x[axis])
        return c.op(op, [c.input(value), c.ints([k])], outputs=2, axis=axis, largest=c.between(0, 1), sorted=1)
    if op == "CumSum":
        return c.op(op, [c.input(value), c.constant(axis, I64)], exclusive=c.between(0, 1), reverse=c.between(0, 1))
    if op == "NonZero":
        return c.op(op, [c.input(value.round().clip(-1, 1))])
    if op == "Unique":
        return c.op(op, [c.input(value.round())], outputs=4, axis=c.pick(None, axis), sorted=1)
    if op == "Compress":
        flat = c.coin()
        n = value.size if flat else x[axis]
        return c.op(op, [c.input(value), c.give(c.array([c.between(1, n)], np.bool_))], axis=None if flat else axis)
    depth = c.between(1, 6)
    index = c.array(x[:3], I64, -depth, depth - 1)
    c.op(op, [c.input(index), c.constant(depth, I64), c.constant([0, 1], c.pick(F32, I64))], axis=c.between(-1, min(len(x), 3)))


# ---- layout ----


@family
def layouts(c):
    op = c.pick("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Concat", "Split", "Slice", "DepthToSpace", "SpaceToDepth",
                "Trilu", "EyeLike", "Shape", "Size", "ReverseSequence", "CenterCropPad")
    x = c.shape(c.between(1, 4), 1, 6)
    dtype = c.pick(F32, F32, I64, U8, F16, np.bool_)
    axis = c.between(-len(x), len(x) - 1)
    value = lambda s=None: c.input(c.array(x if s is None else s, dtype, 0, 9))
    c.opset = 18
    if op == "Transpose":
        return c.op(op, [value()], perm=c.rng.permutation(len(x)).tolist())
    if op == "Reshape":
        new = c.rng.permutation(x).tolist()
        if c.coin():
            new[c.between(0, len(new) - 1)] = -1
        return c.op(op, [value(), c.ints(new)])
    if op == "Squeeze":
        x[axis] = 1
        return c.op(op, [value()] + ([c.ints([axis])] if c.coin() else []))
    if op == "Unsqueeze":
        return c.op(op, [value(), c.ints([c.between(0, len(x)), -1] if c.coin() else [axis])])
    if op == "Flatten":
        return c.op(op, [value()], axis=c.between(-len(x), len(x)))
    if op == "Expand":
        return c.op(op, [value([1 if c.coin() else d for d in x]), c.ints(c.shape(c.between(0, 2), 1, 3) + x)])
    if op == "Tile":
        return c.op(op, [value(), c.ints(c.shape(len(x), 0 if c.coin() else 1, 3))])
    if op == "Concat":
        parts = []
        for _ in range(c.between(1, 5)):
            x[axis] = c.between(0, 4)
            parts.append(value())
        return c.op(op, parts, axis=axis)
    if op == "Split":
        if c.coin():
            parts = c.shape(c.between(1, 4), 0, 4)
            x[axis] = sum(parts)
            return c.op(op, [value(), c.ints(parts)], outputs=len(parts), axis=axis)
        n = c.between(1, x[axis])
        return c.op(op, [value()], outputs=n, axis=axis, num_outputs=n)
    if op == "Slice":
        axes = c.rng.choice(len(x), c.between(1, len(x)), replace=False).tolist()
        starts, ends, steps = ([c.between(-9, 9) for _ in axes] for _ in range(3))
        steps = [s or 1 for s in steps]
        ends = [c.pick(e, 2**31, np.iinfo(I64).max) if s > 0 else c.pick(e, -(2**31)) for e, s in zip(ends, steps)]
        return c.op(op, [value(), c.ints(starts), c.ints(ends), c.ints(axes), c.ints(steps)])
    if op in ("DepthToSpace", "SpaceToDepth"):
        b = c.between(1, 3)
        n, d, h, w = c.shape(4, 1, 4)
        s = [n, d * b * b, h, w] if op[0] == "D" else [n, d, h * b, w * b]
        return c.op(op, [c.floats(*s)], blocksize=b, mode=c.pick("DCR", "CRD") if op[0] == "D" else None)
    if op == "Trilu":
        x = c.shape(c.between(2, 4), 1, 6)
        return c.op(op, [value(x)] + ([c.constant(c.between(-7, 7), I64)] if c.coin() else []), upper=c.between(0, 1))
    if op == "EyeLike":
        return c.op(op, [c.floats(*c.shape(2))], k=c.between(-3, 3), dtype=c.pick(None, TensorProto.INT64))
    if op == "Shape":
        return c.op(op, [value()], start=c.between(-5, 5), end=c.pick(None, c.between(-5, 5)))
    if op == "Size":
        return c.op(op, [value()])
    if op == "ReverseSequence":
        x = c.shape(c.between(2, 4), 1, 6)
        time = c.between(0, 1)
        return c.op(op, [value(x), c.give(c.array([x[1 - time]], I64, 1, x[time]))], time_axis=time, batch_axis=1 - time)
    axes = c.rng.choice(len(x), c.between(1, len(x)), replace=False).tolist()
    c.op(op, [value(), c.ints(c.shape(len(axes), 1, 9))], axes=axes)


@family
def pads(c):
    x = c.shape(c.between(1, 4), 1, 6)
    mode = c.pick("constant", "reflect", "edge", "wrap")
    c.opset = 19
    most = {"constant": lambda n: 3, "edge": lambda n: 3, "reflect": lambda n: n - 1, "wrap": lambda n: n}[mode]
    axes = sorted(c.rng.choice(len(x), c.between(1, len(x)), replace=False).tolist())
    amounts = [c.between(-1 if x[a] > 2 and c.coin() else 0, most(x[a])) for a in axes * 2]
    dtype = c.pick(F32, F32, I64, U8, F16)
    inputs = [c.input(c.array(x, dtype, 0, 9)), c.ints(amounts)]
    inputs.append(c.give(np.array(5, dtype)) if mode == "constant" and c.coin() else "")
    c.op("Pad", inputs + [c.ints(axes)], mode=mode)


@family
def gathers(c):
    op = c.pick("Gather", "GatherElements", "GatherND")
    x = c.shape(c.between(1, 4), 1, 6)
    axis = c.between(-len(x), len(x) - 1)
    dtype, index = c.pick(F32, I64, U8, F16, np.bool_), c.pick(I32, I64)
    value = c.give(c.array(x, dtype, 0, 9))
    n = x[axis]
    if op == "Gather":
        return c.op(op, [value, c.give(c.array(c.shape(c.between(0, 2)), index, -n, n - 1), False)], axis=axis)
    if op == "GatherElements":
        s = [c.between(1, d) for d in x]
        s[axis] = c.between(1, 8)
        return c.op(op, [value, c.give(c.array(s, index, -n, n - 1), False)], axis=axis)
    batch = c.between(0, len(x) - 1)
    depth = c.between(1, len(x) - batch)
    s = x[:batch] + c.shape(c.between(0, 2))
    points = np.stack([c.array(s, I64, -x[batch + i], x[batch + i] - 1) for i in range(depth)], -1)
    c.op(op, [value, c.give(points, False)], batch_dims=batch)


@family
def scatters(c):
    c.opset = 18
    x = c.shape(c.between(1, 4), 1, 6)
    dtype = c.pick(F32, F32, I64, I32)
    value = c.give(c.array(x, dtype, -3, 3))
    reduction = c.pick("none", "add", "mul", "max", "min")
    if c.coin():
        axis = c.between(-len(x), len(x) - 1)
        s = [c.between(1, d) for d in x]
        index = c.rng.permuted(np.broadcast_to(np.arange(x[axis]).reshape([-1 if i == axis % len(x) else 1 for i in range(len(x))]), [*s[:axis % len(x)], x[axis], *s[axis % len(x) + 1:]]), axis=axis)
        index = np.take(index, np.arange(s[axis]), axis).astype(I64)
        if reduction != "none" and c.coin():
            index = c.array(s, I64, -x[axis], x[axis] - 1)
        return c.op("ScatterElements", [value, c.give(index, False), c.input(c.array(s, dtype))], axis=axis, reduction=reduction)
    depth = c.between(1, len(x))
    n = int(np.prod(x[:depth]))
    rows = c.rng.choice(n, c.between(1, n), replace=reduction != "none")
    points = np.stack(np.unravel_index(rows, x[:depth]), -1).astype(I64)
    c.op("ScatterND", [value, c.give(points, False), c.input(c.array([len(rows), *x[depth:]], dtype))], reduction=reduction)


# ---- sampling ----


@family
def resizes(c):
    c.opset = c.pick(11, 13, 18, 19)
    n = c.between(1, 2)
    mode = c.pick("nearest", "linear", "cubic") if n == 2 else c.pick("nearest", "linear")
    x = [c.between(1, 2), c.between(1, 3), *c.shape(n, 2, 7)]
    a = dict(mode=mode, coordinate_transformation_mode=c.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    if mode == "nearest":
        a["nearest_mode"] = c.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        a |= dict(cubic_coeff_a=c.pick(-0.5, -0.75), exclude_outside=c.between(0, 1))
    elif c.opset >= 18 and mode == "linear" and n == 2:
        a["antialias"] = c.between(0, 1)
    roi = c.constant([], F32) if c.opset < 13 else ""
    # By scales, aligned corners are not onnxruntime's: the definition divides by the extent before it is rounded.
    if c.coin() and a["coordinate_transformation_mode"] != "align_corners":
        return c.op("Resize", [c.floats(*x), roi, c.constant([1, 1, *(c.pick(0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 2.25) for _ in range(n))], F32)], **a)
    c.op("Resize", [c.floats(*x), roi, c.constant([], F32) if c.opset < 13 else "", c.ints([*x[:2], *c.shape(n, 1, 11)])], **a)


@family
def samplers(c):
    op = c.pick("GridSample", "RoiAlign", "AffineGrid", "Upsample", "Col2Im", "NonMaxSuppression", "MaxRoiPool")
    c.opset = {"GridSample": c.pick(16, 20), "AffineGrid": 20, "Upsample": 9, "Col2Im": 18}.get(op, 16)
    n, d, h, w = c.between(1, 2), c.between(1, 3), c.between(2, 6), c.between(2, 6)
    if op == "GridSample":
        mode = c.pick("bilinear", "nearest", "bicubic") if c.opset == 16 else c.pick("linear", "nearest", "cubic")
        grid = c.floats(n, *c.shape(2, 1, 5), 2, low=-1.3, high=1.3)
        return c.op(op, [c.floats(n, d, h, w), grid], mode=mode, padding_mode=c.pick("zeros", "border", "reflection"), align_corners=c.between(0, 1))
    if op in ("RoiAlign", "MaxRoiPool"):
        k = c.between(1, 4)
        low, high = c.array([k, 2], F32, 0, 5), c.array([k, 2], F32, 5, 12)
        boxes, size = np.concatenate([low, high], 1), c.shape(2, 1, 4)
        if op == "MaxRoiPool":
            rois = np.concatenate([c.array([k, 1], I64, 0, n - 1).astype(F32), boxes.round()], 1)
            return c.op(op, [c.floats(n, d, 8, 9), c.input(rois)], pooled_shape=size, spatial_scale=c.pick(1.0, 0.5))
        return c.op(op, [c.floats(n, d, 8, 9), c.input(boxes), c.give(c.array([k], I64, 0, n - 1), False)], output_height=size[0], output_width=size[1],
                    sampling_ratio=c.between(0, 3), mode=c.pick("avg", "max"), spatial_scale=c.pick(1.0, 0.5),
                    coordinate_transformation_mode=c.pick("half_pixel", "output_half_pixel"))
    if op == "AffineGrid":
        three = c.coin()
        return c.op(op, [c.floats(n, 3 if three else 2, 4 if three else 3), c.ints([n, d, h, w] + ([4] if three else []))], align_corners=c.between(0, 1))
    if op == "Upsample":
        return c.op(op, [c.floats(n, d, h, w), c.constant([1, 1, c.pick(1.0, 2.0, 3.0), c.pick(1.0, 1.5, 2.0)], F32)], mode=c.pick("nearest", "linear"))
    if op == "Col2Im":
        image, block = c.shape(2, 4, 7), c.shape(2, 1, 3)
        strides, dilations, pads = c.shape(2, 1, 2), c.shape(2, 1, 2), c.shape(4, 0, 1)
        blocks = [(image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
        if min(blocks) < 1:
            blocks = [1, 1]
        return c.op(op, [c.floats(n, d * block[0] * block[1], blocks[0] * blocks[1]), c.ints(image), c.ints(block)], strides=strides, dilations=dilations, pads=pads)
    count, classes = c.between(1, 12), c.between(1, 3)
    centre = c.coin()
    a, b = c.array([n, count, 2], F32, 0, 5), c.array([n, count, 2], F32, 1, 4)
    boxes = np.concatenate([a, b if centre else a + b], -1)
    scores = c.array([n, classes, count], F32, 0, 1)
    c.op(op, [c.input(boxes), c.input(scores), c.constant([c.between(0, 5)], I64), c.constant([0.4], F32), c.constant([0.3], F32)], center_point_box=int(centre))


@family
def signals(c):
    op = c.pick("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix", "Det", "Range", "ConstantOfShape")
    c.opset = c.pick(17, 20) if op == "DFT" else 17
    if op == "DFT":
        inverse, complex_ = c.between(0, 1), c.between(1, 2)
        onesided = 0 if inverse or complex_ == 2 else c.between(0, 1)
        x = [c.between(1, 3), *c.shape(c.between(1, 2), 2, 9), complex_]
        axis = c.between(1, len(x) - 2)
        length = c.constant(c.between(1, 11), I64) if c.coin() else ""
        if c.opset == 20:
            return c.op(op, [c.floats(*x), length, c.constant(axis, I64)], inverse=inverse, onesided=onesided)
        return c.op(op, [c.floats(*x), length], inverse=inverse, onesided=onesided, axis=axis)
    if op == "STFT":
        frame = c.between(2, 16)
        window = c.pick("", c.floats(frame, constant=True))
        return c.op(op, [c.floats(c.between(1, 2), c.between(frame, 40), 1), c.constant(c.between(1, 8), I64), window, c.constant(frame, I64)], onesided=1)
    if op.endswith("Window"):
        return c.op(op, [c.constant(c.between(2, 20), I64)], periodic=c.between(0, 1))
    if op == "MelWeightMatrix":
        return c.op(op, [c.constant(c.between(1, 8), I64), c.constant(c.between(16, 64), I64), c.constant(8000, I64), c.constant(0.0, F32), c.constant(4000.0, F32)])
    if op == "Det":
        d = c.between(1, 5)
        return c.op(op, [c.floats(*c.shape(c.between(0, 2), 1, 3), d, d)])
    if op == "Range":
        dtype = c.pick(F32, I32, I64)
        return c.op(op, [c.constant(c.between(-5, 5), dtype), c.constant(c.between(-9, 9), dtype), c.constant(c.pick(1, 2, -1, -3), dtype)])
    c.op(op, [c.ints(c.shape(None, 0, 4))], value=c.pick(None, numpy_helper.from_array(np.array([3], c.pick(F32, I64, U8)))))
