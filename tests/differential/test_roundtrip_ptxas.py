"""ptxas as the judge of parsing and printing: the printed text gives the same machine code."""

from __future__ import annotations

import pytest

from tests.helpers.corpus import corpus_names, corpus_text, handwritten_texts
from tests.helpers.cubin import differences
from tests.helpers.ptxas import assemble, find_ptxas
from tests.helpers.roundtrip import check_text

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not on PATH")

HANDWRITTEN = dict(handwritten_texts())
SPREAD = 9
SMALL = 40_000
CONSTANT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v;
  ld.param.u64 %a, [p]; mov.u32 %v, VALUE; st.global.u32 [%a], %v; ret;
}
"""


def some_corpus_names() -> list[str]:
    small = corpus_names(SMALL)
    return small[:: max(1, len(small) // SPREAD)][:SPREAD]


@needs_ptxas
@pytest.mark.parametrize("name", ["variables.ptx", "indirect_calls.ptx", "tensor_copies.ptx"])
def test_handwritten_file_survives(name: str) -> None:
    trip = check_text(HANDWRITTEN[name], name)
    assert trip.ok, trip


@needs_ptxas
@pytest.mark.parametrize("name", some_corpus_names())
def test_corpus_file_survives(name: str) -> None:
    trip = check_text(corpus_text(name), name)
    assert trip.ok, trip


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("name", HANDWRITTEN)
def test_every_handwritten_file_survives(name: str) -> None:
    trip = check_text(HANDWRITTEN[name], name)
    assert trip.ok, trip


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("name", corpus_names())
def test_every_corpus_file_survives(name: str) -> None:
    trip = check_text(corpus_text(name), name)
    assert trip.ok, trip


@pytest.mark.parametrize("name", HANDWRITTEN)
def test_handwritten_file_prints_and_parses_back(name: str) -> None:
    trip = check_text(HANDWRITTEN[name], name, with_ptxas=False)
    assert trip.ok, trip


@needs_ptxas
def test_the_judge_sees_one_changed_constant() -> None:
    one, two = (assemble(CONSTANT.replace("VALUE", value)).cubin for value in ("1", "2"))
    assert one is not None
    assert two is not None
    assert ".text.k" in differences(one, two)


@needs_ptxas
def test_the_judge_ignores_layout() -> None:
    plain = assemble(CONSTANT.replace("VALUE", "1")).cubin
    moved = assemble("// moved\n\n" + CONSTANT.replace("VALUE", "/* one */ 1")).cubin
    assert plain is not None
    assert moved is not None
    assert differences(plain, moved) == []


@needs_ptxas
def test_a_text_that_ptxas_refuses_is_not_called_a_failure_of_ours() -> None:
    text = CONSTANT.replace("VALUE", "1").replace("st.global.u32 [%a]", "st.global.u32 [%v]")
    assert check_text(text, "types.ptx").stage in ("refused", "parse")
