"""A small model of each family that people run, in the forms of several exporters: vision, detection, reading of texts, speech and sound,
language models, classical machine learning. onnxruntime says what is right.

The models are made when the tests run, with seeded weights, so nothing is recorded.
"""

import numpy as np
import pytest
from maker import Maker
from onnx import TensorProto, helper, numpy_helper

import barewave

onnxruntime = pytest.importorskip("onnxruntime")


# ---- images ----


def pooled(m, x, channels, classes=5):
    x = m.op("Flatten", m.op("GlobalAveragePool", x))
    return m.op("Gemm", x, m.weight(classes, channels), m.weight(classes), transB=1)


def resnet():
    """Bottlenecks of torch: the stride is in the middle, the shortcut is projected."""
    m = Maker(13)
    x = m.op("MaxPool", m.conv(m.floats(1, 3, 32, 32), 3, 16, 7, strides=[2, 2]), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for cin, mid, cout, stride in [(16, 8, 32, 1), (32, 8, 32, 1), (32, 16, 48, 2)]:
        y = m.conv(m.conv(x, cin, mid, 1), mid, mid, 3, strides=[stride] * 2)
        y = m.conv(y, mid, cout, 1, act=None)
        x = x if cin == cout else m.conv(x, cin, cout, 1, act=None, strides=[stride] * 2)
        x = m.op("Relu", m.op("Add", y, x))
    return m.finish(pooled(m, x, 48))


def nsfw():
    """tf2onnx without its optimiser: channels come last, and each convolution turns its data and its result."""
    m = Maker(11)
    x = m.floats(2, 18, 20, 3)

    def conv(x, cin, cout, k, stride=1, act=True):
        y = m.op("Transpose", x, perm=[0, 3, 1, 2])
        y = m.op("Conv", y, m.weight(cout, cin, k, k), kernel_shape=[k, k], strides=[stride] * 2, auto_pad="SAME_UPPER")
        y = m.op("Add", m.op("Mul", m.op("Transpose", y, perm=[0, 2, 3, 1]), m.weight(cout)), m.weight(cout))
        return m.op("Relu", y) if act else y

    x = m.op("Transpose", conv(x, 3, 8, 7, 2), perm=[0, 3, 1, 2])
    x = m.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    x = m.op("Transpose", x, perm=[0, 2, 3, 1])
    for cin, mid, cout, stride in [(8, 4, 16, 1), (16, 4, 16, 1), (16, 8, 24, 2)]:
        y = conv(conv(conv(x, cin, mid, 1, stride), mid, mid, 3), mid, cout, 1, act=False)
        x = x if cin == cout else conv(x, cin, cout, 1, stride, act=False)
        x = m.op("Relu", m.op("Add", y, x))
    x = m.op("ReduceMean", x, axes=[1, 2], keepdims=0)
    return m.finish(m.op("Softmax", m.op("Add", m.op("MatMul", x, m.weight(24, 2)), m.weight(2)), axis=1))


def excited(m, x, channels, gate):
    """Squeeze and excitation."""
    s = m.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    s = m.conv(m.conv(s, channels, 4, 1), 4, channels, 1, act=None)
    return m.op("Mul", x, gate(m, s))


def hard_sigmoid(m, x):
    """As torch writes it before opset 14."""
    return m.op("Div", m.op("Clip", m.op("Add", x, m.constant(3.0)), m.constant(0.0), m.constant(6.0)), m.constant(6.0))


def mobilenet_v2():
    m = Maker(11)
    x = m.conv(m.floats(2, 3, 24, 24), 3, 8, 3, act=None, strides=[2, 2])
    for cin, cout, stride in [(8, 8, 1), (8, 12, 2)]:
        y = m.op("Clip", m.conv(x, cin, 4 * cin, 1, act=None), m.constant(0.0), m.constant(6.0))
        y = m.conv(y, 4 * cin, 4 * cin, 3, act=None, strides=[stride] * 2, group=4 * cin)
        y = m.conv(m.op("Clip", y, m.constant(0.0), m.constant(6.0)), 4 * cin, cout, 1, act=None)
        x = m.op("Add", x, y) if cin == cout else y
    return m.finish(pooled(m, x, 12))


def mobilenet_v3():
    m = Maker(11)
    x = m.conv(m.floats(1, 3, 24, 24), 3, 8, 3, act=None, strides=[2, 2])
    x = m.op("Mul", x, hard_sigmoid(m, x))
    y = m.conv(x, 8, 24, 1)
    y = excited(m, m.conv(y, 24, 24, 5, group=24), 24, hard_sigmoid)
    x = m.op("Add", x, m.conv(y, 24, 8, 1, act=None))
    return m.finish(pooled(m, m.op("HardSwish", x) if m.opset >= 14 else x, 8))


def efficientnet():
    """Swish as Sigmoid and Mul; padding at the end only, as TensorFlow's SAME has it."""
    m = Maker(13)
    x = m.floats(1, 3, 25, 25)
    x = m.op("Conv", x, m.weight(8, 3, 3, 3), m.weight(8), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    swish = lambda m, x: m.op("Mul", x, m.op("Sigmoid", x))  # noqa: E731
    x = swish(m, x)
    y = swish(m, m.conv(x, 8, 16, 1, act=None))
    y = m.op("Conv", y, m.weight(16, 1, 5, 5), m.weight(16), kernel_shape=[5, 5], strides=[2, 2], auto_pad="SAME_UPPER", group=16)
    y = excited(m, swish(m, y), 16, lambda m, x: m.op("Sigmoid", x))
    return m.finish(pooled(m, m.conv(y, 16, 10, 1, act=None), 10))


def densenet():
    """Lists that grow by a layer each, concatenated anew each time, as torch has them."""
    m = Maker(13)
    parts, channels = [m.conv(m.floats(1, 3, 16, 16), 3, 8)], 8
    for _ in range(4):
        x = m.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        y = m.conv(m.op("Relu", m.batch_norm(x, channels)), channels, 16, 1, act=None, bias=False)
        y = m.conv(m.op("Relu", m.batch_norm(y, 16)), 16, 8, 3, act=None, bias=False)
        parts.append(y)
        channels += 8
    x = m.op("Relu", m.batch_norm(m.op("Concat", *parts, axis=1), channels))
    x = m.op("AveragePool", m.conv(x, channels, 12, 1, act=None, bias=False), kernel_shape=[2, 2], strides=[2, 2])
    return m.finish(pooled(m, m.op("Relu", m.batch_norm(x, 12)), 12))


def inception():
    m = Maker(12)
    x = m.floats(1, 8, 15, 15)
    a = m.conv(x, 8, 6, 1)
    b = m.conv(m.conv(x, 8, 4, 1), 4, 6, 5)
    c = m.op("Relu", m.op("Conv", m.conv(x, 8, 4, 1), m.weight(6, 4, 1, 7), kernel_shape=[1, 7], pads=[0, 3, 0, 3]))
    c = m.op("Relu", m.op("Conv", c, m.weight(6, 6, 7, 1), kernel_shape=[7, 1], pads=[3, 0, 3, 0]))
    d = m.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1], count_include_pad=0)
    x = m.op("Concat", a, b, c, m.conv(d, 8, 5, 1), axis=1)
    return m.finish(pooled(m, m.op("LRN", x, size=5), 23))


