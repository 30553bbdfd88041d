"""Where steps and bytes are placed: work per device, memory per card, load per link.

In: a `Plan`. Out: a `PageSection`. Memory is that of the areas of the launch programs, by what they
hold; the load of a link is that of the transfers of one request.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.plan.plan import Plan
from tessera.report.page.model import PageSection

PARTS = (
    (AreaKind.WEIGHTS, "weights"),
    (AreaKind.LANE, "states"),
    (AreaKind.SLOT, "slots"),
    (AreaKind.MODULE, "module variables"),
)


def placement_section(plan: Plan) -> PageSection:
    """Devices, memory and links."""
    steps: Counter[str] = Counter()
    for replica in plan.replicas:
        for placed in replica.traces:
            steps.update(step.device for step in placed.steps)
    period = plan.period_ns
    data = {
        "headline": _headline(plan),
        "parts": [words for _, words in PARTS],
        "devices": [
            {
                "name": device.name,
                "sms": device.sms,
                "steps": steps[device.name],
                "busy_ns": device.busy_ns,
                "share": device.busy_ns / period if period > 0 else 0.0,
            }
            for device in plan.devices
        ],
        "cards": [
            {
                "name": card.name,
                "gpu": card.gpu,
                "capacity": card.capacity_bytes,
                "bytes": _memory(plan, card.name),
            }
            for card in plan.cards
        ],
        "replicas": [
            [
                replica.policy,
                replica.share,
                replica.slots,
                replica.lanes,
                list(replica.lowered.devices),
            ]
            for replica in plan.replicas
        ],
        "links": _links(plan),
        "joined": plan.link,
    }
    return PageSection(kind="placement", id="placement", title="Placement and memory", data=data)


def _headline(plan: Plan) -> str:
    busiest = max(plan.devices, key=lambda device: device.busy_ns)
    fullest = max(plan.cards, key=lambda card: card.used_bytes / max(card.capacity_bytes, 1))
    part = fullest.used_bytes / max(fullest.capacity_bytes, 1)
    share = busiest.busy_ns / plan.period_ns if plan.period_ns > 0 else 0.0
    return (
        f"`{busiest.name}` has the most work, {min(share, 1.0):.0%} of the time; "
        f"`{fullest.name}` is the fullest, {_percent(part)} of its memory"
    )


def _percent(part: float) -> str:
    return f"{part:.1%}" if part >= 0.001 or part == 0 else "less than 0.1%"


def _memory(plan: Plan, card: str) -> list[int]:
    """Bytes by kind of area. Replicas of several policies share their weights."""
    devices = {device.name for device in plan.devices if device.card == card}
    sums: Counter[AreaKind] = Counter()
    weights: Counter[str] = Counter()
    for replica in plan.replicas:
        for area in replica.lowered.areas:
            if area.device not in devices:
                continue
            if area.kind is AreaKind.WEIGHTS:
                weights[replica.policy] += area.bytes * area.count
            else:
                sums[area.kind] += area.bytes * area.count
    sums[AreaKind.WEIGHTS] = max(weights.values(), default=0)
    return [sums[kind] for kind, _ in PARTS]


def _links(plan: Plan) -> list[dict[str, object]]:
    """Paths and shared capacities that carry something, the busiest first."""
    paths = {(path.source, path.target): path for path in plan.paths}
    carried: dict[str, float] = defaultdict(float)
    speed: dict[str, float] = {own.name: own.bytes_per_second for own in plan.capacities}
    policies = {replica.policy for replica in plan.replicas}
    last = plan.replicas[-1].policy if plan.replicas else ""
    for replica in plan.replicas:
        if len(policies) > 1 and replica.policy != last:
            continue
        served = [replica.serves(n) * trace.share for n, trace in enumerate(plan.traces)]
        moved = [
            (move.source, move.target, served[lowered.trace] * move.size)
            for lowered in replica.lowered.traces
            for move in lowered.transfers
        ]
        moved += [
            (own.source, own.target, served[own.trace] * own.part * own.bytes)
            for own in replica.hand_overs
        ]
        for source, target, size in moved:
            path = paths.get((source, target))
            name = f"{source} to {target}"
            carried[name] += size
            if path is not None:
                speed[name] = path.bytes_per_second
                for own_name in path.shares:
                    carried[own_name] += size if own_name != name else 0.0
    rows: list[dict[str, object]] = []
    for name, size in carried.items():
        rate = speed.get(name, 0.0)
        ns = size / rate * 1e9 if rate > 0 else 0.0
        share = ns / plan.period_ns if plan.period_ns > 0 else 0.0
        rows.append({"name": name, "bytes": size, "speed": rate, "ns": ns, "share": share})
    return sorted(rows, key=lambda row: (-float(str(row["share"])), str(row["name"])))
