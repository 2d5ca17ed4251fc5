"""A model of one random operator, and the families of such models."""

import functools

import numpy as np
import onnx
from onnx import helper, numpy_helper

F32, F16, I32, I64, U8, I8 = np.float32, np.float16, np.int32, np.int64, np.uint8, np.int8
FAMILIES = {}


def saturates():
    """Whether onnxruntime's products of bytes are wrong here: without VNNI, x86 adds two products of a signed and an unsigned byte
    in 16 bits that saturate."""
    import onnxruntime

    x, w = np.full((1, 2), 255, U8), np.full((2, 1), 127, I8)
    case = Case(0)
    case.op("MatMulInteger", [case.input(x), case.input(w)])
    session = onnxruntime.InferenceSession(case.model(), providers=["CPUExecutionProvider"])
    return session.run(None, case.feeds)[0] != 2 * 255 * 127


@functools.cache
def full_range(dtype):
    """The least and the largest byte of a type that the judge multiplies right: signed ones lose a bit where it saturates."""
    if dtype == U8:
        return 0, 255
    return (-64, 63) if saturates() else (-128, 127)


def family(make):
    FAMILIES[make.__name__] = make
    return make


class Case:
    """A model of one operator under construction, with its feeds."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inputs, self.weights, self.feeds, self.outputs = [], [], [], {}, []
        self.opset, self.tolerance, self.domain = 17, 1e-4, ""

    def between(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def coin(self):
        return bool(self.rng.integers(2))

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def shape(self, rank=None, low=1, high=7):
        rank = self.between(0, 4) if rank is None else rank
        return [self.between(low, high) for _ in range(rank)]

    def array(self, shape, dtype=F32, low=-3, high=3):
        if np.issubdtype(dtype, np.floating):
            return (self.rng.random(shape) * (high - low) + low).astype(dtype)
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(bool)
        low = max(low, np.iinfo(dtype).min)
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def full(self, dtype, *shape):
        """Bytes over their whole range."""
        return self.array(shape, dtype, *full_range(dtype))

    def give(self, value, constant=None):
        """An input of the model or a constant of it."""
        value = np.asarray(value)
        name = f"x{len(self.inputs) + len(self.weights)}"
        if self.coin() if constant is None else constant:
            self.weights.append(numpy_helper.from_array(value, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            self.inputs.append(helper.make_tensor_value_info(name, kind, value.shape))
            self.feeds[name] = value
        return name

    def input(self, value):
        return self.give(value, False)

    def constant(self, value, dtype=None):
        return self.give(np.asarray(value, dtype), True)

    def ints(self, values):
        return self.constant(list(values), I64)

    def floats(self, *shape, low=-3, high=3, constant=False, dtype=F32):
        return self.give(self.array(shape, dtype, low, high), constant)

    def op(self, op, inputs, outputs=1, wanted=True, domain=None, **attributes):
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        attributes = {k: v for k, v in attributes.items() if v is not None and v != []}
        self.nodes.append(helper.make_node(op, inputs, names, domain=self.domain if domain is None else domain, **attributes))
        if wanted:
            self.outputs += names
        return names[0] if outputs == 1 else names

    def model(self):
        infos = [onnx.ValueInfoProto(name=o) for o in self.outputs]
        graph = helper.make_graph(self.nodes, "random", self.inputs, infos, self.weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx.ml", 3)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
