"""A server under a long load of mixed requests: does its memory grow, does it leave anything open?

    python -m benchmarks.serving.soak --work FOLDER -o FILE [--requests 20000] [--minutes 40]

`tessc serve FOLDER` on the CPU backend serves a tiny chat model that this script writes. The
`openai` package sends chats and completions, whole and as streams, greedy and drawn, with several
choices, chances and a JSON schema, streams that are left early, and bodies that must be refused,
spread evenly over the time. After every tenth of the requests, once no request is open and the
clients have closed their connections, the script notes what the processes of the server hold.
Greedy answers must equal the first one to the same request. Needs torch, Triton, transformers,
llguidance and openai.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import Row, arguments, machine, write
from benchmarks.serving.over_http import children, serving, since
from tests.helpers.chat_folder import write_chat_folder

WORDS = ("the", "cat", "dog", "mat", "hello", "€", "😀", "sat on")
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
AT_ONCE = 16


class Requests:
    """Requests of all kinds by the `openai` package, and what became of them."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/v1"
        self._first: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.client = self._open()
        self.ends: Counter[str] = Counter()
        self.problems: list[str] = []

    def _open(self) -> Any:
        import openai

        return openai.OpenAI(base_url=self._base, api_key="none", timeout=600, max_retries=0)

    def reconnect(self) -> None:
        """Close all connections and begin anew."""
        self.client.close()
        self.client = self._open()

    def send(self, number: int) -> None:
        """One request; its kind and its content follow from its number."""
        draw = random.Random(number % 400)
        kind = draw.choice(list(KINDS))
        said = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 8)))
        try:
            end = self._judged(f"{kind} {number % 400}", KINDS[kind](self.client, said, number))
        except Exception as problem:
            end = "error"
            with self._lock:
                self.problems.append(f"{kind}: {type(problem).__name__}: {problem}"[:300])
        with self._lock:
            self.ends[f"{kind}: {end}"] += 1

    def _judged(self, name: str, answer: Any) -> str:
        if answer is None:
            return "as it must"
        with self._lock:
            return "equal" if answer == self._first.setdefault(name, answer) else "another answer"


def _chat(client: Any, said: str, **more: Any) -> Any:
    message = [{"role": "user", "content": said}]
    return client.chat.completions.create(
        model="model", messages=message, **{"temperature": 0, "max_tokens": 8} | more
    )


def _whole(client: Any, said: str, number: int) -> Any:
    return _chat(client, said).choices[0].message.content


def _stream(client: Any, said: str, number: int) -> Any:
    told = [part.choices[0].delta.content or "" for part in _chat(client, said, stream=True)]
    return "".join(told)


def _left_early(client: Any, said: str, number: int) -> None:
    with _chat(client, said, stream=True, max_tokens=24) as parts:
        next(iter(parts))


def _drawn(client: Any, said: str, number: int) -> Any:
    made = _chat(client, said, n=2, temperature=0.9, seed=number % 400, top_p=0.9)
    return [one.message.content for one in made.choices]


def _chances(client: Any, said: str, number: int) -> Any:
    choice = _chat(client, said, logprobs=True, top_logprobs=2).choices[0]
    return [own.token for own in choice.logprobs.content]


def _schema(client: Any, said: str, number: int) -> Any:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    return _chat(client, said, response_format=schema, max_tokens=24).choices[0].message.content


def _completion(client: Any, said: str, number: int) -> Any:
    made = client.completions.create(
        model="model", prompt=[said, said + " hello"], temperature=0, max_tokens=6
    )
    return [one.text for one in made.choices]


def _refused(client: Any, said: str, number: int) -> None:
    import openai

    try:
        _chat(client, said * 200)
    except openai.BadRequestError:
        return
    raise AssertionError("a prompt that is too long was taken")


KINDS: dict[str, Callable[[Any, str, int], Any]] = {
    "chat": _whole,
    "stream": _stream,
    "stream that is left": _left_early,
    "drawn": _drawn,
    "chances": _chances,
    "schema": _schema,
    "completion": _completion,
    "refused": _refused,
}


def processes() -> list[Path]:
    """The folders in `/proc` of the server, and of all that it has started."""
    found = [Path("/proc/self")]
    for own in found:
        found += children(own)
    return found[1:]


def held() -> Row:
    """Memory (each shared page counted once), descriptors and threads of the server."""
    row: Row = {"processes": 0, "megabytes": 0.0, "descriptors": 0, "threads": 0}
    for own in processes():
        told = (own / "smaps_rollup").read_text()
        row["processes"] += 1
        row["megabytes"] += next(
            int(line.split()[1]) / 1024 for line in told.splitlines() if line.startswith("Pss:")
        )
        row["descriptors"] += len(list((own / "fd").iterdir()))
        row["threads"] += len(list((own / "task").iterdir()))
    return row | {"megabytes": round(row["megabytes"], 2)}


def soak(given: argparse.Namespace) -> Row:
    """Serve, send all requests, and note what the server holds after each tenth."""
    folder = given.work / "model"
    write_chat_folder(folder)
    begun = time.monotonic()
    options = [str(folder), "--backend", "cpu", "--step-tokens", "16", "--context", "64"]
    row: Row = {"openai": importlib.metadata.version("openai"), "rows": []}
    with serving(options, given.work / "server.log") as (port, started_s):
        row["starts_s"] = started_s
        requests = Requests(port)
        begun = time.monotonic()
        part = given.requests // 10
        gap_s = given.minutes * 60 / given.requests
        for first in range(0, given.requests, part):
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for number in range(first, first + part):
                    time.sleep(max(0.0, begun + number * gap_s - time.monotonic()))
                    pool.submit(requests.send, number)
            requests.reconnect()
            time.sleep(6)  # longer than the server keeps a connection that nobody uses
            row["rows"].append({"requests": first + part, "seconds": since(begun), **held()})
            row["ends"] = dict(sorted(requests.ends.items()))
            row["problems"] = requests.problems[:20]
            print(row["rows"][-1], flush=True)
            write({**machine(), **row, **grown(row["rows"])}, given.output)
    return row


def grown(rows: list[Row]) -> Row:
    """From the first tenth of the requests to the last."""
    first, last = rows[0], rows[-1]
    share = last["megabytes"] / first["megabytes"] - 1
    return {
        "memory grows by": round(share, 4),
        "descriptors more": last["descriptors"] - first["descriptors"],
        "processes that were there": last["processes"] == first["processes"],
    }


def main() -> None:
    parser = arguments(__doc__, "serving_soak.json")
    parser.add_argument("--work", type=Path, required=True, help="a folder for model and log")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--minutes", type=float, default=40.0, help="least time for all of them")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    soak(given)


if __name__ == "__main__":
    main()
