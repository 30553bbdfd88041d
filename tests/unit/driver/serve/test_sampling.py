"""How tokens are chosen: against the rules written down plainly, and against transformers' own."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.serve.completion_requests import GenerationDefaults
from tessera.driver.serve.sampling import Sampling, TokenChooser, chances_of
from tessera.driver.serve.server import text_model
from tests.helpers.each import each

SIZE = 12


def drawn_case(draw: random.Random) -> tuple[list[float], Sampling, list[int], list[int]]:
    """Logits, how to choose, a prompt, and the answer so far."""

    def some(value: float, plain: float) -> float:
        return draw.choice([value, plain])

    bias = {draw.randrange(SIZE): draw.uniform(-9, 9) for _ in range(draw.randint(0, 3))}
    sampling = Sampling(
        temperature=draw.choice([0.0, 0.3, 1.0, 2.0]),
        top_k=draw.choice([0, 0, 1, 3, 99]),
        top_p=some(draw.uniform(0.05, 1), 1.0),
        min_p=some(draw.uniform(0, 1), 0.0),
        presence=some(draw.uniform(-2, 2), 0.0),
        frequency=some(draw.uniform(-2, 2), 0.0),
        repetition=some(draw.uniform(0.5, 2), 1.0),
        bias=tuple(bias.items()),
    )
    logits = [draw.gauss(0, 3) for _ in range(SIZE)]
    tokens = [[draw.randrange(SIZE) for _ in range(draw.randint(0, 6))] for _ in range(2)]
    return logits, sampling, tokens[0], tokens[1]


def changed(
    logits: list[float], own: Sampling, prompt: list[int], answer: list[int]
) -> list[float]:
    made = list(logits)
    for token in {*prompt, *answer}:
        made[token] *= own.repetition if made[token] < 0 else 1 / own.repetition
    for token in set(answer):
        made[token] -= own.presence + own.frequency * answer.count(token)
    for token, added in own.bias:
        made[token] += added
    return made


def shares(logits: list[float], own: Sampling) -> dict[int, float]:
    """The probability of each token that is left, the most likely first."""

    def parts(kept: list[int]) -> dict[int, float]:
        weights = {t: math.exp((logits[t] - logits[kept[0]]) / own.temperature) for t in kept}
        return {token: weight / sum(weights.values()) for token, weight in weights.items()}

    kept = sorted(range(SIZE), key=lambda token: -logits[token])[: own.top_k or SIZE]
    before, left = 0.0, []
    for token, share in parts(kept).items():
        if before < own.top_p:
            left.append(token)
        before += share
    most = max(parts(left).values())
    return parts([token for token, share in parts(left).items() if share >= own.min_p * most])


@each(range(150))
def test_a_token_is_chosen_by_the_rules(seed: int) -> None:
    draw = random.Random(seed)
    logits, sampling, prompt, answer = drawn_case(draw)
    given = np.array(logits)
    chooser = TokenChooser(sampling, prompt)
    wanted = changed(logits, sampling, prompt, answer)
    if sampling.is_greedy:
        assert chooser.choose(given, answer) == max(range(SIZE), key=wanted.__getitem__)
        return
    end = 0.0
    for token, share in shares(wanted, sampling).items():
        middle = end + share / 2
        chooser.draws = cast("Any", SimpleNamespace(random=lambda middle=middle: middle))
        if share > 1e-12:  # less is lost in the sum
            assert chooser.choose(given, answer) == token
        end += share
    assert given.tolist() == logits  # they are the model's, and others read them


@pytest.mark.parametrize("seed", range(30))
def test_what_is_left_is_what_transformers_leaves(seed: int) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    made = pytest.importorskip("transformers", reason="needs transformers")
    draw = random.Random(seed)
    logits, sampling, prompt, answer = drawn_case(draw)
    plain = Sampling(
        temperature=sampling.temperature or 1.0,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition=sampling.repetition,
    )
    ids = torch.tensor([[*prompt, *answer, 0]])
    scores = torch.tensor([logits], dtype=torch.float64)
    steps = [made.RepetitionPenaltyLogitsProcessor(plain.repetition)]
    steps += [made.TemperatureLogitsWarper(float(plain.temperature))]
    steps += [made.TopKLogitsWarper(plain.top_k)] if plain.top_k else []
    steps += [made.TopPLogitsWarper(plain.top_p)] if plain.top_p < 1 else []
    steps += [made.MinPLogitsWarper(plain.min_p)] if plain.min_p else []
    for step in steps:
        scores = step(ids, scores)
    theirs = scores.softmax(-1)[0].tolist()
    own = shares(changed(logits, plain, [*prompt, 0], answer), plain)
    assert [own.get(token, 0.0) for token in range(SIZE)] == pytest.approx(theirs, abs=1e-9)


def test_chances_are_those_of_the_model_before_any_change() -> None:
    logits = np.array([1.0, 3.0, -2.0, 3.5])
    told = chances_of(logits, 2, 2)
    sum_of_all = sum(math.exp(value) for value in logits)
    assert math.exp(told.logprob) == pytest.approx(math.exp(-2) / sum_of_all)
    assert [token for token, _ in told.top] == [3, 1]
    assert math.exp(told.top[0][1]) == pytest.approx(math.exp(3.5) / sum_of_all)


@pytest.mark.parametrize(
    "wrong",
    [
        {"presence": 2.1},
        {"frequency": float("nan")},
        {"repetition": 0.0},
        {"min_p": -0.1},
        {"chances": 21},
        {"temperature": True},
    ],
)
def test_what_cannot_be_done_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TesseraError, match=f"TSR5064.*`{next(iter(wrong))}` must be"):
        Sampling(**wrong)


@pytest.mark.parametrize(
    ("gives", "left_out"),
    [
        ({"logits"}, ()),
        ({"next", "uniform", "top_p", "top_k", "min_p"}, ()),
        ({"next", "uniform", "top_p"}, ("top_k",)),
        ({"next", "uniform"}, ("top_p", "top_k")),
        ({"next"}, ("temperature", "top_p", "top_k")),
    ],
)
def test_what_steps_cannot_do_of_a_generation_config(
    gives: set[str], left_out: tuple[str, ...]
) -> None:
    step = SimpleNamespace(size=SimpleNamespace(answers=True), has=gives.__contains__)
    model = SimpleNamespace(steps=[step], vocabulary=0, end=())
    told = GenerationDefaults(temperature=0.6, top_p=0.9, top_k=40, max_new_tokens=8)
    served = text_model(cast("Any", SimpleNamespace(model=model)), "small", defaults=told)
    assert served.defaults.left_out_of(told) == left_out
    assert served.defaults.left_out_of(GenerationDefaults()) == ()  # which sets nothing