def shufflenet():
    m = Maker(11)
    x = m.floats(1, 16, 12, 12)
    y = m.conv(x, 16, 16, 1, group=4)
    y = m.op("Transpose", m.op("Reshape", y, m.ints(1, 4, 4, 12, 12)), perm=[0, 2, 1, 3, 4])
    y = m.conv(m.op("Reshape", y, m.ints(1, 16, 12, 12)), 16, 16, 3, act=None, strides=[2, 2], group=16)
    y = m.conv(y, 16, 16, 1, act=None, group=4)
    shortcut = m.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return m.finish(pooled(m, m.op("Relu", m.op("Concat", shortcut, y, axis=1)), 32))


def vit():
    """Patches by a convolution, a token that stands for the image, attention of torch's fused QKV."""
    m = Maker(17)
    x = m.op("Conv", m.floats(2, 3, 32, 32), m.weight(32, 3, 16, 16), m.weight(32), kernel_shape=[16, 16], strides=[16, 16])
    x = m.op("Transpose", m.op("Reshape", x, m.ints(2, 32, -1)), perm=[0, 2, 1])
    first = m.op("Expand", m.weight(1, 1, 32), m.ints(2, 1, 32))
    x = m.op("Add", m.op("Concat", first, x, axis=1), m.weight(1, 5, 32))
    for _ in range(2):
        h = m.op("LayerNormalization", x, m.weight(32, size=1.0), m.weight(32), axis=-1)
        qkv = m.op("Reshape", m.linear(h, 32, 96), m.ints(2, 5, 3, 4, 8))
        qkv = m.op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (m.op("Gather", qkv, m.constant(np.array(i, np.int64)), axis=0) for i in range(3))
        q = m.op("Mul", q, m.constant(8**-0.25))
        k = m.op("Mul", m.op("Transpose", k, perm=[0, 1, 3, 2]), m.constant(8**-0.25))
        p = m.op("Softmax", m.op("MatMul", q, k), axis=-1)
        x = m.op("Add", x, m.linear(m.merged(m.op("MatMul", p, v), 32), 32, 32))
        h = m.op("LayerNormalization", x, m.weight(32, size=1.0), m.weight(32), axis=-1)
        x = m.op("Add", x, m.linear(m.gelu(m.linear(h, 32, 64)), 64, 32))
    token = m.op("Gather", x, m.constant(np.array(0, np.int64)), axis=1)
    return m.finish(m.linear(token, 32, 4))


