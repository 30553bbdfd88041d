"""What to do, by a plan: the first sentence of its reports.

In: a `Plan`, and its `Doubt` where that is known. Out: one sentence, without a full stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.choices import Ending
from tessera.ir.plan.plan import Plan, Replica
from tessera.planning.promise.doubt import Doubt, Standing
from tessera.report.diagnostics import safe
from tessera.report.role_words import role_words


def advice(plan: Plan, doubt: Doubt | None = None) -> str:
    """What each GPU serves, and whether that is a result or what was asked for."""
    by_policy: dict[str, list[Replica]] = {}
    for replica in plan.replicas:
        by_policy.setdefault(replica.policy, []).append(replica)
    said = "; ".join(
        f"{f'for {safe(policy)}, ' if policy else ''}{_use(plan, own)}"
        for policy, own in by_policy.items()
    )
    if plan.ended == Ending.GIVEN:
        return f"{said}, as asked for"
    is_split = any(len(r.lowered.devices) > 1 or r.shares for r in plan.replicas)
    if is_split or len(plan.devices) == 1:
        return said
    if doubt is None or doubt.standing is Standing.BEHIND:
        return f"{said}; splitting a request does not pay"
    return f"{said}; the error bars do not tell whether splitting a request pays"


def _use(plan: Plan, replicas: Sequence[Replica]) -> str:
    used = {device for replica in replicas for device in replica.lowered.devices}
    idle = [device.name for device in plan.devices if device.name not in used]
    rest = f", and leave {names_of(idle)} idle" if idle else ""
    if any(replica.shares for replica in replicas):
        own = (f"{names_of(r.lowered.devices)} {role_words(plan, r)}" for r in replicas)
        return f"give GPUs separate shares of each trace: {'; '.join(own)}{rest}"
    whole = all(len(replica.lowered.devices) == 1 for replica in replicas)
    if len(replicas) == 1:
        verb = "run every request on" if whole else "split every request over"
        return f"{verb} {names_of(replicas[0].lowered.devices)}{rest}"
    if whole:
        cards = [device.card for device in plan.devices]
        kind = "GPU" if len(set(cards)) == len(cards) else "slice"
        return f"put a copy on each {kind}: {_served(replicas)}{rest}"
    return f"split requests over groups of GPUs: {_served(replicas)}{rest}"


def _served(replicas: Sequence[Replica]) -> str:
    """The shares of requests; of copies that serve as much, and whose names follow, one share."""
    runs: list[tuple[str, list[Replica]]] = []
    for replica in replicas:
        share = f"{replica.share:.1%}"
        is_one = len(replica.lowered.devices) == 1
        if runs and is_one and runs[-1][0] == share and len(runs[-1][1][0].lowered.devices) == 1:
            runs[-1][1].append(replica)
        else:
            runs.append((share, [replica]))
    parts: list[str] = []
    for share, run in runs:
        names = names_of([name for replica in run for name in replica.lowered.devices])
        several = len(run) > 1 or len(run[0].lowered.devices) > 1
        verb, of = ("serve " if several else "serves ", " of requests") if not parts else ("", "")
        parts.append(f"{names} {verb}{share}{of}{' each' * (len(run) > 1)}")
    return ", ".join(parts)


def names_of(names: Sequence[str]) -> str:
    """All names if there are few, else the first and the last."""
    if len(names) > 3:
        return f"{safe(names[0])} to {safe(names[-1])}"
    *first, last = map(safe, names)
    return f"{', '.join(first)} and {last}" if first else last
