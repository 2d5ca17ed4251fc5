"""AMD GPUs for onnxruntime, without ROCm: barewave as a plugin execution provider.

>>> import onnxruntime_ep_barewave as barewave
>>> session = barewave.InferenceSession("model.onnx")        # an onnxruntime.InferenceSession

or, with onnxruntime's own functions:

>>> import onnxruntime
>>> barewave.register()
>>> session = onnxruntime.InferenceSession("model.onnx", providers=["BarewaveExecutionProvider", "CPUExecutionProvider"])

(``providers=`` takes plugins from onnxruntime 1.27 on; before, ``SessionOptions.add_provider_for_devices`` does.)

What barewave cannot compile, onnxruntime's CPU provider runs. Without an AMD GPU a session runs on an emulated device.
Options of the provider, all of them text:

``device``
    ``auto`` (a GPU, else an emulated one), ``hip:N``, or ``emu:TARGET`` for an emulated device.
``target``
    The architecture to compile for (``gfx1100``, ``mi300x``, ``cdna3``) where the device leaves it open.
``dtype``
    ``f16`` or ``bf16``: what 32-bit floats are computed in; inputs and outputs stay as they are. ``f32``, or nothing: models are
    computed in the types they have.
``xf32``
    ``1`` lets matrix instructions multiply 32-bit floats by 10 bits of their mantissa where that is faster (gfx942; other
    targets multiply all of it).
``f16_sums``
    ``1`` lets products of f16 be summed in f16, in runs of up to 32 along the depth that are added in f32, where that is faster
    (gfx900; a run beyond 65504 is infinite).
``tune``
    Table of tiles for matrix products and convolutions, as ``barewave bench --tune-out`` writes it.
``cache``
    Folder for compiled kernels, or ``off``; the user's cache folder when it is not given.
``strict``
    ``1`` checks every launch on an emulated device for undefined behaviour.
``dump``
    Folder that compiled groups of nodes are written to, as files for ``barewave disasm`` and ``barewave run``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import onnxruntime

__all__ = ["InferenceSession", "get_ep_name", "get_ep_names", "get_library_path", "register"]

_NAME = "BarewaveExecutionProvider"


def get_library_path() -> str:
    """The plugin's file, for ``onnxruntime.register_execution_provider_library``."""
    folder = Path(__file__).parent
    name = {"win32": "onnxruntime_ep_barewave.dll", "darwin": "libonnxruntime_ep_barewave.dylib"}.get(
        sys.platform, "libonnxruntime_ep_barewave.so"
    )
    return str(folder / name)


def get_ep_name() -> str:
    """The provider's name in ``providers=[...]``."""
    return _NAME


def get_ep_names() -> list[str]:
    """All providers of the plugin: one."""
    return [_NAME]


def _devices() -> list:
    return [d for d in onnxruntime.get_ep_devices() if d.ep_name == _NAME]


def register(name: str = "barewave") -> None:
    """Registers the plugin with onnxruntime; again does nothing.

    Under a name that ends in ``.virtual`` there is one device that is not real: models can be compiled ahead of time on it
    for any ``target``.
    """
    if not any(d.ep_metadata.get("library_path") == get_library_path() for d in _devices()):
        onnxruntime.register_execution_provider_library(name, get_library_path())


def InferenceSession(
    path_or_bytes,
    sess_options: onnxruntime.SessionOptions | None = None,
    *,
    device: str | None = None,
    target: str | None = None,
    dtype: str | None = None,
    xf32: bool = False,
    f16_sums: bool = False,
    tune: str | os.PathLike | None = None,
    cache: str | None = None,
    strict: bool = False,
    dump: str | None = None,
    **kwargs,
) -> onnxruntime.InferenceSession:
    """An ``onnxruntime.InferenceSession`` with this provider in front of the CPU's.

    The options are the provider's (see the module); other keywords go to ``onnxruntime.InferenceSession``. ``sess_options``
    may be given to one session only, as they get the provider.
    """
    register()
    given = {"device": device, "target": target, "dtype": dtype, "tune": tune, "cache": cache, "dump": dump}
    options = {k: os.fspath(v) if k == "tune" else str(v) for k, v in given.items() if v is not None}
    options |= {k: "1" for k, on in [("strict", strict), ("xf32", xf32), ("f16_sums", f16_sums)] if on}
    found = _devices()
    if not found:
        raise RuntimeError(f"{_NAME} found no device to run on")
    wanted = [d for d in found if d.ep_metadata.get("device") == device]
    if sess_options is None:
        sess_options = onnxruntime.SessionOptions()
    sess_options.add_provider_for_devices([(wanted or found)[0]], options)
    # A model that fails on the GPU is not run elsewhere in silence.
    kwargs.setdefault("enable_fallback", 0)
    return onnxruntime.InferenceSession(path_or_bytes, sess_options, **kwargs)
