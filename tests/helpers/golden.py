"""Golden files: an input and what the tool says about it, in one file.

A file begins with the input, a trace or PTX, under a comment that says what to see. Sections
follow, each behind a line `//// NAME ARGUMENTS`. Some are more input (`times`, `machine`,
`placement`, `edit`); all others are output, made by `tessc` in a folder that holds the input as
`trace.ptx`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.helpers.command import Outcome, tessc
from tests.helpers.golden_plan import plan_lines

_SECTION = re.compile(r"^//// (\w+)(.*)\n", re.M)
_ACCESS = re.compile(
    r'  access (\w+) certainty=(\w+) address=(\w+) buffer=(\d+) region=(.+?) text="(.*)"$'
)
_TIME = re.compile(r"([\w-]+)=([\d.]+)us")
_GIVEN = ("times", "machine", "placement", "edit")
TRACE, PLAN = "trace.ptx", "plan.tsp"


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a golden file; the first, without a name, is the input."""

    name: str
    arguments: str
    text: str

    @property
    def is_given(self) -> bool:
        """Whether it is input."""
        return not self.name or self.name in _GIVEN


def record(path: Path, name: str, value: list[Any] | None) -> None:
    """Write what was found under a name into a file of JSON, a line each; with None, nothing."""
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # there may be other workers
        kept = json.load(file) | {name: value}
        lines = [f"{json.dumps(n)}: {json.dumps(kept[n])}" for n in sorted(kept) if kept[n]]
        file.seek(0)
        file.truncate()
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def read_golden(text: str) -> list[Section]:
    """The sections of a file, the input first."""
    first, *rest = _SECTION.split(text)
    return [Section("", "", first)] + [
        Section(name, arguments.strip(), body)
        for name, arguments, body in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    ]


def print_golden(sections: list[Section]) -> str:
    """The text of a file."""
    return sections[0].text + "".join(
        f"//// {' '.join(filter(None, (one.name, one.arguments)))}\n{one.text}"
        for one in sections[1:]
    )


