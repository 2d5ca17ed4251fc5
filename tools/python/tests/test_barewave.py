"""The package as programs use it; onnx makes the models and says what is right."""

import ast
import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import barewave

ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "..")
EXAMPLES = os.path.join(ROOT, "examples")
ADD = os.path.join(EXAMPLES, "vector_add", "vector_add.onnx")
DIGITS = os.path.join(EXAMPLES, "digits", "digits.onnx")


def model(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "made", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def mlp():
    rng = np.random.default_rng(1)
    w = [rng.standard_normal(s, dtype=np.float32) for s in [(8, 16), (16,), (16, 3)]]
    named = [onnx.numpy_helper.from_array(a, n) for a, n in zip(w, ["w1", "b1", "w2"])]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"], axis=-1),
        helper.make_node("ArgMax", ["p"], ["best"], axis=-1, keepdims=0),
    ]
    return model(nodes, [tensor("x", ["n", 8])], [tensor("p", ["n", 3]), tensor("best", ["n"], TensorProto.INT64)], named)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("BAREWAVE_CACHE", "off")



def test_sequences_come_out_as_lists():
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["rows"], axis=0),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("SplitToSequence", ["x"], ["columns"], axis=1),
    ]
    lists = [helper.make_tensor_sequence_value_info(n, TensorProto.FLOAT, None) for n in ["rows", "none", "columns"]]
    m = model(nodes, [tensor("x", ["n", 2])], [lists[0], tensor("r", ["n", 2]), *lists[1:]])
    s = barewave.InferenceSession(m, device="emu:gfx1100")
    assert [o.type for o in s.get_outputs()] == ["seq(tensor(float))", "tensor(float)", "seq(tensor(float))", "seq(tensor(float))"]
    for n in [3, 1]:
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2) - 1
        rows, r, none, columns = s.run(None, {"x": x})
        assert [a.tolist() for a in rows] == [[row] for row in x.tolist()] and none == []
        assert [a.tolist() for a in columns] == [x[:, :1].tolist(), x[:, 1:].tolist()]
        assert r.tolist() == np.maximum(x, 0).tolist() and s.run(["r"], {"x": x})[0].tolist() == r.tolist()


@pytest.mark.parametrize("strict", [False, True])
def test_sequences_and_optionals_go_in(strict):
    of_tensor = lambda name, kind: helper.make_tensor_type_proto(kind, None)  # noqa: E731
    lists = helper.make_tensor_sequence_value_info("rows", TensorProto.FLOAT, None)
    optional = helper.make_value_info("bias", helper.make_optional_type_proto(of_tensor("bias", TensorProto.FLOAT)))
    nodes = [
        helper.make_node("SequenceLength", ["rows"], ["n"]),
        helper.make_node("ConcatFromSequence", ["rows"], ["all"], axis=0),
        helper.make_node("OptionalHasElement", ["bias"], ["has"]),
    ]
    outputs = [tensor("n", [], TensorProto.INT64), tensor("all", None), tensor("has", [], TensorProto.BOOL)]
    s = barewave.InferenceSession(model(nodes, [lists, optional], outputs), device="emu:gfx1100", strict=strict)
    assert [i.type for i in s.get_inputs()] == ["seq(tensor(float))", "optional(tensor(float))"]
    for shapes in ([(2, 3), (1, 3)], [(4, 2)], [(1, 3), (5, 3)], [(2,), (1,), (0,)]):
        rows = [np.random.default_rng(len(e)).standard_normal(e, dtype=np.float32) for e in shapes]
        for bias in (None, np.ones(2, np.float32)):
            n, joined, has = s.run(None, {"rows": rows, "bias": bias})
            assert (n, has) == (len(rows), bias is not None) and np.array_equal(joined, np.concatenate(rows))
    assert s.run(["n"], {"rows": [[1.5, 2]], "bias": None})[0] == 1  # lists become what is declared
    with pytest.raises(barewave.BarewaveError, match=r"input rows, element 1 is float64, the model takes float32.*astype"):
        s.run(None, {"rows": [rows[0], np.zeros(2)], "bias": None})
    with pytest.raises(barewave.BarewaveError, match=r"input rows is of type seq\(tensor\(float\)\): give a list of arrays"):
        s.run(None, {"rows": rows[0], "bias": None})
    m = model([helper.make_node("SequenceLength", ["rows"], ["n"])], [lists], outputs[:1])
    s = barewave.InferenceSession(m, device="emu:gfx1100", strict=strict)
    assert [s.run(None, {"rows": rows[:k]})[0] for k in (3, 0, 1)] == [3, 0, 1]


