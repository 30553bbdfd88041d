"""Which steps of a trace are measured once for all of them."""

from __future__ import annotations

from tessera.backend.cuda.measure.alike import step_keys
from tests.helpers.served import graph_of, served
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=64 role=input dtype=f32 shape=16
buffer n bytes=64 role=input dtype=s32 shape=16
buffer k bytes=64 role=input dtype=s32 shape=16
buffer w0 bytes=64 role=weight dtype=f32 shape=16
buffer w1 bytes=64 role=weight dtype=f32 shape=16
buffer w2 bytes=128 role=weight dtype=f32 shape=32
buffer y bytes=64 role=output dtype=f32 shape=16
buffer z bytes=64 role=output dtype=f32 shape=16
buffer c bytes=64 role=temp dtype=s32 shape=16
"""


def numbers(steps: str) -> list[int]:
    """Which steps have the same key, by the first of them."""
    program = trace(BUFFERS, COPY, steps)
    keys = step_keys(program, graph_of(program), served(program).arches)
    return [keys.index(key) for key in keys]


def copy(to: str, source: str, count: int = 16, block: int = 16) -> str:
    return f"launch m.copy grid=1,1,1 block={block},1,1 args=[{to}, {source}, u32:{count}]\n"


def test_steps_that_differ_in_their_buffers_are_alike() -> None:
    assert numbers(copy("y", "w0") + copy("z", "w1") + copy("y", "w1")) == [0, 0, 0]


def test_numbers_sizes_offsets_roles_and_shapes_tell_steps_apart() -> None:
    steps = [
        copy("y", "w0"),
        copy("y", "w0", count=15),
        copy("y", "w0", block=32),
        copy("y", "w2"),
        copy("y", "w2+64"),
        copy("y", "x"),
        copy("y", "y"),
    ]
    assert numbers("".join(steps)) == list(range(len(steps)))


def test_integers_that_are_read_have_to_be_the_same_ones() -> None:
    assert numbers(copy("y", "n") + copy("z", "n") + copy("y", "k")) == [0, 0, 2]
    rewritten = copy("c", "n") + copy("y", "c") + copy("c", "k") + copy("z", "c")
    assert numbers(rewritten) == [0, 1, 2, 3]


def test_memsets_and_copies() -> None:
    steps = (
        "memset y bytes=64 value=0\nmemset z bytes=64 value=0\nmemset z bytes=64 value=1\n"
        "memcpy y w0 bytes=64\nmemcpy z w1 bytes=64\nmemcpy z w1 bytes=32\n"
    )
    assert numbers(steps) == [0, 0, 2, 3, 3, 5]
