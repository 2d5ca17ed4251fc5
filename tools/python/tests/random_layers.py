"""Families of recurrent layers, quantised operators, ai.onnx.ml, losses, and what onnxruntime's optimiser and quantiser write."""

import numpy as np

from random_case import F32, I8, I32, I64, U8, family


# ---- recurrent ----


@family
def recurrent(c):
    op = c.pick("LSTM", "GRU", "RNN")
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = c.pick("forward", "reverse", "bidirectional")
    d = 2 if direction == "bidirectional" else 1
    s, b, i, h = c.between(1, 6), c.between(1, 4), c.between(1, 7), c.between(1, 9)
    w = lambda *shape: c.floats(*shape, low=-0.7, high=0.7, constant=True)
    inputs = [c.floats(s, b, i), w(d, gates * h, i), w(d, gates * h, h)]
    a = dict(hidden_size=h, direction=direction)
    inputs.append(w(d, 2 * gates * h) if c.coin() else "")
    inputs.append(c.give(c.array([b], I32, 1, s)) if c.coin() else "")
    inputs.append(c.floats(d, b, h) if c.coin() else "")
    if op == "LSTM":
        inputs.append(c.floats(d, b, h) if c.coin() else "")
        inputs.append(w(d, 3 * h) if c.coin() else "")
    if op == "GRU":
        a["linear_before_reset"] = c.between(0, 1)
    if c.coin():
        a["clip"] = 1.5
    if c.coin():
        kinds = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "LeakyRelu", "Elu", "Affine", "ScaledTanh", "ThresholdedRelu", "Softplus"]
        a["activations"] = [c.pick(*kinds) for _ in range({"LSTM": 3, "GRU": 2, "RNN": 1}[op] * d)]
        a["activation_alpha"] = [0.7 for k in a["activations"] if k in ("HardSigmoid", "LeakyRelu", "Elu", "Affine", "ScaledTanh", "ThresholdedRelu")]
        a["activation_beta"] = [0.3 for k in a["activations"] if k in ("HardSigmoid", "Affine", "ScaledTanh")]
    c.op(op, inputs, outputs=3 if op == "LSTM" else 2, **a)


# ---- quantised ----


