"""A GPU cut into slices: green contexts with SMs of their own.

In: the SMs of every slice. Out: the green contexts of those that are wanted. What a cut leaves over
cannot be cut again, so it is one cut for all slices of a GPU.

Source: CUDA driver API 12.8, green contexts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tessera.backend.cuda.api import Driver, DriverError, Handle

_GROUP_SMS = 8
_IGNORE_COSCHEDULING = 1


def split_gpu(
    driver: Driver, ordinal: int, sms: Sequence[int], wanted: Sequence[int]
) -> tuple[tuple[Handle, int], ...]:
    """Green contexts for some of the slices that a GPU is cut into, with the SMs they got.

    `sms` are those of every slice, `wanted` says which to make: who asks for other slices of the
    same list gets other SMs.
    """
    device = driver.call("cuDeviceGet", ordinal)
    kind = driver.cu.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = driver.call("cuDeviceGetDevResource", device, kind)
    if sum(sms) > int(whole.sm.smCount):
        raise DriverError("cuDevSmResourceSplitByCount", 1, "too few SMs")
    made = []
    cut = _cut(driver, whole, sms)
    for parts in (cut[index] for index in wanted):
        described = driver.call("cuDevResourceGenerateDesc", parts, len(parts))
        green = driver.call("cuGreenCtxCreate", described, device, 1)
        made.append((green, sum(int(part.sm.smCount) for part in parts)))
    return tuple(made)


def _cut(driver: Driver, whole: Any, sms: Sequence[int]) -> list[list[Any]]:
    """The parts of every slice.

    Parts are groups of 8 SMs that lie together, for clusters; if these are too few, groups of 8
    or 2 wherever they lie. Of two slices that use up the GPU one may be what is left over.
    """
    count = int(whole.sm.smCount)
    if len(sms) == 2 and sum(sms) == count and any(n % _GROUP_SMS == 0 for n in sms):
        first = 0 if sms[0] % _GROUP_SMS == 0 else 1
        parts, _, rest = driver.call("cuDevSmResourceSplitByCount", 1, whole, 0, sms[first])
        return [[parts[0]], [rest]] if first == 0 else [[rest], [parts[0]]]
    if len(sms) == 1 and sms[0] == count:
        return [[whole]]
    for size, flags in (
        (_GROUP_SMS, 0),
        (_GROUP_SMS, _IGNORE_COSCHEDULING),
        (2, _IGNORE_COSCHEDULING),
    ):
        groups = [-(-wanted // size) for wanted in sms]
        if size > 2 and any(wanted % size for wanted in sms):
            continue
        asked = (count // size, whole, flags, size)
        parts, usable, _ = driver.call("cuDevSmResourceSplitByCount", *asked)
        if sum(groups) <= int(usable):
            ends = list(itertools.accumulate(groups))
            return [list(parts[end - n : end]) for end, n in zip(ends, groups, strict=True)]
    raise DriverError("cuDevSmResourceSplitByCount", 1, "too few groups of SMs")
