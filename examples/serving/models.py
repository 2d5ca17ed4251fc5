"""The model of the tests."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def scorer(path):
    """x[n,8] to softmax(x W), where n is open."""
    w = numpy_helper.from_array(np.random.default_rng(1).standard_normal((8, 3), dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["p"], axis=-1)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "scorer", [value("x", TensorProto.FLOAT, ["n", 8])], [value("p", TensorProto.FLOAT, ["n", 3])], [w]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


