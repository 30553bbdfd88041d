"""The engines of a fleet, each with its GPUs and its limits, whatever system starts them.

In: a `FleetReport`, the name of the model. Out: a `Deployment`. Hosts are those of the machine
file. Without one, up to eight GPUs are in one host, in the order of their kinds; more are in hosts
of eight, each of one kind or with all kinds of one engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera.diagnostics import TesseraError
from tessera.driver.fleet.choose_units import FleetChoice
from tessera.driver.fleet.engines import EngineRole, UnitEngine
from tessera.driver.fleet.make_fleet import FleetReport
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.ways import UnitWay
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Role
from tessera.planning.problem.plan_problem import RESERVED_BYTES

HOST_GPUS = 8
"""GPUs of a host, where no machine file says it."""
_MOST_ENGINES = 1024
_MOST_FULL = 0.95
"""Share of a GPU's memory that an engine is given: graphs and the driver need some beside it."""


@dataclass(frozen=True, slots=True)
class HostGpus:
    """GPUs of a host, by the numbers that `nvidia-smi` shows."""

    host: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedEngine:
    """An engine with its GPUs, and its limits.

    `seats` says how many engines its first host has before it; `rows` are the sequences of all of
    its lanes, `tokens` those of one step, `share` is that of the memory of each GPU.
    """

    number: int
    engine: UnitEngine
    way: UnitWay
    names: str
    places: tuple[HostGpus, ...]
    seat: int
    rows: int
    tokens: int
    share: float

    @property
    def role(self) -> EngineRole:
        """The part of a request that it does."""
        return self.engine.role


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The engines of a fleet. `dtype` is the name of the type of weights in PyTorch.

    `fp8` and `fp8_cache`: whether weights and caches have eight bits. `longest` are the tokens of
    the longest request.
    """

    report: FleetReport
    model: str
    dtype: str
    fp8: bool
    fp8_cache: bool
    longest: int
    engines: tuple[PlacedEngine, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, in the order of the engines."""
        return tuple(dict.fromkeys(p.host for e in self.engines for p in e.places))

    def of(self, *roles: EngineRole) -> tuple[PlacedEngine, ...]:
        """The engines with one of these roles."""
        return tuple(e for e in self.engines if e.role in roles)


Obstacle = Callable[[UnitWay], str | None]
"""What keeps a system from starting a unit; None if nothing does."""


def check_choice(report: FleetReport, system: str, obstacle: Obstacle) -> None:
    """Refuse an answer with a unit that a system cannot start: what stands in the way, what can."""
    if not report.chosen.units:
        raise cannot("there is nothing to start: the answer has no units")
    for capacity, _ in report.chosen.units:
        why = obstacle(capacity.way)
        if why is not None:
            unit = f"`{capacity.way.strategy}` on {capacity.way.names}"
            raise cannot(f"{system} cannot start {unit}: {why}", **_instead(report, obstacle))


def _instead(report: FleetReport, obstacle: Obstacle) -> dict[str, str]:
    """The best of the other choices that a system can start, and how to ask for it."""

    def able(choice: FleetChoice) -> bool:
        return bool(choice.units) and all(obstacle(c.way) is None for c, _ in choice.units)

    def worth(choice: FleetChoice) -> float:
        cheap = report.options.demand is not None and choice.usd_per_hour is not None
        return -(choice.usd_per_hour or 0.0) if cheap else choice.rate

    best = max(filter(able, report.rivals), key=worth, default=None)
    if best is None:
        return {"hint": "none of the choices beside the answer can be started so"}
    ways = {str(capacity.way.strategy): None for capacity, _ in best.units}
    price = "" if best.usd_per_hour is None else f", ${best.usd_per_hour:.2f} per hour"
    return {
        "note": f"`{best.name}` can be started: {best.rate:.4g} requests/s{price}",
        "hint": f"add `--strategies {','.join(ways)}`",
    }


def cannot(headline: str, note: str = "", hint: str | None = None) -> TesseraError:
    """The error if an answer cannot be written as asked."""
    return TesseraError.of("TSR3030", headline, notes=(note,) if note else (), hint=hint)


# --- engines --------------------------------------------------------------------------------------

EnginesOf = Callable[[UnitWay], tuple[UnitEngine, ...]]


def deployment_of(
    report: FleetReport, model: str, engines_of: EnginesOf = lambda way: way.engines
) -> Deployment:
    """The engines of the answer on their GPUs. Engines that are alike follow each other."""
    wanted: list[tuple[UnitEngine, UnitWay, int]] = []
    for capacity, units in report.chosen.units:
        for engine in engines_of(capacity.way):
            rows = engine.rows if engine.role is EngineRole.PROMPTS else capacity.rows
            wanted += [(engine, capacity.way, rows * engine.lanes)] * units
            if len(wanted) > _MOST_ENGINES:
                raise cannot(f"the answer has more than {_MOST_ENGINES} engines")
    order = list(EngineRole)
    wanted.sort(key=lambda row: order.index(row[0].role))
    kinds = [[s.kind for s in e.stages for _ in range(e.tensor)] for e, _, _ in wanted]
    seats = Counter[str]()
    engines = []
    rooms = _rooms(report, kinds)
    for number, ((engine, way, rows), own) in enumerate(zip(wanted, kinds, strict=True), 1):
        places = rooms(own)
        reads = way.chunk if engine.role is EngineRole.PROMPTS else way.chunk + rows
        engines.append(
            PlacedEngine(
                number=number,
                engine=engine,
                way=way,
                names=_names(report.offered, own),
                places=places,
                seat=seats[places[0].host],
                rows=rows,
                tokens=max(reads, rows),
                share=min(_share(report.offered, kind) for kind in own),
            )
        )
        seats[places[0].host] += 1
    dtype, fp8, fp8_cache = _types(report)
    return Deployment(
        report=report,
        model=model,
        dtype=dtype,
        fp8=fp8,
        fp8_cache=fp8_cache,
        longest=report.work.longest,
        engines=tuple(engines),
    )


def _names(offered: Offered, kinds: Sequence[int]) -> str:
    counts = Counter(offered.kinds[kind].label for kind in kinds)
    return "+".join(f"{n}x{label}" if n > 1 else label for label, n in counts.items())


def _share(offered: Offered, kind: int) -> float:
    memory = offered.kinds[kind].gpu.memory_bytes
    return min(_MOST_FULL, int(100 * (memory - RESERVED_BYTES) / memory) / 100)


_NAMES = {DataType.BF16: "bfloat16", DataType.F16: "float16", DataType.F32: "float32"}
_FP8 = (DataType.E4M3, DataType.E5M2)


def _types(report: FleetReport) -> tuple[str, bool, bool]:
    """The type of plain weights, and whether most weights and the caches have eight bits."""
    sums: dict[Role, Counter[DataType | None]] = {Role.WEIGHT: Counter(), Role.STATE: Counter()}
    for buffer in report.model.decode[-1].trace.program.buffers:
        if buffer.role in sums:
            sums[buffer.role][buffer.dtype] += buffer.bytes
    plain = Counter({t: n for t, n in sums[Role.WEIGHT].items() if t in _NAMES})
    first = plain.most_common(1)
    of_eight = [bool(n) and n.most_common(1)[0][0] in _FP8 for n in sums.values()]
    dtype = first[0][0] if first else None
    return ("auto" if dtype is None else _NAMES[dtype]), of_eight[0], of_eight[1]


# --- hosts ----------------------------------------------------------------------------------------

Rooms = Callable[[Sequence[int]], tuple[HostGpus, ...]]
"""The next GPUs of these kinds, in this order."""


def _rooms(report: FleetReport, engines: Sequence[Sequence[int]]) -> Rooms:
    offered = report.offered
    if report.options.machine is not None:
        return _NamedHosts(offered).take
    counts = Counter(kind for kinds in engines for kind in kinds)
    if counts.total() <= HOST_GPUS:
        return _OneHost(counts).take
    return _ManyHosts().take


class _NamedHosts:
    """The hosts of a machine file: GPUs are numbered as it has them."""

    def __init__(self, offered: Offered) -> None:
        self._offered = offered
        self._used = Counter[int]()
        numbers = Counter[str]()
        self._at: list[tuple[str, int]] = []
        for device in offered.machine.devices:
            node = offered.machine.cards[device.card].node or "host"
            self._at.append((node, numbers[node]))
            numbers[node] += 1

    def take(self, kinds: Sequence[int]) -> tuple[HostGpus, ...]:
        taken = []
        for kind in kinds:
            taken.append(self._at[self._offered.devices(kind, 1, self._used[kind])[0]])
            self._used[kind] += 1
        return _joined(taken)


class _OneHost:
    """One host with all GPUs, those of the first kind first."""

    def __init__(self, counts: Counter[int]) -> None:
        self._next = {}
        first = 0
        for kind in sorted(counts):
            self._next[kind] = first
            first += counts[kind]

    def take(self, kinds: Sequence[int]) -> tuple[HostGpus, ...]:
        taken = []
        for kind in kinds:
            taken.append(("host-1", self._next[kind]))
            self._next[kind] += 1
        return _joined(taken)


class _ManyHosts:
    """Hosts of eight GPUs, as many as it takes. An engine of mixed kinds has hosts of its own."""

    def __init__(self) -> None:
        self._hosts = 0
        self._open: dict[int, tuple[str, int]] = {}

    def take(self, kinds: Sequence[int]) -> tuple[HostGpus, ...]:
        is_mixed = len(set(kinds)) > 1
        host, used = self._open.get(kinds[0], ("", HOST_GPUS))
        if is_mixed or used + min(len(kinds), HOST_GPUS) > HOST_GPUS:
            host, used = self._new(), 0
        taken = []
        for _ in kinds:
            if used == HOST_GPUS:
                host, used = self._new(), 0
            taken.append((host, used))
            used += 1
        if not is_mixed:
            self._open[kinds[0]] = host, used
        return _joined(taken)

    def _new(self) -> str:
        self._hosts += 1
        return f"host-{self._hosts}"


def _joined(taken: Sequence[tuple[str, int]]) -> tuple[HostGpus, ...]:
    """GPUs by host."""
    hosts = dict.fromkeys(host for host, _ in taken)
    return tuple(HostGpus(host, tuple(n for h, n in taken if h == host)) for host in hosts)
