"""Host time per driver call, and per byte of an input or output.

In: a driver and a GPU. Out: nanoseconds. The measured mix of calls is about that of requests that
span devices: mostly events, then copies and small kernels.
"""

from __future__ import annotations

import statistics
import time

from tessera.backend.cuda.api import Bytes, Driver, host_view
from tessera.backend.cuda.measure.stopwatch import Stopwatch
from tessera.backend.cuda.tape import Tape, TapeCall

_EVENTS = 3
_ROUNDS = 8
_TRIES = 15
_COPIED_BYTES = 1 << 24


def host_call_ns(driver: Driver, ordinal: int, limit_s: float) -> float:
    """The median over several tries, each of several rounds of calls."""
    context = driver.retain(ordinal)
    try:
        with driver.using(context):
            return _measured(driver, limit_s)
    finally:
        driver.release(ordinal)


def host_byte_ns(driver: Driver, ordinal: int) -> float:
    """The median over several copies into pinned memory and out of it."""
    context = driver.retain(ordinal)
    try:
        with driver.using(context):
            pinned = driver.allocate_host(_COPIED_BYTES)
            try:
                return _copied(host_view(pinned, _COPIED_BYTES))
            finally:
                driver.free_host(pinned)
    finally:
        driver.release(ordinal)


def _copied(pinned: Bytes) -> float:
    pinned[:] = 1
    own = pinned.copy()
    times = []
    for _ in range(_TRIES):
        begun = time.perf_counter_ns()
        pinned[:] = own
        own[:] = pinned
        times.append((time.perf_counter_ns() - begun) / (2 * _COPIED_BYTES))
    return statistics.median(times)


def _measured(driver: Driver, limit_s: float) -> float:
    lowest, _ = driver.priorities()
    streams = [driver.stream(lowest) for _ in range(2)]
    event = driver.event()
    word = driver.allocate(8)
    watch = Stopwatch(driver, limit_s)
    watch.what = "a few small copies"
    tape = Tape()

    def call(name: str, *arguments: object) -> None:
        tape.calls.append(TapeCall(name, driver.functions[name], arguments, None))

    for _ in range(_ROUNDS):
        for _ in range(_EVENTS):
            call("cuEventRecord", event, streams[0])
            call("cuStreamWaitEvent", streams[1], event, 0)
        call("cuMemcpyAsync", word + 4, word, 4, streams[1])
        call("cuMemsetD32Async", word, 1, 1, streams[0])
    times = []
    try:
        for _ in range(_TRIES):
            begun = time.perf_counter_ns()
            tape.play(driver)
            times.append((time.perf_counter_ns() - begun) / len(tape.calls))
            for stream in streams:
                watch.finish(stream)
        return statistics.median(times)
    finally:
        if not watch.is_stuck:
            watch.close()
            driver.free(word)
            driver.destroy_event(event)
            for stream in streams:
                driver.destroy_stream(stream)
