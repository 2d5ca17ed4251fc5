"""Writes ONNX files: a protobuf encoder of sixty lines, so that the other tools need no `onnx` package.

    g = Graph("name", opset=17)
    g.input("x", [1, 1, 8, 8])
    g.weight("w", numpy_array)
    g.node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    g.output("y", [1, 16, 8, 8])
    g.save("model.onnx", metadata={"labels": "a,b"})
"""

import struct

import numpy as np

TYPES = {np.dtype("float32"): 1, np.dtype("uint8"): 2, np.dtype("int8"): 3, np.dtype("int32"): 6,
         np.dtype("int64"): 7, np.dtype("bool"): 9, np.dtype("float16"): 10, np.dtype("float64"): 11}
# What numpy has from ml_dtypes, by these names.
MORE = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20}


def number_of(dtype):
    """An element type as ONNX numbers it."""
    dtype = np.dtype(dtype)
    return MORE[dtype.name] if dtype.name in MORE else TYPES[dtype]


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    """One field: int as varint, float as fixed32, str/bytes with their length."""
    if isinstance(value, (int, np.integer)):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, array):
    array = np.asarray(array)
    array = array.reshape(array.shape, order="C")
    dims = b"".join(field(1, d) for d in array.shape)
    return dims + field(2, number_of(array.dtype)) + field(8, name) + field(9, array.tobytes())


def attribute(name, value):
    head = field(1, name)
    if isinstance(value, float):
        return head + field(2, value) + field(20, 1)
    if isinstance(value, int):
        return head + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return head + field(4, value) + field(20, 3)
    if isinstance(value, np.ndarray):
        return head + field(5, tensor("", value)) + field(20, 4)
    if all(isinstance(v, float) for v in value):
        return head + b"".join(field(7, v) for v in value) + field(20, 6)
    return head + b"".join(field(8, v) for v in value) + field(20, 7)


def value_info(name, shape, dtype):
    dims = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in shape)
    kind = field(1, number_of(dtype)) + field(2, dims)
    return field(1, name) + field(2, field(1, kind))


class Graph:
    def __init__(self, name, opset=17):
        self.name, self.opsets = name, {"": opset}
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []

    def input(self, name, shape, dtype="float32"):
        self.inputs.append(field(11, value_info(name, shape, dtype)))

    def output(self, name, shape, dtype="float32"):
        self.outputs.append(field(12, value_info(name, shape, dtype)))

    def weight(self, name, array):
        self.weights.append(field(5, tensor(name, array)))

    def node(self, op, inputs, outputs, name=None, domain="", **attributes):
        self.opsets.setdefault(domain, 1)
        body = b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs)
        body += field(3, name or outputs[0]) + field(4, op)
        body += b"".join(field(5, attribute(k, v)) for k, v in sorted(attributes.items())) + (field(7, domain) if domain else b"")
        self.nodes.append(field(1, body))

    def encode(self, metadata=None):
        graph = b"".join(self.nodes) + field(2, self.name) + b"".join(self.weights + self.inputs + self.outputs)
        model = field(1, 8) + field(2, "barewave tools") + field(7, graph)
        model += b"".join(field(8, field(1, domain) + field(2, version)) for domain, version in self.opsets.items())
        for k, v in sorted((metadata or {}).items()):
            model += field(14, field(1, k) + field(2, v))
        return model

    def save(self, path, metadata=None):
        data = self.encode(metadata)
        with open(path, "wb") as f:
            f.write(data)
        return len(data)
