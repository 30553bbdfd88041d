"""Links to processes: what counts as silent, and who is handed to the next run."""

from __future__ import annotations

import os
import queue
import socket
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tessera.backend.hosts.channel import BadMessage, ControlChannel
from tessera.backend.hosts.device_link import DeviceLink
from tessera.backend.hosts.link_pool import LinkPool
from tessera.backend.hosts.messages import FROM_DEVICE, TO_DEVICE, Release
from tessera.backend.service import ServiceFault
from tessera.ir.plan.hosts import HostEntry

HOST = HostEntry(name="left")


def test_a_record_that_is_long_in_coming_is_heard() -> None:
    source, target = os.pipe()
    channel = ControlChannel(source, os.dup(target), TO_DEVICE)
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(channel.receive()))
    thread.start()
    os.write(target, struct.pack("<II", 18, 1) + struct.pack("<Q", 2) + b'{"kind":"release"}x')
    deadline = time.monotonic() + 600  # a hang, not a busy machine
    while not channel.read_s and time.monotonic() < deadline:
        time.sleep(0.001)
    assert channel.read_s > 0
    assert not got
    os.write(target, b"y")
    thread.join(300)
    ((head, (part,)),) = got  # type: ignore[misc]
    assert (head, part.tobytes()) == (Release(), b"xy")
    os.close(source)
    os.close(target)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"kind":"nonsense"}', "Invalid value 'nonsense'"),
        (b'{"kind":"begin","number":1}', "missing required field `trace`"),
        (b'{"kind":"release","more":1}', "unknown field `more`"),
        (b'{"kind":"askstates","lane":"1"}', "Expected `int`, got `str` - at `$.lane`"),
        (b'{"kind":"done","number":1,"events":[]}', "Invalid value 'done'"),
        (b"[]", "Expected `object`, got `array`"),
        (b"nothing", "malformed"),
    ],
)
def test_what_is_no_message_is_an_error(text: bytes, why: str, tmp_path: Path) -> None:
    """Also a message that the other end may not send: nothing is skipped."""
    frame = tmp_path / "frame"
    frame.write_bytes(struct.pack("<II", len(text), 0) + text)
    with frame.open("rb") as stream, pytest.raises(BadMessage, match=why.replace("$", r"\$")):
        ControlChannel(stream.fileno(), -1, TO_DEVICE).receive()


def test_a_link_hands_on_what_cannot_be_read() -> None:
    here, there = socket.socketpair()
    process = SimpleNamespace(
        source=here.fileno(), target=here.fileno(), close_source=here.close, close_target=here.close
    )
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    link = DeviceLink("a", HOST, inbox, lambda host: process)  # type: ignore[arg-type, return-value]
    ControlChannel(there.fileno(), there.fileno(), FROM_DEVICE).start()
    there.send(struct.pack("<II", 18, 0) + b'{"kind":"release"}')
    device, problem, _ = inbox.get(timeout=300)
    assert (device, type(problem)) == ("a", BadMessage)
    assert inbox.get(timeout=300)[1] is None  # nothing more is read from it
    link.hang_up()
    there.close()


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
