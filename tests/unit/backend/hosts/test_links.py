"""Links to processes: what counts as silent, and who is handed to the next run."""

from __future__ import annotations

import os
import queue
import struct
import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest

from tessera.backend.hosts.channel import ControlChannel
from tessera.backend.hosts.device_link import DeviceLink
from tessera.backend.hosts.link_pool import LinkPool
from tessera.backend.service import ServiceFault
from tessera.ir.plan.hosts import HostEntry

HOST = HostEntry(name="left")


def test_a_record_that_is_long_in_coming_is_heard() -> None:
    source, target = os.pipe()
    channel = ControlChannel(source, os.dup(target))
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(channel.receive()))
    thread.start()
    os.write(target, struct.pack("<II", 2, 1) + struct.pack("<Q", 2) + b"{}x")
    deadline = time.monotonic() + 600  # a hang, not a busy machine
    while not channel.read_s and time.monotonic() < deadline:
        time.sleep(0.001)
    assert channel.read_s > 0
    assert not got
    os.write(target, b"y")
    thread.join(300)
    ((head, (part,)),) = got  # type: ignore[misc]
    assert (head, part.tobytes()) == ({}, b"xy")
    os.close(source)
    os.close(target)


@pytest.mark.parametrize("silent_s", [0.0, 5.0])
def test_a_kept_process_that_is_silent_is_ended(silent_s: float) -> None:
    ended: list[str] = []
    kept = SimpleNamespace(
        host=HOST,
        device="a",
        is_gone=False,
        heard_s=time.monotonic() - silent_s,
        serve_as=lambda device, inbox: None,
        hang_up=lambda: ended.append("hang up"),
        end=lambda deadline_s: ended.append("end"),
    )

    def refuse(host: HostEntry) -> None:
        raise OSError("no more")

    pool = LinkPool(refuse)  # type: ignore[arg-type]
    pool._idle.append(cast(DeviceLink, kept))
    if silent_s:
        with pytest.raises(ServiceFault, match="no more"):
            pool.take("a", HOST, queue.SimpleQueue())
        assert ended == ["hang up", "end"]
    else:
        assert pool.take("a", HOST, queue.SimpleQueue()) is kept
        assert not ended
