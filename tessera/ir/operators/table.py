"""The table of library operators: the operators that an `op` record of a trace may call.

Operators are pure functions of tensors, and only those of the checked-in table exist: a name from
a file is looked up here and nowhere else. `bind` matches a call with its entry, and reports the
mismatches. The names, operands and attributes are those of PyTorch's operators (ATen).
"""

from __future__ import annotations

import difflib
import functools

from tessera.ir.operators.elementwise import elementwise_operators
from tessera.ir.operators.fused import fused_operators
from tessera.ir.operators.matrix import matrix_operators
from tessera.ir.operators.movement import movement_operators
from tessera.ir.operators.products import product_operators
from tessera.ir.operators.records import (
    AttributeKind,
    AttributeSpec,
    Bound,
    OperandSpec,
    Operator,
    OperatorMismatch,
    Reach,
    ResultType,
    Work,
)
from tessera.ir.operators.shapes import text
from tessera.ir.operators.windows import window_operators
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import AttributeValue, LibraryCall, Operand

__all__ = ["Bound", "OperatorMismatch", "bind", "near_names", "reaches", "table", "work_of"]

# The operands themselves give the device and the layout of results.
_IGNORED = frozenset(
    ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")
)
_NAMES = frozenset(dtype.value for dtype in DataType)


@functools.cache
def table() -> dict[str, Operator]:
    """All operators by name."""
    operators: dict[str, Operator] = {}
    kinds = (
        elementwise_operators,
        product_operators,
        matrix_operators,
        movement_operators,
        window_operators,
        fused_operators,
    )
    for entries in kinds:
        for entry in entries():
            if entry.name in operators:
                raise ValueError(f"the operator {entry.name} stands in the table twice")
            operators[entry.name] = entry
    return operators


def near_names(name: str) -> tuple[str, ...]:
    """Operators with similar names; other overloads come first."""
    known = table()
    base = name.split(".")[0]
    family = sorted(other for other in known if other.split(".")[0] == base)
    return tuple(family[:4]) or tuple(difflib.get_close_matches(name[:80], known, n=3, cutoff=0.6))


def bind(call: LibraryCall) -> Bound:
    """The call with names for its operands; raises `OperatorMismatch` if it does not fit."""
    operator = table().get(call.operator)
    if operator is None:
        raise OperatorMismatch(f"no operator `{call.operator}` is in the table")
    given = dict(call.attributes)
    reads = _match_reads(operator, call.reads, given)
    writes = _match_writes(operator, call.writes)
    bound = Bound(
        operator=operator,
        reads=reads,
        writes=writes,
        attributes=_match_attributes(operator, given),
    )
    _check_in_place(bound)
    _check_kinds(bound)
    _check_shapes(bound)
    return bound


def reaches(call: LibraryCall) -> tuple[tuple[Reach, ...], tuple[Reach, ...]]:
    """The elements used of each read and each written operand; all if the call is unknown."""
    try:
        bound = bind(call)
    except OperatorMismatch:
        whole = Reach.WHOLE
        return tuple(whole for _ in call.reads), tuple(whole for _ in call.writes)
    reads = tuple(spec.reach for spec, operands in bound.reads for _ in operands)
    return reads, tuple(spec.reach for spec, _ in bound.writes)


def work_of(call: LibraryCall) -> Work | None:
    """The arithmetic of a call; None if the call is unknown."""
    try:
        bound = bind(call)
    except OperatorMismatch:
        return None
    return bound.operator.work(bound)


# --- matching ------------------------------------------------------------------------------


def _match_reads(
    operator: Operator, operands: tuple[Operand, ...], given: dict[str, AttributeValue]
) -> tuple[tuple[OperandSpec, tuple[Operand, ...]], ...]:
    reads: list[tuple[OperandSpec, tuple[Operand, ...]]] = []
    place = 0
    wanted = [spec for spec in operator.reads if not _is_given_otherwise(spec, given)]
    for spec in operator.reads:
        if spec not in wanted:
            reads.append((spec, ()))
            continue
        wanted = wanted[1:]
        needed = sum(not other.is_optional for other in wanted)
        left = len(operands) - place - needed
        count = max(left, 0) if spec.is_list else min(max(left, 0), 1)
        if count == 0 and not (spec.is_optional or spec.is_list):
            raise OperatorMismatch(_counts(operator, len(operands)))
        reads.append((spec, operands[place : place + count]))
        place += count
    if place != len(operands):
        raise OperatorMismatch(_counts(operator, len(operands)))
    return tuple(reads)


def _is_given_otherwise(spec: OperandSpec, given: dict[str, AttributeValue]) -> bool:
    """Whether an attribute replaces the operand: a number, or null for a missing operand."""
    if spec.name not in given:
        return False
    value = given[spec.name]
    if value is None and spec.is_optional:
        return True
    return spec.or_number and isinstance(value, bool | int | float)


def _counts(operator: Operator, count: int) -> str:
    names = ", ".join(map(_described, operator.reads)) or "none"
    return f"`{operator.name}` reads {names}: {count} given"


def _described(spec: OperandSpec) -> str:
    notes = [
        "any number of" if spec.is_list else "",
        "may be missing" if spec.is_optional else "",
        "or a number" if spec.or_number else "",
    ]
    said = ", ".join(note for note in notes if note)
    return f"`{spec.name}`" + (f" ({said})" if said else "")


