"""`trace_fake`: from a callable on fake tensors to a trace of library calls; no GPU, no weights.

In: a function that makes a callable and its inputs. Out: a `Trace` without contents: operators with
their shapes, types and roles, by the rules of the capture on a GPU. The stages, in order:

1. `record_call`: the operators of one call (`frontend.capture.meta`).
2. `_known`: operators that the table does not have become `tessera::other` (TSR6013).
3. `build_program`: operators and memory as a program, with the roles that writes decide.
4. `fuse`: operators that serving engines compute in one kernel, if requested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.driver.trace.build import build_program
from tessera.driver.trace.capture_trace import GraphNodes, Trace
from tessera.driver.trace.patterns.fuse import fuse
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.raw import RawCapture, RawOperator, RawTensor
from tessera.frontend.trace.records import MAX_BYTES
from tessera.ir.operators.fused import MOST_WRITES
from tessera.ir.operators.table import OperatorMismatch, bind
from tessera.ir.program import program as ir
from tessera.ir.progress import OnProgress, StageProgress

OTHER = "tessera::other"
Made = tuple[Callable[..., object], Inputs]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTrace:
    """A trace, and the number of matches of each pattern in it."""

    trace: Trace
    patterns: dict[str, int]


def trace_fake(
    make: Callable[[], Made],
    *,
    fused: bool = True,
    warm_ups: int = 1,
    on_progress: OnProgress | None = None,
) -> FakeTrace:
    """The operators of one call of the callable that `make` returns; `make` runs with fake
    tensors."""
    from tessera.frontend.capture.meta.record import among_fakes

    with among_fakes():
        return trace_among_fakes(make, fused=fused, warm_ups=warm_ups, on_progress=on_progress)


def trace_among_fakes(
    make: Callable[[], Made],
    *,
    fused: bool = True,
    warm_ups: int = 1,
    on_progress: OnProgress | None = None,
) -> FakeTrace:
    """Like `trace_fake`, but inside `among_fakes`: several calls may share a model."""
    from tessera.frontend.capture.meta.record import record_call

    tell = on_progress or (lambda told: None)
    tell(StageProgress("running the model on shapes"))
    record = record_call(make, warm_ups)
    raw, findings = _known(record.raw)
    tell(StageProgress("making a trace", note=f"{len(raw.operators)} operators"))
    _check_sizes(raw)
    program, more = build_program(raw)
    patterns: dict[str, int] = {}
    if fused:
        tell(StageProgress("looking for operators that go together"))
        program, patterns = fuse(program)
    count = len(raw.operators)
    made = Trace(
        program=program,
        contents={},
        reference={},
        diagnostics=(*record.notes, *findings, *more),
        nodes=GraphNodes(kernels=0, memsets=0, copies=0, others=count, in_calls=count, skipped=0),
    )
    return FakeTrace(trace=made, patterns=patterns)


def _check_sizes(raw: RawCapture) -> None:
    """Refuse memory that is too large for a trace: tensors without memory may have any size."""
    large = next((buffer for buffer in raw.buffers if buffer.bytes > MAX_BYTES), None)
    if large is not None:
        raise TesseraError.of(
            "TSR6002",
            f"`{large.name}` has {large.bytes} bytes, and a buffer of a trace at most {MAX_BYTES}",
            hint="look at the sizes that the model is made with",
        )


def _known(raw: RawCapture) -> tuple[RawCapture, list[Diagnostic]]:
    """Replace operators that a trace cannot hold with operators of which only the operands are
    known."""
    reasons: dict[str, str] = {}
    operators = []
    for operator in raw.operators:
        reason = _mismatch(operator)
        if reason:
            reasons.setdefault(operator.operator, reason)
            operator = _other(operator)
        operators.append(operator)
    findings = [
        warning(
            "TSR6013",
            f"the operator `{name}` is not in the table: it is priced by its bytes alone",
            notes=(reason,),
        )
        for name, reason in reasons.items()
    ]
    return replace(raw, operators=tuple(operators)), findings


def _mismatch(operator: RawOperator) -> str:
    """The reason why the table does not accept a call; empty if it does."""
    call = ir.LibraryCall(
        id=ir.LaunchId(0),
        operator=operator.operator,
        attributes=operator.attributes,
        reads=tuple(map(_operand, operator.reads)),
        writes=tuple(map(_operand, operator.writes)),
    )
    try:
        bind(call)
    except OperatorMismatch as reason:
        return str(reason)
    return ""


def _operand(tensor: RawTensor) -> ir.Operand:
    pointer = ir.Pointer(ir.BufferId(0), tensor.address)
    return ir.Operand(
        pointer=pointer, dtype=tensor.dtype, shape=tensor.shape, strides=tensor.strides
    )


def _other(operator: RawOperator) -> RawOperator:
    writes = tuple(tensor for tensor in operator.writes if 0 not in tensor.shape)
    if len(writes) > MOST_WRITES or not operator.writes:
        many = f"writes {len(writes)} tensors, and a trace holds {MOST_WRITES}"
        raise TesseraError.of(
            "TSR6002",
            f"the model calls `{operator.operator}`, which a trace cannot hold",
            notes=(many if writes else "it writes no tensor that it names",),
            hint="write it with operators of PyTorch, or capture on a machine with a GPU",
        )
    return replace(
        operator,
        operator=OTHER,
        writes=writes or operator.writes[:1],
        attributes=(("name", operator.operator),),
    )
