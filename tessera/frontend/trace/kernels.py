"""The parts of a module that a trace needs: kernels, their parameters, and module variables.

In: parsed PTX. Out: `Kernel`s with the size and type of every parameter and the block shapes that
its directives demand, and the module variables that are buffers (`.global` and `.const`, not
`.extern`). Parameters follow PTX ISA 9.0, section 7.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import size_bytes

# Opaque types are 8-byte handles when they are passed to a kernel.
_OPAQUE_TYPES = frozenset(("texref", "samplerref", "surfref"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a kernel. A struct, an array or a vector is an aggregate."""

    name: str
    type: str
    bytes: int
    kind: str
    is_aggregate: bool
    is_pointer: bool

    def __str__(self) -> str:
        return f".b8[{self.bytes}]" if self.is_aggregate else f".{self.type}"

    def agrees_with(self, other: Parameter) -> bool:
        """Whether the same argument may be passed for both."""
        same_size = self.bytes == other.bytes and self.is_aggregate == other.is_aggregate
        kinds = {self.kind, other.kind} - {"bits"}
        return same_size and len(kinds) < 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel's interface: parameters, `.reqntid`, and the product of `.maxntid`."""

    name: str
    parameters: tuple[Parameter, ...]
    required_block: tuple[int, int, int] | None
    max_threads: int | None
    at: int


@dataclass(frozen=True, slots=True)
class ModuleVariable:
    """A module variable that is memory of its own. `bytes` is None if the size is not declared."""

    name: str
    space: str
    bytes: int | None
    initializer: ptx.Initializer | None
    at: int


def kernels_of(module: ptx.Module) -> dict[str, Kernel]:
    """The kernels with a body, by name, in file order."""
    return {function.name: _kernel(function) for function in module.kernels()}


def variables_of(module: ptx.Module) -> dict[str, ModuleVariable]:
    """The module's own `.global` and `.const` variables, by name, in file order."""
    variables = {}
    for variable in module.variables():
        if variable.space not in ("global", "const") or variable.linkage == "extern":
            continue
        if variable.type in _OPAQUE_TYPES:
            continue
        variables[variable.name] = ModuleVariable(
            variable.name,
            variable.space,
            _bytes(variable),
            variable.initializer,
            variable.at,
        )
    return variables


def _bytes(variable: ptx.Variable) -> int | None:
    """Bytes of a variable; None for a predicate, which only registers hold (PTX ISA 9.0, 5.2.1)."""
    return None if variable.type == "pred" else size_bytes(variable)


def kind_of_type(name: str) -> str:
    """`bits`, `float` or `integer`: which scalars a parameter of a type takes."""
    if name.startswith(("bf", "f", "e4m3", "e5m2", "tf")):
        return "float"
    return "bits" if name.startswith("b") or name in _OPAQUE_TYPES else "integer"


def _kernel(function: ptx.Function) -> Kernel:
    required = _directive(function.directives, "reqntid")
    maximum = _directive(function.directives, "maxntid")
    return Kernel(
        name=function.name,
        parameters=tuple(map(_parameter, function.parameters)),
        required_block=None if required is None else (required[0], required[1], required[2]),
        max_threads=None if maximum is None else prod(maximum),
        at=function.at,
    )


def _directive(directives: Iterable[ptx.Directive], name: str) -> tuple[int, ...] | None:
    """The three values of `.reqntid` and similar directives; omitted values are 1."""
    for directive in directives:
        if directive.name.lstrip(".") == name:
            values = [value.value for value in directive.values if isinstance(value, ptx.Integer)]
            if values and len(values) == len(directive.values):
                return tuple([*values, 1, 1][:3])
    return None


def _parameter(variable: ptx.Variable) -> Parameter:
    return Parameter(
        name=variable.name,
        type=variable.type,
        bytes=_bytes(variable) or 0,
        kind=kind_of_type(variable.type),
        is_aggregate=bool(variable.dimensions) or variable.vector is not None,
        is_pointer=variable.pointer_space is not None,
    )
