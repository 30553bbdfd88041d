"""Module variables in device memory: their sizes, and the bytes of their initialisers.

Source: PTX ISA 9.0, section 5.4.4 (initialisers). A variable without one starts as zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tessera.backend.cpu.kinds import Kind, Unsupported, constant_value, float_bits, kind_of
from tessera.backend.cpu.kinds import pack_float as pack_number
from tessera.backend.cpu.layout import type_size, variable_size
from tessera.ir import ptx

AddressOf = Callable[[str], int]


def sized(variable: ptx.Variable) -> int:
    """Bytes of a variable; an open first dimension is as long as its initialiser."""
    size = variable_size(variable)
    if size or None not in variable.dimensions:
        return size
    rest = type_size(variable)
    for dimension in variable.dimensions[1:]:
        rest *= dimension or 1
    listed = variable.initializer
    return rest * (len(listed.elements) if isinstance(listed, ptx.InitializerList) else 0)


def initial_bytes(variable: ptx.Variable, address_of: AddressOf) -> bytes:
    """The contents of a variable when the module is loaded."""
    size = sized(variable)
    content = bytearray(size)
    if variable.initializer is not None:
        kind = kind_of(variable.type)
        dimensions = _shape(variable, size)
        for offset, constant in _elements(variable.initializer, dimensions, kind.width):
            bits = _bits(constant, kind, address_of)
            end = min(offset + kind.width, size)
            content[offset:end] = bits.to_bytes(kind.width, "little")[: end - offset]
    return bytes(content)


def _shape(variable: ptx.Variable, size: int) -> tuple[int, ...]:
    """Lengths along each axis, a vector type being the last."""
    lengths = [d or 0 for d in variable.dimensions]
    if variable.vector is not None:
        lengths.append(variable.vector)
    if lengths and lengths[0] == 0:
        rest = kind_of(variable.type).width
        for length in lengths[1:]:
            rest *= length
        lengths[0] = size // rest if rest else 0
    return tuple(lengths)


def _elements(
    initializer: ptx.Initializer, lengths: tuple[int, ...], width: int, start: int = 0
) -> Iterator[tuple[int, ptx.Constant]]:
    """Constants with their byte offsets; a nested list starts at its row."""
    if isinstance(initializer, ptx.InitializerField):
        raise Unsupported("textures, samplers and surfaces")
    if not isinstance(initializer, ptx.InitializerList):
        yield start, initializer
        return
    row = width
    for length in lengths[1:]:
        row *= length
    flat = not any(isinstance(e, ptx.InitializerList) for e in initializer.elements)
    step = width if flat else row
    for number, element in enumerate(initializer.elements):
        yield from _elements(element, lengths[1:], width, start + number * step)


def _bits(constant: ptx.Constant, kind: Kind, address_of: AddressOf) -> int:
    mask = (1 << 8 * kind.width) - 1
    if isinstance(constant, ptx.Float):
        return float_bits(constant, kind) & mask
    value = constant_value(constant)
    if value is not None:
        return (pack_number(float(value), kind.width) if kind.form == "f" else value) & mask
    return _address(constant, address_of) & mask


def _address(constant: ptx.Constant, address_of: AddressOf) -> int:
    """An expression with the address of a variable or function in it."""
    match constant:
        case ptx.Name(name=name):
            return address_of(name)
        case ptx.Generic(operand=inner):
            return _address(inner, address_of)
        case ptx.MaskedByte(mask=mask, operand=inner):
            shift = (mask.value & -mask.value).bit_length() - 1
            return (_address(inner, address_of) & mask.value) >> max(shift, 0)
        case ptx.Binary(operator="+", left=left, right=right):
            return _address(left, address_of) + _address(right, address_of)
        case ptx.Binary(operator="-", left=left, right=right):
            return _address(left, address_of) - _address(right, address_of)
        case _:
            value = constant_value(constant)
            if value is None:
                raise Unsupported("initialiser of a form that is not known")
            return value