@pytest.mark.parametrize("dtype", [None, "f16"])
def test_initializers_that_are_inputs_may_be_given(dtype):
    nodes = [helper.make_node("Mul", ["x", "scale"], ["m"]), helper.make_node("Reshape", ["m", "to"], ["y"])]
    defaults = [helper.make_tensor("scale", TensorProto.FLOAT, [1], [2]), helper.make_tensor("to", TensorProto.INT64, [1], [-1])]
    inputs = [tensor("scale", [1]), tensor("x", ["n", 4]), tensor("to", ["r"], TensorProto.INT64)]
    s = barewave.InferenceSession(model(nodes, inputs, [tensor("y", None)], defaults), device="emu:gfx1100", dtype=dtype)
    assert [i.name for i in s.get_inputs()] == ["x"]
    assert [i.name for i in s.get_overridable_initializers()] == ["scale", "to"]
    x, scale, to = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([-3], np.float32), np.array([4, 2])
    for _ in range(2):
        assert s.run(None, {"x": x})[0].tolist() == (x * 2).ravel().tolist()
        assert s.run(None, {"scale": scale, "x": x})[0].tolist() == (x * -3).ravel().tolist()
        assert s.run(None, {"to": to, "x": x, "scale": scale})[0].tolist() == (x * -3).reshape(4, 2).tolist()
    with pytest.raises(barewave.BarewaveError, match="input scale is float64, the model takes float32"):
        s.run(None, {"x": x, "scale": np.zeros(1)})


def test_strings_go_in_and_come_out():
    nodes = [
        helper.make_node("StringConcat", ["x", "end"], ["loud"]),
        helper.make_node("LabelEncoder", ["x"], ["number"], domain="ai.onnx.ml", keys_strings=["cat"], values_int64s=[7]),
    ]
    end = helper.make_tensor("end", TensorProto.STRING, [], [b"!"])
    kinds = {"loud": TensorProto.STRING, "number": TensorProto.INT64}
    m = model(nodes, [tensor("x", ["n"], TensorProto.STRING)], [tensor(n, ["n"], t) for n, t in kinds.items()], [end])
    m.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    session = barewave.InferenceSession(m, device="emu:gfx1100")
    assert [i.type for i in session.get_inputs()] == ["tensor(string)"]
    for x in (np.array(["cat", "größe"]), np.array(["cat", "größe"], object), ["cat", "größe"], np.array([b"cat", "größe".encode()])):
        loud, number = session.run(None, {"x": x})
        assert loud.dtype == object and loud.tolist() == ["cat!", "größe!"]
        assert number.tolist() == [7, -1]
    for wrong, word in ((np.zeros(2, np.float32), "the model takes str_"), (np.array([1, None], object), "of type int")):
        with pytest.raises(barewave.BarewaveError, match=word):
            session.run(None, {"x": wrong})


