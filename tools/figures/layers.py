"""Prints how far layers of well-known networks are from what bounds them, by the cycle model: those that are furthest first.

The bound of a layer is what its multiply-adds take at the peak of the target's best instruction for the type, or what its operands and results take at the
bandwidth that kernels reach, whichever is longer, and one launch. It knows nothing of caches, and of how many workgroups there are: small layers
cannot reach it, and a factor tells where to look, not what is wrong.

    python3 tools/figures/layers.py [--barewave target/release/barewave] [--targets gfx906,gfx942,gfx1100] [--only PART OF A NAME] [--above 1.5]

Needs numpy.
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
from chips import bandwidths, constants  # noqa: E402

TYPES = {"f32": np.float32, "f16": np.float16}


class Layer:
    """A graph that counts the bytes of what it reads and writes, and the operations of its products."""

    def __init__(self, dtype):
        self.dtype, self.graph, self.bytes, self.operations, self.names = dtype, Graph("layer", opset=21), 0, 0, 0

    def name(self):
        self.names += 1
        return f"t{self.names}"

    def count(self, shape, dtype):
        self.bytes += int(np.prod(shape)) * np.dtype(dtype).itemsize

    def input(self, *shape):
        name = self.name()
        self.graph.input(name, shape, self.dtype)
        self.count(shape, self.dtype)
        return name

    def weight(self, *shape):
        values = np.random.default_rng(self.names).standard_normal(shape, np.float32) / 16
        self.count(shape, self.dtype)
        return self.constant(values.astype(self.dtype))

    def constant(self, array):
        name = self.name()
        self.graph.weight(name, np.asarray(array))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def node(self, op, *inputs, outputs=1, **attributes):
        names = [self.name() for _ in range(outputs)]
        self.graph.node(op, list(inputs), names, **attributes)
        return names if outputs > 1 else names[0]

    def output(self, name, shape, dtype=None):
        self.graph.output(name, shape, dtype or self.dtype)
        self.count(shape, dtype or self.dtype)


def convolution(image, channels, window, stride=1, pad=None, groups=1, dilation=1, batch=1, silu=False):
    """`image`: channels and extents. `window`: an extent for each of these, or one for all."""

    def make(l):
        inputs, *extents = image
        kernel = [window] * len(extents) if isinstance(window, int) else window
        pads = [(k - 1) * dilation // 2 if pad is None else pad for k in kernel]
        x, w, b = l.input(batch, *image), l.weight(channels, inputs // groups, *kernel), l.weight(channels)
        y = l.node("Conv", x, w, b, strides=[stride] * len(kernel), pads=pads * 2, group=groups, dilations=[dilation] * len(kernel))
        if silu:
            y = l.node("Mul", y, l.node("Sigmoid", y))
        out = [(e + 2 * p - (k - 1) * dilation - 1) // stride + 1 for e, p, k in zip(extents, pads, kernel)]
        l.output(y, [batch, channels, *out])
        l.operations += 2 * batch * channels * int(np.prod(out)) * inputs // groups * int(np.prod(kernel))

    return make


def transposed(image, channels, window, stride, pad, batch=1):
    def make(l):
        inputs, *extents = image
        rank = len(extents)
        y = l.node("ConvTranspose", l.input(batch, *image), l.weight(inputs, channels, *[window] * rank),
                   strides=[stride] * rank, pads=[pad] * 2 * rank)
        l.output(y, [batch, channels, *[(e - 1) * stride + window - 2 * pad for e in extents]])
        l.operations += 2 * batch * int(np.prod(image)) * channels * window**rank

    return make


def product(*shape, computed=False):
    """Batches, rows, depth and columns; the second factor is a weight unless it is computed."""

    def make(l):
        *batch, rows, depth, columns = shape
        factor = l.input(*batch, depth, columns) if computed else l.weight(depth, columns)
        l.output(l.node("MatMul", l.input(*batch, rows, depth), factor), [*batch, rows, columns])
        l.operations += 2 * int(np.prod(batch)) * rows * depth * columns

    return make


def attention(batch, heads, queries, keys, size, mask=False):
    def make(l):
        q, k, v = l.input(batch, heads, queries, size), l.input(batch, heads, keys, size), l.input(batch, heads, keys, size)
        scores = l.node("MatMul", q, l.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = l.node("Mul", scores, l.constant(np.array(size**-0.5, l.dtype)))
        if mask:
            scores = l.node("Add", scores, l.input(1, heads, queries, keys))
        l.output(l.node("MatMul", l.node("Softmax", scores, axis=-1), v), [batch, heads, queries, size])
        l.operations += 4 * batch * heads * queries * keys * size

    return make


def of(shape, make, output=None, dtype=None):
    """One input, and what `make` computes of it."""

    def layer(l):
        l.output(make(l, l.input(*shape)), shape if output is None else output, dtype)

    return layer


def squeeze(l, x, channels, few):
    y = l.node("GlobalAveragePool", x)
    y = l.node("Relu", l.node("Conv", y, l.weight(few, channels, 1, 1)))
    return l.node("Mul", x, l.node("Sigmoid", l.node("Conv", y, l.weight(channels, few, 1, 1))))


def begun(l, x, channels, to):
    """A convolution of points behind batch normalisation and its activation."""
    ones = l.constant(np.ones(channels, l.dtype))
    y = l.node("Relu", l.node("BatchNormalization", x, l.weight(channels), l.weight(channels), l.weight(channels), ones))
    return l.node("Conv", y, l.weight(to, channels, 1, 1))


def regions(l, x, count=1000, extent=50):
    """RoiAlign of boxes that lie anywhere in an image."""
    corners = np.random.default_rng(1).uniform(0, extent * 0.8, (count, 4))
    corners[:, 2:] += corners[:, :2]
    boxes, images = l.constant(corners.astype(l.dtype)), l.constant(np.zeros(count, np.int64))
    return l.node("RoiAlign", x, boxes, images, output_height=7, output_width=7, sampling_ratio=2, spatial_scale=1.0)


def last_layer(rows, depth, columns):
    """Weights lie along the depth."""

    def make(l):
        y = l.node("Gemm", l.input(rows, depth), l.weight(columns, depth), l.weight(columns), transB=1)
        l.output(y, [rows, columns])
        l.operations += 2 * rows * depth * columns

    return make


def shifted(l, x, by=3):
    """Windows of 7x7 of a channels-last image that is shifted around its edges."""
    for axis in (1, 2):
        cut = lambda begin, end: l.node("Slice", x, l.ints(begin), l.ints(end), l.ints(axis))  # noqa: B023, E731
        x = l.node("Concat", cut(by, 1 << 20), cut(0, by), axis=axis)
    x = l.node("Reshape", x, l.ints(1, 8, 7, 8, 7, 96))
    return l.node("Reshape", l.node("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), l.ints(64, 49, 96))


def best(k):
    return lambda l, x: l.node("TopK", x, l.ints(k), outputs=2)[0]


def recurrent(op, steps, batch, inputs, units, gates):
    def make(l):
        y = l.node(op, l.input(steps, batch, inputs), l.weight(1, gates * units, inputs), l.weight(1, gates * units, units), hidden_size=units)
        l.output(y, [steps, 1, batch, units])
        l.operations += 2 * steps * batch * gates * units * (inputs + units)

    return make


def fourier(lines, n):
    return of([lines, n, 1], lambda l, x: l.node("DFT", x, onesided=1), [lines, n // 2 + 1, 2])


def frames(samples, n, step):
    def make(l, x):
        return l.node("STFT", x, l.constant(np.array(step, np.int64)), l.weight(n), l.constant(np.array(n, np.int64)), onesided=1)

    return of([1, samples, 1], make, [1, (samples - n) // step + 1, n // 2 + 1, 2])


# Name, types, layer.
BOTH, SINGLE = ["f16", "f32"], ["f32"]
LAYERS = [
    *[(f"Stable Diffusion, 3x3 of {c} channels, {e}x{e}", BOTH, convolution([c, e, e], min(c, 1280), 3, batch=2))
      for c, e in [(320, 64), (640, 32), (1280, 16), (2560, 16)]],
    ("its decoder, 3x3 of 256 channels, 256x256", BOTH, convolution([256, 256, 256], 256, 3)),
    ("its decoder, last 3x3", BOTH, convolution([128, 512, 512], 3, 3)),
    ("ViT, patches", BOTH, convolution([3, 224, 224], 768, 16, 16, 0)),
    ("MobileNet, 3x3 of 96 channels apart by two, 112x112", BOTH, convolution([96, 112, 112], 96, 3, 2, groups=96)),
    ("EfficientNet, 5x5 of 672 channels apart, 14x14", BOTH, convolution([672, 14, 14], 672, 5, groups=672, silu=True)),
    ("EfficientNet, 5x5 of 240 channels apart, 28x28, 32 images", BOTH, convolution([240, 28, 28], 240, 5, groups=240, batch=32)),
    ("ConvNeXt, 7x7 of 384 channels apart, 14x14, 16 images", BOTH, convolution([384, 14, 14], 384, 7, groups=384, batch=16)),
    ("ResNeXt, 3x3 of 32 groups of 8, 28x28, 16 images", BOTH, convolution([256, 28, 28], 256, 3, groups=32, batch=16)),
    ("Conformer, window of 31 of 512 channels apart, 16 lines of 1000", BOTH, convolution([512, 1000], 512, 31, groups=512, batch=16)),
    ("ConvNeXt of lines, 7 of 384 channels apart, 8 lines of 2000", BOTH, convolution([384, 2000], 384, 7, groups=384, batch=8)),
    ("MoViNet, 5x1x1 of 240 channels apart, 8x28x28", BOTH, convolution([240, 8, 28, 28], 240, [5, 1, 1], groups=240)),
    ("X3D, 3x3x3 of 54 channels apart, 13x56x56, 8 images", BOTH, convolution([54, 13, 56, 56], 54, 3, groups=54, batch=8)),
    ("DenseNet, 1x1 of 256 normalised channels, 56x56, 16 images", BOTH, of([16, 256, 56, 56], lambda l, x: begun(l, x, 256, 128), [16, 128, 56, 56])),
    ("YOLO, first 3x3 by two", BOTH, convolution([3, 640, 640], 32, 3, 2, silu=True)),
    ("YOLO, 3x3 of 512 channels, 20x20", BOTH, convolution([512, 20, 20], 512, 3, silu=True)),
    ("Whisper, window of 3 by two, 512 channels", BOTH, convolution([512, 3000], 512, 3, 2)),
    ("wav2vec 2, first window of 10 by five", BOTH, convolution([1, 160000], 512, 10, 5, 0)),
    ("wav2vec 2, window of 128, 16 groups", BOTH, convolution([768, 499], 768, 128, pad=64, groups=16)),
    ("WaveNet, window of 2, dilated by 512", BOTH, convolution([64, 16000], 64, 2, pad=0, dilation=512)),
    ("video, 3x3x3 of 64 channels, 16x56x56", BOTH, convolution([64, 16, 56, 56], 64, 3)),
    ("SRCNN, 9x9 to 3 channels", BOTH, convolution([64, 256, 256], 3, 9)),
    ("digits, 5x5 of one channel, 256 images", BOTH, convolution([1, 28, 28], 8, 5, batch=256)),
    ("HiFi-GAN, window of 16 up by 8", BOTH, transposed([512, 100], 256, 16, 8, 4)),
    ("UNet, 2x2 up by two", BOTH, transposed([512, 32, 32], 256, 2, 2, 0)),
    ("DCGAN, 4x4 up by two, 64 images", BOTH, transposed([512, 8, 8], 256, 4, 2, 1, batch=64)),
    ("FSRCNN, 9x9 up by three to one channel", BOTH, transposed([56, 100, 100], 1, 9, 3, 4)),
    *[(f"product {' x '.join(map(str, s))}", BOTH, product(*s))
      for s in [(197, 768, 3072), (1, 4096, 32000), (8, 4096, 11008), (2048, 13, 512), (1000000, 3, 3), (3, 1000000, 3)]],
    *[(f"last layer {' x '.join(map(str, s))}", BOTH, last_layer(*s)) for s in [(1, 2048, 1000), (1, 768, 768), (8, 1280, 1000)]],
    *[(f"{b} products {' x '.join(map(str, s))}", BOTH, product(b, *s, computed=True))
      for b, *s in [(10000, 4, 4, 4), (2048, 27, 16, 27), (192, 49, 49, 32)]],
    ("Stable Diffusion, attention of 4096 tokens", BOTH, attention(2, 8, 4096, 4096, 40)),
    ("Stable Diffusion, attention to 77 tokens", BOTH, attention(2, 8, 4096, 77, 40)),
    ("ViT, attention, 64 images", BOTH, attention(64, 12, 197, 197, 64)),
    ("Swin, windows of 49, 8 images", BOTH, attention(512, 3, 49, 49, 32, mask=True)),
    ("32 tokens of as many sequences to 2048", BOTH, attention(32, 32, 1, 2048, 128)),
    ("squeeze and excitation, 672 channels of 14x14", BOTH, of([1, 672, 14, 14], lambda l, x: squeeze(l, x, 672, 28))),
    ("Swin, windows of a shifted image", BOTH, of([1, 56, 56, 96], shifted, [64, 49, 96])),
    ("bicubic, twice as large", BOTH,
     of([1, 3, 512, 512], lambda l, x: l.node("Resize", x, "", "", l.ints(1, 3, 1024, 1024), mode="cubic"), [1, 3, 1024, 1024])),
    ("RoiAlign of 1000 boxes, 7x7 of 256 channels of 50x50", BOTH, of([1, 256, 50, 50], regions, [1000, 256, 7, 7])),
    ("vocabulary, softmax of 64", BOTH, of([64, 50257], lambda l, x: l.node("Softmax", x, axis=-1))),
    ("vocabulary, best 50", BOTH, of([1, 32000], best(50), [1, 50])),
    ("vocabulary, best 50 of 64", BOTH, of([64, 32000], best(50), [64, 50])),
    ("YOLO, best 300", BOTH, of([1, 8400 * 80], best(300), [1, 300])),
    ("all of 65536 sorted", BOTH, of([1, 1 << 16], best(1 << 16), [1, 1 << 16])),
    ("segmentation, best of 21 classes", BOTH, of([1, 21, 512, 512], lambda l, x: l.node("ArgMax", x, axis=1), [1, 1, 512, 512], np.int64)),
    ("LSTM of 512 units, 100 steps", BOTH, recurrent("LSTM", 100, 1, 512, 512, 4)),
    ("LSTM of 128 units, 1000 steps", BOTH, recurrent("LSTM", 1000, 1, 80, 128, 4)),
    ("GRU of 256 units, 200 steps", BOTH, recurrent("GRU", 200, 1, 256, 256, 3)),
    *[(f"{lines} transforms of {n}", SINGLE, fourier(lines, n)) for lines, n in [(1024, 4096), (3000, 400), (1000, 1009)]],
    *[(f"frames of {n} by {step}", SINGLE, frames(samples, n, step)) for samples, n, step in [(480400, 400, 160), (2646000, 2048, 512)]],
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--barewave", default=ROOT / "target/release/barewave")
    parser.add_argument("--targets", default="gfx906,gfx942,gfx1100")
    parser.add_argument("--only", default="", metavar="PART", help="layers with this in their names")
    parser.add_argument("--above", type=float, default=1.5, help="what takes more than so many times its bound")
    args = parser.parse_args()
    reached, launches = bandwidths(), constants("launch_us")

    def bench(what, *more):
        run = subprocess.run([args.barewave, "bench", what, *more, "--json"], capture_output=True, text=True)
        if run.returncode:
            sys.exit(f"bench {what} {' '.join(more)}: {run.stderr.strip()}")
        return json.loads(run.stdout)

    def peak(target, kind):
        """Operations in a microsecond."""
        [row] = bench("gemm", "--target", target, "--dtype", kind, "--shape", "1024x1024x1024")
        return 2 * 1024**3 / row["microseconds"] / row["share_of_peak"]

    peaks = {(t, kind): peak(t, kind) for t in args.targets.split(",") for kind in TYPES}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/layer.onnx"
        for name, kinds, make in LAYERS:
            for kind in kinds if args.only in name else []:
                layer = Layer(np.dtype(TYPES[kind]))
                make(layer)
                layer.graph.save(file)
                for target in args.targets.split(","):
                    took = bench("model", file, "--target", target)["microseconds"]
                    bound = max(layer.operations / peaks[target, kind], layer.bytes / reached[target]) + launches[target]
                    found.append((took / bound, f"| {name} | {kind} | {target} | {took:.1f} | {bound:.1f} | {took / bound:.1f} |"))
    print("| layer | type | target | us | bound | times |\n|---|---|---|---|---|---|")
    for times, row in sorted(found, reverse=True):
        if times >= args.above:
            print(row)


if __name__ == "__main__":
    main()
