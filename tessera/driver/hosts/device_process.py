"""The process of one device on a host: `python -m tessera.driver.hosts.device_process`.

In: records on standard input. Out: records on standard output. The first one has the plan; it is
proved here before anything of it runs. When the driver lets go of it, it waits for another plan; it
ends with its channel, or when the driver has said nothing for minutes. Nothing else may write to
standard output: it is moved away.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from tessera.backend.hosts.channel import ChannelClosed, ControlChannel, Head
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.ir.version import __version__

if TYPE_CHECKING:
    from tessera.backend.cuda.process_part import GpuPart
    from tessera.backend.service import BackendOptions, Model
    from tessera.backend.transports.choice import TransportPlace

_BEAT_S = 0.1
_SWITCH_S = 0.0002
_ORPHAN_S = 120.0


def main() -> None:
    """Serve the driver over standard input and output."""
    serve_channel(standard_channel())


def standard_channel() -> ControlChannel:
    """Over standard input and output, which nobody else can use from then on."""
    channel = ControlChannel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return channel


def serve_channel(channel: ControlChannel) -> None:
    """Greet, read what to be, prove it, and serve until the driver is gone."""
    # Transfers and beats must not wait for the interpreter of a kernel to let go.
    sys.setswitchinterval(_SWITCH_S)
    busy = threading.Event()
    with suppress(ChannelClosed):
        channel.start()
        channel.send({"kind": "hello", "version": __version__, "pid": os.getpid()})
        threading.Thread(target=_beat, args=(channel, busy), daemon=True).start()
        try:
            last: GpuPart | None = None
            while True:
                last = _serve(channel, busy, last)
        except TesseraError as failure:
            channel.send(_fault(failure))
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            headline = f"the process of a device cannot be set up: {reason}"
            fault = error("TSR5071", headline)
            channel.send(_fault(TesseraError(fault, ExitCode.NO_DEVICE)))
        except MemoryError:
            channel.send(_fault(TesseraError(error("TSR5020", "the host is out of memory"), 6)))
        except ChannelClosed:
            raise
        except BaseException as problem:
            text = "".join(traceback.format_exception(problem))
            channel.send(
                {
                    "kind": "fault",
                    "diagnostic": None,
                    "exit_code": 70,
                    "request": None,
                    "text": text,
                }
            )
        while True:  # until the driver hangs up: it says when this process ends
            channel.receive()


def _serve(channel: ControlChannel, busy: threading.Event, last: GpuPart | None) -> GpuPart | None:
    """Serve one run; what it leaves on a GPU until the next begins, when all are through."""
    from tessera.backend.hosts.examined import be_examined
    from tessera.backend.hosts.host_worker import HostWorker
    from tessera.backend.hosts.records import options_of
    from tessera.backend.transports.choice import TransportPlace
    from tessera.driver.hosts.sent_plan import received_model

    head, parts = channel.receive()
    while head["kind"] not in ("setup", "examine"):
        head, parts = channel.receive()
    place = TransportPlace(
        kind=str(head["transport"]),
        name=str(head["device"]),
        host=str(head["host"]),
        bind=str(head["bind"]),
        token=str(head["token"]),
        run=str(head["run"]),
        beat_s=float(head["beat_s"]),
        cut_s=float(head["cut_s"]),
    )
    if head["kind"] == "examine":
        be_examined(channel, place)
    if last is not None:
        last.free_window()
    model = received_model(head, parts)
    options = options_of(head["options"])
    if options.targets:
        return _serve_gpu(channel, busy, model, options, place, head["hosts"], last)
    if last is not None:
        last.leave()
    worker = HostWorker(channel, model, options, place)
    busy.set()
    worker.serve()
    busy.clear()
    del worker, model, parts
    gc.collect()
    channel.send({"kind": "released"})
    return None


def _serve_gpu(
    channel: ControlChannel,
    busy: threading.Event,
    model: Model,
    options: BackendOptions,
    place: TransportPlace,
    hosts: dict[str, str],
    last: GpuPart | None,
) -> GpuPart:
    from tessera.backend.cuda.process_part import GpuPart
    from tessera.backend.hosts.gpu_worker import GpuWorker

    part = GpuPart(model, place.name, options, hosts=hosts, place=place)
    if last is not None:
        last.leave()  # not before: to make a context anew takes seconds on a GPU that is busy
    busy.set()
    GpuWorker(channel, part, beat_s=place.beat_s, orphan=lambda: os._exit(0)).serve()
    busy.clear()
    channel.send({"kind": "released"})
    return part


def _beat(channel: ControlChannel, busy: threading.Event) -> None:
    """Say that the process is alive while it proves a plan; where nobody hears that, end it."""
    try:
        while True:
            since_s = channel.waits_since_s
            if since_s is not None and time.monotonic() - since_s > _ORPHAN_S:
                os._exit(0)
            if not busy.is_set():
                channel.send({"kind": "beat"})
            time.sleep(_BEAT_S)
    except ChannelClosed:
        os._exit(0)


def _fault(failure: TesseraError) -> Head:
    from tessera.backend.hosts.records import diagnostic_head

    return {
        "kind": "fault",
        "diagnostic": diagnostic_head(failure.diagnostics[0]),
        "exit_code": int(failure.exit_code),
        "request": None,
        "text": "",
    }


if __name__ == "__main__":
    main()
