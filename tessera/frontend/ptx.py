"""PTX text to `ptx.Module`.

`parse_module` reads one module and raises `TesseraError` with everything that is wrong with it:
after a fault, reading goes on at the next statement or function.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any

from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.lexer import LexerState, LexerThread, LineCounter
from lark.utils import TextSlice

from tessera.diagnostics import Diagnostic, Severity, Source, TesseraError, in_text_order
from tessera.frontend.bulk import collector_paused
from tessera.frontend.cache import ModuleCache
from tessera.frontend.grammar import grammar_text
from tessera.frontend.ptx_build import ModuleBuilder
from tessera.frontend.ptx_declarations import PARAMETER_LIST
from tessera.frontend.ptx_run import RUN
from tessera.frontend.ptx_scan import scan_module
from tessera.frontend.ptx_terminals import NUMBER_LIST
from tessera.frontend.readfile import source_of_text
from tessera.frontend.syntax_errors import Recovery
from tessera.ir import ptx
from tessera.ir.verify_ptx import verify_module

FAST_TERMINALS = {"RUN": RUN, "PARAMETER_LIST": PARAMETER_LIST, "NUMBER_LIST": NUMBER_LIST}
NEVER = r"(?!)x"
_ONE_AT_A_TIME = threading.Lock()


class _Dispatch:
    """Sends Lark's reductions to the builder of the parse at hand.

    Lark binds the callbacks of a grammar once; a module needs a builder of its own.
    """

    def __init__(self) -> None:
        self.builder: Any = None

    def __getattr__(self, rule: str) -> Any:
        if rule.startswith("_") or not hasattr(ModuleBuilder, rule):
            raise AttributeError(rule)
        return lambda children: getattr(self.builder, rule)(children)


def build_parser(*, with_runs: bool = True) -> tuple[Lark, _Dispatch]:
    """The LALR parser of `grammars/ptx.lark`; without runs, every statement goes token by token."""
    text = grammar_text("ptx")
    for name, expression in FAST_TERMINALS.items():
        pattern = expression.replace("/", r"\/") if with_runs else NEVER
        text = text.replace(f"%declare {name}\n", f"{name}.10: /{pattern}/\n")
    dispatch = _Dispatch()
    parser = Lark(text, parser="lalr", lexer="contextual", transformer=dispatch,
                  start=["start", "fragment"],
                  maybe_placeholders=True, propagate_positions=False)  # fmt: skip
    return parser, dispatch


@functools.cache
def _shared_parser(with_runs: bool) -> tuple[Lark, _Dispatch]:
    return build_parser(with_runs=with_runs)


def parse_source(source: Source, *, with_runs: bool = True) -> ptx.Module:
    """Read the module in a source; spans of its diagnostics point into it."""
    with collector_paused():
        module = _scan(source) if with_runs else None
        return module or _parse_whole(source, with_runs=with_runs)


def _scan(source: Source) -> ptx.Module | None:
    """The module, read item by item, or None where that finds a fault."""
    builder = ModuleBuilder(source)

    def read_items(start: int, end: int) -> list[ptx.Item] | None:
        items = _parse_fragment(builder, start, end)
        return None if builder.faults.diagnostics else items

    return scan_module(source, builder.splitter, read_items)


def _parse_fragment(builder: ModuleBuilder, start: int, end: int) -> list[ptx.Item] | None:
    """The items between two offsets, or None where they are not whole items."""
    counter = LineCounter("\n")  # type: ignore[no-untyped-call]
    counter.char_pos = start
    state = LexerState(TextSlice(builder.source.text, start, end), counter)
    with _ONE_AT_A_TIME:
        parser, dispatch = _shared_parser(True)
        dispatch.builder = builder
        frontend: Any = parser.parser
        try:
            items: list[ptx.Item] = frontend.parser.parse(
                LexerThread(frontend.lexer, state), "fragment"
            )
        except UnexpectedInput:
            return None
        finally:
            dispatch.builder = None
    return items


def _parse_whole(source: Source, *, with_runs: bool) -> ptx.Module:
    """The module by the grammar alone, or everything that is wrong with it."""
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
    found = recovery.diagnostics + builder.faults.diagnostics
    if found or module is None:
        raise TesseraError(in_text_order(found))
    return module


def load_module(
    source: Source, cache: ModuleCache | None = None
) -> tuple[ptx.Module, tuple[Diagnostic, ...]]:
    """Read and verify the module in a source, or find it in a cache; its warnings come with it."""
    cached = None if cache is None else cache.find(source)
    module = None
    if cached is not None:
        with contextlib.suppress(ValueError):
            module = cached.module()
    if module is not None and cached is not None and cached.is_clean:
        return module, ()
    is_new = module is None
    module = module or parse_source(source)
    found = in_text_order(verify_module(module))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in found):
        raise TesseraError(found)
    if cache is not None and is_new:
        cache.store(source, module, is_clean=not found)
    return module, tuple(found)


def parse_module(text: str, name: str = "<ptx>") -> ptx.Module:
    """Read and verify one PTX module from text."""
    return load_module(source_of_text(text, name))[0]
