"""How long a plan may take on the CPU backend, roughly and at least.

In: an open plan and its requests. Out: seconds. Every instruction of a launch costs a fixed time
per group of threads and a little per thread, as measured on one core (`benchmarks/cpu.py`); loops
count once, so a kernel with long loops takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera.ir import ptx
from tessera.ir.program import Launch, Program
from tessera.running.open_plan import OpenPlan
from tessera.running.schedule import Turn

_CALL_S = 6e-6
_THREAD_S = 8e-9
_CHUNK_THREADS = 1 << 16
_STEP_S = 5e-4


def cpu_seconds(opened: OpenPlan, turns: Sequence[Turn]) -> float:
    """Seconds for all requests, one device after the other."""
    each = [_trace_seconds(program) for program in opened.programs]
    return sum(each[turn.trace] for turn in turns)


def _trace_seconds(program: Program) -> float:
    return sum(_launch_seconds(program, step) for step in program.launches())


def _launch_seconds(program: Program, step: Launch) -> float:
    threads = prod(step.grid) * prod(step.block)
    chunks = -(-threads // _CHUNK_THREADS)
    instructions = _instructions(program.modules[step.module].variants[0].ptx, step.kernel)
    return _STEP_S + instructions * (chunks * _CALL_S + threads * _THREAD_S)


def _instructions(module: ptx.Module, kernel: str) -> int:
    return sum(
        isinstance(statement, ptx.Instruction)
        for function in module.kernels()
        if function.name == kernel and function.body is not None
        for statement in ptx.walk_statements(function.body)
    )
