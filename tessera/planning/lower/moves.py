"""The actions of one request, in one order that all devices can follow.

In: the bytes of a trace in grains, the device of each step, and where persistent bytes are between
requests. Out: actions in order: steps, fills, and transfers with the bytes that they carry.

Steps are taken in file order. For every grain of a buffer the walk knows its version: the last step
that may have written it, and the devices that hold it. A step needs the grains that it may read,
and those that it may write but need not. Missing grains are sent to its device from the device that
made the version. A transfer takes its place in the order as early as it can: after the step that
made the bytes, and after all that touched the old bytes at the target. So every action comes after
those it waits for, and queues that follow the order cannot deadlock. That holds for any position up
to the step that needs the bytes. Transfers for a later stage are placed at the beginning of the
stage before it: a queue sends one transfer at a time, and bytes that the next stage waits for would
otherwise queue behind bytes that are needed much later.

What one step is the first to need from one device is sent together, at the latest place of all of
it: the step waits for the last of it anyway, and each transfer costs both devices time, whatever
its size. Bytes that would have to wait for others go ahead of them if they are many, so that they
are on their way while the others are made. Every step between the place and the step that needs the
bytes leaves them alone: another version would have to be sent. Transfers from and to the host, and
those of the two directions between devices, stay apart.

Twins are one step: what they need is sent before any of them runs, they write one version, and the
devices of all of them hold it. It is sent on from the first of them.

Source: decision record 0005.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from tessera.ir.plan.launch_program import HOST, Fill, Portion, Run, Transfer, TransferId
from tessera.ir.program import program as ir
from tessera.planning.lower.grains import Grains, TraceBytes

Place = tuple[int, int, int]
"""Position in the order: the step, then fills before steps before transfers, then a count."""

HomeGrains = Mapping[int, Sequence[tuple[str, Grains]]]
"""For each buffer, the devices that keep grains of it between requests."""

_START = (-1, 0, 0)
_FILL, _STEP, _TRANSFER = 0, 1, 2
_STAGE_STEPS = 16
"""Minimum number of consecutive steps on a device for a stage, in which others can send."""

LEAST_AHEAD = 128 << 10
"""Bytes that are sent ahead of others that the same step waits for; fewer go with the others. At 25
GB/s they take 5 us, and a transfer costs the devices as much before its first byte moves."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action on `device`; a transfer involves both of its ends.

    `covered` has the buffers and grains that a fill or a transfer covers.
    """

    place: Place
    device: str
    what: Run | Fill | Transfer
    covered: tuple[tuple[int, Grains], ...] = ()


class _Ready(NamedTuple):
    """Grains of one version that can be sent to a device: from where, and after which step."""

    origin: str
    after: int
    buffer: int
    grains: Grains


class _Version(NamedTuple):
    """Bytes that `step` wrote (-1: present at the start) on `origin`; None: undefined contents."""

    step: int
    origin: str | None
    holders: frozenset[str]


def find_actions(
    trace: TraceBytes, devices: Sequence[str], every: Sequence[str], homes: HomeGrains
) -> list[Action]:
    """All actions of one request on `every` device, for the given device of each step.

    `homes` has the persistent grains that some step of the replica writes.
    """
    walk = _MoveWalk(trace, frozenset(every), homes, _stages_before(devices))
    for group in trace.groups:
        walk.step(group, [devices[step] for step in group])
    walk.finish()
    ordered = sorted(walk.actions, key=lambda action: action.place)
    return list(_numbered(ordered))


def _numbered(actions: list[Action]) -> Iterator[Action]:
    """The same actions with transfers numbered in their order."""
    count = 0
    for action in actions:
        if isinstance(action.what, Transfer):
            yield replace(action, what=replace(action.what, id=TransferId(count)))
            count += 1
        else:
            yield action


def _stages_before(devices: Sequence[str]) -> list[int]:
    """For each step, the last step before the stage that precedes its own; -1 if there is none."""
    before: list[int] = []
    last = -1
    for _, run in groupby(devices):
        first, count = len(before), len(list(run))
        before += [last] * count
        if count >= _STAGE_STEPS:
            last = first - 1
    return before


class _MoveWalk:
    """Versions of all grains, and the last touches on each device.

    `earliest` gives, for each step, the step after which its transfers go even if they could go
    earlier.
    """

    def __init__(
        self,
        trace: TraceBytes,
        every: frozenset[str],
        homes: HomeGrains,
        earliest: Sequence[int],
    ) -> None:
        self.trace = trace
        self.every = every
        self.homes = homes
        self.earliest = earliest
        self.actions: list[Action] = []
        self.versions: dict[int, list[_Version]] = {}
        self.touches: dict[tuple[str, int], list[Place]] = {}

    def step(self, group: Sequence[ir.LaunchId], devices: Sequence[str]) -> None:
        """Send the grains that a step or twins need, and record the version that they write."""
        for step, device in zip(group, devices, strict=True):
            earliest = self.earliest[step]
            missing = [
                ready
                for buffer, use in self.trace.tracked_steps[step]
                for ready in self._missing(buffer, use.needed, device, step, earliest)
            ]
            self._send_all(missing, device)
        own = _Version(group[-1], devices[0], frozenset(devices))
        for step, device in zip(group, devices, strict=True):
            at = (int(step), _STEP, 0)
            self.actions.append(Action(at, device, Run(step)))
            for buffer, use in self.trace.tracked_steps[step]:
                self._touch(device, buffer, use.touched, at)
                versions = self._versions(buffer)
                for grain in use.written:
                    versions[grain] = own

    def finish(self) -> None:
        """Send outputs to the host, and persistent bytes to their homes for the next request."""
        for buffer in self.trace.program.buffers:
            number = int(buffer.id)
            if buffer.role is ir.Role.OUTPUT and buffer.bytes:
                whole = tuple(range(len(self.trace.grains[number].bytes)))
                self._send_all(self._last(number, whole, HOST), HOST)
        at_home: dict[str, list[_Ready]] = {}
        for number, kept in self.homes.items():
            for device, grains in kept:
                at_home.setdefault(device, []).extend(self._last(number, grains, device))
        for device, missing in at_home.items():
            self._send_all(missing, device)

    def _missing(
        self, buffer: int, needed: Grains, device: str, step: int, earliest: int
    ) -> Iterator[_Ready]:
        """What a step needs and its device does not have; what nobody has made is filled."""
        versions = self._versions(buffer)
        missing: dict[tuple[str, int], list[int]] = {}
        blank: list[int] = []
        for grain in needed:
            version = versions[grain]
            if device in version.holders:
                continue
            if version.origin is None:
                blank.append(grain)
            else:
                missing.setdefault((version.origin, version.step), []).append(grain)
        if blank:
            grains = tuple(blank)
            filled = self.trace.grains[buffer].pairs(grains)
            place = (step, _FILL, len(self.actions))
            fill = Fill(ir.BufferId(buffer), filled)
            self.actions.append(Action(place, device, fill, ((buffer, grains),)))
            self._touch(device, buffer, grains, place)
            self._hold(buffer, grains, device)
        for (origin, _), pieces in missing.items():
            yield self._ready(buffer, tuple(pieces), origin, device, earliest)

    def _last(self, buffer: int, wanted: Grains, target: str) -> Iterator[_Ready]:
        """The last version of grains for a target; those without a writer are there already."""
        words = self.trace.words_in(buffer)
        versions = self._versions(buffer)
        missing: dict[str, list[int]] = {}
        for grain in wanted:
            version = versions[grain]
            if grain not in words and version.origin is not None and target not in version.holders:
                missing.setdefault(version.origin, []).append(grain)
        for origin, pieces in missing.items():
            yield self._ready(buffer, tuple(pieces), origin, target)

    def _ready(
        self, buffer: int, moved: Grains, origin: str, target: str, earliest: int = -1
    ) -> _Ready:
        versions = self._versions(buffer)
        after = max(earliest, *(versions[grain].step for grain in moved))
        if target != HOST:
            touches = self._touches(target, buffer)
            after = max(after, *(touches[grain][0] for grain in moved))
        return _Ready(origin, after, buffer, moved)

    def _send_all(self, missing: Iterable[_Ready], target: str) -> None:
        """Send what one step needs, or what belongs at the target after the last step."""
        by_origin: dict[str, list[_Ready]] = {}
        for ready in missing:
            by_origin.setdefault(ready.origin, []).append(ready)
        for origin, rows in by_origin.items():
            if HOST in (origin, target):
                for ready in rows:
                    self._send([ready], target)
                continue
            rows.sort(key=lambda ready: -ready.after)
            while rows:
                self._send(self._together(rows), target)

    def _together(self, rows: list[_Ready]) -> list[_Ready]:
        """Take from the front of rows, the latest first, what is sent together."""
        taken, waiting = 0, 0
        for ready in rows:
            if ready.after < rows[0].after:
                pairs = self.trace.grains[ready.buffer].pairs(ready.grains)
                waiting += sum(end - start for start, end in pairs)
                if waiting >= LEAST_AHEAD:
                    break
            taken += 1
        together, rows[:taken] = rows[:taken], []
        return together

    def _send(self, together: Sequence[_Ready], target: str) -> None:
        origin, place = together[0].origin, (together[0].after, _TRANSFER, len(self.actions))
        by_buffer: dict[int, list[int]] = {}
        for ready in together:
            by_buffer.setdefault(ready.buffer, []).extend(ready.grains)
        covered = tuple((buffer, tuple(sorted(by_buffer[buffer]))) for buffer in sorted(by_buffer))
        transfer = Transfer(
            id=TransferId(-1),
            source=origin,
            target=target,
            portions=tuple(
                Portion(ir.BufferId(buffer), self.trace.grains[buffer].pairs(moved))
                for buffer, moved in covered
            ),
        )
        doer = target if origin == HOST else origin
        self.actions.append(Action(place, doer, transfer, covered))
        for buffer, moved in covered:
            for end in (origin, target):
                if end != HOST:
                    self._touch(end, buffer, moved, place)
            self._hold(buffer, moved, target)

    def _hold(self, buffer: int, held: Grains, device: str) -> None:
        versions = self._versions(buffer)
        for grain in held:
            old = versions[grain]
            versions[grain] = _Version(old.step, old.origin, old.holders | {device})

    def _touch(self, device: str, buffer: int, touched: Grains, place: Place) -> None:
        touches = self._touches(device, buffer)
        for grain in touched:
            touches[grain] = max(touches[grain], place)

    def _touches(self, device: str, buffer: int) -> list[Place]:
        key = (device, buffer)
        if key not in self.touches:
            self.touches[key] = [_START] * len(self.trace.grains[buffer].bytes)
        return self.touches[key]

    def _versions(self, buffer: int) -> list[_Version]:
        if buffer not in self.versions:
            self.versions[buffer] = self._first_versions(buffer)
        return self.versions[buffer]

    def _first_versions(self, buffer: int) -> list[_Version]:
        count = len(self.trace.grains[buffer].bytes)
        match self.trace.program.buffers[buffer].role:
            case ir.Role.INPUT:
                return [_Version(-1, HOST, frozenset((HOST,)))] * count
            case ir.Role.OUTPUT | ir.Role.TEMP:
                return [_Version(-1, None, frozenset((HOST,)))] * count
            case _:
                # Grains that no step writes are the same on every device from the start.
                versions = [_Version(-1, None, self.every)] * count
                at_home: dict[int, list[str]] = {}
                for device, grains in self.homes.get(buffer, ()):
                    for grain in grains:
                        at_home.setdefault(grain, []).append(device)
                for grain, devices in at_home.items():
                    versions[grain] = _Version(-1, devices[0], frozenset(devices))
                return versions
