"""Ways between replicas: bytes in pieces, over every transport, and ends that are gone."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest

from tessera.backend.hosts import doors
from tessera.backend.hosts.doors import Door, DoorKeeper
from tessera.backend.hosts.messages import JoinDoor, OpenDoor, SendParts
from tessera.backend.processes.messages import PartsDone, sent_parts
from tessera.backend.transports.transport import TransportPlace
from tests.helpers.extras import need_nixl

LIMIT_S = 300.0


def place(name: str, kind: str) -> TransportPlace:
    host = "here" if kind == "one host" else name
    own = "nixl" if kind == "nixl" else "tcp"
    return TransportPlace(kind=own, name=name, host=host, token="secret", run="run", cut_s=60.0)


class Keeper:
    """A device with one state, and the doors that it keeps."""

    def __init__(self, size: int, seed: int) -> None:
        self.state = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
        self.told: queue.Queue[PartsDone] = queue.Queue()
        self.keeper = DoorKeeper(self.told.put, self._read, self._write)

    def _read(self, lane: int, parts: object) -> np.ndarray:
        return np.concatenate([self.state[s:e] for _, ranges in parts for s, e in ranges])

    def _write(self, lane: int, parts: object, content: np.ndarray) -> None:
        at = 0
        for _, ranges in parts:
            for start, end in ranges:
                self.state[start:end] = content[at : at + end - start]
                at += end - start

    def hear(self) -> PartsDone:
        return self.told.get(timeout=LIMIT_S)


@pytest.mark.parametrize("kind", ["one host", "hosts", "nixl"])
def test_bytes_go_through_in_pieces(kind: str) -> None:
    if kind == "nixl":
        need_nixl()
    size = 5 * doors.PIECE_BYTES
    first, second = Keeper(size, 1), Keeper(size, 2)
    first.keeper.obey(OpenDoor("d", place("d a", kind), "d b", sends=True))
    second.keeper.obey(OpenDoor("d", place("d b", kind), "d a", sends=False))
    addresses = [own.hear().address for own in (first, second)]
    for own, address in zip((first, second), reversed(addresses), strict=True):
        own.keeper.obey(JoinDoor("d", address))
    assert first.hear().is_done
    assert second.hear().is_done
    for begin, end in ((0, 3), (7, size - 5), (100, 100 + doors.PIECE_BYTES)):
        before = second.state.copy()
        parts = sent_parts([("s", [(begin, begin + 1), (begin + 1, end)])])
        there = sent_parts([("s", [(0, end - begin)])])
        second.keeper.obey(SendParts("d", 0, there, sends=False))
        first.keeper.obey(SendParts("d", 0, parts, sends=True))
        assert first.hear().is_done
        assert second.hear().is_done
        np.testing.assert_array_equal(second.state[: end - begin], first.state[begin:end])
        np.testing.assert_array_equal(second.state[end - begin :], before[end - begin :])
    # One end is gone: the other says that nothing was done, and does not wait.
    second.keeper.close()
    first.keeper.obey(SendParts("d", 0, sent_parts([("s", [(0, size)])]), sends=True))
    assert not first.hear().is_done
    first.keeper.close()


def test_an_end_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_WAIT_S", 0.05)
    ends = [Door(place(f"d {n}", "hosts"), f"d {m}", sends=n == "a") for n, m in ("ab", "ba")]
    joining = threading.Thread(target=ends[1].join, args=(ends[0].address,))
    joining.start()
    ends[0].join(ends[1].address)
    joining.join(LIMIT_S)
    with pytest.raises(OSError, match="does not answer"):
        ends[1].take(8)
    with pytest.raises(OSError, match="does not answer"):
        ends[0].send(np.zeros(3 * doors.PIECE_BYTES, np.uint8))
    for end in ends:
        end.close()
