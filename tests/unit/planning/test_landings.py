"""Puts, waits and credits: what lowering makes, and what the checker refuses."""

from __future__ import annotations

import pytest

from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.graph.region import Interval
from tessera.ir.plan.launch_program import AwaitPut, Credit, LoweredReplica, Put
from tessera.ir.plan.one_host import on_one_host
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.program import Role
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower.lower_plan import lower_replica
from tessera.planning.lower.puts import LANDINGS
from tessera.simulation.blocked import blocked_queues
from tests.helpers.launch_text import lowered
from tests.helpers.plan_cases import build
from tests.helpers.plan_files import plan_of
from tests.helpers.random_traces import random_program
from tests.helpers.served import graph_of

ALL = Interval(0, 64)

# Two temps from a to b, one after the other through one landing.
TWO = build(
    [("s", 64, Role.TEMP), ("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
    [
        [("s", "must", ALL)],
        [("t", "must", ALL)],
        [("s", "read", ALL), ("t", "read", ALL), ("y", "must", ALL)],
    ],
)
TEXT = """
transfer 0 s a b 0:64
transfer 1 t a b 0:64
transfer 2 y b host 0:64
landing 0 a b 64
landing 1 a b 64
place s a 0
place t a 256
place s b 0
place t b 256
place y b 512
a compute: run 0; record 0; run 1; record 1
a out: await 0; put 0 0; await 1; put 1 0
b in: take 0 0; credit 0; take 1 0; credit 0; record 0
b compute: await 0; run 2; record 1
b out: await 1; send 2
"""


def judged(*changes: tuple[str, str]) -> list[tuple[str, str]]:
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    replica = lowered([TWO[0]], text)
    found = check_replica(replica, [TWO[0]], [TWO[1]], [tuple("aab")])
    return [(one.code, str(one.headline)) for one in found]


def test_a_landing_that_two_transfers_share_is_proved() -> None:
    assert judged() == []


def test_landings_of_their_own_are_proved() -> None:
    assert judged(("put 1 0", "put 1 1"), ("take 1 0; credit 0", "take 1 1; credit 1")) == []


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ([("take 0 0; credit 0; ", "take 0 0; ")], "TSR4017", "used again, and was not credited"),
        (
            [("take 1 0; credit 0; ", "take 1 0; ")],
            "TSR4017",
            "landing 0 is not credited after its last use",
        ),
        ([("put 1 0", "put 1 1")], "TSR4017", "put into landing 1 and waited for in landing 0"),
        ([("put 0 0", "put 0 7"), ("take 0 0", "take 0 7")], "TSR4017", "it is not there"),
        (
            [("take 0 0; ", "take 1 0; "), ("; take 1 0;", "; take 0 0;")],
            "TSR4017",
            "another order",
        ),
        ([("take 0 0; credit 0; ", "credit 0; take 0 0; ")], "TSR4017", "before its bytes"),
        ([("take 1 0; credit 0", "take 0 0; credit 0")], "TSR4002", "done twice"),
        ([("landing 0 a b 64", "landing 0 a b 63")], "TSR4017", "it has 63 bytes, and 64 come"),
        ([("landing 0 a b 64", "landing 0 b a 64")], "TSR4001", "credits landing 0"),
        ([("take 1 0; credit 0", "take 1 0; credit 1")], "TSR4017", "landing 0"),
        ([("put 1 0", "send 1")], "TSR4017", "put and awaited at one end"),
        ([("send 2", "put 2 7")], "TSR4017", "put or awaited, and has no landing"),
        ([("landing 1 a b 64", "landing 0 a b 64")], "TSR4001", "is there twice"),
        ([("landing 1 a b 64", "landing 1 a c 64")], "TSR4001", "from `a` to `c`"),
        ([("record 1\na out: await 0; put 0 0; await 1;", "record 1\na out: put 0 0;")], "", ""),
    ],
)
def test_what_is_refused(changes: list[tuple[str, str]], code: str, what: str) -> None:
    found = judged(*changes)
    assert found
    assert not code or any(code == one and what in headline for one, headline in found), found


def test_a_landing_that_is_held_for_ever_is_a_circle() -> None:
    text = TEXT.replace(
        "take 0 0; credit 0; take 1 0; credit 0; record 0",
        "take 0 0; record 0; await 1; credit 0; take 1 0; credit 0; record 2",
    ).replace("b compute: await 0; run 2; record 1", "b compute: await 2; run 2; record 1")
    replica = lowered([TWO[0]], text)
    (found,) = check_replica(replica, [TWO[0]], [TWO[1]], [tuple("aab")])
    assert found.code == "TSR4008"
    blocked = blocked_queues(replica.traces[0], buffered=True)
    assert ("a out", "landing 0") in blocked


PROGRAM = random_program(5, steps=9)
PLACEMENT = ["ab"[n % 2] for n in range(len(list(PROGRAM.work())))]
HOSTS = {"a": "x", "b": "y"}


def between_hosts() -> LoweredReplica:
    return lower_replica([PROGRAM], [graph_of(PROGRAM)], [PLACEMENT], slots=2, lanes=2, hosts=HOSTS)


def test_every_transfer_between_hosts_is_a_put() -> None:
    replica = between_hosts()
    ops = [q.operation for program in replica.traces[0].programs for q in program.operations]
    puts = [op for op in ops if isinstance(op, Put)]
    between = [t for t in replica.traces[0].transfers if "host" not in (t.source, t.target)]
    assert len(puts) == len(between) > 0
    assert {op.transfer for op in ops if isinstance(op, AwaitPut)} == {op.transfer for op in puts}
    assert len([op for op in ops if isinstance(op, Credit)]) == len(puts)
    per_pair = {(one.source, one.target) for one in replica.landings}
    assert len(replica.landings) <= LANDINGS * len(per_pair)


def test_on_one_host_there_is_no_landing() -> None:
    replica = between_hosts()
    assert replica.landings
    plain = on_one_host(replica)
    assert plain.landings == ()
    kinds = {type(q.operation) for p in plain.traces[0].programs for q in p.operations}
    assert not kinds & {Put, AwaitPut, Credit}
    assert check_replica(plain, [PROGRAM], [graph_of(PROGRAM)], [PLACEMENT]) == ()


def test_the_text_of_a_plan_has_landings_in_version_3_only() -> None:
    plan = plan_of([PROGRAM], [PLACEMENT], hosts=HOSTS)
    text = print_plan(plan)
    assert text.startswith("tessera-plan 3\n")
    assert parse_plan(text) == plan
    assert print_plan(parse_plan(text)) == text
    with pytest.raises(Exception, match="has no landings"):
        parse_plan(text.replace("tessera-plan 3", "tessera-plan 2", 1))
    plain = plan_of([PROGRAM], [PLACEMENT])
    assert print_plan(plain).startswith("tessera-plan 2\n")
    as_new = print_plan(plain).replace("tessera-plan 2", "tessera-plan 3", 1)
    assert parse_plan(as_new) == parse_plan(print_plan(plain))
    landing = text[text.index("landing 0") :].splitlines()[0]
    size = landing.partition("bytes=")[2]
    for wrong in (landing.replace(size, "0"), landing.replace("landing 0", "landing 1")):
        with pytest.raises(Exception, match="landing"):
            parse_plan(text.replace(landing, wrong, 1))