@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_session_is_right_for_any_shape(target):
    m = mlp()
    session = barewave.InferenceSession(m, device=f"emu:{target}", strict=True)
    assert session.target == target
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [("x", "tensor(float)", ["n", 8])]
    assert [o.type for o in session.get_outputs()] == ["tensor(float)", "tensor(int64)"]
    judge = ReferenceEvaluator(m)
    for n in [1, 5, 64, 1]:
        x = np.random.default_rng(n).standard_normal((n, 8), dtype=np.float32)
        p, best = session.run(None, {"x": x})
        want = judge.run(None, {"x": x})
        np.testing.assert_allclose(p, want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(best, want[1])
        assert best.dtype == np.int64 and p.flags.writeable
        np.testing.assert_array_equal(session.run(["best"], {"x": x})[0], best)


def test_arrays_of_every_kind():
    session = barewave.InferenceSession(ADD, device="emu:gfx1100")
    names = [i.name for i in session.get_inputs()]
    n = session.get_inputs()[0].shape[0]
    n = n if isinstance(n, int) else 7
    a, b = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
    want = a + b
    strided = np.repeat(a, 2)[::2]
    assert not strided.flags.c_contiguous
    for x in [a, strided, a.astype(">f4"), list(a), barewave.OrtValue(a) if hasattr(barewave, "OrtValue") else a]:
        x = np.asarray(x, np.float32) if isinstance(x, list) else x
        np.testing.assert_array_equal(session.run(None, dict(zip(names, [x, b])))[0], want)

    class OnlyDLPack:
        def __dlpack__(self, **options):
            return a.__dlpack__(**options)

        def __dlpack_device__(self):
            return a.__dlpack_device__()

    np.testing.assert_array_equal(session.run(None, dict(zip(names, [OnlyDLPack(), b])))[0], want)
    binding = session.io_binding()
    binding.bind_cpu_input(names[0], a)
    binding.bind_cpu_input(names[1], b)
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)


def test_scalars_and_empty_arrays():
    m = model([helper.make_node("Add", ["x", "y"], ["z"])], [tensor("x", []), tensor("y", ["n"])], [tensor("z", ["n"])])
    session = barewave.InferenceSession(m, device="emu:gfx906")
    (z,) = session.run(None, {"x": np.float32(2), "y": np.ones(3, np.float32)})
    np.testing.assert_array_equal(z, [3, 3, 3])
    (z,) = session.run(None, {"x": np.float32(2), "y": np.ones(0, np.float32)})
    assert z.shape == (0,)


def test_half_precision():
    nodes = [helper.make_node("MatMul", ["x", "y"], ["z"])]
    half = TensorProto.FLOAT16
    m = model(nodes, [tensor("x", [4, 32], half), tensor("y", [32, 5], half)], [tensor("z", [4, 5], half)])
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal(s).astype(np.float16) for s in [(4, 32), (32, 5)])
    (z,) = barewave.InferenceSession(m, device="emu:gfx942").run(None, {"x": x, "y": y})
    assert z.dtype == np.float16
    np.testing.assert_allclose(z, x.astype(np.float64) @ y.astype(np.float64), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("transposed", [0, 1])
def test_quantised_product_with_a_scale_per_column(transposed):
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 255, (4, 16), np.uint8), rng.integers(-127, 127, (16, 10), np.int8)
    s, bias = rng.random(10, np.float32) * 0.01, rng.integers(-500, 500, 10, np.int32)
    given = {
        "w": w.T.copy() if transposed else w,
        "xs": np.float32(0.02),
        "xz": np.uint8(128),
        "ws": s,
        "wz": np.zeros(10, np.int8),
        "c": bias,
    }
    node = helper.make_node(
        "QGemm", ["x", "xs", "xz", "w", "ws", "wz", "c"], ["y"], domain="com.microsoft", transB=transposed, alpha=1.0
    )
    named = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in given.items()]
    m = model([node], [tensor("x", [4, 16], TensorProto.UINT8)], [tensor("y", [4, 10])], named)
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    (y,) = barewave.InferenceSession(m, device="emu:gfx1100", strict=True).run(None, {"x": x})
    want = ((x.astype(np.int64) - 128) @ w.astype(np.int64) + bias) * (np.float64(np.float32(0.02)) * s)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def test_compiled_files_run(tmp_path):
    file = tmp_path / "digits.hsaco"
    code = barewave.compile(DIGITS, "rx7900xtx", output=file)
    assert file.read_bytes() == code and code[:4] == b"\x7fELF"
    assert [f.name for f in tmp_path.iterdir()] == ["digits.hsaco"]
    link = tmp_path / "link.hsaco"
    link.symlink_to(file)
    assert barewave.compile(DIGITS, "gfx906", output=link) == file.read_bytes() and link.is_symlink()
    barewave.compile(DIGITS, "rx7900xtx", output=file)
    with pytest.raises(barewave.BarewaveError, match="nowhere"):
        barewave.compile(DIGITS, "gfx906", output=tmp_path / "nowhere" / "x.hsaco")
    x = np.zeros((1, 1, 8, 8), np.float32)
    name = barewave.InferenceSession(DIGITS, device="emu").get_inputs()[0].name
    for source in [code, file, str(file)]:
        session = barewave.InferenceSession(source, device="emu:gfx1100")
        (out,) = session.run(None, {name: x})
    (want,) = barewave.InferenceSession(DIGITS, device="emu:gfx1100").run(None, {name: x})
    np.testing.assert_array_equal(out, want)
    with pytest.raises(barewave.BarewaveError, match="gfx1100"):
        barewave.InferenceSession(code, device="emu:gfx942")
    assert "v_" in barewave.disassemble(code) and "v_" in barewave.disassemble(file)


