"""The arrays of a request: NumPy arrays, torch tensors, or anything that supports DLPack.

In: arrays by name of the input. Out: their bytes, in place if they are contiguous. In the other
direction, bytes of outputs and states become arrays of their type and shape.

NumPy lacks `bf16`, `e4m3` and `e5m2`. With the package `ml_dtypes`, arrays have its types. Without
it, they hold raw bits under the name of the type: `array["bf16"]` is an array of unsigned integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tessera.backend.service import Bytes, DeviceBytes, EarlierOutput
from tessera.diagnostics import TesseraError
from tessera.frontend.contents.write import as_array, numpy_type
from tessera.ir.arguments import wrong_type
from tessera.ir.program.program import Buffer, Program, Role

TypedArray = npt.NDArray[Any]
"""An array whose element type is that of its buffer, known only at run time."""

_LACKING = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def typed_array(buffer: Buffer, content: Bytes) -> TypedArray:
    """The bytes of a buffer as an array of its type and shape."""
    kind = None if buffer.dtype is None else _LACKING.get(buffer.dtype.value)
    if kind is None or buffer.dtype is None:
        return as_array(buffer, content)
    bits = np.dtype([(buffer.dtype.value, f"<u{buffer.dtype.bytes}")])
    try:
        import ml_dtypes

        bits = np.dtype(getattr(ml_dtypes, kind))
    except ImportError:
        pass
    array = content.view(bits)
    return array if buffer.shape is None else array.reshape(buffer.shape)


def float_array(buffer: Buffer, content: Bytes) -> TypedArray:
    """The bytes of a buffer of floats as an array to compute with: `bf16` becomes f32."""
    if buffer.dtype is not None and buffer.dtype.value == "bf16":
        wide = content.view("<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(buffer.shape or (-1,))
    return as_array(buffer, content)


Locate = Callable[[object, int], DeviceBytes | None]


def inputs_of(program: Program) -> dict[str, Buffer]:
    """The inputs of a trace by name."""
    return {buffer.name: buffer for buffer in program.buffers if buffer.role is Role.INPUT}


def read_inputs(
    wanted: Mapping[str, Buffer], inputs: Mapping[str, object], locate: Locate | None = None
) -> tuple[dict[str, Bytes], dict[str, DeviceBytes | EarlierOutput]]:
    """The bytes of all inputs of a trace, on the host and on GPUs, in place if contiguous.

    `locate` finds arrays in GPU memory that need not go through the host.
    """
    if not isinstance(inputs, Mapping):
        raise wrong_type("inputs", inputs, "a mapping of names to arrays")
    for name in inputs:
        if name not in wanted:
            known = ", ".join(f"`{known_name}`" for known_name in wanted) or "none"
            raise TesseraError.of("TSR5053", f"`{name}` is no input", notes=(f"inputs: {known}",))
    for name in wanted:
        if name not in inputs:
            raise TesseraError.of("TSR5053", f"input `{name}` is missing")
    content: dict[str, Bytes] = {}
    in_place: dict[str, DeviceBytes | EarlierOutput] = {}
    for name, buffer in wanted.items():
        given = _plain(inputs[name])
        if isinstance(given, EarlierOutput):
            in_place[name] = given
            continue
        located = (
            None if locate is None or isinstance(given, np.ndarray) else locate(given, buffer.bytes)
        )
        if located is None:
            content[name] = _content(buffer, given)
        else:
            _check(buffer, located.type_name, located.nbytes)
            in_place[name] = located
    return content, in_place


def _content(buffer: Buffer, given: object) -> Bytes:
    array = _array(buffer, given)
    kind = numpy_type(buffer)
    if kind is not None and array.dtype == kind and array.shape == buffer.shape:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    native = array.dtype.isnative
    _check(buffer, array.dtype.name if native else array.dtype.str, array.nbytes)
    _check_shape(buffer, array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _check(buffer: Buffer, type_name: str, size: int) -> None:
    """Check the type and size of a given input; types that NumPy lacks have no name."""
    kind = numpy_type(buffer)
    bits = buffer.dtype is not None and buffer.dtype.is_bits and _has_size(type_name, kind)
    if kind is not None and not bits and type_name not in (kind.name, "uint8", ""):
        raise TesseraError.of(
            "TSR5053",
            f"input `{buffer.name}` is of type {kind}, not {type_name}",
            hint="convert it, or give its bytes as uint8",
        )
    if size != buffer.bytes:
        raise TesseraError.of(
            "TSR5053", f"input `{buffer.name}` takes {buffer.bytes} bytes, not {size}"
        )


def _has_size(type_name: str, kind: np.dtype[Any] | None) -> bool:
    """Whether a type has elements of the same size as `kind`, in this machine's byte order."""
    try:
        dtype = np.dtype(type_name)
    except TypeError:
        return False
    return kind is not None and dtype.itemsize == kind.itemsize and dtype.isnative


def _check_shape(buffer: Buffer, array: TypedArray) -> None:
    """Refuse an array of another shape than the input's, which is more likely a mistake."""
    if numpy_type(buffer) is None or buffer.shape is None or array.dtype.itemsize == 1:
        return
    own, given = ([n for n in shape if n != 1] for shape in (buffer.shape, array.shape))
    if own != given and len(own) > 1 and len(given) > 1:
        raise TesseraError.of(
            "TSR5053",
            f"input `{buffer.name}` is of shape {buffer.shape}, not {array.shape}",
            hint="reshape it; elements in a row are taken as they are",
        )


def _is_torch(given: object) -> bool:
    return type(given).__module__.split(".")[0] == "torch"


def _plain(given: Any) -> Any:
    """A tensor detached from its graph, with lazy operations (conjugation, negation) resolved."""
    if not _is_torch(given) or not hasattr(given, "resolve_neg"):
        return given
    return given.detach().resolve_conj().resolve_neg()


def given_array(buffer: Buffer, given: object) -> TypedArray:
    """An array for a buffer, whatever kind of array is given."""
    return _array(buffer, _plain(given))


def _array(buffer: Buffer, given: Any) -> TypedArray:
    """A NumPy array over the memory of what is given."""
    if isinstance(given, np.ndarray):
        return given
    try:
        if _is_torch(given):
            return _from_torch(given)
        return np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    except (TypeError, ValueError, BufferError, RuntimeError) as problem:
        raise TesseraError.of("TSR5053", f"input `{buffer.name}` is no array: {problem}") from None


def _from_torch(given: Any) -> TypedArray:
    """A tensor's memory; types that NumPy lacks become bytes, GPU memory is fetched."""
    import torch

    tensor = given if given.device.type == "cpu" else given.cpu()
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        return np.asarray(tensor.contiguous().view(-1).view(torch.uint8).numpy())
