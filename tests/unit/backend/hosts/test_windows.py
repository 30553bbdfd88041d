"""Where transfers are in windows, and notes that cannot be true."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.hosts.windows import TransportExchange
from tests.helpers.random_traces import random_program
from tests.helpers.served import model_of

HOSTS = {"a": "left", "b": "right"}


class Wire:
    """A transport that keeps what it is given."""

    address = ""

    def __init__(self) -> None:
        self.put_here: list[tuple[int, bytes]] = []

    def connect(self, peers: object, puts: object = ()) -> None: ...

    def put(self, peer: str, offset: int, content: np.ndarray, note: bytes) -> None:
        self.put_here.append((offset, note))

    def tell(self, peer: str, note: bytes) -> None: ...

    def close(self) -> None: ...


def exchanges() -> tuple[TransportExchange, TransportExchange, Wire, list[tuple[str, str]]]:
    program = random_program(12, steps=8)
    steps = ["ab"[n % 2] for n in range(len(program.steps))]
    lowered = model_of([program], [steps], slots=2, hosts=HOSTS).lowered
    made = {}
    for device in "ab":
        exchange = TransportExchange(lowered, device, np.zeros(1 << 20, np.uint8))
        made[device] = exchange
    wire, lost = Wire(), []
    for exchange in made.values():
        exchange.attach(wire, lambda peer, why: lost.append((peer, why)))
        exchange.begin(7, 0, 1)
    source, target = sorted(made.values(), key=lambda exchange: not exchange.puts())
    return source, target, wire, lost


def test_every_put_is_announced_and_in_memory_of_its_own() -> None:
    a, _, _, _ = exchanges()
    planned = {(put.offset, put.content.ctypes.data, put.content.nbytes) for put in a.puts()}
    assert planned
    for trace, number in a._ways:
        transfer = a._transfers[trace, number]
        offset, content = a._way(trace, 1, transfer, a._ways[trace, number])
        assert (offset, content.ctypes.data, content.nbytes) in planned
    inside = range(a.outgoing.ctypes.data, a.outgoing.ctypes.data + a.outgoing.nbytes + 1)
    for _, start, size in planned:
        assert start in inside
        assert start + size in inside


@pytest.mark.parametrize("change", ["", "slot", "short"])
def test_a_note_for_another_slot_is_not_believed(change: str) -> None:
    a, b, wire, lost = exchanges()
    (trace, number), landing = next(iter(a._ways.items()))
    transfer = a._transfers[trace, number]
    a.post(7, 1, transfer, landing)
    ((_, note),) = wire.put_here
    if change == "slot":
        note = note[:-8] + (0).to_bytes(8, "little")
    elif change == "short":
        note = note[:-1]
    heard: list[object] = []
    b.hear("peer", note, lambda *words: heard.append(words), lambda *words: heard.append(words))
    assert heard == ([] if change else [(7, transfer.id)])
    assert bool(lost) == bool(change)
