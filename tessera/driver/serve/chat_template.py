"""The chat template of a model: messages in, the text of a prompt out.

In: a template of Jinja, as model folders have them. Out: `ChatTemplate`. A template is a program of
strangers, so a process of its own runs it (`template_process`), in Jinja's sandbox and with limits
on processor time, memory and output. The process stays; one that breaks a limit is ended, and the
next chat gets a new one.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tessera.driver.serve.api_errors import BadRequest
from tessera.driver.serve.text import not_served

CPU_S = 2
"""Seconds of processor time for a prompt."""
MOST_CHARACTERS = 4 << 20
_LONGEST_S = 60.0
"""Seconds that a busy machine may take for it."""
_RESERVED = {"messages", "add_generation_prompt", "tools", "documents"}
_TRIAL = [{"role": "user", "content": "Hello"}]
_START = "from tessera.driver.serve.template_process import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """The text of a template, and the special tokens that it may name."""

    template: str
    tokens: Mapping[str, str] = field(default_factory=dict)


class TemplateProblem(Exception):
    """What is wrong with a template, or with what it was given."""


class ChatTemplate:
    """A template that is ready to be used, by any thread."""

    def __init__(self, given: ChatFormat) -> None:
        """Start the process; raises TSR5066 if the template does not take a plain message."""
        try:
            import jinja2  # noqa: F401  # the process needs it
        except ImportError:
            raise not_served(
                "the model has a chat template, and the package `jinja2` is not installed",
                "pip install 'tessera-compiler[serve]'",
            ) from None
        self._given = given
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._ask(_TRIAL, {})
        except TemplateProblem as problem:
            self.close()
            raise not_served(
                f"the chat template of the model does not take a plain message: {problem}",
                "mend it, or take it out of the folder to serve completions alone",
            ) from None

    def render(self, messages: Sequence[Mapping[str, object]], more: Mapping[str, object]) -> str:
        """The prompt of a chat; `more` are further values for the template."""
        if _RESERVED & more.keys():
            message = f"`chat_template_kwargs` must not have `{min(_RESERVED & more.keys())}`"
            raise BadRequest(message, field="chat_template_kwargs")
        try:
            return self._ask(messages, more)
        except TemplateProblem as problem:
            message = f"the chat template of the model refuses these messages: {problem}"
            raise BadRequest(message, field="messages") from None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, messages: Sequence[Mapping[str, object]], more: Mapping[str, object]) -> str:
        line = json.dumps({"messages": messages, **more}).encode() + b"\n"
        with self._lock:
            answer = self._exchange(line)
            if answer is None:
                self.close()
                said = f"it takes more than {CPU_S} s of processor time, or too much memory"
                raise TemplateProblem(said)
        made = json.loads(answer)
        if "problem" in made:
            raise TemplateProblem(made["problem"])
        return str(made["text"])

    def _exchange(self, line: bytes) -> bytes | None:
        """Send a line and read one; None if the process has ended or takes too long."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            if not ready.select(_LONGEST_S):
                return None
        return process.stdout.readline() or None

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server, which finishes what it has begun
        )
        assert process.stdin is not None
        told = {"template": self._given.template, "tokens": dict(self._given.tokens)}
        limits = {"cpu_s": CPU_S, "most_characters": MOST_CHARACTERS}
        process.stdin.write(json.dumps(told | limits).encode() + b"\n")
        return process
