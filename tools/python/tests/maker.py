"""Models under construction, made as exporters write them, with seeded weights."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Maker:
    """A model under construction: names values, and keeps weights and inputs."""

    def __init__(self, opset=14):
        self.nodes, self.inputs, self.weights, self.feeds = [], [], [], {}
        self.opset, self.count = opset, 0
        self.rng = np.random.default_rng(11)

    def name(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    def op(self, op, *inputs, outputs=1, **attributes):
        names = [self.name("v") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value, dtype=np.float32):
        name = self.name("c")
        array = np.asarray(value, dtype) if not isinstance(value, np.ndarray) else value
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values):
        return self.constant(values, np.int64)

    def weight(self, *shape, size=None):
        fan = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
        return self.constant((self.rng.standard_normal(shape) * (size or fan**-0.5)).astype(np.float32))

    def input(self, value, shape=None):
        name = self.name("x")
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape or value.shape))
        self.feeds[name] = value
        return name

    def floats(self, *shape, open=None):
        return self.input(self.rng.standard_normal(shape).astype(np.float32), open)

    def finish(self, *outputs):
        infos = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs]
        for info in infos:
            info.ClearField("type")
        graph = helper.make_graph(self.nodes, "family", self.inputs, infos, self.weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(model)
        known = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.output]}
        for o in model.graph.output:
            # What onnx knows nothing of are operators of onnxruntime's on floats.
            o.type.CopyFrom(known[o.name].type if o.name in known else helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        return model, self.feeds

    # ---- blocks ----

    def conv(self, x, cin, cout, k=3, act="Relu", bias=True, **attributes):
        group = attributes.get("group", 1)
        dilation = attributes.get("dilations", [1, 1])[0]
        pad = dilation * (k // 2)
        attributes.setdefault("pads", [pad] * 4)
        w = [self.weight(cout, cin // group, k, k)] + ([self.weight(cout, size=0.1)] if bias else [])
        y = self.op("Conv", x, *w, kernel_shape=[k, k], **attributes)
        return self.op(act, y) if act else y

    def batch_norm(self, x, channels):
        scale, bias, mean = self.weight(channels, size=1.0), self.weight(channels, size=0.2), self.weight(channels, size=0.2)
        variance = self.constant(self.rng.uniform(0.5, 1.5, channels).astype(np.float32))
        return self.op("BatchNormalization", x, scale, bias, mean, variance)

    def linear(self, x, cin, cout):
        return self.op("Add", self.op("MatMul", x, self.weight(cin, cout)), self.weight(cout, size=0.1))

    def layer_norm(self, x, width, form=0):
        """As exporters before opset 17 write it: torch, keras, by a reciprocal."""
        mean = self.op("ReduceMean", x, axes=[-1])
        d = self.op("Sub", x, mean)
        square = self.op("Mul", d, d) if form == 1 else self.op("Pow", d, self.constant(2.0))
        deviation = self.op("Sqrt", self.op("Add", self.op("ReduceMean", square, axes=[-1]), self.constant(1e-5)))
        y = self.op("Mul", d, self.op("Reciprocal", deviation)) if form == 2 else self.op("Div", d, deviation)
        return self.op("Add", self.op("Mul", y, self.weight(width, size=1.0)), self.weight(width, size=0.2))

    def rms_norm(self, x, width):
        square = self.op("ReduceMean", self.op("Pow", x, self.constant(2.0)), axes=[-1])
        scale = self.op("Reciprocal", self.op("Sqrt", self.op("Add", square, self.constant(1e-6))))
        return self.op("Mul", self.weight(width, size=1.0), self.op("Mul", x, scale))

    def gelu(self, x):
        e = self.op("Erf", self.op("Div", x, self.constant(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", e, self.constant(1.0))), self.constant(0.5))

    def heads(self, x, count, size, turned=(0, 2, 1, 3)):
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, -1, count, size)), perm=list(turned))

    def attention(self, q, k, v, count, size, mask=None):
        """Of `[batch, tokens, width]`."""
        q, k, v = self.heads(q, count, size), self.heads(k, count, size, (0, 2, 3, 1)), self.heads(v, count, size)
        return self.merged(self.scores(q, k, v, size, mask), count * size)

    def scores(self, q, k, v, size, mask=None):
        s = self.op("Div", self.op("MatMul", q, k), self.constant(size**0.5))
        s = self.op("Add", s, mask) if mask else s
        return self.op("MatMul", self.op("Softmax", s, axis=-1), v)

    def merged(self, x, width):
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.ints(0, -1, width))
