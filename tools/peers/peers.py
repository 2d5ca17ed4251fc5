"""barewave's kernels beside those of clang, Triton and IREE: 50 shapes, all by barewave's cycle model.

    python3 tools/peers/peers.py [--targets gfx942,gfx1100,gfx906] [--types f32,f16] [--work FOLDER] [--json FILE] [SHAPE...]

Needs `barewave` (BAREWAVE, else target/release/barewave, else the PATH). Peers are what is there: clang-22 (CLANG), Triton 3.9
(importable by this Python), iree-compile 3.13 (IREE_COMPILE, else on the PATH); what is missing, or refuses a target or shape, is a dash.
`pip install triton==3.9.0 iree-base-compiler==3.13.0` gives both; no GPU is needed. Compiled kernels stay in the work folder.

A peer's time for a shape is that of its quickest kernel: clang and Triton have a few tiles each, of which the model's best is taken as a
tuner would; IREE's own dispatches are added up. A launch costs everyone the same. Peers get weights as they are; barewave's are constants.
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

SHAPES = """
square    256x256x256 512x512x512 1024x1024x1024 2048x2048x2048 4096x4096x4096
tall      8192x256x256 16384x64x512 4096x128x1024 32768x32x128
skinny    4x4096x4096 16x4096x4096 64x1024x8192 1x8192x8192
odd       127x129x255 333x777x555 1000x1000x1000 1021x1019x1013 2049x2049x2049
batched   12x128x128x64 12x128x64x128 64x256x256x64 8x512x512x512
BERT      128x768x768 128x2304x768 128x3072x768 128x768x3072 512x1024x1024
Llama     1x4096x4096 1x11008x4096 128x4096x11008 2048x4096x4096
ResNet    1x3x224x224:64x7x7:2:3 1x64x56x56:64x1x1 1x64x56x56:64x3x3:1:1 1x64x56x56:256x1x1 1x256x56x56:128x1x1
ResNet    1x128x56x56:128x3x3:2:1 1x128x28x28:128x3x3:1:1 1x512x28x28:256x1x1 1x256x14x14:256x3x3:1:1
ResNet    1x1024x14x14:512x1x1 1x512x7x7:512x3x3:1:1 1x512x7x7:2048x1x1
ResNet16  16x64x56x56:64x3x3:1:1 16x128x28x28:128x3x3:1:1 16x256x14x14:256x3x3:1:1 16x256x14x14:1024x1x1
ResNet16  16x512x7x7:512x3x3:1:1 16x256x56x56:64x1x1 16x128x56x56:128x3x3:2:1
"""


class Gemm:
    """batch x [M,K] x [K,N]; `of_conv` is the 1x1 convolution that it is, whose images have one A."""

    def __init__(self, batch, m, n, k, of_conv=None):
        self.batch, self.m, self.n, self.k, self.of_conv = batch, m, n, k, of_conv

    def elements(self):
        return ((1 if self.of_conv else self.batch) * self.m * self.k, self.batch * self.k * self.n, self.batch * self.m * self.n)


class Conv:
    def __init__(self, text):
        x, w, *rest = text.split(":")
        self.images, self.channels, self.h, self.w = map(int, x.split("x"))
        self.m, self.r, self.s = map(int, w.split("x"))
        self.stride, self.pad = (list(map(int, rest)) + [1, 0][len(rest):])[:2]
        self.p, self.q = ((e + 2 * self.pad - k) // self.stride + 1 for e, k in ((self.h, self.r), (self.w, self.s)))

    def elements(self):
        return (self.m * self.channels * self.r * self.s, self.images * self.channels * self.h * self.w, self.images * self.m * self.p * self.q)


def parse(text):
    if ":" not in text:
        *batch, m, n, k = map(int, text.split("x"))
        return Gemm(batch[0] if batch else 1, m, n, k)
    c = Conv(text)
    plain = (c.r, c.s, c.stride, c.pad) == (1, 1, 1, 0)
    return Gemm(c.images, c.m, c.h * c.w, c.channels, c) if plain else c


def quiet(command, **more):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, **more)


def barewave():
    built = HERE.parent.parent / "target" / "release" / "barewave"
    return os.environ.get("BAREWAVE") or (str(built) if built.exists() else shutil.which("barewave"))


class Model:
    """Times of kernels for a shape, by `barewave bench`."""

    def __init__(self, program, shape, dtype, target):
        family = "conv" if ":" in shape else "gemm"
        self.command = [program, "bench", family, "--shape", shape, "--dtype", dtype, "--target", target, "--json"]

    def ours(self):
        out = quiet(self.command)
        if out.returncode:
            sys.exit(f"{' '.join(self.command)}: {out.stderr}")
        return json.loads(out.stdout)[0]["microseconds"]

    def of(self, code, kernel, grid, block, args, lds=0):
        more = ["--lds", str(lds), "--against", code, "--kernel", kernel, "--grid", ",".join(map(str, grid)), "--block", ",".join(map(str, block))]
        out = quiet(self.command + more + [x for a in args for x in ("--arg", a)])
        if out.returncode:
            print(f"note: {code} {kernel}: {out.stderr.strip()}", file=sys.stderr)
            return None
        return json.loads(out.stdout)[0]["against"]["modelled"]["microseconds"]


def buffers(op, dtype):
    a, b, c = op.elements()
    return [f"in:{a}x{dtype}=0", f"in:{b}x{dtype}=0", f"out:{c}x{dtype}"]


def worth(tiles, rows, columns):
    """Tiles that are not mostly outside of a product; the smallest in any case."""
    return [t for t in tiles if t[0] < 2 * rows and t[1] < 2 * columns] or tiles[-1:]


def best(times):
    return min((t for t in times if t is not None), default=None)


def up(a, b):
    return -(-a // b)


# Tiles of the peers whose kernels are written here: rows, columns, depth and, of clang, rows and columns of a workitem.
CLANG_TILES = [(128, 128, 8, 8, 8), (64, 64, 16, 4, 4), (32, 32, 16, 2, 2)]
TRITON_TILES = [(128, 256, 32, 8), (128, 128, 32, 4), (64, 64, 32, 4), (32, 64, 64, 4), (16, 32, 64, 2)]


class Clang:
    name = "clang"

    def __init__(self, work):
        self.program, self.work = os.environ.get("CLANG") or shutil.which("clang-22"), work

    def there(self):
        return self.program is not None

    def takes(self, _target):
        return True

    def code(self, target, defines):
        flags = [f"-D{k}={v}" for k, v in defines.items()]
        out = self.work / f"clang-{target}-{hashlib.sha1(' '.join(flags).encode()).hexdigest()[:12]}.hsaco"
        if not out.exists():
            run = quiet([self.program, "-x", "cl", "-cl-std=CL2.0", "-O3", "-cl-mad-enable", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}",
                         "-nogpulib", "-w", *flags, HERE / "kernels.cl", "-o", out])
            if run.returncode:
                print(f"note: clang for {target}: {run.stderr.strip()[:300]}", file=sys.stderr)
                return None
        return out

    def microseconds(self, op, dtype, target, model):
        args, t = buffers(op, dtype), {"f32": "float", "f16": "half"}[dtype]
        if isinstance(op, Gemm):
            shape = {"T": t, "M": op.m, "N": op.n, "K": op.k, "A_APART": 0 if op.of_conv else op.m * op.k, "B_APART": op.k * op.n, "C_APART": op.m * op.n}
            columns, batch = op.n, op.batch
        else:
            shape = {"T": t, "CONV": 1, "M": op.m, "K": op.channels * op.r * op.s, "IMAGES": op.images, "CHANNELS": op.channels, "H": op.h, "W": op.w,
                     "P": op.p, "Q": op.q, "R": op.r, "S": op.s, "STRIDE": op.stride, "PAD": op.pad, "A_APART": 0, "B_APART": 0, "C_APART": 0}
            columns, batch = op.images * op.p * op.q, 1
        times = []
        for bm, bn, bk, tm, tn in worth(CLANG_TILES, op.m, columns):
            code = self.code(target, {**shape, "BM": bm, "BN": bn, "BK": bk, "TM": tm, "TN": tn})
            grid = (up(columns, bn), up(op.m, bm), batch)
            times.append(code and model.of(code, "product", grid, [bm // tm * (bn // tn)], args))
            if code and isinstance(op, Gemm) and op.m <= 4 and op.batch == 1 and len(times) == 1:
                times.append(model.of(code, "rows", (up(op.n, 128), 1, 1), [256], args))
        return best(times)


class Triton:
    name = "Triton"
    waves = {"gfx942": 64, "gfx950": 64, "gfx90a": 64, "gfx1100": 32, "gfx1201": 32}

    def __init__(self, work):
        self.work = work
        os.environ.setdefault("TRITON_CACHE_DIR", str(work / "triton"))
        try:
            import triton_kernels
            self.kernels = triton_kernels
        except ImportError:
            self.kernels = None

    def there(self):
        return self.kernels is not None

    def takes(self, target):
        return target in self.waves

    def code(self, name, target, dtype, ints, constants, warps):
        """Compiles for what is known of the integers, as Triton's launcher does: whether each is a multiple of 16."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
        import triton

        fn = getattr(self.kernels, name)
        pointer = {"f32": "*fp32", "f16": "*fp16"}[dtype]
        pointers = fn.arg_names[:3]
        whole = [n for n, v in ints.items() if v % 16 == 0]
        key = json.dumps([name, target, dtype, whole, constants, warps])
        out = self.work / f"triton-{target}-{hashlib.sha1(key.encode()).hexdigest()[:12]}"
        if not out.with_suffix(".json").exists():
            types = {**{p: pointer for p in pointers}, **{n: "i32" for n in ints}, **{n: "constexpr" for n in constants}}
            known = {(fn.arg_names.index(n),): [["tt.divisibility", 16]] for n in [*pointers, *whole]}
            try:
                source = ASTSource(fn=fn, signature=types, constexprs=constants, attrs=known)
                k = triton.compile(source, target=GPUTarget("hip", target, self.waves[target]), options={"num_warps": warps, "num_stages": 2})
                out.with_suffix(".hsaco").write_bytes(k.asm["hsaco"])
                said = [k.metadata.name, k.metadata.num_warps * k.metadata.warp_size, k.metadata.shared]
            except Exception as e:  # the compiler's own, of any kind
                print(f"note: Triton for {target}, {name} {constants}: {str(e).splitlines()[:1]}", file=sys.stderr)
                said = None
            out.with_suffix(".json").write_text(json.dumps(said))
        said = json.loads(out.with_suffix(".json").read_text())
        return said and (out.with_suffix(".hsaco"), *said)

    def microseconds(self, op, dtype, target, model):
        a, x, y = buffers(op, dtype)
        times = []

        def add(name, ints, constants, warps, grid, pointers):
            made = self.code(name, target, dtype, ints, constants, warps)
            if made:
                code, symbol, threads, shared = made
                # The last two arguments are pointers to scratch.
                args = [*pointers, *(f"i32:{v}" for v in ints.values()), "null", "null"]
                times.append(model.of(code, symbol, grid, [threads], args, shared))

        columns = op.n if isinstance(op, Gemm) else op.images * op.p * op.q
        for bm, bn, bk, warps in worth(TRITON_TILES, op.m, columns):
            tile = {"BM": bm, "BN": bn, "BK": bk}
            if isinstance(op, Gemm):
                ints = {"M": op.m, "N": op.n, "K": op.k, "a_apart": 0 if op.of_conv else op.m * op.k}
                add("product", ints, {**tile, "GROUP": 8}, warps, (up(op.m, bm) * up(op.n, bn), op.batch, 1), [a, x, y])
            else:
                ints = {"M": op.m, "images": op.images, "channels": op.channels, "H": op.h, "W": op.w, "P": op.p, "Q": op.q}
                window = {"R": op.r, "S": op.s, "STRIDE": op.stride, "PAD": op.pad}
                add("convolution", ints, {**window, **tile}, warps, (up(op.images * op.p * op.q, bn), up(op.m, bm), 1), [a, x, y])
        if isinstance(op, Gemm) and op.m <= 4 and op.batch == 1:
            for bn, bk in [(64, 64), (128, 64), (32, 128)]:
                add("rows", {"M": op.m, "N": op.n, "K": op.k}, {"BN": bn, "BK": bk}, 4, (up(op.n, bn), op.m, 1), [a, x, y])
        return best(times)


