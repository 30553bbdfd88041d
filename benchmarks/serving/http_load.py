"""Requests for text to a server on this machine, and when their tokens arrive.

    python -m benchmarks.serving.http_load PORT REQUESTS.json RESULT.json

`REQUESTS.json` is a list of `{"at": seconds, "prompt": tokens, "most": number, "stream": flag}`.
Each request has a connection of its own and is sent at its time, whatever the others do; tokens of
streams are noted as their events arrive. Plain sockets, so that the client takes little time.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


async def ask(port: int, wanted: dict[str, Any], origin: float) -> dict[str, Any]:
    """Send a request at its time, and read its answer."""
    await asyncio.sleep(max(origin + wanted["at"] - time.monotonic(), 0))
    body = json.dumps(
        {
            "model": "model",
            "prompt": wanted["prompt"],
            "max_tokens": wanted["most"],
            "temperature": 0,
            "stream": wanted["stream"],
            "ignore_eos": True,
        }
    ).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    raw, marks = bytearray(), []
    while part := await reader.read(1 << 16):
        raw += part
        marks.append((len(raw), time.monotonic() - origin))
    writer.close()
    return {"begun": begun - origin, "marks": marks, "raw": bytes(raw)}


def read(answer: dict[str, Any]) -> dict[str, Any]:
    """The tokens of an answer, and the second at which each arrived."""
    raw: bytes = answer["raw"]
    head, _, body = raw.partition(b"\r\n\r\n")
    made: dict[str, Any] = {"begun": answer["begun"], "tokens": [], "times": []}
    made["over"] = answer["marks"][-1][1] if answer["marks"] else None
    if b" 200 " not in head[:20]:
        return made | {"error": raw[:300].decode(errors="replace")}
    if b"event-stream" not in head:
        start, end = body.find(b"{"), body.rfind(b"}") + 1
        made["tokens"] = json.loads(body[start:end])["choices"][0]["token_ids"]
        return made
    ends, at = iter(answer["marks"]), (0, 0.0)
    place = raw.find(b"data: {")
    while place >= 0:
        line = raw[place + 6 : raw.index(b"\n", place)].strip()
        while at[0] < place + len(line):
            at = next(ends)
        value = json.loads(line)
        if "error" in value:
            return made | {"error": line[:300].decode(errors="replace")}
        tokens = value["choices"][0]["token_ids"] if value["choices"] else []
        made["tokens"] += tokens
        made["times"] += [at[1]] * len(tokens)
        place = raw.find(b"data: {", place + 1)
    return made


async def send(port: int, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All answers, in the order of the requests."""
    origin = time.monotonic() + 0.1
    return await asyncio.gather(*(ask(port, one, origin) for one in wanted))


def main() -> None:
    _, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
    port, wanted, result = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    answers = asyncio.run(send(port, json.loads(wanted.read_text("utf-8"))))
    result.write_text(json.dumps([read(answer) for answer in answers]), encoding="utf-8")


if __name__ == "__main__":
    main()