def u_net():
    m = Maker(13)
    x = m.floats(1, 1, 17, 19)
    down = m.conv(m.conv(x, 1, 8), 8, 8)
    y = m.conv(m.op("MaxPool", down, kernel_shape=[2, 2], strides=[2, 2]), 8, 16)
    y = m.op("ConvTranspose", y, m.weight(16, 8, 2, 2), m.weight(8), kernel_shape=[2, 2], strides=[2, 2])
    # The skip is cut to what is left: shapes from the data, as torch exports them.
    edge = [m.op("Gather", m.op("Shape", y), m.constant(np.array(i, np.int64))) for i in (2, 3)]
    end = m.op("Concat", *[m.op("Unsqueeze", e, m.ints(0)) for e in edge], axis=0)
    skip = m.op("Slice", down, m.ints(0, 0), end, m.ints(2, 3))
    return m.finish(m.op("Sigmoid", m.conv(m.op("Concat", skip, y, axis=1), 16, 1, 1, act=None)))


def super_resolution():
    m = Maker(11)
    x = m.floats(1, 1, 9, 7, open=[1, 1, "rows", "columns"])
    y = m.conv(m.conv(x, 1, 8, 5), 8, 9, act=None)
    y = m.op("DepthToSpace", y, blocksize=3, mode="CRD")
    wide = m.op("Resize", x, m.constant(np.zeros(0, np.float32)), m.constant([1.0, 1.0, 3.0, 3.0]), mode="cubic")
    return m.finish(m.op("Add", y, wide))


def style_transfer():
    m = Maker(11)
    x = m.op("Pad", m.floats(1, 3, 12, 12), m.ints(0, 0, 4, 4, 0, 0, 4, 4), mode="reflect")
    x = m.op("Conv", x, m.weight(8, 3, 9, 9), m.weight(8), kernel_shape=[9, 9])
    x = m.op("Relu", m.op("InstanceNormalization", x, m.weight(8, size=1.0), m.weight(8)))
    x = m.conv(x, 8, 12, 3, act=None, strides=[2, 2])
    x = m.op("Relu", m.op("InstanceNormalization", x, m.weight(12, size=1.0), m.weight(12)))
    x = m.op("Upsample", x, m.constant([1.0, 1.0, 2.0, 2.0]), mode="nearest") if m.opset < 10 else m.op(
        "Resize", x, m.constant(np.zeros(0, np.float32)), m.constant([1.0, 1.0, 2.0, 2.0]), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return m.finish(m.op("Tanh", m.conv(x, 12, 3, 3, act=None)))


def gan():
    m = Maker(9)
    x = m.op("ConvTranspose", m.floats(2, 10, 1, 1), m.weight(10, 16, 4, 4), kernel_shape=[4, 4])
    x = m.op("Relu", m.batch_norm(x, 16))
    x = m.op("ConvTranspose", x, m.weight(16, 8, 4, 4), kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4)
    x = m.op("LeakyRelu", m.batch_norm(x, 8), alpha=0.2)
    x = m.op("ConvTranspose", x, m.weight(8, 3, 3, 3), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    return m.finish(m.op("Tanh", x))


def seen_last(m, classes, channels):
    """An image whose channels come last, as TensorFlow has them, through transposes."""
    x = m.op("Transpose", m.floats(1, 16, 16, 3), perm=[0, 3, 1, 2])
    return m.conv(m.conv(x, 3, channels, strides=[2, 2]), channels, classes, strides=[2, 2])


def yolo():
    """Boxes from a grid, chosen by NonMaxSuppression."""
    m = Maker(12)
    x = m.conv(m.floats(1, 3, 24, 24), 3, 16, strides=[2, 2])
    x = m.op("MaxPool", x, kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4)
    x = m.conv(x, 16, 21, 1, act=None, strides=[2, 2])
    x = m.op("Transpose", m.op("Reshape", x, m.ints(1, 3, 7, 6, 6)), perm=[0, 1, 3, 4, 2])
    x = m.op("Sigmoid", x)
    where, size, score = m.op("Split", x, axis=4, split=[2, 2, 3], outputs=3)
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), -1).astype(np.float32)[None, None]
    where = m.op("Mul", m.op("Add", m.op("Mul", where, m.constant(2.0)), m.constant(grid)), m.constant(4.0))
    size = m.op("Mul", m.op("Pow", m.op("Mul", size, m.constant(2.0)), m.constant(2.0)), m.constant(np.full((1, 3, 1, 1, 2), 9, np.float32)))
    boxes = m.op("Reshape", m.op("Concat", where, size, axis=4), m.ints(1, -1, 4))
    score = m.op("Transpose", m.op("Reshape", score, m.ints(1, -1, 3)), perm=[0, 2, 1])
    most = [m.constant(np.array([v], t)) for v, t in [(20, np.int64), (0.4, np.float32), (0.5, np.float32)]]
    chosen = m.op("NonMaxSuppression", boxes, score, *most, center_point_box=1)
    index = m.op("Squeeze", m.op("Slice", chosen, m.ints(2), m.ints(3), m.ints(1)), axes=[1])
    return m.finish(chosen, m.op("Gather", m.op("Squeeze", boxes, axes=[0]), index, axis=0))


