"""ONNX models on AMD GPUs, compiled straight to machine code: no ROCm, no LLVM.

>>> import barewave, numpy
>>> session = barewave.InferenceSession("model.onnx")
>>> outputs = session.run(None, {"x": numpy.zeros((1, 3, 224, 224), numpy.float32)})

Without an AMD GPU a session runs on an emulated device (``device="emu:gfx1100"`` names one). ``compile``, ``assemble``,
``disassemble``, ``launch``, ``devices`` and ``isa`` are what the command ``barewave`` does, on numpy arrays and bytes.
Everything that is refused raises :class:`BarewaveError` with a message that says what and where.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from . import _barewave
from ._barewave import BarewaveError, __version__

__all__ = [
    "BarewaveError",
    "Device",
    "InferenceSession",
    "IOBinding",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "assemble",
    "compile",
    "devices",
    "disassemble",
    "get_available_providers",
    "isa",
    "launch",
]

# barewave's name of an element type: numpy's (or ml_dtypes') and ONNX's.
_TYPES = {
    "f32": ("float32", "float"),
    "f64": ("float64", "double"),
    "f16": ("float16", "float16"),
    "bf16": ("bfloat16", "bfloat16"),
    "i8": ("int8", "int8"),
    "i16": ("int16", "int16"),
    "i32": ("int32", "int32"),
    "i64": ("int64", "int64"),
    "u8": ("uint8", "uint8"),
    "u16": ("uint16", "uint16"),
    "u32": ("uint32", "uint32"),
    "u64": ("uint64", "uint64"),
    "bool": ("bool", "bool"),
    "f8e4m3": ("float8_e4m3fn", "float8e4m3fn"),
    "f8e4m3z": ("float8_e4m3fnuz", "float8e4m3fnuz"),
    "f8e5m2": ("float8_e5m2", "float8e5m2"),
    "f8e5m2z": ("float8_e5m2fnuz", "float8e5m2fnuz"),
    "f8e8m0": ("float8_e8m0fnu", "float8e8m0"),
    "f4e2m1": ("float4_e2m1fn", "float4e2m1"),
    "i4": ("int4", "int4"),
    "u4": ("uint4", "uint4"),
    "i2": ("int2", "int2"),
    "u2": ("uint2", "uint2"),
    "string": ("object", "string"),
}
_BY_NUMPY = {numpy: own for own, (numpy, _) in _TYPES.items() if own != "string"}


def _numpy_type(name: str) -> np.dtype:
    """numpy's type for one of ours; types that only ml_dtypes has come as plain bits where it is not installed."""
    wanted = _TYPES[name][0]
    try:
        return np.dtype(wanted)
    except TypeError:
        pass
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, wanted))
    except (ImportError, AttributeError):
        return np.dtype(np.uint16 if name == "bf16" else np.uint8)


def _from_dlpack(value, what: str) -> np.ndarray:
    """The array of a DLPack tensor. numpy knows none of bfloat16: torch's are taken as their bits."""
    torch = sys.modules.get("torch")
    bits = torch is not None and isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
    try:
        array = np.from_dlpack(value.view(torch.int16) if bits else value)
    except (BufferError, RuntimeError, TypeError) as e:
        raise BarewaveError(f"{what}: cannot be taken over through DLPack: {e}") from None
    return array.view(_numpy_type("bf16")) if bits else array


def _converted(value, what: str, dtype: str) -> np.ndarray:
    """An array of one of our types of lists and numbers; nothing is cut off, rounded to whole numbers or read from text."""
    wanted = _TYPES[dtype][0]
    try:
        if dtype == "string":
            return np.asarray(value, object)
        natural = np.asarray(value)
        if natural.dtype.kind not in "biufV" and natural.size:
            raise TypeError(f"an element is of type {type(natural.ravel().tolist()[0]).__name__}")
        with np.errstate(all="ignore"):
            array = natural.astype(_numpy_type(dtype))
            whole = array.dtype.kind in "biu" or dtype in ("i2", "u2", "i4", "u4")
            same = (array.astype(natural.dtype) == natural) & ((array < 0) == (natural < 0))
            kept = same if whole else np.isfinite(array) | ~np.isfinite(natural)
    except (TypeError, ValueError, OverflowError) as e:
        raise BarewaveError(f"{what}: no array of {wanted} can be made of it: {e}") from None
    if not np.all(kept):
        raise BarewaveError(f"{what}: no array of {wanted} can be made of it: an element is {natural[~kept].reshape(-1)[0]}")
    return array