def _match_writes(
    operator: Operator, operands: tuple[Operand, ...]
) -> tuple[tuple[OperandSpec, Operand], ...]:
    least = sum(not spec.is_optional for spec in operator.writes)
    if not least <= len(operands) <= len(operator.writes):
        names = ", ".join(map(_described, operator.writes))
        raise OperatorMismatch(f"`{operator.name}` writes {names}: {len(operands)} given")
    # An optional operand whose type differs from the given tensor counts as missing.
    writes, specs = [], iter(operator.writes)
    for operand in operands:
        spec = next((s for s in specs if not s.is_optional or s.kinds.holds(operand.dtype)), None)
        if spec is None:
            raise OperatorMismatch(f"`{operator.name}` writes no more `{operand.dtype.value}`")
        writes.append((spec, operand))
    return tuple(writes)


def _match_attributes(
    operator: Operator, given: dict[str, AttributeValue]
) -> tuple[tuple[str, AttributeValue], ...]:
    known = {spec.name: spec for spec in operator.attributes}
    numbers = {spec.name for spec in operator.reads if spec.or_number or spec.is_optional}
    for name in given:
        if name not in known and name not in numbers and name not in _IGNORED:
            listed = (
                ", ".join(f"`{known_name}`" for known_name in (*known, *sorted(numbers))) or "none"
            )
            raise OperatorMismatch(f"no attribute `{name}` is known; those of it are {listed}")
    attributes = {name: _checked(spec, given) for name, spec in known.items()}
    for spec in operator.reads:
        if _is_given_otherwise(spec, given):
            attributes[spec.name] = given[spec.name]
        elif spec.name in given and spec.name not in known:
            raise OperatorMismatch(f"attribute `{spec.name}` is no number")
    return tuple(attributes.items())


def _checked(spec: AttributeSpec, given: dict[str, AttributeValue]) -> AttributeValue:
    value = given.get(spec.name)
    if value is None:
        if spec.is_required:
            raise OperatorMismatch(f"attribute `{spec.name}` must be given: {spec.kind.value}")
        return spec.default
    if not _is_kind(spec.kind, value):
        raise OperatorMismatch(f"attribute `{spec.name}` must be {spec.kind.value}")
    return value


def _is_kind(kind: AttributeKind, value: AttributeValue) -> bool:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case AttributeKind.INTEGER:
            return is_integer
        case AttributeKind.NUMBER:
            return isinstance(value, int | float)
        case AttributeKind.BOOL:
            return isinstance(value, bool)
        case AttributeKind.TEXT:
            return isinstance(value, str)
        case AttributeKind.TYPE:
            return isinstance(value, str) and value in _NAMES
        case AttributeKind.INTEGERS:
            parts = value if isinstance(value, tuple) else (value,)
            return all(isinstance(part, int) and not isinstance(part, bool) for part in parts)


def _check_in_place(bound: Bound) -> None:
    if bound.operator.reads and not any(operands for _, operands in bound.reads):
        needed = [spec for spec in bound.operator.reads if not spec.is_optional]
        if needed:
            raise OperatorMismatch(f"none of its operands is a tensor: {_described(needed[0])}")
    if not bound.operator.is_in_place:
        return
    first = bound.operator.reads[0]
    if not bound.has("self"):
        if not first.is_optional:
            raise OperatorMismatch(f"it works in place: `{first.name}` must be a tensor")
        return
    if bound.operand("self") != bound.writes[0][1]:
        raise OperatorMismatch(
            f"`{bound.operator.name}` works in place: its first read and its write must be one "
            "tensor"
        )


def _check_kinds(bound: Bound) -> None:
    everything = [(spec, operand) for spec, operands in bound.reads for operand in operands]
    for spec, operand in (*everything, *bound.writes):
        if not spec.kinds.holds(operand.dtype):
            raise OperatorMismatch(
                f"`{spec.name}` is `{operand.dtype.value}`; it must be {spec.kinds.value}"
            )
    used = [operand.dtype for spec, operand in everything if spec.reach is not Reach.NONE]
    if not used or not bound.writes:
        return
    made = bound.writes[0][1].dtype
    if bound.operator.result is ResultType.SAME and made is not used[0]:
        raise OperatorMismatch(f"the result is `{made.value}`, the operand `{used[0].value}`")
    asked = bound.attribute("out_dtype") if _has(bound.operator, "out_dtype") else None
    if asked not in (None, made.value):
        raise OperatorMismatch(f"the result is `{made.value}`, `out_dtype` is `{asked}`")
    highest = max(used, key=_rank)
    if bound.operator.result is ResultType.PROMOTED and _rank(made) < _rank(highest):
        raise OperatorMismatch(f"the result is `{made.value}`, an operand `{highest.value}`")


def _has(operator: Operator, name: str) -> bool:
    return any(spec.name == name for spec in operator.attributes)


def _rank(dtype: DataType) -> int:
    """The class of a type: bool, integer, float, complex."""
    if dtype is DataType.BOOL:
        return 0
    if dtype in (DataType.C64, DataType.C128):
        return 3
    return 2 if dtype.is_float else 1


def _check_shapes(bound: Bound) -> None:
    for shape, (spec, operand) in zip(bound.operator.shapes(bound), bound.writes, strict=True):
        if shape is not None and operand.shape != shape:
            raise OperatorMismatch(
                f"`{spec.name}` is {text(operand.shape)}; the operands make it {text(shape)}"
            )
