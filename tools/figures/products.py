"""Prints the README's table of large matrix products: the share of the peak that they reach by the cycle model, launches included.

The peak is the operations of a target's best instruction for the type (matrix instructions, dot products, multiply-adds that are issued in pairs) on
all compute units in each clock.

    python3 tools/figures/products.py [--barewave target/release/barewave]
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ["gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201"]
EXTENTS = [4096, 8192]
# Types of operands, and on which targets they are instructions' own.
TYPES = {
    "f32": TARGETS,
    "f16": TARGETS[2:],
    "bf16": TARGETS[3:7] + TARGETS[8:],
    "i8": TARGETS[2:],
    "fp8": ["gfx942", "gfx950", "gfx1201"],
}


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--barewave", default=str(ROOT / "target/release/barewave"))
    options = options.parse_args()

    def share(target, dtype):
        """Percent of the peak for each extent."""
        command = [options.barewave, "bench", "gemm", "--target", target, "--dtype", dtype, "--json"]
        for n in EXTENTS:
            command += ["--shape", f"{n}x{n}x{n}"]
        out = subprocess.run(command, capture_output=True, text=True)
        if out.returncode:
            sys.exit(f"{target} {dtype}: {out.stderr}")
        return [100 * row["share_of_peak"] for row in json.loads(out.stdout)]

    print("| | " + " | ".join(TARGETS) + " |\n|---|" + "---|" * len(TARGETS))
    for dtype, targets in TYPES.items():
        shares = {t: share(t, dtype) for t in targets}
        for i, n in enumerate(EXTENTS):
            row = (f"{shares[t][i]:.1f}" if t in shares else "" for t in TARGETS)
            print(f"| {dtype} {n} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
