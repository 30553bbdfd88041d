"""Arguments of driver calls that are structures: 2D copies and extended launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.backend.cuda.api import Driver, Handle


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
