"""The process of one device on a host: `python -m tessera.driver.hosts.device_process`.

In: messages on standard input. Out: messages on standard output. The first message has the plan,
which is proved here before any part of it runs. After a release the process waits for another plan.
It ends with its channel, or when the driver has been silent for two minutes. Standard output
carries only messages: other output goes to standard error.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tessera.backend.hosts.channel import ChannelClosed, ControlChannel
from tessera.backend.hosts.messages import (
    TO_DEVICE,
    Beat,
    Examine,
    Hello,
    HostSetup,
    Released,
    ToDevice,
    sent_fault,
)
from tessera.backend.processes.messages import Message, fault_of
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.version import __version__

if TYPE_CHECKING:
    from tessera.backend.cuda.process_part import GpuPart
    from tessera.backend.service import Model

_BEAT_S = 0.1
_SWITCH_S = 0.0002
_ORPHAN_S = 120.0

_Heard = TypeVar("_Heard", bound=Message)


def main() -> None:
    """Serve the driver over standard input and output."""
    serve_channel(standard_channel(TO_DEVICE))


def standard_channel(hears: msgspec.json.Decoder[_Heard]) -> ControlChannel[_Heard]:
    """A channel over standard input and output, which are closed to all other code."""
    channel = ControlChannel(os.dup(0), os.dup(1), hears)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return channel


def serve_channel(channel: ControlChannel[ToDevice]) -> None:
    """Send a greeting, then receive, prove and serve plans until the driver is gone."""
    # Transfers and signs of life must not wait for a kernel to release the interpreter.
    sys.setswitchinterval(_SWITCH_S)
    busy = threading.Event()
    with suppress(ChannelClosed):
        channel.start()
        channel.send(Hello(__version__, os.getpid()))
        threading.Thread(target=_beat, args=(channel, busy), daemon=True).start()
        try:
            last: GpuPart | None = None
            while True:
                last = _serve(channel, busy, last)
        except ChannelClosed:
            raise
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            headline = f"the process of a device cannot be set up: {reason}"
            fault = TesseraError(error("TSR5071", headline), ExitCode.NO_DEVICE)
            channel.send(sent_fault(fault_of(fault)))
        except BaseException as problem:
            channel.send(sent_fault(fault_of(problem)))
        while True:  # until the driver hangs up, which ends this process
            channel.receive()


def _serve(
    channel: ControlChannel[ToDevice], busy: threading.Event, last: GpuPart | None
) -> GpuPart | None:
    """Serve one run; returns the part that stays on a GPU until the next run begins."""
    from tessera.backend.hosts.examined import be_examined
    from tessera.backend.hosts.host_worker import HostWorker
    from tessera.driver.hosts.sent_plan import received_model

    setup, parts = channel.receive()
    while not isinstance(setup, HostSetup):
        if isinstance(setup, Examine):
            be_examined(channel, setup.place)
        setup, parts = channel.receive()
    if last is not None:
        last.free_window()
    model = received_model(setup.plan, setup.place.host, parts)
    if setup.options.targets:
        return _serve_gpu(channel, busy, model, setup, last)
    if last is not None:
        last.leave()
    worker = HostWorker(channel, model, setup.options, setup.place)
    busy.set()
    worker.serve()
    busy.clear()
    del worker, model, parts
    gc.collect()
    channel.send(Released())
    return None


def _serve_gpu(
    channel: ControlChannel[ToDevice],
    busy: threading.Event,
    model: Model,
    setup: HostSetup,
    last: GpuPart | None,
) -> GpuPart:
    from tessera.backend.cuda.process_part import GpuPart
    from tessera.backend.hosts.gpu_worker import GpuWorker
    from tessera.passes.checker.circles import check_circles

    place = setup.place
    part = GpuPart(model, place.name, setup.options, hosts=setup.hosts, place=place)
    for orders in part.stream_operations():
        # All processes get all requests in one order, so two stand for any number.
        circle = check_circles(orders, dict.fromkeys(orders, (0, 1)))
        if circle is not None:
            raise TesseraError(circle)
    if last is not None:
        last.leave()  # not earlier: making a new context takes seconds on a busy GPU
    busy.set()
    GpuWorker(channel, part, beat_s=place.beat_s, orphan=lambda: os._exit(0)).serve()
    busy.clear()
    channel.send(Released())
    return part


def _beat(channel: ControlChannel[ToDevice], busy: threading.Event) -> None:
    """Send signs of life while a plan is proved; end the process if the driver is gone."""
    try:
        while True:
            since_s = channel.waits_since_s
            if since_s is not None and time.monotonic() - since_s > _ORPHAN_S:
                os._exit(0)
            if not busy.is_set():
                channel.send(Beat())
            time.sleep(_BEAT_S)
    except ChannelClosed:
        os._exit(0)


if __name__ == "__main__":
    main()
