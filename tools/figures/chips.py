"""What the cycle model knows of chips (`isa/latency/chips.csv`), for the scripts beside this one."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def constants(name):
    """A constant of all chips, by target."""
    lines = [l.split(",") for l in (ROOT / "isa/latency/chips.csv").read_text().splitlines() if l and l[0] != "#"]
    [cells] = [l[1:] for l in lines if l[0] == name]
    return {target: float(cell.split()[0]) for target, cell in zip(lines[0][1:], cells)}


def bandwidths():
    """Bytes in a microsecond that kernels reach, by target."""
    reach, share = constants("dram_gbs"), constants("dram_share")
    return {target: reach[target] * 1e3 * share[target] for target in reach}
