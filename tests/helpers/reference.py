"""The pages of `docs/reference` that are made from the program itself."""

from __future__ import annotations

import json

import click

from tessera import codes
from tessera.cli import main as cli
from tessera.ir.operators import table as operators
from tessera.ir.operators.cut_rules import rule_of
from tessera.ir.operators.records import AttributeSpec, OperandSpec, Reach

_GROUPS = {
    "10": "PTX",
    "11": "Traces",
    "19": "Files",
    "2": "Analysis",
    "3": "Planning",
    "4": "Lowering",
    "5": "Running",
    "6": "Capture",
    "9": "Tessera itself",
}

_EXIT_CODES = """## Exit codes

| code | meaning |
|---|---|
| 0 | fine; there may be warnings |
| 1 | errors in the input, or warnings under `--strict` |
| 2 | wrong usage |
| 3 | no feasible plan |
| 4 | hardware or driver missing |
| 5 | verification found a mismatch |
| 6 | a fault or a time-out while running |
| 70 | a defect of Tessera, `error[TSR9000]` |
| 130 | interrupted |
"""


def cli_page() -> str:
    """`cli.md`: the help of every command."""
    sections = [_help(cli.cli, "tessc")]
    for name, command in cli.cli.commands.items():
        sections.append(_help(command, f"tessc {name}"))
        below = command.commands if isinstance(command, click.Group) else {}
        sections += [_help(part, f"tessc {name} {own}") for own, part in below.items()]
    note = "Made from the program's own help by `pytest tests/docs --update-golden`."
    return "\n".join(["# Command line\n", f"{note}\n", *sections, _EXIT_CODES])


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, **cli.CONTEXT, terminal_width=90)
    return f"## {name}\n\n```\n{command.get_help(context)}\n```\n"


def codes_page() -> str:
    """`codes.md`: the table of codes, by group."""
    lines = [
        "# Diagnostic codes\n",
        "`tessc explain CODE` shows the page of one. Made from the table by "
        "`pytest tests/docs --update-golden`.",
    ]
    group = ""
    for entry in codes.CODES:
        if (found := _group(entry.code)) != group:
            group = found
            lines.append(f"\n## {group}\n\n| code | severity | meaning |\n|---|---|---|")
        page = f"../../tessera/explain/{entry.code}.md"
        lines.append(f"| [{entry.code}]({page}) | {entry.severity.value} | {entry.title} |")
    return "\n".join(lines) + "\n"


def _group(code: str) -> str:
    number = code.removeprefix("TSR")
    return next(_GROUPS[n] for n in (number[:2], number[:1]) if n in _GROUPS)


_OPERATORS = """# The table of operators

What an `op` record of a [trace](trace-format.md) may call: pure functions of tensors under
PyTorch's names. An operator that is not here is an error (TSR1164), and so is a call whose tensors,
types, shapes or attributes do not fit its entry (TSR1164). Made from the table
(`tessera/ir/operators`) by `pytest tests/docs --update-golden`.

- Operands stand in the order of `reads` and `writes`. `?` marks one that may be missing: leave it
out at the end, or give the attribute of its name as null. `=1` marks one that a number can stand
for, as the attribute of its name. `...` is a list.
- `.out` forms, and in-place forms whose names end in `_`, have the same operands. What is changed
in place is both read and written; `-` marks operands that are listed but not read.
- `@` marks an operand of which only the elements that indices choose are read or written: the
access analysis says "indexed", not "all of it".
- Attributes have PyTorch's names and defaults; `*` marks one that must be given, and null is the
default. `device`, `layout`, `memory_format`, `non_blocking`, `pin_memory` and `implicit` are
ignored.
- `indices_at` says which dimensions `indices` are for where they are not the first ones: `x[:, i]`
has `"indices_at": [1]`.
- Random functions, views and operators with results of unknown size have no entry.
- Operators under `tessera::` are none of PyTorch's: each stands for several of them, or for one
that has no entry. They are analysed, priced and planned, and nothing runs them (TSR5001).

On the CPU, sums and products of matrices are done in float64 by rising k, elementwise arithmetic in
float32 (float64 for `f64`), other functions in float64; every result is rounded once more, to its
type. The order is fixed and BLAS is not used, so the same call gives the same bytes on every
machine. Complex numbers are only moved (TSR5001).

The last column says by which dimensions a plan can cut a call into parts: calls of the same
operator on ranges of its operands. `rows`, `columns`, `batch`, `channels`, `sequences`, `heads` and
`queries` are names of axes; other dimensions are `d0`, `d1` and so on, counted in the first result.
Operands that broadcast or have no such dimension are whole in every part. Heads are cut with the
keys and values that they share, channels with their groups. A call cannot be cut if a result shares
bytes with another operand, unless both are one tensor. Each element of a part is computed as in
the whole call, so on the CPU the bytes are the same. On a GPU, a library may choose another kernel
for a smaller call and round differently; the reference is the plan's own calls on one device.
"""


def operators_page() -> str:
    """`operators.md`: the table of operators, one row per function."""
    lines = [
        _OPERATORS,
        "| operators | reads | writes | attributes | work | cut by |",
        "|---|---|---|---|---|---|",
    ]
    rows: dict[tuple[str, str, str, str, str], list[str]] = {}
    for entry in operators.table().values():
        reads = ", ".join(map(_operand, entry.reads)) or "nothing"
        writes = ", ".join(map(_operand, entry.writes))
        attributes = ", ".join(map(_attribute, entry.attributes))
        work = entry.work.__name__.replace("_", " ")
        key = (reads, writes, attributes, work, rule_of(entry).says)
        rows.setdefault(key, []).append(entry.name.removeprefix("aten::"))
    for (reads, writes, attributes, work, cuts), names in rows.items():
        listed = " ".join(f"`{name}`" for name in names)
        lines.append(f"| {listed} | {reads} | {writes} | {attributes} | {work} | {cuts} |")
    return "\n".join(lines) + "\n"


def _operand(spec: OperandSpec) -> str:
    marks = {
        "@": spec.reach is Reach.INDEXED,
        "-": spec.reach is Reach.NONE,
        "?": spec.is_optional,
        "=1": spec.or_number,
        "...": spec.is_list,
    }
    return f"`{spec.name}`" + "".join(mark for mark, is_on in marks.items() if is_on)


def _attribute(spec: AttributeSpec) -> str:
    if spec.is_required:
        return f"`{spec.name}`\\*"
    return f"`{spec.name}`={json.dumps(spec.default)}"
