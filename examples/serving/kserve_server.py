"""An ONNX model behind the Open Inference Protocol, on an AMD GPU without ROCm: KServe's model server, onnxruntime, barewave.

    pip install kserve onnxruntime ./tools/onnxruntime-ep
    python kserve_server.py --model_name digits --model_path ../digits/digits.onnx --http_port 8080 --grpc_port 8081

HTTP (JSON and binary) and gRPC; the same file is the custom runtime on a cluster (kserve.yaml). Requests that wait at the same
time and agree in everything but the first dimension are run as one batch, where the model leaves that dimension open; /metrics
counts requests and runs.
"""

import argparse
import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import onnxruntime_ep_barewave
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer, model_server
from kserve.errors import InvalidInput
from prometheus_client import Counter

# onnxruntime's element types, the protocol's, and numpy's.
TYPES = {
    "float": ("FP32", np.float32),
    "double": ("FP64", np.float64),
    "float16": ("FP16", np.float16),
    "int8": ("INT8", np.int8),
    "int16": ("INT16", np.int16),
    "int32": ("INT32", np.int32),
    "int64": ("INT64", np.int64),
    "uint8": ("UINT8", np.uint8),
    "uint16": ("UINT16", np.uint16),
    "uint32": ("UINT32", np.uint32),
    "uint64": ("UINT64", np.uint64),
    "bool": ("BOOL", np.bool_),
}

REQUESTS = Counter("onnx_requests", "Requests that were run", ["model"])
RUNS = Counter("onnx_runs", "Runs of the model: fewer than requests where these were batched", ["model"])


def declared(arg):
    """An input or output as the protocol's metadata has it: open dimensions are -1."""
    kind = TYPES[arg.type.removeprefix("tensor(").removesuffix(")")]
    shape = [d if isinstance(d, int) else -1 for d in arg.shape]
    return {"name": arg.name, "datatype": kind[0], "shape": shape}, kind[1]


class OnnxModel(Model):
    """One model."""

    def __init__(self, name, path, device, most, patience):
        super().__init__(name)
        self.path, self.device, self.most, self.patience = path, device, most, patience
        self.waiting = []  # pairs: arrays by input, and the future of the results
        self.thread = ThreadPoolExecutor(1)
        self.session = None

    def load(self):
        self.session = onnxruntime_ep_barewave.InferenceSession(self.path, device=self.device)
        self.inputs = [declared(i) for i in self.session.get_inputs()]
        self.outputs = [declared(o) for o in self.session.get_outputs()]
        everything = self.inputs + self.outputs
        self.batches = self.most > 1 and all(i["shape"] and i["shape"][0] == -1 for i, _ in everything)
        self.ready = True
        return True

    async def get_input_types(self):
        return [i for i, _ in self.inputs]

    async def get_output_types(self):
        return [o for o, _ in self.outputs]

    def arrays(self, request):
        """A request's tensors; what does not fit the model is refused with a message that says what and where."""
        given = {i.name: i for i in request.inputs}
        names = [i["name"] for i, _ in self.inputs]
        unknown = [n for n in given if n not in names]
        missing = [n for n in names if n not in given]
        if unknown or missing:
            wrong = f"no such input: {', '.join(unknown)}" if unknown else f"inputs that are not given: {', '.join(missing)}"
            raise InvalidInput(f"{wrong}; the model takes {', '.join(names)}")
        out = {}
        for info, dtype in self.inputs:
            tensor, name = given[info["name"]], info["name"]
            if tensor.datatype != info["datatype"]:
                raise InvalidInput(f"input {name} is {tensor.datatype}, the model takes {info['datatype']}")
            shape, wanted = list(tensor.shape), info["shape"]
            if len(shape) != len(wanted) or any(w not in (-1, s) for s, w in zip(shape, wanted)):
                raise InvalidInput(f"input {name} has shape {shape}, the model takes {wanted}")
            try:
                out[name] = np.asarray(tensor.as_numpy(), dtype).reshape(shape)
            except (ValueError, TypeError) as e:
                raise InvalidInput(f"input {name}: {e}") from None
        return out

    async def predict(self, payload, headers=None, response_headers=None):
        if not isinstance(payload, InferRequest):
            raise InvalidInput("only the Open Inference Protocol (/v2) is served")
        done = asyncio.get_running_loop().create_future()
        arrays = self.arrays(payload)
        self.waiting.append((arrays, done))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().create_task(self.run_waiting())
        results = await done
        outputs, binary = [], bool(payload.from_grpc or payload.use_binary_outputs)
        for (info, _), array in zip(self.outputs, results):
            output = InferOutput(info["name"], list(array.shape), info["datatype"], parameters={"binary_data": binary})
            output.set_data_from_numpy(array, binary_data=binary)
            outputs.append(output)
        return InferResponse(payload.id or "", self.name, outputs)

    def next_batch(self):
        """What runs next: the first that waits, and others that agree with it, as many as fit."""
        first = self.waiting[0]
        if not self.batches:
            return [first]
        batch, rows = [], 0
        for item in self.waiting:
            size = len(next(iter(item[0].values())))
            alike = all(a.shape[1:] == first[0][n].shape[1:] for n, a in item[0].items())
            if item is first or (alike and rows + size <= self.most):
                batch.append(item)
                rows += size
        return batch

    async def run_waiting(self):
        """Runs what waits, until nothing does. A batch goes on waiting while it runs, so that nobody starts this again."""
        if self.batches:
            await asyncio.sleep(self.patience)
        while self.waiting:
            batch = self.next_batch()
            try:
                whole = batch[0][0]
                if len(batch) > 1:
                    whole = {n: np.concatenate([arrays[n] for arrays, _ in batch]) for n in whole}
                loop = asyncio.get_running_loop()
                results = await loop.run_in_executor(self.thread, self.session.run, None, whole)
                RUNS.labels(self.name).inc()
                REQUESTS.labels(self.name).inc(len(batch))
                start = 0
                for arrays, done in batch:
                    end = start + len(next(iter(arrays.values()))) if self.batches else None
                    if not done.done():
                        done.set_result([r[start:end] for r in results] if self.batches else results)
                    start = end
            except Exception as e:  # a run that fails is its requests' failure, not the server's
                for _, done in batch:
                    if not done.done():
                        done.set_exception(InvalidInput(str(e)))
            taken = [id(b) for b in batch]
            self.waiting = [w for w in self.waiting if id(w) not in taken]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(parents=[model_server.parser])
    parser.add_argument("--model_path", required=True, help="ONNX file")
    parser.add_argument("--device", default="auto", help="auto, hip:N, or emu:TARGET")
    parser.add_argument("--max_batch", type=int, default=32, help="rows of a batch; 1 switches batching off")
    parser.add_argument("--patience", type=float, default=0.002, help="seconds that a request waits for others")
    args = parser.parse_args()
    model = OnnxModel(args.model_name, args.model_path, args.device, args.max_batch, args.patience)
    model.load()
    ModelServer(http_port=args.http_port, grpc_port=args.grpc_port, workers=1).start([model])
