"""The actor of a device, without Ray: strangers do not take the place of the driver."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time

import pytest

from tessera.backend.hosts.channel import ControlChannel
from tessera.backend.transports.proved_links import call_proved
from tessera.driver.hosts import device_actor
from tessera.driver.hosts.device_actor import DRIVER, DeviceActor

LIMIT_S = 300.0


def test_strangers_that_call_first_do_not_take_the_place_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: queue.Queue[ControlChannel] = queue.Queue()
    monkeypatch.setattr(device_actor, "serve_channel", served.put)
    actor = DeviceActor()
    port = int(str(actor.listen("127.0.0.1")["port"]))
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    for stranger in strangers[::2]:
        stranger.sendall(b"x\n")
    serving = threading.Thread(target=actor.serve, args=("left", "token", "run"))
    serving.start()
    name, link = call_proved(
        ("127.0.0.1", port), DRIVER, "token", run="run", deadline_s=time.monotonic() + LIMIT_S
    )
    serving.join(LIMIT_S)
    assert name == "left"
    channel = served.get(timeout=LIMIT_S)
    channel.start()
    assert link.recv(1) == b"\0"
    os.close(channel._source)
    for held in (link, *strangers):
        held.close()


def test_an_actor_that_nobody_calls_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_actor, "_CALL_S", 0.05)
    actor = DeviceActor()
    port = int(str(actor.listen("127.0.0.1")["port"]))
    with (
        socket.create_connection(("127.0.0.1", port)),
        pytest.raises(TimeoutError, match="the driver has not called"),
    ):
        actor.serve("left", "token", "run")