class Iree:
    name = "IREE"
    targets = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")

    def __init__(self, work):
        beside = pathlib.Path(sys.executable).parent / "iree-compile"
        self.program, self.work = os.environ.get("IREE_COMPILE") or shutil.which("iree-compile") or (beside.exists() and beside), work

    def there(self):
        return bool(self.program)

    def takes(self, target):
        return target in self.targets

    def source(self, op, t):
        narrow = t != "f32"
        if isinstance(op, Gemm) and not op.of_conv:
            lead = [op.batch] if op.batch > 1 else []
            kind = "batch_matmul" if lead else "matmul"
            a, b, c = [*lead, op.m, op.k], [*lead, op.k, op.n], [*lead, op.m, op.n]
            extra, pad = "", 0
        else:
            v = op.of_conv if isinstance(op, Gemm) else op
            a, b, c = [v.images, v.channels, v.h, v.w], [v.m, v.channels, v.r, v.s], [v.images, v.m, v.p, v.q]
            kind, pad = "conv_2d_nchw_fchw", v.pad
            extra = f" {{dilations = dense<1> : tensor<2xi64>, strides = dense<{v.stride}> : tensor<2xi64>}}"
        type_of = lambda dims, t: f"tensor<{'x'.join(map(str, dims))}x{t}>"
        x, lines = "%a", []
        if pad:
            whole = [*a[:2], a[2] + 2 * pad, a[3] + 2 * pad]
            lines = [f"%zt = arith.constant 0.0 : {t}",
                     f"%p = tensor.pad %a low[0, 0, {pad}, {pad}] high[0, 0, {pad}, {pad}] {{ ^bb0(%i: index, %j: index, %k: index, %l: index): "
                     f"tensor.yield %zt : {t} }} : {type_of(a, t)} to {type_of(whole, t)}"]
            x, given = "%p", whole
        else:
            given = a
        lines += ["%z = arith.constant 0.0 : f32", f"%e = tensor.empty() : {type_of(c, 'f32')}",
                  f"%f = linalg.fill ins(%z : f32) outs(%e : {type_of(c, 'f32')}) -> {type_of(c, 'f32')}",
                  f"%r = linalg.{kind}{extra} ins({x}, %b : {type_of(given, t)}, {type_of(b, t)}) outs(%f : {type_of(c, 'f32')}) -> {type_of(c, 'f32')}"]
        if narrow:
            lines.append(f"%o = arith.truncf %r : {type_of(c, 'f32')} to {type_of(c, t)}")
        result = "%o" if narrow else "%r"
        body = "\n  ".join([*lines, f"return {result} : {type_of(c, t)}"])
        return f"func.func @f(%a: {type_of(a, t)}, %b: {type_of(b, t)}) -> {type_of(c, t)} {{\n  {body}\n}}\n"

    def microseconds(self, op, dtype, target, model):
        source = self.source(op, dtype)
        folder = self.work / f"iree-{target}-{hashlib.sha1(source.encode()).hexdigest()[:12]}"
        host = folder / "host.mlir"
        if not host.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "in.mlir").write_text(source)
            run = quiet([self.program, folder / "in.mlir", "--iree-hal-target-device=hip", f"--iree-rocm-target={target}", "--iree-opt-level=O3",
                         f"--iree-hal-dump-executable-files-to={folder}", "--compile-to=hal", "-o", host])
            if run.returncode:
                print(f"note: IREE for {target}: {run.stderr.strip()[:200]}", file=sys.stderr)
                host.write_text("")
        total, seen = 0.0, False
        for code, kernel, grid, args in dispatches(folder, host.read_text()):
            us = model.of(code, kernel, grid, block_of(code, kernel), args)
            if us is None:
                return None
            total, seen = total + us, True
        return total if seen else None


