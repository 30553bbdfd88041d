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
from pathlib import Path
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
from tessera.ir.options import WrongOption

if TYPE_CHECKING:
    from tessera.driver.serve.chat_template import ChatTemplate
    from tessera.driver.serve.completion_requests import GenerationDefaults, TextModel
    from tessera.driver.serve.drift import Drift
    from tessera.driver.serve.engine import Engine
    from tessera.driver.serve.generation import Generation
    from tessera.driver.serve.metrics import Metrics
    from tessera.driver.serve.server import ServerOptions

_LONGEST_KEY = 1 << 16
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
    help="A tokenizer.json: prompts and answers may then be text. The chat template and the "
    "generation config beside it count, too.",
)
@click.option(
    "--api-key-file",
    type=click.Path(),
    metavar="FILE",
    help="Require a key of this file, which has one on each line (Authorization: Bearer).",
)
@click.option(
    "--isolate",
    is_flag=True,
    default=None,
    help="Share no prefixes between requests with different API keys.",
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
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of this origin ask in a browser, such as https://example.org; `*`: all. "
    "May be repeated.",
)
@click.option(
    "--ssl-certfile",
    type=click.Path(),
    metavar="FILE",
    help="Serve HTTPS with this certificate (PEM, with its chain).",
)
@click.option(
    "--ssl-keyfile",
    type=click.Path(),
    metavar="FILE",
    help="The key of the certificate, if it is in a file of its own.",
)
@click.option(
    "--log-requests",
    is_flag=True,
    help="Write a line for every request to standard error: id, path, status, seconds.",
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

    Requests are those of OpenAI: POST /v1/chat/completions with the model's own chat template, and
    POST /v1/completions with `prompt` as text (with `--tokenizer`) or token ids, whole or as a
    stream. GET /live, /ready and /metrics (Prometheus). SIGTERM and Ctrl-C stop the server once it
    has finished what it has begun; on SIGHUP the plan is read again and takes over. See
    docs/guides/serve.md.

    \b
    Examples:
      tessc serve Llama-3.1-8B --gpus h200
      tessc serve small-model --backend cpu
      tessc serve plan.tsp --tokenizer tokenizer.json
      tessc serve plan.tsp --backend cpu --port 8080 --api-key-file key.txt
    """
    from tessera.driver.serve.metrics import Metrics
    from tessera.driver.serve.run_server import check_certificate, open_socket, run_server
    from tessera.driver.serve.server import CompletionServer

    shown_file = str(given.values["file"])
    given = with_folder(messages, given)
    command = given.record(ServeCommand)
    options = command.server()
    check_certificate(options)
    metrics = Metrics()
    with (
        open_socket(command.host, command.port) as listening,
        command.chat() as template,
        command.engine(
            max_waiting=command.max_waiting,
            **(command.slo or {}),
            on_end=_Ends(metrics, messages).hear,
            on_drift=partial(_say_drift, messages),
        ) as engine,
    ):
        messages.show(engine.diagnostics)
        told = command.defaults()
        served = command.served(engine, template, told)
        server = CompletionServer(engine, options, served, metrics)
        server.application()  # a missing package shows before the address is announced
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        if command.file != shown_file:
            write_text(_foreseen(command))
        if ignored := served.defaults.left_out_of(told):
            write_text(_ignored(ignored))
        scheme = "http" if options.certificate is None else "https"
        write_text(f"serving {shown_file} on {scheme}://{shown}:{port}\n")
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


def _ignored(names: tuple[str, ...]) -> str:
    """That steps which draw their tokens cannot do all that the generation config asks for."""
    return (
        f"not applied: {', '.join(names)} of the generation config, because the steps choose "
        "tokens themselves; `--logits` applies all of it\n"
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
    model_folder: str | None = None
    cors_origins: tuple[str, ...] = ()
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    log_requests: bool = False
    isolate: bool = False

    def __post_init__(self) -> None:
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise WrongOption("{ssl_keyfile} is the key of {ssl_certfile}: give both")
        if self.isolate and self.api_key_file is None:
            raise WrongOption("{isolate} is by API key: give {api_key_file} too")

    def server(self) -> ServerOptions:
        """What HTTP needs besides the engine."""
        from tessera.driver.serve.server import ServerOptions

        return ServerOptions(
            keys=self.keys(),
            most_bytes=self.max_bytes,
            deadline_s=self.deadline,
            origins=self.cors_origins,
            certificate=self.ssl_certfile,
            certificate_key=self.ssl_keyfile,
            logs=self.log_requests,
            isolate=self.isolate,
        )

    @property
    def _text_files(self) -> Path | None:
        """The folder of what says how text is made: that of the model, or of its tokenizer."""
        if self.model_folder is not None:
            return Path(self.model_folder)
        return None if self.tokenizer is None else Path(self.tokenizer).parent

    @contextmanager
    def chat(self) -> Iterator[ChatTemplate | None]:
        """The chat template of the model, while it is needed."""
        from tessera.driver.folder.text_config import read_chat_format
        from tessera.driver.serve.chat_template import ChatTemplate

        folder = self._text_files
        told = None if folder is None or self.tokenizer is None else read_chat_format(folder)
        template = None if told is None else ChatTemplate(told)
        try:
            yield template
        finally:
            if template is not None:
                template.close()

    def defaults(self) -> GenerationDefaults:
        """What the generation config says of requests that leave it open."""
        from tessera.driver.folder.text_config import read_defaults
        from tessera.driver.serve.completion_requests import GenerationDefaults

        folder = self._text_files
        return GenerationDefaults() if folder is None else read_defaults(folder)

    def served(
        self, engine: Engine, template: ChatTemplate | None, defaults: GenerationDefaults
    ) -> TextModel:
        """The model as requests are read for it."""
        from tessera.driver.serve.server import text_model
        from tessera.driver.serve.text import TokenizerFile

        tokenizer = None
        if self.tokenizer is not None:
            tokenizer = TokenizerFile(self.tokenizer, engine.model.vocabulary)
        return text_model(engine, self.name, tokenizer, template, defaults)

    def keys(self) -> tuple[str, ...]:
        """The API keys, one of which clients have to send; empty if there are none."""
        if self.api_key_file is None:
            return ()
        try:
            with open(self.api_key_file, encoding="utf-8") as stream:
                text = stream.read(_LONGEST_KEY + 1)
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "it is not text"
            message = f"cannot read the keys in `{self.api_key_file}`: {reason.lower()}"
            raise TesseraError.of("TSR5066", message) from None
        keys = tuple(line.strip() for line in text.splitlines() if line.strip())
        is_plain = all(key.isprintable() and key.isascii() for key in keys)
        if not keys or len(text) > _LONGEST_KEY or not is_plain:
            message = f"`{os.fspath(self.api_key_file)}` must hold keys: lines of plain letters"
            raise TesseraError.of("TSR5066", message)
        return keys
