"""Values of trace records to program records: numbers, addresses, arguments, operands.

In: the text of a value and its offset. Out: records with every name resolved and every range
checked. Each distinct text is parsed once (`_syntax`) and each distinct argument resolved once
(`_arguments`): buffers are declared before they are used and never change, so an argument means the
same wherever it appears.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tessera.diagnostics import Label
from tessera.frontend.trace.findings import TraceFindings, did_you_mean
from tessera.frontend.trace.parse_record import parse_value, plain_argument
from tessera.frontend.trace.records import HIGHEST, LIMITS, MAX_BYTES
from tessera.frontend.trace.syntax import (
    AddressSyntax,
    ArgumentSyntax,
    ByValueSyntax,
    OperandSyntax,
    ScalarSyntax,
    SyntaxFault,
    Token,
    WordSyntax,
)
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    POINTER_BYTES,
    Argument,
    AttributeValue,
    Buffer,
    BufferId,
    ByValue,
    Operand,
    Pointer,
    PointerWord,
    Role,
    Scalar,
    Triple,
)
from tessera.ir.program.scalar_text import is_scalar_type, scalar_bits

MAX_STRUCT_BYTES = 32764
MAX_RANK = 64

_LONGEST_INTEGER = 40
_DATA_TYPES = {kind.value: kind for kind in DataType}
_ROLES = {role.value: role for role in Role if role is not Role.VARIABLE}

N = TypeVar("N")
# Takes the text of a value, its offset, and its key.
ReadValue = Callable[[str, int, str], Any]


class Values:
    """Reads values for one trace. `buffers` holds the buffers declared so far, by name."""

    def __init__(self, findings: TraceFindings) -> None:
        self.findings = findings
        self.buffers: dict[str, Buffer] = {}
        self._by_id: dict[BufferId, Buffer] = {}
        self._syntax: dict[tuple[str, str], Any] = {}
        self._triples: dict[tuple[str, str], Triple] = {}
        self._arguments: dict[str, Argument] = {}
        # The reader of a field's value, by the type in the record's class.
        self.by_type: dict[str, ReadValue] = {
            "str": lambda text, at, key: text,
            "int": self.integer,
            "bool": lambda text, at, key: bool(self.integer(text, at, key)),
            "Triple": self.triple,
            "tuple[int, ...]": self.shape,
            "Role": self.role,
            "DataType": self.data_type,
            "BufferId": lambda text, at, key: self.buffer(text, at).id,
            "Pointer": self.address,
            "tuple[Argument, ...]": self.arguments,
            "tuple[Operand, ...]": self.operands,
            "tuple[tuple[str, AttributeValue], ...]": self.attributes,
        }

    def declare(self, buffer: Buffer) -> None:
        """Make a buffer known."""
        self.buffers[buffer.name] = buffer
        self._by_id[buffer.id] = buffer

    def by_id(self, buffer: BufferId) -> Buffer:
        """A buffer that is known."""
        return self._by_id[buffer]

    # --- numbers and names -----------------------------------------------------------------

    def integer(self, text: str, at: int, key: str, high: int | None = None) -> int:
        """An integer in the limits of its key; `high` if the upper limit depends on other keys."""
        low, highest = LIMITS[key]
        token = self._parse("integer", text, at)
        return self._bounded(token, at, f"`{key}`", low, highest if high is None else high)

    def triple(self, text: str, at: int, key: str) -> Triple:
        """`X,Y,Z`, each from 1 to the highest value of its key."""
        if known := self._triples.get((key, text)):
            return known
        x, y, z = (
            self._bounded(token, at, f"`{key}`.{axis}", 1, limit)
            for token, axis, limit in zip(
                self._parse("triple", text, at), "xyz", HIGHEST[key], strict=True
            )
        )
        return self._triples.setdefault((key, text), (x, y, z))

    def shape(self, text: str, at: int, key: str) -> tuple[int, ...]:
        """`32x32`: extents from 1."""
        tokens = self._parse("shape", text, at)
        if len(tokens) > MAX_RANK:
            message = f"a shape has at most {MAX_RANK} dimensions"
            self.findings.fail("TSR1103", message, (at, at + len(text)))
        return tuple(self._bounded(token, at, "an extent", 1, MAX_BYTES) for token in tokens)

    def data_type(self, text: str, at: int, key: str = "") -> DataType:
        """An element type by name."""
        return self._named("TSR1116", "type", text, at, _DATA_TYPES)

    def role(self, text: str, at: int, key: str) -> Role:
        """The role of a buffer by name."""
        return self._named("TSR1116", "role", text, at, _ROLES)

    def _named(self, code: str, what: str, text: str, at: int, known: dict[str, N]) -> N:
        value = known.get(text)
        if value is None:
            self.findings.fail(
                code,
                f"unknown {what} `{text[:40]}`",
                (at, at + len(text)),
                notes=(f"{what}s: " + ", ".join(known),),
                hint=did_you_mean(text, known),
            )
        return value

    # --- addresses -------------------------------------------------------------------------

    def buffer(self, name: str, at: int) -> Buffer:
        """A buffer that is declared above."""
        if name not in self.buffers:
            self._unknown_buffer(name, at)
        return self.buffers[name]

    def address(self, text: str, at: int, key: str) -> Pointer:
        """`BUFFER` or `BUFFER+BYTES`, inside the buffer or one past it."""
        return self._pointer(self._parse("address", text, at), at)

    def pointer_words(self, text: str, at: int) -> list[tuple[PointerWord, int]]:
        """`@{8:x,16:y+64}` in the order written, each word with the place of its offset."""
        words = self._parse("pointers", text, at)
        return [(self._word(word, at), at + (word.offset.start_pos or 0)) for word in words]

    # --- arguments -------------------------------------------------------------------------

    def arguments(self, text: str, at: int, key: str) -> tuple[Argument, ...]:
        """`[x, y+64, u32:7]`."""
        fast = None if "{" in text else self._simple_arguments(text, at)
        if fast is not None:
            return fast
        syntax = self._parse("arguments", text, at, remember=False)
        return tuple(self._argument(argument, at) for argument in syntax)

    def operands(self, text: str, at: int, key: str) -> tuple[Operand, ...]:
        """`[a:f32[64,32], b+128:f32[32,16]{1,32}]`, each inside its buffer."""
        syntax = self._parse("operands", text, at, remember=False)
        return tuple(self._operand(operand, at) for operand in syntax)

    def attributes(self, text: str, at: int, key: str) -> tuple[tuple[str, AttributeValue], ...]:
        """`{"key": value}` with JSON scalars and lists."""
        attributes: dict[str, AttributeValue] = {}
        for entry in self._parse("attributes", text, at, remember=False):
            name = str(json.loads(entry.key))
            if name in attributes:
                message = f"attribute `{name}` is given twice"
                self.findings.fail("TSR1104", message, _place(entry.key, at))
            attributes[name] = self._attribute_value(entry.value, at)
        return tuple(attributes.items())

    # --- parts -----------------------------------------------------------------------------

    def _parse(self, rule: str, text: str, at: int, *, remember: bool = True) -> Any:
        syntax = self._syntax.get((rule, text))
        if syntax is not None:
            return syntax
        try:
            syntax = parse_value(rule, text)
        except SyntaxFault as fault:
            place = (at + fault.start, at + fault.end)
            self.findings.fail("TSR1103", fault.message, place, fault.label)
        if remember:
            self._syntax[rule, text] = syntax
        return syntax

    def _bounded(self, token: Token, at: int, what: str, low: int, high: int) -> int:
        value = int(token, 0) if len(token) <= _LONGEST_INTEGER else None
        if value is not None and low <= value <= high:
            return value
        fault = "is negative" if token.startswith("-") else "is out of range"
        self.findings.fail(
            "TSR1116",
            f"{what} {fault}: {token[:_LONGEST_INTEGER]}",
            _place(token, at),
            f"must be from {low} to {high}",
        )

    def _unknown_buffer(self, name: str, at: int) -> None:
        place = (at, at + len(name))
        text = self.findings.source.text
        later = re.compile(rf"^//![ \t]*buffer[ \t]+({re.escape(name)})(?=\s)", re.MULTILINE)
        if record := later.search(text, at):
            self.findings.fail(
                "TSR1111",
                f"buffer `{name}` is used before it is declared",
                place,
                secondary=(Label(self.findings.span(*record.span(1)), "declared here"),),
                hint="move the `buffer` record up",
            )
        self.findings.fail(
            "TSR1111", f"unknown buffer `{name}`", place, hint=did_you_mean(name, self.buffers)
        )

    def _pointer(self, syntax: AddressSyntax, at: int) -> Pointer:
        buffer = self.buffer(str(syntax.buffer), at + (syntax.buffer.start_pos or 0))
        if syntax.offset is None:
            return Pointer(buffer.id)
        offset = self._bounded(syntax.offset, at, "an offset", 0, MAX_BYTES)
        if offset > buffer.bytes:
            self.findings.fail(
                "TSR1136",
                f"address `{buffer.name}+{offset}` is outside its buffer",
                _place(syntax.offset, at),
                f"`{buffer.name}` has {buffer.bytes} bytes",
            )
        return Pointer(buffer.id, offset)

    def _word(self, syntax: WordSyntax, at: int) -> PointerWord:
        offset = self._bounded(syntax.offset, at, "the offset of a pointer", 0, MAX_BYTES)
        return PointerWord(offset, self._pointer(syntax.target, at))

    def _simple_arguments(self, text: str, at: int) -> tuple[Argument, ...] | None:
        """The arguments of a list without structs; None if the list needs the grammar."""
        if not (text.startswith("[") and text.endswith("]")):
            return None
        if not text[1:-1].strip():
            return ()
        arguments = []
        start = 1
        for piece in text[1:-1].split(","):
            bare = piece.strip()
            argument = self._arguments.get(bare) or self._plain_argument(bare)
            if argument is None:
                place = at + start + len(piece) - len(piece.lstrip())
                try:
                    syntax = parse_value("argument", bare)
                except SyntaxFault:
                    return None
                argument = self._arguments[bare] = self._argument(syntax, place)
            arguments.append(argument)
            start += len(piece) + 1
        return tuple(arguments)

    def _plain_argument(self, text: str) -> Argument | None:
        """An address or a scalar without a fault; None for anything else."""
        names = plain_argument(text)
        if names is None:
            return None
        first, separator, second = names
        argument: Argument
        if separator == ":":
            kind = _DATA_TYPES.get(first)
            if kind is None or not is_scalar_type(kind):
                return None
            try:
                argument = Scalar(kind, scalar_bits(kind, second))
            except ValueError:
                return None
        else:
            buffer = self.buffers.get(first)
            offset = int(second, 0) if len(second) <= _LONGEST_INTEGER else -1
            if buffer is None or not 0 <= offset <= buffer.bytes:
                return None
            argument = Pointer(buffer.id, offset)
        self._arguments[text] = argument
        return argument

    def _argument(self, syntax: ArgumentSyntax, at: int) -> Argument:
        match syntax:
            case AddressSyntax():
                return self._pointer(syntax, at)
            case ScalarSyntax():
                return self._scalar(syntax, at)
            case ByValueSyntax():
                return self._by_value(syntax, at)

    def _scalar(self, syntax: ScalarSyntax, at: int) -> Scalar:
        kind = self.data_type(str(syntax.type), at + (syntax.type.start_pos or 0))
        if not is_scalar_type(kind):
            self.findings.fail(
                "TSR1131",
                f"`{kind.value}` is not a type of arguments",
                _place(syntax.type, at),
                hint="pass a `bool` as `u8`, and a complex number as a struct, `b8[N]:HEX`",
            )
        try:
            return Scalar(kind, scalar_bits(kind, str(syntax.value)))
        except ValueError as problem:
            self.findings.fail("TSR1116", str(problem), _place(syntax.value, at))

    def _by_value(self, syntax: ByValueSyntax, at: int) -> ByValue:
        if syntax.type != "b8":
            self.findings.fail(
                "TSR1131",
                f"a struct is bytes, `b8[N]:HEX`, not `{syntax.type}`",
                _place(syntax.type, at),
            )
        count = self._bounded(syntax.size, at, "the size of a struct", 1, MAX_STRUCT_BYTES)
        if len(syntax.digits) != 2 * count:
            self.findings.fail(
                "TSR1131",
                f"a struct of {count} bytes has {2 * count} digits, not {len(syntax.digits)}",
                _place(syntax.digits, at),
            )
        words = self._struct_words(syntax.words, count, at)
        content = bytearray.fromhex(syntax.digits)
        for word in words:
            content[word.offset : word.offset + POINTER_BYTES] = bytes(POINTER_BYTES)
        return ByValue(bytes(content), words)

    def _struct_words(
        self, syntax: Sequence[WordSyntax], count: int, at: int
    ) -> tuple[PointerWord, ...]:
        by_offset: dict[int, PointerWord] = {}
        for entry in syntax:
            word = self._word(entry, at)
            fault = ""
            if word.offset + POINTER_BYTES > count:
                fault = f"is outside its struct of {count} bytes"
            elif any(abs(word.offset - other) < POINTER_BYTES for other in by_offset):
                fault = "overlaps another one"
            if fault:
                message = f"pointer at byte {word.offset} {fault}"
                self.findings.fail("TSR1131", message, _place(entry.offset, at))
            by_offset[word.offset] = word
        return tuple(by_offset[offset] for offset in sorted(by_offset))

    def _operand(self, syntax: OperandSyntax, at: int) -> Operand:
        pointer = self._pointer(syntax.address, at)
        dtype = self.data_type(str(syntax.dtype), at + (syntax.dtype.start_pos or 0))
        shape = self._extents(syntax.shape, at, "an extent")
        strides = None if syntax.strides is None else self._extents(syntax.strides, at, "a stride")
        start = at + (syntax.address.buffer.start_pos or 0)
        if strides is not None and len(strides) != len(shape):
            self.findings.fail(
                "TSR1121",
                f"an operand with {len(shape)} dimensions has {len(strides)} strides",
                (start, start + len(syntax.address.buffer)),
            )
        operand = Operand(pointer=pointer, dtype=dtype, shape=shape, strides=strides)
        buffer = self.buffers[str(syntax.address.buffer)]
        if pointer.offset + operand.extent_bytes() > buffer.bytes:
            self.findings.fail(
                "TSR1136",
                f"an operand ends outside its buffer `{buffer.name}`",
                (start, start + len(syntax.address.buffer)),
                f"ends at byte {pointer.offset + operand.extent_bytes()} of {buffer.bytes}",
            )
        return operand

    def _extents(self, tokens: Sequence[Token], at: int, what: str) -> tuple[int, ...]:
        if len(tokens) > MAX_RANK:
            place = _place(tokens[MAX_RANK], at)
            self.findings.fail("TSR1121", f"an operand has at most {MAX_RANK} dimensions", place)
        return tuple(self._bounded(token, at, what, 0, MAX_BYTES) for token in tokens)

    def _attribute_value(self, value: Token | tuple[Any, ...], at: int) -> AttributeValue:
        if isinstance(value, tuple):
            return tuple(self._attribute_value(element, at) for element in value)
        if value.type == "NUMBER" and len(value) > _LONGEST_INTEGER:
            self.findings.fail("TSR1164", "an attribute's number is too long", _place(value, at))
        if value == "NaN":
            return math.nan  # always the same object, so that equal texts give equal records
        number: AttributeValue = json.loads(value)
        if isinstance(number, int) and not -(1 << 63) <= number < 1 << 64:
            message = "an integer attribute does not fit in 64 bits"
            self.findings.fail("TSR1164", message, _place(value, at))
        if value.type == "NUMBER" and isinstance(number, float) and math.isinf(number):
            self.findings.fail("TSR1164", "a float attribute is out of range", _place(value, at))
        return number


def _place(token: Token, at: int) -> tuple[int, int]:
    start = at + (token.start_pos or 0)
    return (start, start + len(token))