VECTOR_ADD = """
    .text
    .globl add
    .p2align 8
    .type add,@function
add:
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_load_dwordx2 s[8:9], s[0:1], 0x10
    s_load_dword s10, s[0:1], 0x18
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    global_load_dword v3, v1, s[6:7]
    s_waitcnt vmcnt(0)
    v_fma_f32 v2, v2, s10, v3
    global_store_dword v1, v2, s[8:9]
    s_endpgm
.Lend:
    .size add, .Lend-add
    .rodata
    .amdhsa_kernel add
        .amdhsa_next_free_vgpr 4
        .amdhsa_next_free_sgpr 16
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
        .amdhsa_kernarg_size 28
    .end_amdhsa_kernel
    .amdgpu_metadata
    amdhsa.kernels:
      - .name: add
        .symbol: add.kd
        .kernarg_segment_size: 28
        .kernarg_segment_align: 8
        .group_segment_fixed_size: 0
        .private_segment_fixed_size: 0
        .wavefront_size: 64
        .sgpr_count: 16
        .vgpr_count: 4
        .max_flat_workgroup_size: 64
        .args:
          - {.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
          - {.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
          - {.offset: 16, .size: 8, .value_kind: global_buffer, .address_space: global}
          - {.offset: 24, .size: 4, .value_kind: by_value}
    .end_amdgpu_metadata
"""


def test_assemble_launch_disassemble():
    code = barewave.assemble(VECTOR_ADD, "gfx906")
    assert "v_fma_f32 v2, v2, s10, v3" in barewave.disassemble(code, kernel="add")
    a, b, c = (np.arange(64, dtype=np.float32) + i for i in range(3))
    for factor in [2.0, np.float32(2)]:
        c[:] = 0
        count = barewave.launch(code, "add", 1, 64, a, b, c, factor, device="emu:gfx906", strict=True)
        np.testing.assert_array_equal(c, a * 2 + b)
        assert count == 11
    with pytest.raises(barewave.BarewaveError, match="no kernel 'sub'; there is add"):
        barewave.launch(code, "sub", 1, 64)
    with pytest.raises(barewave.BarewaveError, match="4"):
        barewave.launch(code, "add", 1, 64, a, b)
    with pytest.raises(barewave.BarewaveError, match="gfx906"):
        barewave.launch(code, "add", 1, 64, a, b, c, 1.0, device="emu:gfx1100")
    with pytest.raises(barewave.BarewaveError, match="v_frob"):
        barewave.assemble("v_frob v0, v1", "gfx906")
    with pytest.raises(barewave.BarewaveError, match="outside of device memory"):
        barewave.launch(code, "add", 1, 64, a[:1].copy(), b, c, 1.0, device="emu:gfx906", strict=True)


