"""Checks the machine of a plan against the table of GPUs.

In: a `Plan`. Out: flaws. A card is of a kind in the table, or of one that a machine file made from
such a kind (`like`); it has that kind's architecture, and no more memory and SMs than that kind.
Digests are SHA-256.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.plan.machine import MOST_CARD_BYTES
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.verify_plan import Flaw

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST_CALL_NS = 1e9
_LONGEST_BYTE_NS = 1e3


def machine_flaws(plan: Plan) -> Iterator[Flaw]:
    """Flaws in the machine of a plan."""
    if not _DIGEST.fullmatch(plan.machine_digest):
        yield Flaw(plan, "`machine_digest` is no digest: 64 hexadecimal digits")
    if not 0 <= plan.host_call_ns <= _LONGEST_CALL_NS:
        yield Flaw(plan, f"`host_call_ns` is {plan.host_call_ns}: no call of a host takes that")
    if not 0 <= plan.host_byte_ns <= _LONGEST_BYTE_NS:
        yield Flaw(plan, f"`host_byte_ns` is {plan.host_byte_ns}: no byte takes a host that long")
    for trace in plan.traces:
        if trace.contents_digest and not _DIGEST.fullmatch(trace.contents_digest):
            yield Flaw(trace, "`contents_digest` is no digest: 64 hexadecimal digits")
    table = gpu_table()
    sms: dict[str, int] = {}
    for device in plan.devices:
        sms[device.card] = sms.get(device.card, 0) + device.sms
    for card in plan.cards:
        gpu = table.get(card.like or card.gpu)
        if gpu is None:
            yield Flaw(card, f"there is no GPU `{card.like or card.gpu}` in the table")
            continue
        if card.arch != gpu.arch:
            yield Flaw(card, f"{gpu.name} is of {gpu.arch}, not of {card.arch}")
        most = MOST_CARD_BYTES if card.like else gpu.most_bytes()
        if card.capacity_bytes > most:
            yield Flaw(card, f"`{card.name}` has {most} bytes at most, not {card.capacity_bytes}")
        if not card.like and sms.get(card.name, 0) > gpu.sms:
            yield Flaw(card, f"{gpu.name} has {gpu.sms} SMs, and its devices {sms[card.name]}")
