"""`tessera.Runtime`: serve requests of a plan from a program.

    with tessera.Runtime("plan.tsp") as runtime:
        handle = runtime.submit({"x": array})
        y = handle.result()["y"]

In: a plan (a path or a `Plan`), and arrays. Out: handles. A runtime may be used from any thread.
`submit` waits while `capacity` requests are under way, so a caller that submits in a loop is held
back to the speed of the devices. Arrays are NumPy's, torch's, or anything that speaks DLPack; they
are read in place, also in the memory of a GPU, and must not change before their handle is done.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.known_backends import BackendName
from tessera.backend.service import DEFAULT_LIMIT_S, Bytes, Completion, DeviceBytes, TimelineEvent
from tessera.diagnostics import TesseraError, error
from tessera.driver.run.arguments import check_number, check_plan_given, wrong_type
from tessera.driver.run.backends import choose_backend
from tessera.driver.run.data_files import Data
from tessera.driver.run.options import ServingOptions
from tessera.driver.run.served import open_served, served_materials
from tessera.driver.run.serving import Serving
from tessera.driver.spellings import ABSENT, Absent, both_given
from tessera.frontend.contents.write import as_array, numpy_type
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import Buffer, Program, Role


class Result(Mapping[str, npt.NDArray[Any]]):
    """The outputs of a request by name, as arrays of their type and shape.

    Types that NumPy lacks (`bf16`, `e4m3`) are flat bytes here; `torch` gives them their type.
    """

    def __init__(self, program: Program, completion: Completion) -> None:
        self._program = program
        self._completion = completion

    def _buffer(self, name: str) -> Buffer:
        return next(buffer for buffer in self._program.buffers if buffer.name == name)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        content = self._completion.outputs[name]
        return as_array(self._buffer(name), content)

    def __iter__(self) -> Iterator[str]:
        return iter(self._completion.outputs)

    def __len__(self) -> int:
        return len(self._completion.outputs)

    def torch(self, name: str) -> Any:
        """An output as a torch tensor over the same memory."""
        import torch

        buffer = self._buffer(name)
        flat = torch.from_numpy(self._completion.outputs[name])
        kinds = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
        kind = None if buffer.dtype is None else kinds.get(buffer.dtype.value)
        if kind is None:
            return torch.from_numpy(self[name])
        typed = flat.view(getattr(torch, kind))
        return typed if buffer.shape is None else typed.reshape(buffer.shape)

    @property
    def latency_ns(self) -> int:
        """From the start of the request on the devices to its end.

        It starts when the devices have it and the request before it in its slot has ended.
        """
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
        backend: str = BackendName.AUTO,
        targets: Mapping[str, str] | None = None,
        slots: int | None = None,
        sequences: int | None = None,
        policy: str | None = None,
        data: Data | None = None,
        data_root: str | os.PathLike[str] | None = None,
        weights: str | os.PathLike[str] | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        time_limit_s: float = DEFAULT_LIMIT_S,
        throttle_bytes_per_s: float | None = None,
        timeline: bool = False,
        lanes: int | Absent | None = ABSENT,
    ) -> None:
        """Check the plan, load it onto its devices; the options are those of `tessc run`.

        `lanes` is the old name of `sequences`.

        A `Plan` that was never a file finds contents beside its traces.
        """
        check_plan_given(plan)
        given = ABSENT if sequences is None else sequences
        name, count = _spelled("sequences", given, "lanes", lanes)
        root = os.fspath(data_root) if isinstance(data_root, os.PathLike) else data_root
        folder = os.fspath(weights) if isinstance(weights, os.PathLike) else weights
        options = ServingOptions(
            backend=backend,
            targets=targets,
            slots=slots,
            sequences=count,
            policy=policy,
            data=data,
            data_root=root,
            weights=folder,
            seed=seed,
            max_steps=max_steps,
            limit_s=time_limit_s,
            throttle_bytes_per_s=throttle_bytes_per_s,
            timeline=timeline,
            spelled={"sequences": name, "limit_s": "time_limit_s"},
        )
        opened = open_served(plan, options)
        choice = choose_backend(opened, backend, options.find_targets())
        count = sum(replica.lowered.lanes for replica in opened.replicas)
        materials = served_materials(opened, options, choice.backend)
        self.plan = opened.plan
        self.backend = choice.backend
        self.sequences = count
        self.slots = sum(replica.lowered.slots for replica in opened.replicas)
        self.traces = tuple(trace.name for trace in opened.plan.traces)
        self._programs = opened.programs
        self._inputs = [inputs_of(program) for program in opened.programs]
        self._numbers = itertools.count()
        self._process = os.getpid()
        self._serving = Serving(opened, materials, choice, options)
        self.capacity = self._serving.capacity

    def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        sequence: int | Absent = ABSENT,
        trace: str | int | None = None,
        lane: int | Absent = ABSENT,
    ) -> RequestHandle[Result]:
        """Start a request when its turn comes; waits while `capacity` requests are under way.

        Requests of one `sequence` (0 unless given; `lane` is its old name) share states and keep
        their order.
        `trace` is the name or number of a trace, and may be left out where there is only one.
        What is called when the handle is done holds up those that end after it.
        """
        self._check_process()
        number = self._sequence(sequence, lane)
        index = self._trace(trace)
        program = self._programs[index]
        locate = partial(self._serving.locate, sequence=number)
        content, in_place = read_inputs(self._inputs[index], inputs, locate)
        return self._serving.submit(
            content,
            in_place=in_place,
            sequence=number,
            trace=index,
            number=next(self._numbers),
            finish=partial(Result, program),
        )

    def states(
        self, sequence: int | Absent = ABSENT, *, lane: int | Absent = ABSENT
    ) -> dict[str, npt.NDArray[Any]]:
        """Copies of a sequence's states by name, once its requests are done."""
        self._check_process()
        contents = self._serving.read_states(self._sequence(sequence, lane))
        buffers = {b.name: b for program in self._programs for b in program.buffers}
        return {name: as_array(buffers[name], content) for name, content in contents.items()}

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

    def _check_process(self) -> None:
        """A fork has the runtime's memory, but none of the threads that serve it."""
        if os.getpid() != self._process:
            raise TesseraError(
                error(
                    "TSR5050",
                    "the runtime belongs to another process",
                    notes=(f"process {self._process} made it, this is {os.getpid()}",),
                    hint="make a `Runtime` in this process, or submit where it was made",
                )
            )

    @property
    def lanes(self) -> int:
        """The old name of `sequences`."""
        return self.sequences

    def _sequence(self, sequence: int | Absent, lane: int | Absent) -> int:
        """The sequence that is meant, by either name; the first unless given."""
        name, given = _spelled("sequence", sequence, "lane", lane, default=0)
        number = check_number(name, given)
        if not 0 <= number < self.sequences:
            notes = (f"{name}s: {self.sequences}",)
            raise TesseraError(error("TSR5053", f"there is no {name} {number}", notes=notes))
        return number

    def _trace(self, trace: str | int | None) -> int:
        if trace is None and len(self.traces) == 1:
            return 0
        if isinstance(trace, str) and trace in self.traces:
            return self.traces.index(trace)
        if trace is not None and not isinstance(trace, str):
            trace = check_number("trace", trace)
            if 0 <= trace < len(self.traces):
                return trace
        what = "say which trace the request is of" if trace is None else f"no trace `{trace}`"
        raise TesseraError(error("TSR5053", what, hint=f"the traces are: {', '.join(self.traces)}"))