def test_devices_and_instructions():
    names = [d.device for d in barewave.devices()]
    assert {"emu:gfx803", "emu:gfx942", "emu:gfx1201"} <= set(names)
    assert "v_fma_f32" in barewave.isa("v_fma_f32", "gfx1100")


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: barewave.InferenceSession("nowhere.onnx"), ["nowhere.onnx"]),
        (lambda: barewave.InferenceSession(b"not a model"), ["model"]),
        (lambda: barewave.InferenceSession(open(DIGITS, "rb").read()[:200]), ["model"]),
        (lambda: barewave.InferenceSession(ADD, device="emu:gfx9999"), ["gfx9999"]),
        (lambda: barewave.compile(ADD, "gfx9999"), ["gfx9999"]),
        (lambda: barewave.disassemble(b"\x7fELFbroken"), []),
        (lambda: barewave.isa("v_frob_f32"), ["v_frob_f32"]),
        (lambda: session().run(None, {}), ["not given", "x tensor(float)"]),
        (lambda: session().run(None, {"x": ones(1, 8), "q": ones(1)}), ["no such input: q", "there are x"]),
        (lambda: session().run(["q"], {"x": ones(1, 8)}), ["no such output: q", "p, best"]),
        (lambda: session().run(None, {"x": ones(1, 8).astype(np.float64)}), ["float64", ".astype(numpy.float32)"]),
        (lambda: session().run(None, {"x": ones(1, 7)}), ["x"]),
        (lambda: session().run(None, {"x": np.array(["a"])}), ["x"]),
        (lambda: session().run(None, {"x": np.array([[None, "a"]], object)}), ["x", "NoneType"]),
    ],
)
def test_bad_input_is_an_exception(make, words):
    with pytest.raises(barewave.BarewaveError) as caught:
        make()
    for w in words:
        assert w in str(caught.value), str(caught.value)


def session():
    return barewave.InferenceSession(mlp(), device="emu:gfx1100")


def ones(*shape):
    return np.ones(shape, np.float32)


def test_threads_share_a_session():
    s, m = session(), mlp()
    judge, failures = ReferenceEvaluator(m), []

    def use(n):
        x = np.random.default_rng(n).standard_normal((n % 3 + 1, 8), dtype=np.float32)
        want = judge.run(None, {"x": x})[0]
        for _ in range(10):
            if not np.allclose(s.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5):
                failures.append(n)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_as_a_program(tmp_path):
    def run(*args):
        return subprocess.run([sys.executable, "-m", "barewave", *args], capture_output=True, text=True)

    assert "emu:gfx942" in run().stdout
    file = tmp_path / "in.npz"
    inputs = barewave.InferenceSession(ADD, device="emu").get_inputs()
    np.savez(file, **{i.name: np.ones([d if isinstance(d, int) else 4 for d in i.shape], np.float32) for i in inputs})
    good = run(ADD, str(file))
    assert good.returncode == 0 and "2. 2." in good.stdout, good.stderr
    bad = run("nowhere.onnx")
    assert bad.returncode == 1 and "nowhere.onnx" in bad.stderr and "Traceback" not in bad.stderr


