"""`tessc serve` against real clients: many at once, and those that misbehave.

    python -m benchmarks.serving.serve_clients -o RESULT.json [--requests 10000] [--at-once 200]
        [--clients PYTHON] [--parts openai,locust,bad,sigterm]

The server is `tessc serve` in a process of its own, with a model whose kernels sleep
(`timed_model`) on the CPU backend. `--clients` is a Python that has the packages `openai` and
`locust` (a public load generator); where a package is missing, the part says so. Every answer is
compared with a plain loop. Parts:

- `openai`: requests by the `openai` package, whole and as streams, `--at-once` at a time.
- `locust`: the same by users of Locust, over plain HTTP.
- `bad`: clients that are killed while they read, that read slowly, send broken JSON, prompts that
  are too long, wrong keys, bodies that never end; answers of others must be right meanwhile.
- `sigterm`: the server ends what runs, and refuses what comes.

Memory of the server is what it holds after a tenth of the requests, and at the end.
"""

from __future__ import annotations

import argparse
import http.client
import inspect
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, kept, machine, write
from benchmarks.serving.timed_model import PRIME, VOCABULARY, TimedModel, answer

KEY = "key-of-the-benchmark"
PARTS = ("openai", "locust", "bad", "sigterm")
# Clients have packages of their own, and need no more of ours than this.
ANSWER = f"PRIME, VOCABULARY = {PRIME}, {VOCABULARY}\n" + inspect.getsource(answer).replace(
    "prompt: Sequence[int], count: int) -> list[int]", "prompt, count)"
)

OPENAI = """
import concurrent.futures, json, time
import openai
{answer}
client = openai.OpenAI(base_url={url!r} + "/v1", api_key={key!r}, max_retries=8, timeout=600)
def ask(n):
    prompt, count = [n % 90, n % 7, n % 5][: 1 + n % 3], 1 + n % 8
    kind = dict(model="tessera", prompt=prompt, max_tokens=count, temperature=0)
    if n % 4:
        given = client.completions.create(**kind).choices[0].token_ids
    else:
        given = []
        for event in client.completions.create(stream=True, **kind):
            given += event.choices[0].token_ids
    return given == answer(prompt, count)
begun = time.time()
with concurrent.futures.ThreadPoolExecutor({at_once}) as pool:
    right = sum(pool.map(ask, range({first}, {last})))
took = round(time.time() - begun, 1)
print(json.dumps({{"right": right, "seconds": took, "version": openai.__version__}}))
"""

# Who ends a run from a task of a user waits for itself: that is done beside the users.
LOCUST = """
import itertools
import gevent
from locust import HttpUser, constant, events, task
{answer}
numbers, done = itertools.count(), []
@events.init.add_listener
def watch(environment, **_):
    def look():
        while len(done) < {count}:
            gevent.sleep(0.1)
        environment.runner.quit()
    gevent.spawn(look)
class Client(HttpUser):
    wait_time = constant(0)
    @task
    def ask(self):
        n = next(numbers)
        if n >= {count}:
            gevent.sleep(0.5)
            return
        prompt, most = [n % 90, n % 7], 1 + n % 8
        body = {{"prompt": prompt, "max_tokens": most, "temperature": 0}}
        with self.client.post("/v1/completions", json=body, catch_response=True,
                              headers={{"Authorization": "Bearer " + {key!r}}}) as reply:
            if reply.status_code != 200:
                reply.failure(str(reply.status_code))
            elif reply.json()["choices"][0]["token_ids"] != answer(prompt, most):
                reply.failure("other tokens")
            else:
                reply.success()
        done.append(n)
"""


