"""Bad input of each kind: an exception in the command line's words, never an end of the process.

The command is `BAREWAVE_BIN`, or what `cargo build --release` made in this checkout; without one these tests are skipped.
"""

import os
import subprocess

import numpy as np
import pytest

import barewave

ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "..")
DIGITS = os.path.join(ROOT, "examples", "digits", "digits.onnx")
COMMAND = os.environ.get("BAREWAVE_BIN", os.path.join(ROOT, "target", "release", "barewave"))
pytestmark = pytest.mark.skipif(not os.path.exists(COMMAND), reason="the command line is not built")


def command_line(*args):
    """What the command says when it fails."""
    done = subprocess.run([COMMAND, *args], capture_output=True, text=True)
    assert done.returncode in (1, 2), done.stderr
    assert "panicked" not in done.stderr
    return done.stderr[done.stderr.index("error: ") + len("error: ") :].strip()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """By name: a damaged model, code for gfx1100, half of that, something else."""
    folder = tmp_path_factory.mktemp("bad")
    with open(DIGITS, "rb") as f:
        model = f.read()
    code = str(folder / "digits.hsaco")
    barewave.compile(DIGITS, "gfx1100", output=code)
    made = {"code": code, "cut": str(folder / "cut.onnx"), "half": str(folder / "half.hsaco"), "text": str(folder / "t.onnx")}
    with open(code, "rb") as f:
        compiled = f.read()
    for name, data in [("cut", model[:700]), ("half", compiled[: len(compiled) // 2]), ("text", b"no model at all")]:
        with open(made[name], "wb") as f:
            f.write(data)
    return made


@pytest.mark.parametrize(
    "model, device, says",
    [
        (DIGITS, "emu:gfx9999", "unknown target `gfx9999`"),
        (DIGITS, "hip", "no HIP driver"),
        (DIGITS, "cuda", "no device 'cuda'"),
        ("cut", "emu:gfx1100", "it is truncated: copy it again"),
        ("text", "emu:gfx1100", "not a readable ONNX file"),
        ("half", "emu:gfx1100", "not a readable ELF file"),
        ("code", "emu:gfx942", "the code object is for gfx1100, the device is gfx942"),
        ("nowhere.onnx", "emu:gfx942", "nowhere.onnx"),
    ],
)
def test_sessions_that_cannot_be(files, model, device, says):
    if device == "hip" and os.path.exists("/dev/kfd"):
        pytest.skip("there is a GPU")
    path = files.get(model, model)
    said = command_line("run", path, "--device", device, "--random-inputs")
    assert says in said
    with pytest.raises(barewave.BarewaveError) as caught:
        barewave.InferenceSession(path, device=device)
    assert said == str(caught.value)


@pytest.mark.parametrize(
    "x, spec, says",
    [
        (np.zeros((1, 1, 9, 8), np.float32), "1x1x9x8xf32=0", "dimension 2 is 9, not 8"),
        (np.zeros((64,), np.float32), "64xf32=0", "64"),
        (np.zeros((1, 1, 8, 8), np.float64), "1x1x8x8xf64=0", "image"),
        (np.zeros((1, 1, 8, 8), np.int32), "1x1x8x8xi32=0", "image"),
    ],
)
def test_inputs_that_do_not_fit(x, spec, says):
    said = command_line("run", DIGITS, "--device", "emu:gfx1100", "--input", spec)
    assert says in said
    session = barewave.InferenceSession(DIGITS, device="emu:gfx1100")
    with pytest.raises(barewave.BarewaveError) as caught:
        session.run(None, {"image": x})
    if x.dtype == np.float32:
        assert said == str(caught.value)
    else:
        # Python's message says besides how numpy converts.
        assert "image" in str(caught.value) and ".astype(numpy.float32)" in str(caught.value)
    assert session.run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})[0].shape == (1, 10)


def test_targets_that_are_not(tmp_path):
    said = command_line("compile", DIGITS, "--target", "gfx9999", "-o", str(tmp_path / "x.hsaco"))
    with pytest.raises(barewave.BarewaveError) as caught:
        barewave.compile(DIGITS, "gfx9999")
    assert said == str(caught.value) and "did you mean" in said
