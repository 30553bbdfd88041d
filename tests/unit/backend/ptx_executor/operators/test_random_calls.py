"""Random calls of every operator: refused, or run to the end, but never a Python error."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.operators.run import run
from tessera.diagnostics import TesseraError
from tessera.ir.operators.records import AttributeKind, Kinds, Operator
from tessera.ir.operators.table import OperatorMismatch, bind, table
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import BufferId, LaunchId, LibraryCall, Operand, Pointer

TYPES = [
    DataType(name)
    for name in (
        "f32",
        "f32",
        "bf16",
        "f16",
        "f64",
        "s64",
        "s32",
        "u8",
        "bool",
        "c64",
        "e4m3",
        "u64",
        "b16",
    )
]
SIZE = 1 << 16
TRIALS = 1500


class Draw:
    """Choices for one call; most operands have one shape and type."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.base = self.shape()
        self.dtype = self.rng.choice(TYPES)

    def shape(self) -> tuple[int, ...]:
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 4))
        return tuple(self.rng.choice((0, 1, 2, 2, 3, 4)) for _ in range(rank))

    def operand(self, kinds: Kinds) -> Operand:
        shape = self.base if self.rng.random() < 0.7 else self.shape()
        dtype = self.dtype if self.rng.random() < 0.8 else self.rng.choice(TYPES)
        if not kinds.holds(dtype):
            dtype = self.rng.choice([one for one in TYPES if kinds.holds(one)])
        strides = None if self.rng.random() < 0.8 else tuple(self.rng.randint(0, 5) for _ in shape)
        offset = self.rng.choice((0, 0, 64, 3, 1024))
        return Operand(
            pointer=Pointer(BufferId(0), offset), dtype=dtype, shape=shape, strides=strides
        )

    def value(self, kind: AttributeKind) -> object:
        match kind:
            case AttributeKind.INTEGER:
                return self.rng.choice((-2, -1, 0, 0, 1, 2, 5, 10**12))
            case AttributeKind.NUMBER:
                return self.rng.choice((0, 1, 2.5, -1, 1e30, 3))
            case AttributeKind.BOOL:
                return self.rng.random() < 0.5
            case AttributeKind.TEXT:
                return self.rng.choice(("none", "tanh", "sum", "mean", "floor", "x"))
            case AttributeKind.TYPE:
                return self.rng.choice(("f32", "s64", "zz"))
            case AttributeKind.INTEGERS:
                return tuple(
                    self.rng.choice((-1, 0, 1, 2, 3)) for _ in range(self.rng.randint(0, 4))
                )

    def call(self, operator: Operator) -> LibraryCall:
        reads = []
        for spec in operator.reads:
            missing = (spec.is_optional or spec.or_number) and self.rng.random() < 0.5
            count = self.rng.randint(0, 3) if spec.is_list else 0 if missing else 1
            reads += [self.operand(spec.kinds) for _ in range(count)]
        attributes = {
            one.name: self.value(one.kind) for one in operator.attributes if self.rng.random() < 0.8
        }
        for spec in operator.reads:
            if spec.or_number and self.rng.random() < 0.5:
                attributes[spec.name] = self.value(AttributeKind.NUMBER)
        writes = [self.operand(spec.kinds) for spec in operator.writes]
        if operator.is_in_place and reads:
            writes[0] = reads[0]
        return LibraryCall(
            id=LaunchId(0),
            operator=operator.name,
            reads=tuple(reads),
            writes=tuple(writes),
            attributes=tuple(attributes.items()),
        )


def repaired(call: LibraryCall) -> LibraryCall | None:
    """The call with results of the shape that the refusal asks for; None if it asks for none."""
    try:
        bind(call)
    except OperatorMismatch as reason:
        asked = re.search(r"make it \[([\d,]*)\]", str(reason))
        if asked is None or "_" in call.operator.split(".")[0][-1:]:
            return None
        shape = tuple(int(size) for size in asked[1].split(",") if size)
        if np.prod(shape or (1,)) > 4000:
            return None
        return replace(
            call, writes=tuple(replace(one, shape=shape, strides=None) for one in call.writes)
        )
    return call


@pytest.mark.parametrize("first", range(0, TRIALS, 500))
def test_random_calls(first: int) -> None:
    operators = list(table().values())
    ran = 0
    with Device() as device:
        memory = device.array(np.zeros(SIZE, np.uint8), "memory")
        for seed in range(first, first + 500):
            draw = Draw(seed)
            call = repaired(draw.call(draw.rng.choice(operators)))
            if call is None:
                continue
            if any(o.extent_bytes() + 2048 > SIZE for o in (*call.reads, *call.writes)):
                continue
            memory.view()[:] = np.frombuffer(draw.rng.randbytes(SIZE), np.uint8) % 3
            try:
                run(device, call, lambda _: memory.address)
                ran += 1
            except TesseraError:
                device.log.finish()
    assert ran > 50
