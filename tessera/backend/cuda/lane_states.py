"""States of lanes in which no request runs, read and set by the host.

In: a replica on GPUs. Out: the methods of `backend.service.Backend` for states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

from tessera.backend.cuda.api import Bytes
from tessera.backend.cuda.replica import CudaReplica
from tessera.backend.service import StateParts


class LaneStates(ABC):
    """The part of a backend that reads and sets states."""

    replica: CudaReplica

    @abstractmethod
    def _at_rest(self) -> AbstractContextManager[None]:
        """A context of the driver, in which its errors become faults."""

    def read_states(self, lane: int) -> Mapping[str, Bytes]:
        """The states of a lane in which no request runs."""
        with self._at_rest():
            return self.replica.contents.read_states(lane)

    def read_parts(self, lane: int, device: str, parts: StateParts) -> Bytes:
        """Bytes of states of a lane, as a device has them."""
        with self._at_rest():
            return self.replica.contents.read_parts(lane, device, parts)

    def write_parts(self, lane: int, device: str, parts: StateParts, content: Bytes) -> None:
        """Set bytes of states of a lane, on one device."""
        with self._at_rest():
            self.replica.contents.write_parts(lane, device, parts, content)
