"""The traces of a model as the steps of a fleet: sizes, times by kind of GPU, bytes.

In: traces, kinds of GPUs. Out: a `ServedModel`: decode and prefill steps (`ModelStep`), each with
its rows and tokens, its times per kind, and the bytes it keeps in memory. The input of tokens of a
trace gives its numbers of sequences and tokens; its attention gives its context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tessera.driver.step_sizes import check_family, tokens_of, wrong_sizes
from tessera.ir.graph.graph import GraphBuffer
from tessera.ir.plan.costs import Costs, CostSource, Duration
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.tables import TableKind
from tessera.ir.program.program import LibraryCall, Role
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.prices.work_shapes import call_shape
from tessera.planning.problem.plan_problem import problem_of
from tessera.planning.problem.problem import Tensor

_ATTENTION = ("attention", "attn", "flash", "fmha", "sdpa")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelStep:
    """A trace as a step: `tokens` of each of `rows` sequences; decode steps see `context` tokens.

    `ns` has a time per step of the trace and kind of GPU, None if the step cannot run there.
    """

    trace: LoadedTrace
    costs: Costs
    rows: int
    tokens: int
    context: int
    ns: tuple[tuple[float | None, ...], ...]
    attends: tuple[bool, ...]
    tensors: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        """The name of the step in reports."""
        return self.trace.planned.name

    @property
    def is_decode(self) -> bool:
        """Whether it takes one token of each sequence."""
        return self.tokens == 1

    def buffers(self, role: Role) -> list[GraphBuffer]:
        """The buffers of the trace with a role."""
        return [buffer for buffer in self.trace.graph.buffers if buffer.role is role]

    def users(self, role: Role) -> dict[str, list[int]]:
        """The steps of the trace that touch each buffer of a role, by name of the buffer."""
        return _users_of(self, role)


@lru_cache(maxsize=64)
def _users_of(step: ModelStep, role: Role) -> dict[str, list[int]]:
    graph = step.trace.graph
    users: dict[str, dict[int, None]] = {}
    for node in graph.nodes:
        for access in node.accesses:
            buffer = graph.buffers[access.buffer]
            if buffer.role is role:
                users.setdefault(buffer.name, {})[int(node.id)] = None
    return {name: list(steps) for name, steps in users.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedModel:
    """All steps, smallest first, and the bytes that a sequence keeps per token and per row."""

    decode: tuple[ModelStep, ...]
    prefill: tuple[ModelStep, ...]
    token_bytes: dict[str, float]
    row_bytes: dict[str, float]
    weight_bytes: dict[str, int]

    @property
    def steps(self) -> tuple[ModelStep, ...]:
        """Decode steps, then prefill steps."""
        return (*self.decode, *self.prefill)

    def shares(self, kind: int) -> dict[str, float]:
        """The share of the time on a kind of GPU that comes from each source."""
        totals = dict.fromkeys((source.value for source in CostSource), 0.0)
        for step in self.steps:
            for row in step.costs.steps:
                cost = row.on_device[kind]
                if isinstance(cost, Duration):
                    totals[cost.source.value] += cost.ns
        whole = sum(totals.values()) or 1.0
        return {name: ns / whole for name, ns in totals.items() if ns}


def served_model(
    traces: Sequence[LoadedTrace],
    costs: Sequence[Costs],
    machine: Machine,
    context: int | None,
) -> ServedModel:
    """The traces as steps of a model. The machine has one device of each kind."""
    steps = [
        _model_step(trace, own, machine, context) for trace, own in zip(traces, costs, strict=True)
    ]
    decode = sorted((s for s in steps if s.is_decode), key=lambda step: step.rows)
    prefill = sorted((s for s in steps if not s.is_decode), key=lambda s: s.rows * s.tokens)
    if not decode or not prefill:
        missing = "decode step (one token of each sequence)" if prefill else "prefill step"
        raise wrong_sizes(
            f"there is no {missing} among the traces",
            "give both: `tessc trace hf:config.json --phase decode --batch 64 -o decode.ptx`, "
            "and the same with `--phase prefill --batch 1`",
        )
    for family in (decode, prefill):
        check_family([step.trace for step in family])
    largest = decode[-1]
    token_bytes, row_bytes = _kept(largest)
    return ServedModel(
        decode=tuple(decode),
        prefill=tuple(prefill),
        token_bytes=token_bytes,
        row_bytes=row_bytes,
        weight_bytes={b.name: b.bytes for step in steps for b in step.buffers(Role.WEIGHT)},
    )


def _model_step(
    trace: LoadedTrace, costs: Costs, machine: Machine, context: int | None
) -> ModelStep:
    rows, tokens = tokens_of(trace)
    detail = problem_of(trace.graph, machine, costs, slots=1, lanes=1).problem.detail
    assert detail is not None
    reach = tokens if tokens > 1 else _reach(trace, context)
    names = [node.name.lower() for node in trace.graph.nodes]
    return ModelStep(
        trace=trace,
        costs=costs,
        rows=rows,
        tokens=tokens,
        context=reach,
        ns=tuple(task.ns for task in detail.problem.tasks),
        attends=tuple(any(word in name for word in _ATTENTION) for name in names),
        tensors=detail.problem.tensors,
    )


def _reach(trace: LoadedTrace, given: int | None) -> int:
    """The context of a decode step: by the shapes of its attention, or as given."""
    name = trace.planned.name
    seen = _attended(trace)
    if not seen and given is None:
        raise wrong_sizes(
            f"`{name}` does not say how many tokens its attention goes over",
            "give it: `--context 2048`",
        )
    if seen and given not in (None, seen):
        raise wrong_sizes(
            f"attention of `{name}` goes over {seen} tokens, not over {given}",
            "leave `--context` out: it is for traces that do not say it",
        )
    longest = _longest_axis(trace)
    if given is not None and longest is not None and given > longest:
        raise wrong_sizes(
            f"`{name}` keeps {longest} tokens of a sequence at most, and `--context` says {given}",
            f"give `--context {longest}` or less, or capture steps with larger caches",
        )
    return seen or given or 0


def _attended(trace: LoadedTrace) -> int:
    """The number of tokens that attention covers, by its shapes; 0 if no step states it."""
    shapes = (call_shape(work) for work in trace.program.work() if isinstance(work, LibraryCall))
    return max(
        (s.sizes[1] for s in shapes if s is not None and s.kind is TableKind.GENERATION), default=0
    )


def _longest_axis(trace: LoadedTrace) -> int | None:
    """The longest axis of a state after its rows: no cache has more tokens; None without states."""
    states = [b.shape or () for b in trace.program.buffers if b.role is Role.STATE]
    return max((n for shape in states for n in shape[1:]), default=None)


def _kept(step: ModelStep) -> tuple[dict[str, float], dict[str, float]]:
    """Bytes of each state per token of a sequence, or per sequence if no axis counts tokens."""
    by_token: dict[str, float] = {}
    by_row: dict[str, float] = {}
    for state in step.buffers(Role.STATE):
        shape = next((b.shape for b in step.trace.program.buffers if b.name == state.name), None)
        axes = list(shape or ())
        lengths = [n for n in axes[1:] if n >= step.context]
        rows = axes[0] if axes else 1
        if axes and lengths and rows >= step.rows:
            by_token[state.name] = state.bytes / rows / lengths[0]
        else:
            by_row[state.name] = state.bytes / max(rows, 1)
    return by_token, by_row
