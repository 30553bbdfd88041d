"""Record one call of a PyTorch callable on fake tensors.

In: a function that makes a callable and its inputs. Out: a `RawCapture` whose nodes are library
calls, by the rules of the capture on a GPU: an operator is noted if it would launch something
there, so views and allocations are not; an operator that is made of others, and that no trace
holds, is those; every tensor stays a buffer of its own. Attention is one operator, whatever
PyTorch would choose for it.

Tensors on the GPU are fake. Small ones on the host are real, so that what a model reads of them
(sizes of images, say) decides as it would; they are not part of the trace. What is copied from the
host to the GPU during the call is a constant of the trace (TSR6012).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.frontend.capture.graphs.graph_nodes import storages
from tessera.frontend.capture.host_copies import HostCopies
from tessera.frontend.capture.inputs import Inputs, KnownTensors, known_tensors
from tessera.frontend.capture.memory import CapturedMemory
from tessera.frontend.capture.meta.own_kernels import launched, told_launches
from tessera.frontend.capture.meta.whole_attention import whole_attention
from tessera.frontend.capture.operator_mode import (
    name_of,
    operator_mode,
    without_fast_paths,
)
from tessera.frontend.capture.problems import (
    draws_numbers,
    fixed_constants,
    launches_nothing,
    not_fake,
    refusal,
)
from tessera.frontend.capture.quiet import quiet_loggers
from tessera.frontend.capture.raw import RawCapture, RawNode, RawOperator, RawOther, RawTensor
from tessera.frontend.capture.small_parts import copied_parts
from tessera.frontend.capture.stand_in import (
    always,
    fake_gpu,
    numbered_devices,
    real_host,
)
from tessera.frontend.capture.tensors import raw_tensor, tensors_in
from tessera.frontend.capture.watch import operator_of
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Role

ATTENTION = "aten::scaled_dot_product_attention"
Made = tuple[Callable[..., object], Inputs]
# Elements of a tensor on the host up to which it is real.
_REAL = 1 << 16
_ALIGNED = 512
_FIRST = 1 << 40
_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_strided",
        "empty_like",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "resize_",
    )
)
# The launches of such an operator are not known.
_NOTHING = RawOther(
    what="calls an operator that has no kernel with PTX here",
    hint="use an operator that is in the table (`docs/reference/operators.md`), or write it with"
    " others",
)
_FLOAT8 = replace(_NOTHING, hint="capture for GPUs that have float8: sm_89 and younger")


class FakeAddresses:
    """Addresses for storages that have no memory, one after the other; each is kept alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, torch.UntypedStorage]] = {}
        self._next = _FIRST

    def of_storage(self, storage: torch.UntypedStorage) -> int:
        """The address of a storage."""
        known = self._known.get(storage._cdata)
        if known is None:
            known = self._next, storage
            self._known[storage._cdata] = known
            self._next += -(-max(storage.nbytes(), 1) // _ALIGNED) * _ALIGNED + _ALIGNED
        return known[0]

    def of_tensor(self, tensor: torch.Tensor) -> int:
        """The address of the first element of a tensor."""
        start = self.of_storage(tensor.untyped_storage())
        return start + int(tensor.storage_offset()) * int(tensor.element_size())

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether its storage has an address."""
        return tensor.untyped_storage()._cdata in self._known


class Recording:
    """The operators and tensors that are noted while the call runs."""

    def __init__(self) -> None:
        self.addresses = FakeAddresses()
        self.operators: list[RawOperator] = []
        self.nodes: list[RawNode] = []
        self.made: list[torch.Tensor] = []
        self.copies = HostCopies()
        self.is_on = False

    def add(
        self,
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
    ) -> None:
        """Note a call, if it would launch something on the GPU."""
        inputs = [t for t in tensors_in((args, kwargs)) if t.is_cuda]
        shared = {tensor.untyped_storage()._cdata for tensor in inputs}
        results = [t for t in tensors_in(result) if t.is_cuda]
        new = [t for t in results if t.untyped_storage()._cdata not in shared]
        self.made += new
        if func._schema.name in _ALLOCATIONS or _is_view(func):
            return
        if _draws(func):
            self.draw(func, args, kwargs, result)
            return
        if new and not inputs and any(not t.is_cuda for t in tensors_in((args, kwargs))):
            self.copies.constants += new
            return
        if inputs and not results and next(tensors_in(result), None) is not None:
            raise leaves_the_gpu(func)
        if not new and not func._schema.is_mutable:
            return
        if not any(tensor.numel() for tensor in (new or results)):
            return
        self._note(operator_of(func, args, kwargs, result, self._nodes(), self._place))

    def attention(self, result: torch.Tensor, given: dict[str, torch.Tensor]) -> None:
        """Note an attention as one operator."""
        names = ("query", "key", "value", "attn_mask")
        self.made.append(result)
        first, last = self._nodes()
        plain = {key: value for key, value in given.items() if key not in names}
        self._note(
            RawOperator(
                operator=ATTENTION,
                reads=tuple(raw_tensor(given[n], self._place) for n in names if _is(given[n])),
                writes=(raw_tensor(result, self._place),),
                attributes=tuple((key, value) for key, value in plain.items() if value),
                first=first,
                last=last,
            )
        )

    def kernel(self, name: str, tensors: list[torch.Tensor]) -> None:
        """Note a launch of a kernel that was not analysed: it may read and write all of the
        memory that it is given a part of."""
        if self.is_on:
            operator = launched(name, tensors, self._place, self._nodes())
            self.operators += () if operator is None else (operator,)
            self.nodes += () if operator is None else (_NOTHING,)

    def draw(
        self,
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        result: object,
    ) -> None:
        """Note a draw of random numbers, if that can be held."""
        raise draws_numbers(name_of(func))

    def is_older(self, storage: int) -> bool:
        """Whether memory, by `storages`, was there before the call."""
        return storage not in storages(self.made)

    def _place(self, tensor: torch.Tensor) -> int:
        return self.addresses.of_tensor(tensor)

    def _nodes(self) -> tuple[int, int]:
        return len(self.nodes), len(self.nodes) + 1

    def _note(self, operator: RawOperator) -> None:
        self.operators.append(operator)
        kinds = {tensor.dtype for tensor in (*operator.reads, *operator.writes)}
        self.nodes.append(_FLOAT8 if kinds & {DataType.E4M3, DataType.E5M2} else _NOTHING)


def _is(tensor: object) -> bool:
    return tensor is not None


@contextmanager
def among_fakes() -> Iterator[None]:
    """The context that `record_call` needs: tensors made inside stay usable until the end."""
    with fake_gpu(), numbered_devices(), without_fast_paths(), torch.no_grad():
        yield


def record_call(make: Callable[[], Made], warm_ups: int = 1) -> RawRecord:
    """Make a callable, call it, and note the last of its calls; `among_fakes`.

    After calls to warm up the last one is told that it is captured, as it is on a GPU: libraries
    then read no data, and make masks that they would have left out.
    """
    recording = Recording()
    with recorder(recording), whole_attention(recording):
        function, inputs = make()
        result, known = None, KnownTensors()
        for number in range(warm_ups + 1):
            recording.is_on = number == warm_ups
            if recording.is_on and warm_ups:
                known = known_tensors(function, inputs, is_fake)
            captured = always(recording.is_on and warm_ups > 0)
            with (
                mock.patch.object(torch.cuda, "is_current_stream_capturing", captured),
                told_launches(recording.kernel),
            ):
                result = called(function, inputs, is_last=recording.is_on)
                if recording.is_on:
                    result = copied_parts(result, recording.is_older)
        recording.is_on = False
        known = known if warm_ups else known_tensors(function, inputs, is_fake)
    return made_record(recording, known, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """A recorded call, notes about it, and where its results lie: the buffer, and
    the tensor in it, by the place of a result among all that the call returns."""

    raw: RawCapture
    notes: tuple[Diagnostic, ...]
    returned: dict[int, tuple[str, RawTensor]]


def called(function: Callable[..., object], inputs: Inputs, *, is_last: bool) -> object:
    """The result of a call; raises an explained error if it fails on tensors without memory."""
    try:
        with quiet_loggers():
            return inputs.call(function, is_last=is_last)
    except TesseraError:
        raise
    except (Exception, SystemExit) as problem:  # whatever the model raises
        raise (not_fake(problem) or refusal(problem)) from problem


def made_record(recording: Recording, known: KnownTensors, result: object) -> RawRecord:
    """The record of a call, with the owners of the memory that it names."""
    if not recording.nodes:
        raise launches_nothing()
    memory = CapturedMemory(recording.addresses.of_storage)
    notes = list(known.notes)
    for name, tensor, role in known.tensors:
        memory.add_tensor(tensor, name, role, lasting=True)
    for number, tensor in enumerate(recording.copies.constants):
        memory.add_tensor(tensor, f"constant{number}", Role.WEIGHT, lasting=True)
    if recording.copies.constants:
        notes.append(fixed_constants(len(recording.copies.constants)))
    made = storages(recording.made)
    returned: dict[int, tuple[str, RawTensor]] = {}
    results = [(place, t) for place, t in enumerate(tensors_in(result)) if t.is_cuda]
    for number, (place, tensor) in enumerate(results):
        if tensor.untyped_storage()._cdata in made:
            name = "out" if number == 0 else f"out{number}"
            memory.add_tensor(tensor, name, Role.OUTPUT, lasting=False)
            # The model may have a parameter of that name; results may be views of one tensor.
            for name in memory.names_of([tensor]):
                view = raw_tensor(tensor, recording.addresses.of_tensor, f"the result `{name}`")
                returned[place] = name, view
    for number, tensor in enumerate(recording.made):
        memory.add_tensor(tensor, f"t{number}", Role.TEMP, lasting=False)
    places, numbers = recording.addresses.of_tensor, count()
    for tensor in sorted(_live(recording), key=lambda t: (places(t), -t.numel())):
        if not memory.holds(places(tensor)):
            memory.add_tensor(tensor, f"c{next(numbers)}", Role.WEIGHT, lasting=True)
    raw = RawCapture(
        buffers=memory.in_order(),
        nodes=tuple(recording.nodes),
        operators=tuple(recording.operators),
        codes=(),
        constants=memory.names_of(recording.copies.constants),
    )
    return RawRecord(raw=raw, notes=tuple(notes), returned=returned)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no memory."""
    return isinstance(tensor, FakeTensor)


def _live(recording: Recording) -> Iterator[torch.Tensor]:
    """Live tensors that the call uses, such as caches that the model keeps."""
    gc.unfreeze()  # tensors that a program has frozen are not among all objects
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor) and not hasattr(thing, "__tensor_flatten__"):
            with suppress(Exception):  # a tensor that is not there, or not any more
                if thing.is_cuda and recording.addresses.knows(thing):
                    yield thing


