"""Converts Lark's exceptions to diagnostics, and resumes parsing after a fault.

`Recovery.resume` is Lark's `on_error` hook. It reports the fault at the exact token (a missing `;`
at the end of the previous token, where it belongs), abandons the current statement or function
head, and lets parsing continue at the next one, up to `MAX_ERRORS` times.
"""

from __future__ import annotations

import re
from typing import Any

from lark import Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.parsers.lalr_analysis import Shift

from tessera.diagnostics import Diagnostic, Label, Source, Span, error
from tessera.frontend.text.expected import (
    expected_sentence,
    expected_words,
    shorten,
    word_at,
)
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import WARP_SIZE_NAME
from tessera.ir.verify_ptx.declarations import FUNCTION_DIRECTIVES

MAX_ERRORS = 20
WHOLE_STATEMENTS = {"RUN", "PARAMETER_LIST", "NUMBER_LIST"}  # of these, the first word is to blame

# What the grammar's terminals are called in a sentence.
_TOP_LEVEL = re.compile(r"^[ \t]*\.(?:visible|extern|weak|common|entry|func)\b", re.M)
# A comment without an end takes the rest of the text, so that nothing looks for its end again.
_STATEMENT_END = re.compile(r'[;{}]|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|"[^"\n]*"')
MAX_FAULTS = 1000
"""The most faults that are looked at; those on a line that has one already are not reported."""
_STARTS = ("RUN", "RBRACE", "ENTRY", "FILE")


