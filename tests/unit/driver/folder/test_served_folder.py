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
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.corpus import ROOT

pytestmark = pytest.mark.slow
for name in ("torch", "transformers", "triton", "tokenizers", "jinja2", "uvicorn"):
    pytest.importorskip(name, reason=f"needs {name}")

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|user|>{{ m.content | trim }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}"
)


def saved(folder: Path) -> tuple[Any, Any]:
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    plain = tokenizers.Tokenizer(tokenizers.models.BPE())
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|begin|>", "<|user|>", "<|model|>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(["the cat and the dog sat on the mat, hello there"] * 5, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<|begin|>", eos_token="<|end|>"
    )
    tokenizer.chat_template = TEMPLATE
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "embed" not in name:
            parameter.data *= 15
    model.generation_config.max_new_tokens = 8
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Any, Any]]:
    path = tmp_path_factory.mktemp("folder") / "tiny"
    model, tokenizer = saved(path)
    shutil.copy(ROOT / "README.md", path)  # what else lies there does no harm
    command = [sys.executable, "-m", "tessera", "serve", str(path), "--backend", "cpu"]
    command += ["--step-tokens", "16", "--context", "64", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if line.startswith("serving"))
        port = int(said.rsplit(":", 1)[1])
        yield port, model, tokenizer
        process.terminate()


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
