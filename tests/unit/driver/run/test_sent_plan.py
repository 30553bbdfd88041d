"""A plan that goes to another host: as text, with what decides its accesses, and proved there."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tessera.backend.hosts.messages import PlanPart
from tessera.backend.service import Model
from tessera.diagnostics import TesseraError
from tessera.driver.hosts.sent_plan import SentPlan, received_model
from tessera.driver.run.open_plan import OpenPlan, open_plan
from tessera.ir.plan.hosts import HostEntry
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.plan_files import plan_of
from tests.helpers.random_traces import random_program
from tests.helpers.served import graph_of, model_of, served
from tests.property.test_known_contents import TABLE, knowing, program


def sent(opened: OpenPlan, model: Model) -> tuple[PlanPart, str, list]:
    model = replace(model, lowered=opened.plan.replicas[0].lowered)
    part, parts = SentPlan(
        opened.plan, opened.programs, opened.graphs, model.weights, {"a": HostEntry(name="x")}
    ).describe(model, "a")
    return part, "x", parts


def test_what_arrives_is_what_was_sent() -> None:
    given = random_program(12, steps=8)
    placement = ["ab"[n % 2] for n in range(len(given.steps))]
    opened = open_plan(plan_of([given], [placement], hosts={"a": "x", "b": "y"}))
    model = model_of([given], [placement], lanes=2)
    arrived = received_model(*sent(opened, model))
    assert arrived.lowered == opened.plan.replicas[0].lowered
    for mine, theirs in ((model.weights, arrived.weights), (model.states[1], arrived.states[1])):
        assert mine.keys() == theirs.keys()
        assert all((mine[name] == theirs[name]).all() for name in mine)


def test_an_edited_plan_is_refused_there() -> None:
    given = random_program(12, steps=8)
    placement = ["ab"[n % 2] for n in range(len(given.steps))]
    opened = open_plan(plan_of([given], [placement], hosts={"a": "x", "b": "y"}))
    part, host, parts = sent(opened, model_of([given], [placement], lanes=2))
    text = parts[0].tobytes().decode()
    line = next(line for line in text.splitlines() if line.strip().startswith("in credit"))
    edited = text.replace(line + "\n", "", 1)
    parts[0] = np.frombuffer(edited.encode(), np.uint8)
    with pytest.raises(TesseraError, match="TSR4017"):
        received_model(part, host, parts)


def test_contents_that_decide_accesses_go_along() -> None:
    content = TABLE.view(np.uint8)
    given = knowing(program(), content.tobytes())
    graph = graph_of(given)
    assert graph.contents
    plan = plan_of([given], [["a"]])
    lowered = lower_replica([given], [graph], [["a"]], slots=2, lanes=2)
    (replica,) = plan.replicas
    plan = replace(plan, replicas=(replace(replica, lowered=lowered),))
    opened = OpenPlan(
        name="plan",
        folders=(".",),
        plan=plan,
        programs=(given,),
        runnable=(given,),
        graphs=(graph,),
        replicas=plan.replicas,
        policies=(("",),),
        ways={},
        diagnostics=(),
    )
    model = Model(
        lowered=lowered,
        traces=(served(given),),
        weights={"table": content},
        states=[{}, {}],
        fillings=[{}],
    )
    part, host, parts = sent(opened, model)
    assert received_model(part, host, parts).lowered == lowered
    without = msgspec.structs.replace(part, known=())
    with pytest.raises(TesseraError):
        received_model(without, host, [parts[0], *parts[2:]])
