"""The process of a device as an actor of a Ray cluster.

In: an address to listen at, and a token. Out: a connection over which the driver talks to the actor
as to any process of a device. Ray itself is not called again until the actor ends. Ray imports this
module on the node, so Tessera must be installed there.
"""

from __future__ import annotations

import os
import platform
import queue
import socket

from tessera.backend.hosts.channel import ControlChannel
from tessera.backend.hosts.messages import TO_DEVICE
from tessera.backend.transports.proved_links import ProvedListener
from tessera.driver.hosts.device_process import serve_channel
from tessera.ir.version import __version__
from tessera.settings import drop_empty

DRIVER = "driver"
_CALL_S = 30.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class DeviceActor:
    """One device, which Ray runs as an actor."""

    def listen(self, bind: str) -> dict[str, object]:
        """Listen at an address of this host; returns the port, the process id and versions."""
        self._listener = ProvedListener(bind)
        return {
            "port": self._listener.port,
            "pid": os.getpid(),
            "version": __version__,
            "python": platform.python_version(),
        }

    def serve(self, name: str, token: str, run: str) -> None:
        """Accept the call of the driver, which has the token; serve it until it hangs up."""
        # Ray hides GPUs from actors that request none; the plan says which GPUs to use.
        drop_empty(_VISIBLE)
        calls: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._listener.start(name, token, run, lambda _, link: calls.put(link))
        try:
            link = calls.get(timeout=_CALL_S)
        except queue.Empty:
            raise TimeoutError(f"the driver has not called within {_CALL_S:.0f} s") from None
        finally:
            self._listener.close()
        descriptor = link.detach()
        serve_channel(ControlChannel(descriptor, descriptor, TO_DEVICE))
