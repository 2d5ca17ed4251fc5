"""Models that are compiled ahead of time: EPContext nodes, with and without a card."""

import subprocess
import sys

import onnx
import onnxruntime
import pytest
from test_plugin import DIGITS, cpu, mixed, mlp, no_cache, options, ours, random_feeds, same  # noqa: F401

import onnxruntime_ep_barewave as plugin


@pytest.mark.parametrize("embed", ["1", "0"])
@pytest.mark.parametrize("make", [mixed, lambda: mlp(4)])
def test_context_models(tmp_path, embed, make):
    m, path = make(), str(tmp_path / "compiled.onnx")
    made = options(ep__context_enable="1", ep__context_file_path=path, ep__context_embed_mode=embed)
    ours(m, sess_options=made)
    compiled = onnx.load(path)
    nodes = [n for n in compiled.graph.node if n.op_type == "EPContext"]
    assert nodes and not any(n.op_type in ("Mul", "Gemm") for n in compiled.graph.node)
    session = ours(path, whole=False)
    feeds = random_feeds(session)
    assert same(session.run(None, feeds), cpu(m).run(None, feeds))
    # The device is the one that the code is for, where nobody asks for another.
    assert same(ours(path, whole=False, device=None).run(None, feeds), cpu(m).run(None, feeds))
    with pytest.raises(Exception, match="the code object is for gfx1100, the device is gfx906"):
        ours(path, whole=False, device="emu:gfx906")


def test_context_models_need_shapes(tmp_path):
    made = options(ep__context_enable="1", ep__context_file_path=str(tmp_path / "compiled.onnx"))
    with pytest.raises(Exception, match="input `x` is nx8xf32; fix its dimensions"):
        ours(mlp(), sess_options=made)


def test_damaged_context_models(tmp_path):
    path = str(tmp_path / "compiled.onnx")
    ours(mlp(4), sess_options=options(ep__context_enable="1", ep__context_file_path=path))
    compiled = onnx.load(path)
    held = next(a for a in compiled.graph.node[0].attribute if a.name == "ep_cache_context")
    for data in [held.s[: len(held.s) // 2], b"nonsense", b""]:
        held.s = data
        with pytest.raises(Exception):
            ours(compiled.SerializeToString(), whole=False)


def test_virtual_device(tmp_path):
    """Ahead of time for a card that is not there."""
    script = f"""
import onnxruntime as ort, onnxruntime_ep_barewave as plugin
ort.register_execution_provider_library("barewave.virtual", plugin.get_library_path())
(device,) = [d for d in ort.get_ep_devices() if d.ep_name == plugin.get_ep_name()]
assert device.device.type == ort.OrtHardwareDeviceType.GPU and device.device.vendor_id == 0x1002
assert device.device.metadata["is_virtual"] == "1"
options = ort.SessionOptions()
options.add_session_config_entry("ep.context_enable", "1")
options.add_session_config_entry("ep.context_file_path", {str(tmp_path / "c.onnx")!r})
options.add_provider_for_devices([device], {{"target": "gfx906"}})
ort.InferenceSession({DIGITS!r}, options)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    node = onnx.load(str(tmp_path / "c.onnx")).graph.node[0]
    assert {a.name: a.s for a in node.attribute}["hardware_architecture"] == b"gfx906"
    judge = cpu(DIGITS)
    feeds = random_feeds(judge)
    assert same(ours(str(tmp_path / "c.onnx"), device="emu:gfx906").run(None, feeds), judge.run(None, feeds))


def test_compatibility_of_compiled_models(tmp_path):
    """A compiled model says which target it is for, and the plugin whether that will do."""
    plugin.register()
    path = str(tmp_path / "c.onnx")
    ours(DIGITS, device="emu:gfx906", sess_options=options(ep__context_enable="1", ep__context_file_path=path))
    said = {p.key: p.value for p in onnx.load(path).metadata_props}["ep_compatibility_info.BarewaveExecutionProvider"]
    assert said.endswith(" gfx906")
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == plugin.get_ep_name()]
    known = onnxruntime.capi._pybind_state.OrtCompiledModelCompatibility
    for info, answer in [(said, known.EP_SUPPORTED_OPTIMAL), ("nonsense", known.EP_NOT_APPLICABLE),
                         (said.replace("906", "9999"), known.EP_NOT_APPLICABLE)]:  # fmt: skip
        assert onnxruntime.capi._pybind_state.get_model_compatibility_for_ep_devices(devices, info) == answer