def _spelled(
    new: str,
    value: int | Absent | None,
    old: str,
    old_value: int | Absent | None,
    default: int | None = None,
) -> tuple[str, int | None]:
    """What is given by one of two names, with that name."""
    if not isinstance(value, Absent) and not isinstance(old_value, Absent):
        raise TesseraError(error("TSR5053", both_given(new, old)))
    if not isinstance(old_value, Absent):
        return old, old_value
    return new, default if isinstance(value, Absent) else value


Locate = Callable[[Any, int], DeviceBytes | None]


def inputs_of(program: Program) -> dict[str, Buffer]:
    """The inputs of a trace by name."""
    return {buffer.name: buffer for buffer in program.buffers if buffer.role is Role.INPUT}


def read_inputs(
    wanted: Mapping[str, Buffer], inputs: Mapping[str, Any], locate: Locate | None = None
) -> tuple[dict[str, Bytes], dict[str, DeviceBytes]]:
    """The bytes of all inputs of a trace, on the host and on GPUs, in place if they lie in order.

    `locate` finds those that need not go through the host.
    """
    if not isinstance(inputs, Mapping):
        raise wrong_type("inputs", inputs, "a mapping of names to arrays")
    for name in inputs:
        if name not in wanted:
            known = ", ".join(f"`{known_name}`" for known_name in wanted) or "none"
            raise TesseraError(
                error("TSR5053", f"`{name}` is no input", notes=(f"inputs: {known}",))
            )
    for name in wanted:
        if name not in inputs:
            raise TesseraError(error("TSR5053", f"input `{name}` is missing"))
    content: dict[str, Bytes] = {}
    in_place: dict[str, DeviceBytes] = {}
    for name, buffer in wanted.items():
        given = _plain(inputs[name])
        located = (
            None if locate is None or isinstance(given, np.ndarray) else locate(given, buffer.bytes)
        )
        if located is None:
            content[name] = _content(buffer, given)
        else:
            _check(buffer, located.type_name, located.nbytes)
            in_place[name] = located
    return content, in_place


