"""Kernels whose pointers come the long way: tables, structs, arrays, loops, functions, aliases.

In: nothing. Out: sources. Names say what a kernel does; most come in several variants of where the
table lies, of what decides, and of which arguments alias.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tests.oracle.subset import Argument, At, Buffer, Source, Struct, Value, Word

FOUR = tuple(Buffer(name, 512) for name in ("a", "b", "c", "d"))
TABLE = Buffer("t", 128)


def _case(name: str, params: str, args: tuple[Argument, ...], body: str, **more: object) -> Source:
    kinds = tuple((p.rsplit(" ", 1)[0], p.rsplit(" ", 1)[1]) for p in params.split(", "))
    family = str(more.pop("family", name.split("_")[0]))
    buffers = more.pop("buffers", (*FOUR, TABLE))
    return Source(
        name=name,
        family=family,
        params=kinds,
        args=args,
        body=body,
        buffers=buffers,  # type: ignore[arg-type]
        **more,
    )


def _words(*targets: At, start: int = 0) -> tuple[Word, ...]:
    return tuple(Word(start + 8 * i, target) for i, target in enumerate(targets))


ROWS = (At(0, 64), At(1, 128), At(2, 0), At(3, 192))


def tables() -> Iterator[Source]:
    """Pointers in memory: loops over them, picked by thread, block, data, in halves."""
    table = tuple((4, word) for word in _words(*ROWS))
    args = (At(4), At(0, 384), Value("u32", 4))
    uses = {
        "loop": "for (u32 i = 0; i < n; i++) t[i][TX] = i * 7 + TX;",
        "loop_some": "for (u32 i = 0; i < n; i++) if (TX < 30) t[i][TX] = i;",
        "loop_down": "for (int i = (int)n - 1; i >= 0; i--) t[i][TX] += i + 1;",
        "loop_step": "for (u32 i = TX & 1; i < n; i += 2) t[i][TX] = i;",
        "block": "t[BX][TX] = BX + TX;",
        "thread": "t[TX & 3][TX] = TX;",
        "data": "t[s[0] & 3][TX] = TX;",
        "data_each": "t[s[TX] & 3][TX] = TX;",
        "copy": "t[3][TX] = t[0][TX] + t[1][TX] * t[2][TX];",
        "chase": "for (u32 i = 0; i + 1 < n; i++) t[i + 1][TX] = t[i][TX] + 1;",
        "first_word": "u32 *p = *t; p[TX] = 5;",
        "swap": "u32 x = t[0][TX]; t[0][TX] = t[1][TX]; t[1][TX] = x;",
        "bound": "for (u32 i = 0; i < (s[0] & 3); i++) t[i][TX] = i;",
        "stop": "for (u32 i = 0; i < n; i++) { if (s[i] & 1) break; t[i][TX] = i; }",
        "skip": "for (u32 i = 0; i < n; i++) { if (i == 2) continue; t[i][TX] = i; }",
        "difference": "u64 p = (u64)t[0], d = (u64)t[1] - p; p += d; ((u32 *)p)[TX] = 3;",
        "two_loops": "for (u32 i = 0; i < 2; i++) for (u32 j = 2; j < n; j++) t[j][TX] = "
        "t[i][TX] + j;",
        "end": "u32 **e = t + n; for (u32 **p = t; p != e; p++) (*p)[TX] = TX;",
        "chosen": "u32 *p = TX & 1 ? t[0] : t[1]; p[TX] = 9;",
        "chosen_by_data": "u32 *p = s[0] & 1 ? t[0] : t[1]; p[TX] = 9;",
    }
    for name, body in uses.items():
        grid = (4, 1, 1) if name == "block" else (1, 1, 1)
        yield _case(
            f"table_{name}", "u32 ** t, u32 * s, u32 n", args, body, tables=table, grid=grid
        )
    halves = (
        "u32 *w = (u32 *)t + 2 * (TX & 3); u32 *p = (u32 *)(((u64)w[1] << 32) | w[0]); p[TX] = 1;"
    )
    numbers = "u64 *w = (u64 *)t; u32 *p = (u32 *)w[1]; p[TX] = 4;"
    vectors = "struct wide *w = (struct wide *)t; struct wide v = w[1]; ((u32 *)v.x)[TX] = "
    for name, body in (
        ("halves", halves),
        ("numbers", numbers),
        ("vector", vectors + "2; ((u32 *)v.y)[TX] = 3;"),
    ):
        yield _case(f"table_{name}", "void * t, u32 * s, u32 n", args, body, tables=table)
    deep = (*table, (4, Word(64, At(4, 0))))
    yield _case(
        "table_of_tables",
        "u32 *** t, u32 n",
        (At(4, 64), Value("u32", 4)),
        "for (u32 i = 0; i < n; i++) t[0][i][TX] = i;",
        tables=deep,
    )
    linked = (
        (0, Word(0, At(1, 0))),
        (1, Word(0, At(2, 256))),
        (2, Word(256, At(3, 8))),
    )
    for count in (1, 2, 3):
        body = "struct node *p = h; for (u32 i = 0; i < n; i++) p = p->next;\np->value[TX] = 6;"
        yield _case(
            f"table_list_{count}",
            "struct node * h, u32 n",
            (At(0, 0), Value("u32", count)),
            body,
            tables=linked,
            prelude="struct node { struct node *next; u32 value[32]; };",
        )


def overwritten() -> Iterator[Source]:
    """Tables that the same launch writes, itself or through an alias."""
    table = tuple((4, word) for word in _words(*ROWS))
    one = (1, 1, 1)
    uses = {
        "then_used": "t[0] = q; u32 *p = t[0]; p[TX] = 7;",
        "other_then_used": "t[1] = q; u32 *p = t[0]; p[TX] = 7;",
        "maybe": "if (s[0] & 1) t[0] = q; t[0][TX] = 7;",
        "maybe_not": "if (s[0] & 0) t[0] = q; t[0][TX] = 7;",
        "by_index": "t[s[0] & 3] = q; t[2][TX] = 7;",
        "copied": "t[0] = t[1]; t[0][TX] = 7;",
        "swapped": "u32 *x = t[0]; t[0] = t[1]; t[1] = x; t[0][TX] = 7; t[1][4] = 8;",
        "rotated": "u32 *x = t[0]; for (u32 i = 0; i < 3; i++) t[i] = t[i + 1]; t[3] = x; "
        "t[0][0] = 1; t[3][1] = 2;",
        "moved": "t[0] += 8; t[0][TX] = 7;",
        "moved_by_data": "t[0] += s[0] & 7; t[0][TX] = 7;",
        "twice": "t[0] = q; t[0] = r; t[0][TX] = 7;",
        "after_use": "t[0][TX] = 7; t[0] = q;",
        "in_loop": "for (u32 i = 0; i < 3; i++) { t[0][i] = i; t[0] = i == 0 ? q : r; }",
        "half": "((u32 *)t)[0] = (u32)(u64)q; ((u32 *)t)[1] = (u32)((u64)q >> 32); "
        "(*(u32 *volatile *)t)[TX] = 7;",
        "as_number": "*(volatile u64 *)t = (u64)q; u32 *p = (u32 *)*(volatile u64 *)t; p[TX] = 7;",
    }
    for name, body in uses.items():
        yield _case(
            f"overwritten_{name}",
            "u32 ** t, u32 * q, u32 * r, u32 * s",
            (At(4), At(3, 64), At(2, 128), At(1, 448)),
            body,
            tables=table,
            block=one,
        )
    # The table is in an output: a plain store through another argument changes a pointer.
    aliased = {
        "output": "*(u64 *)o = (u64)q; t[0][TX] = 7;",
        "output_index": "((u64 *)o)[n] = (u64)q; t[2][TX] = 7;",
        "output_other": "((u64 *)o)[n + 8] = (u64)q; t[2][TX] = 7;",
        "output_by_data": "((u64 *)o)[s[0] & 3] = (u64)q; t[1][TX] = 7;",
    }
    for name, body in aliased.items():
        yield _case(
            f"overwritten_{name}",
            "u32 ** t, void * o, u32 * q, u32 * s, u32 n",
            (At(4), At(4), At(3, 64), At(1, 448), Value("u32", 2)),
            body,
            tables=table,
            block=one,
        )
    per_thread = {
        "own_word": "t[TX & 3] = TX & 1 ? q : r; t[TX & 3][TX & 3] = 7;",
        "kept_word": "if (TX == 0) t[0] = q; SYNC(); t[0][TX] = 7;",
        "kept_by_all": "if (TX < 4) t[TX] = q + 8 * TX; SYNC(); t[TX & 3][TX & 3] = TX;",
    }
    for name, body in per_thread.items():
        block = (4, 1, 1) if name != "kept_word" else (32, 1, 1)
        yield _case(
            f"overwritten_{name}",
            "u32 ** t, u32 * q, u32 * r, u32 * s",
            (At(4), At(3, 64), At(2, 128), At(1, 448)),
            body,
            tables=table,
            block=block,
        )


PACK = "struct pack { u32 *row[4]; u32 count; u32 step; };"


def structs() -> Iterator[Source]:
    """Pointers in structs passed by value, copied, in unions and arrays."""
    raw = bytes(32) + struct.pack("<II", 4, 2)
    args = (Struct(raw, _words(*ROWS)), At(3, 448))
    uses = {
        "block": "p.row[BX][TX] = BX;",
        "block_count": "if (BX < p.count) p.row[BX][TX * p.step] = BX;",
        "loop": "for (u32 i = 0; i < p.count; i++) p.row[i][TX] = i;",
        "fixed": "p.row[0][TX] = p.row[1][TX] + p.step;",
        "thread": "p.row[TX & 3][TX] = TX;",
        "data": "p.row[s[0] & 3][TX] = TX;",
        "copied": "struct pack q = p; q.row[1] = q.row[BX]; q.row[1][TX] = 5;",
        "sorted": "struct pack q = p; u32 *x = q.row[0]; q.row[0] = q.row[3]; q.row[3] = x; "
        "q.row[BX & 3][TX] = BX;",
        "passed": "put(p, BX & 3, TX);",
        "difference": "u32 *q = p.row[2] + (p.row[BX & 3] - p.row[2]); q[TX] = 1;",
    }
    prelude = PACK + "NOINLINE void put(struct pack p, u32 i, u32 t) { p.row[i][t] = i + t; }"
    for name, body in uses.items():
        blocks = 4 if "BX" in body else 1
        yield _case(
            f"struct_{name}",
            "struct pack p, u32 * s",
            args,
            body,
            prelude=prelude,
            grid=(blocks, 1, 1),
        )
    chunks = struct.pack("<4I", 8, 16, 24, 32)
    multi = "struct multi { u32 *in[4]; u32 *out[4]; u32 count[4]; };"
    body = "if (TX < p.count[BX]) p.out[BX][TX] = p.in[BX][TX] * 2;"
    targets = (*ROWS, At(3, 0), At(2, 256), At(1, 0), At(0, 256))
    yield _case(
        "struct_multi_tensor",
        "struct multi p",
        (Struct(bytes(64) + chunks, _words(*targets)),),
        body,
        prelude=multi,
        grid=(4, 1, 1),
    )
    nested = "struct inner { u32 *p; u32 n; u32 pad; }; struct outer { struct inner x[2]; u64 k; };"
    yield _case(
        "struct_nested",
        "struct outer o",
        (
            Struct(
                bytes(8) + struct.pack("<II", 20, 0) + bytes(8) + struct.pack("<IIQ", 9, 0, 5),
                (Word(0, At(0, 16)), Word(16, At(1, 32))),
            ),
        ),
        "for (u32 i = 0; i < 2; i++) if (TX < o.x[i].n) o.x[i].p[TX] = (u32)o.k + i;",
        prelude=nested,
    )
    for name, kind in (("number", "u64 n"), ("halves", "struct { u32 lo, hi; } h")):
        read = "u.n" if name == "number" else "((u64)u.h.hi << 32 | u.h.lo)"
        yield _case(
            f"struct_union_{name}",
            "u32 * a, u32 * b",
            (At(0, 16), At(1, 32)),
            f"union u u; u.p = TX & 1 ? a : b; u32 *q = (u32 *)({read} + 64); q[TX] = 4;",
            prelude=f"union u {{ u32 *p; {kind}; }};",
            buffers=FOUR,
        )


def arrays() -> Iterator[Source]:
    """Pointers in local arrays and in shared memory."""
    args = (*ROWS, At(0, 448), Value("u32", 2))
    params = "u32 * a, u32 * b, u32 * c, u32 * d, u32 * s, u32 n"
    rows = "u32 *r[4] = {a, b, c, d};"
    uses = {
        "loop": "for (u32 i = 0; i < 4; i++) r[i][TX] = i;",
        "by_argument": "r[n][TX] = 3;",
        "by_thread": "r[TX & 3][TX] = 3;",
        "by_block": "r[BX][TX] = 3;",
        "by_data": "r[s[0] & 3][TX] = 3;",
        "two": "for (u32 i = 0; i < n; i++) r[i + 2][TX] = r[i][TX] + 1;",
        "rotate": "for (u32 k = 0; k < n; k++) { u32 *x = r[0]; r[0] = r[1]; r[1] = r[2]; "
        "r[2] = r[3]; r[3] = x; } r[0][TX] = 3;",
        "filled": "u32 *q[8]; for (u32 i = 0; i < 8; i++) q[i] = a + 8 * i; "
        "for (u32 i = 0; i < 8; i += n) q[i][TX & 7] = i + (TX >> 5);",
        "offsets": "u64 o[4]; for (u32 i = 0; i < 4; i++) o[i] = (u64)r[i] - (u64)a; "
        "*(u32 *)((u64)a + o[TX & 3] + 4 * TX) = 8;",
    }
    for name, body in uses.items():
        if name == "filled":
            yield _case(f"array_{name}", params, args, f"{rows}\n{body}", block=(8, 1, 1))
        else:
            yield _case(
                f"array_{name}",
                params,
                args,
                f"{rows}\n{body}",
                grid=(4 if "BX" in body else 1, 1, 1),
            )
    shared = "SHARED u32 *h[32];"
    staged = {
        "own": "h[TX] = TX & 1 ? a : b; h[TX][TX] = 1;",
        "first": "if (TX == 0) { h[0] = a; h[1] = c; } SYNC(); h[TX & 1][TX] = 2;",
        "mirror": "h[TX] = (TX & 1 ? a : b) + TX; SYNC(); *h[31 - TX] = TX;",
        "one": "if (TX == 0) h[0] = n > 1 ? d : c; SYNC(); h[0][TX] = TX;",
        "by_data": "if (TX < 4) h[TX] = TX & 1 ? a : b; SYNC(); h[s[0] & 3][TX] = TX;",
        "changed": "if (TX == 0) h[0] = a; SYNC(); h[0][TX] = 1; SYNC(); if (TX == 0) h[0] = b; "
        "SYNC(); h[0][TX] = 2;",
        "offset": "SHARED u64 o[32]; o[TX] = (u64)b - (u64)a + 4 * TX; SYNC(); "
        "*(u32 *)((u64)a + o[31 - TX]) = 3;",
    }
    for name, body in staged.items():
        yield _case(f"staged_{name}", params, args, f"{shared}\n{body}")


def pingpong() -> Iterator[Source]:
    """Two or three buffers that change places in a loop."""
    swap = "u32 *x = p; p = q; q = x;"
    for rounds in (1, 2, 3, 4, 5):
        body = f"u32 *p = a, *q = b; for (u32 i = 0; i < n; i++) {{ q[TX] = p[TX] + i; {swap} }}"
        yield _case(
            f"pingpong_argument_{rounds}",
            "u32 * a, u32 * b, u32 n",
            (At(0, 32), At(1, 64), Value("u32", rounds)),
            body,
            buffers=FOUR,
        )
        fixed = body.replace("i < n", f"i < {rounds}u + (n >> 31)")
        yield _case(
            f"pingpong_fixed_{rounds}",
            "u32 * a, u32 * b, u32 n",
            (At(0, 32), At(1, 64), Value("u32", rounds)),
            fixed,
            buffers=FOUR,
        )
    more = {
        "data": "u32 *p = a, *q = b; for (u32 i = 0; i < (c[0] & 7); i++) "
        f"{{ q[TX] = p[TX] + i; {swap} }}",
        "until": "u32 *p = a, *q = b; u32 k = c[TX] & 7; while (k--) "
        f"{{ q[TX] = p[TX] + k; {swap} }}",
        "three": "u32 *p = a, *q = b, *r = d; for (u32 i = 0; i < n; i++) "
        "{ r[TX] = p[TX] + q[TX]; u32 *x = p; p = q; q = r; r = x; }",
        "parity": "for (u32 i = 0; i < n; i++) { u32 *p = i & 1 ? a : b, *q = i & 1 ? b : a; "
        "q[TX] = p[TX] * 3 + i; }",
        "xor": "u64 m = (u64)a ^ (u64)b, p = (u64)a; for (u32 i = 0; i < n; i++) "
        "{ ((u32 *)p)[TX] += i + 1; p ^= m; }",
        "difference": "i64 m = b - a; u32 *p = a; for (u32 i = 0; i < n; i++) "
        "{ p[TX] += i + 1; p += m; m = -m; }",
        "shared": f"u32 *p = a, *q = b; for (u32 i = 0; i < n; i++) {{ q[TX] = p[31 - TX] + i; "
        f"SYNC(); {swap} }}",
        "inner": "u32 *p = a, *q = b; for (u32 i = 0; i < n; i++) { for (u32 j = 0; j < 2; j++) "
        f"q[TX + 32 * j] = p[TX + 32 * j] + j; {swap} }}",
        "moving": "u32 *p = a, *q = b; for (u32 i = 0; i < n; i++) "
        "{ q[TX] = p[TX] + i; u32 *x = p + 1; p = q; q = x; }",
    }
    for name, body in more.items():
        block = (1, 1, 1) if name == "moving" else (32, 1, 1)
        yield _case(
            f"pingpong_{name}",
            "u32 * a, u32 * b, u32 * c, u32 * d, u32 n",
            (At(0, 32), At(1, 64), At(2, 0), At(3, 16), Value("u32", 3)),
            body,
            buffers=FOUR,
            block=block,
        )


def aliases() -> Iterator[Source]:
    """Arguments that point into one buffer, the same or overlapping."""
    bodies = {
        "copy": "b[TX] = a[TX];",
        "add": "c[TX] = a[TX] + b[TX];",
        "both": "a[TX] = TX; b[TX] += 1; c[TX] = a[TX] + b[TX];",
        "bytes": "((u8 *)b)[TX] = ((u8 *)a)[TX] + 1;",
        "chain": "b[TX] = a[TX] + 1; c[TX] = b[TX] + 1; a[TX] = c[TX] + 1;",
        "guard": "if (a == b) c[TX] = 1; else b[TX] = 2;",
        "span": "u64 n = b - a; if (TX < n) a[TX] = (u32)n;",
        "order": "u32 *l = a < b ? a : b, *h = a < b ? b : a; l[TX] = 1; if (h != l) c[TX] = *h;",
    }
    places = {
        "apart": (At(0, 0), At(0, 128), At(0, 256)),
        "same": (At(0, 64), At(0, 64), At(1, 0)),
        "all": (At(1, 64), At(1, 64), At(1, 64)),
        "touching": (At(0, 128), At(0, 256), At(0, 0)),
        "mixed": (At(0, 0), At(1, 0), At(0, 128)),
    }
    for body_name, body in bodies.items():
        for place, args in places.items():
            if body_name in ("span", "order") and place == "mixed":
                continue
            yield _case(
                f"alias_{body_name}_{place}", "u32 * a, u32 * b, u32 * c", args, body, buffers=FOUR
            )


def functions() -> Iterator[Source]:
    """Pointers through functions that are not inlined, switches and gotos."""
    pick = (
        "NOINLINE u32 *pick(u32 *a, u32 *b, u32 i) { return i & 1 ? a : b; }\n"
        "NOINLINE void fill(u32 *p, u32 n, u32 v) { for (u32 i = 0; i < n; i++) p[i] = v; }\n"
        "NOINLINE u64 far(u64 a, u64 b) { return b - a; }\n"
        "NOINLINE u32 sum(const u32 *p, u32 n) { u32 s = 0; while (n--) s += *p++; return s; "
        "}\n"
        "NOINLINE void each(u32 **t, u32 n, u32 i) { for (u32 k = 0; k < n; k++) t[k][i] = k; "
        "}"
    )
    uses = {
        "pick": "pick(a, b, n)[TX] = 1;",
        "pick_thread": "pick(a, b, TX)[TX] = 1;",
        "pick_data": "pick(a, b, s[0])[TX] = 1;",
        "fill": "fill(a + 4 * TX, n, TX);",
        "fill_less": "fill(b + 2 * TX, TX & 1, TX);",
        "far": "*(u32 *)((u64)a + far((u64)a, (u64)b) + 4 * TX) = 6;",
        "sum": "b[TX] = sum(s + (TX & 7), n);",
        "nested": "pick(pick(a, b, 0), pick(b, a, 0), TX)[TX] = sum(s, 2);",
        "each": "u32 *r[2] = {a, b}; each(r, 2, TX);",
        "switch": "u32 *p; switch (n) { case 0: p = a; break; case 1: p = b; break; case 2: p = "
        "a + 32; break; case 3: p = b + 32; break; default: p = s; } p[TX] = 4;",
        "switch_data": "u32 *p; switch (s[0] & 3) { case 0: p = a; break; case 1: p = b; break; "
        "case 2: p = a + 32; break; default: p = b + 32; } p[TX] = 4;",
        "switch_many": "switch (s[TX] & 7) { case 0: a[TX] = 1; break; case 1: b[TX] = 2; break; "
        "case 2: a[TX] = 3; case 3: b[TX] = 4; break; case 5: break; case 6: a[TX] = s[TX]; "
        "break; default: b[TX] = 5; }",
        "switch_thread": "u32 *p = a; switch (TX & 3) { case 0: p = a; break; case 1: p = b; "
        "break; case 2: p = a + 32; break; case 3: p = b + 32; } p[TX] = 4;",
        "goto": "u32 i = 0; again: a[TX * 2 + i] = i; if (++i < n) goto again; b[TX] = i;",
        "early": "if (TX >= 20) return; a[TX] = 1; if (TX > n) return; b[TX] = 2;",
        "early_data": "if (s[TX] & 1) return; a[TX] = 1; if (s[TX] & 2) return; b[TX] = 2;",
        "short": "if (TX < n && s[TX] > 5 || TX == 9) a[TX] = 1;",
        "ternaries": "a[TX] = TX < 8 ? s[TX] : TX < 16 ? b[TX] : 7;",
    }
    for name, body in uses.items():
        yield _case(
            f"function_{name}",
            "u32 * a, u32 * b, u32 * s, u32 n",
            (At(0, 0), At(1, 0), At(2, 64), Value("u32", 2)),
            body,
            prelude=pick,
            buffers=FOUR,
        )


def sources() -> list[Source]:
    """Everything of this module."""
    return [*tables(), *overwritten(), *structs(), *arrays(), *pingpong(), *aliases(), *functions()]