class ServerProcess:
    """`tessc serve` in a process of its own."""

    def __init__(self, folder: Path, waiting: int) -> None:
        path = TimedModel(rows=64, batches=4, slots=4, decode_ms=4.0, prefill_ms=1.0).write(
            folder / "timed.tsp"
        )
        (folder / "key").write_text(KEY, encoding="utf-8")
        command = [sys.executable, "-m", "tessera", "serve", str(path), "--backend", "cpu"]
        command += ["--port", "0", "--api-key-file", str(folder / "key")]
        command += ["--max-waiting", str(waiting), "--max-bytes", "65536"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.url = line.split()[-1]
        host, port = self.url.removeprefix("http://").split(":")
        self.place = host, int(port)

    def memory_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        kilobytes = next(x for x in text.splitlines() if x.startswith("VmRSS")).split()[1]
        return int(kilobytes) / 1024

    def ask(self, body: object, key: str = KEY, raw: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*self.place, timeout=600)
        data = json.dumps(body).encode() if raw is None else raw
        connection.request("POST", "/v1/completions", data, {"Authorization": f"Bearer {key}"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, json.loads(text) if text else None

    def metric(self, name: str) -> float:
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
        text = connection.getresponse().read().decode()
        connection.close()
        return next(float(x.split()[-1]) for x in text.splitlines() if x.startswith(name + " "))


def is_right(served: ServerProcess, number: int) -> bool:
    prompt, count = [number % 90, 3], 1 + number % 6
    status, value = served.ask({"prompt": prompt, "max_tokens": count, "temperature": 0})
    return status == 200 and value["choices"][0]["token_ids"] == answer(prompt, count)


def by_openai(served: ServerProcess, given: argparse.Namespace) -> dict[str, Any]:
    """In two parts, with a look at the memory between them."""
    tenth = given.requests // 10
    rows = []
    memory = []
    for first, last in ((0, tenth), (tenth, given.requests)):
        script = OPENAI.format(
            answer=ANSWER, url=served.url, key=KEY, at_once=given.at_once, first=first, last=last
        )
        made = subprocess.run([given.clients, "-c", script], capture_output=True, text=True)
        if made.returncode:
            return {"failed": made.stderr[-400:]}
        rows.append(json.loads(made.stdout))
        memory.append(round(served.memory_mb(), 1))
    return {
        "requests": given.requests,
        "at_once": given.at_once,
        "right": sum(row["right"] for row in rows),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        "memory_mb_after_a_tenth": memory[0],
        "memory_mb_at_the_end": memory[1],
        "package": rows[0]["version"],
    }


def by_locust(served: ServerProcess, given: argparse.Namespace) -> dict[str, Any]:
    """In three parts, with a look at the memory after each."""
    tenth = given.requests // 10
    half = (given.requests - tenth) // 2
    rows, memory = [], []
    for count in (tenth, half, given.requests - tenth - half):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "locustfile.py"
            path.write_text(LOCUST.format(answer=ANSWER, key=KEY, count=count), encoding="utf-8")
            command = [given.clients, "-m", "locust", "-f", str(path), "--headless", "--json"]
            command += ["-u", str(given.at_once), "-r", "100", "-H", served.url]
            command += ["--loglevel", "ERROR"]
            made = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        try:
            rows += json.loads(made.stdout[made.stdout.index("[") :])
        except ValueError:
            return {"failed": (made.stderr or made.stdout)[-400:]}
        memory.append(round(served.memory_mb(), 1))
    return {
        "requests": sum(row["num_requests"] for row in rows),
        "at_once": given.at_once,
        "failures": sum(row["num_failures"] for row in rows),
        "memory_mb_after_a_tenth": memory[0],
        "memory_mb_after_a_half": memory[1],
        "memory_mb_at_the_end": memory[2],
        "package": package_version(given.clients, "locust"),
    }


def package_version(python: str, name: str) -> str:
    script = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-c", script], capture_output=True, text=True).stdout.strip()


def misbehave(served: ServerProcess, given: argparse.Namespace) -> dict[str, Any]:
    """Others are answered right meanwhile."""
    rights: list[bool] = []
    over = threading.Event()

    def go_on() -> None:
        number = 0
        while not over.is_set():
            rights.append(is_right(served, number))
            number += 1

    others = [threading.Thread(target=go_on) for _ in range(4)]
    for thread in others:
        thread.start()
    row: dict[str, Any] = {}
    long = {"prompt": [1] * 20, "max_tokens": 2000, "temperature": 0, "stream": True}
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    body = json.dumps(long).encode()
    whole = head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(50):  # killed while they read
        with socket.create_connection(served.place) as client:
            client.sendall(whole)
            client.recv(200)
    slow = socket.create_connection(served.place)  # one that reads nothing more
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(whole)
    endless = socket.create_connection(served.place)
    endless.sendall(head.encode() + b"Content-Length: 1000\r\n\r\n{")
    row["broken JSON"] = [served.ask(None, raw=raw)[0] for raw in (b"{", b"\xff\xfe", b"[]", b"")]
    row["wrong fields"] = [
        served.ask(value)[0]
        for value in (
            {},
            {"prompt": []},
            {"prompt": [1], "max_tokens": -1},
            {"prompt": ["a"]},
            {"prompt": "text without a tokenizer"},
            {"prompt": [10**30]},
        )
    ]
    row["too long"] = [served.ask({"prompt": [1] * 40_000, "max_tokens": 1})[0]]
    row["wrong keys"] = [served.ask({"prompt": [1]}, key=key)[0] for key in ("", "x", KEY + "x")]
    time.sleep(2)
    slow.close()
    endless.close()
    until = time.monotonic() + 60
    while served.metric("tessera_running") > 8 and time.monotonic() < until:
        time.sleep(0.2)
    over.set()
    for thread in others:
        thread.join()
    row["rows given back"] = served.metric("tessera_running") == 0
    return row | {"answers of others": len(rights), "right": sum(rights)}


def end_it(served: ServerProcess, given: argparse.Namespace) -> dict[str, Any]:
    results: list[bool] = []
    body = {"prompt": [3, 4], "max_tokens": 300, "temperature": 0}

    def ask() -> None:
        try:
            status, value = served.ask(body)
            results.append(
                status == 200 and value["choices"][0]["token_ids"] == answer([3, 4], 300)
            )
        except OSError:
            results.append(False)

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    while served.metric("tessera_running") < 30:
        time.sleep(0.05)
    served.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    code = served.process.wait(60)
    try:
        served.ask(body)
        refused = False
    except OSError:
        refused = True
    return {"under way": 30, "right": sum(results), "exit code": code, "refused after": refused}


def main() -> None:
    parser = arguments(__doc__, "serve_clients.json")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--clients", default=sys.executable, help="a Python with the clients")
    parser.add_argument("--parts", default=",".join(PARTS))
    given = parser.parse_args()
    result: dict[str, Any] = {
        "what": "`tessc serve` against real clients, CPU backend with kernels that sleep",
        **machine(),
        **kept(given.output),
    }
    calls = {"openai": by_openai, "locust": by_locust, "bad": misbehave, "sigterm": end_it}
    with tempfile.TemporaryDirectory() as folder:
        served = ServerProcess(Path(folder), waiting=4 * given.at_once)
        try:
            for part in given.parts.split(","):
                result[part] = calls[part](served, given)
                print(part, result[part], flush=True)
                write(result, given.output)
        finally:
            served.process.kill()


if __name__ == "__main__":
    main()
