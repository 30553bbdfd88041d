"""The formats of arrival files, line by line.

In: the first line of a file, then each line. Out: a `LineReader`, which turns a line into
`(time in ns, input tokens, output tokens, pieces)` or raises `BadLine`.

- Azure LLM inference (2023 and 2024): CSV with `TIMESTAMP,ContextTokens,GeneratedTokens`; times are
  dates, with or without an offset from UTC.
- BurstGPT: CSV with `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`; times
  are seconds. Newer files also have `Session ID` and `Elapsed time`.
- Mooncake: an object of JSON in every line, with `timestamp` in milliseconds, `input_length`,
  `output_length` and perhaps `hash_ids`: one for every 512 tokens of the prompt, equal where these
  and all before them are.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import lru_cache

Row = tuple[int, int, int, tuple[int, ...]]
LineReader = Callable[[str], Row]

MOST_TOKENS = 1_000_000_000
MOST_NS = 1 << 62
"""The latest time that is accepted: 146 years in ns."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?"
    r"(?:Z|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_LONGEST_CELL = 60


class BadLine(Exception):
    """A fault in a line; `cell` is the cell at fault, if it is a single one."""

    def __init__(self, message: str, cell: str = "", hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cell = cell
        self.hint = hint


class UnknownFormat(BadLine):
    """A first line that matches none of the formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalTable:
    """A format of CSV: its columns, and how time is written in the first of them."""

    name: str
    time: str
    tokens: tuple[str, str]
    read_time: Callable[[str, str], int]
    others: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    @property
    def needed(self) -> frozenset[str]:
        """The columns that a file must have."""
        return frozenset((self.time, *self.tokens)) | self.others


def line_reader(first: str) -> tuple[str, LineReader, bool]:
    """Format and reader of a file by its first line, and whether that line is a title."""
    if first.lstrip().startswith("{"):
        return "mooncake", read_mooncake, False
    columns = [column.strip() for column in cells_of(first)]
    for table in TABLES:
        if table.time not in columns:
            continue
        _check_columns(table, columns)
        return table.name, _table_reader(table, columns), True
    raise UnknownFormat(
        "this begins none of the formats that are known",
        hint="give the CSV of Azure (`TIMESTAMP,ContextTokens,GeneratedTokens`) or of BurstGPT "
        "(`Timestamp,Model,Request tokens,...`), or Mooncake's lines of JSON; `poisson:20/s` "
        "draws requests",
    )


def _check_columns(table: ArrivalTable, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in table.needed | table.optional:
            raise BadLine(f"the {table.name} format has no column `{_short(column)}`", column)
        if columns.count(column) > 1:
            raise BadLine(f"the column `{column}` is there twice", column)
    missing = sorted(table.needed - set(columns))
    if missing:
        raise BadLine(f"the {table.name} format also has a column `{missing[0]}`")


def _table_reader(table: ArrivalTable, columns: Sequence[str]) -> LineReader:
    time_at = columns.index(table.time)
    first_at, second_at = (columns.index(name) for name in table.tokens)
    must = sorted((columns.index(name), name) for name in table.needed)

    def read(line: str) -> Row:
        cells = cells_of(line)
        if len(cells) != len(columns):
            raise BadLine(f"{len(columns)} columns are expected here, not {len(cells)}")
        for at, name in must:
            if not cells[at].strip():
                raise BadLine(f"there is nothing in the column `{name}`")
        return (
            table.read_time(cells[time_at].strip(), table.time),
            _tokens(cells[first_at].strip(), table.tokens[0]),
            _tokens(cells[second_at].strip(), table.tokens[1]),
            (),
        )

    return read


def cells_of(line: str) -> list[str]:
    """The cells of a line of CSV."""
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration):
        raise BadLine("the quotation marks do not match") from None


def read_mooncake(line: str) -> Row:
    """A request in a line of Mooncake."""
    try:
        value = json.loads(line)
    except RecursionError:
        raise BadLine("the JSON is nested too deeply") from None
    except ValueError as fault:
        reason = getattr(fault, "msg", "a number is too long")
        raise BadLine(f"this is no JSON: {reason[:1].lower()}{reason[1:]}") from None
    if not isinstance(value, dict):
        raise BadLine("an object is expected here, with `timestamp` and lengths")
    for key in value:
        if key not in ("timestamp", "input_length", "output_length", "hash_ids"):
            raise BadLine(f"the mooncake format has no key `{_short(key)}`", f'"{key}"')
    for key in ("timestamp", "input_length", "output_length"):
        if value.get(key) is None:
            raise BadLine(f"`{key}` is missing")
    pieces = value.get("hash_ids", [])
    if not (isinstance(pieces, list) and all(type(piece) is int for piece in pieces)):
        raise BadLine("`hash_ids` must be a list of whole numbers", '"hash_ids"')
    time, *lengths = (value[key] for key in ("timestamp", "input_length", "output_length"))
    return (
        _scaled(_plain(time, "timestamp"), 1_000_000, "timestamp"),
        _tokens(_plain(lengths[0], "input_length"), "input_length"),
        _tokens(_plain(lengths[1], "output_length"), "output_length"),
        tuple(pieces),
    )


# --- values --------------------------------------------------------------------------------------


def _plain(value: object, key: str) -> str:
    """A number of JSON as text again, so that all formats have the same rules."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadLine(f"`{key}` must be a number", f'"{key}"')
    return repr(value)


def _tokens(text: str, what: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise BadLine(f"`{what}` must be a whole number, not `{_short(text)}`", text)
    count = int(text)
    if not 0 <= count <= MOST_TOKENS:
        raise BadLine(f"`{what}` must be from 0 to {MOST_TOKENS}, not {count}", text)
    return count


def _scaled(text: str, unit_ns: int, what: str) -> int:
    """A number of units of `unit_ns` in ns; exact, so that long files stay in order."""
    if not _NUMBER.fullmatch(text) or len(text) > _LONGEST_CELL:
        raise BadLine(f"`{what}` must be a finite number, not `{_short(text)}`", text)
    ns = int(text) * unit_ns if text.isdecimal() else round(Fraction(text) * unit_ns)
    if ns < 0:
        raise BadLine(f"`{what}` must not be negative, and is {_short(text)}", text)
    if ns > MOST_NS:
        raise BadLine(f"`{what}` is too large: {_short(text)}", text)
    return ns


def _seconds(text: str, what: str) -> int:
    return _scaled(text, 1_000_000_000, what)


def _moment(text: str, what: str) -> int:
    """A date in ns; a date without an offset is UTC."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise BadLine(
            f"`{what}` must be a date such as 2023-11-16 18:15:46.68, not `{_short(text)}`", text
        )
    try:
        days = _days(found[1], found[2], found[3])
    except ValueError:
        raise BadLine(f"`{what}` is no day of the calendar: {_short(text)}", text) from None
    hour, minute, second = int(found[4]), int(found[5]), int(found[6])
    if hour > 23 or minute > 59 or second > 60:
        raise BadLine(f"`{what}` is no time of day: {_short(text)}", text)
    ahead = int(found[9] or 0) * 60 + int(found[10] or 0)
    minutes = hour * 60 + minute - (ahead if found[8] == "+" else -ahead)
    whole = (days * 1440 + minutes) * 60 + second
    return whole * 1_000_000_000 + int((found[7] or "").ljust(9, "0"))


@lru_cache(maxsize=64)
def _days(year: str, month: str, day: str) -> int:
    return date(int(year), int(month), int(day)).toordinal()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."


TABLES = (
    ArrivalTable(
        name="azure",
        time="TIMESTAMP",
        tokens=("ContextTokens", "GeneratedTokens"),
        read_time=_moment,
    ),
    ArrivalTable(
        name="burstgpt",
        time="Timestamp",
        tokens=("Request tokens", "Response tokens"),
        read_time=_seconds,
        others=frozenset(("Model", "Total tokens", "Log Type")),
        optional=frozenset(("Session ID", "Elapsed time")),
    ),
)
