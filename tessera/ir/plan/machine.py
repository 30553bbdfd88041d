"""The machine a plan is for: GPUs, devices, links and the channels that links share.

In: nothing. Out: frozen records that `frontend.machine.gpus` builds from a `--gpus` list or a
machine file and that planner, plan text and backends read.

A `Gpu` is a card as its data sheet describes it. A `Card` is one in this machine, with the memory
and price that are in force. A `Device` is what kernels are placed on: a whole card, or a slice of
one (some of its SMs). Slices share their card's memory and memory bandwidth. A `Link` says how one
device reaches another; a `Channel` is a capacity that several links share, such as the port of a
card. Links are directed; a pair without a link is not connected.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NewType

CardId = NewType("CardId", int)
DeviceId = NewType("DeviceId", int)

DEFAULT_TRANSFER_NS = 2000.0
EXCHANGED_BYTES = 1 << 16
"""The size of an exchange by which links are measured and compared."""
MOST_CARD_BYTES = 1 << 44
"""The largest accepted memory of one GPU in bytes; a larger value is a typing error."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Dense operations per second of one unit for one type: `fp16`, `tf32`, `fp32` and so on."""

    unit: str
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A kind of GPU. Bandwidths are bytes per second in one direction; None means "has none".

    `watts` is the power limit of the data sheet. `like` is the kind in the table that a machine
    file derived this kind from; empty for kinds in the table.
    """

    key: str
    name: str
    arch: str
    sms: int
    clock_mhz: float
    memory_bytes: int
    memory_bandwidth: float
    l2_bytes: int
    rates: tuple[Rate, ...]
    nvlink_bandwidth: float | None
    pcie_generation: int
    pcie_bandwidth: float
    usd_per_hour: float | None = None
    price_source: str = ""
    watts: float | None = field(default=None, repr=False)
    like: str = field(default="", repr=False)

    def most_bytes(self) -> int:
        """Upper limit of the memory of a card in bytes: data sheets say GB and may mean GiB."""
        return MOST_CARD_BYTES if self.like else round(1.1 * self.memory_bytes)

    def flops(self, unit: str) -> float | None:
        """Operations per second of a unit; None if the data sheet does not say."""
        return next((rate.flops for rate in self.rates if rate.unit == unit), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU of the machine. `memory_bytes` is the total that a plan may use.

    `node` names its host if there are several; otherwise it is empty.
    """

    id: CardId
    name: str
    gpu: Gpu
    memory_bytes: int
    usd_per_hour: float | None
    node: str = ""

    @property
    def label(self) -> str:
        """The name that cards of one kind share: the part before the number."""
        return self.name.rpartition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A unit on which kernels are placed: `sms` SMs of a card.

    At run time it is a `Device` of `backend.ptx_executor.device` (on the CPU), or a `Device` of
    `backend.cuda.emitted.common` (in a standalone program).
    """

    id: DeviceId
    name: str
    card: CardId
    sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The connection from one device to another."""

    source: DeviceId
    target: DeviceId
    bytes_per_second: float
    latency_ns: float

    def __post_init__(self) -> None:
        if self.source == self.target or not self.bytes_per_second > 0 or self.latency_ns < 0:
            raise ValueError("a link joins two devices with positive bandwidth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A capacity shared by the transfers between these pairs of devices."""

    name: str
    bytes_per_second: float
    pairs: tuple[tuple[DeviceId, DeviceId], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """All resources of a plan. `transfer_ns` is the time that a transfer takes from each end.

    `host_call_ns` is the time of a call by which the host submits work, `host_byte_ns` the time to
    copy a byte of an input or output; 0 means not measured. `node_memory` is the memory of each
    named node that transfers between hosts may use. `measured_links` is the number of links whose
    exchange a self-test measured.
    """

    cards: tuple[Card, ...]
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    channels: tuple[Channel, ...] = ()
    link_name: str = ""
    transfer_ns: float = DEFAULT_TRANSFER_NS
    host_call_ns: float = field(default=0.0, repr=False)
    host_byte_ns: float = field(default=0.0, repr=False)
    node_memory: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    measured_links: int = field(default=0, repr=False)

    def gpu_of(self, device: Device) -> Gpu:
        """The data sheet behind a device."""
        return self.cards[device.card].gpu

    def slices_of(self, card: CardId) -> tuple[Device, ...]:
        """The devices of a card, in order."""
        return tuple(device for device in self.devices if device.card == card)

    def joined_by(self) -> str:
        """What joins the devices, in words."""
        if not self.measured_links:
            return self.link_name
        if self.measured_links == len(self.links):
            return "links that a self-test measured"
        count = f"{self.measured_links} of {len(self.links)}"
        return f"{self.link_name}, {count} links measured by a self-test"

    def end_ns_per_byte(self, link: Link) -> float:
        """Time per byte at each end: on one card, a byte is read and written in their memory."""
        first, second = self.devices[link.source], self.devices[link.target]
        return 0.0 if first.card != second.card else 2e9 / self.gpu_of(first).memory_bandwidth

    def exchange_ns(self, link: Link, nbytes: float) -> float:
        """Time from the end of a step to the start of the one that waits for its bytes over a link.

        Both ends are taken for a time, one after the other; in between the bytes travel. Searches,
        simulation and links made of measured exchanges all mean this sum.
        """
        ends = self.transfer_ns + nbytes * self.end_ns_per_byte(link)
        return link.latency_ns + nbytes * 1e9 / link.bytes_per_second + 2 * ends

    def digest(self) -> str:
        """A digest of the machine: equal machines have equal digests."""
        host = (self.host_call_ns, self.host_byte_ns)
        text = repr(self) + "".join(f" {ns}" for ns in host if ns)
        text += "".join(f" {node!r} {size}" for node, size in self.node_memory)
        return hashlib.sha256(text.encode()).hexdigest()
