"""Read a plan file, `.tsp`: the text that `ir.plan_text` prints.

In: text, which may come from anywhere. Out: a `Plan` that `ir.verify_plan` has nothing to say
against. An unknown version, record or key, a missing one, a value of the wrong kind and a number
that refers to nothing are errors (TSR3020) with their line; nothing is skipped but comments.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Hashable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from tessera.diagnostics import Diagnostic, Source, Span, TesseraError, error
from tessera.frontend.grammar import grammar_text
from tessera.frontend.tsp_values import BadText, RangeReader, operation_of
from tessera.ir.launch_program import (
    Area,
    AreaKind,
    Bytes,
    DeviceProgram,
    Home,
    LoweredReplica,
    LoweredTrace,
    Place,
    Transfer,
)
from tessera.ir.plan import (
    Baseline,
    PlacedStep,
    PlacedTrace,
    Plan,
    PlanCard,
    PlanDevice,
    PlannedTrace,
    PlannedTransfer,
    Replica,
)
from tessera.ir.plan_text import FORMAT, VERSION
from tessera.ir.verify_plan import LARGEST, verify_plan

_MOST_ERRORS = 20

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PlanText:
    """A plan, and where its records stand in the text that it was read from."""

    plan: Plan
    source: Source
    where: dict[int, Token]

    def span(self, record: object) -> Span | None:
        """Where a record of the plan stands; None for any other."""
        token = self.where.get(id(record))
        return None if token is None else _span(self.source, token)


def parse_plan(text: str, name: str = "<plan>") -> Plan:
    """The plan in a text; raises `TesseraError` where it is none."""
    return read_plan(Source(name, text)).plan


def read_plan(source: Source) -> PlanText:
    """The plan in a text with its places; raises `TesseraError` where it is none."""
    text = source.text
    builder = _Builder()
    try:
        plan = builder.transform(_parser().parse(text))
    except UnexpectedInput as fault:
        raise TesseraError(_unexpected(source, fault)) from None
    except VisitError as fault:
        if isinstance(fault.orig_exc, BadText):
            raise TesseraError(_bad_text(source, fault.orig_exc)) from None
        raise
    flaws = [
        _bad_text(source, BadText(builder.where[id(flaw.record)], flaw.message))
        for flaw, _ in zip(verify_plan(plan), range(_MOST_ERRORS), strict=False)
    ]
    if flaws:
        raise TesseraError(flaws)
    return PlanText(plan, source, builder.where)


@cache
def _parser() -> Lark:
    return Lark(grammar_text("tsp"), parser="lalr")


def _unexpected(source: Source, fault: UnexpectedInput) -> Diagnostic:
    text = source.text
    at = len(text.rstrip()) if _at_end(fault) else int(fault.pos_in_stream or 0)
    start, end = at, at
    while start > 0 and text[start - 1].isidentifier():
        start -= 1
    while end < len(text) and end < at + 40 and not text[end].isspace():
        end += 1
    span = Span(source, min(start, max(len(text) - 1, 0)), max(end, start + 1))
    if start == 0:
        headline = f"this is no plan: the first line must be `{FORMAT} {VERSION}`"
    elif _at_end(fault):
        headline = "the plan ends too early"
    else:
        headline = f"`{text[start:end]}` cannot stand here"
    return error("TSR3020", headline, span, _expected(fault))


def _at_end(fault: UnexpectedInput) -> bool:
    return isinstance(fault, UnexpectedToken) and fault.token.type == "$END"


def _expected(fault: UnexpectedInput) -> str:
    names = set(getattr(fault, "accepts", None) or getattr(fault, "allowed", None) or ())
    words = sorted(f"`{name.lower()}`" for name in names if name in _KEYWORDS)
    words += [said for name, said in _SAID.items() if name in names]
    return f"expected {' or '.join(words)}" if words else ""


_KEYWORDS = {
    "PLAN", "CARD", "DEVICE", "BASELINE", "REPLICA", "PLACEMENT", "STEP", "MOVE", "AREA", "PLACE",
    "HOME", "REQUEST", "TRANSFER", "PROGRAM", "TRACE",
}  # fmt: skip
_SAID = {
    "KEY": "a key", "NUMBER": "a value", "INT": "a number", "OPERATION": "an operation",
    "TEXT": "the lines of a trace",
}  # fmt: skip


def _bad_text(source: Source, fault: BadText) -> Diagnostic:
    return error("TSR3020", str(fault), _span(source, fault.token))


def _span(source: Source, token: Token) -> Span:
    start = token.start_pos or 0
    first_line = str(token).split("\n", 1)[0]
    return Span(source, start, start + max(len(first_line), 1))


class _Field(NamedTuple):
    key: Token
    value: Token | tuple[Token, ...]

    @property
    def name(self) -> str:
        return str(self.key)[:-1]


class _Kind(NamedTuple):
    """What a field holds: types, and whether it may be left out."""

    types: tuple[Any, ...]
    optional: bool


@cache
def _kinds(record: Hashable) -> dict[str, _Kind]:
    """The fields that a record's line has."""
    hints = typing.get_type_hints(record)
    return {
        one.name: _Kind(_options(hints[one.name]), one.default is not MISSING)
        for one in fields(record)  # type: ignore[arg-type]
        if one.name not in _ELSEWHERE
    }