def _array(value, what: str, dtype: str | None = None) -> np.ndarray:
    """An array of what numpy, DLPack or Python has, without a copy where it lies in memory as it should.

    Lists and numbers, which have no type of their own, become ``dtype`` (one of ours) where that is given.
    """
    if isinstance(value, OrtValue):
        value = value.numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise BarewaveError(f"{what}: is a masked array; say what stands for masked elements with .filled()")
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = _from_dlpack(value, what)
    if dtype is not None and not isinstance(value, (np.ndarray, np.generic)):
        value = _converted(value, what, dtype)
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    shape = np.shape(value)
    # ascontiguousarray turns scalars into vectors
    return np.ascontiguousarray(value).reshape(shape)


def _raw(array: np.ndarray, what: str, declared: str | None = None):
    """An array as the native half takes it. Where ml_dtypes is not installed, plain bits are what is ``declared``."""
    own = _BY_NUMPY.get(array.dtype.name)
    if declared not in (None, "string", own) and array.dtype == _numpy_type(declared):
        own = declared
    if own is None or not array.dtype.isnative:
        raise BarewaveError(f"{what}: arrays of {array.dtype} have no counterpart in ONNX; convert it with .astype()")
    return own, list(array.shape), array.ctypes.data, array.nbytes


def _strings(array: np.ndarray, what: str):
    """Strings as the native half takes them: of an array of ``str``, or of objects, or of UTF-8 ``bytes``."""
    try:
        texts = [t.decode() if isinstance(t, bytes) else t for t in array.ravel().tolist()]
        wrong = [t for t in texts if not isinstance(t, str)]
        if wrong:
            raise BarewaveError(f"{what}: an element is of type {type(wrong[0]).__name__}; numbers or strings are needed")
        "".join(texts).encode()
    except UnicodeError as e:
        raise BarewaveError(f"{what}: an element is no UTF-8 text: {e}") from None
    return list(array.shape), texts


def _input(array: np.ndarray, what: str, declared: str | None):
    """A tensor of the type that the model takes, as the native half takes it."""
    text = array.dtype.kind in "OUST"
    raw = _strings(array, what) if text else _raw(array, what, declared)
    if declared is not None and ("string" if text else raw[0]) != declared:
        own = "str_" if declared == "string" else _TYPES[declared][0]
        module = "numpy" if hasattr(np, own) else "ml_dtypes"
        raise BarewaveError(
            f"{what} is {array.dtype.name}, the model takes {own}: convert it with .astype({module}.{own})"
        )
    return raw


def _elements(tensor) -> np.ndarray:
    """The array of a tensor that the native half gave."""
    if tensor.dtype != "string":
        return np.asarray(tensor).view(_numpy_type(tensor.dtype)).reshape(tensor.shape)
    array = np.empty(tensor.shape, object)
    array.reshape(-1)[:] = tensor.texts
    return array


