"""The process of some replicas: it opens the plan, loads them, and serves messages.

In: descriptors of a pipe and of shared memory. Every replica has a dispatcher, as it would have in
the process that serves. A fault is reported and ends the process; so does the end of the pipe.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import mmap
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import (
    Bytes,
    ChainingBackend,
    Completion,
    Model,
    ServiceFault,
)
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.driver.run.backends import choose_backend, make_backend
from tessera.driver.run.isolated import output_sizes
from tessera.driver.run.isolated_messages import (
    BeginRequest,
    ChildAnswer,
    ChildBeat,
    ChildDone,
    ChildFault,
    ChildReady,
    ChildSetup,
    PrepareChain,
    ReadStates,
    StatePartsOf,
)
from tessera.driver.run.serving import (
    backend_options,
    models_of,
    open_served,
    options_of_each,
    served_materials,
)

_BEAT_S = 0.2


class Child:
    """The replicas, and the pipe to the runtime."""

    def __init__(self, pipe: Connection, memory: int) -> None:
        self._pipe = pipe
        self._memory = memory
        self._sending = threading.Lock()
        self._outputs: Bytes = np.zeros((0, 0), np.uint8)

    def run(self) -> None:
        """Serve messages until the pipe ends, or a replica faults."""
        setup = self._pipe.recv()
        assert isinstance(setup, ChildSetup)
        if setup.boot:
            importlib.import_module(setup.boot)
        try:
            self._open(setup)
        except BaseException as problem:
            self._send(fault_of(problem))
            return
        self._send(ChildReady(tuple(own.backend.depth for own in self._dispatchers.values())))
        count = self._pipe.recv()
        shared = mmap.mmap(self._memory, count * setup.place_bytes)
        self._outputs = np.frombuffer(shared, np.uint8).reshape(count, setup.place_bytes)
        gc.freeze()  # loaded objects live to the end, so collections can skip them
        threading.Thread(target=self._beat, daemon=True).start()
        while True:
            self._hear(self._pipe.recv())

    def _open(self, setup: ChildSetup) -> None:
        options = setup.options
        opened = open_served(setup.plan, options)
        choice = choose_backend(opened, options.backend, options.find_targets())
        models = models_of(opened, served_materials(opened, options, choice.backend))
        given = options_of_each(backend_options(choice, options), opened, setup.replicas)
        self._models: dict[int, Model] = {number: models[number] for number in setup.replicas}
        self._dispatchers = {
            number: Dispatcher(
                make_backend(choice, model, given[number]),
                slots=model.lowered.slots,
                lanes=model.lowered.lanes,
                limit_s=options.limit_s,
            )
            for number, model in self._models.items()
        }

    def _hear(self, message: object) -> None:
        match message:
            case BeginRequest(replica, request, place):
                try:
                    handle = self._dispatchers[replica].submit(
                        request.inputs,
                        trace=request.trace,
                        lane=request.lane,
                        number=request.number,
                        in_place=request.in_place,
                    )
                except BaseException as problem:
                    self._fail(problem)
                else:
                    over = partial(self._over, replica, request.trace, place)
                    handle.add_done_callback(over)
            case PrepareChain(replica, trace, inputs):
                backend = self._dispatchers[replica].backend
                assert isinstance(backend, ChainingBackend)
                try:
                    backend.prepare_chain(trace, inputs)
                except BaseException as problem:
                    self._fail(problem)
                self._send(ChildAnswer(replica, True))
            case ReadStates(replica, lane):
                states = self._dispatchers[replica].read_states(lane)
                self._send(ChildAnswer(replica, {n: np.asarray(s) for n, s in states.items()}))
            case StatePartsOf(replica, lane, device, parts, content):
                backend = self._dispatchers[replica].backend
                try:
                    answer: Bytes | None = None
                    if content is None:
                        answer = backend.read_parts(lane, device, parts)
                    else:
                        backend.write_parts(lane, device, parts, content)
                except BaseException as problem:
                    self._fail(problem)
                self._send(ChildAnswer(replica, answer))
            case _:
                self._fail(TypeError(f"no message of a replica: {type(message).__name__}"))

    def _over(
        self, replica: int, trace: int, place: int, handle: RequestHandle[Completion]
    ) -> None:
        try:
            completion = handle.result()
        except BaseException as problem:
            self._fail(problem)
            return
        start = 0
        for name, size in output_sizes(self._models[replica], trace):
            self._outputs[place, start : start + size] = completion.outputs[name]
            start += size
        self._send(
            ChildDone(
                replica,
                completion.request,
                completion.started_ns,
                completion.ended_ns,
                completion.printed,
            )
        )

    def _beat(self) -> None:
        """Send a heartbeat; the dispatchers detect stalled requests."""
        for count in itertools.count():
            self._send(ChildBeat(count))
            time.sleep(_BEAT_S)

    def _send(self, message: object) -> None:
        with suppress(OSError), self._sending:
            self._pipe.send(message)

    def _fail(self, problem: BaseException) -> None:
        """Report the problem, and end the process: its devices may be broken."""
        self._send(fault_of(problem))
        os._exit(1)


def fault_of(problem: BaseException) -> ChildFault:
    """The message for a problem."""
    if isinstance(problem, ServiceFault):
        return ChildFault(
            tuple(problem.diagnostics),
            problem.exit_code,
            problem.device,
            problem.request,
            problem.step,
        )
    if isinstance(problem, TesseraError):
        return ChildFault(tuple(problem.diagnostics), problem.exit_code)
    text = "".join(traceback.format_exception(problem))[-2000:]
    message = f"the process of a replica failed: {type(problem).__name__}"
    return ChildFault((error("TSR5051", message, notes=(text,)),), ExitCode.FAULT)


def main() -> None:
    """The main function of the process; its first argument holds the descriptors."""
    given = json.loads(sys.argv[1])
    with suppress(EOFError, OSError, KeyboardInterrupt):
        Child(Connection(given["host"]), given["memory"]).run()
    os._exit(0)  # without closing contexts and threads: the host process is gone


if __name__ == "__main__":
    main()
