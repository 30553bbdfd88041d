"""Module variables in device memory: the bytes of their initialisers.

Source: PTX ISA 9.0, section 5.4.4 (initialisers). A variable without an initialiser
starts as zero.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera.backend.ptx_executor.emit.kinds import (
    Unsupported,
    ValueKind,
    float_bits,
    kind_of,
    pack_float,
)
from tessera.backend.ptx_executor.emit.layout import variable_size
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.layout import initial_elements

AddressOf = Callable[[str], int]


def initial_bytes(variable: ptx.Variable, address_of: AddressOf) -> bytes:
    """The contents of a variable when the module is loaded."""
    size = variable_size(variable)
    content = bytearray(size)
    if variable.initializer is not None:
        kind = kind_of(variable.type)
        for offset, constant in initial_elements(variable, size):
            if isinstance(constant, ptx.InitializerField):
                raise Unsupported("textures, samplers and surfaces")
            bits = _bits(constant, kind, address_of)
            end = min(offset + kind.width, size)
            content[offset:end] = bits.to_bytes(kind.width, "little")[: end - offset]
    return bytes(content)


def _bits(constant: ptx.Constant, kind: ValueKind, address_of: AddressOf) -> int:
    mask = (1 << 8 * kind.width) - 1
    if isinstance(constant, ptx.Float):
        return float_bits(constant, kind) & mask
    value = integer_value(constant)
    if value is not None:
        return (pack_float(float(value), kind.width) if kind.form == "f" else value) & mask
    return _address(constant, address_of) & mask


def _address(constant: ptx.Constant, address_of: AddressOf) -> int:
    """The value of an expression that contains the address of a variable or function."""
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
            value = integer_value(constant)
            if value is None:
                raise Unsupported("initialiser of a form that is not known")
            return value