def made_anew(sections: list[Section], folder: Path) -> list[Section]:
    """The sections with all output made again, in order, in an empty folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        Path(TRACE).write_text(sections[0].text, encoding="utf-8")
        return [one if _take(one) else _made(one) for one in sections]
    finally:
        os.chdir(before)


def _take(section: Section) -> bool:
    """Put input in place; False for a section that is output."""
    if not section.is_given:
        return False
    match section.name:
        case "times":
            Path("times.json").write_text(_profile(section.text), encoding="utf-8")
        case "machine":
            Path("machine.toml").write_text(section.text, encoding="utf-8")
        case "placement":
            Path("placement").write_text(section.text, encoding="utf-8")
        case "edit":
            _check(tessc("plan", TRACE, *_plan_arguments(section.arguments)))
            edited = edit(Path(PLAN).read_text(encoding="utf-8"), section.text)
            Path(PLAN).write_text(edited, encoding="utf-8")
    return True


def _made(section: Section) -> Section:
    text = _PRINTERS[section.name](shlex.split(section.arguments))
    return replace(section, text=text.rstrip("\n") + "\n")


def _check(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.err
    return outcome


# --- more input ------------------------------------------------------------------------------


def _profile(lines: str) -> str:
    """Times of steps on kinds of GPUs, `#0 a100=10us l40s=20us`, as a profile."""
    graph = _check(tessc("analyze", TRACE, "--emit", "graph")).text
    digest = re.search(r'^trace .* digest="(\w+)"', graph, re.M)
    names = dict(re.findall(r'^node (\d+) "(.*)"', graph, re.M))
    assert digest is not None
    rows = [
        {"step": int(step), "name": names[step], "gpu": gpu, "ns": float(time) * 1000, "error": 0.0}
        for step, times in re.findall(r"^#(\d+) (.*)$", lines, re.M)
        for gpu, time in _TIME.findall(times)
    ]
    return json.dumps({"schema": "tessera-profile/1", "program": digest.group(1), "rows": rows})


def edit(text: str, edits: str) -> str:
    """A plan file, changed: `@ words` goes on to a line with these words, `- line` takes the next
    line like this out, `+ line` puts one in there, `~ old -> new` changes words in this line."""
    lines, at = text.splitlines(), 0
    for one in edits.splitlines():
        kind, _, words = one.partition(" ")
        match kind:
            case "+":
                indent = len(lines[at]) - len(lines[at].lstrip())
                lines.insert(at, " " * indent + words)
                at += 1
            case "~":
                old, new = words.split(" -> ")
                assert old in lines[at], f"`{old}` is not in `{lines[at]}`"
                lines[at] = lines[at].replace(old, new)
            case "@":
                at = next(n for n in range(at, len(lines)) if words in lines[n])
            case "-":
                at = next(n for n in range(at, len(lines)) if words == lines[n].strip())
                del lines[at]
            case _:
                raise AssertionError(f"no edit: `{one}`")
    return "\n".join(lines) + "\n"


# --- output ----------------------------------------------------------------------------------


def _plan_arguments(arguments: str) -> list[str]:
    found = shlex.split(arguments)
    for name, option in (
        ("times.json", "--profile"),
        ("machine.toml", "--machine"),
        ("placement", "--placement"),
    ):
        if Path(name).exists():
            found += [option, name]
    return found


def _ptx(arguments: list[str]) -> str:
    return _check(tessc("analyze", TRACE, "--emit", "ptx", *arguments)).text


def _summary(arguments: list[str]) -> str:
    return _check(tessc("analyze", TRACE, "--full", *arguments)).text


def _steps(arguments: list[str]) -> str:
    """The part of the report on steps and edges: modules and what was written come behind it."""
    text = _summary(arguments).partition("\nsteps\n")[2]
    return re.split(r"\n(?:module|wrote) ", text)[0]


def _graph(arguments: list[str]) -> str:
    """The kernel graph but for its first lines, which hold a digest."""
    text = _check(tessc("analyze", TRACE, "--emit", "graph", *arguments)).text
    return "".join(text.splitlines(keepends=True)[2:])


def _why(arguments: list[str]) -> str:
    return _check(tessc("analyze", TRACE, "--why", *arguments)).text


def _findings(arguments: list[str]) -> str:
    return tessc("analyze", TRACE, "--full", *arguments).err


def _regions(arguments: list[str]) -> str:
    """Every access of every step with its line: what it touches, and how sure that is."""
    from tessera import analyze

    graph = analyze(TRACE).graph
    assert graph is not None
    text = _check(tessc("analyze", TRACE, "--emit", "graph", *arguments)).text
    records = iter([line for line in text.splitlines() if line.startswith("  access ")])
    return "\n".join(_region_lines(graph.nodes, [one.name for one in graph.buffers], records))


def _region_lines(
    nodes: tuple[object, ...], buffers: list[str], records: Iterator[str]
) -> Iterator[str]:
    for node in nodes:
        yield f"#{node.id} {node.name}"  # type: ignore[attr-defined]
        for pin in node.pins:  # type: ignore[attr-defined]
            yield f"  pinned: {pin.reason}"
        rows = []
        for access in node.accesses:  # type: ignore[attr-defined]
            found = _ACCESS.match(next(records))
            assert found is not None
            kind, certainty, address, buffer, region, opcode = found.groups()
            region = region.partition("(")[0]  # of one that is not known the reason follows
            span = access.span
            line = "" if span is None else str(span.source.position(span.start)[0])
            rows.append((line, opcode, certainty, kind, buffers[int(buffer)], region, address))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"  {'  '.join(cells)}".rstrip()


def _plan(arguments: list[str]) -> str:
    outcome = tessc("plan", TRACE, "--json", *_plan_arguments(shlex.join(arguments)))
    if outcome.code:
        return outcome.err
    return "\n".join(plan_lines(json.loads(outcome.text)))


def _program(arguments: list[str]) -> str:
    given = _plan_arguments(shlex.join(arguments))
    return _check(tessc("plan", TRACE, "--emit", "launch", *given)).text


def _verdict(arguments: list[str]) -> str:
    outcome = tessc("check", PLAN, *arguments)
    return outcome.err if outcome.code else outcome.text


_PRINTERS: dict[str, Callable[[list[str]], str]] = {
    "ptx": _ptx,
    "summary": _summary,
    "regions": _regions,
    "steps": _steps,
    "graph": _graph,
    "why": _why,
    "findings": _findings,
    "plan": _plan,
    "program": _program,
    "verdict": _verdict,
}