def readme_example(module):
    """The first example of the README's that imports a module, as doctest has them."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        blocks = f.read().split("```pycon\n")[1:]
    blocks = [b.partition("```")[0] for b in blocks]
    return next(b for b in blocks if module in b.splitlines()[0].replace(",", " ").split())


def test_the_readmes_example(monkeypatch):
    monkeypatch.chdir(ROOT)
    example = doctest.DocTestParser().get_doctest(readme_example("barewave"), {}, "README", "README.md", 0)
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0


def test_lists_take_the_type_of_the_input():
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    made = model(nodes, [tensor("a", [2, 2], TensorProto.INT32), tensor("b", [], TensorProto.INT32)],
                 [tensor("c", [2, 2], TensorProto.INT32)])
    session = barewave.InferenceSession(made.SerializeToString())
    (c,) = session.run(None, {"a": [[1, 2], [3, 4]], "b": 10})
    assert c.dtype == np.int32 and c.tolist() == [[11, 12], [13, 14]]
    for wrong in ([[1, 2], [3]], [["x", 2], [3, 4]], [[1, 2], [3, 2**40]]):
        with pytest.raises(barewave.BarewaveError, match="input a: no array of int32"):
            session.run(None, {"a": wrong, "b": 10})
    # An array says its type itself.
    with pytest.raises(barewave.BarewaveError, match="input a is int64"):
        session.run(None, {"a": np.ones((2, 2), np.int64), "b": 10})


def shown(source, names):
    """What a notebook shows of a cell: what it prints, and the value of its last line."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue() + ("" if value is None else repr(value))


def identity(kind):
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    return barewave.InferenceSession(model(nodes, [tensor("x", ["n"], kind)], [tensor("y", ["n"], kind)]), device="emu:gfx1100")


@pytest.mark.parametrize(
    "kind, feed, words",
    [
        (TensorProto.INT64, [1.5, 2.0], "no array of int64 can be made of it: an element is 1.5"),
        (TensorProto.INT64, [2**63], "no array of int64 can be made of it: an element is 9223372036854775808"),
        (TensorProto.UINT64, [-1], "no array of uint64 can be made of it: an element is -1"),
        (TensorProto.INT4, [3, 8], "no array of int4 can be made of it: an element is 8"),
        (TensorProto.BOOL, [1, 2], "no array of bool can be made of it: an element is 2"),
        (TensorProto.FLOAT, [1e300], "no array of float32 can be made of it: an element is 1e+300"),
        (TensorProto.FLOAT, ["1"], "an element is of type str"),
        (TensorProto.FLOAT, None, "an element is of type NoneType"),
        (TensorProto.FLOAT, np.ma.masked_array([1, 2], [True, False], np.float32), "masked"),
        (TensorProto.STRING, [b"\xff"], "UTF-8"),
        (TensorProto.STRING, ["\ud800"], "UTF-8"),
    ],
)
def test_what_a_type_cannot_hold_is_refused(kind, feed, words):
    if kind == TensorProto.INT4:
        pytest.importorskip("ml_dtypes")
    with pytest.raises(barewave.BarewaveError, match=re.escape(words)):
        identity(kind).run(None, {"x": feed})


def test_lists_that_a_type_can_hold():
    for kind, feed in [(TensorProto.INT64, [1.0, 2.0]), (TensorProto.BOOL, [0, 1]), (TensorProto.FLOAT, [float("inf"), 1])]:
        assert identity(kind).run(None, {"x": feed})[0].tolist() == feed


def test_feeds_and_models_that_are_none():
    with pytest.raises(barewave.BarewaveError, match="a dictionary of arrays by name, not list"):
        identity(TensorProto.FLOAT).run(None, [np.zeros(3, np.float32)])
    with pytest.raises(barewave.BarewaveError, match="not NoneType"):
        barewave.InferenceSession(None)


def test_bfloat16_of_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    x = torch.tensor([1.0, -2.5, 3.0], dtype=torch.bfloat16)
    assert identity(TensorProto.BFLOAT16).run(None, {"x": x})[0].astype(np.float32).tolist() == [1.0, -2.5, 3.0]


