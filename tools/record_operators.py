#!/usr/bin/env python3
"""Records what onnxruntime computes for small models of operators that ONNX's own tests do not have.

Usage: record_operators.py FOLDER

Each case becomes FOLDER/<name>/model.onnx with inputs and outputs as test_data_set_0/*.pb, as ONNX's tests are laid out.
Needs numpy, onnx and onnxruntime.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOM = np.random.default_rng(7)


def floats(*shape, low=-1.0, high=1.0):
    return ROOM.uniform(low, high, shape).astype(np.float32)


def record(folder, name, nodes, inputs, outputs, weights=None, opset=21, tolerance=None):
    """Runs a model and writes it; `outputs` has names and types. The tolerance is of the largest element, 1e-4 by default."""

    def info(key, a):
        return helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)

    graph = helper.make_graph(
        nodes,
        name,
        [info(k, a) for k, a in inputs.items()],
        [helper.make_tensor_value_info(o, t, None) for o, t in outputs.items()],
        [numpy_helper.from_array(a, k) for k, a in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    if tolerance is not None:
        helper.set_model_props(model, {"tolerance": str(tolerance)})
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(list(outputs), inputs)
    case = pathlib.Path(folder) / name / "test_data_set_0"
    case.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(case.parent / "model.onnx"))
    for kind, arrays in (("input", inputs.items()), ("output", zip(outputs, results))):
        for i, (key, a) in enumerate(arrays):
            (case / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(a), key).SerializeToString())


F, I64, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def caches(places, half):
    angle = np.arange(places)[:, None] * (1.0 / 10000.0 ** (np.arange(half) / half))[None]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def group_query(folder):
    heads, shared, size = 4, 2, 16
    cos, sin = caches(32, size // 2)
    cases = [
        # name, new, past, room of the past, attributes, packed
        ("prefill", 5, 0, 0, {"do_rotary": 1}, False),
        ("decode", 1, 6, 6, {"do_rotary": 1}, False),
        ("packed", 3, 0, 0, {"do_rotary": 1, "rotary_interleaved": 1}, True),
        ("window", 1, 9, 9, {"local_window_size": 4, "softcap": 5.0}, False),
        ("shared", 1, 4, 8, {"do_rotary": 1, "scale": 0.3}, False),
        ("smooth", 3, 0, 0, {"smooth_softmax": 1}, False),
        ("sinks", 3, 0, 0, {"do_rotary": 1, "local_window_size": 2}, False),
        ("sinks_decode", 1, 6, 6, {}, True),
        ("sinks_capped", 3, 0, 0, {"softcap": 0.5}, False),
        ("smooth_capped", 1, 6, 6, {"softcap": 0.5, "smooth_softmax": 1}, False),
    ]
    for name, new, past, room, attributes, packed in cases:
        batch = 1 if name == "shared" else 2
        q = floats(batch, new, (heads + 2 * shared if packed else heads) * size)
        inputs = {"query": q}
        if not packed:
            inputs |= {"key": floats(batch, new, shared * size), "value": floats(batch, new, shared * size)}
        # What lies behind the used part of a cache is anybody's: here, and then in onnxruntime's result, zeros.
        used = (np.arange(room) < past).astype(np.float32)[:, None]
        inputs |= {n: floats(batch, shared, room, size) * used for n in ("past_key", "past_value")}
        inputs |= {
            "seqlens_k": np.full([batch], past + new - 1, np.int32),
            "total": np.array([past + new], np.int32),
        }
        names = ["query", "" if packed else "key", "" if packed else "value", "past_key", "past_value", "seqlens_k", "total"]
        weights = {}
        if attributes.get("do_rotary"):
            names += ["cos", "sin"]
            weights = {"cos": cos, "sin": sin}
        if "sinks" in name:
            names += [""] * (11 - len(names)) + ["sinks"]
            weights["sinks"] = floats(heads)
        node = helper.make_node(
            "GroupQueryAttention", names, ["y", "present_key", "present_value"], "attention", domain="com.microsoft",
            num_heads=heads, kv_num_heads=shared, **attributes,
        )
        outputs = {"y": F, "present_key": F, "present_value": F}
        record(folder, f"group_query_{name}", [node], inputs, outputs, weights)


def rotary(folder):
    cos, sin = caches(20, 4)
    for name, shape, attributes in [("flat", (2, 5, 24), {}), ("heads", (2, 3, 5, 8), {"interleaved": 1})]:
        places = np.stack([np.arange(5), np.arange(5) + 7]).astype(np.int64)
        node = helper.make_node(
            "RotaryEmbedding", ["x", "places", "cos", "sin"], ["y"], "rotary", domain="com.microsoft", **attributes
        )
        record(folder, f"rotary_{name}", [node], {"x": floats(*shape), "places": places}, {"y": F}, {"cos": cos, "sin": sin})


def attention(folder):
    batch, length, hidden, heads = 2, 6, 32, 4
    weights = {"w": floats(hidden, 3 * hidden, low=-0.3, high=0.3), "b": floats(3 * hidden)}
    flags = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    cases = [
        ("plain", {}, {}, False),
        ("causal", {"unidirectional": 1}, {}, False),
        ("lengths", {}, {"mask": np.array([4, 6], np.int32)}, False),
        ("starts", {}, {"mask": np.array([4, 6, 1, 3], np.int32)}, False),
        ("flags", {}, {"mask": flags}, False),
        ("past", {"unidirectional": 1}, {}, True),
    ]
    for name, attributes, extra, past in cases:
        inputs = {"x": floats(batch, length, hidden)} | extra
        names = ["x", "w", "b", "mask" if extra else ""]
        outputs = ["y"]
        if past:
            inputs["past"] = floats(2, batch, heads, 3, hidden // heads)
            names.append("past")
            outputs.append("present")
        node = helper.make_node(
            "Attention", names, outputs, "attention", domain="com.microsoft", num_heads=heads, **attributes
        )
        record(folder, f"attention_{name}", [node], inputs, {o: F for o in outputs}, weights)
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "b", "mask"], ["y"], "attention", domain="com.microsoft", num_heads=heads
    )
    inputs = {n: floats(batch, length, hidden) for n in "qkv"} | {"mask": flags}
    record(folder, "multi_head_flags", [node], inputs, {"y": F}, {"b": weights["b"]})
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", "b"], ["y"], "attention", domain="com.microsoft", num_heads=heads
    )
    inputs = {"q": floats(batch, length, hidden), "k": floats(batch, 4, hidden), "v": floats(batch, 4, 2 * hidden)}
    record(folder, "multi_head_wide_values", [node], inputs, {"y": F}, {"b": floats(4 * hidden)})


def sequences(folder):
    """Parts of a tensor, changed in a loop that collects them."""
    body = helper.make_graph(
        [
            helper.make_node("SequenceAt", ["parts", "i"], ["part"]),
            helper.make_node("Exp", ["part"], ["changed"]),
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("SequenceInsert", ["list", "changed", "front"], ["longer"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", I64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("list", F, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("longer", F, None),
        ],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x", "each"], ["parts"], axis=1),
        helper.make_node("SequenceLength", ["parts"], ["n"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["n", "", "none"], ["all"], body=body),
        helper.make_node("SequenceErase", ["all", "front"], ["fewer"]),
        helper.make_node("ConcatFromSequence", ["fewer"], ["y"], axis=1),
        helper.make_node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        helper.make_node("ConcatFromSequence", ["rows"], ["z"], axis=-1, new_axis=1),
        helper.make_node("SequenceAt", ["parts", "last"], ["w"]),
    ]
    weights = {"each": np.array(3, np.int64), "front": np.array(0, np.int64), "last": np.array(-1, np.int64)}
    record(folder, "sequences", nodes, {"x": floats(4, 8)}, {"y": F, "z": F, "w": F}, weights)


def machines(folder):
    """Support vector regression and outlier detection."""
    x = floats(9, 5)
    for kind, parameters in [("LINEAR", [0, 0, 0]), ("RBF", [0.7, 0, 0]), ("POLY", [0.5, 0.3, 3]), ("SIGMOID", [0.4, 0.1, 0])]:
        for one_class in (0, 1):
            node = helper.make_node(
                "SVMRegressor", ["x"], ["y"], "machine", domain="ai.onnx.ml", kernel_type=kind,
                kernel_params=[float(p) for p in parameters], n_supports=6, support_vectors=floats(30).tolist(),
                coefficients=floats(6).tolist(), rho=[0.05], one_class=one_class,
            )
            record(folder, f"machine_{kind.lower()}_{one_class}", [node], {"x": x}, {"y": F})


def quantized_lstm(folder):
    """Weights in bytes, with a scale for each column; onnxruntime quantises data too, which we do not."""
    count, width, hidden = 2, 10, 8

    def bytes_of(*shape):
        w = floats(*shape)
        scale = np.abs(w).max(axis=1) / 127
        return np.round(w / scale[:, None, :]).astype(np.int8), scale.astype(np.float32), np.zeros_like(scale, np.int8)

    w, r = bytes_of(count, width, 4 * hidden), bytes_of(count, hidden, 4 * hidden)
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "h", "c"], "lstm", domain="com.microsoft", direction="bidirectional",
        hidden_size=hidden,
    )
    weights = dict(zip(("w", "ws", "wz"), w)) | dict(zip(("r", "rs", "rz"), r)) | {"b": floats(count, 8 * hidden)}
    outputs = {"y": F, "h": F, "c": F}
    record(folder, "quantized_lstm", [node], {"x": floats(5, 3, width)}, outputs, weights, tolerance=0.005)


def resizing(folder):
    for mode, shape in [("linear", (1, 2, 9, 5)), ("cubic", (1, 2, 7, 11))]:
        node = helper.make_node(
            "Resize", ["x", "", "", "sizes"], ["y"], mode=mode, antialias=1, exclude_outside=1, cubic_coeff_a=-0.5
        )
        weights = {"sizes": np.array(shape, np.int64)}
        record(folder, f"resize_antialias_{mode}", [node], {"x": floats(1, 2, 24, 17)}, {"y": F}, weights)
    scales = {"scales": np.array([1, 1, 1.7, 0.6], np.float32)}
    record(folder, "resize_10", [helper.make_node("Resize", ["x", "scales"], ["y"])], {"x": floats(1, 1, 4, 6)}, {"y": F}, scales, 10)


def classifiers(folder):
    """Support vector classification: by votes, with probabilities, linear, of labels of both types."""
    numbers, texts = [4, -2, 7, 11], ["cat", "größer", "", "dog"]
    for name, classes, probable, after in [
        ("votes", 3, False, "NONE"), ("two", 2, False, "LOGISTIC"), ("probable", 4, True, "NONE"), ("linear", 4, False, "SOFTMAX"),
    ]:
        pairs, each, width = classes * (classes - 1) // 2, 3, 5
        count = 0 if name == "linear" else classes * each
        coefficients = floats(classes * width) if name == "linear" else floats(count * (classes - 1))
        vectors = {} if name == "linear" else {"support_vectors": floats(count * width).tolist(), "vectors_per_class": [each] * classes}
        chances = {"prob_a": floats(pairs).tolist(), "prob_b": floats(pairs).tolist()} if probable else {}
        labels = {"classlabels_strings": texts[:classes]} if classes == 4 else {"classlabels_ints": numbers[:classes]}
        node = helper.make_node(
            "SVMClassifier", ["x"], ["label", "scores"], "machine", domain="ai.onnx.ml", kernel_type="LINEAR" if count == 0 else "RBF",
            kernel_params=[0.7, 0.0, 3.0], coefficients=coefficients.tolist(), rho=floats(max(pairs, 1)).tolist(), post_transform=after,
            **vectors, **chances, **labels,
        )
        outputs = {"label": S if classes == 4 else I64, "scores": F}
        record(folder, f"classifier_{name}", [node], {"x": floats(9, width)}, outputs)


def tokens(folder):
    """Texts cut into tokens, which are counted."""
    lines = np.array(["a cat, a dog", "", "größer, größer cat!", "dog"], object)
    for name, how in [("words", {"tokenexp": "[a-z]+"}), ("separated", {"separators": [" ", "[,!]"]}), ("letters", {"separators": [""]})]:
        node = helper.make_node(
            "Tokenizer", ["x"], ["t"], "tokens", domain="com.microsoft", mark=1, mincharnum=1, pad_value="#", **how
        )
        pool = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 3],
                "ngram_indexes": [0, 1, 2, 3], "pool_strings": ["a", "cat", "größer", "a", "dog"]}
        count = helper.make_node("TfIdfVectorizer", ["t"], ["y"], "count", **pool)
        record(folder, f"tokens_{name}", [node, count], {"x": lines}, {"t": S, "y": F})


def contributed(folder):
    """Operators of com.microsoft that are made of others; of channels-last ones only those that the CPU has."""

    def b(*shape):
        return ROOM.integers(0, 256, shape).astype(np.uint8)

    def number(x, kind):
        return np.array(x, kind)

    u8, i8, f4 = np.uint8, np.int8, np.float32
    U = TensorProto.UINT8
    x, signed = floats(2, 5, 16), ROOM.integers(-127, 128, (16, 48)).astype(i8)
    ids, kinds = ROOM.integers(0, 30, (2, 5)).astype(np.int32), ROOM.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = [b(30, 16), b(8, 16), b(2, 16), b(16), b(16)]
    scales, zeros = [number(0.02 + 0.005 * i, f4) for i in range(5)], [number(100 + i, u8) for i in range(5)]
    cos, sin = caches(20, 2)
    attention = [signed, floats(48), number(0.02, f4), number(0.02, f4), None, number(3, u8), number(0, i8)]
    convolution = [number(0.05, f4), number(100, u8), b(4, 3, 3, 3), number(0.04, f4), number(90, u8), number(2.5, f4), number(100, u8)]
    bias = ROOM.integers(-99, 99, 4).astype(np.int32)
    cases = [
        # name, operator, inputs, constants behind them, outputs, attributes
        ("quantized_attention", "QAttention", [b(2, 5, 16)], attention, {"y": F}, {"num_heads": 4}),
        ("quantized_embedding", "QEmbedLayerNormalization", [ids, kinds], tables + [mask] + scales + zeros, {"y": F}, {}),
        ("channels_last_pool", "NhwcMaxPool", [b(1, 8, 8, 3)], [], {"y": U}, {"kernel_shape": [2, 3], "strides": [2, 1]}),
        ("channels_last_conv", "QLinearConv", [b(1, 8, 9, 3)], convolution + [bias], {"y": U}, {"channels_last": 1, "pads": [1] * 4}),
        ("fused_batch_first", "FusedMatMul", [floats(5, 2, 3), floats(4, 2, 5)], [], {"y": F}, {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1, "alpha": 0.5}),
        ("fused_row", "FusedMatMul", [floats(4), floats(2, 3, 4)], [], {"y": F}, {"transA": 1, "transB": 1, "alpha": 0.5}),
        ("fused_column", "FusedMatMul", [floats(2, 3, 4), floats(4)], [], {"y": F}, {"transB": 1}),
        ("fused_vectors", "FusedMatMul", [floats(4), floats(4)], [], {"y": F}, {"alpha": 3.0}),
        ("rotary_offset", "RotaryEmbedding", [floats(2, 5, 16), np.array([2])], [cos, sin], {"y": F}, {"interleaved": 1, "num_heads": 4}),
        ("unique_in_order", "Unique", [np.array([3, 1, 3, -2, 1, 0], f4)], [], {"y": F, "of": I64, "count": I64}, {}),
        ("distances", "CDist", [floats(5, 3), floats(4, 3)], [], {"y": F}, {"metric": "euclidean"}),
        ("distances_squared", "CDist", [floats(5, 3), floats(4, 3)], [], {"y": F}, {}),
        ("skip_small", "SkipLayerNormalization", [floats(2, 8) * f4(1e-3), floats(2, 8) * f4(1e-3)], [floats(8)], {"y": F}, {}),
        ("skip_small_rms", "SkipSimplifiedLayerNormalization", [floats(2, 8) * f4(1e-3), floats(2, 8) * f4(1e-3)], [floats(8)], {"y": F}, {}),
        ("range_of_ones", "Range", [], [np.array(0.5, f4), np.array(4, f4)], {"y": F}, {}),
        ("gather_nd", "GatherND", [floats(3, 4), np.array([[0], [2]])], [], {"y": F}, {}),
    ]
    for name, op, given, constants, outputs, attributes in cases:
        inputs = {f"x{i}": a for i, a in enumerate(given)}
        weights = {f"w{i}": a for i, a in enumerate(constants) if a is not None}
        names = [*inputs, *(f"w{i}" if a is not None else "" for i, a in enumerate(constants))]
        made = [*outputs, "mask_index"] if op == "QEmbedLayerNormalization" else list(outputs)
        record(folder, name, [helper.make_node(op, names, made, name, domain="com.microsoft", **attributes)], inputs, outputs, weights)


def experts(folder):
    """Mixtures of experts; onnxruntime's CPU has all but SwiGLU whose halves lie behind each other."""
    width, inner, number = 16, 12, 4
    sizes = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.8}
    cases = [
        ("experts_relu", inner, {"k": 1}),
        ("experts_gelu", inner, {"k": 2, "activation_type": "gelu", "normalize_routing_weights": 1}),
        ("experts_silu", inner, {"k": 3, "activation_type": "silu"}),
        ("experts_swiglu", 2 * inner, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1, **sizes}),
    ]
    for name, rows, attributes in cases:
        inputs = {"x": floats(2, 3, width), "scores": floats(6, number, low=-3, high=3)}
        weights = {"up": floats(number, rows, width), "up_bias": floats(number, rows), "down": floats(number, width, inner), "down_bias": floats(number, width)}
        node = helper.make_node("MoE", [*inputs, *weights], ["y"], name, domain="com.microsoft", **attributes)
        record(folder, name, [node], inputs, {"y": F}, weights)


