"""Certificates of example traces: which launches are in the family, what the checker says of them,
and what it says of corrupted ones. `python -m benchmarks.analysis.certificates` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.program import program as ir
from tests.certificates import family
from tests.certificates.checker import Proof, check
from tests.certificates.corruptions import Log, corruptions
from tests.certificates.producer import certificates
from tests.certificates.ptx_reader import Launch, Refused, read_kernel
from tests.certificates.ptx_reader import read_trace as read_own

TRACES = Path(__file__).parents[2] / "examples" / "traces"
_FILLED = (ir.Role.WEIGHT, ir.Role.INPUT, ir.Role.STATE)


@dataclass
class Proofs:
    """What the checker said of the launches of a trace.

    `outside` has launches that are not in the family, by reason; `refused` the reasons for others,
    by number; `made` the certificates, by number and architecture.
    """

    trace: str
    launches: list[dict[str, Launch]]
    sizes: dict[str, int]
    outside: Counter[str] = field(default_factory=Counter)
    refused: dict[int, str] = field(default_factory=dict)
    made: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    proved: dict[tuple[int, str], Proof] = field(default_factory=dict)


def prove(path: Path) -> Proofs:
    """Make and check the certificates of the launches of a trace that are in the family."""
    return prove_program(path.name, path.read_text(), read_trace(path))


def prove_program(name: str, text: str, program: ir.Program) -> Proofs:
    """The same for the text of a trace, and the program that is read from it."""
    sizes, launches = read_own(text)
    proofs = Proofs(name, launches, sizes)
    inside: dict[int, bool] = {}
    for place, variants in enumerate(launches):
        why = next(filter(None, map(family.why_not, variants.values())), None)
        if why is None:
            kernels = (read_kernel(v.text, v.kernel) for v in variants.values())
            inside[place] = any(kernel.loops for kernel in kernels)
        else:
            proofs.outside[why] += 1
    proofs.made.update(certificates(program, inside))
    for place in inside:
        why = _verdict(proofs, place)
        if why is not None:
            proofs.refused[place] = why
    return proofs


def _verdict(proofs: Proofs, place: int) -> str | None:
    """Why the certificates of a launch are refused; None if they are accepted."""
    made, variants = proofs.made.get(place, {}), proofs.launches[place]
    if made.keys() != variants.keys():
        return "no certificate"
    try:
        for arch, launch in variants.items():
            proofs.proved[place, arch] = check(proofs.sizes, launch, made[arch])
    except Refused as refused:
        return str(refused)
    return None


def logs(path: Path, arch: str | None) -> list[Log]:
    """What the launches of a trace touch on the CPU backend."""
    program = read_trace(path)
    with open_contents(program, path.parent, seed=0) as contents:
        given = {b.name: contents.read(b) for b in program.buffers if b.role in _FILLED}
    touched = {r.id: r.result.accesses for r in run_program(program, given, arch=arch).launches}
    ids = [work.id for work in program.work() if isinstance(work, ir.Launch)]
    return [{e.buffer: (list(e.reads), list(e.writes)) for e in touched[i]} for i in ids]


@dataclass(frozen=True)
class Trial:
    """One corrupted certificate: its kind, whether it is true, and why it was refused."""

    kind: str
    launch: str
    is_true: bool
    refused: str | None


def trials(proofs: Proofs, random: Random) -> Iterator[Trial]:
    """A corruption of each kind for each accepted launch, again and again."""
    first = dict(sorted(proofs.proved, reverse=True))
    archs = {arch for variants in proofs.launches for arch in variants}
    seen = logs(TRACES / proofs.trace, min(archs) if len(archs) > 1 else None)
    while first:
        for place, arch in first.items():
            launch, certificate = proofs.launches[place][arch], proofs.made[place][arch]
            for made in corruptions(certificate, proofs.sizes, seen[place], random):
                refused = None
                parts = ("ranges", "loops")
                try:
                    if all(made.certificate[part] == certificate[part] for part in parts):
                        # What the launch touches is proved already.
                        proofs.proved[place, arch].compare(made.certificate["accesses"])
                    else:
                        check(proofs.sizes, launch, made.certificate)
                except Refused as why:
                    refused = str(why)
                yield Trial(made.kind, f"{proofs.trace} {place}", made.is_true, refused)