def _source(model):
    """Path and bytes of a model: one of them."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return None, bytes(model)
    if hasattr(model, "SerializeToString"):  # onnx.ModelProto
        return None, model.SerializeToString()
    try:
        return os.fspath(model), None
    except TypeError:
        raise BarewaveError(f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}") from None


def _code(code) -> bytes:
    if isinstance(code, (bytes, bytearray, memoryview)):
        return bytes(code)
    path = os.fspath(code)
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise BarewaveError(f"cannot read {path}: {e.strerror}") from None


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``name``, ``type`` as onnxruntime writes it (``tensor(float)``), ``shape`` of numbers, names of
    dimensions, or None."""

    name: str
    type: str
    shape: list

    @classmethod
    def _of(cls, declared, structures) -> "NodeArg":
        name, dtype, shape = declared
        shape = [None if d == () else d for d in shape] if shape is not None else []
        return cls(name, f"tensor({_TYPES[dtype][1]})" if dtype else structures.get(name, "tensor(?)"), shape)


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says of itself."""

    graph_name: str
    custom_metadata_map: dict
    opset: int | None = None
    producer_name: str = ""
    domain: str = ""
    version: int = 0
    description: str = ""
    graph_description: str = ""


class OrtValue:
    """A tensor with onnxruntime's accessors."""

    def __init__(self, array: np.ndarray):
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, array, device_type="cpu", device_id=0) -> "OrtValue":
        """Holds an array; it is not copied."""
        return cls(np.asarray(array))

    def numpy(self) -> np.ndarray:
        """The elements."""
        return self._array

    def shape(self) -> list:
        """Extents."""
        return list(self._array.shape)

    def device_name(self) -> str:
        """Where the elements are."""
        return "cpu"

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class IOBinding:
    """Inputs and outputs that are named before a run: what ``InferenceSession.io_binding`` gives."""

    def __init__(self, session: "InferenceSession"):
        self._session = session
        self._inputs: dict = {}
        self._outputs: dict = {}
        self._results: dict = {}

    def bind_cpu_input(self, name: str, array) -> None:
        """An input, from host memory."""
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """An input that an OrtValue holds."""
        self._inputs[name] = value.numpy()

    def bind_output(self, name: str, *_, **__) -> None:
        """An output, to be allocated."""
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """An output, to be written into an array that is there."""
        self._outputs[name] = value.numpy()

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._outputs.clear()

    def get_outputs(self) -> list:
        """The outputs of the last run, as OrtValues."""
        return [OrtValue(a) for a in self._results.values()]

    def copy_outputs_to_cpu(self) -> list:
        """The outputs of the last run, as arrays."""
        return list(self._results.values())


