"""Random code that passes addresses and indices through shared memory, for generated kernels.

`pointers` holds 16 words of 8 bytes that always point into a buffer, whoever wrote them last, in
whatever order: kernels with races are as good as others here. `words` holds 16 indices. `own` has a
word of 8 bytes per thread, for layout changes as compilers write them: every thread stores its
address, waits, and loads that of another one; sometimes the wait is missing.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.property.kernel_strategies import Writer

CELLS = 16
DECLARATIONS = (
    "    .shared .align 16 .b8 pointers[128];\n"
    "    .shared .align 16 .b8 words[64];\n"
    "    .shared .align 16 .b8 own[1024];\n"
)


def begin(rng: random.Random, writer: Writer) -> None:
    """Fill shared memory: all threads store the same."""
    for cell in range(CELLS):
        address = writer.fresh("rd")
        writer.emit(f"add.s64 {address}, {rng.choice(['%rd1', '%rd3'])}, {8 * cell};")
        writer.emit(f"st.shared.b64 [pointers+{8 * cell}], {address};")
        writer.emit(f"st.shared.b32 [words+{4 * cell}], {rng.randrange(256)};")
    linear, *sizes = (writer.fresh("r") for _ in range(6))
    names = ("%tid.z", "%ntid.y", "%tid.y", "%ntid.x", "%tid.x")
    for register, name in zip(sizes, names, strict=True):
        writer.emit(f"mov.u32 {register}, {name};")
    z, height, y, width, x = sizes
    writer.emit(f"mad.lo.s32 {linear}, {z}, {height}, {y};")
    writer.emit(f"mad.lo.s32 {linear}, {linear}, {width}, {x};")
    writer.linear = linear
    writer.integers.append(linear)
    address = _pointer(rng, writer)
    writer.emit(f"st.shared.b64 [{_place(rng, writer, 'own', linear, 127, 8)}], {address};")
    writer.emit("bar.sync 0;")


def _pick(rng: random.Random, names: list[str]) -> str:
    return rng.choice(names[-5:] if rng.random() < 0.7 else names)


def _guard(rng: random.Random, writer: Writer) -> str:
    if not writer.predicates or rng.random() < 0.7:
        return ""
    return f"@{rng.choice(['', '!'])}{_pick(rng, writer.predicates)} "


def _pointer(rng: random.Random, writer: Writer) -> str:
    """An address of one of 32 words of 8 bytes of `out` or `wide`, exact or by data."""
    index, wide, address = writer.fresh("r"), writer.fresh("rd"), writer.fresh("rd")
    chosen = writer.linear if rng.random() < 0.5 else _pick(rng, writer.integers)
    writer.emit(f"and.b32 {index}, {chosen}, 31;")
    writer.emit(f"mul.wide.u32 {wide}, {index}, 8;")
    writer.emit(f"add.s64 {address}, {rng.choice(['%rd1', '%rd3'])}, {wide};")
    return address


def _place(
    rng: random.Random, writer: Writer, variable: str, chosen: str, mask: int, width: int
) -> str:
    """An address in shared memory, in one of the ways that compilers write it."""
    index, moved, base, place = (writer.fresh("r") for _ in range(4))
    writer.emit(f"and.b32 {index}, {chosen}, {mask};")
    writer.emit(f"shl.b32 {moved}, {index}, {3 if width == 8 else 2};")
    if rng.random() < 0.2:
        large, big, added = (writer.fresh("rd") for _ in range(3))
        writer.emit(f"mov.u64 {large}, {variable};")
        writer.emit(f"cvt.u64.u32 {big}, {moved};")
        writer.emit(f"add.s64 {added}, {big}, {large};")
        return added
    writer.emit(f"mov.b32 {base}, {variable};")
    writer.emit(f"add.s32 {place}, {base}, {moved};")
    return place


def _index(rng: random.Random, writer: Writer) -> str:
    """Where: known for each thread, or whatever there is."""
    return writer.linear if rng.random() < 0.5 else _pick(rng, writer.integers)


def _wait(rng: random.Random, writer: Writer, depth: int) -> None:
    """Barriers stand where all threads come; some wait for less than all."""
    if depth == 0 and not writer.leaves and rng.random() < 0.8:
        writer.emit(
            rng.choice(["bar.sync 0;", "bar.sync 0;", "barrier.sync 1;", "bar.warp.sync -1;"])
        )


def _use(rng: random.Random, writer: Writer, address: str) -> None:
    """An access through an address that was loaded."""
    if rng.random() < 0.6:
        value = _pick(rng, writer.integers)
        writer.emit(f"{_guard(rng, writer)}st.global.u32 [{address}], {value};")
        return
    result = writer.fresh("r")
    writer.emit(f"ld.global.u32 {result}, [{address}+4];")
    writer.integers.append(result)


def pointer_word(rng: random.Random, writer: Writer, depth: int) -> None:
    """A store to `pointers`, mostly; a load from it, and an access through what was loaded."""
    if rng.random() < 0.7:
        address = _pointer(rng, writer)
        place = _place(rng, writer, "pointers", _index(rng, writer), CELLS - 1, 8)
        _store_pointer(rng, writer, place, address)
    _wait(rng, writer, depth)
    _load_pointer(rng, writer, _place(rng, writer, "pointers", _index(rng, writer), CELLS - 1, 8))


def _store_pointer(rng: random.Random, writer: Writer, place: str, address: str) -> None:
    guard = _guard(rng, writer)
    shape = rng.random()
    if shape < 0.15:
        low, high = writer.fresh("r"), writer.fresh("r")
        writer.emit(f"mov.b64 {{{low}, {high}}}, {address};")
        writer.emit(f"{guard}st.shared.v2.b32 [{place}], {{{low}, {high}}};")
    elif shape < 0.3 and place.startswith("%rd"):
        generic = writer.fresh("rd")
        writer.emit(f"cvta.shared.u64 {generic}, {place};")
        writer.emit(f"{guard}st.b64 [{generic}], {address};")
    elif shape < 0.35:
        old = writer.fresh("rd")
        writer.emit(f"{guard}atom.shared.exch.b64 {old}, [{place}], {address};")
    else:
        writer.emit(f"{guard}st.shared.b64 [{place}], {address};")


def _load_pointer(rng: random.Random, writer: Writer, place: str) -> None:
    address = writer.fresh("rd")
    shape = rng.random()
    if shape < 0.1:
        low, high = writer.fresh("r"), writer.fresh("r")
        writer.emit(f"ld.shared.v2.b32 {{{low}, {high}}}, [{place}];")
        writer.emit(f"mov.b64 {address}, {{{low}, {high}}};")
    elif shape < 0.2 and place.startswith("%rd"):
        generic = writer.fresh("rd")
        writer.emit(f"cvta.shared.u64 {generic}, {place};")
        writer.emit(f"ld.b64 {address}, [{generic}];")
    else:
        writer.emit(f"ld.shared.b64 {address}, [{place}];")
    _use(rng, writer, address)


def exchange(rng: random.Random, writer: Writer, depth: int) -> None:
    """A layout change: each thread stores an address and loads another thread's."""
    _wait(rng, writer, depth)
    place = _place(rng, writer, "own", writer.linear, 127, 8)
    writer.emit(f"st.shared.b64 [{place}], {_pointer(rng, writer)};")
    _wait(rng, writer, depth)
    other = writer.fresh("r")
    writer.emit(f"xor.b32 {other}, {writer.linear}, {rng.choice([0, 0, 1, 1, 3])};")
    if rng.random() < 0.8:
        # Threads without a partner take their own.
        partner = writer.fresh("p")
        total = writer.fresh("r")
        writer.emit(f"mov.u32 {total}, %ntid.x;")
        writer.emit(f"setp.lt.u32 {partner}, {other}, {total};")
        writer.emit(f"selp.b32 {other}, {other}, {writer.linear}, {partner};")
        _load_pointer(rng, writer, _place(rng, writer, "own", other, 127, 8))


