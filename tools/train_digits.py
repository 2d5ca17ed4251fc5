"""Trains the digits example: a small convolutional network on scikit-learn's 1,797 handwritten digits.

    python3 tools/train_digits.py            # writes examples/digits/, needs numpy, scikit-learn, pillow

Deterministic: the same versions of numpy and scikit-learn write the same files. 1,347 images train, the other 450 (by a
fixed permutation) are held out and only used for the accuracy that is printed and for the example images.
"""

import os
import sys

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

sys.path.insert(0, os.path.dirname(__file__))
from onnx_file import Graph  # noqa: E402

OUT = os.path.join(os.path.dirname(__file__), "..", "examples", "digits")
C1, C2, EPOCHS, BATCH = 16, 32, 60, 32


def columns(x):
    """3x3 patches with padding 1: [n, c, h, w] -> [n, h, w, c * 9]."""
    n, c, h, w = x.shape
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = [p[:, :, i:i + h, j:j + w] for i in range(3) for j in range(3)]
    return np.stack(taps, 2).reshape(n, c * 9, h, w).transpose(0, 2, 3, 1)


def conv(x, w, b):
    cols = columns(x)
    return (cols @ w.reshape(w.shape[0], -1).T + b).transpose(0, 3, 1, 2), cols


def conv_back(dy, x, cols, w):
    d = dy.transpose(0, 2, 3, 1)
    dw = np.tensordot(d, cols, ((0, 1, 2), (0, 1, 2))).reshape(w.shape)
    n, c, h, wd = x.shape
    dcols = (d @ w.reshape(w.shape[0], -1)).transpose(0, 3, 1, 2).reshape(n, c, 9, h, wd)
    dx = np.zeros((n, c, h + 2, wd + 2), x.dtype)
    for k in range(9):
        dx[:, :, k // 3:k // 3 + h, k % 3:k % 3 + wd] += dcols[:, :, k]
    return dw, d.sum((0, 1, 2)), dx[:, :, 1:-1, 1:-1]


def pool(x):
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))
    return y, x == y.repeat(2, 2).repeat(2, 3)


def forward(p, x):
    a1, cols1 = conv(x, p["w1"], p["b1"])
    r1 = np.maximum(a1, 0)
    p1, m1 = pool(r1)
    a2, cols2 = conv(p1, p["w2"], p["b2"])
    r2 = np.maximum(a2, 0)
    p2, m2 = pool(r2)
    flat = p2.reshape(len(x), -1)
    return flat @ p["w3"] + p["b3"], (x, cols1, r1, m1, p1, cols2, r2, m2, flat)


def backward(p, saved, dlogits):
    x, cols1, r1, m1, p1, cols2, r2, m2, flat = saved
    g = {"w3": flat.T @ dlogits, "b3": dlogits.sum(0)}
    d = (dlogits @ p["w3"].T).reshape(len(x), C2, 2, 2).repeat(2, 2).repeat(2, 3) * m2 * (r2 > 0)
    g["w2"], g["b2"], d = conv_back(d, p1, cols2, p["w2"])
    d = d.repeat(2, 2).repeat(2, 3) * m1 * (r1 > 0)
    g["w1"], g["b1"], _ = conv_back(d, x, cols1, p["w1"])
    return g


def shifted(x, rng):
    """Each image moved by up to one pixel."""
    out = np.zeros_like(x)
    for i, (dy, dx) in enumerate(rng.integers(-1, 2, (len(x), 2))):
        out[i] = np.roll(np.pad(x[i], ((0, 0), (1, 1), (1, 1))), (dy, dx), (1, 2))[:, 1:-1, 1:-1]
    return out


def accuracy(p, x, y):
    return int((forward(p, x)[0].argmax(1) == y).sum())


