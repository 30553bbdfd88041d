"""How a report was made: its files with digests, versions, machine, options, command.

In: `Given`. Out: a `PageSection`. It names no time and no host: the same files give the same page.
"""

from __future__ import annotations

from tessera.ir.plan.plan_digest import plan_digest
from tessera.ir.version import __version__
from tessera.report.page.given import Given
from tessera.report.page.model import SCHEMA, PageSection


def made_section(given: Given) -> PageSection:
    """The last section. Files of a page that was read back come first."""
    files: list[object] = []
    if given.page is not None and (before := given.page.section("made")) is not None:
        known = before.data.get("files")
        files += known if isinstance(known, list) else []
    files += [
        {"name": file.name, "holds": file.holds, "bytes": file.bytes, "sha256": file.sha256}
        for file in given.files
    ]
    facts: list[list[str]] = [["Made by", f"tessc {__version__}"], ["Format", SCHEMA]]
    if given.command:
        facts.append(["Command", given.command])
    if given.plan is not None:
        facts += [
            ["Options of the plan", given.plan.options],
            ["Digest of the plan", plan_digest(given.plan)],
            ["Digest of the machine", given.plan.machine_digest],
        ]
    facts += [
        [f"Digest of the trace {trace.name}", trace.digest]
        for trace in given.traces
        if trace.digest
    ]
    data = {"facts": facts, "files": files}
    return PageSection(kind="made", id="made", title="How it was made", data=data)