def index_word(rng: random.Random, writer: Writer, depth: int) -> None:
    """Indices in `words`: whole, in parts, or counted up by all threads."""
    if rng.random() < 0.2:
        # Behind the end of `pointers`, where `words` lies.
        place = f"{_place(rng, writer, 'pointers', _index(rng, writer), CELLS - 1, 4)}+{8 * CELLS}"
    else:
        place = _place(rng, writer, "words", _index(rng, writer), CELLS - 1, 4)
    value = _pick(rng, writer.integers)
    kind = rng.choice(["st.shared.b32", "st.shared.b32", "st.shared.u16", "red.shared.add.u32"])
    writer.emit(f"{_guard(rng, writer)}{kind} [{place}], {value};")
    _wait(rng, writer, depth)
    result = writer.fresh("r")
    place = _place(rng, writer, "words", _index(rng, writer), CELLS - 1, 4)
    width = rng.choice(["b32", "b32", "u32", "u16", "s16", "u8", "s8"])
    writer.emit(f"ld.shared.{width} {result}, [{place}];")
    writer.integers.append(result)
    if rng.random() < 0.6:
        masked, wide, address = writer.fresh("r"), writer.fresh("rd"), writer.fresh("rd")
        writer.emit(f"and.b32 {masked}, {result}, 255;")
        writer.emit(f"mul.wide.u32 {wide}, {masked}, 4;")
        writer.emit(f"add.s64 {address}, %rd1, {wide};")
        writer.emit(f"{_guard(rng, writer)}st.global.u32 [{address}], {value};")