def recorder(recording: Recording) -> AbstractContextManager[object]:
    """The dispatch mode that notes operators."""

    def call(
        mode: AbstractContextManager[object],
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        if _is_for_host(args, kwargs):
            with real_host():
                return func(*args, **kwargs)
        if recording.is_on:
            args = recording.copies.given_to(func, args)
        result = func(*args, **kwargs)
        if recording.is_on:
            recording.add(func, args, kwargs, result)
        return result

    return operator_mode(call, compiled=False)


def _is_for_host(args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call makes or reads small tensors of the host alone."""
    device = kwargs.get("device")
    if device is not None and torch.device(str(device)).type != "cpu":
        return False
    tensors = list(tensors_in((args, kwargs)))
    if any(isinstance(tensor, FakeTensor) or tensor.is_cuda for tensor in tensors):
        return False
    sizes = [prod(part) for part in args if isinstance(part, list | tuple) and _are_sizes(part)]
    return all(size <= _REAL for size in (*sizes, *(tensor.numel() for tensor in tensors)))


def _are_sizes(parts: list[object] | tuple[object, ...]) -> bool:
    return all(isinstance(part, int) for part in parts)


def leaves_the_gpu(func: torch._ops.OpOverload) -> TesseraError:
    """An error for a copy to the host."""
    return TesseraError.of(
        "TSR6003",
        f"the model copies from the GPU to the host (`{name_of(func)}`)",
        hint="a trace holds what the GPU does: take the copy out of the traced function",
    )


def _is_view(func: torch._ops.OpOverload) -> bool:
    """Whether it changes how a tensor lies, and nothing that it holds (`unsqueeze_`)."""
    return torch.Tag.inplace_view in func.tags


def _draws(func: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags
