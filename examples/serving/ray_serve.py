"""An ONNX model as a Ray Serve deployment: replicas, batching, the Open Inference Protocol's JSON over HTTP.

    pip install 'ray[serve]' onnxruntime ./tools/onnxruntime-ep
    python ray_serve.py ../digits/digits.onnx --name digits --replicas 2

Ray replaces replicas that die and sends requests that they had not answered to others. A replica on a machine with GPUs takes
one of them with --gpus 1 (Ray sets which it sees).
"""

import argparse
import time

import numpy as np
from fastapi import FastAPI, HTTPException, Request
from ray import serve

app = FastAPI()
TYPES = {"float": ("FP32", np.float32), "double": ("FP64", np.float64), "int64": ("INT64", np.int64), "int32": ("INT32", np.int32)}


@serve.deployment(max_ongoing_requests=64)
@serve.ingress(app)
class OnnxModel:
    """One model; every replica has a session of its own."""

    def __init__(self, name, path, device):
        import onnxruntime_ep_barewave

        self.name = name
        self.session = onnxruntime_ep_barewave.InferenceSession(path, device=device)
        kind = lambda v: TYPES[v.type.removeprefix("tensor(").removesuffix(")")]  # noqa: E731
        shape = lambda v: [d if isinstance(d, int) else -1 for d in v.shape]  # noqa: E731
        self.inputs = {v.name: (*kind(v), shape(v)) for v in self.session.get_inputs()}
        self.outputs = {v.name: (*kind(v), shape(v)) for v in self.session.get_outputs()}
        everything = [*self.inputs.values(), *self.outputs.values()]
        self.batches = all(s and s[0] == -1 for _, _, s in everything)
        self.requests = self.runs = 0

    @app.get("/v2/health/ready")
    def ready(self):
        return {"ready": True}

    @app.get("/v2/models/{name}")
    def metadata(self, name: str):
        self.check_name(name)
        listed = lambda ports: [{"name": n, "datatype": t, "shape": s} for n, (t, _, s) in ports.items()]  # noqa: E731
        return {"name": self.name, "platform": "onnxruntime", "inputs": listed(self.inputs), "outputs": listed(self.outputs)}

    @app.get("/v2/models/{name}/stats")
    def stats(self, name: str):
        """Of the replica that answers."""
        self.check_name(name)
        replica = serve.get_replica_context().replica_tag
        return {"replica": replica, "requests": self.requests, "runs": self.runs}

    @app.post("/v2/models/{name}/infer")
    async def infer(self, name: str, request: Request):
        self.check_name(name)
        try:
            body = await request.json()
            feeds = self.feeds(body["inputs"])
            self.requests += 1
        except (ValueError, KeyError, TypeError) as e:
            raise HTTPException(400, f"the request is not readable: {e}") from None
        results = await (self.run_together(feeds) if self.batches else self.run_alone(feeds))
        if isinstance(results, Exception):
            raise HTTPException(400, str(results))
        outputs = [
            {"name": n, "datatype": t, "shape": list(a.shape), "data": a.ravel().tolist()}
            for (n, (t, _, _)), a in zip(self.outputs.items(), results)
        ]
        return {"id": body.get("id", ""), "model_name": self.name, "outputs": outputs}

    def check_name(self, name):
        if name != self.name:
            raise HTTPException(404, f"no such model: {name}; there is {self.name}")

    def feeds(self, tensors):
        """A request's tensors; what does not fit the model is refused with a message that says what and where."""
        given = {t["name"]: t for t in tensors}
        if sorted(given) != sorted(self.inputs):
            raise HTTPException(400, f"the inputs are {', '.join(given) or 'none'}; the model takes {', '.join(self.inputs)}")
        feeds = {}
        for name, (kind, dtype, wanted) in self.inputs.items():
            t, shape = given[name], given[name]["shape"]
            if t["datatype"] != kind:
                raise HTTPException(400, f"input {name} is {t['datatype']}, the model takes {kind}")
            if len(shape) != len(wanted) or any(w not in (-1, s) for s, w in zip(shape, wanted)):
                raise HTTPException(400, f"input {name} has shape {shape}, the model takes {wanted}")
            feeds[name] = np.asarray(t["data"], dtype).reshape(shape)
        return feeds

    async def run_alone(self, feeds):
        self.runs += 1
        try:
            return self.session.run(None, feeds)
        except Exception as e:  # the request's failure, not the replica's
            return e

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)
    async def run_together(self, requests):
        sizes = [len(next(iter(f.values()))) for f in requests]
        alike = all(f[n].shape[1:] == a.shape[1:] for f in requests for n, a in requests[0].items())
        if len(requests) == 1 or not alike:
            return [await self.run_alone(f) for f in requests]
        results = await self.run_alone({n: np.concatenate([f[n] for f in requests]) for n in requests[0]})
        if isinstance(results, Exception):
            return [results] * len(requests)
        ends = np.cumsum(sizes)
        return [[r[end - size : end] for r in results] for size, end in zip(sizes, ends)]


def deployment(name, path, device="auto", replicas=2, gpus=0):
    """The deployment, for serve.run."""
    configured = OnnxModel.options(num_replicas=replicas, ray_actor_options={"num_cpus": 0.5, "num_gpus": gpus})
    return configured.bind(name, path, device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--name", default="model")
    parser.add_argument("--device", default="auto", help="auto, hip:N, or emu:TARGET")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--gpus", type=float, default=0)
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    serve.start(http_options={"port": args.port})
    serve.run(deployment(args.name, args.model, args.device, args.replicas, args.gpus))
    while True:
        time.sleep(3600)
