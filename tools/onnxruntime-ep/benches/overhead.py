"""What the plugin costs a run, beside a session of barewave's own and onnxruntime's CPU provider.

    python tools/onnxruntime-ep/benches/overhead.py [MODEL.onnx] [--device emu:gfx1100]

Needs the packages barewave and onnxruntime-ep-barewave. All three run the same model in turns; what is printed is the median
of a thousand runs each in microseconds, and the difference that the plugin makes. The model's own time on an emulated device
is part of both, so a small model shows the most.
"""

import argparse
import os
import statistics
import time

import barewave
import numpy as np
import onnxruntime
import onnxruntime_ep_barewave

DEFAULT = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "vector_add", "vector_add.onnx")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default=DEFAULT)
    parser.add_argument("--device", default="emu:gfx1100")
    args = parser.parse_args()
    sessions = {
        "barewave.InferenceSession": barewave.InferenceSession(args.model, device=args.device),
        "the plugin in onnxruntime": onnxruntime_ep_barewave.InferenceSession(args.model, device=args.device),
        "onnxruntime's CPU provider": onnxruntime.InferenceSession(args.model, providers=["CPUExecutionProvider"]),
    }
    inputs = next(iter(sessions.values())).get_inputs()
    rng = np.random.default_rng(1)
    feeds = {i.name: rng.standard_normal(i.shape, dtype=np.float32) for i in inputs}
    times = {name: [] for name in sessions}
    for turn in range(1050):
        for name, session in sessions.items():
            start = time.perf_counter()
            session.run(None, feeds)
            if turn >= 50:
                times[name].append((time.perf_counter() - start) * 1e6)
    medians = [statistics.median(t) for t in times.values()]
    for name, median in zip(times, medians):
        print(f"{name:28} {median:8.1f} us")
    print(f"{'the plugin adds':28} {medians[1] - medians[0]:8.1f} us")


if __name__ == "__main__":
    main()
