"""Networks as PyTorch exports them: the smallest of each family of image models in timm, with random weights, compared with onnxruntime on
emulated devices in turn and timed by the cycle model.

    pip install torch timm onnx onnxscript onnxruntime
    python3 tools/figures/exported.py [--barewave target/release/barewave] [--form fixed|open] [--families resnet,vit,...] [--keep FOLDER]

`fixed` is what today's exporter writes for one image, `open` what the older one writes with an open batch, run with two images.
A line for each: the device, the largest difference in parts of the largest magnitude, microseconds and steps on three targets.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy
import onnxruntime
import timm
import torch

DEVICES = ["gfx1100", "gfx942", "gfx906", "gfx1201", "gfx90a", "gfx1030"]
TIMED = ["gfx906", "gfx942", "gfx1100"]
MOST_PARAMETERS = 36e6
FAR = 1e-3


def smallest():
    """The model with the fewest parameters of each family, by family."""
    best = {}
    for name in timm.list_models():
        family = timm.models._registry._model_to_module[name]
        try:
            with torch.device("meta"):
                size = sum(p.numel() for p in timm.create_model(name).parameters())
        except (RuntimeError, NotImplementedError, ValueError):
            continue
        if size < MOST_PARAMETERS:
            best[family] = min(best.get(family, (size, name)), (size, name))
    return {family: name for family, (_, name) in sorted(best.items())}


def model_of(name):
    """The model, without weights that are all the same: zeros at the end of a branch would hide what it computes."""
    torch.manual_seed(0)
    model = timm.create_model(name, exportable=True).eval()
    with torch.no_grad():
        for key, value in [*model.named_parameters(), *model.named_buffers()]:
            if "running_var" in key:
                value.uniform_(0.7, 1.3)
            elif value.is_floating_point() and (value.numel() < 2 or value.std() < 1e-4):
                value.add_(torch.randn_like(value) * 0.05)
    return model


def export(name, form, path):
    model = model_of(name)
    image = torch.randn(1, *model.default_cfg["input_size"])
    if form == "fixed":
        torch.onnx.export(model, (image,), path, dynamo=True, external_data=False, verbose=False)
    else:
        axes = {"x": {0: "batch"}}
        torch.onnx.export(model, (image,), path, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes=axes)


def run(barewave, *args):
    environment = {**os.environ, "BAREWAVE_CACHE": "off"}
    out = subprocess.run([barewave, *map(str, args)], capture_output=True, text=True, env=environment)
    if out.returncode:
        raise RuntimeError(out.stderr.strip()[:200])
    return out.stdout


def difference(barewave, path, form, device, folder):
    """The largest one from onnxruntime's outputs, in parts of their largest magnitude."""
    session = onnxruntime.InferenceSession(path)
    (port,) = session.get_inputs()
    batch = 1 if form == "fixed" else 2
    image = numpy.random.default_rng(0).standard_normal([batch, *port.shape[1:]]).astype(numpy.float32)
    want = session.run(None, {port.name: image})
    given, made = folder / "in.npy", folder / "out.npz"
    numpy.save(given, image)
    run(barewave, "run", path, "--device", f"emu:{device}", "--input", f"@{given}", "--output", made)
    got = numpy.load(made)
    names = [o.name for o in session.get_outputs()]
    return max(float(abs(got[n].astype(float) - w).max() / (abs(w).max() + 1e-30)) for n, w in zip(names, want))


def timed(barewave, path, form, target):
    dims = [] if form == "fixed" else ["--dim", "batch=1"]
    model = json.loads(run(barewave, "bench", "model", path, "--target", target, "--json", *dims))
    return f"{model['microseconds']:.0f} ({len(model['launches'])})"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--barewave", default="target/release/barewave")
    options.add_argument("--form", choices=["fixed", "open"], default="fixed")
    options.add_argument("--families", default="")
    options.add_argument("--keep", type=pathlib.Path, help="keep the exported models in this folder, and take those that it has")
    args = options.parse_args()
    wanted = args.families.split(",") if args.families else None
    torch.set_num_threads(1)
    far = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        models = args.keep or folder
        models.mkdir(parents=True, exist_ok=True)
        chosen = [(f, n) for f, n in smallest().items() if wanted is None or f in wanted]
        for number, (family, name) in enumerate(chosen):
            path, device = models / f"{name}.{args.form}.onnx", DEVICES[number % len(DEVICES)]
            try:
                if not path.exists():
                    export(name, args.form, folder / "model.onnx")
                    shutil.move(folder / "model.onnx", path)
            except Exception as reason:  # what the exporter cannot is not ours
                print(f"{family:<24} {name:<36} not exported: {str(reason).splitlines()[0][:120]}", flush=True)
                continue
            try:
                error = difference(args.barewave, path, args.form, device, folder)
                times = ", ".join(f"{t} {timed(args.barewave, path, args.form, t)}" for t in TIMED)
            except RuntimeError as reason:
                far += 1
                print(f"{family:<24} {name:<36} FAILED: {reason}", flush=True)
                continue
            far += error > FAR
            print(f"{family:<24} {name:<36} {device:<8} {error:.1e}  {times}", flush=True)
    print(f"{far} of them failed or are off by more than {FAR}")
    raise SystemExit(far > 0)


if __name__ == "__main__":
    main()
