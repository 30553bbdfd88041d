"""A GPU cut into slices: green contexts with SMs of their own.

In: the number of SMs of every slice. Out: the green contexts of the wanted slices. The rest of a
cut can be cut again only as the SMs of a green context, so the rest has a green context while the
cut is made.

The SMs of a slice are groups of eight that lie together, so that clusters of up to 8 blocks run on
it: libraries launch such kernels without asking. Only if a GPU has no such slices of the requested
sizes are slices made of SMs from anywhere on the GPU; clusters of more than 2 blocks may then not
run.

This file is copied unchanged beside emitted programs, so it imports nothing of Tessera.

Source: CUDA driver API 12.8, green contexts; results of cuts on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol

_GROUP_SMS = 8
_TOGETHER, _ANYWHERE = 0, 1


class TooFewSms(RuntimeError):
    """A GPU does not have slices of the requested sizes."""


class SliceDriver(Protocol):
    """The driver's functions, as attributes of `cu` and by name.

    A call that fails raises `failure`.
    """

    cu: Any
    failure: type[Exception]

    def call(self, name: str, *args: Any) -> Any:
        """The results of a call."""


def split_gpu(
    driver: SliceDriver, ordinal: int, sms: Sequence[int], wanted: Sequence[int]
) -> tuple[tuple[Any, int], ...]:
    """Green contexts for some slices of a GPU, each with its number of SMs.

    `sms` are the SM counts of all slices, and `wanted` the slices to open: another process that
    opens other slices of the same list gets other SMs. A slice of all SMs is the GPU itself and has
    no context.
    """
    gpu = _CutGpu(driver, ordinal)
    if sum(sms) > _count(gpu.whole):
        raise TooFewSms(f"{sum(sms)} SMs are asked for, and there are {_count(gpu.whole)}")
    if [*sms] == [_count(gpu.whole)]:
        return tuple((None, sms[index]) for index in wanted)
    try:
        return _made(gpu, sms, wanted, _TOGETHER)
    except (TooFewSms, driver.failure):
        return _made(gpu, sms, wanted, _ANYWHERE)


class _CutGpu:
    """The GPU that is cut."""

    def __init__(self, driver: SliceDriver, ordinal: int) -> None:
        self.driver = driver
        self._device = driver.call("cuDeviceGet", ordinal)
        self._kind = driver.cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        self.whole = driver.call("cuDeviceGetDevResource", self._device, self._kind)

    def green(self, part: Any, kept: ExitStack) -> Any:
        """A green context, which the stack destroys."""
        described = self.driver.call("cuDevResourceGenerateDesc", [part], 1)
        green = self.driver.call("cuGreenCtxCreate", described, self._device, 1)
        kept.callback(self.driver.call, "cuGreenCtxDestroy", green)
        return green

    def split(self, left: Any, sms: int, flags: int) -> tuple[Any, Any]:
        """At least `sms` SMs, and the rest."""
        parts, _, rest = self.driver.call("cuDevSmResourceSplitByCount", 1, left, flags, sms)
        return parts[0], rest

    def to_be_cut(self, rest: Any, kept: ExitStack) -> Any:
        """The rest as a resource that can be cut, while its green context is kept."""
        return self.driver.call("cuGreenCtxGetDevResource", self.green(rest, kept), self._kind)


def _made(
    gpu: _CutGpu, sms: Sequence[int], wanted: Sequence[int], flags: int
) -> tuple[tuple[Any, int], ...]:
    with ExitStack() as kept, ExitStack() as made:
        cut = _cut(gpu, sms, flags, kept)
        contexts = tuple((gpu.green(cut[index], made), _count(cut[index])) for index in wanted)
        made.pop_all()  # the caller owns them now
    return contexts


def _cut(gpu: _CutGpu, sms: Sequence[int], flags: int, kept: ExitStack) -> list[Any]:
    """The SMs of every slice, cut one after the other.

    Slices whose SMs are not whole groups come last: one of them can be the rest after the others,
    and unused SMs, have been cut off.
    """
    order = sorted(range(len(sms)), key=lambda index: sms[index] % _GROUP_SMS != 0)
    pieces: list[Any] = [None for _ in sms]
    left = gpu.whole
    for index in order:
        is_last = index == order[-1]
        pieces[index], rest = _cut_one(gpu, left, sms[index], flags, is_last=is_last)
        left = None if is_last else gpu.to_be_cut(rest, kept)
    return pieces


def _cut_one(gpu: _CutGpu, left: Any, sms: int, flags: int, *, is_last: bool) -> tuple[Any, Any]:
    """Exactly `sms` SMs, and the rest."""
    if is_last and _count(left) == sms:
        return left, None
    part, rest = gpu.split(left, sms, flags)
    if _count(part) != sms and is_last:
        rest, part = gpu.split(left, _count(left) - sms, flags)
    if _count(part) != sms:
        where = "lie together" if flags == _TOGETHER else "can be cut off"
        raise TooFewSms(f"no {sms} SMs {where}: it would be {_count(part)}")
    return part, rest


def _count(resource: Any) -> int:
    return int(resource.sm.smCount)
