"""`tessc serve`: answer prompts over HTTP with a plan that generates text."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from tessera.cli.console import Messages, write_text
from tessera.cli.folder_options import folder_options, with_folder
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import data_option, form_option, seconds_option
from tessera.cli.text_options import (
    EngineCommand,
    burst_option,
    engine_options,
    reuse_option,
    slo_option,
    steps_option,
)
from tessera.diagnostics import TesseraError, warning

if TYPE_CHECKING:
    from tessera.driver.serve.drift import Drift
    from tessera.driver.serve.engine import Engine
    from tessera.driver.serve.generation import Generation
    from tessera.driver.serve.metrics import Metrics

_LONGEST_KEY = 4096
_TURN_S = 0.0005


@click.command(short_help="Answer prompts over HTTP with a plan.")
@click.argument("file", type=click.Path(), metavar="PLAN|FOLDER")
@folder_options
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on this address; others than 127.0.0.1 accept requests from other machines.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    metavar="N",
    help="Where to listen; 0 takes any that is free.",
)
@steps_option
@click.option(
    "--tokenizer",
    type=click.Path(),
    metavar="FILE",
    help="A tokenizer.json: prompts and answers may then be text.",
)
@click.option(
    "--api-key-file",
    type=click.Path(),
    metavar="FILE",
    help="Require the key in this file (Authorization: Bearer).",
)
@click.option("--name", default="tessera", show_default=True, help="What the model is called.")
@click.option(
    "--max-waiting",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    metavar="N",
    help="Prompts that may wait for a row; more are answered with 429.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=1 << 20,
    show_default=True,
    metavar="N",
    help="The largest body that is read.",
)
@seconds_option("--deadline", "deadline", "Give answers up that take longer.")
@burst_option
@reuse_option
@slo_option
@engine_options
@data_option("Take weights from this file instead of the one the trace names.")
@form_option
@reads_options
def serve(messages: Messages, given: Typed) -> int:
    """Answer prompts with PLAN (`.tsp`), whose traces are steps of a language model, or with the
    model in FOLDER, as `save_pretrained` of the transformers library writes it.

    The steps of a model folder are captured and planned when it is first served, and kept. Nothing
    in it is run as code.

    Completions are those of OpenAI: POST /v1/completions with `prompt` as text (with `--tokenizer`)
    or token ids, whole or as a stream. GET /health and /metrics (Prometheus). SIGTERM and Ctrl-C
    stop the server once it has finished what it has begun; on SIGHUP the plan is read again and
    takes over. See docs/guides/serve.md.

    \b
    Examples:
      tessc serve Llama-3.1-8B --gpus h200
      tessc serve small-model --backend cpu
      tessc serve plan.tsp --tokenizer tokenizer.json
      tessc serve plan.tsp --backend cpu --port 8080 --api-key-file key.txt
    """
    from tessera.driver.serve.metrics import Metrics
    from tessera.driver.serve.server import (
        CompletionServer,
        ServerOptions,
        open_socket,
        run_server,
    )
    from tessera.driver.serve.text import TokenizerFile

    shown_file = str(given.values["file"])
    given = with_folder(messages, given)
    command = given.record(ServeCommand)
    options = ServerOptions(
        name=command.name,
        key=command.key(),
        most_bytes=command.max_bytes,
        deadline_s=command.deadline,
    )
    metrics = Metrics()
    with (
        open_socket(command.host, command.port) as listening,
        command.engine(
            max_waiting=command.max_waiting,
            tpot_ns=(command.slo or {}).get("tpot_ns"),
            on_end=_Ends(metrics, messages).hear,
            on_drift=partial(_say_drift, messages),
        ) as engine,
    ):
        messages.show(engine.diagnostics)
        tokenizer = None
        if command.tokenizer is not None:
            tokenizer = TokenizerFile(command.tokenizer, engine.model.vocabulary)
        server = CompletionServer(engine, options, tokenizer, metrics)
        server.application()  # a missing package shows before the address is announced
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        if command.file != shown_file:
            write_text(_foreseen(command))
        write_text(f"serving {shown_file} on http://{shown}:{port}\n")
        with PlanSuccession(engine, command.file, messages), quick_turns():
            run_server(server, listening)
    return 0


@contextmanager
def quick_turns() -> Iterator[None]:
    """Let threads switch more often: steps must not wait while answers are written."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _foreseen(command: ServeCommand) -> str:
    """What the plan of a model folder gives by simulation, with all rows taken at once."""
    from tessera.driver.serve.foreseen import foreseen
    from tessera.driver.serve.measures import Slo
    from tessera.frontend.machine.quantities import format_time

    made = foreseen(command.file, Slo(**(command.slo or {})), command.backend)
    return (
        f"simulated on the plan's GPUs, {made.requests} requests of {made.prompt} + {made.answer} "
        "tokens at once: "
        f"TTFT {format_time(made.ttft_ns)} and TPOT {format_time(made.tpot_ns)} in the median, "
        f"{made.tokens_per_s:.4g} tokens/s\n"
    )


def _say_drift(messages: Messages, drift: Drift) -> None:
    from tessera.driver.serve.drift import drift_words

    messages.show([warning("TSR5067", drift_words(drift))])


class _Ends:
    """Counts how answers end; every fault is reported once."""

    def __init__(self, metrics: Metrics, messages: Messages) -> None:
        self._metrics = metrics
        self._messages = messages
        self._said: TesseraError | None = None

    def hear(self, answer: Generation) -> None:
        """Count an answer that has ended."""
        self._metrics.end(answer)
        if answer.fault is not None and answer.fault is not self._said:
            self._said = answer.fault
            self._messages.show(answer.fault.diagnostics)


class PlanSuccession:
    """Inside this context, SIGHUP reads the plan again, and the new plan takes over."""

    def __init__(self, engine: Engine, file: str, messages: Messages) -> None:
        self._engine = engine
        self._file = file
        self._messages = messages
        self._before: object = None

    def __enter__(self) -> None:
        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGHUP, self._hear)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def _hear(self, *_: object) -> None:
        threading.Thread(target=self._read_again, name="tessera-again", daemon=True).start()

    def _read_again(self) -> None:
        try:
            self._engine.replace_plan(self._file)
        except TesseraError as problem:
            self._messages.show(problem.diagnostics)
        else:
            write_text(f"{self._file} was read again and has taken over\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeCommand(EngineCommand):
    """The arguments of `tessc serve`."""

    host: str
    port: int
    name: str
    max_waiting: int
    max_bytes: int
    tokenizer: str | None = None
    api_key_file: str | None = None
    deadline: float | None = None
    slo: dict[str, float] | None = None

    def key(self) -> str | None:
        """The API key, if there is one."""
        if self.api_key_file is None:
            return None
        try:
            with open(self.api_key_file, encoding="utf-8") as stream:
                key = stream.read(_LONGEST_KEY + 1).strip()
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "it is not text"
            message = f"cannot read the key in `{self.api_key_file}`: {reason.lower()}"
            raise TesseraError.of("TSR5066", message) from None
        if not key or len(key) > _LONGEST_KEY or not key.isprintable() or not key.isascii():
            message = f"`{os.fspath(self.api_key_file)}` must hold a key: one line of plain letters"
            raise TesseraError.of("TSR5066", message)
        return key