def _content(buffer: Buffer, given: Any) -> Bytes:
    array = _array(buffer, given)
    native = array.dtype.isnative
    _check(buffer, array.dtype.name if native else array.dtype.str, array.nbytes)
    _check_shape(buffer, array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _check(buffer: Buffer, type_name: str, size: int) -> None:
    """Type and size of what is given for an input; types that NumPy lacks have no name."""
    kind = numpy_type(buffer)
    bits = buffer.dtype is not None and buffer.dtype.is_bits and _has_size(type_name, kind)
    if kind is not None and not bits and type_name not in (kind.name, "uint8", ""):
        raise TesseraError(
            error(
                "TSR5053",
                f"input `{buffer.name}` is of type {kind}, not {type_name}",
                hint="convert it, or give its bytes as uint8",
            )
        )
    if size != buffer.bytes:
        raise TesseraError(
            error("TSR5053", f"input `{buffer.name}` takes {buffer.bytes} bytes, not {size}")
        )


def _has_size(type_name: str, kind: np.dtype[Any] | None) -> bool:
    """Whether a type has elements of that size, in the byte order of this machine."""
    try:
        dtype = np.dtype(type_name)
    except TypeError:
        return False
    return kind is not None and dtype.itemsize == kind.itemsize and dtype.isnative


def _check_shape(buffer: Buffer, array: npt.NDArray[Any]) -> None:
    """Refuse elements in other rows than the input's, which are more likely a slip than a wish."""
    if numpy_type(buffer) is None or buffer.shape is None or array.dtype.itemsize == 1:
        return
    own, given = ([n for n in shape if n != 1] for shape in (buffer.shape, array.shape))
    if own != given and len(own) > 1 and len(given) > 1:
        raise TesseraError(
            error(
                "TSR5053",
                f"input `{buffer.name}` is of shape {buffer.shape}, not {array.shape}",
                hint="reshape it; elements in a row are taken as they are",
            )
        )


def _is_torch(given: Any) -> bool:
    return type(given).__module__.split(".")[0] == "torch"


def _plain(given: Any) -> Any:
    """A tensor without its history, and with what it puts off doing to its elements done."""
    if not _is_torch(given) or not hasattr(given, "resolve_neg"):
        return given
    return given.detach().resolve_conj().resolve_neg()


def _array(buffer: Buffer, given: Any) -> npt.NDArray[Any]:
    """A NumPy array over the memory of what is given."""
    if isinstance(given, np.ndarray):
        return given
    try:
        if _is_torch(given):
            return _from_torch(given)
        return np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    except (TypeError, ValueError, BufferError, RuntimeError) as problem:
        raise TesseraError(
            error("TSR5053", f"input `{buffer.name}` is no array: {problem}")
        ) from None


def _from_torch(given: Any) -> npt.NDArray[Any]:
    """A tensor's memory; types that NumPy lacks go as bytes, memory of a GPU is fetched."""
    import torch

    tensor = given if given.device.type == "cpu" else given.cpu()
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        return np.asarray(tensor.contiguous().view(-1).view(torch.uint8).numpy())
