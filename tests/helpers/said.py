"""All that is said of code and of programs, as text: to notice what is said otherwise than before.

In: a kind of cases and a seed, or a module, or a program. Out: lines; `python -m tests.helpers.said
KIND SEED` prints them. What other tests hold against logs and interpreters is right
as far as those go; this also has what only widens, and the facts that seldom decide anything.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

from tessera.diagnostics import Diagnostic, Span, TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.print_graph import print_graph
from tessera.ir.program.program import Program
from tessera.ir.ptx import syntax as ptx
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.footprint import footprint, machine
from tessera.passes.kernel_facts.base_words import base_words, stored_words
from tessera.passes.kernel_facts.describe_kernel import describe_kernel
from tessera.passes.kernel_facts.fragment_layout import _FragmentWalk
from tessera.passes.kernel_facts.kernel_code import KernelCode, prepare_kernel
from tessera.passes.kernel_facts.own_reads import loads_of
from tessera.passes.kernel_facts.summarise_program import summarise_module
from tessera.passes.kernel_facts.unneeded_parameters import unneeded_parameters
from tests.helpers.generated_works import KINDS
from tests.helpers.loop_programs import LoopProgram
from tests.helpers.said_of_plans import said_of_plan
from tests.helpers.said_of_runs import said_of_run
from tests.helpers.said_of_values import said_of_values
from tests.helpers.soup_kernels import soup_kernel, soup_trace
from tests.helpers.soup_sequences import soup_sequence
from tests.property.test_soundness_generated import program_of


def said_of_code(module: ptx.Module) -> Iterator[str]:
    """What is said of the kernels of a module, whatever the launch."""
    yield str(summarise_module(module))
    for function in module.functions():
        if function.is_entry and function.body is not None:
            words = base_words(module, function)
            yield f"bases {[(n, w if w is None else sorted(w)) for n, w in words.items()]}"
            for instruction, stored in stored_words(module, function):
                yield f"stores {instruction.at} {sorted(map(str, stored))}"
            code = prepare_kernel(module, function)
            yield from _said_of_kernel(code)
            yield f"unneeded {sorted(unneeded_parameters(code))}"
            for load in loads_of(code):
                given = load.parameters if load.parameters is None else sorted(load.parameters)
                yield f"load {load.text} of {given}{' own' * load.is_own}"
            yield from describe_kernel(code)
            yield f"layouts {_FragmentWalk(code.flat).uses()}"


def _said_of_kernel(code: KernelCode) -> Iterator[str]:
    for number, (block, meets) in enumerate(zip(code.blocks, code.meets, strict=True)):
        live = [name for name in code.live.numbers if code.live.is_live(number, name)]
        steps = [(step.index, *step.targets) for step in block]
        yield f"block {number} to {meets}: {steps}; live {sorted(live)}"
    ends = sorted((index, sorted(names)) for index, names in code.live.ends.items())
    yield f"ends {ends}, doomed {sorted(code.doomed)}"
    yield f"needed {sorted(code.needed)}, valued {sorted(code.valued_parameters)}"
    yield f"needs {[(need.kind.value, need.index, str(need.reason)) for need in code.needs]}"
    yield f"calls {sorted(code.calls.quiet)} {sorted(code.calls.bounded)} {code.calls.may_exit}"
    yield f"writers {sorted(code.shared_writes)}"
    for index, bits in sorted(code.hidden.results.items()):
        words = [w for n, w in enumerate(code.hidden.words) if bits >> n + 2 & 1]
        yield f"hides {index}: {bits & 3} {sorted(words)}"
    if (use := code.shared) is not None and code.unfollowed is not None:
        yield f"shared {sorted(use.steps)} {sorted(use.loads)} {sorted(use.opaque)}"
        yield f"shared {sorted(use.variables.items())} {use.is_plain} {use.has_addresses}"
        yield from _said_of_kernel(code.unfollowed)


def said_of_program(program: Program) -> Iterator[str]:
    """The steps of a program with their findings, and its graph."""
    manager = AnalysisManager(program)
    regions, found = manager.get(AccessRegions), manager.get(Dependences)
    for step in regions.steps:
        yield f"coarse {step.is_coarse} pattern {step.pattern}"
        yield f"pins {[(one.kind.value, str(one.reason), _at(one.span)) for one in step.pins]}"
        yield f"needs {[(need.kind.value, str(need.reason)) for need in step.needs]}"
        yield from map(_text_of_finding, step.diagnostics)
        yield f"at {[_at(access.span) for access in step.accesses]}"
    yield f"wanted {regions.wanted} looked up {[one.buffer for one in regions.contents]}"
    yield from map(_text_of_finding, found.diagnostics)
    yield from print_graph(found.graph).splitlines()


def _at(span: Span | None) -> str:
    return "-" if span is None else f"{span.start}:{span.end}"


def _text_of_finding(one: Diagnostic) -> str:
    labels = [
        (_at(label.span), str(label.text)) for label in (one.primary, *one.secondary) if label
    ]
    notes = [*map(str, one.notes)]
    return f"{one.code} {one.severity.name} {one.headline} {labels} {notes} {one.hint}"


def _soup(seed: int) -> Iterator[str]:
    return said_of_code(parse_module(soup_kernel(seed), "k.ptx"))


def _of_trace(make: Callable[[int], str]) -> Callable[[int], Iterator[str]]:
    return lambda seed: said_of_program(parse_trace(make(seed), "k.ptx"))


def _in_pieces(
    make: Callable[[int], Iterator[str]],
) -> Callable[[int], Iterator[str]]:
    """What is said if grids are followed in pieces, however small they are."""

    def said_in_pieces(seed: int) -> Iterator[str]:
        find = footprint.find_footprint
        with (
            patch.object(footprint, "find_footprint", partial(find, few_threads=0)),
            patch.object(machine, "BETWEEN", -1 << 62),
        ):
            yield from make(seed)

    return said_in_pieces


def _of_work(kind: str) -> Callable[[int], Iterator[str]]:
    return lambda seed: said_of_program(KINDS[kind](seed)[0])


SAID: dict[str, Callable[[int], Iterator[str]]] = {
    "code": _soup,
    "values": said_of_values,
    "runs": said_of_run,
    "plans": said_of_plan,
    "soup": _of_trace(soup_trace),
    "sequence": lambda seed: said_of_program(soup_sequence(seed)),
    "loop": lambda seed: said_of_program(program_of(LoopProgram(seed).kernel())),
    **{kind: _of_work(kind) for kind in KINDS},
    "piece": _in_pieces(_of_work("grid")),
    "crumb": _in_pieces(_of_trace(soup_trace)),
}


def said(kind: str, seed: int) -> str:
    """What is said of one case; of what cannot be read, why."""
    try:
        return "\n".join(SAID[kind](seed))
    except TesseraError as error:
        return str(error)


def digest(kind: str, seed: int) -> str:
    """A digest of what is said of one case."""
    return hashlib.sha256(said(kind, seed).encode()).hexdigest()[:6]


if __name__ == "__main__":
    sys.stdout.write(said(sys.argv[1], int(sys.argv[2])) + "\n")
