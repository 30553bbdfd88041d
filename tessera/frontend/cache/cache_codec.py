"""Encodes modules as bytes for the cache, and decodes them.

A record becomes a JSON list that starts with the name of its class, a tuple a list that starts with
null. Function bodies, the largest part, are tables (opcodes, guards, operands, operand lists,
locations, everything else) and a stream of four integers per statement: its opcode, guard, operand
list and position. Reading back creates records of the classes below and nothing else: no code, no
import, no attribute is named by the data. Bytes that do not decode raise `ValueError`.
"""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Callable, Hashable
from typing import Any

from tessera.ir.ptx import syntax as ptx

_CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        ptx.Integer,
        ptx.Float,
        ptx.Name,
        ptx.Unary,
        ptx.Binary,
        ptx.Conditional,
        ptx.Cast,
        ptx.Generic,
        ptx.MaskedByte,
        ptx.InitializerList,
        ptx.InitializerField,
        ptx.Sink,
        ptx.Not,
        ptx.Negated,
        ptx.Pair,
        ptx.Vector,
        ptx.Offset,
        ptx.Address,
        ptx.Subscript,
        ptx.Group,
        ptx.Opcode,
        ptx.Guard,
        ptx.Pragma,
        ptx.Attribute,
        ptx.Variable,
        ptx.CallPrototype,
        ptx.TargetList,
        ptx.Directive,
        ptx.Function,
        ptx.SourceFile,
        ptx.Location,
        ptx.Section,
        ptx.Alias,
        ptx.Target,
    )
}
_FIELDS = {name: tuple(f.name for f in dataclasses.fields(c)) for name, c in _CLASSES.items()}

# First word of a stream entry that is not an instruction; opcodes are numbered from _FIRST_OPCODE.
_OTHER, _LABEL, _LOCATION, _OPEN, _CLOSE, _FIRST_OPCODE = range(6)
_NO_OPCODE = ptx.Opcode("")


def encode_record(record: Any) -> Any:
    """A record, tuple or scalar as JSON data."""
    if isinstance(record, tuple):
        return [None, *map(encode_record, record)]
    name = type(record).__name__
    if name not in _CLASSES:
        return record
    return [name, *(encode_record(getattr(record, field)) for field in _FIELDS[name])]


def decode_record(data: Any) -> Any:
    """The record that `encode_record` made the data from."""
    if not isinstance(data, list):
        return data
    head, *values = data
    decoded = [v if type(v) is not list else decode_record(v) for v in values]
    if head is None:
        return tuple(decoded)
    return _CLASSES[head](**dict(zip(_FIELDS[head], decoded, strict=True)))


