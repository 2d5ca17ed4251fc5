"""A bounded number of requests over loopback, and how long they took.

    python load.py localhost:8080 digits --requests 2000 --clients 8
"""

import argparse
import threading
import time

import numpy as np
import tritonclient.http as client


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=4)
    args = parser.parse_args()
    info = client.InferenceServerClient(args.address).get_model_metadata(args.model)
    rng, times, failed, lock = np.random.default_rng(1), [], [], threading.Lock()
    inputs = []
    for i in info["inputs"]:
        tensor = client.InferInput(i["name"], [1 if d < 0 else d for d in i["shape"]], i["datatype"])
        tensor.set_data_from_numpy(rng.standard_normal(tensor.shape()).astype(np.float32))
        inputs.append(tensor)

    def work(count):
        session = client.InferenceServerClient(args.address)
        for _ in range(count):
            start = time.perf_counter()
            try:
                session.infer(args.model, inputs)
                took = time.perf_counter() - start
                with lock:
                    times.append(took * 1e3)
            except client.InferenceServerException as e:
                failed.append(e)

    start = time.perf_counter()
    threads = [threading.Thread(target=work, args=(args.requests // args.clients,)) for _ in range(args.clients)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    seconds = time.perf_counter() - start
    print(f"{len(times)} answers, {len(failed)} failures, {len(times) / seconds:.0f} a second")
    if times:
        for p in [50, 90, 99]:
            print(f"p{p}  {np.percentile(times, p):8.2f} ms")


if __name__ == "__main__":
    main()
