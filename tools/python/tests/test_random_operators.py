"""Random operators of every family against onnxruntime: random attributes, odd shapes, types, constants and inputs.

`BAREWAVE_RANDOM_ITERATIONS` sets how many models of each family are tried (1,000 in CI). What onnxruntime refuses is no case. A
failure names the family and the seed: `python test_random_operators.py FAMILY SEED` runs that model alone.
"""

import os
import sys

import numpy as np
import onnx
import pytest
from onnx import helper
from random_case import FAMILIES, Case

import barewave
import random_layers  # noqa: F401  (its families are listed)
import random_operators  # noqa: F401

onnxruntime = pytest.importorskip("onnxruntime")

ITERATIONS = int(os.environ.get("BAREWAVE_RANDOM_ITERATIONS", "60"))


def expected(data, feeds):
    """What onnxruntime computes, unoptimised; `None` for what it refuses or what overflows."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.set_default_logger_severity(4)
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        outputs = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, feeds)
    except Exception:
        return None
    # States that grow without bound overflow in the order of each one's sums.
    return None if "activations" in str(data) and not all(np.isfinite(o).all() for o in outputs) else outputs


def differs(got, want, tolerance):
    """What is wrong with an output; empty when it agrees."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if got.dtype.kind != "f":
        # Quantised values at the edge of two steps may fall to either side.
        far = np.abs(got.astype(np.float64) - want) > (1 if got.dtype.itemsize == 1 and got.dtype.kind in "iu" else 0)
    else:
        finite = np.isfinite(want)
        size = max(np.abs(want[finite]).max(initial=0), 1e-2)
        with np.errstate(invalid="ignore"):
            far = np.where(finite, ~(np.abs(got.astype(np.float64) - want) <= tolerance * size), ~((got == want) | (np.isnan(got) & np.isnan(want))))
    return f"{int(far.sum())} of {far.size} elements, {got[far][:3]} instead of {want[far][:3]}" if far.any() else ""


def attempt(name, seed, device):
    """`None` when onnxruntime refuses the case, otherwise what is wrong."""
    case = Case([seed, *name.encode()])
    FAMILIES[name](case)
    data = case.model()
    want = expected(data, case.feeds)
    if want is None:
        return None
    what = case.nodes[0]
    shapes = {n: f"{v.dtype}{list(v.shape)}" for n, v in case.feeds.items()}
    try:
        got = barewave.InferenceSession(data, device=device).run(None, case.feeds)
    except Exception as e:
        return f"{what.op_type} {shapes}: {e}"
    wrong = [f"{what.op_type} {shapes} output {i}: {d}" for i, (g, w) in enumerate(zip(got, want, strict=True)) if (d := differs(np.asarray(g), np.asarray(w), case.tolerance))]
    return "; ".join(wrong)


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name):
    results = [attempt(name, seed, ("emu:gfx942", "emu:gfx1100")[seed % 2]) for seed in range(ITERATIONS)]
    wrong = [f"{name} {seed}: {r}" for seed, r in enumerate(results) if r]
    assert not wrong, f"{len(wrong)} of {ITERATIONS}:\n" + "\n".join(wrong[:20])
    assert sum(r is not None for r in results) * 2 > ITERATIONS, "onnxruntime refuses more than half"


if __name__ == "__main__":
    family_name, number = sys.argv[1], int(sys.argv[2])
    one = Case([number, *family_name.encode()])
    FAMILIES[family_name](one)
    print(helper.printable_graph(onnx.load_from_string(one.model()).graph))
    print(attempt(family_name, number, "emu:gfx942"))
