"""The round trip of one PTX text: parse, print, parse again, assemble both, compare the code.

Out: `Trip`, which names the first stage that failed. Laws checked: `parse(print(m)) == m`;
printing is stable; ptxas accepts the printed text with the options that the original needed;
both give the same machine code (`helpers.cubin` says which sections count).
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.diagnostics import TesseraError, summarise
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx.print_ptx import print_module
from tests.helpers.cubin import differences
from tests.helpers.ptxas import Assembly, assemble

RUNS = 12


@dataclass(frozen=True, slots=True)
class Trip:
    """How far a text came: `stage` is `ok`, or the step that failed with what it said."""

    stage: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether every step held."""
        return self.stage == "ok"


def check_text(
    text: str, name: str, *, with_ptxas: bool = True, extra: tuple[str, ...] = ()
) -> Trip:
    """Take one text through the round trip; `extra` are options that ptxas gets both times."""
    try:
        module = parse_module(text, name)
    except TesseraError as failure:
        return Trip("parse", _first(failure))
    printed = print_module(module)
    try:
        again = parse_module(printed, f"{name} (printed)")
    except TesseraError as failure:
        return Trip("parse printed", _first(failure))
    if again != module:
        return Trip("equal", f"{name}: the printed text parses to another module")
    if print_module(again) != printed:
        return Trip("stable", f"{name}: printing twice gives different text")
    return _assemble_both(text, printed, extra) if with_ptxas else Trip("ok")


def _assemble_both(text: str, printed: str, extra: tuple[str, ...]) -> Trip:
    original = _assembled(text, extra)
    if original.cubin is None:
        return Trip("refused", original.output.strip())
    copy = assemble(printed, original.options, executable=original.executable)
    if copy.cubin is None:
        return Trip("ptxas", copy.output.strip())
    different = differences(original.cubin, copy.cubin)
    if different and not _same_in_some_run(text, printed, original):
        return Trip("code", ", ".join(different))
    return Trip("ok")


def _assembled(text: str, extra: tuple[str, ...]) -> Assembly:
    plain = assemble(text, extra) if extra else assemble(text)
    return plain if plain.accepted or not extra else assemble(text, (*extra, "--compile-only"))


def _same_in_some_run(text: str, printed: str, judged: Assembly) -> bool:
    """Whether some run of ptxas gives both texts the same code.

    ptxas is not a function of its input: for a few large kernels it picks one of several
    schedules by the addresses of its own data, and the same file gives different code from run
    to run. Two texts that mean the same draw from the same schedules.
    """
    originals: list[bytes] = []
    copies: list[bytes] = []
    for _ in range(RUNS):
        for sample, made in ((text, originals), (printed, copies)):
            again = assemble(sample, judged.options, executable=judged.executable)
            made += filter(None, [again.cubin])
        if any(not differences(one, other) for one in originals for other in copies):
            return True
    return False


def _first(failure: TesseraError) -> str:
    return summarise(failure.diagnostics[0]) if failure.diagnostics else "no diagnostics"
