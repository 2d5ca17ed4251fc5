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


def record(folder, name, nodes, inputs, outputs, weights=None, opset=21, named=()):
    """Runs a model and writes it; `outputs` are names, `named` gives dimensions of inputs names: {(input, axis): name}."""
    named = dict(named)

    def info(key, a):
        dims = [named.get((key, i), d) for i, d in enumerate(a.shape)]
        return helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(a.dtype), dims)

    graph = helper.make_graph(
        nodes,
        name,
        [info(k, a) for k, a in inputs.items()],
        [helper.make_tensor_value_info(o, t, None) for o, t in outputs.items()],
        [numpy_helper.from_array(a, k) for k, a in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
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


F, I64 = TensorProto.FLOAT, TensorProto.INT64


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


def main():
    folder = sys.argv[1]
    for write in (group_query, rotary, attention):
        write(folder)


main()
