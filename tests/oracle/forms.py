"""Addresses made of several pointers: the forms `p_i + p_j - p_k`, choices and multiples.

In: nothing. Out: sources. Seven pointers into three buffers (three, two and two of them) give 195
forms in which what remains is one buffer: `k` is in the buffer of `i` or in that of `j`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.oracle.subset import At, Buffer, Source, Value

# Where the seven point: into `x`, `y` and `z`, at offsets whose sums and differences stay inside.
PLACES = (At(0, 192), At(0, 256), At(0, 208), At(1, 224), At(1, 272), At(2, 240), At(2, 192))
BUFFERS = (Buffer("x", 768), Buffer("y", 768), Buffer("z", 768))
POINTERS = tuple(("u32 *", f"p{i}") for i in range(len(PLACES)))

# The same sum as C may say it: integers, differences of pointers, bytes.
SPELLINGS = (
    "(u32 *)((u64)p{i} + (u64)p{j} - (u64)p{k})",
    "(u32 *)((u64)p{i} + ((u64)p{j} - (u64)p{k}))",
    "p{i} + (p{j} - p{k})",
    "(u32 *)((char *)p{i} + ((char *)p{j} - (char *)p{k}))",
    "(u32 *)(((u64)p{j} - (u64)p{k}) + (u64)p{i})",
    "(u32 *)((u64)p{i} - ((u64)p{k} - (u64)p{j}))",
    "(u32 *)((i64)p{j} + (i64)p{i} - (i64)p{k})",
)
# What a thread does with the address.
USES = (
    "q[t] = s + t;",
    "q[t] = q[t + 16] * 3u + s;",
    "if (t < 11) q[t] = s ^ t;",
    "*(u64 *)((char *)q + 8 * t) = (u64)s * (t + 1);",
    "((u8 *)q)[t] = (u8)(s + ((u8 *)q)[t + 32]);",
    "q[2 * t] = s; q[2 * t + 1] = t;",
)


def three_pointers() -> Iterator[Source]:
    """The 195 forms `p_i + p_j - p_k`."""
    number = 0
    count = range(len(PLACES))
    for i in count:
        for j in count:
            for k in count:
                if PLACES[k].buffer not in (PLACES[i].buffer, PLACES[j].buffer):
                    continue
                address = SPELLINGS[number % len(SPELLINGS)].format(i=i, j=j, k=k)
                use = USES[number % len(USES)]
                yield _source(f"form_{i}{j}{k}", f"u32 *q = {address};\n{use}")
                number += 1


def _source(name: str, text: str, family: str = "forms") -> Source:
    # Only the pointers that the text names are parameters, in their own order.
    used = [i for i in range(len(PLACES)) if f"p{i}" in text]
    return Source(
        name=name,
        family=family,
        params=(*(POINTERS[i] for i in used), ("u32", "s"), ("u32", "flag")),
        args=(*(PLACES[i] for i in used), Value("u32", 0x01020304), Value("u32", 1)),
        body=f"u32 t = TX;\n{text}",
        buffers=BUFFERS,
        block=(16, 1, 1),
    )


# A choice decides, by the launch (`flag`), by the thread or by data (`p5`, `p6` hold numbers).
CHOICES = {
    "add_difference_if": "p0 + ({c} ? p3 - p0 : 0)",
    "add_difference_times": "(u32 *)((u64)p0 + (u64)({c} ? 1 : 0) * ((u64)p3 - (u64)p0))",
    "add_difference_masked": "(u32 *)((u64)p0 + (((u64)p3 - (u64)p0) & (0 - (u64)({c} ? 1 : 0))))",
    "choose": "{c} ? p0 : p3",
    "choose_xor": "(u32 *)((u64)p0 ^ (((u64)p0 ^ (u64)p3) & (0 - (u64)({c} ? 1 : 0))))",
    "choose_three": "{c} ? p0 : (t & 1) ? p3 : p4 + 32",
    "choose_offset": "p0 + ({c} ? 16 : 0)",
    "peer_of_choice": "({c} ? p1 : p2) + (p3 - p0)",
    "base_of_choice": "p1 + (({c} ? p3 : p4) - p0)",
    "difference_of_choice": "p1 + (p3 - ({c} ? p0 : p2))",
    "twice_chosen": "({c} ? p0 : p3) + (({c} ? p4 : p1) - ({c} ? p4 : p1))",
    "arithmetic_mean": "(u32 *)(((u64)p0 + (u64)p0) >> 1)",
}
CONDITIONS = {
    "flag": "flag",
    "thread": "(t & 2)",
    "data": "(p5[0] & 1)",
    "each": "(p5[t] & 1)",
    "compare": "(p5[0] > p5[1])",
    "never": "(flag > 1)",
}


def choices() -> Iterator[Source]:
    """An address that a condition decides."""
    for name, address in CHOICES.items():
        for kind, condition in CONDITIONS.items():
            # Threads that choose each for itself between overlapping rows race.
            if ("{c}" not in address and kind != "flag") or (
                kind == "each" and name.endswith("of_choice")
            ):
                continue
            text = f"u32 *q = {address.format(c=condition)};\nq[t] = s + t;"
            yield _source(f"choice_{name}_{kind}", text, "choices")


# Multiples and detours of which one buffer is left.
SUMS = {
    "three_minus_two": "(u64)p0 * 3 - (u64)p1 * 2",
    "four_minus_three": "((u64)p0 << 2) - (u64)p2 * 3",
    "twice_difference": "(u64)p3 + 2 * ((u64)p0 - (u64)p2)",
    "twice_peer": "(u64)p0 + 2 * ((u64)p3 - (u64)p4) + 64",
    "negated": "0 - (0 - (u64)p0)",
    "complement": "~(~(u64)p0 + 16) + 48",
    "xor_there_and_back": "((u64)p0 ^ 0x5555) ^ 0x5555",
    "xor_of_three": "((u64)p0 ^ (u64)p3) ^ (u64)p0",
    "halves": "((u64)(u32)((u64)p3 >> 32) << 32) | (u32)(u64)p3",
    "halves_added": "((u64)(u32)((u64)p3 >> 32) << 32) + (u32)(u64)p3 + 16",
    "halves_carry": "((u64)(u32)((u64)p3 >> 32) << 32) + ((u64)(u32)(u64)p3 + 4 * (u64)s / s)",
    "rounded": "((u64)p0 + 15) & ~(u64)15",
    "low_bits": "((u64)p1 & ~(u64)63) | 16",
    "shift_there_and_back": "((u64)p0 >> 3) << 3",
    "four_pointers": "(u64)p0 + (u64)p3 - (u64)p1 - (u64)p4 + (u64)p5",
    "five_pointers": "(u64)p0 - (u64)p2 + (u64)p5 - (u64)p6 + (u64)p4",
    "difference_scaled": "(u64)p3 + ((u64)p1 - (u64)p0) / 4 * 4",
    "difference_halved": "(u64)p3 + (((u64)p1 - (u64)p0) >> 1)",
    "difference_as_int": "(u64)p3 + (u64)(i64)(i32)((i64)p1 - (i64)p0)",
    "difference_as_u16": "(u64)p3 + (u16)((u64)p1 - (u64)p0)",
    "difference_product": "(u64)p3 + ((u64)p1 - (u64)p0) * ((u64)p2 - (u64)p0) / 16",
    "modulo": "(u64)p0 - (u64)p0 % 64 + 32",
    "byte_by_byte": "((u64)p0 & 0xffffffff) | ((u64)p0 & 0xffffffff00000000ull)",
    "minimum": "(u64)p0 < (u64)p1 ? (u64)p0 : (u64)p1",
    "maximum_of_peers": "(u64)p3 + ((u64)p0 > (u64)p1 ? (u64)p0 - (u64)p1 : (u64)p1 - (u64)p0)",
    "symmetric_thread": "(u64)p0 + ((u64)p3 - (u64)p0) * (u64)(t & 1)",
    "symmetric_rank": "(u64)p1 + (t & 1 ? (u64)p3 - (u64)p0 : (u64)p5 - (u64)p0)",
    "difference_in_loop": None,
    "sum_in_loop": None,
}
LOOPS = {
    "difference_in_loop": "u64 a = (u64)p1; for (u32 i = 0; i < flag; i++) a += (u64)p3 - (u64)p0;",
    "sum_in_loop": "u64 a = 0; for (u32 i = 0; i < 3; i++) a += i == 1 ? (u64)p3 : i == 0 ? "
    "(u64)p1 : 0 - (u64)p0;",
}


def sums() -> Iterator[Source]:
    """Multiples, halves, masks and other ways to one address."""
    for name, address in SUMS.items():
        made = LOOPS.get(name) or f"u64 a = {address};"
        for use, suffix in ((USES[0], "store"), (USES[1], "update")):
            yield _source(f"sum_{name}_{suffix}", f"{made}\nu32 *q = (u32 *)a;\n{use}", "sums")


def sources() -> list[Source]:
    """Everything of this module."""
    return [*three_pointers(), *choices(), *sums()]
