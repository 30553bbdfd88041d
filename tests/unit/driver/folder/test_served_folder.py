"""A folder as `save_pretrained` writes it, from its files to chats: tokens, text and chances equal
those of the transformers library. Captures a step, which takes minutes."""

from __future__ import annotations

import http.client
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tessera.driver.serve.sampling import Sampling
from tests.helpers.chat_folder import write_chat_folder
from tests.helpers.corpus import ROOT
from tests.unit.driver.serve.test_drawing import wanted

pytestmark = pytest.mark.slow
for name in ("torch", "transformers", "triton", "tokenizers", "jinja2", "uvicorn"):
    pytest.importorskip(name, reason=f"needs {name}")


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[int, list[str]]]:
    """The port of a server, and what it has said before."""
    command = [sys.executable, "-m", "tessera", "serve", str(path), "--backend", "cpu"]
    command += ["--step-tokens", "16", "--context", "64", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("serving"):
                break
        yield int(said[-1].rsplit(":", 1)[1]), said
        process.terminate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Any, Any]]:
    path = tmp_path_factory.mktemp("folder") / "tiny"
    model, tokenizer = write_chat_folder(path)
    shutil.copy(ROOT / "README.md", path)  # what else lies there does no harm
    with served(path) as (port, _):
        yield port, model, tokenizer


def asked(port: int, body: dict[str, Any]) -> dict[str, Any]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    for _ in range(100):
        try:
            link.request("POST", "/v1/chat/completions", json.dumps(body))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    told: dict[str, Any] = json.loads(link.getresponse().read())
    link.close()
    return told


@pytest.mark.parametrize("seed", range(4))
def test_a_chat_with_a_folder_is_that_of_transformers(
    folder: tuple[int, Any, Any], seed: int
) -> None:
    import torch

    port, model, tokenizer = folder
    draw = random.Random(seed)
    text = " ".join(draw.choice(["the", "cat", "€", "hello 😀"]) for _ in range(4))
    messages = [{"role": "user", "content": text}]
    body = {"messages": messages, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    (choice,) = asked(port, body)["choices"]
    given = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    made = model.generate(given, attention_mask=torch.ones_like(given), do_sample=False)
    answer = [t for t in made[0, given.shape[1] :].tolist() if t != tokenizer.eos_token_id]
    assert choice["token_ids"] == answer
    assert choice["message"]["content"] == tokenizer.decode(answer, skip_special_tokens=True)
    with torch.no_grad():
        logs = model(made).logits[0].double().log_softmax(-1)[given.shape[1] - 1 :]
    for place, (token, told) in enumerate(zip(answer, choice["logprobs"]["content"], strict=True)):
        assert told["logprob"] == pytest.approx(logs[place, token].item(), abs=1e-4)
        top = [own["logprob"] for own in told["top_logprobs"]]
        assert top == pytest.approx(logs[place].topk(3).values.tolist(), abs=1e-4)


def test_steps_of_a_folder_draw_by_its_generation_config(tmp_path: Path) -> None:
    model, tokenizer = write_chat_folder(tmp_path / "tiny")
    told = {"temperature": 1.2, "top_k": 40, "top_p": 0.7, "min_p": 0.01}
    more = {"do_sample": True, "repetition_penalty": 1.1}
    (tmp_path / "tiny" / "generation_config.json").write_text(json.dumps(told | more))
    messages = [{"role": "user", "content": "hello"}]
    given = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    with served(tmp_path / "tiny", "--no-logits") as (port, said):
        assert any(line.startswith("not applied: repetition_penalty of") for line in said)
        for seed, changed in ((3, {}), (4, {"top_p": 1.0}), (5, {"top_k": 2})):
            body = {"messages": messages, "max_tokens": 8, "seed": seed, **changed}
            (choice,) = asked(port, body)["choices"]
            answer = wanted(model, given, 8, Sampling(seed=seed, **(told | changed)))
            end = answer.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in answer else 8
            assert choice["token_ids"] == answer[:end]
