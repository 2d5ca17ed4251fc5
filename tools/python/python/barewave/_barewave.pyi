"""The native half; see the package itself."""

from typing import Optional, Union

__version__: str

RawArray = tuple[str, list[int], int, int]
RawTexts = tuple[list[int], list[str]]
Declared = tuple[str, Optional[str], Optional[list[Union[int, str, tuple[()]]]]]

class BarewaveError(RuntimeError): ...

class NativeTensor:
    dtype: str
    shape: list[int]
    texts: list[str]
    @property
    def __array_interface__(self) -> dict: ...

class NativeSession:
    inputs: list[Declared]
    overridable: list[Declared]
    outputs: list[Declared]
    maps: list[Optional[tuple[list[int], list[str]]]]
    structures: dict[str, tuple[str, Optional[str]]]
    metadata: list[tuple[str, str]]
    graph_name: str
    opset: Optional[int]
    origin: tuple[str, str, int, str, str]
    device: str
    target: str
    def __init__(
        self,
        path: Optional[str],
        bytes: Optional[bytes],
        device: str,
        strict: bool,
        cached: bool,
        dtype: Optional[str],
        xf32: bool,
        f16_sums: bool,
        tune: Optional[str],
    ) -> None: ...
    def run(
        self, arrays: list[tuple[str, Union[RawArray, RawTexts]]], lists: dict[str, Optional[int]]
    ) -> tuple[list[NativeTensor], list[str]]: ...

def compile(
    path: Optional[str],
    bytes: Optional[bytes],
    target: str,
    dims: list[tuple[str, int]],
    cached: bool,
    output: Optional[str],
    dtype: Optional[str],
    xf32: bool,
    f16_sums: bool,
    tune: Optional[str],
) -> bytes: ...
def assemble(text: str, target: str) -> bytes: ...
def disassemble(code: bytes, target: Optional[str], kernel: Optional[str]) -> str: ...
def devices() -> list[tuple[str, str, str, str, int, int]]: ...
def isa(instruction: str, target: Optional[str]) -> str: ...
def launch(
    code: bytes,
    kernel: str,
    grid: list[int],
    block: list[int],
    arguments: list,
    device: str,
    dynamic_lds: int,
    strict: bool,
) -> Optional[int]: ...
