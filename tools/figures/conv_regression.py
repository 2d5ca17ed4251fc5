"""How far MIOpen's measured convolutions tell their own times: errors of a regression that knows nothing of chips.

For each database, type and solver gradient-boosted trees are fitted to the logarithm of the time of half of the shapes, from the table's own columns
and what follows from them (extents, windows, operations, bytes, multiples of usual tiles). The other half has the medians and ninth deciles of
|predicted / measured - 1| that are printed, by tiles of 128x128 per compute unit, as `barewave bench validate --conv` prints those of the cycle model,
which has six constants for each of them. Solvers with fewer than 24 rows are left out.

    python3 tools/figures/conv_regression.py conv_miopen.csv

Needs numpy and scikit-learn; takes some minutes.
"""

import collections
import csv
import math
import random
import re
import sys

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

LEAST_ROWS = 24
TILE = 128 * 128
# Compute units, by what a database's name begins with.
UNITS = {"gfx90878": 120, "gfx90a68": 104, "gfx90a6e": 110, "gfx942130": 304}


def units(database):
    chip = database.split(".")[0]
    return UNITS.get(chip) or int(re.search(r"_(\d+)$", chip).group(1))


def numbers(text):
    return [int(n) for n in text.split("x")]


def log(n):
    return math.log(max(n, 1))


def shape(row):
    """What makes two rows the same convolution."""
    return tuple(row[c] for c in ("C", "H", "W", "kernel", "K", "N", "pad", "stride", "dil", "groups"))


def features(row):
    """Numbers that a time may follow from, and how many tiles there are; none for what has no output."""
    c, h, w, k, n, groups = (int(row[x]) for x in ("C", "H", "W", "K", "N", "groups"))
    window, pad, stride, dilation = (numbers(row[x]) for x in ("kernel", "pad", "stride", "dil"))
    out = [(e + 2 * p - d * (f - 1) - 1) // s + 1 for e, p, d, f, s in zip((h, w), pad, dilation, window, stride)]
    if min(out) <= 0:
        return None
    places, depth = n * out[0] * out[1], c // groups * window[0] * window[1]
    operations, elements = 2 * places * k * depth, n * c * h * w + k * depth + places * k
    extents = [log(x) for x in (c, h, w, k, n, groups, *out, places, depth, operations, elements, operations / elements)]
    multiples = [x % m == 0 for x, m in ((places, 64), (places, 128), (k, 64), (k, 128), (depth, 16))]
    tiles = places * k / TILE
    return [*extents, *window, *pad, *stride, *dilation, *multiples, row["layout"] == "NCHW", log(tiles)], tiles


def errors(rows):
    """Tiles and error of each row that the regression was not fitted to."""
    shapes = sorted({r[0] for r in rows})
    random.Random(1).shuffle(shapes)
    half = set(shapes[: len(shapes) // 2])
    fitted, others = [r for r in rows if r[0] in half], [r for r in rows if r[0] not in half]
    if len(fitted) < LEAST_ROWS // 2 or not others:
        return
    trees = HistGradientBoostingRegressor(
        loss="absolute_error", max_iter=150, learning_rate=0.1, max_leaf_nodes=15, min_samples_leaf=5, random_state=1
    )
    trees.fit(np.array([r[1] for r in fitted], float), np.log([r[3] for r in fitted]))
    predicted = np.exp(trees.predict(np.array([r[1] for r in others], float)))
    for (_, _, tiles, time), p in zip(others, predicted):
        yield tiles, abs(p / time - 1)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    solvers = collections.defaultdict(list)
    with open(sys.argv[1], newline="") as table:
        for row in csv.DictReader(table):
            if row["dims"] == "2d" and float(row["best_ms"] or 0) > 0 and (found := features(row)):
                key = row["db"], row["dtype"], row["best_solver"]
                solvers[key].append((shape(row), *found, float(row["best_ms"])))
    groups = collections.defaultdict(lambda: ([], [], []))
    for (database, dtype, _), rows in sorted(solvers.items()):
        if len(rows) >= LEAST_ROWS:
            for tiles, error in errors(rows):
                each = tiles / units(database)
                groups[database, dtype][0 if each < 1 else 1 if each < 2 else 2].append(error)
    print("| chip | type | rows | under 1 tile per CU | 1 to 2 | over 2 |\n|---|---|---|---|---|---|")
    for (database, dtype), buckets in sorted(groups.items()):
        cells = [f"{np.median(b):.0%} / {np.quantile(b, 0.9):.0%}" if b else "-" for b in buckets]
        print(f"| {database} | {dtype} | {sum(map(len, buckets))} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
