"""The table of diagnostic codes, and the pages that explain them.

A code never changes its meaning: 1xxx syntax and files, 2xxx analysis, 3xxx planning, 4xxx
lowering, 5xxx running, 9xxx a fault of Tessera's own. Every code has a page
`explain/<code>.md` with the sections What it means, Why it matters, Example, What to do; the
tests hold the table, the pages and the code that reports them against each other.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from tessera.diagnostics import Severity

_PAGES = Path(__file__).parent / "explain"


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: its code, what it says in general, and how bad it is by default."""

    code: str
    title: str
    severity: Severity = Severity.ERROR


_WARNING = Severity.WARNING

CODES: tuple[Code, ...] = (
    Code("TSR1001", "something else is expected here"),
    Code("TSR1002", "the module does not say what it is"),
    Code("TSR1003", "the text ends too early"),
    Code("TSR1004", "a comment is never closed"),
    Code("TSR1005", "a string is never closed"),
    Code("TSR1006", "a character does not belong here"),
    Code("TSR1007", "this is not a number that PTX knows"),
    Code("TSR1008", "nested too deeply"),
    Code("TSR1009", "the value is not allowed here"),
    Code("TSR1010", "the declaration has no type of a variable"),
    Code("TSR1011", "the PTX version is not known"),
    Code("TSR1020", "the name is not declared"),
    Code("TSR1021", "the name is declared twice"),
    Code("TSR1023", "the label is declared twice"),
    Code("TSR1024", "the number of operands is wrong"),
    Code("TSR1025", "the opcode is not known", _WARNING),
    Code("TSR1026", "the directive is not known"),
    Code("TSR1100", "the trace does not start with its version"),
    Code("TSR1101", "the version of the trace is not known"),
    Code("TSR1102", "the record is not known"),
    Code("TSR1103", "the record is not well formed"),
    Code("TSR1104", "the key is not known"),
    Code("TSR1105", "the key is given twice"),
    Code("TSR1106", "a key is missing"),
    Code("TSR1107", "the record does not start its line"),
    Code("TSR1108", "the text belongs to no module"),
    Code("TSR1109", "the record comes at the wrong place"),
    Code("TSR1110", "the name is given twice"),
    Code("TSR1111", "the buffer is not known"),
    Code("TSR1112", "the module is not known"),
    Code("TSR1113", "the kernel is not in the module"),
    Code("TSR1114", "the name is used before it is declared"),
    Code("TSR1115", "the record holds a byte that is not UTF-8"),
    Code("TSR1116", "the number is out of range"),
    Code("TSR1117", "the module has no PTX"),
    Code("TSR1121", "size, type and shape do not agree"),
    Code("TSR1122", "the type is not known"),
    Code("TSR1123", "the role is not known"),
    Code("TSR1125", "the block has too many threads"),
    Code("TSR1126", "the cluster does not fit"),
    Code("TSR1127", "the block is not what the kernel demands"),
    Code("TSR1130", "the number of arguments is wrong"),
    Code("TSR1131", "the argument does not fit its parameter"),
    Code("TSR1132", "the value does not fit its type"),
    Code("TSR1133", "the struct is not well formed"),
    Code("TSR1134", "the pointer does not fit its struct"),
    Code("TSR1135", "a number is passed where the kernel wants a pointer", _WARNING),
    Code("TSR1136", "the address is outside its buffer"),
    Code("TSR1137", "the operation reaches outside the buffer"),
    Code("TSR1138", "the elements do not fill the range"),
    Code("TSR1139", "source and target of a copy overlap"),
    Code("TSR1140", "the pointer is outside its buffer"),
    Code("TSR1141", "the pointer is not aligned"),
    Code("TSR1142", "the pointer is given twice"),
    Code("TSR1143", "a weight is written"),
    Code("TSR1150", "the variants of a module have different kernels"),
    Code("TSR1151", "the variants of a module have different variables"),
    Code("TSR1152", "the module has no code for that architecture"),
    Code("TSR1153", "the architecture is not that of the code"),
    Code("TSR1154", "this is not an architecture"),
    Code("TSR1155", "two variants of a launch for one architecture"),
    Code("TSR1160", "the operand ends outside its buffer"),
    Code("TSR1161", "the strides do not match the shape"),
    Code("TSR1162", "the attribute cannot be represented"),
    Code("TSR1170", "the event was never recorded"),
    Code("TSR1180", "the file of contents is not a plain name"),
    Code("TSR1900", "the file does not exist"),
    Code("TSR1901", "a folder was given in place of a file"),
    Code("TSR1902", "the file cannot be read"),
    Code("TSR1903", "the file is empty"),
    Code("TSR1904", "the file is too large"),
    Code("TSR1905", "the file is GPU machine code, not PTX"),
    Code("TSR1906", "the file is a host binary or a fat binary, not PTX"),
    Code("TSR1907", "the file is compressed"),
    Code("TSR1908", "the text is UTF-16 or UTF-32"),
    Code("TSR1909", "the file holds binary data"),
    Code("TSR1910", "the text is another language, not PTX"),
    Code("TSR1911", "the output cannot be written"),
    Code("TSR9000", "an internal error of Tessera"),
)

_BY_CODE = {entry.code: entry for entry in CODES}


def find_code(text: str) -> Code | None:
    """The entry for a code as a user may type it: `TSR1900`, `tsr1900` or `1900`."""
    return _BY_CODE.get(_canonical(text))


def near_codes(text: str) -> tuple[Code, ...]:
    """Up to three entries whose code or title is close to `text`, nearest first."""
    wanted = _canonical(text)
    by_code = difflib.get_close_matches(wanted, _BY_CODE, n=3, cutoff=0.7)
    if by_code:
        return tuple(_BY_CODE[code] for code in by_code)
    words = [word for word in text.lower().split() if len(word) > 2]
    hits = [entry for entry in CODES if any(word in entry.title.lower() for word in words)]
    return tuple(hits[:3])


def explain(entry: Code) -> str:
    """The page of a code, in Markdown."""
    return (_PAGES / f"{entry.code}.md").read_text(encoding="utf-8")


def _canonical(text: str) -> str:
    stripped = text.strip().upper()
    return f"TSR{stripped}" if stripped.isascii() and stripped.isdigit() else stripped
