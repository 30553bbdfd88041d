"""A machine from the user's `--gpus` and `--link`: `2xa100,l40s`, `h200:84sm,h200:48sm`.

In: the text of `--gpus`, `--link`, and overrides of price and memory. Out: a `Machine`. Entries are
`[COUNTx]NAME[:NNsm]`. Slices of one name fill one card after the other: a slice that does not fit
the SMs left on the last card of that name opens a new card. Every card has a port of the link's
bandwidth in each direction; slices of one card copy through its memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tessera.diagnostics import TesseraError
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.quantities import format_bytes, parse_bandwidth
from tessera.ir.plan.machine import Card, CardId, Channel, Device, DeviceId, Gpu, Link, Machine

DEFAULT_LINK = "100Gb/s"
NO_LINK = "none"
NETWORK_LATENCY_NS = 10_000.0
_PEER_LATENCY_NS = {"nvlink": 2_000.0, "pcie": 5_000.0}
_SLICE_LATENCY_NS = 5_000.0
"""With what a transfer takes at both ends an exchange of 64 KB takes 9 us, the median on slices of
an H200 with one stream per slice (`benchmarks/results/divided_h200.json`, decision 0017)."""
_ENTRY = re.compile(r"(?:([0-9]+)x)?([A-Za-z0-9][\w .-]*?)(?::([0-9]+)sm)?\Z")
MAX_DEVICES = 256
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class LinkKind:
    """A named link: its bandwidth for a card, or the reason why a card cannot have it."""

    name: str
    bytes_per_second: float | None
    latency_ns: float

    def port(self, gpu: Gpu) -> float:
        """Bandwidth of the link for this kind of card, in bytes/s in one direction."""
        if self.bytes_per_second is not None:
            return self.bytes_per_second
        if self.name == "nvlink":
            if gpu.nvlink_bandwidth is None:
                raise _bad(f"{gpu.name} has no NVLink", "choose `pcie4` or a network link")
            return gpu.nvlink_bandwidth
        return gpu.pcie_bandwidth


@dataclass(frozen=True, slots=True)
class GpuEntry:
    """One part of a `--gpus` list. `opens_card`: a slice that starts a card of its own."""

    count: int
    gpu: Gpu
    sms: int | None = None
    label: str = ""
    opens_card: bool = False
    node: str = ""


def parse_link(text: str) -> LinkKind:
    """`nvlink`, `pcie`, `pcie4`, a bandwidth such as `100Gb/s`, or `none`."""
    name = text.strip().lower()
    if name == NO_LINK:
        return LinkKind(name, 0.0, 0.0)
    if name in ("nvlink", "pcie"):
        return LinkKind(name, None, _PEER_LATENCY_NS[name])
    generation = re.fullmatch(r"pcie([3-6])", name)
    if generation:
        return LinkKind(name, 16e9 * 2 ** (int(generation[1]) - 3), _PEER_LATENCY_NS["pcie"])
    bandwidth = parse_bandwidth(text)
    if bandwidth is None:
        raise _bad(
            f"`{text}` is no link",
            "write `nvlink`, `pcie4`, a bandwidth such as `100Gb/s`, or `none`",
        )
    if bandwidth <= 0:
        raise _bad(f"the bandwidth of a link must be above zero: `{text}`", None)
    return LinkKind(text.strip(), bandwidth, NETWORK_LATENCY_NS)


def parse_gpus(text: str) -> tuple[GpuEntry, ...]:
    """The entries of a `--gpus` list."""
    entries = tuple(_entry(part.strip(), text) for part in text.split(","))
    total = sum(entry.count for entry in entries)
    if total > MAX_DEVICES:
        raise _bad(
            f"{total} devices are more than the {MAX_DEVICES} that can be planned for",
            "plan for a part of them, which is repeated; `tessc fleet` chooses among thousands",
        )
    return entries


def build_machine(
    entries: tuple[GpuEntry, ...],
    link: str = DEFAULT_LINK,
    *,
    prices: Mapping[str, float] | None = None,
    memory: Mapping[str, int] | None = None,
) -> Machine:
    """A machine of these devices, joined by one kind of link."""
    kind = parse_link(link)
    cards, devices = _cards(entries, prices or {}, memory or {})
    _check_names("--price", prices or {}, cards)
    _check_names("--memory", memory or {}, cards)
    for card in cards:
        check_memory(card.gpu, card.memory_bytes)
    links, channels = _wires(cards, devices, kind)
    return Machine(
        cards=cards, devices=devices, links=links, channels=channels, link_name=kind.name
    )


def machine_of(
    gpus: str,
    link: str = DEFAULT_LINK,
    *,
    prices: Mapping[str, float] | None = None,
    memory: Mapping[str, int] | None = None,
) -> Machine:
    """The machine of a `--gpus` list."""
    return build_machine(parse_gpus(gpus), link, prices=prices, memory=memory)


def _entry(part: str, text: str) -> GpuEntry:
    match = _ENTRY.match(part)
    if match is None or match[1] == "0" * len(match[1] or "x"):
        what = f"`{part}` in `{text}` is no GPU" if part else f"`{text}` has an empty part"
        raise _bad(what)
    gpu = find_gpu(match[2])
    for number, most in ((match[1], MAX_DEVICES), (match[3], gpu.sms)):
        if number is not None and len(number) > _MOST_DIGITS:
            what = "SMs" if number is match[3] else "devices"
            raise _bad(f"`{part:.60}` has more {what} than there can be: at most {most}")
    sms = None if match[3] is None else int(match[3])
    if sms is not None and not 0 < sms <= gpu.sms:
        raise _bad(f"{gpu.name} has {gpu.sms} SMs, so a slice cannot have {sms}")
    return GpuEntry(int(match[1] or 1), gpu, None if sms == gpu.sms else sms, match[2].lower())


def _cards(
    entries: tuple[GpuEntry, ...], prices: Mapping[str, float], memory: Mapping[str, int]
) -> tuple[tuple[Card, ...], tuple[Device, ...]]:
    """Whole cards, and slices packed onto cards in order."""
    cards: list[Card] = []
    devices: list[Device] = []
    free: dict[str, tuple[CardId, int]] = {}
    for entry in entries:
        for _ in range(entry.count):
            sms = entry.sms or entry.gpu.sms
            card, left = free.get(entry.gpu.key, (CardId(-1), 0))
            if entry.sms is None or entry.opens_card or left < sms:
                card, left = CardId(len(cards)), entry.gpu.sms
                cards.append(_card(card, entry, prices, memory, cards))
            if entry.sms is not None:
                free[entry.gpu.key] = card, left - sms
            suffix = "" if entry.sms is None else f".{sum(d.card == card for d in devices)}"
            devices.append(
                Device(
                    id=DeviceId(len(devices)), name=cards[card].name + suffix, card=card, sms=sms
                )
            )
    return tuple(cards), tuple(devices)


def _card(
    id: CardId,
    entry: GpuEntry,
    prices: Mapping[str, float],
    memory: Mapping[str, int],
    earlier: list[Card],
) -> Card:
    short = entry.label.replace(" ", "-").replace("_", "-")
    number = sum(card.label == short for card in earlier)
    names = (f"{short}-{number}", short, entry.gpu.key)
    price = next((prices[name] for name in names if name in prices), entry.gpu.usd_per_hour)
    capacity = next((memory[name] for name in names if name in memory), entry.gpu.memory_bytes)
    return Card(
        id=id,
        name=names[0],
        gpu=entry.gpu,
        memory_bytes=capacity,
        usd_per_hour=price,
        node=entry.node,
    )


def _check_names(option: str, given: Mapping[str, object], cards: tuple[Card, ...]) -> None:
    known = {n for c in cards for n in (c.name, c.label, c.gpu.key)}
    for name, value in given.items():
        if name not in known:
            raise TesseraError.of(
                "TSR3002",
                f"`{option} {name}={value}` names no GPU of this machine",
                hint=f"the GPUs are: {', '.join(card.name for card in cards)}",
            )
        sane = isinstance(value, int | float) and (value == 0 or 1e-6 <= value < 1e18)
        if not sane:
            raise TesseraError.of("TSR3002", f"`{option} {name}={value}` is no number above zero")


def check_memory(gpu: Gpu, given: int) -> None:
    """Refuse more memory than a card of this kind has: a typing error, or another card."""
    if given > gpu.most_bytes():
        size, most = format_bytes(given), format_bytes(gpu.memory_bytes)
        raise TesseraError.of(
            "TSR3002",
            f"{gpu.name} has {most} of memory, not {size}",
            hint="describe another GPU as a `[gpu.NAME]` of a machine file",
        )


def _wires(
    cards: tuple[Card, ...], devices: tuple[Device, ...], kind: LinkKind
) -> tuple[tuple[Link, ...], tuple[Channel, ...]]:
    ports = [kind.port(card.gpu) for card in cards] if len(cards) > 1 else [0.0] * len(cards)
    links = []
    for a in devices:
        for b in devices:
            if a.id == b.id:
                continue
            if a.card == b.card:
                bandwidth, latency = cards[a.card].gpu.memory_bandwidth / 2, _SLICE_LATENCY_NS
            else:
                bandwidth, latency = min(ports[a.card], ports[b.card]), kind.latency_ns
            if bandwidth == 0:
                continue
            links.append(
                Link(source=a.id, target=b.id, bytes_per_second=bandwidth, latency_ns=latency)
            )
    return tuple(links), tuple(_channels(cards, devices, ports))


def _channels(
    cards: tuple[Card, ...], devices: tuple[Device, ...], ports: list[float]
) -> list[Channel]:
    pairs = [(a, b) for a in devices for b in devices if a.id != b.id]
    channels = []
    for card in cards:
        inside = tuple((a.id, b.id) for a, b in pairs if a.card == b.card == card.id)
        out = tuple((a.id, b.id) for a, b in pairs if a.card == card.id != b.card)
        into = tuple((a.id, b.id) for a, b in pairs if b.card == card.id != a.card)
        port = ports[card.id]
        if inside:
            half = card.gpu.memory_bandwidth / 2
            channels.append(
                Channel(name=f"{card.name}.memory", bytes_per_second=half, pairs=inside)
            )
        if out and port:
            channels.append(Channel(name=f"{card.name}.out", bytes_per_second=port, pairs=out))
            channels.append(Channel(name=f"{card.name}.in", bytes_per_second=port, pairs=into))
    return channels


def describe_card(card: Card) -> str:
    """One line for people: SKU, memory, price."""
    price = "no price known"
    if card.usd_per_hour is not None:
        listed = card.usd_per_hour == card.gpu.usd_per_hour
        price = f"${card.usd_per_hour:.2f}/h" + (f" ({card.gpu.price_source})" if listed else "")
    return f"{card.name}: {card.gpu.name}, {format_bytes(card.memory_bytes)}, {price}"


_LIST = "write names with counts and slices: `a100,l40s`, `2xa100`, `h200:84sm,h200:48sm`"


def _bad(headline: str, hint: str | None = _LIST) -> TesseraError:
    return TesseraError.of("TSR3002", headline, hint=hint)
