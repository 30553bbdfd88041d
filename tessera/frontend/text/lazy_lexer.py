"""A contextual lexer for Lark that compiles every terminal once, when a text first needs it.

Lark compiles one expression for all terminals that a state of the parser accepts: a large terminal
is compiled again for every such state, which takes longer than reading a small file. Here terminals
are tried one by one, in the same order, and what belongs to a state is made on its first visit.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping

from lark.common import LexerConf
from lark.lexer import (
    AbstractBasicLexer,
    BasicLexer,
    ContextualLexer,
    Scanner,
    TerminalDef,
    _create_unless,
)


class LazyLexer(ContextualLexer):
    """For `Lark(..., _plugins={"ContextualLexer": LazyLexer})`; the grammar is taken as valid."""

    def __init__(
        self,
        conf: LexerConf,
        states: Mapping[int, Collection[str]],
        always_accept: Collection[str] = (),
    ) -> None:
        conf = copy.copy(conf)
        conf.skip_validation = True
        self.lexers = _Lexers(conf, states)
        self.root_lexer = _StateLexer(conf)


class _Lexers(dict[int, AbstractBasicLexer]):
    """The lexer of each state; states that accept the same terminals share theirs."""

    def __init__(self, conf: LexerConf, states: Mapping[int, Collection[str]]) -> None:
        self.conf = conf
        self.states = states
        self.by_terminals: dict[frozenset[str], AbstractBasicLexer] = {}

    def __missing__(self, state: int) -> AbstractBasicLexer:
        names = frozenset(self.states[state]).union(self.conf.ignore)
        lexer = self.by_terminals.get(names)
        if lexer is None:
            conf = copy.copy(self.conf)
            conf.terminals = [terminal for terminal in conf.terminals if terminal.name in names]
            lexer = self.by_terminals[names] = _StateLexer(conf)
        self[state] = lexer
        return lexer


class _StateLexer(BasicLexer):
    def _build_scanner(self) -> Scanner:
        terminals, self.callback = _create_unless(  # type: ignore[no-untyped-call]
            self.terminals, self.g_regex_flags, self.re, self.use_bytes
        )
        return _OneByOne(  # type: ignore[no-untyped-call]
            terminals, self.g_regex_flags, self.re, self.use_bytes
        )


class _OneByOne(Scanner):
    def _build_mres(
        self, terminals: Collection[TerminalDef], max_size: int
    ) -> list[re.Pattern[str]]:
        expressions: list[re.Pattern[str]]
        expressions = super()._build_mres(terminals, 1)  # type: ignore[no-untyped-call]
        return expressions
