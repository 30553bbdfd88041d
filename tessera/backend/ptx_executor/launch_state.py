"""A launch in progress, as its chunks and instructions see it; `launch` runs it."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backend.ptx_executor.emit.compiled import KernelProgram
from tessera.backend.ptx_executor.memory.access_log import AccessLog
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, AddressSpace, Array
from tessera.backend.ptx_executor.memory.watch import LaunchWatch

DEFAULT_STEPS = 1 << 25


@dataclass(slots=True, kw_only=True)
class LaunchState:
    """A launch in progress. Chunks and instructions read it; see `device` for the checks."""

    program: KernelProgram
    space: AddressSpace
    log: AccessLog
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    explicit_cluster: bool = False
    dynamic_shared: int = 0
    workspace: int = 0
    parameter_bytes: Array
    symbols: list[Array]
    number: int = 0
    start_ns: int = 0
    max_steps: int = DEFAULT_STEPS
    watch: LaunchWatch | None = None
    has_read_only: bool = False
    output: list[str]
    parameters: dict[tuple[int, int], Array]
    tensor_maps: dict[int, object]

    @property
    def reserved_start(self) -> int:
        """Where the shared memory that the kernel asked for ends."""
        asked = self.program.shared_static + self.dynamic_shared
        return asked if not self.program.reserved_shared else -(-asked // 16) * 16

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: static, dynamic, and the system's part if it is used."""
        return self.reserved_start + self.program.reserved_shared

    @property
    def parameter_size(self) -> int:
        """Bytes of the kernel's parameters."""
        return self.program.parameter_size

    @property
    def cluster_size(self) -> int:
        """CTAs in a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    def parameter(self, offset: int, width: int) -> Array:
        """A parameter word as a value that all lanes share."""
        word = self.parameters.get((offset, width))
        if word is None:
            raw = self.parameter_bytes[offset : offset + width]
            word = raw.copy().view(UNSIGNED[width]).reshape(1, 1)
            self.parameters[offset, width] = word
        return word
