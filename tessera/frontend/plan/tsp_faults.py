"""What is wrong with the text of a plan, as diagnostics (TSR3020).

In: the text, and Lark's exception or a fault of a value. Out: a `Diagnostic` with its line.
"""

from __future__ import annotations

import os

from lark import UnexpectedInput, UnexpectedToken

from tessera.diagnostics import Diagnostic, Source, Span, error
from tessera.frontend.plan.tsp_values import BadText
from tessera.ir.arguments import wrong_type
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import FORMAT, VERSION


def unexpected(source: Source, fault: UnexpectedInput) -> Diagnostic:
    """What the grammar does not take, and what it would have."""
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
    "PLAN",
    "CARD",
    "DEVICE",
    "CAPACITY",
    "PATH",
    "BASELINE",
    "REPLICA",
    "PLACEMENT",
    "STEP",
    "MOVE",
    "AREA",
    "PLACE",
    "HOME",
    "REQUEST",
    "TRANSFER",
    "PROGRAM",
    "TRACE",
}
_SAID = {
    "FIELDS": "`key=value`",
    "INT": "a number",
    "OPERATIONS": "an operation",
    "TEXT": "the lines of a trace",
}


def bad_text(source: Source, fault: BadText) -> Diagnostic:
    """A value, or a whole record, that cannot be so."""
    return error("TSR3020", str(fault), Span(source, fault.start, fault.start + fault.length))


def check_plan_given(plan: object) -> None:
    """A plan or the path of one."""
    if not isinstance(plan, str | os.PathLike | Plan):
        hint = " (the `plan` of a report is one)" if hasattr(plan, "plan") else ""
        raise wrong_type("plan", plan, f"a path or a `Plan`{hint}")