# Fields that come from other lines, or from a number in front.
_ELSEWHERE = frozenset(
    ("cards", "devices", "traces", "replicas", "baselines", "steps", "transfers", "programs",
     "operations", "lowered", "text", "step", "id")
)  # fmt: skip


def _options(hint: Any) -> tuple[Any, ...]:
    if isinstance(hint, types.UnionType):
        return typing.get_args(hint)
    return (getattr(hint, "__supertype__", hint),)


@v_args(inline=True)
class _Builder(Transformer[Token, Plan]):
    def __init__(self) -> None:
        super().__init__()
        self.where: dict[int, Token] = {}
        self._ranges = RangeReader()

    def start(self, version: Token, plan: Any, *records: Any) -> Plan:
        if str(version) != str(VERSION):
            raise BadText(version, f"version {version} is unknown: this program reads {VERSION}")
        keyword, row = plan
        return self._known(
            keyword,
            Plan(
                **row,
                cards=_those(PlanCard, records),
                devices=_those(PlanDevice, records),
                traces=_those(PlannedTrace, records),
                replicas=_those(Replica, records),
                baselines=_those(Baseline, records),
            ),
        )

    def plan(self, keyword: Token, *given: _Field) -> tuple[Token, dict[str, Any]]:
        return keyword, self._row(keyword, Plan, given)

    def card(self, keyword: Token, *given: _Field) -> PlanCard:
        return self._record(keyword, PlanCard, given)

    def device(self, keyword: Token, *given: _Field) -> PlanDevice:
        return self._record(keyword, PlanDevice, given)

    def baseline(self, keyword: Token, *given: _Field) -> Baseline:
        return self._record(keyword, Baseline, given)

    def trace(self, keyword: Token, *given: Any) -> PlannedTrace:
        blocks = [str(one) for one in given if isinstance(one, Token)]
        lines = [line.removeprefix("|") for block in blocks for line in block.split("\n")]
        text = "".join(f"{line}\n" for line in lines)
        return self._record(keyword, PlannedTrace, _those(_Field, given), text=text)

    def replica(self, keyword: Token, *given: Any) -> Replica:
        names = [one for one in given if isinstance(one, _Field) and one.name == "devices"]
        if len(names) != 1:
            raise BadText(keyword, "a `replica` record has the key `devices` once")
        rest = tuple(one for one in _those(_Field, given) if one is not names[0])
        row = self._row(keyword, Replica, rest)
        lowered = LoweredReplica(
            devices=self._names(names[0]),
            slots=row["slots"],
            lanes=row["lanes"],
            areas=_those(Area, given),
            places=_those(Place, given),
            homes=_those(Home, given),
            traces=_those(LoweredTrace, given),
        )
        traces = _those(PlacedTrace, given)
        return self._known(keyword, Replica(**row, traces=traces, lowered=lowered))

    def placement(self, keyword: Token, *given: Any) -> PlacedTrace:
        return self._record(
            keyword, PlacedTrace, _those(_Field, given),
            steps=_those(PlacedStep, given), transfers=_those(PlannedTransfer, given),
        )  # fmt: skip

    def step(self, keyword: Token, number: Token, *given: _Field) -> PlacedStep:
        return self._record(keyword, PlacedStep, given, step=_number(number))

    def move(self, keyword: Token, *given: _Field) -> PlannedTransfer:
        return self._record(keyword, PlannedTransfer, given)

    def area(self, keyword: Token, *given: _Field) -> Area:
        return self._record(keyword, Area, given)

    def place(self, keyword: Token, *given: _Field) -> Place:
        return self._record(keyword, Place, given)

    def home(self, keyword: Token, *given: _Field) -> Home:
        return self._record(keyword, Home, given)

    def request(self, keyword: Token, *given: Any) -> LoweredTrace:
        return self._record(
            keyword, LoweredTrace, _those(_Field, given),
            transfers=_those(Transfer, given), programs=_those(DeviceProgram, given),
        )  # fmt: skip

    def transfer(self, keyword: Token, number: Token, *given: _Field) -> Transfer:
        return self._record(keyword, Transfer, given, id=_number(number))

    def program(self, keyword: Token, *given: Any) -> DeviceProgram:
        operations = []
        for token in given:
            if isinstance(token, Token):
                operations.append(self._known(token, operation_of(token, self._ranges)))
        return self._record(
            keyword, DeviceProgram, _those(_Field, given), operations=tuple(operations)
        )

    def field(self, key: Token, value: Any) -> _Field:
        return _Field(key, value)

    def names(self, *strings: Token) -> tuple[Token, ...]:
        return strings

    # --- records ---------------------------------------------------------------------------

    def _known(self, token: Token, record: R) -> R:
        """The record, once it is noted where it stands."""
        self.where[id(record)] = token
        return record

    def _record(self, keyword: Token, kind: type[R], given: Any, **parts: Any) -> R:
        return self._known(keyword, kind(**self._row(keyword, kind, given), **parts))

    def _row(self, keyword: Token, kind: type[Any], given: Any) -> dict[str, Any]:
        wanted = _kinds(kind)  # type: ignore[arg-type]
        row: dict[str, Any] = {}
        for field in given:
            if field.name not in wanted or field.name in row:
                what = "repeated" if field.name in row else "unknown"
                raise BadText(field.key, f"{what} key `{field.name}` in a `{keyword}` record")
            row[field.name] = self._value(field, wanted[field.name].types)
        for name, one in wanted.items():
            if name not in row and not one.optional:
                raise BadText(keyword, f"a `{keyword}` record lacks the key `{name}`")
        return row

    def _names(self, field: _Field) -> tuple[str, ...]:
        if not isinstance(field.value, tuple):
            raise BadText(field.key, f"`{field.name}` is a list of names in quotes")
        return tuple(_string(token) for token in field.value)

    def _value(self, field: _Field, options: tuple[Any, ...]) -> Any:
        token = field.value
        wrong = f"`{field.name}` has no such value"
        if options == (Bytes,):
            if not isinstance(token, Token) or token.type != "RANGES":
                raise BadText(field.key, f"`{field.name}` is a list of byte ranges")
            return self._ranges.read(token, str(token))
        if isinstance(token, tuple):
            if len(token) != 1 or not {str, AreaKind} & set(options):
                raise BadText(field.key, wrong)
            return _string(token[0]) if str in options else _area_kind(token[0])
        if token.type == "NULL" and types.NoneType in options:
            return None
        if token.type != "NUMBER":
            raise BadText(field.key, wrong)
        if float in options:
            return float(token)
        if int in options and token.isdigit():
            return _number(token)
        raise BadText(token, wrong)


def _those(kind: type[R], records: Any) -> tuple[R, ...]:
    return tuple(one for one in records if isinstance(one, kind))


def _number(token: Token) -> int:
    if len(token) > len(str(LARGEST)):
        raise BadText(token, "the number is too large")
    return int(token)


def _string(token: Token) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        raise BadText(token, "this is no string as JSON writes them") from None


def _area_kind(token: Token) -> AreaKind:
    try:
        return AreaKind(_string(token))
    except ValueError:
        known = ", ".join(f"`{kind.value}`" for kind in AreaKind)
        raise BadText(token, f"{token} is not one of {known}") from None
