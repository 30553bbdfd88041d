"""What a run and a runtime begin with: the plan and its contents, as their options say.

In: a plan and `ServingOptions`. Out: an `OpenPlan` and its `Materials`.
"""

from __future__ import annotations

import os

from tessera.backend.known_backends import BackendName
from tessera.driver.run.materials import Materials, read_materials
from tessera.driver.run.open_plan import OpenPlan, open_plan
from tessera.driver.run.options import ServingOptions
from tessera.ir.plan.plan import Plan
from tessera.ir.progress import Count, OnProgress


def open_served(
    given: Plan | str | os.PathLike[str],
    options: ServingOptions,
    on_progress: OnProgress | None = None,
) -> OpenPlan:
    """The plan that a run or a runtime is asked for."""
    return open_plan(
        given,
        slots=options.slots,
        sequences=options.sequences,
        policy=options.policy,
        data=options.data,
        data_root=options.data_root,
        weights=options.weights,
        hosts=options.read_hosts(),
        on_progress=on_progress,
    )


def served_materials(
    opened: OpenPlan,
    options: ServingOptions,
    backend: BackendName,
    inputs: str | None = None,
    count: Count = lambda done, total: None,
) -> Materials:
    """What a run or a runtime starts from, by its options."""
    return read_materials(
        opened,
        sequences=sum(replica.lowered.lanes for replica in opened.replicas),
        seed=options.seed,
        data=options.data,
        inputs=inputs,
        data_root=options.data_root,
        weights=options.weights,
        on_host=backend == BackendName.CPU,
        count=count,
    )