def block_of(code, kernel):
    """Workitems of a workgroup, by the metadata in IREE's assembly."""
    text = code.with_suffix(".rocmasm").read_text()
    entry = [e for e in re.split(r"\n  - (?=\.)", text[text.index("amdhsa.kernels"):]) if re.search(rf"\.name:\s+{re.escape(kernel)}\n", e)][0]
    return re.search(r"\.reqd_workgroup_size:\n\s+- (\d+)\n\s+- (\d+)\n\s+- (\d+)", entry).groups()


def dispatches(folder, host):
    """The launches of IREE's host code: code object, kernel, workgroups, arguments."""
    number = lambda text: int(re.match(r"%c(-?\d+)", text.strip()).group(1))
    functions = dict(re.findall(r"(%function_id\w*) = hal\.executable\.lookup\.function.*?function\(@[^)]*::@(\w+)\)", host))
    pattern = r"command_buffer\.dispatch<.*?\[(%function_id\w*)\] workgroups\(\[(.*?)\]\)(?: constants\(\[(.*?)\]\))? bindings\(\[(.*?)\]\) flags"
    for function, grid, constants, bindings in re.findall(pattern, host, re.S):
        kernel = functions[function]
        code = next(c for c in sorted(folder.glob("*.hsaco")) if kernel in c.with_suffix(".rocmasm").read_text())
        sizes = [number(b.split(",")[1]) for b in re.findall(r"\)\[(.*?)\]", bindings)]
        args = [f"in:{size}xu8=0" for size in sizes]
        args += [f"i32:{number(c)}" for c in (constants or "").split(",") if c.strip()]
        yield code, kernel, [number(g) for g in grid.split(",")], args


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("shapes", nargs="*", help="instead of the 50")
    options.add_argument("--targets", default="gfx942,gfx1100,gfx906")
    options.add_argument("--types", default="f32,f16")
    options.add_argument("--peers", default="clang,Triton,IREE")
    options.add_argument("--work", type=pathlib.Path, default=pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / "barewave-peers")
    options.add_argument("--json", type=pathlib.Path, help="write all times to this file; peers' times that it has are kept")
    options = options.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    program = barewave() or sys.exit("no barewave: build it, or name it by BAREWAVE")
    listed = [(line.split()[0], s) for line in SHAPES.strip().splitlines() for s in line.split()[1:]]
    shapes = [("given", s) for s in options.shapes] or listed
    peers = [p for p in (Clang(options.work), Triton(options.work), Iree(options.work)) if p.name in options.peers.split(",")]
    for p in [p for p in peers if not p.there()]:
        print(f"note: {p.name} is not installed: its column is left out", file=sys.stderr)
    peers = [p for p in peers if p.there()]
    kept = json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    kept = {(r["target"], r["dtype"], r["shape"]): r for r in kept}
    rows = []
    for target in options.targets.split(","):
        for dtype in options.types.split(","):
            for kind, shape in shapes:
                model, op = Model(program, shape, dtype, target), parse(shape)
                known = kept.get((target, dtype, shape), {})
                times = {p.name: known[p.name] if p.name in known else p.microseconds(op, dtype, target, model) for p in peers if p.takes(target)}
                rows.append({"target": target, "dtype": dtype, "kind": kind, "shape": shape, "ours": model.ours(), **times})
                r = rows[-1]
                print(f"{target} {dtype} {kind:9} {shape:28} ours {r['ours']:8.1f}  "
                      + "  ".join(f"{p.name} {r.get(p.name):8.1f}" if r.get(p.name) else f"{p.name}        -" for p in peers), file=sys.stderr, flush=True)
                if options.json:
                    others = [r for k, r in kept.items() if k not in {(r["target"], r["dtype"], r["shape"]) for r in rows}]
                    options.json.write_text(json.dumps(rows + others, indent=1))
    summary(rows, [p.name for p in peers])