def numbered_experts(folder):
    """Mixtures of experts whose weights are numbers of 2, 4 or 8 bits, by rows and by blocks."""
    width, inner, number = 32, 48, 4
    sizes = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.8}
    swiglu = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1, **sizes}
    cases = [
        # name, bits, block, zero points, weights of their own, attributes
        ("experts_4", 4, 0, False, False, {"k": 2, "activation_type": "silu"}),
        ("experts_4_blocks", 4, 16, True, False, swiglu),
        ("experts_8", 8, 0, True, False, swiglu),
        ("experts_2", 2, 16, False, False, {"k": 1, "activation_type": "relu"}),
        ("experts_counted", 4, 0, True, True, {"k": 2, "activation_type": "gelu", "normalize_routing_weights": 1}),
    ]
    for name, bits, block, around, counted, attributes in cases:
        gated = attributes["activation_type"] == "swiglu"
        inputs = {"x": floats(2, 4, width), "scores": floats(8, number, low=-3, high=3)}
        if counted:
            inputs["counts"] = floats(8, number, low=0.1)
        weights = {}

        def layer(key, to, depth):
            blocks = (depth // block,) if block else ()
            weights[key] = ROOM.integers(0, 256, (number, to, depth * bits // 8)).astype(np.uint8)
            weights[key + "_scales"] = floats(number, to, *blocks, low=0.01, high=0.1) * (4 / 2**bits)
            weights[key + "_bias"] = floats(number, to)
            rows = (number, to, -(-blocks[0] * bits // 8)) if block else (number, -(-to * bits // 8))
            if around:
                weights[key + "_zeros"] = ROOM.integers(0, 256, rows).astype(np.uint8)

        layer("up", inner * (2 if gated else 1), width)
        layer("down", width, inner)
        names = [*("x", "scores"), *(k + e for k in ("up", "down") for e in ("", "_scales", "_bias"))]
        if around or counted:
            names += ["", "", "", *(k + "_zeros" if around else "" for k in ("up", "down"))]
        if counted:
            names += ["", "counts"]
        attributes = {"expert_weight_bits": bits, "quant_type": "int", **({"block_size": block} if block else {}), **attributes}
        node = helper.make_node("QMoE", names, ["y"], name, domain="com.microsoft", **attributes)
        record(folder, name, [node], inputs, {"y": F}, weights)


def further_attention(folder):
    """Lengths of sequences beside keys of the past, keys and values with their heads apart, a bias of fewer keys than a cache has."""
    batch, new, past, heads, size = 2, 3, 4, 2, 4
    width = heads * size
    lengths = {"x": floats(batch, new, width), "lengths": np.array([past + new, 5], np.int32), "past": floats(2, batch, heads, past, size)}
    node = helper.make_node("Attention", ["x", "w", "b", "lengths", "past"], ["y", "all"], "attention", domain="com.microsoft", num_heads=heads)
    record(folder, "attention_lengths_past", [node], lengths, {"y": F, "all": F}, {"w": floats(width, 3 * width), "b": floats(3 * width)})
    crossed = {"q": floats(batch, new, width), "k": floats(batch, heads, 5, size), "v": floats(batch, heads, 5, size)}
    # The filter's value is of no effect without a mask.
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v", "b"], ["y"], "attention", domain="com.microsoft", num_heads=heads, mask_filter_value=-7.0)
    record(folder, "multi_head_crossed", [node], crossed, {"y": F}, {"b": floats(3 * width)})
    size, room, used = 16, 8, 5
    inputs = {"query": floats(1, 1, heads * size), "key": floats(1, 1, size), "value": floats(1, 1, size)}
    inputs |= {n: floats(1, 1, room, size) * (np.arange(room) < used - 1).astype(np.float32)[:, None] for n in ("past_key", "past_value")}
    weights = {"seqlens": np.array([used - 1], np.int32), "total": np.array([used], np.int32), "bias": floats(1, heads, 1, used)}
    names = [*inputs, "seqlens", "total", "", "", "", "bias"]
    node = helper.make_node("GroupQueryAttention", names, ["y", "k", "v"], "attention", domain="com.microsoft", num_heads=heads, kv_num_heads=1)
    record(folder, "group_query_bias", [node], inputs, {"y": F, "k": F, "v": F}, weights)


def fused_activations(folder):
    """Products with activations that have parameters."""
    kinds = [("Elu", [0.7]), ("Celu", [0.6]), ("ThresholdedRelu", [0.4]), ("Selu", [1.2]), ("LeakyRelu", [0.3]), ("HardSigmoid", [0.3, 0.4])]
    nodes, outputs = [], {}
    for i, (kind, parameters) in enumerate(kinds):
        given = dict(zip(("activation_alpha", "activation_beta"), parameters)) | ({"activation_gamma": 1.3} if kind == "Selu" else {})
        nodes.append(helper.make_node("FusedGemm", ["x", "w"], [f"y{i}"], f"n{i}", domain="com.microsoft", alpha=1.0, beta=1.0, activation=kind, **given))
        outputs[f"y{i}"] = F
    record(folder, "fused_activations", nodes, {"x": floats(3, 5)}, outputs, {"w": floats(5, 4)})


def nothing(folder):
    """Sums without a term, layers without a step, loops without a round, windows that are larger than what they slide over."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Exp", ["carried"], ["next"]),
            helper.make_node("Abs", ["next"], ["part"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", I64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", F, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", F, None),
            helper.make_tensor_value_info("part", F, ["rows", 2, "columns"]),
        ],
    )
    inputs = {
        "unseen": floats(1, 0, 4), "no_image": floats(1, 2, 0), "no_steps": floats(0, 2, 3),
        "short": floats(1, 2, 4),
    }
    weights = {
        "w0": floats(3, 0, 3), "b0": floats(3), "w1": floats(3, 2, 3), "w2": floats(2, 3, 3),
        "rounds": np.array(0, np.int64), "lw": floats(2, 16, 3), "lr": floats(2, 16, 4), "h": np.zeros((2, 2, 4), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["unseen", "w0", "b0"], ["channels"], "channels"),
        helper.make_node("Conv", ["no_image", "w1"], ["image"], "image", pads=[2, 2]),
        helper.make_node("ConvTranspose", ["no_image", "w2", "b0"], ["turned"], "turned"),
        helper.make_node("LSTM", ["no_steps", "lw", "lr", "", "", "h"], ["all", "last"], "layer", hidden_size=4, direction="bidirectional"),
        helper.make_node("MaxPool", ["short"], ["most", "places"], "most", kernel_shape=[5], strides=[2]),
        helper.make_node("AveragePool", ["short"], ["mean"], "mean", kernel_shape=[7], strides=[3], pads=[1, 1], count_include_pad=1),
        helper.make_node("MaxPool", ["short"], ["none"], "none", kernel_shape=[5]),
        helper.make_node("MaxPool", ["short"], ["no_place"], "no_place", kernel_shape=[7], strides=[3], ceil_mode=1),
        helper.make_node("Loop", ["rounds", "", "short"], ["same", "parts"], "loop", body=body),
    ]
    outputs = {k: F for k in ("channels", "image", "turned", "all", "last", "most", "mean", "none", "no_place", "same", "parts")} | {"places": I64}
    record(folder, "nothing", nodes, inputs, outputs, weights)


def decoding(folder):
    """What stands around the layers of language models."""
    cos, sin = (floats(12, 6) for _ in range(2))
    places = ROOM.integers(0, 12, (3, 2, 4)).astype(np.int64)
    for name, x, attributes in [
        ("sections", floats(2, 4, 36), {"mrope_section": [2, 1, 3], "num_heads": 3}),
        ("interleaved", floats(2, 3, 4, 12), {"mrope_section": [2, 2, 2], "mrope_layout": 1, "interleaved": 1}),
        ("partly", floats(2, 4, 32), {"mrope_section": [3, 2, 1], "mrope_layout": 1, "num_heads": 2, "rotary_embedding_dim": 12}),
    ]:
        node = helper.make_node("MRotaryEmbedding", ["x", "places", "cos", "sin"], ["y"], "rotary", domain="com.microsoft", **attributes)
        record(folder, f"rotary_of_three_{name}", [node], {"x": x, "places": places}, {"y": F}, {"cos": cos, "sin": sin})
    node = helper.make_node(
        "MoEGroupRouter", ["x", "bias"], ["y"], "router", domain="com.microsoft", top_k=4, n_group=4, topk_group=2, group_topk=2
    )
    record(folder, "group_router", [node], {"x": floats(2, 3, 16, low=-3, high=3)}, {"y": F}, {"bias": floats(16, low=-0.2, high=0.2)})
    ids = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64)
    nodes = [helper.make_node("NGramRepeatBlock", ["ids", "x"], [f"y{n}"], f"block{n}", domain="com.microsoft", ngram_size=n) for n in (1, 2, 3, 6, 9)]
    record(folder, "ngrams", nodes, {"ids": ids, "x": floats(2, 6)}, {f"y{n}": F for n in (1, 2, 3, 6, 9)})
    heads, size = 2, 8
    q, k, v = (floats(2, 1, heads * size) for _ in range(3))
    used = (np.arange(6) < 3).astype(np.float32)[:, None]
    past = {n: floats(2, heads, 6, size) * used for n in ("past_k", "past_v")}
    flags = np.array([[1, 0, 1, 1], [1, 1, 1, 1]], np.int32)
    names = ["q", "k", "v", "flags", "", "past_k", "past_v", "had", "", "", "b"]
    shared = {"num_heads": heads, "past_present_share_buffer": 1}
    node = helper.make_node("DecoderMaskedMultiHeadAttention", names, ["y", "ks", "vs"], "own", domain="com.microsoft", **shared)
    inputs = {"q": q, "k": k, "v": v, "flags": flags, "had": np.array([3], np.int32)} | past
    record(folder, "masked_heads", [node], inputs, {"y": F, "ks": F, "vs": F}, {"b": floats(3 * heads * size)})
    past = {n: floats(2, heads, 3, size) for n in ("past_k", "past_v")}
    names = ["q", "past_k", "past_v", "flags"]
    node = helper.make_node("DecoderMaskedMultiHeadAttention", names, ["y"], "other", domain="com.microsoft", num_heads=heads)
    record(folder, "masked_heads_crossed", [node], {"q": q, "flags": flags[:, :3]} | past, {"y": F})
    a, b = (ROOM.integers(-3000, 3000, s).astype(np.int16) for s in ((2, 3, 5), (5, 4)))
    node = helper.make_node("MatMulInteger16", ["a", "b"], ["y"], "product", domain="com.microsoft")
    record(folder, "product_of_16_bits", [node], {"a": a, "b": b}, {"y": TensorProto.INT32})


def crops(folder):
    """Parts of images, some of which reach beyond them, one whole and one turned round."""
    boxes = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 1.3], [-0.4, 0.3, 0.5, 0.9], [0.9, 0.8, 0.1, 0.2]], np.float32)
    inputs = {"x": floats(2, 3, 5, 6), "boxes": boxes, "images": np.array([1, 0, 1, 0], np.int32)}
    nodes, weights = [], {}
    for i, (mode, size, beyond) in enumerate([("bilinear", [4, 3], 0.0), ("nearest", [3, 4], 0.5), ("bilinear", [1, 7], -1.0)]):
        weights[f"size{i}"] = np.array(size, np.int32)
        nodes.append(helper.make_node(
            "CropAndResize", ["x", "boxes", "images", f"size{i}"], [f"y{i}"], f"crop{i}", domain="com.microsoft",
            mode=mode, extrapolation_value=beyond,
        ))
    record(folder, "crops", nodes, inputs, {f"y{i}": F for i in range(3)}, weights)


def ties(folder):
    """Sums, products and means of bytes that lie half way between two, with odd zero points."""
    values = np.arange(-128, 128, dtype=np.int8)
    inputs = {"x": values.reshape(16, 16), "y": ROOM.integers(-128, 128, (16, 16)).astype(np.int8)}
    scalar = lambda value, kind: np.array(value, kind)
    weights = {"quarter": scalar(0.25, np.float32), "half": scalar(0.5, np.float32), "step": scalar(2.7, np.float32)}
    weights |= {f"z{z}": scalar(z, np.int8) for z in (-5, 0, 3)}
    nodes = [
        helper.make_node("QLinearMul", ["x", "quarter", "z0", "x", "quarter", "z0", "step", "z3"], ["square"], "square", domain="com.microsoft"),
        helper.make_node("QLinearMul", ["x", "half", "z3", "y", "quarter", "z-5", "half", "z3"], ["product"], "product", domain="com.microsoft"),
        helper.make_node("QLinearAdd", ["x", "quarter", "z3", "y", "half", "z-5", "half", "z3"], ["sum"], "sum", domain="com.microsoft"),
    ]
    nodes.append(helper.make_node("QLinearAveragePool", ["image", "half", "z-5", "half", "z3"], ["mean"], "mean", kernel_shape=[2, 2], strides=[2, 2], domain="com.microsoft"))
    inputs["image"] = ROOM.integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
    outputs = {k: TensorProto.INT8 for k in ("square", "product", "sum", "mean")}
    record(folder, "quantized_ties", nodes, inputs, outputs, weights)


def main():
    folder = sys.argv[1]
    for write in (group_query, rotary, attention, sequences, machines, resizing, quantized_lstm, classifiers, tokens, contributed, experts, numbered_experts, further_attention, fused_activations, nothing, ties, decoding, crops):
        write(folder)


main()
