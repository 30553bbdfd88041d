"""What the judge says of a plan with other `free` records, against what the CPU backend does.

A plan that is accepted runs, to the bytes of one device. The backend hides from a launch what the
launch program does not give it, so it stops where a buffer is not there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest

from tessera.backend.processes.inline import InlineBackend
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import (
    Await,
    DeviceEventId,
    Free,
    LoweredReplica,
    Queue,
    Queued,
    Record,
)
from tessera.ir.program.program import BufferId, Program
from tessera.passes.checker.check_plan import check_replica
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, graph_of, model_of, serve
from tests.helpers.share import least, share
from tests.helpers.traces import COPY, trace

Mutant = tuple[str, LoweredReplica]


def free_mutants(replica: LoweredReplica, program: Program) -> Iterator[Mutant]:
    """Each `free` left out, doubled, moved to any place and queue, or of something else; more."""
    (trace,) = replica.traces
    for number, device in enumerate(trace.programs):
        ops = list(device.operations)

        def other(what: str, new: list[Queued], number: int = number) -> Mutant:
            changed = list(trace.programs)
            changed[number] = replace(changed[number], operations=tuple(new))
            return what, replace(replica, traces=(replace(trace, programs=tuple(changed)),))

        frees = [at for at, one in enumerate(ops) if isinstance(one.operation, Free)]
        for at in frees:
            rest = ops[:at] + ops[at + 1 :]
            yield other("drop", rest)
            yield other("double", [*ops[: at + 1], *ops[at:]])
            for queue in Queue:
                if queue is not ops[at].queue:
                    moved = Queued(queue, ops[at].operation)
                    yield other("queue", [*ops[:at], moved, *ops[at + 1 :]])
            for to in range(len(rest) + 1):
                yield other("move", [*rest[:to], ops[at], *rest[to:]])
            for buffer in program.buffers:
                wrong = Queued(ops[at].queue, Free(buffer.id))
                yield other("wrong", [*ops[:at], wrong, *ops[at + 1 :]])
            for also in frees:
                swapped = list(ops)
                swapped[at], swapped[also] = ops[also], ops[at]
                yield other("swap", swapped)
        for order in permutations(Queue):
            # The same queues, written down one after the other.
            yield other("regroup", sorted(ops, key=lambda one: order.index(one.queue)))
        for buffer in program.buffers:
            for to in range(0, len(ops) + 1, 3):
                free = Queued(Queue.COMPUTE, Free(BufferId(buffer.id)))
                yield other("more", [*ops[:to], free, *ops[to:]])


def check_frees(seed: int, counts: Counter[str]) -> None:
    rng = random.Random(seed)
    program = random_program(seed)
    graph: KernelGraph = graph_of(program)
    devices = rng.choice(("a", "ab"))
    placement = [rng.choice(devices) for _ in graph.nodes]
    model = model_of([program], [placement], slots=2, lanes=1, graphs=[graph])
    asks = [Ask(n) for n in range(2)]
    wanted = expected(model, asks)
    assert not check_replica(model.lowered, [program], [graph], [placement])
    for what, mutant in free_mutants(model.lowered, program):
        if mutant == model.lowered:
            continue
        if check_replica(mutant, [program], [graph], [placement]):
            counts[f"{what} refused"] += 1
            continue
        counts[f"{what} accepted"] += 1
        changed = replace(model, lowered=mutant)
        done, states = serve(InlineBackend(changed, seed=seed), changed, asks)
        assert_equal(changed, asks, wanted, done, states)


def test_other_frees() -> None:
    counts: Counter[str] = Counter()
    for seed in share(range(6)):
        check_frees(seed, counts)
    assert counts["drop refused"] >= least(10, 1)
    assert counts["wrong refused"] >= least(100, 10)
    assert not counts["drop accepted"], "lowering frees nothing that need not be freed"
    assert not counts["double accepted"]
    assert counts["regroup accepted"] >= least(20, 2)
    assert not counts["regroup refused"]


@pytest.mark.slow
def test_many_other_frees() -> None:
    counts: Counter[str] = Counter()
    for seed in range(6, 200):
        check_frees(seed, counts)
    assert counts["drop refused"]


def test_a_free_in_another_queue_that_is_written_down_later() -> None:
    """The next tenant waits for it by an event; the order of the file means nothing."""
    buffers = """
    buffer x bytes=64 role=input
    buffer t bytes=64 role=temp
    buffer y bytes=64 role=output
    buffer z bytes=64 role=output
    """
    steps = """
    launch m.copy grid=1,1,1 block=16,1,1 args=[y, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[t, y, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[z, t, u32:16]
    """
    program = trace(buffers, COPY, steps)
    graph = graph_of(program)
    model = model_of([program], [["a"] * 3], slots=2, lanes=1, graphs=[graph])
    (lowered,) = model.lowered.traces
    (device,) = lowered.programs
    ops = list(device.operations)
    at = next(n for n, one in enumerate(ops) if isinstance(one.operation, Free))
    used, freed = DeviceEventId(100), DeviceEventId(101)
    before = Queued(ops[at].queue, Record(used)), Queued(ops[at].queue, Await(freed))
    away = [
        Queued(Queue.OUT, Await(used)),
        Queued(Queue.OUT, ops[at].operation),
        Queued(Queue.OUT, Record(freed)),
    ]
    waits = (n for n, one in enumerate(ops) if isinstance(one.operation, Await))
    out = max(n for n in waits if ops[n].queue is Queue.OUT)
    assert out > at
    changed = replace(
        device, operations=(*ops[:at], *before, *ops[at + 1 : out], *away, *ops[out:])
    )
    mutant = replace(model.lowered, traces=(replace(lowered, programs=(changed,)),))
    assert not check_replica(mutant, [program], [graph], [["a"] * 3])
    other = replace(model, lowered=mutant)
    asks = [Ask(n) for n in range(3)]
    done, states = serve(InlineBackend(other, seed=1), other, asks)
    assert_equal(other, asks, expected(model, asks), done, states)


@pytest.mark.parametrize("bytes_of", [(64, 32), (64, 64)])
def test_a_launch_that_is_given_an_address_and_touches_nothing_there(
    bytes_of: tuple[int, int],
) -> None:
    """`b` shares bytes with `a`, whose step is given both addresses and has to find `a`."""
    first, second = bytes_of
    buffers = f"""
    buffer x bytes=64 role=input
    buffer a bytes={first} role=temp
    buffer b bytes={second} role=temp
    buffer o bytes=64 role=output
    buffer p bytes=64 role=output
    buffer q bytes=64 role=output
    """
    steps = f"""
    launch m.idle grid=1,1,1 block=16,1,1 args=[o, x, u32:16, b]
    launch m.idle grid=1,1,1 block=16,1,1 args=[a, x, u32:{first // 4}, b]
    launch m.copy grid=1,1,1 block=16,1,1 args=[p, a, u32:{first // 4}]
    launch m.copy grid=1,1,1 block=16,1,1 args=[b, x, u32:{second // 4}]
    launch m.copy grid=1,1,1 block=16,1,1 args=[q, b, u32:{second // 4}]
    """
    idle = COPY.replace("copy(", "idle(").replace("u32 n)", "u32 n, .param .u64 extra)")
    program = trace(buffers, COPY + idle, steps)
    model = model_of([program], [["a"] * 5], slots=1, lanes=1)
    places = {int(p.buffer): p.offset for p in model.lowered.places}
    assert places[1] == places[2]
    asks = [Ask(n) for n in range(2)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