def test_the_notebook_shows_what_it_gives(monkeypatch):
    """BAREWAVE_BLESS=1 writes what its cells give into it."""
    monkeypatch.chdir(EXAMPLES)
    with open("notebook.ipynb", encoding="utf-8") as f:
        notebook = json.load(f)
    names = {}
    for number, cell in enumerate(c for c in notebook["cells"] if c["cell_type"] == "code"):
        text = shown("".join(cell["source"]), names)
        (output,) = cell["outputs"]
        place, key = (output, "text") if output["output_type"] == "stream" else (output["data"], "text/plain")
        if os.environ.get("BAREWAVE_BLESS"):
            place[key] = text.splitlines(keepends=True)
        assert "".join(place[key]) == text, f"cell {number}"
    assert names["right"] == 444
    if os.environ.get("BAREWAVE_BLESS"):
        with open("notebook.ipynb", "w", encoding="utf-8") as f:
            json.dump(notebook, f, indent=1, ensure_ascii=False)
            f.write("\n")


def test_outputs_are_not_copied_and_belong_to_the_caller():
    session = barewave.InferenceSession(ADD, device="emu:gfx942")
    a, b = np.arange(1024, dtype=np.float32), np.ones(1024, np.float32)
    first, second = (session.run(None, {"a": a, "b": b})[0] for _ in range(2))
    assert first.flags.writeable and first.base is not None and not np.shares_memory(first, second)
    first[:] = 7
    del session
    assert (second == a + b).all() and (first == 7).all()


def test_what_a_model_says_of_itself():
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], doc_string="of the graph")
    model = helper.make_model(graph, producer_name="me", domain="org.example", model_version=3, doc_string="of the model")
    helper.set_model_props(model, {"key": "value"})
    meta = barewave.InferenceSession(model, device="emu:gfx942").get_modelmeta()
    said = (meta.producer_name, meta.domain, meta.version, meta.description, meta.graph_description, meta.graph_name)
    assert said == ("me", "org.example", 3, "of the model", "of the graph", "g")
    assert meta.custom_metadata_map == {"key": "value"}
    # An output that is an input: memory of its own all the same.
    x = np.ones(2, np.float32)
    (y,) = barewave.InferenceSession(model, device="emu:gfx942").run(None, {"x": x})
    y[:] = 5
    assert x.tolist() == [1, 1]