class Recovery:
    """Collects the syntax errors of one text and resumes parsing after each."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self._last = -1
        self._faults = 0

    def resume(self, fault: UnexpectedInput) -> bool:
        """Report a fault; true if parsing can continue after it."""
        position = self._position(fault)
        self._add(self._diagnose(fault, position))
        self._faults += 1
        at_end = position >= len(self.source.text.rstrip())
        enough = len(self.diagnostics) >= MAX_ERRORS or self._faults >= MAX_FAULTS
        if at_end or enough or _in_header(fault):
            return False
        return self._skip(fault, position)

    def _add(self, diagnostic: Diagnostic) -> None:
        """Keep a finding, unless it is about the rest of a line that already has one."""
        if self.diagnostics:
            first, second = self.diagnostics[-1].primary, diagnostic.primary
            assert first is not None, "syntax errors have a place"
            assert second is not None, "syntax errors have a place"
            same_line = "\n" not in self.source.text[first.span.start : second.span.start]
            if same_line or diagnostic.code == "TSR1003":  # a brace was lost with what is reported
                return
        self.diagnostics.append(diagnostic)

    # --- reporting ------------------------------------------------------------------------

    def _position(self, fault: UnexpectedInput) -> int:
        if isinstance(fault, UnexpectedToken) and fault.token.type == "$END":
            return len(self.source.text)
        return int(fault.pos_in_stream or 0)

    def _diagnose(self, fault: UnexpectedInput, position: int) -> Diagnostic:
        text = self.source.text
        if position >= len(text):
            return self._at_end(fault)
        if (in_head := self._in_head(fault, position)) is not None:
            return in_head
        odd = not text[position].isprintable() or not text[position : position + 2].isascii()
        if isinstance(fault, UnexpectedCharacters) or odd:
            special = self._bad_characters(position)
            if special is not None:
                return special
        expected = expected_words(fault)
        length = 0
        if isinstance(fault, UnexpectedToken) and fault.token.type not in WHOLE_STATEMENTS:
            length = len(str(fault.token))
        word = text[position : position + length] if length else word_at(text, position)
        if expected == ["`.version`"]:
            return error(
                "TSR1002",
                "missing `.version` at the start of the module",
                Span(self.source, position, position + len(word)),
                "this is the first statement",
                hint="a PTX module starts with `.version 8.0` and `.target sm_80`, or similar",
            )
        if expected == ["`.target`"]:
            return error(
                "TSR1002",
                "missing `.target` after `.version`",
                Span(self.source, position, position + len(word)),
                "`.target` must stand here",
            )
        if "`;`" in expected and _head_of_function(fault) is None and self._starts_line(position):
            return self._missing_semicolon(position)
        return error(
            "TSR1001",
            f"unexpected `{shorten(word)}`",
            Span(self.source, position, position + max(len(word), 1)),
            expected_sentence(expected),
        )

    def _in_head(self, fault: UnexpectedInput, position: int) -> Diagnostic | None:
        """A mistake in the head of a function that shows only after it."""
        text = self.source.text
        if (directive := _unknown_directive(fault)) is not None:
            return self._unknown_directive(directive, text.rfind(directive, 0, position))
        name = _name_as_value(fault)
        if name is None:
            return None
        word = re.compile(rf"(?<![\w$%]){re.escape(name)}(?![\w$])")
        start = [match.start() for match in word.finditer(text, 0, position)][-1]
        return error(
            "TSR1001",
            "expected a constant",
            Span(self.source, start, start + len(name)),
            "only numbers and `WARP_SZ` may stand in a constant expression",
        )

    def _unknown_directive(self, directive: str, start: int) -> Diagnostic:
        follows_name = self.source.text[max(start - 1, 0)].isalnum()
        return error(
            "TSR1025",
            f"directive is not known: `{shorten(directive)}`",
            Span(self.source, start, start + len(directive)),
            "a name ends before a dot" if follows_name else "",
            hint="rename the function: a name has letters, digits, `_` and `$`"
            if follows_name
            else None,
        )

    def _at_end(self, fault: UnexpectedInput) -> Diagnostic:
        end = len(self.source.text.rstrip())
        span = Span(self.source, max(end - 1, 0), end)
        expected = expected_words(fault)
        if "`.version`" in expected:
            return error(
                "TSR1002",
                "nothing to read: the text holds no PTX",
                span,
                hint="a PTX module starts with `.version` and `.target`",
            )
        secondary: tuple[Label, ...] = ()
        opened = _open_brace(fault)
        if opened is not None:
            secondary = (Label(Span(self.source, opened, opened + 1), "this is still open"),)
        return error(
            "TSR1003",
            "the text ends too early",
            span,
            expected_sentence(expected),
            secondary=secondary,
            hint="the file may be cut off: compare its size with the original",
        )

    def _bad_characters(self, position: int) -> Diagnostic | None:
        text = self.source.text
        if text[position] in "%$_." and not text[position + 1 : position + 2].isascii():
            position += 1
        character = text[position]
        span = Span(self.source, position, position + 1)
        if text.startswith("/*", position):
            return error("TSR1004", "comment is never closed", span, "no `*/` follows")
        if character == '"':
            return error("TSR1004", "string is never closed", span, 'no `"` follows on this line')
        if not character.isprintable() or not character.isascii():
            return error(
                "TSR1001",
                f"character U+{ord(character):04X} does not belong here",
                span,
                "outside comments and strings PTX is plain ASCII",
            )
        if character.isdigit():
            word = word_at(text, position)
            return error(
                "TSR1007",
                f"`{shorten(word)}` is not a number",
                Span(self.source, position, position + len(word)),
                "decimal, `0x`, `0b`, octal with a leading 0, `0f` and 8 or `0d` and 16 digits",
            )
        return None

    def _starts_line(self, position: int) -> bool:
        line = self.source.text.rfind("\n", 0, position) + 1
        return not self.source.text[line:position].strip() and line > 0

    def _missing_semicolon(self, position: int) -> Diagnostic:
        end = _end_of_code(self.source.text, position)
        return error(
            "TSR1001",
            "expected `;`",
            Span(self.source, end - 1, end),
            "a `;` belongs after this",
            secondary=(Label(Span(self.source, position, position + 1), "unexpected here"),),
        )

    # --- going on -------------------------------------------------------------------------

    def _skip(self, fault: UnexpectedInput, position: int) -> bool:
        parser = fault.interactive_parser
        state = parser.parser_state
        height = len(state.state_stack)
        inside = _unwind(state)
        if inside:
            # A brace on the line of a half-read statement is the mistake itself, not the block's
            # end.
            stray = self.source.text[position] == "}" and not self._starts_line(position)
            half_read = len(state.state_stack) < height
            target = _statement_end(self.source.text, position + (stray and half_read))
        else:
            declaration = _TOP_LEVEL.search(self.source.text, position + 1)
            target = declaration.start() if declaration else len(self.source.text)
        if target <= self._last:
            target = self._last + 1
        if target >= len(self.source.text):
            return False
        self._last = target
        _move(parser, target)
        return True


def _unwind(state: Any) -> bool:
    """Drop half-read values, down to a list of statements (true) or of items (false)."""
    table = state.parse_conf.parse_table.states
    while len(state.state_stack) > 1:
        # A state in the middle of an expression may be left by any of these tokens, but reads none.
        actions = table[state.state_stack[-1]]
        reads = {name for name in _STARTS if name in actions and actions[name][0] is Shift}
        if reads >= {"RUN", "RBRACE"}:
            return True
        if reads >= {"ENTRY", "FILE"}:
            return False
        state.state_stack.pop()
        state.value_stack.pop()
    return False


def _move(parser: Any, target: int) -> None:
    """Move the lexer to an offset of the text."""
    lexer_state = parser.lexer_thread.state
    counter = lexer_state.line_ctr
    if target >= counter.char_pos:
        counter.feed(Token("SKIPPED", lexer_state.text.text[counter.char_pos : target]))
    else:
        counter.char_pos = target
    lexer_state.last_token = None


def _statement_end(text: str, position: int) -> int:
    """The offset after the next `;`, or of the next brace; comments and strings are skipped."""
    while match := _STATEMENT_END.search(text, position):
        if match[0] == ";":
            return match.end()
        if match[0] in "{}":
            return match.start()
        position = match.end()
    return len(text)


def _unknown_directive(fault: UnexpectedInput) -> str | None:
    """The unknown directive in a function's head, after which nothing can be read.

    `.entry a.b(` is such a head; ptxas blames the `.b` as well.
    """
    names = []
    for value in _head_of_function(fault) or ():
        if isinstance(value, ptx.Directive):
            names.append(value.name)
        elif isinstance(value, Token) and value.type == "MODIFIER":
            names.append(value[1:])
    return next((f".{name}" for name in names if name not in FUNCTION_DIRECTIVES), None)


def _name_as_value(fault: UnexpectedInput) -> str | None:
    """A name that stands where a directive wants numbers (with the next directive as component)."""
    names = [v.name for v in _head_of_function(fault) or () if isinstance(v, ptx.Name)]
    return next((name for name in names if name != WARP_SIZE_NAME), None)


def _head_of_function(fault: UnexpectedInput) -> list[object] | None:
    """The values read so far of the head of a function, if the fault is in one."""
    values = fault.interactive_parser.parser_state.value_stack
    for index in range(len(values) - 1, -1, -1):
        kind = values[index].type if isinstance(values[index], Token) else ""
        if kind in ("LBRACE", "SPACE"):
            return None
        if kind in ("ENTRY", "FUNC"):
            pending = values[index + 1 :]
            for value in pending:
                if isinstance(value, Tree):
                    pending += value.children
            return [value for value in pending if not isinstance(value, Tree)]
    return None


def _in_header(fault: UnexpectedInput) -> bool:
    """Whether the module's first directives, which every module needs, are still being read."""
    values = fault.interactive_parser.parser_state.value_stack
    return not values or (isinstance(values[0], Token) and values[0].type == "VERSION")


def _open_brace(fault: UnexpectedInput) -> int | None:
    """The offset of the innermost `{` that the parser still waits to see closed."""
    stack = fault.interactive_parser.parser_state.value_stack
    for value in reversed(stack):
        if isinstance(value, Token) and value.type in ("LBRACE", "LBRACKET", "LPAR"):
            return value.start_pos
    return None


def _end_of_code(text: str, position: int) -> int:
    """The end of the last token before an offset; blanks and comments are skipped."""
    line_start = text.rfind("\n", 0, position) + 1
    end = position
    while end > 0:
        code = _without_comment(text[line_start:end])
        if code:
            return line_start + len(code)
        end, line_start = line_start, text.rfind("\n", 0, max(line_start - 1, 0)) + 1
    return position


def _without_comment(line: str) -> str:
    stripped = re.sub(r"/\*(?:[^*]|\*(?!/))*+\*/", lambda m: " " * len(m[0]), line)
    return stripped.partition("//")[0].rstrip()