def summary(rows, peers):
    """A line per target and type: each peer's time over ours (geometric mean and least), and that of the best of them."""
    mean = lambda x: math.exp(sum(map(math.log, x)) / len(x)) if x else None
    print("| target | type | " + "".join(f"{p} / ours (least) | " for p in peers) + "best of them / ours | not slower | slowest |")
    print("|---" * (len(peers) + 5) + "|")
    groups = sorted({(r["target"], r["dtype"]) for r in rows}, key=lambda g: [r["target"] for r in rows].index(g[0]))
    for target, dtype in groups:
        own = [r for r in rows if (r["target"], r["dtype"]) == (target, dtype)]
        cells = []
        for p in peers:
            over = [r[p] / r["ours"] for r in own if r.get(p)]
            cells.append(f"{mean(over):.2f} ({min(over):.2f})" if over else "-")
        over = [(best([r.get(p) for p in peers]) / r["ours"], r["shape"]) for r in own if best([r.get(p) for p in peers])]
        if over:
            ratio, shape = min(over)
            well = sum(o[0] >= 1 for o in over)
            cells += [f"{mean([o[0] for o in over]):.2f}", f"{well} of {len(over)}", f"{ratio:.2f} {shape}"]
        else:
            cells += ["-"] * 3
        print(f"| {target} | {dtype} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
