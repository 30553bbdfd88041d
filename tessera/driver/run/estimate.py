"""How long a plan may take on the CPU backend, roughly.

In: an open plan and its requests. Out: seconds, if the devices worked one after the other. Every
instruction that a thread goes through costs a call per chunk of threads and a little per thread,
and every operation of a matrix instruction a little more; the constants are from runs of the
example traces on one core, which they meet to within a factor of two. Loops count as often as
they run, where their bounds do not come from memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.driver.run.open_plan import OpenPlan
from tessera.driver.run.schedule import Turn
from tessera.ir.program.program import Launch, Program
from tessera.planning.prices.count_work import count_work

_STEP_S = 5e-4
_CALL_S = 25e-6
_THREAD_S = 2.5e-9
_MATRIX_S = 2.5e-9
_CHUNK_THREADS = 1 << 16
_PLAIN_UNITS = frozenset(("fp32", "fp64", "int", "special"))


def cpu_seconds(opened: OpenPlan, turns: Sequence[Turn]) -> float:
    """Seconds for all requests."""
    each = [_trace_seconds(program) for program in opened.programs]
    return sum(each[turn.trace] for turn in turns)


def _trace_seconds(program: Program) -> float:
    return sum(_launch_seconds(program, step) for step in program.launches())


def _launch_seconds(program: Program, step: Launch) -> float:
    work = count_work(program.modules[step.module].variants[0].ptx, step)
    if work is None:
        return _STEP_S
    chunks = -(-work.threads // _CHUNK_THREADS)
    matrix = sum(count for unit, count in work.units if unit not in _PLAIN_UNITS)
    per_thread = work.instructions * _THREAD_S + matrix * _MATRIX_S
    return _STEP_S + work.chain * chunks * _CALL_S + per_thread
