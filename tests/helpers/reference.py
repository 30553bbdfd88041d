"""The pages of `docs/reference` that are made from the program itself."""

from __future__ import annotations

import click

from tessera import cli, codes

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
    sections += [_help(command, f"tessc {name}") for name, command in cli.cli.commands.items()]
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
