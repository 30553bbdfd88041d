"""What starts an answer of `tessc fleet`: for the report, as JSON, and as the page beside it.

In: an `EmittedFleet`. Out: lines of text, a value for JSON, and Markdown (`README.md`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.driver.fleet.emit.commands import WRITTEN_BY, EmittedFleet, StartCommand
from tessera.driver.fleet.make_fleet import FleetReport


def start_lines(emitted: EmittedFleet, folder: str) -> Iterator[str]:
    """The steps, and a command of each sort."""
    yield f"start it with {', '.join(emitted.versions)}, in {folder}:"
    yield from (f"  {step}" for step in emitted.steps)
    for first, count in _sorts(emitted):
        yield _named(first, count)
        yield from first.text("  ").splitlines()


def _named(command: StartCommand, count: int) -> str:
    return f"{command.name}: {command.what}" + (f", {count} of them" if count > 1 else "")


def _sorts(emitted: EmittedFleet) -> Iterator[tuple[StartCommand, int]]:
    """The first command of each sort, and how many there are."""
    sorts: dict[tuple[object, ...], list[StartCommand]] = {}
    for command in emitted.commands:
        # Engines that are alike differ in their place alone.
        key = command.what, len(command.argv), command.name.partition("_node_")[2]
        sorts.setdefault(key, []).append(command)
    for own in sorts.values():
        yield own[0], sum(command.count for command in own)


def start_json(emitted: EmittedFleet) -> dict[str, object]:
    """The commands for programs."""
    return {
        "system": emitted.system,
        "versions": list(emitted.versions),
        "files": [name for name, _ in emitted.files],
        "steps": list(emitted.steps),
        "hosts": dict(emitted.hosts),
        "notes": list(emitted.notes),
        "commands": [
            {
                "name": command.name,
                "what": command.what,
                "host": command.host or None,
                "count": command.count,
                "env": dict(command.env),
                "argv": list(command.argv),
            }
            for command in emitted.commands
        ],
    }


def start_page(report: FleetReport, emitted: EmittedFleet) -> str:
    """The page beside the files: the answer, the steps, a command of each sort."""
    work = report.work
    lines = [
        f"<!-- {WRITTEN_BY} -->",
        f"# A fleet for {', '.join(emitted.versions)}",
        "",
        f"For {report.served:.4g} requests/s, prompts of {work.prompt:.0f} tokens and answers of "
        f"{work.answer:.0f}, {work.longest} tokens at most.",
        "",
        *(f"- {line}" for line in (*report.verdict, *emitted.notes)),
        "",
        "```",
        *emitted.steps,
        "```",
        "",
    ]
    if emitted.hosts:
        lines += [
            "Set the address of each host, and change the numbers of GPUs where your hosts have "
            "others:",
            "",
            "| host | variable | GPUs |",
            "|---|---|---|",
        ]
        for variable, host in emitted.hosts:
            own = [c for c in emitted.commands if c.host == host]
            gpus = "; ".join(f"{dict(c.env)['CUDA_VISIBLE_DEVICES']}: {c.what}" for c in own)
            lines.append(f"| {host} | `{variable}` | {gpus} |")
        lines.append("")
    for first, count in _sorts(emitted):
        lines += [f"## {_named(first, count)}", "", "```", first.text(), "```", ""]
    return "\n".join(lines)
