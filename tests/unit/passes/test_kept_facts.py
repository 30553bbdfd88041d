"""What was kept of a kernel is only believed if it has the form in which it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.ir.program import program as ir
from tessera.passes.dependences import launch_pattern
from tessera.passes.dependences.launch_pattern import (
    KernelFacts,
    KernelMemory,
    Pattern,
    PatternCodec,
    PatternContents,
)
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


COPIED = trace(BUFFERS, COPY, "launch m.copy grid=1,1,1 block=64,1,1 args=[y, x, u32:64]\n")
BOTH = (ir.BufferId(4), ir.BufferId(7))
PLACE = [0, 5, 9]
ACCESS = [1, "write", "must", "direct", 0, "st", PLACE]
REGIONS = [["interval", 0, 64], ["affine", [[8, 4, [[16, 3]]]]], ["whole", "why", PLACE],
           ["unknown", "why", None]]  # fmt: skip
NEEDS = [["wait", "it waits", None]]
WHOLE = [[ACCESS], REGIONS, NEEDS, [[1], [0, 1]], False]


def decoded(value: object) -> Pattern:
    codec = PatternCodec(COPIED.modules[0])
    return codec.decode(value, ir.LaunchId(3), "m.copy", BOTH)


def changed(value: object, path: tuple[int, ...], new: object) -> object:
    """A list with something else at a place in it."""
    if not path:
        return new
    assert isinstance(value, list)
    rest = changed(value[path[0]], path[1:], new)
    return [*value[: path[0]], rest, *value[path[0] + 1 :]]


def test_a_pattern_is_read_as_it_was_written() -> None:
    for number in range(4):
        value = changed(WHOLE, (0, 0, 4), number)
        pattern = decoded(value)
        (access,) = pattern.first.accesses
        assert (access.buffer, access.text) == (7, "st")
        assert pattern.contents == PatternContents((1,), (0, 1))
        again = PatternCodec(COPIED.modules[0]).encode(pattern)
        assert decoded(again) == pattern
        assert again[0] == [[*ACCESS[:4], 0, *ACCESS[5:]]]
        assert again[1] == [REGIONS[number]]
    assert pattern.report(ir.LaunchId(5), BOTH[::-1]).accesses[0].buffer == 4


LENGTH = len(COPIED.modules[0].variants[0].ptx.source.text)  # type: ignore[union-attr]


@pytest.mark.parametrize("place", [[0, 0, 0], [0, 0, LENGTH], [0, LENGTH, LENGTH], None])
def test_positions_in_the_text(place: object) -> None:
    span = decoded(changed(WHOLE, (0, 0, 6), place)).first.accesses[0].span
    assert (None if span is None else [0, span.start, span.end]) == place


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), None), ((), "text"), ((), []), ((0,), "text"), ((0, 0), []), ((0,), 5),
        ((0, 0, 0), 2), ((0, 0, 0), -1), ((0, 0, 0), True), ((0, 0, 0), "1"), ((0, 0, 0), None),
        ((0, 0, 1), "eat"), ((0, 0, 2), "perhaps"), ((0, 0, 3), ""), ((0, 0, 4), 4),
        ((0, 0, 5), 5), ((0, 0, 5), None), ((0, 0, 6), "abc"), ((0, 0, 6), 5),
        ((0, 0, 6), [0, 6, 5]), ((0, 0, 6), [0, LENGTH, LENGTH + 1]), ((0, 0, 6), [1, 5, 9]),
        ((0, 0, 6), [0, 5]), ((0, 0, 6), [0, 5, 9, 9]), ((0, 0, 6), {0: 0, 5: 5, 9: 9}),
        ((1, 0), ["interval", 0]), ((1, 0), ["interval", 0, -1]), ((1, 0), ["circle", 0, 1]),
        ((1, 1, 1), 5), ((1, 1, 1), "ab"), ((1, 2, 1), 5), ((1, 3, 1), None),
        ((2, 0, 0), "sleep"), ((2, 0, 1), 7), ((2, 0), ["wait"]),
        ((3,), [[1]]), ((3, 0), [2]), ((3, 1), [0, 2]), ((3, 0), "1"), ((3, 0), 1),
        ((4,), 0), ((4,), None),
    ],
)  # fmt: skip
def test_a_pattern_of_another_form_is_none(path: tuple[int, ...], value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(changed(WHOLE, path, value))


def test_a_pattern_without_the_text_of_its_positions_is_none() -> None:
    (module,) = COPIED.modules
    bare = replace(module.variants[0], ptx=replace(module.variants[0].ptx, source=None))
    codec = PatternCodec(replace(module, variants=(bare,)))
    with pytest.raises(ValueError, match="outside the module"):
        codec.decode(WHOLE, ir.LaunchId(3), "m.copy", BOTH)
    with pytest.raises(ValueError, match="outside the module"):
        codec.encode(decoded(WHOLE))


def test_at_most_so_many_patterns_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_pattern, "MOST_PATTERNS", 2)
    memory = KernelMemory(Kept(None), COPIED.modules[0], "copy")
    for key in range(3):
        memory.keep(key, decoded(WHOLE))
    found = [memory.find(key, ir.LaunchId(3), "m.copy", BOTH) for key in range(3)]
    assert found == [decoded(WHOLE), decoded(WHOLE), None]
