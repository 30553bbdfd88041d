"""The policies of a plan: the replicas that a run uses.

In: a plan, and a policy or `adaptive`. Out: replicas, each with the policies that it serves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.diagnostics import TesseraError
from tessera.ir.choices import ADAPTIVE
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.program.program import Program, Role

ServedReplicas = tuple[tuple[Replica, ...], tuple[tuple[str, ...], ...]]
"""Replicas, and the policies of each."""


def policies_of(plan: Plan) -> list[str]:
    """Names of the policies, in the order of the plan; one empty name if there are none."""
    return list(dict.fromkeys(replica.policy for replica in plan.replicas))


def refuse_adaptive(policy: str | None) -> None:
    """Refuse `adaptive` for requests that are not for text: only prompts get their own policy."""
    if policy == ADAPTIVE:
        raise TesseraError.of(
            "TSR5053",
            f"`{ADAPTIVE}` is for requests for text",
            hint="name a policy of the plan, or use `tessc serve`, `tessc bench` or "
            "`tessc simulate --steps`",
        )


def served_by(plan: Plan, policy: str | None) -> ServedReplicas | None:
    """The replicas of a policy, by default of the last policy; None if the plan lacks the policy.

    With `adaptive`, the replicas of all policies. A replica that places every step like a replica
    of a later policy is omitted: the later replica serves both.
    """
    known = policies_of(plan)
    if policy == ADAPTIVE and len(known) > 1:
        return _all(plan)
    wanted = known[-1] if policy in (None, ADAPTIVE) and known else policy
    chosen = tuple(replica for replica in plan.replicas if replica.policy == wanted)
    return (chosen, tuple((replica.policy,) for replica in chosen)) if chosen else None


def are_alike(first: Replica, second: Replica, programs: Sequence[Program]) -> bool:
    """Whether all states of two replicas are on the same devices, byte by byte."""
    return _homes(first, programs) == _homes(second, programs)


def _homes(replica: Replica, programs: Sequence[Program]) -> set[tuple[str, str, object]]:
    return {
        (programs[home.trace].buffers[home.buffer].name, home.device, home.bytes)
        for home in replica.lowered.homes
        if programs[home.trace].buffers[home.buffer].role is Role.STATE
    }


def _all(plan: Plan) -> ServedReplicas:
    kept: list[Replica] = []
    names: list[tuple[str, ...]] = []
    for replica in reversed(plan.replicas):
        for number, other in enumerate(kept):
            if replica.policy not in names[number] and is_placed_as(other, replica):
                names[number] = (replica.policy, *names[number])
                break
        else:
            kept.append(replica)
            names.append((replica.policy,))
    return tuple(reversed(kept)), tuple(reversed(names))


def is_placed_as(first: Replica, second: Replica) -> bool:
    """Whether two replicas have every step on the same device, in the same variant."""
    return _placement(first) == _placement(second)


def _placement(replica: Replica) -> object:
    return [
        (placed.trace, [(step.step, step.device, step.arch) for step in placed.steps])
        for placed in replica.traces
    ]
