"""`op` records: what PyTorch is called with. A stand-in plays PyTorch, since CI has none."""

from __future__ import annotations

import contextlib
import sys
import types
from dataclasses import dataclass
from typing import Any

import pytest

from tessera.backend.cuda import torch_ops
from tessera.backend.cuda.api import DriverError
from tessera.backend.cuda.torch_ops import prepare_call
from tessera.diagnostics import TesseraError
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import LibraryCall

CONTENTS: dict[int, Any] = {}


@dataclass
class Tensor:
    address: int
    dtype: str = "u1"
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    copied: Any = None
    content: Any = None

    def numel(self) -> int:
        return 1 << 20

    def normal_(self, generator: Any) -> None:
        self.content = "noise"

    def clone(self) -> Tensor:
        return Tensor(self.address, content=CONTENTS.get(self.address))

    def view(self, dtype: str) -> Tensor:
        return Tensor(self.address, dtype)

    def as_strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        return Tensor(self.address, self.dtype, shape, strides)

    def copy_(self, other: Any) -> None:
        self.copied = other


@dataclass
class Argument:
    name: str
    is_out: bool = False
    default: bool = False

    @property
    def kwarg_only(self) -> bool:
        return self.is_out or self.default

    def has_default_value(self) -> bool:
        return self.default


