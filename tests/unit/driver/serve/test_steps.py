"""What traces state of themselves as steps, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import Source, TesseraError
from tessera.driver.load import read_program
from tessera.driver.run.arrays import float_array, typed_array
from tessera.driver.serve.step_roles import GenerationSteps
from tessera.driver.serve.steps import declaration_beside, find_steps, read_declaration
from tessera.ir.program.program import Program

SIZES = {"s64": 8, "f32": 4, "bf16": 2}


def trace(**buffers: tuple[str, str, tuple[int, ...]]) -> Program:
    lines = ["//! tessera.trace 1"]
    for name, (role, kind, shape) in buffers.items():
        size = int(np.prod(shape)) * SIZES[kind]
        text = "x".join(map(str, shape))
        lines.append(f"//! buffer {name} bytes={size} role={role} dtype={kind} shape={text}")
    return read_program(Source("trace", "\n".join(lines) + "\n"))[0]


def decode(**more: tuple[str, str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "tokens": ("input", "s64", (4, 1)),
        "positions": ("input", "s64", (4,)),
        "cache": ("state", "f32", (4, 32, 2)),
        "logits": ("output", "bf16", (4, 1, 50)),
    } | more


def prefill(**more: tuple[str, str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "tokens": ("input", "s64", (1, 8)),
        "positions": ("input", "s64", (1, 8)),
        "rows": ("input", "s64", (1,)),
        "cache": ("state", "f32", (4, 32, 2)),
    } | more


def steps(*traces: dict[str, Any], **declared: Any) -> GenerationSteps:
    names = ["decode", "prefill"][: len(traces)]
    return find_steps(names, [trace(**given) for given in traces], declared or None)


def test_names_are_roles_and_shapes_are_sizes() -> None:
    made = steps(decode(), prefill())
    assert (made.state_rows, made.context, made.vocabulary) == (4, 32, 50)
    sizes = made.sizes(3)
    assert sizes.batches == 3
    assert [(s.rows, s.tokens) for s in sizes.decode + sizes.prefill] == [(4, 1), (1, 8)]
    # The prefill step gives no token: the first decode step does.
    assert not sizes.first_from_prefill
    assert not made.resets


@pytest.mark.parametrize(
    ("shape", "declared", "counts"),
    [
        ((4, 32, 2), {}, True),
        ((4, 32, 32, 2), {}, False),  # heads and tokens: which axis is which is not known
        ((4, 2, 32, 8), {"context": 32}, False),
    ],
)
def test_tokens_of_a_row_are_counted_only_by_an_axis_that_is_sure(
    shape: tuple[int, ...], declared: dict[str, int], counts: bool
) -> None:
    """Otherwise a hand-over would leave bytes of the sequence behind."""
    made = steps(decode(cache=("state", "f32", shape)), **declared)
    assert made.token_axis == (32 if counts else 0)


def test_a_prefill_step_that_knows_the_last_token_gives_the_first_of_the_answer() -> None:
    given = prefill(lengths=("input", "s64", (1,)), logits=("output", "bf16", (1, 50)))
    assert steps(decode(), given).sizes(1).first_from_prefill
    per_token = prefill(logits=("output", "bf16", (1, 8, 50)))
    assert steps(decode(), per_token).sizes(1).first_from_prefill


def test_a_declaration_names_what_names_do_not_say(tmp_path: Path) -> None:
    given = {
        "in0": ("input", "s64", (1, 1)),
        "in1": ("input", "s64", (1,)),
        "cache": ("state", "bf16", (1, 2, 64, 8)),
        "out": ("output", "bf16", (1, 1, 512)),
    }
    path = tmp_path / "plan.steps.json"
    roles = {"tokens": "in0", "positions": "in1", "logits": "out"}
    declared = {"format": "tessera-steps/1", "context": 64, "end": 2, "steps": {"decode": roles}}
    path.write_text(json.dumps(declared))
    assert declaration_beside(tmp_path / "plan.tsp") == str(path)
    made = find_steps(["decode"], [trace(**given)], read_declaration(path))
    assert (made.context, made.state_rows, made.end) == (64, 1, (2,))


def test_a_model_without_positions_begins_with_its_first_state() -> None:
    given = decode(lengths=("input", "s64", (4,)))
    del given["positions"]
    made = steps(given)
    assert made.resets
    assert made.sizes(1).holds(10**6, 10**6)


def test_blocks_are_counted_without_the_first() -> None:
    given = decode(blocks=("input", "s64", (4, 8)), cache=("state", "f32", (20, 4, 2)))
    made = steps(given)
    assert (made.context, made.sizes(1).blocks, made.sizes(1).block) == (32, 19, 4)


@pytest.mark.parametrize(
    ("traces", "declared", "words"),
    [
        ([{"x": ("input", "f32", (4,))}], {}, "no trace of the plan states an input `tokens`"),
        ([prefill()], {}, "no decode step"),
        ([decode(extra=("input", "f32", (1,)))], {}, "input `extra` of step `decode` has no role"),
        ([decode(tokens=("input", "f32", (4, 1)))], {}, "cannot be `tokens`"),
        ([decode(positions=("input", "s64", (3,)))], {}, "3 elements, and the step 4 rows"),
        ([decode(cache=("state", "f32", (6, 32, 2)))], {}, "6 rows, and no decode step"),
        ([decode(other=("state", "f32", (5, 32)))], {}, "different numbers of rows"),
        ([decode(other=("state", "f32", (4, 31)))], {}, "is not stated: `context`"),
        ([decode(), prefill()], {"context": 30}, "do not divide a context of 30"),
        ([decode()], {"size": 1}, "no key `size`"),
        ([decode()], {"context": "long"}, "must be a whole number"),
        ([decode()], {"steps": {"encode": {}}}, "no trace `encode`"),
        ([decode()], {"steps": {"decode": {"token": "x"}}}, "no role `token`"),
        ([decode()], {"steps": {"decode": {"tokens": "logits"}}}, "names no input"),
    ],
)
def test_what_does_not_fit_is_one_error(
    traces: list[dict[str, Any]], declared: dict[str, Any], words: str
) -> None:
    with pytest.raises(TesseraError, match=words) as refusal:
        steps(*traces, **declared)
    assert refusal.value.diagnostics[0].code == "TSR3026"


def test_a_step_that_cannot_say_which_rows_is_refused() -> None:
    given = prefill()
    del given["rows"]
    with pytest.raises(TesseraError, match="no input `rows`"):
        steps(decode(), given)


def test_a_file_that_is_no_declaration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("{", "[]", '{"format": "tessera-steps/9"}'):
        path.write_text(text)
        with pytest.raises(TesseraError, match=r"no JSON|no declaration"):
            read_declaration(path)


def test_types_that_numpy_lacks_are_arrays_with_their_name() -> None:
    program = trace(y=("output", "bf16", (2, 2)))
    (buffer,) = program.buffers
    values = np.array([1.0, -2.5, 0.0, 3.0], np.float32)
    content = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    assert np.array_equal(float_array(buffer, content), values.reshape(2, 2))
    array = typed_array(buffer, content)
    assert array.shape == (2, 2)
    assert array.tobytes() == content.tobytes()
    assert "bf16" in str(array.dtype) or "bfloat16" in str(array.dtype)
