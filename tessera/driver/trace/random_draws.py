"""Random numbers: the draw of seeds becomes a launch on the generator's state.

Code from torch.compile draws its random numbers from seeds, and the seeds from PyTorch's generator
by one operator, `randint` over all of int64. Here that operator is a launch of `draw_seeds.ptx`,
and the generator (its seed, its offset) is a state buffer: a trace draws the same numbers as
PyTorch, request after request. Operators that draw from the generator in other ways have no such
form.

Source: PyTorch 2.11, `DistributionTemplates.h` and `CUDAGeneratorImpl`; Philox4x32-10.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.raw import RawBuffer, RawOperator, RawRandom
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType

MODULE = "random"
DRAWN = 4
"""The increase of the generator's offset by one draw."""

_KERNEL = "draw_seeds"
_PTX = Path(__file__).with_name("draw_seeds.ptx")
_OPERATORS = ("aten::randint.low_out", "aten::randint.low")
_RANGE = (-(2**63), 2**63 - 1)
_THREADS = 256
# With more elements, PyTorch gives a thread several of them, depending on the size of the GPU.
_MOST = 16384
# Not a real device address; it only identifies the buffer.
_ADDRESS = 1 << 62


def draws_seeds(operator: RawOperator) -> bool:
    """Whether an operator is a draw of seeds."""
    given = dict(operator.attributes)
    return (
        operator.operator in _OPERATORS
        and (given.get("low"), given.get("high")) == _RANGE
        and [tensor.dtype for tensor in operator.writes] == [DataType.S64]
        and _count(operator) <= _MOST
    )


def state_buffer(taken: set[str]) -> RawBuffer:
    """The generator's state as a buffer."""
    name = "random_state"
    while name in taken:
        name += "_"
    return RawBuffer(
        name=name,
        address=_ADDRESS,
        bytes=16,
        role=ir.Role.STATE,
        lasting=True,
        dtype=DataType.U64,
        shape=(2,),
    )


def state_bytes(random: RawRandom, drawn: int = 0) -> npt.NDArray[np.uint8]:
    """The content of the generator's buffer after `drawn` numbers."""
    seed = random.seed & (2**64 - 1)
    return np.frombuffer(struct.pack("<QQ", seed, random.offset + drawn), np.uint8).copy()


def seeds_module(number: int) -> ir.ProgramModule:
    """The module with the kernel that draws."""
    text = _PTX.read_text()
    variant = ir.ModuleVariant(arch="sm_75", text=text, ptx=parse_module(text, MODULE))
    return ir.ProgramModule(ir.ModuleId(number), MODULE, (variant,))


def draw_launch(
    operator: RawOperator, module: ir.ProgramModule, state: ir.Pointer, target: ir.Pointer
) -> ir.Launch:
    """The launch that replaces the operator."""
    return ir.Launch(
        id=ir.LaunchId(0),
        module=module.id,
        kernel=_KERNEL,
        grid=(1, 1, 1),
        block=(_THREADS, 1, 1),
        arguments=(state, target, ir.Scalar(DataType.U32, _count(operator))),
    )


def check_drawn(drawn: int, draws: int) -> None:
    """Refuse a call that moves the generator by more than the trace's launches do."""
    if drawn != draws * DRAWN:
        raise TesseraError.of(
            "TSR6002",
            "the model draws random numbers in a way that a trace cannot hold",
            notes=(
                f"the call draws {drawn} numbers per thread from PyTorch's generator, and"
                f" its {draws} draws of seeds are {draws * DRAWN} of them",
            ),
            hint="use `--route ptx`, where torch.compile makes random numbers from seeds, or"
            " turn dropout off (`.eval()`)",
        )


def _count(operator: RawOperator) -> int:
    count = 1
    for extent in operator.writes[0].shape:
        count *= extent
    return count
