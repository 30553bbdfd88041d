"""A runtime over arrays instead of devices: steps of a toy model whose tokens tell every mistake.

The next token depends on every token before it in the row's cache, at its position. A step that
reads a wrong row, a wrong position or another sequence's block gives other tokens than `answer`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.known_backends import BackendName
from tessera.backend.service import Completion, EarlierOutput, ServiceFault
from tessera.diagnostics import Source, error
from tessera.driver.load import read_program
from tessera.driver.run.moves import HandOverFault, Moved
from tessera.driver.run.runtime import Result

VOCABULARY = 50
CONTEXT = 16
BLOCKS = 9
"""Blocks of a cache in blocks, the first of which belongs to nobody."""
POISON = 49
"""A token that makes a kernel fault."""


def next_token(tokens: Sequence[int]) -> int:
    value = 7
    for token in tokens:
        value = (value * 31 + int(token) + 3) % 10007
    return value % (VOCABULARY - 1)


def answer(prompt: Sequence[int], count: int) -> list[int]:
    """The plain loop."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def _trace(kind: str, rows: int, tokens: int, step_rows: int, paged: bool, logits: bool) -> str:
    lines = ["//! tessera.trace 1"]

    def buffer(name: str, role: str, dtype: str, *shape: int) -> None:
        size = int(np.prod(shape)) * (4 if dtype.endswith("32") else 8)
        text = "x".join(map(str, shape))
        lines.append(f"//! buffer {name} bytes={size} role={role} dtype={dtype} shape={text}")

    buffer("tokens", "input", "s64", step_rows, tokens)
    buffer("positions", "input", "s64", step_rows)
    if kind == "prefill":
        buffer("lengths", "input", "s64", step_rows)
        if not paged:
            buffer("rows", "input", "s64", step_rows)
    if paged:
        buffer("blocks", "input", "s64", step_rows, CONTEXT // 4)
        buffer("cache", "state", "s64", 9, 4)
    else:
        buffer("cache", "state", "s64", rows, CONTEXT)
    if logits:
        buffer("logits", "output", "f32", step_rows, VOCABULARY)
    else:
        buffer("next", "output", "s64", step_rows)
    return "\n".join(lines) + "\n"


def _mixed_trace(rows: int, tokens: int, logits: bool) -> str:
    shapes = {"tokens": (tokens,), "positions": (tokens,), "rows": (tokens,), "last": (rows,)}
    shapes |= {"blocks": (rows + 1, CONTEXT // 4)} | ({} if logits else {"earlier": (rows,)})
    lines = ["//! tessera.trace 1"]
    for role, own in (("input", shapes), ("state", {"cache": (BLOCKS, 4)})):
        for name, shape in own.items():
            size, text = 8 * int(np.prod(shape)), "x".join(map(str, shape))
            lines.append(f"//! buffer {name} bytes={size} role={role} dtype=s64 shape={text}")
    size, kind = (4 * rows * VOCABULARY, "f32") if logits else (8 * rows, "s64")
    name, shape = ("logits", f"{rows}x{VOCABULARY}") if logits else ("next", str(rows))
    lines.append(f"//! buffer {name} bytes={size} role=output dtype={kind} shape={shape}")
    return "\n".join(lines) + "\n"


class ToyHandle:
    def __init__(self, future: Future[Result]) -> None:
        self.future = future
        self.result = future.result
        self.request = SimpleNamespace(number=-1)

    def add_done_callback(self, call: Any) -> None:
        self.future.add_done_callback(lambda _: call(self))


class ToyRuntime:
    """`batches` copies of a cache of `rows`; steps are done by one thread, when they are let go."""

    backend = BackendName.CPU
    plan = SimpleNamespace(devices=())

    def __init__(
        self,
        plan: object = None,
        *,
        policy: str | None = None,
        isolated: bool = False,
        rows: int = 3,
        batches: int = 2,
        chunk: int = 4,
        paged: bool = False,
        logits: bool = True,
        prefill: bool = True,
        mixed: tuple[int, ...] = (),
        named: tuple[tuple[str, ...], ...] = (),
        chains: bool = False,
        roles: tuple[tuple[float, float], ...] = (),
    ) -> None:
        """`roles` are the shares of decode and prefill steps, for a replica of each batch.

        With `mixed`, steps are mixed, of so many tokens each.
        """
        self._chains = chains
        self.chained = 0
        self._last: dict[int, threading.Thread] = {}
        self._given: dict[int, NDArray[np.int64]] = {}
        self._has_logits = logits
        traces = {"decode": _trace("decode", rows, 1, rows, paged, logits)}
        if prefill:
            traces["prefill"] = _trace("prefill", rows, chunk, 1, paged, logits)
        if mixed:
            paged = True
            traces = {f"mixed_{tokens}": _mixed_trace(rows, tokens, logits) for tokens in mixed}
        self.traces = tuple(traces)
        self.programs = tuple(read_program(Source(n, text))[0] for n, text in traces.items())
        self.graphs = tuple(SimpleNamespace(nodes=()) for _ in self.programs)
        self.sequences = batches
        self.groups = (tuple(range(batches)),)
        self.policies = named or (("",),)
        self.ways: dict[str, int] = {}
        lanes = batches // len(self.policies)
        lowered = SimpleNamespace(devices=())
        self.replicas = tuple(
            SimpleNamespace(share=1.0, lanes=lanes, shares=(), lowered=lowered)
            for _ in self.policies
        )
        if roles:
            batches = self.sequences = len(roles)
            self.groups = tuple((number,) for number in range(batches))
            self.policies = (("",),) * batches
            self.replicas = tuple(
                SimpleNamespace(
                    share=1 / batches,
                    lanes=1,
                    shares=own,
                    serves=own.__getitem__,
                    lowered=SimpleNamespace(devices=(str(number),)),
                )
                for number, own in enumerate(roles)
            )
        self.fragile: Callable[[str, int], None] = lambda *_: None
        """Called before a step or a hand-over touches a sequence; it may raise a fault."""
        self.restarted = 0
        shape = (batches, BLOCKS, 4) if paged else (batches, rows, CONTEXT)
        self.cache: NDArray[np.int64] = np.full(shape, -1, np.int64)
        self.most_under_way = 0
        self.widest = 0
        self.steps: list[tuple[str, int]] = []
        self._under_way = 0
        self._busy: Counter[int] = Counter()
        self._lock = threading.Lock()
        self.closed = False

    def submit(self, arrays: Mapping[str, NDArray[Any]], *, sequence: int, trace: int) -> ToyHandle:
        future: Future[Result] = Future()
        with self._lock:
            self._under_way += 1
            self.most_under_way = max(self.most_under_way, self._under_way)
            self.steps.append((self.traces[trace], sequence))
            self._busy[sequence] += 1
        before = self._last.get(sequence)
        given = future, arrays, sequence, trace, before
        self._last[sequence] = thread = threading.Thread(target=self._work, args=given)
        thread.start()
        return ToyHandle(future)

    def _work(
        self,
        future: Future[Result],
        arrays: Mapping[str, NDArray[Any]],
        sequence: int,
        trace: int,
        before: threading.Thread | None,
    ) -> None:
        try:
            if before is not None:
                before.join()  # requests of a sequence keep their order
            if isinstance(arrays["tokens"], EarlierOutput):
                self.chained += 1
                arrays = {**arrays, "tokens": self._given.pop(sequence)[:, None]}
            elif isinstance(arrays.get("earlier"), EarlierOutput):
                self.chained += 1
                arrays = {**arrays, "earlier": self._given.pop(sequence)}
            self.fragile("step", sequence)
            result = self._step(arrays, sequence, trace)
            if not self._has_logits:
                self._given[sequence] = np.array(result["next"])
        except BaseException as problem:
            with self._lock:
                self._under_way -= 1
                self._busy[sequence] -= 1
            future.set_exception(problem)
            return
        with self._lock:
            self._under_way -= 1
            self._busy[sequence] -= 1
        future.set_result(result)

    def _step(self, arrays: Mapping[str, NDArray[Any]], sequence: int, trace: int) -> Result:
        cache = self.cache[sequence]
        if "last" in arrays:
            return self._mixed_step(arrays, cache, trace)
        tokens, positions = arrays["tokens"], arrays["positions"]
        count = len(tokens)
        rows = arrays.get("rows", np.arange(count))
        lengths = arrays.get("lengths", np.ones(count, np.int64))
        logits = np.zeros((count, VOCABULARY), np.float32)
        for row in range(count):
            places = positions[row] + np.arange(tokens.shape[1])
            assert places[0] >= 0
            assert places[-1] < CONTEXT
            if (tokens[row] == POISON).any():
                raise ServiceFault(error("TSR5012", "the kernel ran into a trap"), device="toy")
            if "blocks" in arrays:
                table = arrays["blocks"][row]
                cache[table[places // 4], places % 4] = tokens[row]
                held = cache[table].reshape(-1)
            else:
                cache[rows[row], places] = tokens[row]
                held = cache[rows[row]]
            end = positions[row] + max(int(lengths[row]), 1)
            logits[row, next_token(held[:end])] = 1.0
        self.widest = max(self.widest, int((lengths > 0).sum()))
        return self._result(trace, logits)

    def _mixed_step(
        self, arrays: Mapping[str, NDArray[Any]], cache: NDArray[np.int64], trace: int
    ) -> Result:
        tokens, rows, positions = (arrays[name] for name in ("tokens", "rows", "positions"))
        blocks, last = arrays["blocks"], arrays["last"]
        if (tokens < 0).any():
            tokens = np.where(tokens < 0, arrays["earlier"][-1 - np.minimum(tokens, -1)], tokens)
        there = rows < len(last)
        if (tokens[there] == POISON).any():
            raise ServiceFault(error("TSR5012", "the kernel ran into a trap"), device="toy")
        cache[blocks[rows, positions // 4], positions % 4] = tokens
        logits = np.zeros((len(last), VOCABULARY), np.float32)
        for row in set(rows[there].tolist()):
            held = cache[blocks[row]].reshape(-1)[: positions[last[row]] + 1]
            logits[row, next_token(held)] = 1.0
        self.widest = max(self.widest, len(set(rows[there].tolist())))
        return self._result(trace, logits)

    def _result(self, trace: int, logits: NDArray[np.float32]) -> Result:
        program = self.programs[trace]
        (output,) = [b for b in program.buffers if b.role.value == "output"]
        made = logits if output.name == "logits" else logits.argmax(-1).astype(np.int64)
        outputs = {output.name: made.reshape(-1).view(np.uint8)}
        return Result(program, Completion(request=0, outputs=outputs, started_ns=0, ended_ns=1))

    def prepare_chain(self, trace: int, inputs: tuple[str, ...]) -> bool:
        assert inputs in (("tokens",), ("earlier",))
        return self._chains

    def reset_states(self, sequence: int = 0, *, rows: int | None = None) -> None:
        self.cache[sequence, rows] = -1

    def states(self, sequence: int = 0) -> dict[str, NDArray[Any]]:
        self._between_steps("take", sequence)
        return {"cache": self.cache[sequence].copy()}

    def set_states(
        self, states: Mapping[str, NDArray[Any]], sequence: int = 0, *, rows: int
    ) -> None:
        self._between_steps("put", sequence)
        self.cache[sequence, rows] = states["cache"]

    def move_rows(
        self,
        source: int,
        target: int,
        rows: Sequence[tuple[Any, Any]],
        *,
        tokens: Sequence[int],
        token_axis: int,
    ) -> Future[Moved]:
        """Only the tokens of each sequence go: what is behind them is left as it was."""
        future: Future[Moved] = Future()
        sides = source, target

        def move() -> None:
            at = source
            try:
                self._between_steps("take", source)
                at = target
                self._between_steps("put", target)
                for (here, there), count in zip(rows, tokens, strict=True):
                    pair = [[own] if isinstance(own, int) else list(own) for own in (here, there)]
                    held = self.cache[source, pair[0]].reshape(-1)
                    kept = self.cache[target, pair[1]]
                    whole = kept.reshape(-1)
                    whole[:count] = held[:count]
                    self.cache[target, pair[1]] = whole.reshape(kept.shape)
                future.set_result(Moved(bytes=8 * sum(tokens), started_ns=0, ended_ns=1))
            except BaseException as problem:
                future.set_exception(HandOverFault(problem, at, sides))

        threading.Thread(target=move, daemon=True).start()
        return future

    def _between_steps(self, what: str, sequence: int) -> None:
        assert not self._busy[sequence], "a step is under way"
        self.fragile(what, sequence)

    def restart(self, sequence: int) -> None:
        self.restarted += 1
        for own in next(group for group in self.groups if sequence in group):
            self.cache[own] = -1

    def close(self, *, wait: bool = True) -> None:
        self.closed = True