class _ValueTable:
    """Distinct values in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.rows: list[Any] = []

    def number(self, value: Hashable, encode: Callable[[Any], Any] = encode_record) -> int:
        """The number of a value, which is added if it is new."""
        number = self.numbers.get(value)
        if number is None:
            row = encode(value)
            number = self.numbers[value] = len(self.rows)
            self.rows.append(row)
        return number


class _BodyEncoder:
    def __init__(self) -> None:
        self.opcodes, self.guards, self.operands = _ValueTable(), _ValueTable(), _ValueTable()
        self.lists, self.locations, self.labels = _ValueTable(), _ValueTable(), _ValueTable()
        self.others: list[Any] = []
        self.stream = array("I")
        self.guards.number(None)

    def encode(self, statements: tuple[ptx.Statement, ...]) -> None:
        for statement in statements:
            match statement:
                case ptx.Instruction(guard, opcode, operands, at):
                    kind = _FIRST_OPCODE + self.opcodes.number(opcode, str)
                    entry = (kind, self.guards.number(guard), self.operand_list(operands), at)
                case ptx.LabelStatement(name, at):
                    entry = (_LABEL, self.labels.number(name), 0, at)
                case ptx.Location():
                    values = dataclasses.astuple(statement)[:-1]
                    entry = (_LOCATION, self.locations.number(values, list), 0, statement.at)
                case ptx.Block(inner, at):
                    self.stream.extend((_OPEN, 0, 0, at))
                    self.encode(inner)
                    entry = (_CLOSE, 0, 0, 0)
                case _:
                    self.others.append(encode_record(statement))
                    entry = (_OTHER, len(self.others) - 1, 0, 0)
            self.stream.extend(entry)

    def operand_list(self, operands: tuple[ptx.Operand, ...]) -> int:
        return self.lists.number(operands, lambda parts: [self.operand(part) for part in parts])

    def operand(self, operand: ptx.Operand) -> int:
        return self.operands.number(operand, self.operand_row)

    def operand_row(self, operand: ptx.Operand) -> object:
        """The row of an operand: a name is a bare string; addresses and vectors refer to earlier
        rows."""
        match operand:
            case ptx.Name(name, None):
                return name
            case ptx.Address(parts, None):
                return [0, *(self.operand(part) for part in parts)]
            case ptx.Vector(elements):
                return [1, *(self.operand(element) for element in elements)]
            case ptx.Offset(base, ptx.Integer(text, value)) if base.component is None:
                return [2, base.name, text, value]
            case ptx.Integer(text, value):
                return [3, text, value]
            case _:
                return encode_record(operand)

    def tables(self) -> list[object]:
        return [
            self.opcodes.rows,
            self.guards.rows,
            self.operands.rows,
            self.lists.rows,
            self.locations.rows,
            self.labels.rows,
            self.others,
        ]


def encode_body(statements: tuple[ptx.Statement, ...]) -> bytes:
    """A function body as bytes."""
    encoder = _BodyEncoder()
    encoder.encode(statements)
    tables = json.dumps(encoder.tables(), separators=(",", ":")).encode("ascii")
    stream = encoder.stream
    return len(tables).to_bytes(8, "little") + tables + _little_endian(stream)


def decode_body(data: bytes | memoryview) -> tuple[ptx.Statement, ...]:
    """The statements that `encode_body` made the bytes from."""
    size = int.from_bytes(data[:8], "little")
    tables = json.loads(bytes(data[8 : 8 + size]))
    stream = array("I")
    stream.frombytes(bytes(data[8 + size :]))
    try:
        return _decode_stream(tables, _little_endian_array(stream).tolist())
    except (IndexError, KeyError, TypeError) as fault:
        raise ValueError(f"body does not decode: {fault}") from fault


def _decode_stream(tables: list[Any], stream: list[int]) -> tuple[ptx.Statement, ...]:
    opcode_rows, guard_rows, operand_rows, list_rows, locations, labels, others = tables
    opcodes = [_NO_OPCODE] * _FIRST_OPCODE + [_decode_opcode(row) for row in opcode_rows]
    guards = [decode_record(row) for row in guard_rows]
    operands = _decode_operands(operand_rows)
    lists = [tuple([operands[i] for i in row]) for row in list_rows]
    places = [
        (row[0], row[1], row[2], row[3], row[4], row[5] and tuple(row[5])) for row in locations
    ]
    statements: list[ptx.Statement] = []
    outer: list[tuple[list[ptx.Statement], int]] = []
    instruction, append = ptx.Instruction, statements.append
    entries = iter(stream)
    for kind, second, third, at in zip(entries, entries, entries, entries, strict=True):
        if kind >= _FIRST_OPCODE:
            append(instruction(guards[second], opcodes[kind], lists[third], at))
        elif kind == _LABEL:
            append(ptx.LabelStatement(labels[second], at))
        elif kind == _LOCATION:
            append(ptx.Location(*places[second], at))
        elif kind == _OTHER:
            append(decode_record(others[second]))
        elif kind == _OPEN:
            outer.append((statements, at))
            statements = []
            append = statements.append
        else:
            block = tuple(statements)
            statements, at = outer.pop()
            append = statements.append
            append(ptx.Block(block, at))
    return tuple(statements)


def _decode_opcode(row: str) -> ptx.Opcode:
    name, *modifiers = row.split(".")
    return ptx.Opcode(name, tuple(modifiers))


def _decode_operands(rows: list[Any]) -> list[Any]:
    operands: list[Any] = []
    append, name = operands.append, ptx.Name
    for row in rows:
        if type(row) is str:
            append(name(row))
            continue
        match row[0]:
            case 0:
                append(ptx.Address(tuple([operands[i] for i in row[1:]])))
            case 1:
                append(ptx.Vector(tuple([operands[i] for i in row[1:]])))
            case 2:
                append(ptx.Offset(name(row[1]), ptx.Integer(row[2], row[3])))
            case 3:
                append(ptx.Integer(row[1], row[2]))
            case _:
                append(decode_record(row))
    return operands


def _little_endian(stream: array[int]) -> bytes:
    return _little_endian_array(stream).tobytes()


def _little_endian_array(stream: array[int]) -> array[int]:
    if array("I", [1]).tobytes()[0] == 1:
        return stream
    swapped = array("I", stream)
    swapped.byteswap()
    return swapped
