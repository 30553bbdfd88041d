"""Links that differ from the common kind between all cards: nodes, and single pairs.

In: a `Machine` whose cards are joined by one kind of link. Out: a `Machine`. Channels model the
bandwidth that links share: within a node each card has a port, to other nodes each node has one,
and a pair with a link of its own has its own channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tessera.frontend.machine.gpus import NETWORK_LATENCY_NS, LinkKind, parse_link
from tessera.ir.plan.machine import Channel, Device, DeviceId, Link, Machine

Pair = tuple[Device, Device]


def with_nodes(machine: Machine, between: str, within: Mapping[str, str]) -> Machine:
    """The machine with a kind of link within each node, and one kind between all nodes."""
    kinds = {node: parse_link(link) for node, link in within.items()}
    outer = parse_link(between)
    pairs = [(a, b) for a in machine.devices for b in machine.devices if a.id != b.id]
    slices = [link for link in machine.links if _same_card(machine, link)]
    links = [*slices, *_links(machine, pairs, kinds, outer)]
    order = {(a.id, b.id): index for index, (a, b) in enumerate(pairs)}
    return replace(
        machine,
        links=tuple(sorted(links, key=lambda link: order[link.source, link.target])),
        channels=tuple(_channels(machine, pairs, kinds, outer)),
        link_name=f"{between} between nodes",
    )


def with_link(
    machine: Machine,
    source: DeviceId,
    target: DeviceId,
    bandwidth: float | None,
    latency_ns: float | None,
) -> Machine:
    """The machine with a separate link from one device to another; without a bandwidth, no link."""
    pair = source, target
    before = next((link for link in machine.links if (link.source, link.target) == pair), None)
    links = [link for link in machine.links if link is not before]
    thinned = (
        replace(channel, pairs=tuple(other for other in channel.pairs if other != pair))
        for channel in machine.channels
    )
    channels = [channel for channel in thinned if channel.pairs]
    if bandwidth is not None:
        if latency_ns is None:
            latency_ns = NETWORK_LATENCY_NS if before is None else before.latency_ns
        links.append(
            Link(source=source, target=target, bytes_per_second=bandwidth, latency_ns=latency_ns)
        )
        name = f"{machine.devices[source].name}>{machine.devices[target].name}"
        channels.append(Channel(name=name, bytes_per_second=bandwidth, pairs=(pair,)))
    links.sort(key=lambda link: (link.source, link.target))
    return replace(machine, links=tuple(links), channels=tuple(channels))


def _same_card(machine: Machine, link: Link) -> bool:
    return machine.devices[link.source].card == machine.devices[link.target].card


def _node(machine: Machine, device: Device) -> str:
    return machine.cards[device.card].node


def _links(
    machine: Machine, pairs: list[Pair], kinds: Mapping[str, LinkKind], outer: LinkKind
) -> Iterator[Link]:
    for a, b in pairs:
        if a.card == b.card:
            continue
        here, there = _node(machine, a), _node(machine, b)
        kind = kinds[here] if here == there else outer
        bandwidth = min(kind.port(machine.gpu_of(a)), kind.port(machine.gpu_of(b)))
        if bandwidth > 0:
            yield Link(
                source=a.id, target=b.id, bytes_per_second=bandwidth, latency_ns=kind.latency_ns
            )


def _channels(
    machine: Machine, pairs: list[Pair], kinds: Mapping[str, LinkKind], outer: LinkKind
) -> Iterator[Channel]:
    for channel in machine.channels:
        ends = [machine.devices[device].card for pair in channel.pairs for device in pair]
        if len(set(ends)) == 1:
            yield channel
    for card in machine.cards:
        near = [
            (a, b)
            for a, b in pairs
            if a.card != b.card and _node(machine, a) == _node(machine, b) == card.node
        ]
        mine = {device.id for device in machine.slices_of(card.id)}
        yield from _ports(card.name, kinds[card.node].port(card.gpu), near, mine)
    far = [(a, b) for a, b in pairs if _node(machine, a) != _node(machine, b)]
    for node in kinds:
        mine = {device.id for device in machine.devices if _node(machine, device) == node}
        cards = [card for card in machine.cards if card.node == node]
        yield from _ports(node, max(outer.port(card.gpu) for card in cards), far, mine)


def _ports(
    name: str, bytes_per_second: float, pairs: list[Pair], mine: set[DeviceId]
) -> Iterator[Channel]:
    """The channels out of and into a card or a node; none without a link."""
    if not bytes_per_second:
        return
    for end, way in enumerate(("out", "in")):
        through = tuple((pair[0].id, pair[1].id) for pair in pairs if pair[end].id in mine)
        if through:
            yield Channel(name=f"{name}.{way}", bytes_per_second=bytes_per_second, pairs=through)
