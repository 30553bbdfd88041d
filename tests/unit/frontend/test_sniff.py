"""What a file is instead of PTX, found in time that grows with the text and not with its square."""

from __future__ import annotations

import time

import pytest

from tessera.diagnostics import Source
from tessera.frontend.text.sniff import sniff_text


@pytest.mark.parametrize("filling", ["\n", " \n", "\t\n\r\n", "# \n", " ", "#", "a", '"'])
def test_a_text_of_almost_nothing_is_looked_through_at_once(filling: str) -> None:
    text = "tessera-plan 1\n" + filling * 65536
    before = time.process_time()
    assert sniff_text(Source("x.tsp", text)) is None
    assert time.process_time() - before < 10  # milliseconds; it was minutes


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("\n\n  \tFunction : _Z3addPf\n", "TSR1905"),
        ("\n\n#blocked0 = #ttg.blocked\n", "TSR1910"),
        ("// add\n\n  #  include <stdio.h>\n", "TSR1910"),
        ("\n\n# pragma once\n", "TSR1910"),
    ],
)
def test_what_begins_a_line_is_seen(text: str, code: str) -> None:
    found = sniff_text(Source("x.ptx", text))
    assert found is not None
    assert found.code == code
