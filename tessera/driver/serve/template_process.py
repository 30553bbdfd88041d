"""The process that runs a chat template: lines of JSON in, lines of JSON out.

In: the template with its limits, then a line for every chat. Out: a line for every chat, with its
`text` or a `problem`. The environment is that of the transformers library: a sandbox in which
nothing can be changed, `raise_exception`, `strftime_now`, `tojson` as plain JSON, loop controls,
and blocks of `generation`, which only training needs. The kernel ends the process when a chat has
taken its processor time, whatever it is doing then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template

_MEMORY_BYTES = 1 << 30
_MOST_SAID = 300


def main() -> None:
    """Answer lines until there are no more."""
    lines = sys.stdin.buffer
    told = json.loads(lines.readline())
    limits = _limits(told["cpu_s"])
    next(limits)
    template: Template | None = None
    for line in lines:
        next(limits)
        answer: dict[str, str]
        try:
            template = template or compiled(told["template"])
            values = {"add_generation_prompt": True, **told["tokens"], **json.loads(line)}
            answer = {"text": render(template, values, told["most_characters"])}
        except MemoryError:
            answer = {"problem": "it takes too much memory"}
        except RecursionError:
            answer = {"problem": "it goes too deep"}
        except Exception as problem:  # whatever a template does
            said = " ".join(str(problem).split()) or type(problem).__name__
            answer = {"problem": said[:_MOST_SAID]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limits(cpu_s: int) -> Iterator[None]:
    """Limit memory, then the processor time until the next turn, in turns."""
    try:
        import resource
    except ImportError:
        while True:
            yield
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    yield
    while True:
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent_s = int(used.ru_utime + used.ru_stime) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (spent_s + cpu_s, most))
        yield


def render(template: Template, values: Mapping[str, object], most: int) -> str:
    """The text of a template; raises if it is too long."""
    parts, size = [], 0
    for part in template.generate(**values):
        size += len(part)
        if size > most:
            raise ValueError(f"it makes more than {most} characters")
        parts.append(part)
    return "".join(parts)


def compiled(text: str) -> Template:
    """A template in the environment that templates of model folders are written for."""
    from jinja2 import TemplateError, nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class GenerationBlock(Extension):
        tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class PlainNamespace(Namespace):
        def __setitem__(self, name: str, value: object) -> None:
            _check_name(name)
            super().__setitem__(name, value)

    def _check_name(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace must not have a name such as `{name}`")

    def namespace(*given: Mapping[str, object], **named: object) -> Namespace:
        values = {name: value for own in (*given, named) for name, value in own.items()}
        for name in values:
            _check_name(name)
        return PlainNamespace(values)

    def tojson(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    made.globals["namespace"] = namespace
    made.globals["dict"] = lambda *given, **named: dict(*given, **named)
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made.from_string(text)
