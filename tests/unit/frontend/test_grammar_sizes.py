"""Tables of parsers are built by every process that needs one: their grammars stay small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lark import Lark

from tessera.frontend.graph import tsg
from tessera.frontend.plan import tsp
from tessera.frontend.ptx import grammar as ptx
from tessera.frontend.trace import grammar as trace


@pytest.mark.parametrize(
    ("parser", "most"),
    [
        pytest.param(tsp._parser, 80, id="tsp"),
        pytest.param(tsg._parser, 60, id="tsg"),
        pytest.param(trace.trace_parser, 100, id="trace"),
        pytest.param(lambda: ptx._shared_parser(True)[0], 300, id="ptx"),
    ],
)
def test_a_row_of_repeats_does_not_double_the_rules(parser: Callable[[], Lark], most: int) -> None:
    """Lark writes `a* b* c*` as eight rules: a second to build the table of plans, once."""
    assert 0 < len(parser().rules) < most
