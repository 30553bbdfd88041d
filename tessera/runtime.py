"""`tessera.Runtime`: serve requests of a plan from a program.

    with tessera.Runtime("plan.tsp") as runtime:
        future = runtime.submit({"x": array})
        y = future.result()["y"]

In: a plan (a path or a `Plan`), and arrays. Out: futures. A runtime may be used from any thread.
`submit` waits while every slot is taken, so a caller that submits in a loop is held back to the
speed of the devices. Arrays are NumPy's, torch's, or anything that speaks DLPack; they are read in
place, and must not change before their future is done.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tessera.backend.service import DEFAULT_LIMIT_S, Bytes, Completion, TimelineEvent
from tessera.diagnostics import TesseraError, error
from tessera.frontend.contents_write import as_array, numpy_type
from tessera.ir.plan import Plan
from tessera.ir.program import Buffer, Program, Role
from tessera.running.backends import choose_backend
from tessera.running.materials import read_materials
from tessera.running.open_plan import open_plan
from tessera.running.serving import Serving, ServingOptions


class Result(Mapping[str, npt.NDArray[Any]]):
    """The outputs of a request by name, as arrays of their type and shape.

    Types that NumPy lacks (`bf16`, `e4m3`) are flat bytes here; `torch` gives them their type.
    """

    def __init__(self, program: Program, completion: Completion) -> None:
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._completion = completion

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return as_array(self._buffers[name], self._completion.outputs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._completion.outputs)

    def __len__(self) -> int:
        return len(self._completion.outputs)

    def torch(self, name: str) -> Any:
        """An output as a torch tensor over the same memory."""
        import torch

        buffer = self._buffers[name]
        flat = torch.from_numpy(self._completion.outputs[name])
        kinds = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
        kind = None if buffer.dtype is None else kinds.get(buffer.dtype.value)
        if kind is None:
            return torch.from_numpy(self[name])
        typed = flat.view(getattr(torch, kind))
        return typed if buffer.shape is None else typed.reshape(buffer.shape)

    @property
    def latency_ns(self) -> int:
        """From the start of the request on the devices to its end."""
        return self._completion.ended_ns - self._completion.started_ns

    @property
    def printed(self) -> str:
        """What the kernels printed."""
        return self._completion.printed

    @property
    def events(self) -> tuple[TimelineEvent, ...]:
        """What every device did when, if the runtime was made with `timeline=True`."""
        return self._completion.events


class Runtime:
    """A plan on its devices, ready for requests."""

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str],
        *,
        backend: str = "auto",
        targets: Mapping[str, str] | None = None,
        slots: int | None = None,
        lanes: int | None = None,
        policy: str | None = None,
        data: str | os.PathLike[str] | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        time_limit_s: float = DEFAULT_LIMIT_S,
        throttle_bytes_per_s: float | None = None,
        timeline: bool = False,
    ) -> None:
        """Check the plan, load it onto its devices; the options are those of `tessc run`."""
        source = None if data is None else os.fspath(data)
        opened = open_plan(plan, slots=slots, lanes=lanes, policy=policy, data=source)
        choice = choose_backend(opened, backend, targets or {})
        count = sum(replica.lowered.lanes for replica in opened.replicas)
        materials = read_materials(opened, lanes=count, seed=seed, data=source)
        self.plan = opened.plan
        self.backend = choice.backend
        self.lanes = count
        self.slots = sum(replica.lowered.slots for replica in opened.replicas)
        self.traces = tuple(trace.name for trace in opened.plan.traces)
        self._programs = opened.programs
        self._numbers = itertools.count()
        self._serving = Serving(
            opened, materials, choice,
            ServingOptions(max_steps=max_steps, limit_s=time_limit_s, timeline=timeline,
                           throttle_bytes_per_s=throttle_bytes_per_s),
        )  # fmt: skip

    def submit(
        self, inputs: Mapping[str, Any], *, lane: int = 0, trace: str | int | None = None
    ) -> Future[Result]:
        """Start a request as soon as a slot and its lane are free; waits while no slot is.

        `trace` is the name or number of a trace, and may be left out where there is only one.
        """
        index = self._trace(trace)
        if not 0 <= lane < self.lanes:
            raise TesseraError(
                error("TSR5053", f"there is no lane {lane}", notes=(f"lanes: {self.lanes}",))
            )
        program = self._programs[index]
        content = read_inputs(program, inputs)
        inner = self._serving.submit(content, lane=lane, trace=index, number=next(self._numbers))
        outer: Future[Result] = Future()
        outer.set_running_or_notify_cancel()

        def finish(done: Future[Completion]) -> None:
            problem = done.exception()
            if problem is not None:
                outer.set_exception(problem)
            else:
                outer.set_result(Result(program, done.result()))

        inner.add_done_callback(finish)
        return outer

    def states(self, lane: int = 0) -> dict[str, npt.NDArray[Any]]:
        """Copies of a lane's states by name, once its requests are done."""
        found = self._serving.read_states(lane)
        buffers = {b.name: b for program in self._programs for b in program.buffers}
        return {name: as_array(buffers[name], content) for name, content in found.items()}

    def close(self, *, wait: bool = True) -> None:
        """Give the devices back, after the requests under way or (`wait=False`) at once."""
        self._serving.close(wait=wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)

    def _trace(self, trace: str | int | None) -> int:
        if trace is None and len(self.traces) == 1:
            return 0
        if isinstance(trace, str) and trace in self.traces:
            return self.traces.index(trace)
        if isinstance(trace, int) and 0 <= trace < len(self.traces):
            return trace
        what = "say which trace the request is of" if trace is None else f"no trace `{trace}`"
        raise TesseraError(error("TSR5053", what, hint=f"the traces are: {', '.join(self.traces)}"))


