"""What exporters write out node by node, and the compiler puts together again: normalisations, rotary halves, heads, rolled windows, and
what only looks like them; caches, states, loops that only a run ends. onnxruntime says what is right.

The models are made when the tests run, with seeded weights, so nothing is recorded.
"""

import numpy as np
import pytest
from maker import Maker
from onnx import TensorProto, helper, numpy_helper

import barewave

onnxruntime = pytest.importorskip("onnxruntime")


def block(m, x, width, form=0, mask=None):
    q, k, v = (m.linear(x, width, width) for _ in range(3))
    a = m.linear(m.attention(q, k, v, 4, width // 4, mask), width, width)
    a = m.layer_norm(m.op("Add", a, x), width, form)
    h = m.linear(m.gelu(m.linear(a, width, 2 * width)), 2 * width, width)
    return m.layer_norm(m.op("Add", h, a), width, form)


def bert(form):
    m = Maker()
    words = m.input(m.rng.integers(0, 50, (2, 9)), ["batch", "tokens"])
    seen = m.input(np.array([[1] * 9, [1] * 6 + [0] * 3], np.int64), ["batch", "tokens"])
    low = m.op("Sub", m.constant(1.0), m.op("Cast", m.op("Unsqueeze", seen, m.ints(1, 2)), to=1))
    mask = m.op("Mul", low, m.constant(-10000.0))
    x = m.layer_norm(m.op("Gather", m.weight(50, 32, size=1.0), words), 32, form)
    for _ in range(2):
        x = block(m, x, 32, form, mask)
    return m.finish(m.op("Tanh", m.linear(m.op("Gather", x, m.constant(0, np.int64), axis=1), 32, 32)), x)


def gpt_2_with_cache():
    m = Maker()
    x = m.floats(1, 1, 32)
    outputs = []
    for _ in range(2):
        past = [m.floats(1, 4, 7, 8, open=[1, 4, "past", 8]) for _ in range(2)]
        h = m.op("Gemm", m.op("Reshape", m.layer_norm(x, 32), m.ints(-1, 32)), m.weight(32, 96), m.weight(96, size=0.1))
        q, k, v = m.op("Split", m.op("Reshape", h, m.ints(1, 1, 96)), m.ints(32, 32, 32), axis=2, outputs=3)
        q, k, v = (m.heads(t, 4, 8) for t in (q, k, v))
        k, v = (m.op("Concat", p, t, axis=2) for p, t in zip(past, (k, v)))
        outputs += [k, v]
        a = m.scores(q, m.op("Transpose", k, perm=[0, 1, 3, 2]), v, 8)
        x = m.op("Add", x, m.linear(m.merged(a, 32), 32, 32))
        h = m.linear(m.layer_norm(x, 32), 32, 64)
        cube = m.op("Mul", m.op("Pow", h, m.constant(3.0)), m.constant(0.044715))
        t = m.op("Tanh", m.op("Mul", m.op("Add", h, cube), m.constant(0.7978846)))
        h = m.op("Mul", m.op("Mul", h, m.constant(0.5)), m.op("Add", t, m.constant(1.0)))
        x = m.op("Add", x, m.linear(h, 64, 32))
    return m.finish(m.layer_norm(x, 32), *outputs)


def llama():
    m = Maker()
    x, size = m.floats(2, 6, 32), 8
    cos, sin = (m.weight(1, 1, 6, size, size=1.0) for _ in range(2))
    mask = m.constant(np.triu(np.full((6, 6), -1e4, np.float32), 1))

    def part(t, low, high):
        return m.op("Slice", t, m.ints(low), m.ints(high), m.ints(3))

    def turn(t):
        half = m.op("Concat", m.op("Neg", part(t, size // 2, 2**60)), part(t, 0, size // 2), axis=3)
        return m.op("Add", m.op("Mul", t, cos), m.op("Mul", half, sin))

    h = m.rms_norm(x, 32)
    q, k, v = (m.heads(m.op("MatMul", h, m.weight(32, 8 * n)), n, size) for n in (4, 2, 2))
    q, k = turn(q), turn(k)
    # Groups of heads share keys and values.
    k, v = (m.op("Expand", m.op("Unsqueeze", t, m.ints(2)), m.ints(2, 2, 2, 6, size)) for t in (k, v))
    k, v = (m.op("Reshape", t, m.ints(2, 4, 6, size)) for t in (k, v))
    a = m.scores(q, m.op("Transpose", k, perm=[0, 1, 3, 2]), v, size, mask)
    x = m.op("Add", x, m.op("MatMul", m.merged(a, 32), m.weight(32, 32)))
    h = m.rms_norm(x, 32)
    gate = m.op("MatMul", h, m.weight(32, 64))
    h = m.op("Mul", m.op("Mul", gate, m.op("Sigmoid", gate)), m.op("MatMul", h, m.weight(32, 64)))
    return m.finish(m.op("Add", x, m.op("MatMul", h, m.weight(64, 32))))


def t5():
    """Attention of a decoder to an encoder, with positions as a table of relative distances."""
    m = Maker()
    x, memory = m.floats(1, 5, 32), m.floats(1, 7, 32)
    far = np.clip(np.arange(7)[None] - np.arange(5)[:, None], -3, 3) + 3
    bias = m.op("Transpose", m.op("Gather", m.weight(7, 4, size=1.0), m.constant(far, np.int64)), perm=[2, 0, 1])
    bias = m.op("Unsqueeze", bias, m.ints(0))
    q, k, v = (m.op("MatMul", t, m.weight(32, 32)) for t in (m.rms_norm(x, 32), memory, memory))
    x = m.op("Add", x, m.attention(q, k, v, 4, 8, bias))
    h = m.op("Relu", m.op("MatMul", m.rms_norm(x, 32), m.weight(32, 64)))
    return m.finish(m.op("Add", x, m.op("MatMul", h, m.weight(64, 32))))



def swin():
    """Windows, shifted by rolling the picture."""
    m = Maker()
    x = m.floats(1, 8, 8, 32)

    def roll(t, n, axis):
        cut = [m.op("Slice", t, m.ints(a), m.ints(b), m.ints(axis)) for a, b in ((n, 8), (0, n))]
        return m.op("Concat", *cut, axis=axis)

    h = roll(roll(m.layer_norm(x, 32), 2, 1), 2, 2)
    h = m.op("Transpose", m.op("Reshape", h, m.ints(1, 2, 4, 2, 4, 32)), perm=[0, 1, 3, 2, 4, 5])
    h = block(m, m.op("Reshape", h, m.ints(4, 16, 32)), 32)
    h = m.op("Transpose", m.op("Reshape", h, m.ints(1, 2, 2, 4, 4, 32)), perm=[0, 1, 3, 2, 4, 5])
    h = roll(roll(m.op("Reshape", h, m.ints(1, 8, 8, 32)), 6, 1), 6, 2)
    return m.finish(m.op("Add", x, h))








def conv_next():
    m = Maker()
    x = m.floats(1, 16, 12, 12)
    y = m.op("Transpose", m.conv(x, 16, 16, 7, None, group=16), perm=[0, 2, 3, 1])
    y = m.linear(m.gelu(m.linear(m.layer_norm(y, 16), 16, 64)), 64, 16)
    y = m.op("Mul", y, m.weight(16, size=0.5))
    return m.finish(m.op("Add", x, m.op("Transpose", y, perm=[0, 3, 1, 2])))



def diffusion_block():
    """GroupNorm as torch writes it, SiLU, a step's embedding, attention over pixels."""
    m = Maker()
    x, step = m.floats(1, 16, 8, 8), m.floats(1, 32)

    def group_norm(t):
        y = m.op("Reshape", t, m.ints(0, 4, -1))
        y = m.op("InstanceNormalization", y, m.constant(np.ones(4, np.float32)), m.constant(np.zeros(4, np.float32)))
        y = m.op("Reshape", y, m.op("Shape", t))
        return m.op("Add", m.op("Mul", y, m.weight(16, 1, 1, size=1.0)), m.weight(16, 1, 1, size=0.2))

    def silu(t):
        return m.op("Mul", t, m.op("Sigmoid", t))

    h = m.conv(silu(group_norm(x)), 16, 16, act=None)
    h = m.op("Add", h, m.op("Unsqueeze", m.linear(silu(step), 32, 16), m.ints(2, 3)))
    x = m.op("Add", x, m.conv(silu(group_norm(h)), 16, 16, act=None))
    t = m.op("Transpose", m.op("Reshape", group_norm(x), m.ints(0, 16, 64)), perm=[0, 2, 1])
    t = m.attention(*(m.linear(t, 16, 16) for _ in range(3)), 2, 8)
    return m.finish(m.op("Add", x, m.op("Reshape", m.op("Transpose", t, perm=[0, 2, 1]), m.ints(0, 16, 8, 8))))







def voice_activity():
    """Frames of a spectrum, a GRU and an LSTM with state."""
    m = Maker()
    x = m.floats(1, 1, 400, open=[1, 1, "samples"])
    h, c = m.floats(1, 1, 16), m.floats(1, 1, 16)
    window = m.weight(34, 1, 32)
    frames = m.op("Conv", x, window, kernel_shape=[32], strides=[16])
    real, imaginary = m.op("Split", frames, m.ints(17, 17), axis=1, outputs=2)
    power = m.op("Add", m.op("Mul", real, real), m.op("Mul", imaginary, imaginary))
    power = m.op("Log", m.op("Add", m.op("Sqrt", power), m.constant(1e-3)))
    power = m.op("Transpose", power, perm=[2, 0, 1])
    y, last = m.op("GRU", power, m.weight(1, 48, 17), m.weight(1, 48, 16), outputs=2, hidden_size=16, linear_before_reset=1)
    y = m.op("Squeeze", y, m.ints(1))
    y, h, c = m.op("LSTM", y, m.weight(1, 64, 16), m.weight(1, 64, 16), "", "", h, c, outputs=3, hidden_size=16)
    return m.finish(m.op("Sigmoid", m.linear(m.op("Squeeze", h, m.ints(0)), 16, 1)), h, c, last)




def quantised():
    """QDQ pairs, and products of dynamically quantised data."""
    m = Maker()

    def pair(x, scale, zero=3):
        q = (m.constant(scale), m.constant(np.array(zero, np.uint8)))
        return m.op("DequantizeLinear", m.op("QuantizeLinear", x, *q), *q)

    w = m.rng.integers(-64, 64, (8, 3, 3, 3)).astype(np.int8)
    w = m.op("DequantizeLinear", m.constant(w), m.constant(m.rng.uniform(0.01, 0.02, 8).astype(np.float32)), m.constant(np.zeros(8, np.int8)), axis=0)
    x = m.op("Conv", pair(m.floats(1, 3, 10, 10), 0.03, 128), w, kernel_shape=[3, 3])
    x = m.op("Reshape", pair(m.op("Relu", x), 0.05), m.ints(8, 64))
    q, scale, zero = m.op("DynamicQuantizeLinear", x, outputs=3)
    weights = m.constant(m.rng.integers(-64, 64, (64, 5)).astype(np.int8))
    y = m.op("Cast", m.op("MatMulInteger", q, weights, zero, m.constant(np.array(0, np.int8))), to=1)
    return m.finish(m.op("Mul", y, m.op("Mul", scale, m.constant(0.01))))


def loops():
    """A Loop that only its body ends, and a Scan."""
    m = Maker()
    x, limit = m.floats(6), m.input(np.array(40, np.float32))
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "two"], ["s2"]),
            helper.make_node("ReduceSum", ["s2"], ["t"], keepdims=0),
            helper.make_node("Less", ["t", limit], ["go"]),
            helper.make_node("Identity", ["t"], ["kept"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("s", TensorProto.FLOAT, [6])],
        [info("go", TensorProto.BOOL, []), info("s2", TensorProto.FLOAT, [6]), info("kept", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.array(2, np.float32), "two")],
    )
    y, kept = m.op("Loop", "", "", m.op("Abs", x), body=body, outputs=2)
    step = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["n"]), helper.make_node("Relu", ["n"], ["r"])],
        "step",
        [info("a", TensorProto.FLOAT, []), info("b", TensorProto.FLOAT, [])],
        [info("n", TensorProto.FLOAT, []), info("r", TensorProto.FLOAT, [])],
    )
    last, all_of_them = m.op("Scan", m.constant(0.0), y, body=step, num_scan_inputs=1, outputs=2)
    return m.finish(y, kept, last, all_of_them)


