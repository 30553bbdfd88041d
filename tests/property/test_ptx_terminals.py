"""The grammar alone spells terminals: the fast path follows when one of them changes."""

from __future__ import annotations

import re
import subprocess
import sys

from tessera.frontend.ptx.grammar import build_parser
from tessera.frontend.ptx.terminals import TERMINALS

ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f", "x1a": "\x1a"}
# Run with a grammar in which names may hold `?`, a vertical tab is a blank, floats may begin with
# `0q`, strings stand in backticks and `.label` is `.loc`.
CHANGED = r"""
import re, sys
from tessera.frontend.text import grammar
changes = [
    (r"NAME: .*", r"NAME: /(?:[A-Za-z][A-Za-z0-9_$?]*+|[_$%][A-Za-z0-9_$?]++)/"),
    (r"WHITESPACE: .*", r"WHITESPACE: /[ \\t\\r\\n\\v]+/"),
    (r"STRING: .*", r"STRING: /`[^`\\n]*+`/"),
    (r'LOC: ".loc"', r'LOC: ".place"'),
    (r"NATURAL.2: /\(\?:", r"NATURAL.2: /(?:0[oO]?[0-7]++|"),
    (r"LINKAGE.3: .*", r"LINKAGE.3: /\\.(?:public)(?![\\w$])/"),
]
original = grammar.grammar_text
def changed(name):
    text = original(name)
    for pattern, replacement in changes if name == "ptx" else ():
        text, count = re.subn(pattern, replacement, text, count=1)
        assert count == 1, pattern
    return text
grammar.grammar_text = changed
from tessera.diagnostics import Source, TesseraError
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.frontend.ptx.scan import scan_module
from tessera.frontend.ptx.statement_runs import RunSplitter
from tessera.ir.verify_ptx.module import verify_module
text = sys.stdin.read()
alone = scan_module(Source("t.ptx", text), RunSplitter(), lambda start, end: None)
assert alone is not None, "the fast path left it to the grammar"
kernel = next(alone.kernels())
assert kernel.unread.outline is not None
slow = parse_source(Source("t.ptx", text), with_runs=False)
assert not verify_module(alone) and alone == slow
assert [s.at for s in kernel.body] == [s.at for s in next(slow.kernels()).body]
spoilt = text.replace(".public", ".visible")
assert scan_module(Source("t.ptx", spoilt), RunSplitter(), lambda start, end: None) is None
try:
    parse_source(Source("t.ptx", spoilt), with_runs=False)
except TesseraError:
    print("both follow")
"""
TEXT = """.version 8.0
.target sm_80
.address_size 64
.public .entry k?(.param .u64 k?_param?0)
{
\t.reg .b64 %r?d<3>;
\t.reg .b32 %r?<3>, x?y;
\t.place 1 2 3
\v\tld.param.u64\v%r?d1, [k?_param?0];
\t.pragma `nounroll`;
$L?1:
\tadd.s32 x?y, %r?1, 0o17;
\tbra $L?1;
}
"""


def test_both_paths_follow_a_changed_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHANGED], input=TEXT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "both follow\n", done.stderr


def test_terminals_are_those_that_lark_reads() -> None:
    parser, _ = build_parser(with_runs=False)
    theirs = {
        terminal.name: terminal.pattern.to_regexp().replace(r"\/", "/")
        for terminal in parser.terminals
    }
    assert set(TERMINALS) <= theirs.keys()
    for name, ours in TERMINALS.items():
        spelled = re.sub(r"\\([trnf]|x1a)", lambda escape: ESCAPES[escape[1]], ours)
        assert spelled in (theirs[name], f"(?:{theirs[name]})"), name
