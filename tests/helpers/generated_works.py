"""Works for `region_check` from seeds: kernels and sequences of the generators of the tests.

In: a kind and a seed. Out: the work with the regions of the analysis. The generators stay inside
their buffers; kernels of which threads write the same byte may differ from run to run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from random import Random

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program import program as ir
from tests.helpers.async_programs import PARTS, async_program
from tests.helpers.memory_programs import SIZE, memory_program
from tests.helpers.pointer_programs import random_kernel
from tests.helpers.rare_programs import RareProgram
from tests.helpers.region_check import Work
from tests.helpers.region_work import work_of
from tests.helpers.wild_traces import shared_buffers, wild_trace
from tests.helpers.word_traces import word_trace
from tests.helpers.work_contents import bytes_for
from tests.property.grid_strategies import ALL, GRIDS, GridWriter
from tests.property.kernel_strategies import Kernel, kernel_text
from tests.property.test_pointer_programs import BUFFERS, trace
from tests.property.test_soundness_generated import program_of

Made = tuple[ir.Program, Sequence[str]]


def generated_work(kind: str, seed: int) -> Work:
    """The work of a seed."""
    program, texts = KINDS[kind](seed)
    name = f"{kind} {seed}"
    contents = [bytes_for(f"{name}/{b.name}", b.bytes) for b in program.declared_buffers()]
    return work_of(name, program, texts, contents)


def _of_kernel(kernel: Kernel) -> Made:
    return program_of(kernel), [kernel.text]


def _of_trace(program: ir.Program) -> Made:
    return program, [module.variants[0].text for module in program.modules]


def _kernel(seed: int, *, through_shared: bool = False) -> Made:
    rng = random.Random(f"kernel {seed}")
    text = kernel_text(rng, rng.randint(2, 20), through_shared=through_shared)
    alone = rng.random() < 0.7  # one warp, so that few runs differ
    grid = (1, 1, 1) if alone else rng.choice([(2, 1, 1), (3, 2, 1)])
    block = (32, 1, 1) if alone else rng.choice([(1, 1, 1), (33, 1, 1), (16, 4, 1)])
    scalars = [rng.choice([rng.randrange(41), 2**31, 2**32 - 1, 255]) for _ in range(2)]
    return _of_kernel(Kernel(text, grid, block, (scalars[0], scalars[1]), rng.choice([0, 4, 256])))


def _grid(seed: int) -> Made:
    rng = random.Random(f"grid {seed}")
    writer = GridWriter(rng, inside=True)
    writer.begin()
    for _ in range(rng.randint(2, 12)):
        writer.step(ALL)
    return _of_kernel(writer.kernel(rng.choice(GRIDS), (rng.choice([1, 8, 33]), 1, 1)))


def _pointers(seed: int) -> Made:
    text, given = random_kernel(Random(seed), "k", hides=seed % 4 == 3)
    launch = f"//! launch m.k grid=1,1,1 block=32,1,1 args=[{given}]"
    return _of_trace(parse_trace(trace(BUFFERS, text, [launch]), "k.ptx"))


def _memory(seed: int) -> Made:
    text, threads = memory_program(seed)
    return _of_places(text, threads, 1)


def _hopper(part: str) -> Callable[[int], Made]:
    def made(seed: int) -> Made:
        program = async_program(part, seed)
        maps = [
            ir.ByValue(
                bytes(8) + content[8:],
                (ir.PointerWord(0, ir.Pointer(ir.BufferId(buffer), start)),),
            )
            for content, buffer, start in program.maps
        ]
        return _of_places(program.text, program.threads, program.ctas, *maps)

    return made


def _of_places(text: str, threads: int, ctas: int, *others: ir.Argument) -> Made:
    """A kernel of `x`, `out` and other arguments."""
    module = parse_module(text)
    variable = ir.Buffer(id=ir.BufferId(2), name="m.table", bytes=16, role=ir.Role.VARIABLE)
    program = ir.Program(
        buffers=(
            ir.Buffer(id=ir.BufferId(0), name="x", bytes=SIZE, role=ir.Role.STATE),
            ir.Buffer(id=ir.BufferId(1), name="out", bytes=SIZE, role=ir.Role.STATE),
            variable,
        ),
        modules=(
            ir.ProgramModule(
                ir.ModuleId(0), "m", (ir.ModuleVariant(arch="sm_90a", text=text, ptx=module),)
            ),
        ),
        steps=(
            ir.Launch(
                id=ir.LaunchId(0),
                module=ir.ModuleId(0),
                kernel="k",
                grid=(ctas, 1, 1),
                block=(threads, 1, 1),
                arguments=(
                    ir.Pointer(ir.BufferId(0), 0),
                    ir.Pointer(ir.BufferId(1), 0),
                    *others,
                ),
            ),
        ),
    )
    return program, [text]


def _wild(seed: int) -> Made:
    text = wild_trace(seed, shared_buffers(random.Random(seed)))
    return _of_trace(parse_trace(text, "k.ptx"))


KINDS: dict[str, Callable[[int], Made]] = {
    "memory": _memory,
    **{part: _hopper(part) for part in PARTS},
    "kernel": _kernel,
    "shared": lambda seed: _kernel(seed, through_shared=True),
    "rare": lambda seed: _of_kernel(RareProgram(seed).kernel()),
    "grid": _grid,
    "pointers": _pointers,
    "words": lambda seed: _of_trace(word_trace(seed)),
    "wild": _wild,
}
