"""Driver call arguments that are structures: parameters, 2D copies, extended launches.

In: numbers and bytes. Out: what the bindings take. This file is copied unchanged beside emitted
programs, so it imports nothing of Tessera but the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.backend.cuda.api import Driver, Handle


@dataclass(frozen=True, slots=True)
class LaunchParameters:
    """Packed parameters; a launch takes their `address`, which is 0 if there are none."""

    address: int
    kept: tuple[Any, ...]


def pack(values: Sequence[bytes]) -> LaunchParameters:
    """Pack the parameters of a launch; each value is one parameter."""
    if not values:
        return LaunchParameters(0, ())
    # Values start at multiples of 16 bytes, so that every value is aligned as its type may require.
    starts = np.cumsum([0, *(-(-max(len(v), 1) // 16) * 16 for v in values)])
    block = np.zeros(int(starts[-1]), np.uint8)
    for start, value in zip(starts, values, strict=False):
        block[start : start + len(value)] = np.frombuffer(value, np.uint8)
    pointers = (block.ctypes.data + starts[:-1]).astype(np.uint64)
    return LaunchParameters(int(pointers.ctypes.data), (block, pointers))


def copy_2d(
    driver: Driver,
    target: int,
    target_pitch: int,
    source: int,
    source_pitch: int,
    width: int,
    rows: int,
) -> Any:
    """The argument of a 2D copy between any two addresses."""
    copy = driver.cu.CUDA_MEMCPY2D()
    unified = driver.cu.CUmemorytype.CU_MEMORYTYPE_UNIFIED
    copy.srcMemoryType = copy.dstMemoryType = unified
    copy.srcDevice, copy.srcPitch = source, source_pitch
    copy.dstDevice, copy.dstPitch = target, target_pitch
    copy.WidthInBytes, copy.Height = width, rows
    return copy


def launch_config(
    driver: Driver,
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
    stream: Handle,
    cluster: Sequence[int] | None,
    cooperative: bool,
) -> Any:
    """The argument of an extended launch."""
    config = driver.cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = shared
    config.hStream = stream
    identifiers = driver.cu.CUlaunchAttributeID
    attributes = []
    if cluster is not None:
        attribute = driver.cu.CUlaunchAttribute()
        attribute.id = identifiers.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = (
            cluster
        )
        attributes.append(attribute)
    if cooperative:
        attribute = driver.cu.CUlaunchAttribute()
        attribute.id = identifiers.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        attributes.append(attribute)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config
