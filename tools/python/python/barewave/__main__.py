"""``python -m barewave``: what there is to run on, or one run of a model.

    python -m barewave                      devices
    python -m barewave MODEL [INPUT.npz]    runs a model on arrays of an npz file, by name
"""

import sys

import numpy as np

from . import BarewaveError, InferenceSession, devices


def main(arguments: list) -> int:
    if len(arguments) > 2 or any(a.startswith("-") for a in arguments):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if not arguments:
        for d in devices():
            print(f"{d.device:14} {d.kind:12} {d.compute_units:4} CUs  {d.name}")
        return 0
    try:
        session = InferenceSession(arguments[0])
        feed = dict(np.load(arguments[1])) if len(arguments) == 2 else {}
        for node, array in zip(session.get_outputs(), session.run(None, feed)):
            print(f"{node.name} {array.dtype} {list(array.shape)}: {array.ravel()[:8]}")
    except (BarewaveError, OSError, ValueError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
