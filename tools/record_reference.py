"""Makes the example models and records what onnxruntime computes with them and with the light_* models.

    python3 tools/record_reference.py examples            # examples/{vector_add,lenet,super_resolution}
    python3 tools/record_reference.py light WHEEL_OR_DIR  # tests/models/light_*.npz, needs the onnx package

The light_* models are real architectures with constant weights, part of the onnx 1.22 wheel (Apache-2.0). Constant weights
hide indexing errors, so they are replaced by seeded random ones; `Model::seed_weights` (src/onnx/seed.rs) specifies how,
and `seeded` below is the same in numpy. Inputs are `random:7` of the command line: uniform in [-1, 1) from the same
generator. What is recorded is float32 output of onnxruntime's CPU provider without graph optimisations.
"""

import glob
import os
import sys
import zipfile

import numpy as np

sys.path.insert(0, os.path.dirname(__file__))
from onnx_file import Graph  # noqa: E402

ROOT = os.path.join(os.path.dirname(__file__), "..")
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
SEEDED_FROM = 8
WEIGHT_SEED, INPUT_SEED = 1, 7


def unit(seed, count):
    """`count` draws of splitmix64 started at `seed`, as multiples of 2^-24 in [0, 1)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed & MASK) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float64) / (1 << 24)


def random_input(shape, seed=INPUT_SEED):
    return (2 * unit(seed, int(np.prod(shape))) - 1).astype(np.float32).reshape(shape)


def seeded(shapes, normalisation, seed=WEIGHT_SEED, gain=None):
    """Weights by name. `shapes`: name -> shape; `normalisation`: name -> which input of a BatchNormalization it is."""
    out = {}
    gain = gain or (3 if normalisation else 6)
    for i, name in enumerate(sorted(shapes, key=lambda n: n.encode())):
        shape = shapes[name]
        u = unit(seed + i * GOLDEN, int(np.prod(shape)))
        kind = normalisation.get(name)
        if kind in (1, 4):
            v = 0.5 + 1.0 * u
        elif kind == 3 or len(shape) < 2:
            v = -0.1 + 0.2 * u
        else:
            bound = np.sqrt(gain / np.prod(shape[1:]))
            v = -bound + 2 * bound * u
        out[name] = v.astype(np.float32).reshape(shape)
    return out


def run(model, feeds, outputs=None):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(outputs, feeds)


def seeded_model(model):
    """Puts seeded weights in the place of a model's own, in place."""
    import onnx
    from onnx import numpy_helper
    graph = model.graph
    initial = {t.name: t for t in graph.initializer}
    shapes, values = {}, {n: numpy_helper.to_array(t) for n, t in initial.items()}
    for name, value in values.items():
        if value.dtype == np.float32 and value.size >= SEEDED_FROM:
            shapes[name] = value.shape
    normalisation = {}
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in values:
            shape = tuple(int(d) for d in values[node.input[0]])
            kinds = [a.t.data_type for a in node.attribute if a.name == "value"]
            if (not kinds or kinds[0] == onnx.TensorProto.FLOAT) and np.prod(shape) >= SEEDED_FROM:
                shapes[node.output[0]] = shape
        if node.op_type == "BatchNormalization":
            for i, name in enumerate(node.input):
                normalisation.setdefault(name, i)
    weights = seeded(shapes, normalisation)
    nodes = [n for n in graph.node if not (n.op_type == "ConstantOfShape" and n.output[0] in weights)]
    del graph.node[:]
    graph.node.extend(nodes)
    kept = [t for t in graph.initializer if t.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(kept + [numpy_helper.from_array(w, n) for n, w in weights.items()])
    return model


def light(source):
    import onnx
    target = os.path.join(ROOT, "tests", "models")
    if os.path.isdir(source):
        files = {os.path.basename(p): open(p, "rb").read() for p in glob.glob(os.path.join(source, "light_*.onnx"))}
    else:
        wheel = zipfile.ZipFile(source)
        files = {os.path.basename(n): wheel.read(n) for n in wheel.namelist() if "/light_" in n and n.endswith(".onnx")}
    for file, data in sorted(files.items()):
        with open(os.path.join(target, file), "wb") as f:
            f.write(data)
        model = onnx.load_from_string(data)
        seeded_model(model)
        graph = model.graph
        initial = {t.name for t in graph.initializer}
        nodes = graph.node
        # The values before a final softmax say more than probabilities near 0 and 1.
        outputs = [o.name for o in graph.output]
        last = next(n for n in nodes if outputs[0] in n.output)
        if last.op_type == "Softmax":
            outputs.append(last.input[0])
            graph.output.append(onnx.helper.make_empty_tensor_value_info(last.input[0]))
        info = next(i for i in graph.input if i.name not in initial)
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        results = run(model.SerializeToString(), {info.name: random_input(shape)}, outputs)
        name = os.path.splitext(file)[0]
        record = {"output": results[0], "logits": results[-1]}
        np.savez_compressed(os.path.join(target, name + ".npz"), **record)
        logits = results[-1]
        print(f"{name:22} input {shape} logits mean {logits.mean():.4g} std {logits.std():.4g} "
              f"output max {results[0].max():.4g}")


def vector_add():
    g = Graph("vector_add")
    g.input("a", [1024])
    g.input("b", [1024])
    g.node("Add", ["a", "b"], ["sum"])
    g.output("sum", [1024])
    return g, {}


def lenet():
    """Conv(3,10,3) - Relu - MaxPool - Conv(10,10,5) - Relu."""
    w = seeded({"w1": (10, 3, 3, 3), "b1": (10,), "w2": (10, 10, 5, 5), "b2": (10,)}, {})
    g = Graph("lenet")
    g.input("image", [1, 3, 28, 28])
    for name, value in w.items():
        g.weight(name, value)
    g.node("Conv", ["image", "w1", "b1"], ["conv1"])
    g.node("Relu", ["conv1"], ["relu1"])
    g.node("MaxPool", ["relu1"], ["pool1"], kernel_shape=[2, 2], strides=[2, 2])
    g.node("Conv", ["pool1", "w2", "b2"], ["conv2"])
    g.node("Relu", ["conv2"], ["features"])
    g.output("features", [1, 10, 9, 9])
    return g, {}


def super_resolution(features=16, blocks=16):
    """37 convolutions, 64x64 to 256x256, in the manner of EDSR: head, 16 residual blocks of two, a closing one, two
    upsampling ones, an output one. The weights are random: it makes an image, not a good one. A nearest upsampling of the
    input is added, so that the result looks like it."""
    shapes = {}

    def conv(name, x, y, cin, cout, relu=False):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (cout, cin, 3, 3), (cout,)
        calls.append((name, x, y, relu))

    calls = []
    g = Graph("super_resolution", opset=17)
    g.input("image", [1, 3, 64, 64])
    conv("head", "image", "f0", 3, features)
    for i in range(blocks):
        conv(f"block{i}.a", f"f{i}", f"b{i}", features, features, relu=True)
        conv(f"block{i}.b", f"b{i}", f"c{i}", features, features)
        calls.append(("add", f"c{i}", f"f{i}", f"f{i + 1}"))
    conv("body", f"f{blocks}", "body", features, features)
    calls.append(("add", "body", "f0", "trunk"))
    conv("up1", "trunk", "u1", features, features * 4)
    calls.append(("shuffle", "u1", "s1"))
    conv("up2", "s1", "u2", features, features * 4)
    calls.append(("shuffle", "u2", "s2"))
    conv("tail", "s2", "detail", features, 3)
    for name, value in seeded(shapes, {}, gain=3).items():
        # Residual branches and the detail are kept small, as in a trained network.
        if name.endswith("weight"):
            value = value * np.float32(0.25 if ".b." in name else 0.05 if name.startswith("tail") else 1)
        g.weight(name, value.astype(np.float32))
    for c in calls:
        if c[0] == "add":
            g.node("Add", [c[1], c[2]], [c[3]])
        elif c[0] == "shuffle":
            g.node("DepthToSpace", [c[1]], [c[2]], blocksize=2, mode="CRD")
        else:
            name, x, y, relu = c
            out = y + ".raw" if relu else y
            g.node("Conv", [x, name + ".weight", name + ".bias"], [out], name=name, pads=[1, 1, 1, 1])
            if relu:
                g.node("Relu", [out], [y])
    g.weight("scales", np.array([1, 1, 4, 4], np.float32))
    g.node("Resize", ["image", "", "scales"], ["large"], mode="nearest",
           coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    g.node("Add", ["detail", "large"], ["sum"])
    g.weight("zero", np.array(0, np.float32))
    g.weight("one", np.array(1, np.float32))
    g.node("Clip", ["sum", "zero", "one"], ["result"])
    g.output("result", [1, 3, 256, 256])
    return g, {"image.color": "rgb", "image.mean": "0", "image.std": "1", "image.layout": "NCHW"}


def examples():
    from PIL import Image
    for make in (vector_add, lenet, super_resolution):
        g, metadata = make()
        directory = os.path.join(ROOT, "examples", g.name)
        os.makedirs(directory, exist_ok=True)
        size = g.save(os.path.join(directory, g.name + ".onnx"), metadata)
        print(f"{g.name}.onnx {size} bytes, {len(g.nodes)} nodes")
    # A test picture: smooth colours with edges and a disc.
    y, x = np.mgrid[0:64, 0:64] / 63
    picture = np.stack([x, y, 0.5 + 0.5 * np.sin(12 * x * y)], -1)
    picture[(x - 0.5) ** 2 + (y - 0.4) ** 2 < 0.05] = (1, 0.9, 0.2)
    pixels = np.round(picture * 255).astype(np.uint8)
    Image.fromarray(pixels).save(os.path.join(ROOT, "examples", "super_resolution", "picture.png"))
    image = (pixels.astype(np.float32) / 255).transpose(2, 0, 1)[None]
    path = os.path.join(ROOT, "examples", "super_resolution", "super_resolution.onnx")
    result, detail = run(path_with_output(path, "detail"), {"image": image}, ["result", "detail"])
    print(f"super resolution: detail std {detail.std():.4g}, result mean {result.mean():.4g}")
    np.savez_compressed(os.path.join(ROOT, "tests", "models", "super_resolution.npz"),
                        # Every third pixel: meets all phases of the upsampling, at a ninth of the size.
                        result=result[:, :, ::3, ::3])
    batch = np.concatenate([random_input((1, 3, 28, 28), seed) for seed in range(1000)])
    path = os.path.join(ROOT, "examples", "lenet", "lenet.onnx")
    features = np.concatenate([run_session(path, "image", b[None]) for b in batch])
    # Of each of the 1,000 results: sum, sum of squares and a weighted sum, enough to catch any wrong element.
    weights = np.arange(1, features[0].size + 1) / features[0].size
    flat = features.reshape(1000, -1).astype(np.float64)
    np.savez_compressed(os.path.join(ROOT, "tests", "models", "lenet.npz"), first=features[0],
                        sums=np.stack([flat.sum(1), (flat**2).sum(1), flat @ weights], 1))
    print(f"lenet: features std {features.std():.4g}, zeros {np.mean(features == 0):.3f}")


SESSIONS = {}


def run_session(path, name, value):
    import onnxruntime as ort
    if path not in SESSIONS:
        SESSIONS[path] = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return SESSIONS[path].run(None, {name: value})[0]


def path_with_output(path, name):
    """The model with one more output, serialised."""
    import onnx
    model = onnx.load(path)
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return model.SerializeToString()


if __name__ == "__main__":
    if sys.argv[1:2] == ["examples"]:
        examples()
    elif sys.argv[1:2] == ["light"] and len(sys.argv) == 3:
        light(sys.argv[2])
    else:
        sys.exit(__doc__)
