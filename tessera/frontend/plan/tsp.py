"""Read a plan file, `.tsp`: the text that `ir.plan.print_plan` prints.

In: text, which may come from anywhere. Out: a `Plan` that `ir.plan.verify_plan` accepts. An unknown
version, a missing or unknown record or key, a value of the wrong kind and a number that refers to
nothing are errors (TSR3020) with their line; only comments are skipped.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Hashable, Iterable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from tessera.diagnostics import Source, Span, TesseraError
from tessera.frontend.plan.tsp_values import (
    DIGITS,
    STRING,
    BadText,
    RangeReader,
    TextField,
    TransferLine,
    area_kind_of,
    bad_text,
    operations_of,
    strings_of,
    unexpected,
)
from tessera.frontend.text.grammar import grammar_text
from tessera.frontend.text.readfile import source_of_text
from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.plan.launch_program import (
    Area,
    AreaKind,
    Bytes,
    DeviceProgram,
    Home,
    Landing,
    LoweredReplica,
    LoweredTrace,
    Place,
    Portion,
    Transfer,
    TransferId,
)
from tessera.ir.plan.plan import (
    Baseline,
    PlacedStep,
    PlacedTrace,
    Plan,
    PlanCapacity,
    PlanCard,
    PlanDevice,
    PlannedHandOver,
    PlannedTrace,
    PlannedTransfer,
    PlanPath,
    Replica,
)
from tessera.ir.plan.print_plan import FORMAT, NEW_IN, VERSION, VERSIONS_READ, version_of
from tessera.ir.plan.verify_plan import verify_plan
from tessera.ir.text_digest import text_digest

_MOST_ERRORS = 20

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan, and the places of its records in the text."""

    plan: Plan
    source: Source
    where: dict[int, tuple[int, int]]

    def span(self, record: object) -> Span | None:
        """The place of a record of the plan; None for other records."""
        place = self.where.get(id(record))
        return None if place is None else Span(self.source, place[0], place[0] + place[1])


def parse_plan(text: str, name: str = "<plan>") -> Plan:
    """The plan in a text; raises `TesseraError` if the text is not a plan."""
    return read_plan(source_of_text(text, name)).plan


def check_kind(source: Source) -> None:
    """Refuse a trace, the most likely mistake: to the grammar of plans, its records are
    comments."""
    lines = (line.strip() for line in source.text.split("\n"))
    first = next((line for line in lines if line and not line.startswith("//")), "")
    if not first.startswith(FORMAT):
        hint = "`tessc plan` makes a plan of a trace"
        raise TesseraError.of("TSR3020", f"`{source.name}` is no plan", hint=hint)


def read_plan(source: Source) -> PlanText:
    """The plan in a text with its places; raises `TesseraError` if the text is not a plan."""
    text = source.text
    builder = _PlanBuilder()
    try:
        plan = builder.transform(_parser().parse(text))
    except UnexpectedInput as fault:
        raise TesseraError(unexpected(source, fault)) from None
    except BadText as fault:  # in a record of one line
        raise TesseraError(bad_text(source, fault)) from None
    except VisitError as fault:
        if isinstance(fault.orig_exc, BadText):
            raise TesseraError(bad_text(source, fault.orig_exc)) from None
        raise
    flaws = [
        bad_text(source, BadText(*builder.where[id(flaw.record)], flaw.message))
        for flaw, _ in zip(verify_plan(plan), range(_MOST_ERRORS), strict=False)
    ]
    if flaws:
        raise TesseraError(flaws)
    return PlanText(plan, source, builder.where)


@cache
def _parser() -> Lark:
    return Lark(grammar_text("tsp"), parser="lalr")


class _FieldKind(NamedTuple):
    """The kind of a field: its types, and whether it may be left out."""

    types: tuple[object, ...]
    optional: bool


@cache
def _kinds(record: Hashable) -> dict[str, _FieldKind]:
    """The fields that a record's line has."""
    hints = typing.get_type_hints(record)
    return {
        field.name: _FieldKind(_options(hints[field.name]), field.default is not MISSING)
        for field in fields(record)  # type: ignore[arg-type]
        if field.name not in _ELSEWHERE and field.compare
    }


# Fields of other lines, or the number at the start of the line.
_ELSEWHERE = frozenset(
    (
        "cards",
        "devices",
        "capacities",
        "paths",
        "traces",
        "replicas",
        "baselines",
        "steps",
        "transfers",
        "programs",
        "operations",
        "lowered",
        "hand_overs",
        "text",
        "division",
        "step",
        "id",
    )
)