class InferenceSession:
    """A model on a device.

    ``path_or_bytes`` is an ONNX file, its bytes, an ``onnx.ModelProto``, or a file that ``barewave compile`` made.
    ``device`` is ``"auto"`` (a GPU, else the emulated gfx942), ``"hip:N"`` or ``"emu:TARGET"``; ``strict`` checks every
    launch of an emulated device for undefined behaviour; ``cache=False`` keeps compiled kernels out of the user's cache
    folder; ``dtype`` (``"f16"``, ``"bf16"``) is what 32-bit floats are computed in: inputs and outputs stay what they are;
    ``xf32=True`` lets matrix instructions multiply 32-bit floats by 10 bits of their mantissa where that is faster (gfx942;
    other targets multiply all of it); ``f16_sums=True`` lets products of f16 be summed in f16, in runs of up to 32 along
    the depth that are added in f32, where that is faster (gfx900; a run beyond 65504 is infinite); ``tune`` is a table of
    tiles, as ``barewave bench --tune-out`` writes it. Shapes need not be known: the first run with new ones compiles for
    them, in milliseconds.
    ``sess_options``, ``providers`` and ``provider_options`` are accepted for programs written for onnxruntime; of
    provider options ``device`` counts.
    """

    def __init__(
        self,
        path_or_bytes,
        sess_options=None,
        providers=None,
        provider_options=None,
        *,
        device: str | None = None,
        strict: bool = False,
        cache: bool = True,
        dtype: str | None = None,
        xf32: bool = False,
        f16_sums: bool = False,
        tune=None,
    ):
        options = dict(provider_options[0]) if provider_options else {}
        for p in providers or []:
            if not isinstance(p, str):
                options.update(p[1])
        path, data = _source(path_or_bytes)
        name = device or options.get("device", "auto")
        self._native = _barewave.NativeSession(path, data, name, strict, cache, dtype, xf32, f16_sums, _table(tune))
        structures = self._native.structures
        self._structures = {n: s.replace("?", _TYPES[t][1]) if t else s for n, (s, t) in structures.items()}
        self._inputs = [NodeArg._of(d, self._structures) for d in self._native.inputs]
        self._overridable = [NodeArg._of(d, self._structures) for d in self._native.overridable]
        self._outputs = [NodeArg._of(d, self._structures) for d in self._native.outputs]
        self._types = {d[0]: d[1] for d in self._native.inputs + self._native.overridable}
        self._types |= {n: t for n, (_, t) in structures.items()}

    def get_inputs(self) -> list:
        """The inputs that have to be given."""
        return list(self._inputs)

    def get_overridable_initializers(self) -> list:
        """The inputs that may be given, and otherwise are what the model's file says."""
        return list(self._overridable)

    def get_outputs(self) -> list:
        """The outputs."""
        return list(self._outputs)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says of itself."""
        n = self._native
        return ModelMetadata(n.graph_name, dict(n.metadata), n.opset, *n.origin)

    def get_providers(self) -> list:
        """What executes the model."""
        return get_available_providers()

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._native.device

    @property
    def target(self) -> str:
        """Architecture of the device (``gfx942``)."""
        return self._native.target

    def run(self, output_names, input_feed: dict, run_options=None) -> list:
        """Runs the model once: arrays by input's name, lists of arrays for sequences, None for an optional without a value; gives
        the same in the order of ``output_names`` (all for None), and lists of dictionaries for what ZipMap makes."""
        names = [i.name for i in self._inputs + self._overridable]
        if not isinstance(input_feed, Mapping):
            raise BarewaveError(f"inputs are a dictionary of arrays by name, not {type(input_feed).__name__}")
        missing = [i for i in self._inputs if i.name not in input_feed]
        if missing:
            wanted = ", ".join(f"{i.name} {i.type} {i.shape}" for i in missing)
            raise BarewaveError(f"inputs that are not given: {wanted}")
        unknown = [n for n in input_feed if n not in names]
        if unknown:
            raise BarewaveError(f"no such input: {', '.join(unknown)}; there are {', '.join(names) or 'none'}")
        wanted = [o.name for o in self._outputs]
        if output_names:
            unknown = [n for n in output_names if n not in wanted]
            if unknown:
                raise BarewaveError(f"no such output: {', '.join(unknown)}; there are {', '.join(wanted)}")
        tensors, counts = [], {}
        for n in (n for n in names if n in input_feed):
            held = self._held(n, input_feed[n])
            if n in self._structures:
                counts[n] = None if held is None else len(held)
            tensors += [(called, what, self._types[n], _array(v, what, self._types[n])) for called, what, v in held or []]
        raw = [(called, _input(array, what, declared)) for called, what, declared, array in tensors]
        results, called = self._native.run(raw, counts)
        del tensors
        made = dict(zip(called or wanted, results))
        keys = dict(zip(wanted, self._native.maps))
        return [self._output(n, made, keys[n]) for n in output_names or wanted]

    def _held(self, name: str, value):
        """The tensors that are given for an input: what each is called, what it is in messages, and its value; None for an
        optional without a value."""
        structure = self._structures.get(name, "")
        if "map(" in structure:
            raise BarewaveError(
                f"input {name} is of type {structure}; sessions take tensors, sequences and optionals: "
                "give the numbers of the map as a tensor, to a model without the node that reads it"
            )
        if structure.startswith("optional") and value is None:
            return None
        if "seq(" not in structure:
            return [(name, f"input {name}", value)]
        if not isinstance(value, (list, tuple)):
            raise BarewaveError(f"input {name} is of type {structure}: give a list of arrays, not {type(value).__name__}")
        return [(f"{name}[{k}]", f"input {name}, element {k}", v) for k, v in enumerate(value)]

    def _output(self, name: str, made: dict, keys):
        """An output of the tensors that a run gave: an array, a list of the elements of a sequence, or of maps, or None."""
        if "seq(tensor" in self._structures.get(name, ""):
            elements = itertools.takewhile(lambda n: n in made, (f"{name}[{k}]" for k in itertools.count()))
            return [_elements(made[n]) for n in elements]
        if name not in made:
            return None
        array = _elements(made[name])
        return [dict(zip(keys[0] or keys[1], row)) for row in np.atleast_2d(array).tolist()] if keys else array

    def io_binding(self) -> IOBinding:
        """Names inputs and outputs before :meth:`run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, binding: IOBinding, run_options=None) -> None:
        """Runs with what a binding names."""
        names = list(binding._outputs) or [o.name for o in self._outputs]
        results = self.run(names, binding._inputs)
        for name, result in zip(names, results):
            into = binding._outputs.get(name)
            if into is not None:
                if into.shape != result.shape or into.dtype != result.dtype:
                    raise BarewaveError(
                        f"output {name} is {result.dtype} {list(result.shape)}, "
                        f"the array that it was bound to {into.dtype} {list(into.shape)}"
                    )
                into[...] = result
                result = into
            binding._results[name] = result


@dataclass(frozen=True)
class Device:
    """Something to run on: ``device`` is what ``InferenceSession(device=...)`` takes."""

    device: str
    kind: str
    name: str
    target: str
    compute_units: int
    memory_bytes: int = field(repr=False, default=0)


def devices() -> list:
    """GPUs that a HIP driver finds, then an emulated device for every target."""
    return [Device(*d) for d in _barewave.devices()]


def get_available_providers() -> list:
    """The provider names of onnxruntime's API: one."""
    return ["BarewaveExecutionProvider"]


def compile(
    model,
    target: str = "gfx942",
    *,
    dims: dict | None = None,
    output=None,
    cache: bool = True,
    dtype: str | None = None,
    xf32: bool = False,
    f16_sums: bool = False,
    tune=None,
) -> bytes:
    """Compiles a model for a target (``gfx942``, ``mi300x``, ``cdna3``) into one code object that also holds its weights.

    ``dims`` gives extents of the model's symbolic dimensions by name; ``dtype``, ``xf32``, ``f16_sums`` and ``tune`` are as
    :class:`InferenceSession` has them. The bytes are returned, and written to ``output``, whole or not at all.
    """
    path, data = _source(model)
    file = os.fspath(output) if output is not None else None
    extents, table = list((dims or {}).items()), _table(tune)
    return bytes(_barewave.compile(path, data, target, extents, cache, file, dtype, xf32, f16_sums, table))


def _table(tune) -> str | None:
    """The path of a table of tiles."""
    try:
        return None if tune is None else os.fsdecode(tune)
    except TypeError:
        raise BarewaveError(f"tune: the path of a table is needed, not {type(tune).__name__}") from None


def assemble(text: str, target: str) -> bytes:
    """Assembles a source (with ``.amdhsa_kernel`` blocks) into a code object."""
    return bytes(_barewave.assemble(text, target))


def disassemble(code, target: str | None = None, *, kernel: str | None = None) -> str:
    """Assembly text of a code object or offload bundle: bytes or a path. A target picks the entries of a bundle."""
    return _barewave.disassemble(_code(code), target, kernel)


def isa(instruction: str, target: str | None = None) -> str:
    """What the tables say of an instruction: operands, encodings, properties, latency."""
    return _barewave.isa(instruction, target)


def launch(code, kernel: str, grid, block, *args, device: str = "auto", dynamic_lds: int = 0, strict: bool = False):
    """Launches a kernel of a code object (bytes or a path) once and waits for it.

    ``grid`` counts workgroups, ``block`` workitems; a number or up to three. numpy arrays are copied to the device and,
    where they may be written, back; numpy scalars and Python numbers are passed by value. Gives the number of
    instructions that an emulated device executed, None on a GPU.
    """

    def three(value, what):
        value = (value,) if isinstance(value, int) else tuple(value)
        if not 1 <= len(value) <= 3 or any(not isinstance(v, int) or v < 1 for v in value):
            raise BarewaveError(f"{what} is one to three positive numbers, not {value}")
        return list(value + (1, 1, 1))[:3]

    raw, back = [], []
    for i, a in enumerate(args):
        if isinstance(a, np.generic):
            raw.append(a.tobytes())
        elif isinstance(a, bool):
            raw.append(int(a))
        elif isinstance(a, (int, float)):
            raw.append(a)
        else:
            array = _array(a, f"argument {i}")
            if array.dtype.hasobject or not array.dtype.isnative:
                raise BarewaveError(f"argument {i}: arrays of {array.dtype} mean nothing to a kernel")
            writes = isinstance(a, np.ndarray) and a.flags.writeable
            raw.append(((array.dtype.name, list(array.shape), array.ctypes.data, array.nbytes), writes))
            back.append((a, array, writes))
    count = _barewave.launch(_code(code), kernel, three(grid, "grid"), three(block, "block"), raw, device, dynamic_lds, strict)
    for a, array, writes in back:
        if writes and not np.shares_memory(a, array):
            a[...] = array
    return count
