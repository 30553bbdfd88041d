"""Results that are small parts of what was made come back alone; what lasts is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.driver.trace.meta_trace import trace_fake
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.small_parts import copy_small_results
from tessera.ir.program.program import Role

pytestmark = pytest.mark.filterwarnings("ignore")


def rewritten(function: Callable[..., Any], *given: Any) -> tuple[list[int], Any]:
    """Bytes of the memory of each result, once a graph was rewritten, and the results."""
    results: list[Any] = []

    def backend(module: Any, examples: list[Any]) -> Callable[..., Any]:
        copy_small_results(module.graph)
        module.recompile()

        def run(*values: Any) -> Any:
            results[:] = module(*values)
            return tuple(results)

        return run

    torch._dynamo.reset()
    made = torch.compile(function, backend=backend, fullgraph=True)(*given)
    return [result.untyped_storage().nbytes() for result in results], made


def test_a_small_part_is_copied_and_a_large_one_is_not() -> None:
    def step(x: Any, state: Any) -> Any:
        made, other = x * 2, x + 1
        state.add_(1)
        return made[-1], other[:7], state[0], x[1]

    x, state = torch.ones(8, 16), torch.zeros(8, 16)
    sizes, (last, most, kept, given) = rewritten(step, x, state)
    assert sizes[0] == 64  # alone
    assert sizes[1] == 8 * 64  # a part of all that was made
    assert torch.equal(last, 2 * x[-1])
    assert torch.equal(most, x[:7] + 1)
    # what lasts: the very memory, not a copy
    assert kept.untyped_storage().data_ptr() == state.untyped_storage().data_ptr()
    assert given.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_parts_of_one_memory_count_together() -> None:
    def both(x: Any) -> Any:
        made = x * 2
        return made[0], made

    assert rewritten(both, torch.ones(8, 16))[0] == [512, 512]

    def halves(x: Any) -> Any:
        made = x * 2
        return made[:3], made[4:]

    assert rewritten(halves, torch.ones(8, 16))[0] == [512, 512]


def test_a_part_that_changes_later_is_copied_as_it_is_in_the_end() -> None:
    def step(x: Any) -> Any:
        made = x * 2
        last = made[-1]
        made.add_(1)
        return last, x.sum()

    sizes, (last, _) = rewritten(step, torch.ones(8, 16))
    assert sizes[0] == 64
    assert torch.equal(last, torch.full((16,), 3.0))


def test_without_a_gpu_the_last_token_is_an_output_alone() -> None:
    def make() -> tuple[Callable[..., object], Inputs]:
        def step(x: Any, cache: Any) -> Any:
            cache[0] = x[0]
            made = x @ x.T
            return {"last": made[-1:], "cache": cache[:1], "all": made.exp()}

        x = torch.ones(32, 32).cuda()
        return step, Inputs(plain=(x, torch.ones(32, 32).cuda()))

    program = trace_fake(make, fused=False).trace.program
    sizes = {b.name: b.bytes for b in program.declared_buffers() if b.role is Role.OUTPUT}
    assert sizes == {"out": 128, "out2": 4096}
    calls = [step.operator for step in program.steps]
    assert calls == ["aten::copy_", "aten::mm", "aten::exp", "aten::clone"]


def test_a_copy_that_the_compiler_would_drop_is_laid_out_anew() -> None:
    """A single row lies as its copy does: without a layout of its own the copy is no copy."""
    x = torch.ones(1, 8, 16)

    def plain(x: Any) -> Any:
        return (x * 2)[:, -1].clone()

    def viewed(x: Any) -> Any:
        return (x * 2)[:, -1].clone().squeeze(0)

    def lasting(x: Any) -> Any:
        return x[:, -1].clone()

    for step, strides in ((plain, (16, 1)), (viewed, (1,)), (lasting, (128, 1))):
        sizes, (made,) = rewritten(lambda x, step=step: (step(x),), x)
        assert sizes == [64]
        assert made.stride() == strides
        assert torch.equal(made.reshape(-1), step(x).reshape(-1))