def _options(hint: object) -> tuple[object, ...]:
    if isinstance(hint, types.UnionType):
        return typing.get_args(hint)
    return (getattr(hint, "__supertype__", hint),)


# Records of one line, by grammar rule, and the field for the number at the start of the line.
_LINES: dict[str, tuple[type[Any], str]] = {
    "card": (PlanCard, ""),
    "device": (PlanDevice, ""),
    "capacity": (PlanCapacity, ""),
    "path": (PlanPath, ""),
    "baseline": (Baseline, ""),
    "step": (PlacedStep, "step"),
    "move": (PlannedTransfer, ""),
    "hand_over": (PlannedHandOver, ""),
    "area": (Area, ""),
    "place": (Place, ""),
    "home": (Home, ""),
    "landing": (Landing, "id"),
    "cut": (Cut, "step"),
    "twin": (Twin, "step"),
}


@v_args(inline=True)
class _PlanBuilder(Transformer[Token, Plan]):
    def __init__(self) -> None:
        super().__init__()
        self.where: dict[int, tuple[int, int]] = {}
        self._ranges = RangeReader()

    def start(self, version: Token, plan: tuple[Token, dict[str, Any]], *records: object) -> Plan:
        if str(version) not in map(str, VERSIONS_READ):
            known = ", ".join(map(str, VERSIONS_READ))
            raise _at(version, f"version {version} is unknown: this program reads {known}")
        keyword, row = plan
        made = self._known(
            keyword,
            Plan(
                **row,
                cards=_those(PlanCard, records),
                devices=_those(PlanDevice, records),
                capacities=_those(PlanCapacity, records),
                paths=_those(PlanPath, records),
                traces=_those(PlannedTrace, records),
                replicas=_those(Replica, records),
                baselines=_those(Baseline, records),
            ),
        )
        if VERSION < (needed := version_of(made)) > int(version):
            raise _at(version, f"version {version} has no {NEW_IN[needed]}: this is {needed}")
        return made

    def __default__(self, rule: Token, children: list[Any], meta: object) -> object:
        """A record of one line, with or without a number at its start."""
        keyword, *given = children
        kind, number = _LINES[rule]
        parts = {number: _number_of(keyword)} if number else {}
        return self._record(keyword, kind, given, **parts)

    def plan(self, keyword: Token, *given: object) -> tuple[Token, dict[str, object]]:
        return keyword, self._row(keyword, Plan, _fields(given))

    def trace(self, keyword: Token, *given: object) -> PlannedTrace:
        blocks = [token for token in given if isinstance(token, Token) and token.type == "TEXT"]
        lines = [line.removeprefix("|") for block in blocks for line in block.split("\n")]
        text = "".join(f"{line}\n" for line in lines)
        division = Division(_those(Cut, given), _those(Twin, given))
        trace = self._record(keyword, PlannedTrace, given, text=text, division=division)
        # Editors and version control may write CR LF at line ends; the digest shows if they did.
        plain = text.replace("\r\n", "\n")
        if plain != text and trace.digest == text_digest(plain) != text_digest(text):
            return self._known(keyword, replace(trace, text=plain))
        return trace

    def replica(self, keyword: Token, *given: object) -> Replica:
        fields = _fields(given)
        names = [field for field in fields if field.name == "devices"]
        if len(names) != 1:
            raise _at(keyword, "a `replica` record has the key `devices` once")
        row = self._row(keyword, Replica, [field for field in fields if field is not names[0]])
        lowered = LoweredReplica(
            devices=strings_of(names[0]),
            slots=row["slots"],
            lanes=row["lanes"],
            areas=_those(Area, given),
            places=_those(Place, given),
            homes=_those(Home, given),
            traces=_those(LoweredTrace, given),
            landings=_those(Landing, given),
        )
        traces, handed = _those(PlacedTrace, given), _those(PlannedHandOver, given)
        return self._known(
            keyword, Replica(**row, traces=traces, hand_overs=handed, lowered=lowered)
        )

    def placement(self, keyword: Token, *given: object) -> PlacedTrace:
        return self._record(
            keyword,
            PlacedTrace,
            given,
            steps=_those(PlacedStep, given),
            transfers=_those(PlannedTransfer, given),
        )

    def request(self, keyword: Token, *given: object) -> LoweredTrace:
        return self._record(
            keyword,
            LoweredTrace,
            given,
            transfers=_those(Transfer, given),
            programs=_those(DeviceProgram, given),
        )

    def transfer(self, keyword: Token, *given: object) -> Transfer:
        row = self._row(keyword, TransferLine, _fields(given))
        buffers, carried = row.pop("buffer"), row.pop("bytes")
        if len(buffers) != len(carried):
            raise _at(keyword, "a `transfer` record has bytes of each buffer: `bytes=0:8;0:4`")
        portions = tuple(map(Portion, buffers, carried))
        number = TransferId(_number_of(keyword))
        return self._known(keyword, Transfer(id=number, portions=portions, **row))

    def program(self, keyword: Token, *given: object) -> DeviceProgram:
        operations = []
        for block in given:
            if isinstance(block, Token) and block.type == "OPERATIONS":
                for start, end, queued in operations_of(block, block.start_pos or 0, self._ranges):
                    self.where[id(queued)] = start, end - start
                    operations.append(queued)
        return self._record(keyword, DeviceProgram, given, operations=tuple(operations))

    # --- records ---------------------------------------------------------------------------

    def _known(self, keyword: Token, record: R) -> R:
        """Note the place of a record and return it."""
        self.where[id(record)] = keyword.start_pos or 0, len(keyword)
        return record

    def _record(self, keyword: Token, kind: type[R], given: Iterable[object], **parts: object) -> R:
        return self._known(keyword, kind(**self._row(keyword, kind, _fields(given)), **parts))

    def _row(self, keyword: Token, kind: type[object], given: list[TextField]) -> dict[str, Any]:
        wanted = _kinds(kind)  # type: ignore[arg-type]
        row: dict[str, Any] = {}
        said = keyword.split()[0]
        for field in given:
            if field.name not in wanted or field.name in row:
                what = "repeated" if field.name in row else "unknown"
                raise field.bad(f"{what} key `{field.name}` in a `{said}` record")
            row[field.name] = self._value(field, wanted[field.name].types)
        for name, wanted_kind in wanted.items():
            if name not in row and not wanted_kind.optional:
                raise _at(keyword, f"a `{said}` record lacks the key `{name}`")
        return row

    def _value(self, field: TextField, options: tuple[object, ...]) -> object:
        text = field.value
        if text[0] == '"':
            strings = strings_of(field)
            if len(strings) == 1 and str in options:
                return strings[0]
            if options == (tuple[str, ...],):
                return strings
            if len(strings) == 1 and AreaKind in options:
                return area_kind_of(field, strings[0])
        elif options == (Bytes,):
            return self._ranges.read(text, field.start + len(field.name) + 1)
        elif options == (tuple[Bytes, ...],):
            return self._ranges.read_portions(text, field.start + len(field.name) + 1)
        elif options == (tuple[int, ...],):
            numbers = text.split(",")
            if all(_INTEGER.fullmatch(number) and len(number) <= DIGITS for number in numbers):
                return tuple(map(int, numbers))
        elif options == (tuple[float, ...],):
            numbers = text.split(",")
            if all(_NUMBER.fullmatch(number) for number in numbers):
                return tuple(map(float, numbers))
        elif text == "null" and types.NoneType in options:
            return None
        elif float in options and _NUMBER.fullmatch(text):
            return float(text)
        elif int in options and _INTEGER.fullmatch(text):
            if len(text) > DIGITS:
                raise field.bad("the number is too large")
            return int(text)
        raise field.bad(f"`{field.name}` has no such value")


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"[0-9]+")
_FIELD = re.compile(rf"([a-z_]+)=({STRING}(?:,{STRING})*+|[^\s\"|=]++)")


def _fields(given: Iterable[object]) -> list[TextField]:
    """The `key=value`s of a record, in order."""
    return [
        TextField(match[1], match[2], (token.start_pos or 0) + match.start())
        for token in given
        if isinstance(token, Token) and token.type == "FIELDS"
        for match in _FIELD.finditer(token)
    ]


def _those(kind: type[R], records: Iterable[object]) -> tuple[R, ...]:
    return tuple(record for record in records if isinstance(record, kind))


def _at(token: Token, why: str) -> BadText:
    return BadText(token.start_pos or 0, len(token), why)


def _number_of(keyword: Token) -> int:
    """The number after `step` or `transfer`."""
    if len(text := keyword.split()[1]) > DIGITS:
        raise _at(keyword, "the number is too large")
    return int(text)