def test_computing_in_other_types():
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((8, 64), np.float32), rng.standard_normal((64, 16), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x_info, y_info = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [8, 64]), ("y", [8, 16])))
    graph = helper.make_graph(nodes, "g", [x_info], [y_info], [onnx.numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph)
    error = {}
    for dtype in ("f32", "f16", "bf16"):
        (y,) = barewave.InferenceSession(model, device="emu:gfx942", dtype=dtype).run(None, {"x": x})
        code = barewave.compile(model, "gfx942", dtype=dtype)
        (z,) = barewave.InferenceSession(code, device="emu:gfx942").run(None, {"x": x})
        assert y.dtype == np.float32 and (y == z).all()
        error[dtype] = np.abs(y - x @ w).max()
    assert error["f32"] < 1e-5 < error["f16"] < 0.03 < error["bf16"] < 0.3, error
    for make in (
        lambda: barewave.InferenceSession(model, device="emu:gfx942", dtype="f8"),
        lambda: barewave.compile(model, dtype="int8"),
    ):
        with pytest.raises(barewave.BarewaveError, match="f32, f16 or bf16 is needed"):
            make()
    with pytest.raises(barewave.BarewaveError, match="compile it with dtype"):
        barewave.InferenceSession(code, device="emu:gfx942", dtype="f16")


def test_products_of_ten_bits_of_mantissa(tmp_path, monkeypatch):
    """gfx942 takes fewer bits where that is allowed, by option or by table; what is kept of kernels is told apart."""
    monkeypatch.setenv("BAREWAVE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((1024, 512), np.float32), rng.standard_normal((512, 512), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    m = model(nodes, [tensor("x", [1024, 512])], [tensor("y", [1024, 512])], [onnx.numpy_helper.from_array(w, "w")])
    table = tmp_path / "tiles.csv"
    table.write_text("xf32,allowed\n")
    want = x.astype(np.float64) @ w
    for given, target, least, most in [
        ({}, "gfx942", 0, 1e-3),
        ({"xf32": True}, "gfx942", 1e-3, 0.1),
        ({"tune": table}, "gfx942", 1e-3, 0.1),
        ({"tune": str(table), "xf32": False}, "gfx90a", 0, 1e-3),
        ({"xf32": True}, "gfx1100", 0, 1e-3),
        ({}, "gfx942", 0, 1e-3),
    ]:
        (y,) = barewave.InferenceSession(m, device=f"emu:{target}", **given).run(None, {"x": x})
        code = barewave.compile(m, target, **given)
        (z,) = barewave.InferenceSession(code, device=f"emu:{target}").run(None, {"x": x})
        assert (y == z).all() and least <= np.abs(y - want).max() < most, (given, target, np.abs(y - want).max())
        assert ("xf32" in barewave.disassemble(code)) == (least > 0)
    for name, value in [("xf32", True), ("tune", table)]:
        with pytest.raises(barewave.BarewaveError, match=f"{name}: the model is compiled; compile it with {name}"):
            barewave.InferenceSession(code, device="emu:gfx942", **{name: value})


def test_sums_of_f16(tmp_path, monkeypatch):
    """gfx900 sums products of f16 in f16 where that is allowed, by option or by table; gfx906 is as quick without."""
    monkeypatch.setenv("BAREWAVE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((256, 256), np.float32), rng.standard_normal((256, 256), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    m = model(nodes, [tensor("x", [256, 256])], [tensor("y", [256, 256])], [onnx.numpy_helper.from_array(w, "w")])
    table = tmp_path / "tiles.csv"
    table.write_text("f16-sums,allowed\n")
    want = x.astype(np.float64) @ w
    for given, target, summed in [
        ({}, "gfx900", False),
        ({"f16_sums": True}, "gfx900", True),
        ({"tune": table}, "gfx900", True),
        ({"f16_sums": True}, "gfx906", False),
    ]:
        code = barewave.compile(m, target, dtype="f16", **given)
        (y,) = barewave.InferenceSession(m, device=f"emu:{target}", dtype="f16", **given).run(None, {"x": x})
        assert np.abs(y - want).max() < 0.5 and ("v_pk_fma_f16" in barewave.disassemble(code)) == summed


def test_tables_of_tiles(tmp_path):
    """What a table says is what is compiled; what is none says where."""
    m = mlp()
    table = tmp_path / "tiles.csv"
    table.write_text("gfx1100,f32,NN,1,64,16,8,32,32,8,1\n")
    plain, tuned = (barewave.compile(m, "gfx1100", dims={"n": 64}, tune=t) for t in (None, table))
    assert plain != tuned
    x = np.random.default_rng(2).standard_normal((64, 8), dtype=np.float32)
    p, q = (barewave.InferenceSession(c, device="emu:gfx1100").run(["p"], {"x": x})[0] for c in (plain, tuned))
    assert np.allclose(p, q, rtol=1e-5)
    for text, words in [("gfx1100,f32,NN\n", "line 1: 3 cells"), ("\nxf32,yes\n", "line 2: 'yes' is no way to use xf32")]:
        table.write_text(text)
        for make in (barewave.InferenceSession, barewave.compile):
            with pytest.raises(barewave.BarewaveError, match=f"tune: .*tiles.csv: {words}"):
                make(m, tune=table)
    for value, words in [("no/such.csv", "tune: cannot read no/such.csv"), (5, "tune: the path of a table is needed, not int")]:
        with pytest.raises(barewave.BarewaveError, match=words):
            barewave.compile(m, tune=value)
    with pytest.raises(TypeError, match="xf32"):
        barewave.compile(m, xf32="yes")
