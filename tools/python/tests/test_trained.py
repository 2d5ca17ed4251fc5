"""Trained models that ship inside packages, in the programs that they are for. Each is skipped where its package is not."""

import importlib.util
import os
import shutil
import subprocess
import wave

import numpy as np
import pytest

import barewave


def test_ocr_reads_a_drawn_text(monkeypatch):
    engine = pytest.importorskip("rapidocr_onnxruntime.utils.infer_engine")
    image, draw, font = (pytest.importorskip(f"PIL.{m}") for m in ["Image", "ImageDraw", "ImageFont"])
    monkeypatch.setattr(engine, "InferenceSession", barewave.InferenceSession)
    from rapidocr_onnxruntime import RapidOCR

    page = image.new("RGB", (480, 160), "white")
    letters = font.load_default(32)
    pen = draw.Draw(page)
    for y, text in [(20, "Hello barewave"), (90, "reads 1905 words")]:
        pen.text((20, y), text, font=letters, fill="black")
    found, _ = RapidOCR()(np.array(page)[:, :, ::-1])
    assert "".join(text for _, text, _ in found).replace(" ", "") == "Hellobarewavereads1905words"


def test_captchas_are_detected_and_read(monkeypatch):
    loader = pytest.importorskip("ddddocr.models.model_loader")
    image, draw, font = (pytest.importorskip(f"PIL.{m}") for m in ["Image", "ImageDraw", "ImageFont"])
    import io

    monkeypatch.setattr(loader.onnxruntime, "InferenceSession", barewave.InferenceSession)
    import ddddocr

    def drawn(text, size, at):
        page = image.new("RGB", size, "white")
        draw.Draw(page).text(at, text, font=font.load_default(40), fill="navy")
        out = io.BytesIO()
        page.save(out, "PNG")
        return out.getvalue()

    assert ddddocr.DdddOcr(beta=True, show_ad=False).classification(drawn("8k3w", (160, 64), (30, 8))).lower() == "8k3w"
    boxes = ddddocr.DdddOcr(ocr=False, det=True, show_ad=False).detection(drawn("A", (200, 200), (120, 140)))
    assert any(110 <= (x0 + x1) / 2 <= 160 and 135 <= (y0 + y1) / 2 <= 190 for x0, y0, x1, y1 in boxes), boxes


def test_speech_is_told_from_noise(tmp_path):
    package = importlib.util.find_spec("silero_vad")
    speaker = shutil.which("espeak-ng")
    if package is None or speaker is None:
        pytest.skip("needs silero-vad and espeak-ng")
    model = os.path.join(package.submodule_search_locations[0], "data", "silero_vad.onnx")
    session = barewave.InferenceSession(model)

    def speech(samples):
        """The probability of speech in each 512 samples; 64 go in front of them, as in the package's own wrapper."""
        state, before, out = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), []
        for chunk in samples[: len(samples) // 512 * 512].reshape(-1, 512):
            feed = {"input": np.concatenate([before, chunk])[None], "state": state, "sr": np.array(16000)}
            p, state = session.run(["output", "stateN"], feed)
            before = chunk[-64:]
            out.append(float(p[0, 0]))
        return np.array(out)

    said = tmp_path / "said.wav"
    text = "The quick brown fox jumps over the lazy dog, and goes on."
    subprocess.run([speaker, "-w", str(said), text], check=True)
    with wave.open(str(said)) as w:
        rate = w.getframerate()
        voice = np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float32) / 32768
    voice = np.interp(np.arange(0, len(voice), rate / 16000), np.arange(len(voice)), voice).astype(np.float32)
    noise = np.random.default_rng(1).normal(0, 0.02, 32000).astype(np.float32)
    assert np.mean(speech(voice) > 0.5) > 0.4
    assert speech(noise)[4:].max() < 0.3


def test_kinds_of_files_are_named(monkeypatch):
    magika = pytest.importorskip("magika.magika")

    class Runtime:
        InferenceSession = barewave.InferenceSession
        disable_telemetry_events = staticmethod(lambda: None)

    monkeypatch.setattr(magika, "rt", Runtime)
    names = magika.Magika()
    for kind, text in {
        "c": "#include <stdio.h>\nint main(void) { return 0; }\n" * 5,
        "python": "import os\ndef f(x):\n    return x + 1\nclass A:\n    pass\n" * 4,
        "json": '{\n  "name": "x",\n  "list": [\n    1,\n    2\n  ],\n  "more": {"a": true}\n}\n',
        "rust": 'use std::io;\nfn main() -> io::Result<()> {\n    let x: Vec<u8> = vec![1];\n    Ok(())\n}\n' * 3,
    }.items():
        assert names.identify_bytes(text.encode()).output.label == kind
