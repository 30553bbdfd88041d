"""Who does what: what each GPU serves, and what goes from one to another.

In: a `Plan`. Out: the data of a drawing: traces, boxes of devices that serve shares of them, moves
between devices, and steps in parts. Replicas that are alike are one box.
"""

from __future__ import annotations

from collections import defaultdict

from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.plan.plan import PlacedStep, Plan, Replica, parts_of_placed

_MOST_ROWS = 10  # boxes of more devices show their kinds of GPU
_MOST_MOVES = 4
_MOST_PARTS = 8
Alike = tuple[str, tuple[str, ...], tuple[bool, ...]]


def who_does_what(plan: Plan) -> dict[str, object] | None:
    """The drawing; None if there is one device, which does everything."""
    if len(plan.devices) == 1:
        return None
    card_of = {device.name: device.card for device in plan.devices}
    kind_of = {card.name: card.gpu for card in plan.cards}
    boxes: dict[Alike, list[Replica]] = defaultdict(list)
    for replica in plan.replicas:
        kinds = tuple(kind_of[card_of[name]] for name in replica.lowered.devices)
        serves = tuple(replica.serves(n) > 0 for n in range(len(plan.traces)))
        boxes[replica.policy, kinds, serves].append(replica)
    row_of: dict[str, int] = {}
    drawn = []
    for (policy, kinds, _), group in sorted(boxes.items(), key=lambda box: _first(plan, box[1])):
        served = [sum(r.serves(n) for r in group) for n in range(len(plan.traces))]
        rows: list[list[object]] = []
        by_kind = len(kinds) > _MOST_ROWS
        for place, name in enumerate(dict.fromkeys(kinds) if by_kind else kinds):
            own = [
                r.lowered.devices[i]
                for r in group
                for i, kind in enumerate(kinds)
                if (kind == name if by_kind else i == place)
            ]
            row_of |= dict.fromkeys(own, len(row_of) and max(row_of.values()) + 1)
            rows.append(_row(plan, own))
        drawn.append({"policy": policy, "copies": len(group), "serves": served, "rows": rows})
    idle = [device.name for device in plan.devices if device.name not in row_of]
    moves = _moves(plan, row_of)
    return {
        "traces": [[trace.name, trace.share] for trace in plan.traces],
        "boxes": drawn,
        "moves": moves[:_MOST_MOVES],
        "more": max(0, len(moves) - _MOST_MOVES),
        "idle": idle,
        "parts": _parts(plan),
    }


def _first(plan: Plan, group: list[Replica]) -> float:
    """The mean number of the traces that replicas serve, so that few lines of the drawing cross."""
    served = [sum(replica.serves(n) for replica in group) for n in range(len(plan.traces))]
    return sum(n * part for n, part in enumerate(served)) / max(sum(served), 1e-9)


def _row(plan: Plan, names: list[str]) -> list[object]:
    """Names, the number of the first for its colour, and how busy the busiest is."""
    order = [device.name for device in plan.devices]
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    busy = max(d.busy_ns for d in plan.devices if d.name in names)
    return [shown, order.index(names[0]), busy / plan.period_ns if plan.period_ns > 0 else 0.0]


def _moves(plan: Plan, row_of: dict[str, int]) -> list[list[object]]:
    """From, to, what; bytes are those of one request, the largest first."""
    sent: dict[tuple[int, int, bool], float] = defaultdict(float)
    for replica in plan.replicas:
        shares = [replica.serves(n) * trace.share for n, trace in enumerate(plan.traces)]
        moved = [
            (move.source, move.target, False, shares[lowered.trace] * move.size)
            for lowered in replica.lowered.traces
            for move in lowered.transfers
        ]
        moved += [
            (own.source, own.target, True, shares[own.trace] * own.part * own.bytes)
            for own in replica.hand_overs
        ]
        for source, target, hands, size in moved:
            if source in row_of and target in row_of and size > 0:
                sent[row_of[source], row_of[target], hands] += size
    ranked = sorted(sent.items(), key=lambda item: -item[1])
    return [
        [
            source,
            target,
            f"{'hand-overs' if hands else 'transfers'}: {format_bytes(int(size))} per request, "
            f"{size / max(plan.period_ns, 1e-9):.3g} GB/s",
        ]
        for (source, target, hands), size in ranked
    ]


def _parts(plan: Plan) -> list[list[object]]:
    """Steps in parts: name, how many are alike, and for each part device, share and range."""
    order = [device.name for device in plan.devices]
    alike: dict[tuple[object, ...], int] = {}
    for replica in plan.replicas:
        for placed in replica.traces:
            parts = parts_of_placed(placed, plan.traces[placed.trace].division)
            groups: dict[int, list[PlacedStep]] = defaultdict(list)
            for step in placed.steps:
                if parts[step.step].count > 1:
                    groups[parts[step.step].origin].append(step)
            for group in groups.values():
                shown = []
                for step in group:
                    bounds = parts[step.step].range_on(step.arch)
                    share = (bounds[2] - bounds[1]) / bounds[3] if bounds else 1 / len(group)
                    said = f"{step.device}{parts[step.step].words(step.arch)}"
                    shown.append((order.index(step.device), share, said))
                key = (group[0].name, *shown)
                alike[key] = alike.get(key, 0) + 1
    ranked = sorted(alike.items(), key=lambda item: -item[1])[:_MOST_PARTS]
    return [[key[0], count, list(key[1:])] for key, count in ranked]