class Operator:
    def __init__(self, arguments: list[Argument], result: Any = None) -> None:
        self._schema = types.SimpleNamespace(arguments=arguments)
        self.result = result
        self.calls: list[dict[str, Any]] = []

    def __call__(self, /, *placed: Any, **named: Any) -> Any:
        names = [argument.name for argument in self._schema.arguments]
        self.calls.append(dict(zip(names, placed, strict=False)) | named)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def fake_torch(monkeypatch: pytest.MonkeyPatch, **operators: Operator) -> Any:
    # Where another test has loaded the real cuBLAS, it must not get the handle of this one.
    monkeypatch.setattr(torch_ops, "_cublas_setter", lambda: None)
    torch: Any = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch.float32, torch.bfloat16 = "float32", "bfloat16"
    torch.as_tensor = lambda memory, device: Tensor(memory.__cuda_array_interface__["data"][0])
    torch.no_grad = contextlib.nullcontext
    torch.pools, torch.captured, torch.told = [], False, [None]
    ones = types.SimpleNamespace(__getitem__=lambda at: None)
    torch.ones = lambda *sizes, dtype, device: [ones]
    torch.mm = torch.addmm = lambda *given: torch.workspaces.append(list(torch.pools))
    torch.workspaces = []

    @contextlib.contextmanager
    def pool(which: Any, device: str) -> Any:
        torch.pools.append(which)
        yield
        torch.pools.pop()

    torch.cuda = types.SimpleNamespace(
        ExternalStream=lambda handle, device: types.SimpleNamespace(synchronize=lambda: None),
        stream=lambda queue: contextlib.nullcontext(),
        device=lambda ordinal: contextlib.nullcontext(),
        MemPool=object,
        use_mem_pool=pool,
        is_current_stream_capturing=lambda: torch.captured,
        get_device_properties=lambda ordinal: types.SimpleNamespace(multi_processor_count=132),
        current_blas_handle=lambda: 5,
    )
    torch._C = types.SimpleNamespace(
        _get_sm_carveout_experimental=lambda: torch.told[-1],
        _set_sm_carveout_experimental=torch.told.append,
    )
    torch.Generator = lambda device: types.SimpleNamespace(manual_seed=lambda seed: None)
    torch.equal = lambda kept, now: kept.content == CONTENTS[now.address]
    torch.float16, torch.float64 = "float16", "float64"
    monkeypatch.setattr(torch_ops, "_POOLS", {})
    monkeypatch.setattr(torch_ops, "_TRIED", {})
    torch.ops = types.SimpleNamespace(aten=types.SimpleNamespace())
    for name, operator in operators.items():
        base, _, overload = name.partition("__")
        setattr(torch.ops.aten, base, types.SimpleNamespace(**{overload or "default": operator}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def call_of(text: str) -> LibraryCall:
    program = parse_trace(
        "//! tessera.trace 1\n"
        "//! buffer a bytes=64 role=input dtype=f32 shape=4x4\n"
        "//! buffer b bytes=64 role=input dtype=f32 shape=4x4\n"
        f"//! buffer c bytes=64 role=output dtype=f32 shape=4x4\n//! op {text}\n",
        "op.ptx",
    )
    return next(step for step in program.steps if isinstance(step, LibraryCall))


def prepared(call: LibraryCall) -> Any:
    return prepare_call(call, lambda p: 1000 * (int(p.buffer) + 1) + p.offset, 0, 77)


MM = "aten::mm.out reads=[a:f32[4,4], b:f32[4,4]{1,4}] writes=[c:f32[4,4]] attrs={}"


def test_out_variants_write_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    mm = Operator([Argument("self"), Argument("mat2"), Argument("out", is_out=True)])
    fake_torch(monkeypatch, mm__out=mm)
    assert prepared(call_of(MM))() == (0,)
    (given,) = mm.calls
    assert given["self"] == Tensor(1000, "float32", (4, 4), (4, 1))
    assert given["mat2"] == Tensor(2000, "float32", (4, 4), (1, 4))
    assert given["out"].address == 3000


def test_while_captured_memory_is_the_streams_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mm = Operator([Argument("self"), Argument("mat2"), Argument("out", is_out=True)])
    torch = fake_torch(monkeypatch, mm__out=mm)
    used: list[list[Any]] = []
    monkeypatch.setattr(Operator, "__call__", lambda *_, **__: used.append(list(torch.pools)))
    call, again = prepared(call_of(MM)), prepared(call_of(MM))
    # The workspace of cuBLAS was made in the pool, once, before anything was captured.
    assert [len(pools) for pools in torch.workspaces] == [1, 1]
    call()
    torch.captured = True
    call()
    again()
    assert used == [[], torch.workspaces[0], torch.workspaces[0]]


@pytest.mark.parametrize(("rounds_alike", "told"), [(True, 48), (False, None)])
def test_on_a_slice_the_library_knows_its_sms_if_bytes_stay(
    monkeypatch: pytest.MonkeyPatch, rounds_alike: bool, told: int | None
) -> None:
    mm = Operator([Argument("self"), Argument("mat2"), Argument("out", is_out=True)])
    torch = fake_torch(monkeypatch, mm__out=mm)
    seen: list[Any] = []

    def multiply(*_: Any, out: Tensor) -> None:
        seen.append(torch.told[-1])
        CONTENTS[out.address] = out.content = "same" if rounds_alike else torch.told[-1]

    monkeypatch.setattr(Operator, "__call__", lambda self, *given, **named: multiply(**named))
    call = call_of(MM)
    scratch = {call.writes[0].pointer.buffer}

    def prepare() -> Any:
        return prepare_call(call, lambda p: 9 + p.offset, 0, 77, sms=84, scratch=scratch)

    made = prepare()
    assert seen == [None, None, 48]  # loaded, then without and with
    prepare()
    assert len(seen) == 3
    made()
    assert seen[3:] == [told]
    assert torch.told[-1] is None


def test_what_is_needed_is_not_overwritten_by_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    mm = Operator([Argument("self"), Argument("mat2"), Argument("out", is_out=True)])
    fake_torch(monkeypatch, mm__out=mm)
    call = call_of(MM)
    held = {operand.pointer.buffer for operand in call.reads}
    prepare_call(call, lambda p: 9, 0, 77, sms=84, scratch=held)
    assert mm.calls == []


def test_results_of_functions_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Tensor(1)
    neg = Operator([Argument("self")], result)
    torch = fake_torch(monkeypatch, neg=neg)
    made: list[Tensor] = []
    monkeypatch.setattr(Tensor, "copy_", lambda self, other: made.append(other))
    prepared(call_of("aten::neg reads=[a:f32[4,4]] writes=[c:f32[4,4]] attrs={}"))()
    assert made == [result]
    assert torch.ops.aten.neg.default is neg


def test_numbers_and_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [Argument("self"), Argument("other"), Argument("alpha", default=True)]
    add = Operator([*arguments, Argument("out", is_out=True)])
    fake_torch(monkeypatch, add__out=add)
    text = 'aten::add.out reads=[a:f32[4,4], b:f32[4,4]] writes=[c:f32[4,4]] attrs={"alpha": 2}'
    prepared(call_of(text))()
    assert add.calls[0]["alpha"] == 2


def test_what_pytorch_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    mm = Operator(
        [Argument("self"), Argument("mat2"), Argument("out", is_out=True)],
        RuntimeError("no such algorithm\nlong story"),
    )
    fake_torch(monkeypatch, mm__out=mm)
    with pytest.raises(DriverError, match="no such algorithm"):
        prepared(call_of(MM))()


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TesseraError, match="TSR5100") as failure:
        prepared(call_of(MM))
    assert failure.value.exit_code == 4
