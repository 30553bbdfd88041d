"""A device that several requests share, and that slows down beside busy slices of its card.

In: the steps under way on a device, and the number of busy neighbours. Out: the speed of each step.

The share of a step is its device time (`ns`) over its time when alone there (`alone_ns`). The first
step gets its share, the next one the remainder up to its own share. Alone, a step takes between
`quiet_ns` and `alone_ns`, interpolated by the fraction of neighbours that compute.

A GPU orders steps by priority alone. The priority of a request that is split over devices rises as
it advances, so the oldest of them is first. Requests on one device all have the lowest priority:
the step that has been ready for longest is first, so that they take turns, step by step. If several
replicas compute, the oldest request is first: each replica always has requests, so those of one
replica could otherwise hold back those of another forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.simulation.intake import MovingRequest
from tessera.simulation.work import COMPUTE, RequestWork

FULL = 1 - 1e-9
"""Shares are sums of floats: a device is full above this total."""

_BEHIND = 1 << 60
"""A rank above the age of any request."""


class SharedStep:
    """A step under way. `left` is the fraction not done at `since_ns`; `count` is its event.

    Steps of lower rank go first.
    """

    __slots__ = (
        "began_ns",
        "count",
        "left",
        "node",
        "rank",
        "request",
        "share",
        "since_ns",
        "speed",
    )

    def __init__(self, request: MovingRequest, node: int, rank: int, now_ns: float) -> None:
        self.request = request
        self.node = node
        self.rank = rank
        self.share = request.columns.ns[node] / request.columns.alone_ns[node]
        self.left = 1.0
        self.speed = 0.0
        self.began_ns = self.since_ns = now_ns
        self.count = 0

    def go_on(self, speed: float, now_ns: float) -> None:
        """Continue at another speed from now on."""
        self.left = max(self.left - (now_ns - self.since_ns) * self.speed, 0.0)
        self.since_ns = now_ns
        self.speed = speed


class SharedDevice:
    """The steps under way on a device, lowest rank first.

    `neighbours` are places; `others` is their total number. `in_turns`: requests that use only this
    device take turns.
    """

    def __init__(self, neighbours: Sequence[int], others: int, *, in_turns: bool) -> None:
        self.neighbours = neighbours
        self._in_turns = in_turns
        self.others = others
        self.steps: list[SharedStep] = []
        self.busy_since_ns = 0.0
        self._came = 0

    def rank(self, request: MovingRequest) -> int:
        """The rank of a step that becomes ready now."""
        if request.columns.is_split or not self._in_turns:
            return request.age
        self._came += 1
        return _BEHIND + self._came

    def has_room(self) -> bool:
        """Whether the device accepts more work."""
        return sum(step.share for step in self.steps) < FULL

    def take(self, step: SharedStep) -> None:
        """Add a step that begins."""
        self.steps.append(step)
        self.steps.sort(key=lambda step_taken: (step_taken.rank, step_taken.node))

    def drop(self, request: MovingRequest, node: int) -> SharedStep:
        """Remove and return a step that has ended."""
        (done,) = (step for step in self.steps if step.request is request and step.node == node)
        self.steps.remove(done)
        return done

    def speeds(self, busy_neighbours: int) -> Iterator[tuple[SharedStep, float]]:
        """The speed of each step: the fraction done per nanosecond."""
        beside = busy_neighbours / self.others if self.others else 0.0
        room = 1.0
        for step in self.steps:
            columns, node = step.request.columns, step.node
            given = min(step.share, room)
            room -= given
            quiet_ns = columns.quiet_ns[node]
            full_ns = quiet_ns + beside * (columns.alone_ns[node] - quiet_ns)
            yield step, given / (step.share * full_ns)


def shared_devices(
    names: Sequence[str],
    works: Sequence[Mapping[int, RequestWork]],
    neighbours: Mapping[str, Sequence[str]],
) -> list[SharedDevice | None]:
    """Devices whose step times depend on other work, by place, with their neighbours."""
    shared: set[str] = set()
    users: dict[str, set[int]] = {}
    for index, work in enumerate(works):
        for node in (node for own in work.values() for node in own.nodes):
            if node.kind != COMPUTE:
                continue
            users.setdefault(node.place[0], set()).add(index)
            if not node.ns == node.alone_ns == node.quiet_ns:
                shared.update(node.place, *(neighbours.get(name, ()) for name in node.place))
    numbers = {name: number for number, name in enumerate(names)}
    devices: list[SharedDevice | None] = []
    for name in names:
        others = neighbours.get(name, ())
        places = [numbers[other] for other in others if other in numbers]
        in_turns = len(users.get(name, ())) == 1
        device = SharedDevice(places, len(others), in_turns=in_turns)
        devices.append(device if name in shared else None)
    return devices
