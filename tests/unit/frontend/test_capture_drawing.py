"""Drawing in a step: which tokens are left, by transformers' own rules, and which are drawn."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tessera.settings import with_environment

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("triton", reason="needs Triton")

KERNEL = """
import random, torch
from tessera.frontend.capture.mixed import drawing

drawing._TILE, limited = 64, 0
for seed in range(60):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rows, size = draw.randint(1, 3), draw.choice([5, 64, 333])
    kind = draw.choice([torch.float32, torch.bfloat16, torch.float16])
    logits = torch.randn(rows, size) * draw.choice([0.1, 2, 10]) + draw.choice([0, -30, 5])
    if seed % 5 == 0:
        logits[0, : size // 2] = logits[0, 0]
    if seed % 5 == 1:
        logits[0, 1:3] = float("-inf")
    if seed % 5 == 2:
        logits = logits[:, :: 2]
    logits = logits.to(kind)
    some = lambda *values: torch.tensor([draw.choice(values) for _ in range(rows)])
    given = (
        some(0.0, 0.5, 1.0, 2.0),
        some(0, 0, 1, 3, size, size + 9),
        some(1.0, 0.9, 0.5, draw.random() + 1e-6),
        some(0.0, 0.0, 0.1, 1.0),
    )
    found, wanted = (
        logits.float() >= find(logits, *given)[:, None]
        for find in (drawing.least_by_kernel, drawing.least_by_sort)
    )
    assert torch.equal(found, wanted), (seed, kind, given, found.sum(1), wanted.sum(1))
    assert all(wanted.any(1)), (seed, given)
    limited += int(not wanted.all())
assert limited > 40, limited
"""


def test_the_kernel_leaves_what_sorting_leaves() -> None:
    environment = with_environment({"TRITON_INTERPRET": "1"})
    subprocess.run([sys.executable, "-c", KERNEL], check=True, env=environment)


def _case(seed: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(seed)
    rows = 8
    logits = torch.randn(rows, 200) * (1 + seed % 3)
    heat = torch.tensor([0.3, 0.7, 1.0, 2.0]).repeat(2)
    top_k = torch.where(torch.rand(rows) < 0.5, 0, torch.randint(1, 250, (rows,)))
    top_p = torch.where(torch.rand(rows) < 0.3, 1.0, torch.rand(rows).clamp(min=0.01))
    min_p = torch.where(torch.rand(rows) < 0.5, 0.0, torch.rand(rows))
    return logits, heat, top_k, top_p, min_p


@pytest.mark.parametrize("seed", range(20))
def test_tokens_are_those_that_transformers_leaves(seed: int) -> None:
    """The draw is the greatest of what the library leaves, with the noise of the row's number."""
    made = pytest.importorskip("transformers", reason="needs transformers")
    from tessera.frontend.capture.mixed.drawing import draw, gumbel, least_by_sort

    case = logits, heat, top_k, top_p, min_p = _case(seed)
    is_left = logits >= least_by_sort(*case)[:, None]
    ids = torch.zeros(1, 1, dtype=torch.long)
    uniform = torch.rand(len(logits))
    drawn = draw(logits, heat, uniform, top_k, top_p, min_p)
    for row in range(len(logits)):
        scores = logits[row : row + 1].double() / heat[row].double()
        steps = [made.TopKLogitsWarper(int(top_k[row]))] if top_k[row] else []
        steps += [made.TopPLogitsWarper(float(top_p[row]))] if top_p[row] < 1 else []
        steps += [made.MinPLogitsWarper(float(min_p[row]))] if min_p[row] > 0 else []
        for step in steps:
            scores = step(ids, scores)
        assert torch.equal(scores[0].isfinite(), is_left[row])
        noise = gumbel((uniform[row] * (1 << 24)).long(), torch.arange(200))
        assert int(drawn[row]) == int((scores[0] + noise).argmax())


@pytest.mark.parametrize("limits", [(0, 1.0, 0.0), (12, 1.0, 0.0), (0, 0.8, 0.0), (30, 0.9, 0.02)])
def test_drawn_tokens_have_their_probabilities(limits: tuple[int, float, float]) -> None:
    from tessera.frontend.capture.mixed.drawing import draw, least_by_sort

    torch.manual_seed(0)
    own, count, heat = torch.randn(40) * 1.5, 100_000, torch.ones(1)
    given = [torch.tensor([limit]) for limit in limits]
    least = least_by_sort(own[None], heat, *given)
    logits = own.expand(count, 40)
    drawn = draw(logits, heat.expand(count), torch.rand(count), *(g.expand(count) for g in given))
    wanted = own.masked_fill(own < least, float("-inf")).softmax(-1)
    shares = torch.bincount(drawn, minlength=40) / count
    left = wanted > 0
    assert not shares[~left].any()
    freedom = int(left.sum()) - 1
    off = float(((shares - wanted)[left] ** 2 / wanted[left] * count).sum())
    assert off < freedom + 5 * (2 * freedom) ** 0.5


def test_a_row_at_zero_takes_the_most_likely_token() -> None:
    from tessera.frontend.capture.mixed.drawing import draw

    logits, heat, *limits = _case(1)
    drawn = draw(logits, heat * 0, torch.rand(len(logits)), *limits)
    assert torch.equal(drawn, logits.argmax(-1))
