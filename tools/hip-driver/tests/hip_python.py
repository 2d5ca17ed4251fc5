"""Drives the emulated HIP driver through PyPI's hip-python, which is written against AMD's own library.

Usage: hip_python.py ADD.hsaco, where ADD.hsaco is examples/vector_add/vector_add.onnx compiled by
`barewave compile` for the device's architecture. Every call is checked; the process ends with 1 when something is wrong.
"""

import ctypes
import json
import random
import struct
import sys

from hip import hip


def check(result):
    """The values behind the result code, which must be hipSuccess."""
    code, *values = result if isinstance(result, tuple) else (result,)
    if code != hip.hipError_t.hipSuccess:
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r} instead of {wanted!r}")


def main():
    check(hip.hipInit(0))
    expect("devices", check(hip.hipGetDeviceCount()), 1)
    properties = hip.hipDeviceProp_t()
    check(hip.hipGetDeviceProperties(properties, 0))
    print(properties.name.decode(), properties.gcnArchName.decode(), properties.totalGlobalMem >> 30, "GiB")

    with open(sys.argv[1], "rb") as f:
        image = f.read()
    module = check(hip.hipModuleLoadData(image))
    # One launch with three addresses: the kernel's name, grid and block stand in the launch plan.
    plan, _ = json.JSONDecoder().raw_decode(image[image.index(b'{"version"'):].decode("latin-1"))
    launch = plan["launches"][0]
    kernel = check(hip.hipModuleGetFunction(module, launch["kernel"].encode()))

    elements = 1
    for extent in plan["inputs"][0]["shape"]:
        elements *= extent
    size = 4 * elements
    random.seed(7)
    a = [random.randrange(-1000, 1000) / 8 for _ in range(elements)]
    b = [random.randrange(-1000, 1000) / 8 for _ in range(elements)]
    pack = lambda values: bytearray(struct.pack(f"{elements}f", *values))

    stream = check(hip.hipStreamCreate())
    start, stop = check(hip.hipEventCreate()), check(hip.hipEventCreate())
    buffers = [check(hip.hipMalloc(size)) for _ in range(3)]

    def launch_sum():
        check(
            hip.hipModuleLaunchKernel(
                kernel,
                *launch["grid"],
                *(launch["block"], 1, 1),
                sharedMemBytes=0,
                stream=stream,
                kernelParams=None,
                extra=tuple(ctypes.c_void_p(int(buffer)) for buffer in buffers),
            )
        )

    check(hip.hipMemcpyAsync(buffers[0], pack(a), size, hip.hipMemcpyKind.hipMemcpyHostToDevice, stream))
    check(hip.hipMemcpyAsync(buffers[1], pack(b), size, hip.hipMemcpyKind.hipMemcpyHostToDevice, stream))
    check(hip.hipMemsetAsync(buffers[2], 0xFF, size, stream))
    check(hip.hipEventRecord(start, stream))
    launch_sum()
    check(hip.hipEventRecord(stop, stream))
    out = bytearray(size)
    check(hip.hipMemcpyAsync(out, buffers[2], size, hip.hipMemcpyKind.hipMemcpyDeviceToHost, stream))
    check(hip.hipStreamSynchronize(stream))
    expect("sums", list(struct.unpack(f"{elements}f", out)), [x + y for x, y in zip(a, b)])
    milliseconds = check(hip.hipEventElapsedTime(start, stop))
    if not 0 < milliseconds < 60_000:
        sys.exit(f"an elapsed time of {milliseconds} ms")

    # The launch and a copy of the sum to the first summand, captured as a graph and launched twice.
    check(hip.hipStreamBeginCapture(stream, hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal))
    launch_sum()
    check(hip.hipMemcpyAsync(buffers[0], buffers[2], size, hip.hipMemcpyKind.hipMemcpyDeviceToDevice, stream))
    graph = check(hip.hipStreamEndCapture(stream))
    runnable = check(hip.hipGraphInstantiateWithFlags(graph, 0))
    for _ in range(2):
        check(hip.hipGraphLaunch(runnable, stream))
    check(hip.hipStreamSynchronize(stream))
    check(hip.hipMemcpy(out, buffers[0], size, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    expect("a + 2 b by a graph", list(struct.unpack(f"{elements}f", out)), [x + 2 * y for x, y in zip(a, b)])
    check(hip.hipGraphExecDestroy(runnable))
    check(hip.hipGraphDestroy(graph))

    # Mistakes are errors, not crashes.
    code = hip.hipModuleGetFunction(module, b"no_such_kernel")[0]
    expect("a missing kernel", code, hip.hipError_t.hipErrorNotFound)
    expect("a missing device", hip.hipSetDevice(7)[0], hip.hipError_t.hipErrorInvalidDevice)

    for buffer in buffers:
        check(hip.hipFree(buffer))
    for event in (start, stop):
        check(hip.hipEventDestroy(event))
    check(hip.hipStreamDestroy(stream))
    check(hip.hipModuleUnload(module))
    print(f"hip-python: {elements} sums, a graph and two mistakes as expected")


if __name__ == "__main__":
    main()