def phases(rng: random.Random, writer: Writer, depth: int) -> None:
    """Layout changes in a loop with a known end, or in some CTAs: all threads come to them."""
    if depth > 0 or writer.leaves:
        exchange(rng, writer, depth)
        return
    known = len(writer.integers), len(writer.predicates)
    counter, test = writer.fresh("r"), writer.fresh("p")
    start, end = (f"L{writer.fresh('l')[2:]}" for _ in range(2))
    first = rng.choice(["0", "0", "%ctaid.x"])
    writer.emit(f"mov.u32 {counter}, {first};")
    writer.emit(f"setp.ge.u32 {test}, {counter}, {rng.choice([1, 2, 3])};")
    writer.emit(f"@{test} bra {end};")
    writer.lines.append(f"{start}:")
    writer.integers.append(counter)
    for _ in range(rng.randint(1, 2)):
        rng.choice((exchange, pointer_word, index_word))(rng, writer, 0)
    del writer.integers[known[0] :], writer.predicates[known[1] :]
    writer.emit(f"add.s32 {counter}, {counter}, 1;")
    writer.emit(f"setp.lt.u32 {test}, {counter}, 3;")
    writer.emit(f"@{test} bra {start};")
    writer.lines.append(f"{end}:")


KINDS = (pointer_word, pointer_word, exchange, exchange, index_word, phases, phases)


def warps_apart(text: str, second: int) -> str:
    """The same kernel in another order: the even or the odd warps run the code first, each stretch
    up to a barrier. They have a copy each of the code, which the CPU backend runs one by one."""
    head, body = text.split(DECLARATIONS, 1)
    body = body.rsplit("    ret;\n}", 1)[0]
    copy = re.sub(r"\b(L\d+)\b", r"\1_copy", body)
    choice = (
        "    .reg .b32 %q<4>;\n    .reg .pred %apart;\n"
        "    mov.u32 %q1, %tid.z;\n    mov.u32 %q2, %ntid.y;\n    mov.u32 %q3, %tid.y;\n"
        "    mad.lo.s32 %q1, %q1, %q2, %q3;\n    mov.u32 %q2, %ntid.x;\n    mov.u32 %q3, %tid.x;\n"
        "    mad.lo.s32 %q1, %q1, %q2, %q3;\n    bfe.u32 %q1, %q1, 5, 1;\n"
        f"    setp.eq.u32 %apart, %q1, {second};\n    @%apart bra SECOND;\n"
    )
    return f"{head}{DECLARATIONS}{choice}{body}    ret;\nSECOND:\n{copy}    ret;\n}}\n"