def ssd():
    """Two maps of boxes, decoded against anchors, best of each class by TopK, then suppression in a Loop's place."""
    m = Maker(12)
    first = seen_last(m, 16, 8)
    second = m.conv(first, 16, 16, strides=[2, 2])
    places, scores = [], []
    for x in (first, second):
        for kind, width in ((places, 4), (scores, 3)):
            y = m.op("Transpose", m.conv(x, 16, 2 * width, 3, act=None), perm=[0, 2, 3, 1])
            kind.append(m.op("Reshape", y, m.ints(1, -1, width)))
    places, scores = m.op("Concat", *places, axis=1), m.op("Softmax", m.op("Concat", *scores, axis=1), axis=2)
    count = 2 * (16 + 4)
    anchors = m.rng.uniform(0.1, 0.9, (1, count, 4)).astype(np.float32)
    center, size = m.op("Split", places, axis=2, split=[2, 2], outputs=2)
    middle = m.op("Add", m.op("Mul", m.op("Mul", center, m.constant(0.1)), m.constant(anchors[..., 2:])), m.constant(anchors[..., :2]))
    half = m.op("Mul", m.op("Mul", m.op("Exp", m.op("Mul", size, m.constant(0.2))), m.constant(anchors[..., 2:])), m.constant(0.5))
    boxes = m.op("Clip", m.op("Concat", m.op("Sub", middle, half), m.op("Add", middle, half), axis=2), m.constant(0.0), m.constant(1.0))
    best, index = m.op("TopK", m.op("Reshape", m.op("Slice", scores, m.ints(1), m.ints(2), m.ints(2)), m.ints(-1)), m.ints(10), outputs=2)
    boxes = m.op("Unsqueeze", m.op("Gather", m.op("Squeeze", boxes, axes=[0]), index, axis=0), axes=[0])
    limits = [m.constant(np.array([v], t)) for v, t in [(5, np.int64), (0.45, np.float32), (0.01, np.float32)]]
    chosen = m.op("NonMaxSuppression", boxes, m.op("Reshape", best, m.ints(1, 1, -1)), *limits)
    return m.finish(chosen, boxes, best)


# ---- texts in images ----


def features(m, width=40):
    """An image of a line as a sequence of its columns."""
    x = m.conv(m.floats(1, 1, 16, width, open=[1, 1, 16, "width"]), 1, 8)
    x = m.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = m.op("MaxPool", m.conv(x, 8, 16), kernel_shape=[8, 2], strides=[8, 2])
    return m.op("Transpose", m.op("Squeeze", x, m.ints(2)), perm=[2, 0, 1])


def crnn():
    """Columns of an image through LSTMs of both directions, as torch exports them, to labels of CTC."""
    m = Maker(13)
    x = features(m)
    for cin in (16, 24):
        w, r, b = m.weight(2, 48, cin), m.weight(2, 48, 12), m.weight(2, 96)
        y, _, _ = m.op("LSTM", x, w, r, b, outputs=3, direction="bidirectional", hidden_size=12)
        x = m.op("Reshape", m.op("Transpose", y, perm=[0, 2, 1, 3]), m.ints(0, 0, -1))
    x = m.op("LogSoftmax", m.linear(x, 24, 11), axis=2)
    return m.finish(x, m.op("ArgMax", x, axis=2, keepdims=0))


