"""The typed command line as records: the one way from click's parameters to options.

In: a command's parameters. Out: `Typed`, which makes records from them: a field takes the parameter
of its name. Parameters that were not typed are left out, so that only the records have defaults.

    @click.command()
    @click.option(...)
    @form_option
    @reads_options
    def plan(messages: Messages, given: Typed) -> int:
        options = given.record(PlanOptions)

`reads_options` also shows the errors that a command raises, and returns its exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TypeVar

import click
from click.core import ParameterSource

from tessera.cli.console import Messages
from tessera.diagnostics import TesseraError
from tessera.ir.options import WrongOption
from tessera.report.diagnostics import safe

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class Typed:
    """The parameters of a command, how its options are spelled, and which of them were typed."""

    values: dict[str, object]
    options: dict[str, str]
    typed: frozenset[str] = frozenset()

    def record(self, kind: type[_Record]) -> _Record:
        """A record made from the parameters that it has fields for."""
        return kind(**{name: value for name, value in self._typed() if name in names_of(kind)})

    def having(self, **values: object) -> Typed:
        """A copy with other values for some parameters."""
        return replace(self, values=self.values | values)

    def refuse_others(self, only: str, *kinds: type, hint: str = "") -> None:
        """Refuse options that none of the records has, because they would do nothing.

        `only` says what the options are for.
        """
        known = {name for kind in kinds for name in names_of(kind)}
        for name, value in self._typed():
            if value and name not in known and name in self.options:
                raise click.UsageError(f"`{self.options[name]}` is for {only} only{hint}")

    def refuse_typed(self, names: Iterable[str], reason: str) -> None:
        """Refuse typed options that would do nothing, all in one message."""
        idle = [f"`{self.options[name]}`" for name in names if name in self.typed]
        if idle:
            text = f"{', '.join(idle[:-1])} and {idle[-1]}" if idle[1:] else idle[0]
            raise click.UsageError(f"{text} {'do' if idle[1:] else 'does'} nothing {reason}")

    def _typed(self) -> list[tuple[str, object]]:
        return [(name, value) for name, value in self.values.items() if value is not None]


def names_of(kind: type) -> set[str]:
    """The parameters that a record takes."""
    return {part.name for part in fields(kind)}


def reads_options(command: Callable[[Messages, Typed], int]) -> Callable[..., int]:
    """A command that gets the typed parameters, and may raise `TesseraError` for them."""

    @click.pass_context
    @wraps(command)
    def invoke(context: click.Context, /, form: str = "full", **values: object) -> int:
        messages = replace(context.find_object(Messages) or Messages(), form=form)
        spelled = {
            parameter.name or "": max(parameter.opts, key=len)
            for parameter in context.command.params
            if isinstance(parameter, click.Option)
        }
        defaults = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
        typed = {name for name in values if context.get_parameter_source(name) not in defaults}
        try:
            return command(messages, Typed(values, spelled, frozenset(typed)))
        except TesseraError as failure:
            messages.show(failure.diagnostics)
            return failure.exit_code
        except WrongOption as wrong:
            text = wrong.spelled(lambda name: spelled.get(name, name))
            raise click.UsageError(safe(text), context) from None

    return invoke
