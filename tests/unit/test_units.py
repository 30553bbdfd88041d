"""Names that end in a unit of time meet only names of the same unit: `_ns` no `_ms`, `_s` no `_us`.

What is compared, added, taken as the least or greatest, assigned, or passed by name counts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "seconds": "s", "nanoseconds": "ns"}
UNITS |= {"milliseconds": "ms", "microseconds": "us"}
CLOCKS = {"monotonic": "s", "perf_counter": "s", "process_time": "s"}
KEEP_UNITS = {"min", "max", "sum", "abs", "round", "int", "float", "ceil", "floor"}


def of_name(name: str) -> str | None:
    parts = name.lower().strip("_").split("_")
    is_rate = "per" in parts or parts == ["s"]
    return CLOCKS.get(name) or (None if is_rate else UNITS.get(parts[-1]))


def unit(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return of_name(name)
        case ast.Call(func=ast.Name(id=name)) if name in KEEP_UNITS:
            found = {known for given in node.args if (known := unit(given))}
            return found.pop() if len(found) == 1 else None
        case ast.Call(func=func):
            return unit(func)
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            return unit(left) or unit(right)
        case ast.IfExp(body=left, orelse=right):
            return unit(left) or unit(right)
        case ast.GeneratorExp(elt=inner) | ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
            return unit(inner)
    return None


def meetings(tree: ast.AST) -> Iterator[tuple[int, ast.expr, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                yield from ((node.lineno, left, other) for other in others)
            case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
                yield node.lineno, left, right
            case ast.Call(func=func, args=given, keywords=named):
                if isinstance(func, ast.Name) and func.id in ("min", "max"):
                    yield from ((node.lineno, given[0], other) for other in given[1:])
                for keyword in named:
                    yield node.lineno, ast.Name(keyword.arg or ""), keyword.value
            case ast.Assign(targets=targets, value=value):
                yield from ((node.lineno, target, value) for target in targets)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield node.lineno, target, value
            case ast.AugAssign(op=ast.Add() | ast.Sub(), target=target, value=value):
                yield node.lineno, target, value


def mixed(text: str) -> list[tuple[int, str, str]]:
    if len({of_name(word) for word in set(re.findall(r"\w+", text))} - {None}) < 2:
        return []  # most files have names of one unit, or none
    met = ((line, unit(left), unit(right)) for line, left, right in meetings(ast.parse(text)))
    return [(line, left, right) for line, left, right in met if left and right and left != right]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("wait_ns < limit_ms", 1),
        ("end_s = time.monotonic_ns()", 1),
        ("f(limit_s=options.limit_ns)", 1),
        ("max(a.ns, b.us)", 1),
        ("total_ns += took_s", 1),
        ("wait_ns < limit_ms * 1e6", 0),
        ("rate = bytes_per_s + other_ns", 0),
        ("until_s = time.monotonic() + limit_s", 0),
    ],
)
def test_mixed_units_are_found(text: str, count: int) -> None:
    assert len(mixed(text)) == count


def test_no_two_units_of_time_meet() -> None:
    files = [path for folder in ("tessera", "tools") for path in (ROOT / folder).rglob("*.py")]
    found = {path: rows for path in files if (rows := mixed(path.read_text()))}
    assert not found
