"""The servers, with tritonclient as a client. Skipped where kserve or tritonclient are not installed."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

# Not imported here: its gRPC descriptors and tritonclient's have the same names.
if importlib.util.find_spec("kserve") is None or importlib.util.find_spec("onnxruntime_ep_barewave") is None:
    pytest.skip("kserve or onnxruntime-ep-barewave are not installed", allow_module_level=True)
grpc = pytest.importorskip("tritonclient.grpc")
http = pytest.importorskip("tritonclient.http")
pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from models import scorer  # noqa: E402


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Addresses of a running server, and what is right."""
    path = str(tmp_path_factory.mktemp("serving") / "scorer.onnx")
    scorer(path)
    ports = free_port(), free_port()
    command = [sys.executable, os.path.join(HERE, "kserve_server.py"), "--model_name", "scorer", "--model_path", path]
    command += ["--device", "emu:gfx1100", "--http_port", str(ports[0]), "--grpc_port", str(ports[1])]
    process = subprocess.Popen(command, env={**os.environ, "BAREWAVE_CACHE": "off"})
    try:
        client = http.InferenceServerClient(f"127.0.0.1:{ports[0]}")
        for _ in range(300):
            try:
                if client.is_model_ready("scorer"):
                    break
            except Exception:
                assert process.poll() is None, "the server ended"
            time.sleep(0.2)
        judge = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        yield f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", judge
    finally:
        process.terminate()
        process.wait(30)


def ask_json(address, x):
    """Numbers as text, both ways."""
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
    request = urllib.request.Request(f"http://{address}/v2/models/scorer/infer", json.dumps({"inputs": [tensor]}).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        (output,) = json.load(answer)["outputs"]
    return np.array(output["data"], np.float32).reshape(output["shape"])


def ask(module, address, x, kind="FP32", name="x"):
    tensor = module.InferInput(name, list(x.shape), kind)
    tensor.set_data_from_numpy(x)
    with module.InferenceServerClient(address) as client:
        return client.infer("scorer", [tensor]).as_numpy("p")


def rows(n, seed=1):
    return np.random.default_rng(seed).standard_normal((n, 8), dtype=np.float32)


@pytest.mark.parametrize("n", [1, 4])
def test_right_answers(server, n):
    web, rpc, judge = server
    x = rows(n)
    (want,) = judge.run(None, {"x": x})
    for got in [ask(http, web, x), ask_json(web, x), ask(grpc, rpc, x)]:
        assert got.shape == want.shape and np.allclose(got, want, rtol=1e-4, atol=1e-5)


def test_metadata(server):
    web, _, _ = server
    info = http.InferenceServerClient(web).get_model_metadata("scorer")
    assert info["inputs"][0]["name"] == "x" and info["inputs"][0]["datatype"] == "FP32"
    assert [int(d) for d in info["inputs"][0]["shape"]] == [-1, 8] and info["outputs"][0]["name"] == "p"


def counted(web):
    """Requests and runs so far."""
    with urllib.request.urlopen(f"http://{web}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    value = lambda name: next(float(l.split()[-1]) for l in lines if l.startswith(f'{name}{{model="scorer"}}'))  # noqa: E731
    return value("onnx_requests_total"), value("onnx_runs_total")


def test_concurrent_clients_are_batched(server):
    web, rpc, judge = server
    wrong = []
    ask(http, web, rows(1))
    before = counted(web)

    def work(i):
        for k in range(5):
            x = rows(1 + i % 3, i * 10 + k)
            got = ask(*((http, web) if i % 2 else (grpc, rpc)), x)
            if not np.allclose(got, judge.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert wrong == []
    requests, runs = (now - then for now, then in zip(counted(web), before))
    print(f"{requests:.0f} requests in {runs:.0f} runs")
    assert requests == 40 and runs <= 30


@pytest.mark.parametrize(
    "x, kind, name, message",
    [
        (np.zeros((2, 7), np.float32), "FP32", "x", r"input x has shape \[2, 7\], the model takes \[-1, 8\]"),
        (np.zeros((2, 8), np.float64), "FP64", "x", "input x is FP64, the model takes FP32"),
        (np.zeros((2, 8), np.float32), "FP32", "y", "no such input: y; the model takes x"),
    ],
)
def test_bad_requests(server, x, kind, name, message):
    web, _, _ = server
    with pytest.raises(http.InferenceServerException, match=message) as e:
        ask(http, web, x, kind, name)
    assert str(e.value.status()) == "400"
    assert ask(http, web, rows(1)).shape == (1, 3)


@pytest.mark.parametrize(
    "path, body, code, message",
    [
        ("scorer", b"{", 422, ""),
        ("scorer", b'{"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1, 2]}]}', 400, "x"),
        ("scorer", b'{"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": ["a", "b"]}]}', 400, ""),
        ("other", b'{"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1]}]}', 404, "other"),
    ],
)
def test_bodies_that_make_no_sense(server, path, body, code, message):
    web, _, _ = server
    request = urllib.request.Request(f"http://{web}/v2/models/{path}/infer", body)
    request.add_header("Content-Type", "application/json")
    with pytest.raises(urllib.error.HTTPError) as e:
        urllib.request.urlopen(request)
    assert e.value.code == code and message in e.value.read().decode()
    assert ask(http, web, rows(1)).shape == (1, 3)


@pytest.mark.parametrize("device, says", [("emu:gfx9999", "unknown target `gfx9999`"), ("hip", "no HIP driver")])
def test_servers_that_cannot_be(tmp_path, device, says):
    """What is wrong is said when the server is started, which then ends."""
    if device == "hip" and os.path.exists("/dev/kfd"):
        pytest.skip("there is a GPU")
    scorer(str(tmp_path / "m.onnx"))
    command = [sys.executable, os.path.join(HERE, "kserve_server.py"), "--model_name", "m", "--device", device]
    command += ["--model_path", str(tmp_path / "m.onnx"), "--http_port", str(free_port()), "--grpc_port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and says in done.stdout + done.stderr


def test_load(server):
    web, _, _ = server
    command = [sys.executable, os.path.join(HERE, "load.py"), web, "scorer", "--requests", "200", "--clients", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "200 answers, 0 failures" in done.stdout, done.stdout + done.stderr
    print(done.stdout)
