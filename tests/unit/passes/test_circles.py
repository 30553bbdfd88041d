"""The proof that requests in flight end, against an execution of the hardware queues."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.process_ways import ProcessWays
from tessera.ir.plan.one_host import on_one_host
from tessera.ir.plan.stream_operation import StreamOperation
from tessera.passes.checker.circles import check_circles
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.share import least
from tests.unit.backend.cuda.test_random_placements import random_model

Orders = Mapping[str, Sequence[StreamOperation]]
Submitted = Mapping[str, Sequence[int]]


def ends(orders: Orders, submitted: Submitted, queues: int, rng: random.Random) -> bool:
    """Do what stands first on any queue and can be done, until nothing can.

    Streams are spread over the queues by chance; if there are enough, each has its own.
    """
    lines: dict[object, list[tuple[int, StreamOperation]]] = {}
    for process, requests in submitted.items():
        places = [(r, s) for r in requests for s in {o.stream: None for o in orders[process]}]
        has_own = len(places) <= queues
        queue_of = {p: n if has_own else rng.randrange(queues) for n, p in enumerate(places)}
        for request in requests:
            for operation in orders[process]:
                queue = queue_of[request, operation.stream]
                lines.setdefault((process, queue), []).append((request, operation))
    done: set[tuple[int, str]] = set()
    while lines:
        ready = [
            queue
            for queue, ((request, operation), *_) in lines.items()
            if not operation.waits or (request, operation.waits) in done
        ]
        if not ready:
            return False
        queue = rng.choice(ready)
        request, operation = lines[queue].pop(0)
        done.add((request, operation.sets))
        if not lines[queue]:
            del lines[queue]
    return True


def swapped(orders: Orders, rng: random.Random) -> Orders:
    """Two operations of one process change places."""
    process = rng.choice([name for name, own in orders.items() if len(own) > 1])
    own = list(orders[process])
    first, second = rng.sample(range(len(own)), 2)
    own[first], own[second] = own[second], own[first]
    return {**orders, process: own}


def random_orders(seed: int) -> Orders:
    model = random_model(seed)
    lowered = on_one_host(model.lowered)
    ways = ProcessWays(Driver(FakeCuda()), lowered, lowered.devices[0], {})
    return ways.stream_operations(0)


def test_every_order_of_the_backend_ends_and_mutants_are_judged_right() -> None:
    rng = random.Random(5)
    seen: Counter[tuple[int, bool]] = Counter()
    for seed in range(least(20, 6)):
        orders = random_orders(seed)
        requests = range(rng.randint(1, 3))
        submitted = dict.fromkeys(orders, requests)
        assert check_circles(orders, submitted) is None
        if not any(len(own) > 1 for own in orders.values()):
            continue
        for _ in range(30):
            mutant = swapped(orders, rng)
            mixed = {name: rng.sample(requests, len(requests)) for name in orders}
            for given in (submitted, mixed):
                for queues in (1, 1000):
                    judged = check_circles(mutant, given, queues=queues) is None
                    assert judged == ends(mutant, given, queues, rng), (seed, queues)
                    seen[queues, judged] += 1
                if check_circles(mutant, given) is None:  # however streams share queues
                    assert all(ends(mutant, given, 1 + rng.randrange(4), rng) for _ in range(3))
    assert min(seen.values()) > least(20, 4), seen
    assert len(seen) == 4


def test_the_circle_is_named() -> None:
    """Each process receives before it sends: the words of both come behind the waits."""
    orders = {
        name: [
            StreamOperation("in", waits=f"transfer {own}"),
            StreamOperation("out", sets=f"transfer {to}"),
        ]
        for name, own, to in (("a", 0, 1), ("b", 1, 0))
    }
    found = check_circles(orders, {"a": (0,), "b": (0,)})
    assert found is not None
    assert found.code == "TSR4008"
    assert str(found.headline) == "requests in flight wait for each other in a circle of 4"
    assert found.notes[0] == "request 0, `a`, in: waits for transfer 0"
    assert check_circles(orders, {"a": (0,), "b": (0,)}, queues=2) is None
    only = check_circles({"a": orders["a"]}, {"a": (0,)}, queues=2)
    assert only is not None
    assert "nothing ends a wait: request 0, `a`, in: waits for transfer 0" in str(only.headline)


def test_requests_that_are_submitted_in_another_order_can_wait_for_each_other() -> None:
    orders = {
        "a": [StreamOperation("out", sets="transfer 0")],
        "b": [StreamOperation("in", waits="transfer 0")],
    }
    orders["a"].append(StreamOperation("in", waits="transfer 1"))
    orders["b"].append(StreamOperation("out", sets="transfer 1"))
    assert check_circles(orders, {"a": (0, 1, 2), "b": (0, 1, 2)}) is None
    assert check_circles(orders, {"a": (0, 1, 2), "b": (0, 2, 1)}) is not None