def main():
    digits = load_digits()
    raw = digits.images.astype(np.uint8)[:, None]  # 0..16
    x, y = raw.astype(np.float32) / 16, digits.target
    rng = np.random.default_rng(20)
    order = rng.permutation(len(x))
    test, train = order[:450], order[450:]

    def he(*shape):
        fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    p = {"w1": he(C1, 1, 3, 3), "b1": np.zeros(C1, np.float32), "w2": he(C2, C1, 3, 3), "b2": np.zeros(C2, np.float32),
         "w3": he(C2 * 4, 10), "b3": np.zeros(10, np.float32)}
    mean = {k: np.zeros_like(v) for k, v in p.items()}
    square = {k: np.zeros_like(v) for k, v in p.items()}
    step, total = 0, EPOCHS * (len(train) // BATCH)
    for _ in range(EPOCHS):
        shuffled = rng.permutation(train)
        for i in range(0, len(shuffled) - BATCH + 1, BATCH):
            idx = shuffled[i:i + BATCH]
            logits, saved = forward(p, shifted(x[idx], rng))
            prob = np.exp(logits - logits.max(1, keepdims=True))
            prob /= prob.sum(1, keepdims=True)
            prob[np.arange(len(idx)), y[idx]] -= 1
            grads = backward(p, saved, prob / len(idx))
            step += 1
            rate = 3e-3 * 0.5 * (1 + np.cos(np.pi * step / total))
            for k in p:
                grad = grads[k] + 1e-4 * p[k]
                mean[k] = 0.9 * mean[k] + 0.1 * grad
                square[k] = 0.999 * square[k] + 0.001 * grad * grad
                m, s = mean[k] / (1 - 0.9**step), square[k] / (1 - 0.999**step)
                p[k] = (p[k] - rate * m / (np.sqrt(s) + 1e-8)).astype(np.float32)

    right = accuracy(p, x[test], y[test])
    print(f"training accuracy  {accuracy(p, x[train], y[train])} of {len(train)}")
    print(f"held-out accuracy  {right} of {len(test)} ({100 * right / len(test):.1f}%)")

    g = Graph("digits")
    g.input("image", [1, 1, 8, 8])
    for k in ("w1", "b1", "w2", "b2", "w3", "b3"):
        g.weight(k, p[k])
    g.node("Conv", ["image", "w1", "b1"], ["conv1"], pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    g.node("Relu", ["conv1"], ["relu1"])
    g.node("MaxPool", ["relu1"], ["pool1"], kernel_shape=[2, 2], strides=[2, 2])
    g.node("Conv", ["pool1", "w2", "b2"], ["conv2"], pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    g.node("Relu", ["conv2"], ["relu2"])
    g.node("MaxPool", ["relu2"], ["pool2"], kernel_shape=[2, 2], strides=[2, 2])
    g.node("Flatten", ["pool2"], ["flat"], axis=1)
    g.node("Gemm", ["flat", "w3", "b3"], ["logits"])
    g.node("Softmax", ["logits"], ["probabilities"], axis=1)
    g.output("probabilities", [1, 10])
    os.makedirs(OUT, exist_ok=True)
    # How an image becomes the input: gray, 0..1, not shifted; what the classes are called.
    metadata = {"image.color": "gray", "image.mean": "0", "image.std": "1", "image.layout": "NCHW",
                "labels": ",".join(str(d) for d in range(10)),
                "accuracy": f"{right}/{len(test)}"}
    size = g.save(os.path.join(OUT, "digits.onnx"), metadata)
    print(f"digits.onnx        {size} bytes")

    with open(os.path.join(OUT, "labels.txt"), "w") as f:
        f.writelines(f"{d}\n" for d in range(10))
    np.savez_compressed(os.path.join(OUT, "held_out.npz"), images=raw[test], labels=y[test].astype(np.uint8))
    logits, _ = forward(p, x[test])
    for d in range(10):
        # One image of each digit: recognised, but not with complete certainty.
        prob = np.exp(logits - logits.max(1, keepdims=True))
        prob /= prob.sum(1, keepdims=True)
        sure = np.where((y[test] == d) & (prob[:, d] > 0.95), prob[:, d], 2)
        best = int(sure.argmin())
        pixels = np.round(raw[test[best], 0] * (255 / 16)).astype(np.uint8)
        Image.fromarray(pixels).save(os.path.join(OUT, f"{d}.png"))


if __name__ == "__main__":
    main()
