"""Requests over HTTP to a `tessc serve` that is started here, for `benchmarks.serving.gpu`.

Clients are those of the `openai` package where it is installed, else of the standard library.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

AT_ONCE = 64


def measure(
    command: Sequence[str],
    prompts: Sequence[list[int]],
    requests: int,
    most: int,
    left: Callable[[], float],
) -> dict[str, Any]:
    """So many requests; equal prompts must get equal answers, and SIGTERM ends the server."""
    begun = time.monotonic()
    server = subprocess.Popen(list(command), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = server.stdout.readline().split()[-1]
        started = time.monotonic()
        ask = by_openai(url) if importlib.util.find_spec("openai") else by_http(url)
        ask(prompts[0], most)
        before = memory_mb(server.pid)
        asked = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            rows = list(pool.map(lambda n: ask(prompts[n % len(prompts)], most), range(requests)))
        took = time.monotonic() - asked
        after = memory_mb(server.pid)
        server.send_signal(signal.SIGTERM)
        code = server.wait(max(left(), 30))
    finally:
        server.kill()
    answers: dict[int, set[tuple[int, ...]]] = {}
    for number, given in enumerate(rows):
        answers.setdefault(number % len(prompts), set()).add(tuple(given))
    return {
        "start_s": round(started - begun, 1),
        "client": "openai" if ask.__name__ == "ask_openai" else "http.client",
        "requests": requests,
        "at_once": AT_ONCE,
        "whole": sum(len(given) == most for given in rows),
        "prompts_with_one_answer": sum(len(own) == 1 for own in answers.values()),
        "prompts": len(prompts),
        "seconds": round(took, 2),
        "tokens_per_s": round(requests * most / took, 1),
        "memory_mb": [before, after],
        "exit_code": code,
    }


def memory_mb(process: int) -> int:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(next(x for x in text.splitlines() if x.startswith("VmRSS")).split()[1]) // 1024


def by_openai(url: str) -> Callable[[list[int], int], list[int]]:
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=4, timeout=300)

    def ask_openai(prompt: list[int], most: int) -> list[int]:
        made: list[int] = []
        for event in client.completions.create(
            model="tessera", prompt=prompt, max_tokens=most, temperature=0, stream=True
        ):
            made += event.choices[0].token_ids
        return made

    return ask_openai


def by_http(url: str) -> Callable[[list[int], int], list[int]]:
    host, port = url.removeprefix("http://").split(":")

    def ask_http(prompt: list[int], most: int) -> list[int]:
        connection = http.client.HTTPConnection(host, int(port), timeout=300)
        body = json.dumps({"prompt": prompt, "max_tokens": most, "temperature": 0})
        connection.request("POST", "/v1/completions", body)
        value = json.loads(connection.getresponse().read())
        connection.close()
        return list(value["choices"][0]["token_ids"])

    return ask_http
