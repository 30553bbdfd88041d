"""What was kept of a kernel is only believed if it has the form in which it is kept."""

from __future__ import annotations

import pytest

from tessera.passes.dependences.launch_pattern import KernelFacts, KernelMemory
from tests.helpers.traces import COPY, trace

BUFFERS = "buffer x bytes=256 role=input\nbuffer y bytes=256 role=output\n"


class Kept:
    """A store that has one value."""

    def __init__(self, value: object) -> None:
        self.value = value

    def find(self, _key: str) -> object:
        return self.value

    def keep(self, _key: str, value: object) -> None:
        self.value = value


def found(facts: object) -> KernelFacts | None:
    launch = "launch m.copy grid=1,1,1 block=64,1,1 args=[y, x, u32:64]\n"
    (module,) = trace(BUFFERS, COPY, launch).modules
    return KernelMemory(Kept([{"sm_80": facts}, {}]), module, "copy").find_facts("sm_80")


def test_what_is_kept_is_found() -> None:
    assert found([["n"], ["y", "x"]]) == KernelFacts(frozenset("n"), frozenset("xy"))


@pytest.mark.parametrize(
    "facts",
    [
        None,
        "n",
        [],
        [["n"]],
        ["n", ["y"]],
        [["n"], "y"],
        [["n"], ["y"], []],
        [["n", 1], ["y"]],
        [[["n"]], ["y"]],
        [["n"], ["y", None]],
        [["n"], [["y"]]],
    ],
)
def test_what_has_another_form_is_not(facts: object) -> None:
    assert found(facts) is None
