"""`tessc simulate --steps`, `tessc bench`, `tessc serve`: what they print and what they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tessera.cli import serve as serve_command
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.ir.plan.print_plan import print_plan
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"
REQUESTS = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:00.{number:04},{10 + number},{1 + number % 7}\n" for number in range(40)
)
STEPS = {
    "format": "tessera-steps/1",
    "context": 40,
    "steps": {"mlp": {"sizes": {"rows": 4, "tokens": 1}}},
}


@pytest.fixture(scope="module")
def text() -> str:
    return print_plan(plan(MLP, PlanOptions(gpus="a100,l40s", strategy="kernel")).plan)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    (tmp_path / "plan.tsp").write_text(text)
    (tmp_path / "requests.csv").write_text(REQUESTS)
    (tmp_path / "steps.json").write_text(json.dumps(STEPS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


ARRIVE = ("simulate", "plan.tsp", "--arrivals", "requests.csv")


@pytest.mark.usefixtures("folder")
def test_arrivals_become_steps() -> None:
    done = tessc(*ARRIVE, "--steps", "steps.json", "--slo", "ttft=1ms,tpot=1ms", "--json")
    assert done.code == 0, done.err
    value = json.loads(done.out)
    fitting = [n for n in range(40) if 10 + n + 1 + n % 7 - 1 <= 40]
    assert value["ended"] == {"length": len(fitting), "refused": 40 - len(fitting)}
    # Token by token, with at most four rows in a batch.
    tokens = sum(10 + n + n % 7 for n in fitting)
    assert tokens / 4 <= value["steps"]["mlp"] <= tokens
    assert value["ttft_ns"]["p50"] <= value["end_to_end_ns"]["p50"]
    assert 0 < max(value["devices_busy"].values()) <= 1
    assert len(value["queue"]) == 60
    rates = tessc(*ARRIVE, "--steps", "steps.json", "--clock", "rates", "--json")
    other = json.loads(rates.out)
    assert other["ended"] == value["ended"]
    assert other["span_ns"] == pytest.approx(value["span_ns"], rel=0.1)


def test_requests_are_written_for_other_simulators(folder: Path) -> None:
    done = tessc(*ARRIVE, "--steps", "steps.json", "--arrivals-out", "out.jsonl")
    assert done.code == 0, done.err
    assert "wrote out.jsonl" in done.text
    written = read_arrivals("out.jsonl")
    assert written.form == "mooncake"
    assert written.requests == read_arrivals("requests.csv").requests
    again = tessc("simulate", "plan.tsp", "--steps", "steps.json", "--arrivals", "out.jsonl")
    assert again.code == 0
    assert tessc(*ARRIVE, "--steps", "steps.json", "--arrivals-out", "requests.csv").code == 1
    assert (folder / "requests.csv").read_text() == REQUESTS


def test_a_declaration_beside_the_plan_is_found(folder: Path) -> None:
    (folder / "steps.json").rename(folder / "plan.steps.json")
    assert "TTFT" in tessc(*ARRIVE).text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((*ARRIVE, "--steps", "names"), 1, "TSR3026"),
        ((*ARRIVE, "--slo", "ttft=1s"), 2, "requests for text"),
        ((*ARRIVE, "--steps", "steps.json", "--noise"), 2, "one step each"),
        ((*ARRIVE, "--steps", "steps.json", "--slo", "ttft=soon"), 2, "ttft=500ms"),
        ((*ARRIVE, "--steps", "steps.json", "--tokens", "5"), 2, "512:128"),
        ((*ARRIVE, "--steps", "steps.json", "--tokens", "1" * 5000 + ":1"), 2, "512:128"),
        ((*ARRIVE, "--steps", "steps.json", "--speed", "1e-300"), 1, "TSR5053"),
        (("simulate", "plan.tsp", "--steps", "steps.json"), 2, "--arrivals"),
        (
            ("simulate", "plan.tsp", "--steps", "steps.json", "--arrivals", "poisson:9/s"),
            2,
            "--tokens",
        ),
        (("serve", "plan.tsp", "--backend", "cpu", "--port", "0"), 1, "TSR3026"),
        (("serve", "plan.tsp", "--api-key-file", "nothing"), 1, "TSR5066"),
        (("bench", "plan.tsp", "--backend", "cpu"), 2, "--arrivals"),
        (("bench", *ARRIVE[1:], "--backend", "cpu"), 1, "TSR3026"),
    ],
)
def test_bad_input_is_one_message(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = tessc(*arguments)
    assert done.code == code, done.err
    assert words in done.err
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["serve", "bench"])
def test_weights_come_from_a_checkpoint_that_has_to_be_there(command: str) -> None:
    words = ("--backend", "cpu", "--weights", "nowhere")
    rest = ("--port", "0") if command == "serve" else ("--arrivals", "requests.csv")
    done = tessc(command, "plan.tsp", *words, *rest)
    assert done.code == 1
    assert "`nowhere`" in done.err


def test_threads_take_turns_more_often_while_a_server_runs() -> None:
    before = sys.getswitchinterval()
    with serve_command.quick_turns():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