def read_inputs(program: Program, inputs: Mapping[str, Any]) -> dict[str, Bytes]:
    """The bytes of all inputs of a trace, in place where they lie in order."""
    wanted = {b.name: b for b in program.buffers if b.role is Role.INPUT}
    for name in inputs:
        if name not in wanted:
            known = ", ".join(f"`{one}`" for one in wanted) or "none"
            raise TesseraError(
                error("TSR5053", f"`{name}` is no input", notes=(f"inputs: {known}",))
            )
    for name in wanted:
        if name not in inputs:
            raise TesseraError(error("TSR5053", f"input `{name}` is missing"))
    return {name: _content(buffer, inputs[name]) for name, buffer in wanted.items()}


def _content(buffer: Buffer, given: Any) -> Bytes:
    array = _array(buffer, given)
    kind = numpy_type(buffer)
    if kind is not None and array.dtype != kind and array.dtype != np.uint8:
        raise TesseraError(
            error("TSR5053", f"input `{buffer.name}` is of type {kind}, not {array.dtype}",
                  hint="convert it, or give its bytes as uint8")
        )  # fmt: skip
    if array.nbytes != buffer.bytes:
        raise TesseraError(
            error("TSR5053", f"input `{buffer.name}` takes {buffer.bytes} bytes, not "
                  f"{array.nbytes}")
        )  # fmt: skip
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _array(buffer: Buffer, given: Any) -> npt.NDArray[Any]:
    """A NumPy array over the memory of what is given."""
    if isinstance(given, np.ndarray):
        return given
    if type(given).__module__.split(".")[0] == "torch":
        return _from_torch(given)
    try:
        return np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    except (TypeError, ValueError, BufferError, RuntimeError) as problem:
        raise TesseraError(
            error("TSR5053", f"input `{buffer.name}` is no array: {problem}")
        ) from None


def _from_torch(given: Any) -> npt.NDArray[Any]:
    """A tensor's memory; types that NumPy lacks go as bytes, memory of a GPU is fetched."""
    import torch

    tensor = given.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        return np.asarray(tensor.contiguous().view(-1).view(torch.uint8).numpy())