@family
def quantised(c):
    op = c.pick("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
    c.opset = 21
    t = c.pick(U8, I8)
    zero = lambda t, *s: c.constant(c.array(s, t, 0 if t == U8 else -9, 20))
    scale = lambda *s: c.constant(c.array(s, F32, 0.01, 0.1))
    if op in ("QuantizeLinear", "DequantizeLinear"):
        x = c.shape(c.between(1, 4), 1, 6)
        axis = c.between(-len(x), len(x) - 1)
        t = c.pick(U8, I8, np.int16, np.uint16)
        form = c.between(0, 2)
        s = [[], [x[axis]], list(x)][form]
        block = None
        if form == 2:
            block = c.between(1, x[axis])
            s[axis] = -(-x[axis] // block)
        if op == "QuantizeLinear":
            return c.op(op, [c.floats(*x), scale(*s), zero(t, *s)], axis=axis, block_size=block)
        return c.op(op, [c.input(c.array(x, t, 0, 127)), scale(*s), zero(t, *s)], axis=axis, block_size=block)
    if op == "DynamicQuantizeLinear":
        return c.op(op, [c.floats(*c.shape(None, 1, 9))], outputs=3)
    u = c.pick(U8, I8)
    if op in ("MatMulInteger", "QLinearMatMul"):
        m, k, n = c.shape(3, 1, 12)
        batch = c.shape(c.between(0, 2), 1, 3)
        x, w = c.input(c.full(t, *batch, m, k)), c.give(c.full(u, k, n))
        per = c.coin()
        if op == "MatMulInteger":
            return c.op(op, [x, w, *c.pick([], [zero(t)], [zero(t), zero(u)], [zero(t), zero(u, n)])])
        return c.op(op, [x, scale(), zero(t), w, scale(n) if per else scale(), zero(u, n) if per else zero(u), c.constant(2.5, F32), zero(t)])
    g = c.between(1, 2)
    cin, cout, k = c.between(1, 4), c.between(1, 4), c.shape(2, 1, 3)
    x, w = c.input(c.full(t, c.between(1, 2), g * cin, *c.shape(2, 4, 8))), c.give(c.full(u, g * cout, cin, *k))
    a = dict(group=g, strides=c.shape(2, 1, 2), pads=c.shape(4, 0, 1))
    if op == "ConvInteger":
        return c.op(op, [x, w, *c.pick([], [zero(t)], [zero(t), zero(u)])], **a)
    per = c.coin()
    inputs = [x, scale(), zero(t), w, scale(g * cout) if per else scale(), zero(u) if not per else c.constant(np.zeros(g * cout, u)), c.constant(2.5, F32), zero(t)]
    c.op(op, inputs + ([c.constant(c.array([g * cout], I32, -50, 50))] if c.coin() else []), **a)


# ---- ai.onnx.ml, losses ----


@family
def losses(c):
    op = c.pick("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    n, k, rest = c.between(1, 4), c.between(2, 5), c.shape(c.between(0, 2), 1, 4)
    labels = c.array([n, *rest], I64, 0, k - 1)
    weights = [c.floats(k, low=0.5, high=2)] if c.coin() else []
    ignore = c.pick(None, 0, 1)
    inputs = [c.floats(n, k, *rest), c.input(labels), *weights]
    c.op(op, inputs, reduction=c.pick("none", "sum", "mean"), ignore_index=ignore)


@family
def machine_learning(c):
    c.domain = "ai.onnx.ml"
    op = c.pick("Scaler", "Normalizer", "Binarizer", "LinearRegressor", "LinearClassifier", "Imputer", "ArrayFeatureExtractor", "FeatureVectorizer",
                "OneHotEncoder", "LabelEncoder", "TreeEnsembleRegressor")
    n, k = c.between(1, 6), c.between(1, 6)
    x = lambda dtype=F32: c.input(c.array([n, k], dtype))
    some = lambda *s: c.array(s, F32).ravel().tolist()
    if op == "Scaler":
        return c.op(op, [x(c.pick(F32, I64, I32))], offset=some(c.pick(1, k)), scale=some(k))
    if op == "Normalizer":
        return c.op(op, [x()], norm=c.pick("MAX", "L1", "L2"))
    if op == "Binarizer":
        return c.op(op, [x()], threshold=0.4)
    if op == "LinearRegressor":
        t = c.between(1, 3)
        return c.op(op, [x()], targets=t, coefficients=some(t, k), intercepts=c.pick(None, some(t)))
    if op == "LinearClassifier":
        t = c.between(3, 4)
        return c.op(op, [x()], outputs=2, coefficients=some(t, k), intercepts=some(t), classlabels_ints=list(range(t)), post_transform=c.pick("NONE", "LOGISTIC", "SOFTMAX"))
    if op == "Imputer":
        value = c.array([n, k], F32)
        value.flat[0] = np.nan
        return c.op(op, [c.input(value)], imputed_value_floats=some(c.pick(1, k)), replaced_value_float=float("nan"))
    if op == "ArrayFeatureExtractor":
        return c.op(op, [x(c.pick(F32, I64)), c.input(c.array([c.between(1, 4)], I64, 0, k - 1))])
    if op == "FeatureVectorizer":
        return c.op(op, [x(), c.input(c.array([n, 2], F32))], inputdimensions=[k, 2])
    if op == "OneHotEncoder":
        return c.op(op, [c.input(c.array([n], I64, 0, 3))], cats_int64s=[0, 1, 2, 3][:c.between(1, 4)], zeros=1)
    if op == "LabelEncoder":
        return c.op(op, [c.input(c.array([n, k], I64, 0, 5))], keys_int64s=[0, 2, 3], values_floats=[0.5, 1.5, 2.5], default_float=-1.0)
    return tree(c, x(), k)


def tree(c, x, features):
    """Random trees of a few levels."""
    lists = {n: [] for n in ("treeids nodeids featureids modes values truenodeids falsenodeids hitrates missing_value_tracks_true".split())}
    leaves = {n: [] for n in "treeids nodeids ids weights".split()}
    targets = c.between(1, 3)

    def grow(t, level, count):
        own = count[0]
        count[0] += 1
        row = len(lists["nodeids"])
        leaf = level == 0 or (level < 3 and c.between(0, 3) == 0)
        for n, v in dict(treeids=t, nodeids=own, featureids=0 if leaf else c.between(0, features - 1), modes="LEAF" if leaf else "BRANCH_LEQ",
                         values=0.0 if leaf else float(c.array([], F32)), truenodeids=0, falsenodeids=0, hitrates=1.0, missing_value_tracks_true=c.between(0, 1)).items():
            lists[n].append(v)
        if leaf:
            for i in range(targets):
                for n, v in dict(treeids=t, nodeids=own, ids=i, weights=float(c.array([], F32))).items():
                    leaves[n].append(v)
        else:
            lists["truenodeids"][row] = grow(t, level - 1, count)
            lists["falsenodeids"][row] = grow(t, level - 1, count)
        return own

    for t in range(c.between(1, 4)):
        grow(t, c.between(1, 3), [0])
    a = {f"nodes_{n}": v for n, v in lists.items()} | {f"target_{n}": v for n, v in leaves.items()}
    c.op("TreeEnsembleRegressor", [x], n_targets=targets, aggregate_function=c.pick("SUM", "AVERAGE", "MIN", "MAX"),
         base_values=c.pick(None, [0.5] * targets), **a)


# ---- what onnxruntime's optimiser and quantiser write ----


@family
def contributed(c):
    c.domain = "com.microsoft"
    op = c.pick("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FusedMatMul", "FusedConv", "FusedGemm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
                "EmbedLayerNormalization", "SimplifiedLayerNormalization", "Trilu", "CDist", "ExpandDims", "GatherND",
                "Pad", "Range", "TransposeMatMul", "Unique")
    n, s, h = c.between(1, 3), c.between(1, 6), 4 * c.between(1, 5)
    x = lambda *shape: c.floats(*(shape or (n, s, h)))
    w = lambda *shape: c.floats(*shape, constant=c.coin())
    if op in ("Gelu", "QuickGelu"):
        return c.op(op, [x()], alpha=c.pick(1.702, 1.0) if op == "QuickGelu" else None)
    if op in ("FastGelu", "BiasGelu"):
        return c.op(op, [x()] + ([w(h)] if op == "BiasGelu" or c.coin() else []))
    if op in ("FusedMatMul", "TransposeMatMul"):
        m, k, p = c.shape(3, 1, 9)
        ta, tb = c.between(0, 1), c.between(0, 1)
        return c.op(op, [x(n, *([k, m] if ta else [m, k])), x(n, *([p, k] if tb else [k, p]))], transA=ta, transB=tb, alpha=0.5)
    act = c.pick(("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.1]), ("HardSigmoid", [0.2, 0.4]), ("Clip", [-0.5, 0.5]))
    if op == "FusedConv":
        inputs = [x(n, 3, 6, 7), w(4, 3, 3, 3), w(4)] + ([x(n, 4, 4, 5)] if c.coin() else [])
        return c.op(op, inputs, activation=act[0], activation_params=act[1])
    if op == "FusedGemm":
        return c.op(op, [x(n, h), w(h, s), w(s)], activation="LeakyRelu", activation_alpha=0.1)
    if op.startswith("Skip"):
        bias = [w(h)] if c.coin() else []
        return c.op(op, [x(), x(), w(h), *([w(h)] if op == "SkipLayerNormalization" else []), *bias], epsilon=1e-3)
    if op == "SimplifiedLayerNormalization":
        return c.op(op, [x(), w(h)], domain="", axis=-1, epsilon=1e-3)
    if op == "EmbedLayerNormalization":
        ids, segments = c.array([n, s], I32, 0, 8), c.array([n, s], I32, 0, 1)
        mask = [c.input(c.array([n, s], I32, 0, 1))] if c.coin() else []
        return c.op(op, [c.input(ids), c.pick("", c.input(segments)) if False else c.input(segments), w(9, h), w(7, h), w(2, h), w(h), w(h), *mask], outputs=2, epsilon=1e-3)
    if op == "Trilu":
        return c.op(op, [x()], upper=c.between(0, 1))
    if op == "CDist":
        return c.op(op, [x(n, h), x(s, h)], metric=c.pick("euclidean", "sqeuclidean"))
    if op == "ExpandDims":
        return c.op(op, [x(), c.constant(c.between(-1, 2), I32)])
    if op == "GatherND":
        return c.op(op, [x(), c.input(c.array([2, 1], I64, 0, n - 1))])
    if op == "Pad":
        return c.op(op, [x(), c.ints([1, 0, 2, 0, 1, 1])], mode="constant")
    if op == "Range":
        return c.op(op, [c.constant(0, I64), c.constant(7, I64), c.constant(2, I64)])
    if op == "Unique":
        return c.op(op, [c.input(c.array([h], F32).round())], outputs=3)
    c.op(op, [x()])


@family
def packed_products(c):
    c.domain = "com.microsoft"
    op = c.pick("MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu",
                "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearConcat", "QLinearSoftmax", "QLinearWhere", "DequantizeLinear", "QuantizeLinear",
                "QLinearConv", "QAttention", "QEmbedLayerNormalization")
    t = c.pick(U8, I8)
    zero = lambda t, *s: c.constant(c.array(s, t, 0 if t == U8 else -9, 20))
    scale = lambda *s: c.constant(c.array(s, F32, 0.01, 0.1))
    m, k, n = c.between(1, 5), c.between(1, 20), c.between(1, 9)
    if op == "MatMulNBits":
        bits, block = c.pick(4, 4, 8, 2), c.pick(16, 32, 64)
        k, n = c.between(1, 6) * c.pick(8, 16, block), c.between(1, 20)
        blocks, size = -(-k // block), block * bits // 8
        inputs = [c.floats(m, k), c.constant(c.full(U8, n, blocks, size)), c.constant(c.array([n * blocks], F32, 0.01, 0.1))]
        if c.coin():
            inputs.append(c.constant(c.full(U8, n * -(-blocks * bits // 8))))
        return c.op(op, inputs, K=k, N=n, bits=bits, block_size=block, accuracy_level=0)
    if op == "DynamicQuantizeMatMul":
        c.tolerance = 2e-3
        return c.op(op, [c.floats(m, k), c.constant(c.full(t, k, n)), scale(), zero(t), *([c.floats(n, constant=True)] if c.coin() else [])])
    if op == "MatMulIntegerToFloat":
        return c.op(op, [c.input(c.full(U8, m, k)), c.constant(c.full(t, k, n)), scale(), scale(*c.pick([], [n])), zero(U8), zero(t)])
    if op == "QGemm":
        return c.op(op, [c.input(c.full(U8, m, k)), scale(), zero(U8), c.constant(c.full(t, k, n)), scale(), zero(t), c.constant(c.array([n], I32, -90, 90)),
                         *([c.constant(2.0, F32), zero(U8)] if c.coin() else [])])
    if op in ("QLinearAdd", "QLinearMul"):
        return c.op(op, [c.input(c.full(t, m, k)), scale(), zero(t), c.give(c.full(t, *c.pick([m, k], [k], [1]))), scale(), zero(t), scale(), zero(t)])
    if op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        return c.op(op, [c.input(c.full(t, m, k)), scale(), zero(t), scale(), zero(t)], alpha=0.1 if op[7] == "L" else None)
    if op == "QLinearSoftmax":
        return c.op(op, [c.input(c.full(t, m, k + 1)), scale(), zero(t), c.constant(1 / 256, F32), c.constant(0, t)], opset=13, axis=-1)
    if op in ("QLinearAveragePool", "QLinearGlobalAveragePool"):
        inputs = [c.input(c.full(t, 1, n, 6, 7)), scale(), zero(t), scale(), zero(t)]
        return c.op(op, inputs, channels_last=0, **({} if "Global" in op else dict(kernel_shape=[2, 3], strides=[1, 2])))
    if op == "QLinearConcat":
        return c.op(op, [scale(), zero(t), c.input(c.full(t, m, k)), scale(), zero(t), c.input(c.full(t, n, k)), scale(), zero(t)], axis=0)
    if op == "QLinearWhere":
        return c.op(op, [c.input(c.array([m, k], np.bool_)), c.input(c.full(t, m, k)), scale(), zero(t), c.input(c.full(t, m, k)), scale(), zero(t), scale(), zero(t)])
    if op in ("DequantizeLinear", "QuantizeLinear"):
        t = c.pick(U8, I8, np.int16, np.uint16)
        return c.op(op, [c.floats(m, k) if op[0] == "Q" else c.input(c.array([m, k], t, 0, 99)), scale(), zero(t)])
    if op == "QLinearConv":
        return c.op(op, [c.input(c.full(U8, 1, 5, 6, 3)), scale(), zero(U8), c.constant(c.full(I8, 4, 3, 2, 2)), scale(), c.constant(0, I8), c.constant(2.0, F32), zero(U8)], channels_last=1)
    if op == "QAttention":
        c.tolerance = 2e-3
        heads, width = c.between(1, 2), 4
        h = heads * width
        return c.op(op, [c.input(c.full(U8, m, n, h)), c.constant(c.full(t, h, 3 * h)), c.floats(3 * h, constant=True), c.constant(0.01, F32), c.constant(0.01, F32), "",
                         c.constant(100, U8), c.constant(c.between(0, 9), t)], num_heads=heads)
    if op == "QEmbedLayerNormalization":
        h = 8
        q = lambda r: c.constant(c.full(U8, r, h) if r else c.full(U8, h))
        ids = [c.input(c.array([m, n], I32, 0, 8)), c.input(c.array([m, n], I32, 0, 1))]
        return c.op(op, [*ids, q(9), q(9), q(2), q(0), q(0), "", *(scale() for _ in range(5)), *(zero(U8) for _ in range(5))], outputs=2)
    c.op(op, [c.floats(1, 5, 6, 3), c.floats(4, 2, 2, 3, constant=True)], activation="Relu")


@family
def contributed_attention(c):
    c.domain = "com.microsoft"
    op = c.pick("Attention", "MultiHeadAttention", "GroupQueryAttention", "RotaryEmbedding")
    b, s, heads, d = c.between(1, 2), c.between(1, 6), c.between(1, 3), 2 * c.between(1, 5)
    h = heads * d
    x = lambda *shape: c.floats(*shape, low=-1, high=1)
    if op == "Attention":
        width = c.between(1, 9)
        mask = c.pick("", c.input(c.array([b], I32, 1, s)), c.input((c.array([b, s], I32, 0, 1) | (np.arange(s) == 0)).astype(I32)))
        return c.op(op, [x(b, s, width), x(width, 3 * h), x(3 * h), mask], num_heads=heads, unidirectional=c.between(0, 1))
    if op == "MultiHeadAttention":
        t = c.between(1, 7)
        inputs = [x(b, s, h), x(b, t, h), x(b, t, h), x(3 * h) if c.coin() else "", ""]
        inputs.append(x(c.pick(1, b), c.pick(1, heads), s, t) if c.coin() else "")
        return c.op(op, inputs, num_heads=heads, scale=c.pick(None, 0.3))
    if op == "RotaryEmbedding":
        flat = c.coin()
        ids = c.pick(c.array([1], I64, 0, 2), c.array([b, s], I64, 0, 8))
        return c.op(op, [x(b, s, h) if flat else x(b, heads, s, d), c.give(ids, False), x(9, d // 2), x(9, d // 2)], interleaved=c.between(0, 1))
    if op == "GroupQueryAttention":
        group = c.between(1, 2)
        past = c.between(0, 4) * c.between(0, 1)
        rotary = c.coin()
        d = 16 if rotary else 8 * c.between(1, 3)
        s = 1 if past else s
        lengths = np.full([b], past + s - 1, I32)
        inputs = [x(b, s, heads * group * d), x(b, s, heads * d), x(b, s, heads * d), *([x(b, heads, past, d) for _ in range(2)]),
                  c.input(lengths), c.input(np.array(past + s, I32))]
        if rotary:
            inputs += [x(16, d // 2), x(16, d // 2)]
        return c.op(op, inputs, outputs=3, num_heads=heads * group, kv_num_heads=heads, do_rotary=int(rotary), local_window_size=c.pick(None, 2, 4),
                    softcap=c.pick(None, 3.0), scale=c.pick(None, 0.4))
    c.op(op, [x(b, 1, h), x(b, 1, h), x(b, 1, h)], num_heads=heads)


@family
def contributed_decoding(c):
    """What stands around the layers of language models, and parts of images."""
    c.domain = "com.microsoft"
    op = c.pick("MRotaryEmbedding", "MoEGroupRouter", "NGramRepeatBlock", "DecoderMaskedMultiHeadAttention", "CropAndResize", "MatMulInteger16", "SampleOp")
    b, s, heads = c.between(1, 3), c.between(1, 6), c.between(1, 3)
    if op == "MRotaryEmbedding":
        interleaved = c.coin()
        sections = [c.between(1, 4) for _ in range(3)]
        if interleaved:
            sections = [max(sections), min(sections), min(sections)]
        half = sum(sections)
        d = 2 * half + c.pick(0, 2)
        partly = d > 2 * half
        flat = c.coin() or partly
        attributes = dict(num_heads=heads, rotary_embedding_dim=2 * half) if partly else dict(num_heads=heads if c.coin() else None)
        places = c.input(c.array([3, b, s], I64, 0, 8))
        x = c.floats(b, s, heads * d) if flat else c.floats(b, heads, s, d)
        return c.op(op, [x, places, c.floats(9, half, low=-1, high=1), c.floats(9, half, low=-1, high=1)], mrope_section=sections,
                    mrope_layout=int(interleaved), interleaved=c.between(0, 1), **attributes)
    if op == "MoEGroupRouter":
        groups, size = c.between(1, 4), c.between(1, 5)
        taken = c.between(1, groups)
        logits = c.floats(b, s, groups * size) if c.coin() else c.floats(s, groups * size)
        return c.op(op, [logits, c.floats(groups * size, low=-0.3, high=0.3)], top_k=c.between(1, taken * size), n_group=groups, topk_group=taken,
                    group_topk=c.between(1, size), router_sentinel=c.pick(None, -50.0))
    if op == "NGramRepeatBlock":
        size = c.between(1, 4)
        return c.op(op, [c.input(c.array([b, c.between(1, 12)], I64, 0, 2)), c.floats(b, 4)], ngram_size=size)
    if op == "DecoderMaskedMultiHeadAttention":
        d, past = 4 * c.between(1, 5), c.between(0, 6)
        h = heads * d
        x = lambda *shape: c.floats(*shape, low=-1, high=1)  # noqa: E731
        if c.coin():
            # keys and values of another sequence
            inputs = [x(b, 1, h), x(b, heads, s, d), x(b, heads, s, d)]
            inputs += [c.input((c.array([b, s], I32, 0, 1) | (np.arange(s) == 0)).astype(I32)) if c.coin() else ""]
            return c.op(op, inputs, num_heads=heads)
        room = past + c.between(1, 4)
        used = (np.arange(room) < past).astype(F32)[:, None]
        inputs = [x(b, 1, h), x(b, 1, h), x(b, 1, h)]
        inputs += [c.input((c.array([b, past + 1], I32, 0, 1) | (np.arange(past + 1) == 0)).astype(I32)) if c.coin() else "", ""]
        inputs += [c.input(c.array([b, heads, room, d], F32, -1, 1) * used) for _ in range(2)] + [c.input(np.array([past], I32))]
        inputs += ["", "", x(3 * h)] if c.coin() else []
        return c.op(op, inputs, outputs=3, num_heads=heads, past_present_share_buffer=1, scale=c.pick(None, 0.3))
    if op == "CropAndResize":
        n, rois = c.between(1, 3), c.between(1, 5)
        images = c.floats(n, c.between(1, 3), c.between(1, 7), c.between(1, 7))
        boxes = c.floats(rois, 4, low=-0.2, high=1.2) if c.coin() else c.input(c.array([rois, 4], F32, -1, 2).round().clip(0, 1))
        size = c.constant([c.between(1, 6), c.between(1, 6)], I32)
        return c.op(op, [images, boxes, c.input(c.array([rois], I32, 0, n - 1)), size], mode=c.pick("bilinear", "nearest"),
                    extrapolation_value=c.pick(None, 0.5))
    if op == "MatMulInteger16":
        m, k, n = c.shape(3, 1, 9)
        return c.op(op, [c.give(c.array([b, m, k], np.int16, -3000, 3000), False), c.give(c.array([k, n], np.int16, -3000, 3000))])
    c.op(op, [c.floats(*c.shape())])