def look_alikes():
    """Normalisations over other axes, or of which somebody reads an inner value; halves that are none; transposed products."""
    m = Maker()
    x = m.floats(2, 6, 8)
    outputs = []
    for axes, inner in [([-1], 0), ([1], 0), ([1, 2], 0), ([-2, -1], 0), ([0], 0), ([-1], 1), ([-1], 2), ([-1], 3)]:
        mean = m.op("ReduceMean", x, axes=axes)
        d = m.op("Sub", x, mean)
        variance = m.op("ReduceMean", m.op("Mul", d, d), axes=axes)
        deviation = m.op("Sqrt", m.op("Add", m.constant(1e-3), variance))
        outputs += [m.op("Div", d, deviation), *([[], [mean], [d], [m.op("Neg", deviation)]][inner])]

    def part(low, high, axis):
        return m.op("Slice", x, m.ints(low), m.ints(high), m.ints(axis))

    outputs += [m.op("Concat", part(4, 8, 2), part(0, 4, 2), axis=2), m.op("Concat", part(1, 2, 0), part(0, 1, 0), axis=0)]
    outputs += [m.op("Concat", m.op("Exp", part(0, 5, 1)), x, axis=1)]
    outputs += [m.op("Relu", m.op("Concat", m.op("Reciprocal", part(2, 3, 1)), part(0, 6, 1), axis=1))]
    for turned in ([1, 0, 2], [2, 1, 0]):
        outputs += [m.op("Transpose", m.op("MatMul", x, m.weight(8, 5)), perm=turned)]
    t = m.op("Transpose", m.op("MatMul", x, m.weight(8, 5)), perm=[1, 0, 2])
    y = m.op("MatMul", m.op("Reshape", t, m.ints(6, 10)), m.weight(10, 3))
    return m.finish(*outputs, m.op("Neg", t), m.op("Relu", y))


MODELS = {
    "bert of torch": lambda: bert(0),
    "bert of keras": lambda: bert(1),
    "bert by reciprocals": lambda: bert(2),
    **{
        f.__name__: f
        for f in (
            gpt_2_with_cache, llama, t5, swin, conv_next, diffusion_block, voice_activity, quantised, loops, look_alikes,
        )
    },
}


@pytest.mark.parametrize("device", ["emu:gfx942", "emu:gfx1100"])
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_is_as_onnxruntime_has_it(name, device, monkeypatch):
    monkeypatch.setenv("BAREWAVE_CACHE", "off")
    model, feeds = MODELS[name]()
    data = model.SerializeToString()
    right = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    got = barewave.InferenceSession(data, device=device, strict=True).run(None, feeds)
    for g, w in zip(got, right, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind != "f":
            assert (g == w).all()
            continue
        size = max(np.abs(w).max(initial=0), 1e-30)
        assert np.abs(g - w).max(initial=0) / size < 1e-4
