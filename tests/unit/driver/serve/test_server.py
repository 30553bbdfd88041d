"""The server over a toy runtime: what clients get, and what happens to those who misbehave."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tessera.backend.service import ServiceFault
from tessera.cli.console import Messages
from tessera.cli.serve import _Ends
from tessera.diagnostics import TesseraError, error
from tessera.driver.serve import run_server as process_module
from tessera.driver.serve import server as server_module
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.run_server import open_socket
from tessera.driver.serve.text import GrowingText, TokenizerFile
from tests.helpers.corpus import ROOT
from tests.helpers.toy_runtime import CONTEXT, POISON, answer

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from tests.helpers.toy_site import KEY, Letters, Site, serving, toy_site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with toy_site() as made:
        yield made


def test_token_ids_in_and_out(site: Site) -> None:
    status, value = site.complete(prompt=[3, 4, 5], max_tokens=6, temperature=0)
    assert status == 200
    (choice,) = value["choices"]
    assert choice["token_ids"] == answer([3, 4, 5], 6)
    assert choice["finish_reason"] == "length"
    assert value["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}


def test_a_fault_is_named(site: Site) -> None:
    status, value = site.complete(prompt=[3, POISON], max_tokens=6, temperature=0)
    assert status == 500
    assert "the kernel ran into a trap" in value["error"]["message"]


def test_a_service_says_every_fault_once(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[object] = []
    ends = _Ends(cast(Metrics, SimpleNamespace(end=ended.append)), Messages())
    faults = [ServiceFault(error("TSR5072", f"device `{n}` has not answered")) for n in "ab"]
    for fault in (None, faults[0], faults[0], faults[1]):
        ends.hear(cast(Generation, SimpleNamespace(fault=fault)))
    assert len(ended) == 4
    said = capsys.readouterr().err
    assert [said.count(f"device `{n}` has not answered") for n in "ab"] == [1, 1]


def test_text_in_and_out_and_stops(site: Site) -> None:
    plain = "".join(chr(48 + token) for token in answer([1, 2], 10))
    _, value = site.complete(prompt="12", max_tokens=10, temperature=0)
    assert value["choices"][0]["text"] == plain
    _, stopped = site.complete(prompt="12", max_tokens=10, temperature=0, stop=plain[4:6])
    assert stopped["choices"][0]["text"] == plain[:4]
    assert stopped["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_every_token_once_and_an_end(site: Site) -> None:
    body = {"prompt": ["12", "7"], "max_tokens": 8, "temperature": 0, "stream": True}
    body["stream_options"] = {"include_usage": True}
    status, headers, content = site.ask("POST", "/v1/completions", body)
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    events = [line[6:] for line in content.decode().split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    values = [json.loads(event) for event in events[:-1]]
    for place, prompt in ((0, [1, 2]), (1, [7])):
        parts = [c for v in values for c in v["choices"] if c["index"] == place]
        tokens = [token for part in parts for token in part["token_ids"]]
        assert tokens == answer(prompt, 8)
        assert "".join(part["text"] for part in parts) == Letters().decode(tokens)
        assert [p["finish_reason"] for p in parts if p["finish_reason"]] == ["length"]
    assert values[-1]["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        ([1], "must be an object"),
        ({}, "`prompt` is missing"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens"),
        ({"prompt": [1], "n": 0}, "`n` must be a whole number, from 1 to 128"),
        ({"prompt": [1], "shape": 2}, "`shape` is not known"),
        ({"prompt": [1, "a"]}, "texts or token ids"),
        ({"prompt": [200]}, "not in the vocabulary"),
        ({"prompt": [1] * 15, "max_tokens": 9}, "does not fit a context"),
        ({"prompt": [1], "temperature": "hot"}, "temperature"),
        ({"prompt": [1], "stop": 5}, "`stop` must be a text"),
        ({"prompt": [1], "stop": "\ud800"}, "`stop` must be a text"),
        ({"prompt": "\ud800"}, "half of a letter"),
        ({"prompt": [1], "stop": ["a"] * 65}, "at most 64 texts"),
        ({"prompt": [1], "stop_token_ids": 3}, "`stop_token_ids` must be a list of token ids"),
        ({"prompt": [1], "\ud800": 5}, "`?` is not known"),
        ({"prompt": [1], "k" * 500: 5}, f"`{'k' * 80}` is not known"),
        ({"prompt": [1], "stream_options": 5}, "`stream_options` must be an object"),
    ],
)
def test_bad_requests_are_answered_with_400(site: Site, body: object, words: str) -> None:
    status, _, content = site.ask("POST", "/v1/completions", body)
    assert status == 400
    assert words in json.loads(content)["error"]["message"]


def test_keys_sizes_and_paths(site: Site) -> None:
    assert site.ask("POST", "/v1/completions", {"prompt": [1]}, key=None)[0] == 401
    assert site.ask("GET", "/metrics", key="wrong")[0] == 401
    assert site.ask("POST", "/v1/completions", {"prompt": [1] * 900})[0] == 413
    assert site.ask("GET", "/nothing")[0] == 404
    assert site.ask("GET", "/health", key=None)[0] == 200
    assert json.loads(site.ask("GET", "/v1/models")[2])["data"][0]["id"] == "toy"


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nothing", 404, "GET /nothing is not offered here: POST /v1/chat/completions"),
        ("GET", "/v1/completions", 405, "GET /v1/completions is not offered here"),
        ("POST", "/v1/embeddings", 404, "embeddings are not offered here"),
        ("POST", "/v1/load_lora_adapter", 404, "LoRA adapters are not offered here"),
        ("POST", "/v1/chat/completions", 400, "`messages` must be a list of messages"),
    ],
)
def test_what_is_not_offered_is_said_as_clients_expect_it(
    site: Site, method: str, path: str, status: int, words: str
) -> None:
    got, headers, content = site.ask(method, path, {"messages": []})
    assert (got, headers["content-type"]) == (status, "application/json")
    assert words in json.loads(content)["error"]["message"]


def test_too_many_are_told_to_come_back(site: Site) -> None:
    status, headers, content = site.ask(
        "POST", "/v1/completions", {"prompt": [[1]] * 30, "max_tokens": 16}
    )
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert "waiting" in json.loads(content)["error"]["message"]
    _wait_until_idle(site.engine)


def test_a_client_that_goes_away_gives_its_row_back(site: Site) -> None:
    body = json.dumps({"prompt": [5], "max_tokens": 16, "stream": True, "temperature": 0})
    for _ in range(6):
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=300)
        connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {KEY}"})
        reply = connection.getresponse()
        reply.read(10)
        reply.close()
        connection.close()
    _wait_until_idle(site.engine)
    assert site.complete(prompt=[5], max_tokens=3, temperature=0)[0] == 200


def test_a_body_that_does_not_come_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_BODY_S", 0.2)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=300) as slow:
        slow.sendall(f"{head}Content-Length: 400\r\n\r\n{{".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    with socket.create_connection(("127.0.0.1", site.port), timeout=300) as gone:
        gone.sendall(f"{head}Content-Length: 400\r\n\r\n{{".encode())
    for _ in range(300):
        if b'tessera_refused_total{status="499"} 1' in site.ask("GET", "/metrics")[2]:
            return
        time.sleep(0.05)
    raise AssertionError("a client that went away was not counted")


def test_metrics_count_what_was_done(site: Site) -> None:
    assert site.complete(prompt=[3, 4, 5], max_tokens=6, temperature=0)[0] == 200
    text = site.ask("GET", "/metrics")[2].decode()
    assert 'tessera_answers_total{ended="length"}' in text
    assert 'tessera_ttft_seconds_bucket{le="+Inf"}' in text
    assert "\ntessera_waiting 0\n" in text
    assert f"\ntessera_steps_ahead_total {site.engine.steps_ahead}\n" in text


def _wait_until_idle(engine: Engine) -> None:
    for _ in range(300):
        if not engine.running and not engine.waiting:
            return
        time.sleep(0.05)
    raise AssertionError("rows are still in use")


def test_names_of_traces_do_not_break_the_metrics(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.engine.counts, "steps_done", {'a"b\\c\nd': 3})
    _, _, content = site.ask("GET", "/metrics")
    assert b'tessera_steps_total{trace="a\\"b\\\\c\\nd"} 3\n' in content


def test_a_port_in_use_is_one_error() -> None:
    with (
        open_socket("127.0.0.1", 0) as taken,
        pytest.raises(TesseraError, match="cannot listen") as refusal,
    ):
        open_socket("127.0.0.1", taken.getsockname()[1])
    assert refusal.value.diagnostics[0].code == "TSR5066"


@pytest.mark.parametrize("host", ["a..b", "\u00fc" * 80, "256.0.0.1"])
def test_a_host_that_is_none_is_one_error(host: str) -> None:
    with pytest.raises(TesseraError, match="cannot listen") as refusal:
        open_socket(host, 0)
    assert "--host" in str(refusal.value.diagnostics[0].hint)


def test_text_that_may_begin_a_stop_is_held_back() -> None:
    text = GrowingText(Letters(), ["56"])
    assert text.more([1, 2, 5], is_over=False) == "12"
    assert text.more([1, 2, 5, 7], is_over=False) == "57"
    assert text.more([1, 2, 5, 7, 5, 6, 9], is_over=False) == ""
    assert text.is_stopped


def test_only_the_last_tokens_are_decoded_again() -> None:
    asked: list[int] = []

    class Counting(Letters):
        def decode(self, tokens: Sequence[int]) -> str:
            asked.append(len(tokens))
            text = bytes(tokens).decode(errors="replace")
            return text

    whole = "a\u00e4b\u20acc" * 40
    tokens = list(whole.encode())
    text = GrowingText(Counting())
    parts = [text.more(tokens[:count], is_over=False) for count in range(1, len(tokens))]
    parts.append(text.more(tokens, is_over=True))
    assert "".join(parts) == whole
    assert max(asked) <= 8


def test_one_who_does_not_read_holds_up_nobody(site: Site) -> None:
    body = json.dumps({"prompt": [1, 2], "max_tokens": 12, "temperature": 0, "stream": True})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    with socket.create_connection(("127.0.0.1", site.port), timeout=300) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.sendall(
            f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        for number in range(6):
            status, value = site.complete(prompt=[number], max_tokens=5, temperature=0)
            assert (status, value["choices"][0]["token_ids"]) == (200, answer([number], 5))
        with slow.makefile("rb") as stream:
            assert b"[DONE]" in stream.read()


def test_one_who_does_not_read_does_not_keep_the_server_from_ending(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_WATCH_S", 0.001)
    monkeypatch.setattr(process_module, "_TAKE_S", 0.01)
    running = SimpleNamespace(should_exit=True, force_exit=False)
    idle = SimpleNamespace(is_idle=True)
    process_module.leave_stuck(running, cast("Any", idle), threading.Event())
    assert running.force_exit
    running.force_exit, over = False, threading.Event()
    busy = SimpleNamespace(is_idle=False)
    watch = threading.Thread(target=process_module.leave_stuck, args=(running, busy, over))
    watch.start()
    time.sleep(0.05)
    over.set()
    watch.join(300)
    assert not running.force_exit


def test_a_tokenizer_file_gives_text_and_has_to_fit_the_vocabulary(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `serve` is not installed")
    words = {f"w{number}": number for number in range(CONTEXT * 2)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    file = TokenizerFile(path, 50)
    assert file.encode("w3 w11 what") == [3, 11, 0]
    assert file.decode([4, 5]) == "w4 w5"
    for vocabulary in (CONTEXT * 2 - 1, CONTEXT * 5):
        with pytest.raises(TesseraError, match="and the model a vocabulary of") as refusal:
            TokenizerFile(path, vocabulary)
        assert refusal.value.diagnostics[0].code == "TSR5066"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(TesseraError, match="is no tokenizer file"):
        TokenizerFile(path, 50)


def test_tls_and_files_that_are_none(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)],
        check=True, capture_output=True,
    )  # fmt: skip
    options = server_module.ServerOptions(certificate=str(certificate), certificate_key=str(key))
    process_module.check_certificate(options)
    with toy_site() as plain:
        served = server_module.text_model(plain.engine, "toy")
        server = server_module.CompletionServer(plain.engine, options, served, Metrics())
        with serving(server, plain.engine) as site:
            trust = ssl.create_default_context(cafile=str(certificate))
            link = http.client.HTTPSConnection("127.0.0.1", site.port, timeout=300, context=trust)
            link.request("POST", "/v1/completions", json.dumps({"prompt": [3], "temperature": 0}))
            (choice,) = json.loads(link.getresponse().read())["choices"]
            link.close()
            assert choice["token_ids"] == answer([3], CONTEXT)
            with pytest.raises((http.client.HTTPException, OSError)):
                site.ask("GET", "/live")  # no HTTP there
    for wrong in (str(tmp_path / "nothing"), str(key)):
        with pytest.raises(TesseraError, match=r"TSR5066.*cannot be used for TLS"):
            process_module.check_certificate(server_module.ServerOptions(certificate=wrong))


SERVED = """
import sys, time
from tessera.driver.serve import engine as module
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.run_server import open_socket, run_server
from tessera.driver.serve.server import CompletionServer, ServerOptions, text_model
from tests.helpers.toy_runtime import CONTEXT, ToyRuntime

class Slow(ToyRuntime):
    def _step(self, *given):
        time.sleep(0.1)
        return super()._step(*given)

module.Runtime = Slow
engine = module.Engine("toy.tsp", steps={"context": CONTEXT})
with open_socket("127.0.0.1", 0) as listening:
    print(listening.getsockname()[1], flush=True)
    served = text_model(engine, "toy")
    run_server(CompletionServer(engine, ServerOptions(), served, Metrics()), listening)
engine.close()
print("closed", flush=True)
"""


def test_sigterm_finishes_what_runs() -> None:
    command = [sys.executable, "-c", SERVED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        body = json.dumps({"prompt": [5], "max_tokens": 12, "stream": True, "temperature": 0})
        for _ in range(100):
            try:
                connection.request("POST", "/v1/completions", body)
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        reply = connection.getresponse()
        first = reply.readline()
        assert first.startswith(b"data: ")
        process.send_signal(signal.SIGTERM)
        rest = reply.read().decode()
        assert "[DONE]" in rest
        reply.close()
        connection.close()
        assert process.stdout.read().strip() == "closed"
        assert process.wait(300) in (0, -signal.SIGTERM)