def ctc_ocr():
    """As paddle exports it: a transformer over columns, Softmax at the end, HardSwish written out."""
    m = Maker(11)
    x = m.floats(1, 3, 16, 32)
    x = m.conv(x, 3, 16, act=None, strides=[2, 1])
    x = m.op("Div", m.op("Mul", x, m.op("Clip", m.op("Add", x, m.constant(3.0)), m.constant(0.0), m.constant(6.0))), m.constant(6.0))
    x = m.op("AveragePool", x, kernel_shape=[8, 2], strides=[8, 2])
    x = m.op("Transpose", m.op("Squeeze", x, axes=[2]), perm=[0, 2, 1])
    qkv = m.op("Transpose", m.op("Reshape", m.linear(x, 16, 48), m.ints(0, -1, 3, 4, 4)), perm=[2, 0, 3, 1, 4])
    q, k, v = (m.op("Squeeze", m.op("Slice", qkv, m.ints(i), m.ints(i + 1), m.ints(0)), axes=[0]) for i in range(3))
    q = m.op("Mul", q, m.constant(0.5))
    p = m.op("Softmax", m.op("MatMul", q, m.op("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    x = m.op("Add", x, m.linear(m.merged(m.op("MatMul", p, v), 16), 16, 16))
    return m.finish(m.op("Softmax", m.linear(m.layer_norm(x, 16), 16, 12), axis=2))


def attention_ocr():
    """A decoder that looks at the columns letter by letter: a Loop whose state is a GRU's, and the letters so far."""
    m = Maker(13)
    x = m.op("Transpose", features(m), perm=[1, 0, 2])
    keys, table = m.linear(x, 16, 12), m.weight(9, 6, size=1.0)
    info, node = helper.make_tensor_value_info, helper.make_node
    w = {"wx": m.weight(1, 36, 22), "wh": m.weight(1, 36, 12), "out": m.weight(12, 9, size=1.0)}
    body = helper.make_graph(
        [
            node("Unsqueeze", ["h", "two"], ["query"]),
            node("MatMul", [keys, "query"], ["match"]),
            node("Softmax", ["match"], ["shares"], axis=1),
            node("Transpose", ["shares"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["turned", x], ["seen"]),
            node("Gather", [table, "letter"], ["known"]),
            node("Unsqueeze", ["known", "one"], ["known3"]),
            node("Concat", ["seen", "known3"], ["both"], axis=2),
            node("Unsqueeze", ["h", "zero"], ["h3"]),
            node("GRU", ["both", w["wx"], w["wh"], "", "", "h3"], ["all", "last"], hidden_size=12),
            node("Squeeze", ["last", "zero"], ["h_next"]),
            node("MatMul", ["h_next", w["out"]], ["scores"]),
            node("ArgMax", ["scores"], ["letter_next"], axis=1, keepdims=0),
            node("Identity", ["go"], ["go_on"]),
            node("Identity", ["scores"], ["kept"]),
        ],
        "letter",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("h", TensorProto.FLOAT, [1, 12]), info("letter", TensorProto.INT64, [1])],
        [info("go_on", TensorProto.BOOL, []), info("h_next", TensorProto.FLOAT, [1, 12]), info("letter_next", TensorProto.INT64, [1]), info("kept", TensorProto.FLOAT, [1, 9])],
        [numpy_helper.from_array(np.array([i], np.int64), name) for i, name in enumerate(("zero", "one", "two"))],
    )
    start = m.constant(np.zeros((1, 12), np.float32))
    trip, go = m.constant(np.array(6, np.int64)), m.constant(np.array(True))
    h, last, scores = m.op("Loop", trip, go, start, m.constant(np.array([1], np.int64)), body=body, outputs=3)
    return m.finish(scores, m.op("ArgMax", scores, axis=2, keepdims=0), last, h)


# ---- speech and sound ----


def whisper():
    """Convolutions over a spectrogram, an encoder, and a decoder that attends to itself and to it."""
    m = Maker(17)
    x = m.op("Conv", m.floats(1, 20, 30), m.weight(32, 20, 3), m.weight(32), kernel_shape=[3], pads=[1, 1])
    x = m.gelu(x)
    x = m.gelu(m.op("Conv", x, m.weight(32, 32, 3), m.weight(32), kernel_shape=[3], pads=[1, 1], strides=[2]))
    x = m.op("Add", m.op("Transpose", x, perm=[0, 2, 1]), m.weight(15, 32))

    def norm(x):
        return m.op("LayerNormalization", x, m.weight(32, size=1.0), m.weight(32), axis=-1)

    def attend(x, to, mask=None):
        q = m.op("Mul", m.linear(x, 32, 32), m.constant(8**-0.5))
        k, v = m.op("MatMul", to, m.weight(32, 32)), m.linear(to, 32, 32)
        q, k, v = m.heads(q, 4, 8), m.heads(k, 4, 8, (0, 2, 3, 1)), m.heads(v, 4, 8)
        s = m.op("MatMul", q, k)
        s = m.op("Add", s, mask) if mask else s
        return m.linear(m.merged(m.op("MatMul", m.op("Softmax", s, axis=-1), v), 32), 32, 32)

    h = norm(x)
    x = m.op("Add", x, attend(h, h))
    x = norm(m.op("Add", x, m.linear(m.gelu(m.linear(norm(x), 32, 64)), 64, 32)))
    words = m.input(m.rng.integers(0, 40, (1, 6)))
    table = m.weight(40, 32, size=0.5)
    y = m.op("Add", m.op("Gather", table, words), m.weight(6, 32))
    hidden = m.constant(np.triu(np.full((6, 6), -np.inf, np.float32), 1))
    h = norm(y)
    y = m.op("Add", y, attend(h, h, hidden))
    y = m.op("Add", y, attend(norm(y), x))
    y = m.op("Add", y, m.linear(m.gelu(m.linear(norm(y), 32, 64)), 64, 32))
    return m.finish(m.op("MatMul", norm(y), m.op("Transpose", table, perm=[1, 0])))


def wavenet():
    """Dilated convolutions with gates, residuals and skips."""
    m = Maker(13)
    x = m.op("Conv", m.floats(1, 1, 200, open=[1, 1, "samples"]), m.weight(12, 1, 1), kernel_shape=[1])
    skips = []
    for dilation in (1, 2, 4, 8):
        past = m.op("Pad", x, m.ints(0, 0, dilation, 0, 0, 0))
        y = m.op("Conv", past, m.weight(24, 12, 2), m.weight(24), kernel_shape=[2], dilations=[dilation])
        filtered, gate = m.op("Split", y, m.ints(12, 12), axis=1, outputs=2)
        y = m.op("Mul", m.op("Tanh", filtered), m.op("Sigmoid", gate))
        skips.append(m.op("Conv", y, m.weight(8, 12, 1), kernel_shape=[1]))
        x = m.op("Add", x, m.op("Conv", y, m.weight(12, 12, 1), kernel_shape=[1]))
    y = m.op("Relu", m.op("Sum", *skips))
    return m.finish(m.op("Softmax", m.op("Conv", y, m.weight(16, 8, 1), m.weight(16), kernel_shape=[1]), axis=1))


def spectrum():
    """A front end of STFT, mel bands and logarithms, and a classifier of what it finds."""
    m = Maker(17)
    x = m.floats(1, 480, 1)
    window = m.op("HannWindow", m.constant(np.array(64, np.int64)))
    x = m.op("STFT", x, m.constant(np.array(32, np.int64)), window, m.constant(np.array(64, np.int64)), onesided=1)
    power = m.op("ReduceSum", m.op("Mul", x, x), m.ints(3), keepdims=0)
    bands = [m.constant(np.array(v, t)) for v, t in [(10, np.int64), (64, np.int64), (8000, np.int64), (20.0, np.float32), (4000.0, np.float32)]]
    mel = m.op("MatMul", power, m.op("MelWeightMatrix", *bands))
    x = m.op("Log", m.op("Max", mel, m.constant(1e-6)))
    mean = m.op("ReduceMean", x, axes=[1])
    x = m.op("Unsqueeze", m.op("Sub", x, mean), m.ints(1))
    return m.finish(pooled(m, m.conv(x, 1, 8), 8), mel)


# ---- language models ----


def llama_with_cache(new, past):
    """Queries of more heads than keys, by onnxruntime's own operator, and weights of 4 bits."""
    m = Maker(17)
    x = m.floats(1, new, 64)

    def packed(x, k, n):
        blocks = k // 32
        b = m.constant(m.rng.integers(0, 256, (n, blocks, 16)).astype(np.uint8))
        scales = m.constant(m.rng.uniform(0.005, 0.02, n * blocks).astype(np.float32))
        return m.op("MatMulNBits", x, b, scales, K=k, N=n, bits=4, block_size=32, domain="com.microsoft")

    h = m.op("SimplifiedLayerNormalization", x, m.weight(64, size=1.0), axis=-1, epsilon=1e-5)
    q, k, v = packed(h, 64, 64), packed(h, 64, 32), packed(h, 64, 32)
    caches = [m.floats(1, 2, past, 16) for _ in range(2)]
    angles = np.arange(32)[:, None] * 100 ** (-np.arange(8) / 8)[None]
    cos, sin = (m.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    lengths = m.input(np.array([[past + new - 1]], np.int32))
    total = m.input(np.array(past + new, np.int32))
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "domain": "com.microsoft"}
    y, keys, values = m.op("GroupQueryAttention", q, k, v, *caches, lengths, total, cos, sin, outputs=3, **attributes)
    y = packed(y, 64, 64)
    y, _, _, x = m.op("SkipSimplifiedLayerNormalization", y, x, m.weight(64, size=1.0), outputs=4, epsilon=1e-5, domain="com.microsoft")
    gate, up = packed(y, 64, 128), packed(y, 64, 128)
    y = packed(m.op("Mul", m.op("Mul", gate, m.op("Sigmoid", gate)), up), 128, 64)
    return m.finish(m.op("Add", x, y), keys, values)


def gemma():
    """As jax's exporters leave it: einsums, norms around 1 + scale, tanh's GELU, capped scores."""
    m = Maker(17)
    x = m.floats(2, 7, 32)

    def norm(x):
        mean = m.op("ReduceMean", m.op("Mul", x, x), axes=[-1])
        x = m.op("Mul", x, m.op("Div", m.constant(1.0), m.op("Sqrt", m.op("Add", mean, m.constant(1e-6)))))
        return m.op("Mul", x, m.op("Add", m.constant(1.0), m.weight(32)))

    h = norm(x)
    q, k, v = (m.op("Einsum", h, m.weight(4, 32, 8), equation="btd,ndh->btnh") for _ in range(3))
    s = m.op("Einsum", m.op("Mul", q, m.constant(8**-0.5)), k, equation="btnh,bsnh->bnts")
    s = m.op("Mul", m.op("Tanh", m.op("Div", s, m.constant(5.0))), m.constant(5.0))
    seen = m.constant(np.tril(np.ones((1, 1, 7, 7), bool)))
    s = m.op("Where", seen, s, m.constant(-2.3819763e38))
    s = m.op("Exp", m.op("Sub", s, m.op("ReduceMax", s, axes=[-1])))
    p = m.op("Div", s, m.op("ReduceSum", s, m.ints(-1)))
    y = m.op("Einsum", p, v, equation="bnts,bsnh->btnh")
    x = m.op("Add", x, m.op("Einsum", y, m.weight(4, 8, 32), equation="btnh,nhd->btd"))
    h = norm(x)
    gate, up = m.op("MatMul", h, m.weight(32, 64)), m.op("MatMul", h, m.weight(32, 64))
    cube = m.op("Mul", m.op("Mul", gate, gate), gate)
    t = m.op("Tanh", m.op("Mul", m.constant(0.7978846), m.op("Add", gate, m.op("Mul", m.constant(0.044715), cube))))
    gate = m.op("Mul", m.op("Mul", m.constant(0.5), gate), m.op("Add", m.constant(1.0), t))
    return m.finish(m.op("Add", x, m.op("MatMul", m.op("Mul", gate, up), m.weight(64, 32))))


def keras_transformer():
    """As tf2onnx leaves it: shapes computed, biases by Add before the reshape, moments by SquaredDifference's parts."""
    m = Maker(15)
    x = m.floats(3, 6, 16, open=["batch", 6, 16])
    batch = m.op("Slice", m.op("Shape", x), m.ints(0), m.ints(1), m.ints(0))
    shape = m.op("Concat", batch, m.ints(6, 2, 8), axis=0)

    def heads(x, turned):
        y = m.op("MatMul", m.op("Reshape", x, m.ints(-1, 16)), m.weight(16, 16))
        return m.op("Transpose", m.op("Reshape", m.op("Add", y, m.weight(16)), shape), perm=turned)

    q, k, v = heads(x, [0, 2, 1, 3]), heads(x, [0, 2, 3, 1]), heads(x, [0, 2, 1, 3])
    s = m.op("Mul", m.op("MatMul", q, k), m.constant(8**-0.5))
    y = m.op("Transpose", m.op("MatMul", m.op("Softmax", s, axis=3), v), perm=[0, 2, 1, 3])
    y = m.op("Reshape", y, m.op("Concat", batch, m.ints(6, 16), axis=0))
    y = m.op("Add", x, m.linear(y, 16, 16))
    mean = m.op("ReduceMean", y, axes=[2])
    d = m.op("Sub", y, mean)
    variance = m.op("ReduceMean", m.op("Mul", d, d), axes=[2])
    factor = m.op("Mul", m.op("Reciprocal", m.op("Sqrt", m.op("Add", variance, m.constant(1e-3)))), m.weight(16, size=1.0))
    y = m.op("Add", m.op("Mul", y, factor), m.op("Sub", m.weight(16), m.op("Mul", mean, factor)))
    return m.finish(m.op("Elu", m.linear(m.op("ReduceMean", y, axes=[1], keepdims=0), 16, 3)))


# ---- control flow and quantisation ----


def branches():
    """An If that the data decides, with a subgraph that reads from outside."""
    m = Maker(13)
    x = m.floats(4, 4)
    info, node = helper.make_tensor_value_info, helper.make_node
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    then = helper.make_graph([node("Mul", [x, "half"], ["a"]), node("Exp", ["a"], ["t"])], "then", [], [info("t", TensorProto.FLOAT, None)], [half])
    other = helper.make_graph([node("ReduceSum", [x], ["e"], keepdims=0)], "else", [], [info("e", TensorProto.FLOAT, None)])
    large = m.op("Greater", m.op("ReduceMax", x, keepdims=0), m.constant(10.0))
    y = m.op("If", large, then_branch=then, else_branch=other)
    return m.finish(m.op("Neg", y))


def quantised_operators():
    """QLinear operators, as onnxruntime's static quantiser writes them."""
    m = Maker(13)
    s = lambda v: m.constant(v)  # noqa: E731
    z = lambda v, t=np.uint8: m.constant(np.array(v, t))  # noqa: E731
    x = m.op("QuantizeLinear", m.floats(1, 3, 12, 12), s(0.03), z(128))
    w = m.constant(m.rng.integers(-64, 64, (8, 3, 3, 3)).astype(np.int8))
    bias = m.constant(m.rng.integers(-500, 500, 8).astype(np.int32))
    scales = m.constant(m.rng.uniform(0.005, 0.01, 8).astype(np.float32))
    a = m.op("QLinearConv", x, s(0.03), z(128), w, scales, m.constant(np.zeros(8, np.int8)), s(0.04), z(110), bias, kernel_shape=[3, 3], pads=[1] * 4)
    b = m.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2])
    y = m.op("QLinearAdd", b, s(0.04), z(110), b, s(0.04), z(110), s(0.09), z(100), domain="com.microsoft")
    y = m.op("QLinearGlobalAveragePool", y, s(0.09), z(100), s(0.05), z(120), domain="com.microsoft")
    y = m.op("Reshape", y, m.ints(1, 8))
    w = m.constant(m.rng.integers(-64, 64, (8, 5)).astype(np.int8))
    y = m.op("QLinearMatMul", y, s(0.05), z(120), w, s(0.02), z(0, np.int8), s(0.1), z(128))
    return m.finish(m.op("DequantizeLinear", y, s(0.1), z(128)), a)


FAMILIES = {
    f.__name__: f
    for f in (
        resnet, nsfw, mobilenet_v2, mobilenet_v3, efficientnet, densenet, inception, shufflenet, vit, u_net, super_resolution, style_transfer,
        gan, yolo, ssd, crnn, ctc_ocr, attention_ocr, whisper, wavenet, spectrum, gemma, keras_transformer, branches,
        quantised_operators,
    )
} | {"llama, a prompt": lambda: llama_with_cache(5, 0), "llama, a token": lambda: llama_with_cache(1, 9)}


def compare(got, right, most):
    for g, w in zip(got, right, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind != "f":
            # A quantised value may round to its neighbour.
            near = 1 if w.dtype == np.uint8 else 0
            assert (np.abs(g.astype(np.int64) - w) <= near).all()
            continue
        size = max(np.abs(w).max(initial=0), 1e-30)
        assert np.abs(g - w).max(initial=0) / size < most


@pytest.mark.parametrize("device", ["emu:gfx942", "emu:gfx1100"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_of_the_family_is_as_onnxruntime_has_it(name, device, monkeypatch):
    monkeypatch.setenv("BAREWAVE_CACHE", "off")
    model, feeds = FAMILIES[name]()
    data = model.SerializeToString()
    right = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    got = barewave.InferenceSession(data, device=device, strict=True).run(None, feeds)
    compare(got, right, 2e-2 if "quantised" in name else 1e-4)


def pipelines():
    """Fitted estimators of scikit-learn, and their exports."""
    pytest.importorskip("skl2onnx")
    from skl2onnx import to_onnx
    from sklearn.ensemble import GradientBoostingRegressor, IsolationForest, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
    from sklearn.svm import SVC

    rng = np.random.default_rng(5)
    x = rng.standard_normal((120, 4)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0.2).astype(np.int64)
    for fitted in (
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(MinMaxScaler(), RandomForestClassifier(8, max_depth=4, random_state=1)),
        make_pipeline(PolynomialFeatures(2), LogisticRegression()),
        make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=60, random_state=1)),
        SVC(kernel="rbf", probability=False),
        GradientBoostingRegressor(n_estimators=10, random_state=1),
        KNeighborsClassifier(3),
        IsolationForest(n_estimators=5, random_state=1),
    ):
        options = {"zipmap": False} if hasattr(fitted, "predict_proba") else {}
        exported = to_onnx(fitted.fit(x, y), x[:1], options={id(fitted): options} if options else None, target_opset={"": 17, "ai.onnx.ml": 3})
        yield exported.SerializeToString(), {exported.graph.input[0].name: x[:33]}


def test_probabilities_are_dictionaries_as_onnxruntime_has_them(monkeypatch):
    pytest.importorskip("skl2onnx")
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setenv("BAREWAVE_CACHE", "off")
    x = np.random.default_rng(2).standard_normal((40, 3)).astype(np.float32)
    for y in ((x[:, 0] > 0).astype(np.int64), np.where(x[:, 0] > 0.5, "yes", np.where(x[:, 1] > 0, "perhaps", "no"))):
        data = to_onnx(LogisticRegression().fit(x, y), x[:1], target_opset={"": 17, "ai.onnx.ml": 3}).SerializeToString()
        label, right = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"X": x[:7]})
        named, got = barewave.InferenceSession(data, device="emu:gfx942", strict=True).run(None, {"X": x[:7]})
        assert (named == label).all() and len(got) == len(right)
        for g, w in zip(got, right):
            assert list(g) == list(w) and np.allclose(list(g.values()), list(w.values()), atol=1e-5)


def test_pipelines_of_scikit_learn(monkeypatch):
    monkeypatch.setenv("BAREWAVE_CACHE", "off")
    for data, feeds in pipelines():
        right = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
        got = barewave.InferenceSession(data, device="emu:gfx942", strict=True).run(None, feeds)
        compare(got, right, 1e-4)
