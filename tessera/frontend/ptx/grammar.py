"""Parses PTX with `grammars/ptx.lark`: whole files with their faults, and unusual items.

Only this module and its imports need Lark; a file of ordinary items is read without it (`scan`).
"""

from __future__ import annotations

import functools
import re
import threading
from dataclasses import replace
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.lexer import LexerState, LexerThread, LineCounter
from lark.utils import TextSlice

from tessera.diagnostics import Source, TesseraError, in_text_order
from tessera.frontend.ptx.build_ptx import BracedBody, ModuleBuilder
from tessera.frontend.ptx.declarations import PARAMETER_LIST
from tessera.frontend.ptx.registers import SHORT
from tessera.frontend.ptx.statement_runs import RUN, RunSplitter
from tessera.frontend.ptx.stored_parser import stored_parser
from tessera.frontend.ptx.terminals import NUMBER_LIST, TERMINALS
from tessera.frontend.text.grammar import grammar_text
from tessera.frontend.text.lazy_lexer import LazyLexer
from tessera.frontend.text.syntax_errors import Recovery
from tessera.ir.ptx import syntax as ptx

FAST_TERMINALS = {"RUN": RUN, "PARAMETER_LIST": PARAMETER_LIST, "NUMBER_LIST": NUMBER_LIST}
NEVER = r"(?!)x"
_PLUGINS = {"ContextualLexer": LazyLexer}

_FUNCTION = re.compile(rf"{TERMINALS['ENTRY']}|{TERMINALS['FUNC']}")
_ONE_AT_A_TIME = threading.Lock()


class _Dispatch:
    """Sends Lark's reductions to the builder of the current parse.

    Lark binds the callbacks of a grammar once, but each module needs its own builder.
    """

    def __init__(self) -> None:
        self.builder: Any = None

    def __getattr__(self, rule: str) -> Any:
        if rule.startswith("_") or not hasattr(ModuleBuilder, rule):
            raise AttributeError(rule)
        return lambda children: getattr(self.builder, rule)(children)


def build_parser(*, with_runs: bool = True) -> tuple[Lark, _Dispatch]:
    """The LALR parser of `grammars/ptx.lark`; without runs, every statement is read token by
    token."""
    text = grammar_text("ptx")
    for name, expression in _fast_terminals(with_runs).items():
        pattern = expression.replace("/", r"\/")
        text = text.replace(f"%declare {name}\n", f"{name}.10: /{pattern}/\n")
    dispatch = _Dispatch()
    parser = Lark(
        text,
        parser="lalr",
        lexer="contextual",
        transformer=dispatch,
        start=["start", "fragment", "body"],
        maybe_placeholders=True,
        propagate_positions=False,
        _plugins=_PLUGINS,
    )
    return parser, dispatch


def load_parser(*, with_runs: bool = True) -> tuple[Lark, _Dispatch] | None:
    """The same parser from the file of the package, if that is of this grammar."""
    stored = stored_parser(grammar_text("ptx"), _fast_terminals(with_runs))
    if stored is None:
        return None
    dispatch = _Dispatch()
    parser: Lark = Lark._load_from_dict(  # type: ignore[no-untyped-call]
        *stored, transformer=dispatch, _plugins=_PLUGINS
    )
    return parser, dispatch


def _fast_terminals(with_runs: bool) -> dict[str, str]:
    return FAST_TERMINALS if with_runs else dict.fromkeys(FAST_TERMINALS, NEVER)


@functools.cache
def _shared_parser(with_runs: bool) -> tuple[Lark, _Dispatch]:
    return load_parser(with_runs=with_runs) or build_parser(with_runs=with_runs)


def parse_fragment(
    source: Source, splitter: RunSplitter, start: int, end: int
) -> list[ptx.Item] | None:
    """The items between two offsets, or None if they are not whole items without a fault."""
    if end - start <= SHORT and (variables := _variables(source.text[start:end])) is not None:
        return [replace(variable, at=variable.at + start) for variable in variables]
    items = _parse_part("fragment", source, splitter, start, end)
    return items if isinstance(items, list) else None


@functools.lru_cache(maxsize=1_000)
def _variables(text: str) -> list[ptx.Variable] | None:
    """The variables that a text declares; libraries have the same tables in many modules."""
    if _FUNCTION.search(text):
        return None
    items = _parse_part("fragment", Source("", text), RunSplitter(), 0, len(text), with_runs=False)
    if not isinstance(items, list) or not all(isinstance(item, ptx.Variable) for item in items):
        return None
    return items


def parse_body(text: str, start: int, end: int) -> tuple[ptx.Statement, ...] | None:
    """The statements of the body from its `{` to behind its `}`, or None if it has a fault."""
    body = _parse_part("body", Source("", text), RunSplitter(), start, end)
    return body.statements if isinstance(body, BracedBody) else None


@functools.lru_cache(maxsize=10_000)
def parse_instruction(text: str) -> ptx.Instruction | None:
    """The instruction that a text is, without its `;`, or None if it is anything else."""
    source = Source("", f"{{{text};}}")
    body = _parse_part("body", source, RunSplitter(), 0, len(source.text), with_runs=False)
    match body:
        case BracedBody((ptx.Instruction() as instruction,)):
            return instruction
    return None


def forget() -> None:
    """Forget what other modules have left here."""
    parse_instruction.cache_clear()
    _variables.cache_clear()


def _parse_part(
    rule: str,
    source: Source,
    splitter: RunSplitter,
    start: int,
    end: int,
    *,
    with_runs: bool = True,
) -> object:
    """What the builder makes of the text between two offsets, or None if it has a fault.

    One statement or variable needs no runs: compiling their expression takes longer than the rest.
    """
    builder = ModuleBuilder(source, splitter)
    counter = LineCounter("\n")  # type: ignore[no-untyped-call]
    counter.char_pos = start
    state = LexerState(TextSlice(source.text, start, end), counter)
    with _ONE_AT_A_TIME:
        parser, dispatch = _shared_parser(with_runs)
        dispatch.builder = builder
        frontend: Any = parser.parser
        try:
            made = frontend.parser.parse(LexerThread(frontend.lexer, state), rule)
        except UnexpectedInput:
            return None
        finally:
            dispatch.builder = None
    return None if builder.faults.diagnostics else made


def parse_whole(source: Source, *, with_runs: bool) -> ptx.Module:
    """The module, read by the grammar alone; raises `TesseraError` with all its faults."""
    builder, recovery = ModuleBuilder(source), Recovery(source)
    module: ptx.Module | None = None
    with _ONE_AT_A_TIME:
        parser, dispatch = _shared_parser(with_runs)
        dispatch.builder = builder
        try:
            module = parser.parse(  # type: ignore[assignment]
                source.text, start="start", on_error=recovery.resume
            )
        except UnexpectedInput:
            pass  # the recovery has reported it
        finally:
            dispatch.builder = None
    diagnostics = recovery.diagnostics + builder.faults.diagnostics
    if diagnostics or module is None:
        raise TesseraError(in_text_order(diagnostics))
    return module
