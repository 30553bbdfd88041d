"""Kernels for what code does with bytes: types, floats, vectors, bit-fields, loops, shared memory.

In: nothing. Out: sources. Floats use exactly rounded operations only.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.oracle.subset import FLOAT_DATA, Argument, At, Buffer, Source, Value

IN, OUT, MORE = Buffer("in", 1024), Buffer("out", 1024), Buffer("more", 512)
BUFFERS = (IN, OUT, MORE)
ARGS: tuple[Argument, ...] = (At(0), At(1), At(2), Value("u32", 24))


def _case(
    name: str,
    body: str,
    kind: str = "u32",
    prelude: str = "",
    block: tuple[int, int, int] = (32, 1, 1),
    grid: tuple[int, int, int] = (1, 1, 1),
) -> Source:
    floats = kind in ("f32", "f64")
    buffers = tuple(Buffer(b.name, b.bytes, kind if floats else "bytes") for b in BUFFERS)
    return Source(
        name=name,
        family=name.split("_")[0],
        params=((f"{kind} *", "in"), (f"{kind} *", "out"), (f"{kind} *", "more"), ("u32", "n")),
        args=ARGS,
        body=body,
        prelude=prelude,
        buffers=buffers,
        block=block,
        grid=grid,
        data=FLOAT_DATA if floats else ("first", "second", "zeros", "ones"),
    )


INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
OPERATIONS = {
    "wrap": "out[t] = in[t] + more[t] * 3 - (in[t] << 1);",
    "divide": "out[t] = in[t] / (more[t] | 1) + in[t] % (more[t] | 1);",
    "shift": "out[t] = (in[t] >> (t & 7)) ^ ({k})(in[t] << (more[t] & 7));",
    "compare": "out[t] = (in[t] < more[t]) + 2 * (in[t] <= 5) + 4 * (more[t] > in[t + 32]);",
    "extend": "*(i64 *)(out + (8 / sizeof({k})) * t) = (i64)in[t] * (i64)more[t] + (u64)in[t + "
    "32];",
    "narrow": "((i8 *)out)[t] = (i8)in[t]; ((u16 *)out)[t + 64] = (u16)(in[t] * more[t]);",
    "minmax": "{k} a = in[t], b = more[t]; out[t] = (a < b ? a : b) ^ (a > b ? a : b);",
    "bits": "{k} a = in[t]; {k} c = 0; for (int i = 0; i < 8; i++) c += (a >> i) & 1; out[t] = c;",
    "negate": "out[t] = in[t] < more[t] ? -in[t] : ~more[t];",
}


def integers() -> Iterator[Source]:
    """Every integer type, in code that wraps, widens and narrows."""
    for kind in INTEGERS:
        for name, body in OPERATIONS.items():
            if name == "divide" and kind in ("i32", "i64", "i8", "i16"):
                # The least number by minus one has no quotient.
                body = "{k} m = more[t] & 0x3f | 1; out[t] = in[t] / m + in[t] % m;"
            yield _case(f"integer_{name}_{kind}", f"u32 t = TX;\n{body.format(k=kind)}", kind)
    carries = {
        "carry": "u64 *w = (u64 *)out; u64 a = ((u64 *)in)[2 * t], b = ((u64 *)in)[2 * t + 1]; "
        "u64 l "
        "= a + b; w[2 * t] = l; w[2 * t + 1] = (l < a) + a * 3;",
        "high": "out[t] = (u32)(((u64)in[t] * more[t]) >> 32);",
        "rotate": "u32 r = t & 31; out[t] = (in[t] << r) | (in[t] >> ((32 - r) & 31));",
        "bytes": "u32 a = in[t]; out[t] = (a >> 24) | ((a >> 8) & 0xff00) | ((a & 0xff00) << 8) | "
        "(a << 24);",
        "hash": "u32 h = 2166136261u; for (u32 i = 0; i < 4; i++) { h ^= (in[t] >> (8 * i)) & 255; "
        "h *= 16777619u; } out[t] = h;",
        "digits": "u32 a = in[t], c = 0; while (a) { c += a % 10; a /= 10; } out[t] = c;",
        "root": "u32 a = in[t] & 0xffff, r = 0; while ((r + 1) * (r + 1) <= a) r++; out[t] = r;",
        "gcd": "u32 a = in[t] & 255, b = more[t] & 255; while (b) { u32 c = a % b; a = b; b = c; } "
        "out[t] = a;",
    }
    for name, body in carries.items():
        yield _case(f"integer_{name}", f"u32 t = TX;\n{body}")


def floats() -> Iterator[Source]:
    """Floats: sums, products, quotients, roots and conversions, each exactly rounded."""
    uses = {
        "sum": "out[t] = in[t] + more[t] * in[t + 32] - 3;",
        "quotient": "out[t] = in[t] / (more[t] * more[t] + 1);",
        "chain": "{k} a = 1; for (u32 i = 0; i < n; i++) a = a * in[t] / 7 + more[t]; out[t] = a;",
        "compare": "out[t] = in[t] < more[t] ? in[t] : more[t] + 1;",
        "to_int": "((i32 *)out)[t] = (i32)(in[t] * 3) + (i32)more[t];",
        "from_int": "out[t] = ({k})((i32 *)in)[t] + ({k})(u32)t;",
        "from_long": "out[t] = ({k})((i64 *)in)[t & 15] * 2;",
        "negate": "out[t] = -in[t] * (more[t] < 0 ? -1 : 1);",
        "branch": "if (in[t] > 1) out[t] = in[t]; else if (in[t] < -1) more[t] = in[t];",
        "reduce": "{k} s = 0; for (u32 i = 0; i < 32; i++) s += in[i] * more[(i + t) & 31]; "
        "out[t] = s;",
    }
    for kind in ("f32", "f64"):
        for name, body in uses.items():
            yield _case(f"float_{name}_{kind}", f"u32 t = TX;\n{body.format(k=kind)}", kind)
    single = {
        "root": "out[t] = SQRT(in[t] * in[t] + more[t] * more[t]);",
        "fused": "out[t] = FMA(in[t], more[t], in[t + 32]);",
        "widen": "((f64 *)out)[t] = (f64)in[t] * (f64)more[t];",
        "round": "out[t] = (f32)((f64)in[t] / 3.0);",
        "bits": "((u32 *)out)[t] = ((u32 *)in)[t] & 0x7fffffff;",
    }
    for name, body in single.items():
        yield _case(f"float_{name}", f"u32 t = TX;\n{body}", "f32")
    yield _case("float_fused_f64", "u32 t = TX; out[t] = FMA64(in[t], more[t], in[t + 32]);", "f64")


def vectors() -> Iterator[Source]:
    """Vector loads and stores, struct copies, bit-fields, packed and odd sizes."""
    uses = {
        "quad": "struct quad v = ((struct quad *)in)[t]; v.x += v.w; ((struct quad *)out)[t] = v;",
        "quad_part": "struct quad v = ((struct quad *)in)[t]; out[t] = v.y + v.z;",
        "quad_stride": "if (t < 16) ((struct quad *)out)[2 * t + 1] = ((struct quad *)in)[2 * t];",
        "pair": "((struct pair *)out)[31 - t] = ((struct pair *)in)[t];",
        "wide": "struct wide v = ((struct wide *)in)[t]; v.y ^= v.x; ((struct wide *)out)[t] = v;",
        "quad_tail": "if (4 * t + 3 < n) ((struct quad *)out)[t] = ((struct quad *)in)[t]; else if "
        "(4 * t < n) for (u32 i = 4 * t; i < n; i++) out[i] = in[i];",
        "odd": "((struct odd *)out)[t] = ((struct odd *)in)[t];",
        "odd_field": "((struct odd *)out)[t].b = ((struct odd *)in)[t].c[1] + 1;",
        "triple": "((struct triple *)out)[t] = ((struct triple *)in)[31 - t];",
        "field": "struct mixed *p = (struct mixed *)out + (t & 15); if (t < 16) { p->a = (u8)t; "
        "p->d "
        "= (u64)in[t]; } else p->c = in[t];",
        "field_array": "struct mixed *p = (struct mixed *)in; out[t] = p[t & 15].c + p[t & 15].a;",
        "inner": "struct nest *p = (struct nest *)out; p[t].m[t & 1].y = in[t];",
        "copied": "struct nest v = ((struct nest *)in)[t]; v.m[0].x += v.m[1].y; ((struct nest "
        "*)out)[31 - t] = v;",
        "bitfield": "struct bits *p = (struct bits *)out + t; p->b = in[t]; p->c = more[t];",
        "bitfield_read": "struct bits b = ((struct bits *)in)[t]; out[t] = b.a + b.b * 2 + b.c;",
        "bitfield_all": "struct bits b; b.a = in[t]; b.b = 5; b.c = t; b.d = 1; ((struct bits "
        "*)out)[t] = b;",
        "unaligned": "u8 *p = (u8 *)out + 3 * t; const u8 *q = (u8 *)in + 3 * t; p[0] = q[2]; p[1] "
        "= q[1]; p[2] = q[0];",
        "halves": "u16 *p = (u16 *)out; const u16 *q = (u16 *)in; p[2 * t] = q[2 * t + 1]; p[2 * "
        "t + "
        "1] = q[2 * t];",
        "union": "union both u; u.w = ((u64 *)in)[t]; u.h[1] ^= u.h[0]; u.b[0] = 7; ((u64 "
        "*)out)[t] "
        "= u.w;",
        "local": "u32 v[8]; for (u32 i = 0; i < 8; i++) v[i] = in[t + i]; out[t] = v[in[t] & 7] + "
        "v[n & 7];",
        "local_bytes": "u8 v[16]; for (u32 i = 0; i < 16; i++) v[i] = ((u8 *)in)[t + i]; u32 s = "
        "0; for "
        "(u32 i = 0; i < 16; i++) s = s * 3 + v[v[i] & 15]; out[t] = s;",
        "memset": "u8 *p = (u8 *)out + 16 * t; for (u32 i = 0; i < 16; i++) p[i] = 0x5a;",
        "memcpy": "u8 *p = (u8 *)out + 16 * t; u8 *q = (u8 *)in + 16 * t; for (u32 i = 0; i < 16; "
        "i++) p[i] = q[i];",
        "volatile": "volatile u32 *p = out; p[t] = in[t]; p[t] = p[t] + 1;",
    }
    prelude = """struct odd { u8 a, b, c[3]; };
struct triple { u32 x, y, z; };
struct mixed { u8 a; u16 b; u32 c; u64 d; };
struct part { u32 x; u16 y; };
struct nest { struct part m[2]; u32 n; };
struct bits { u32 a : 5; u32 b : 11; u32 c : 7; u32 d : 9; };
union both { u64 w; u32 h[2]; u8 b[8]; };"""
    for name, body in uses.items():
        yield _case(f"vector_{name}", f"u32 t = TX;\n{body}", prelude=prelude)


def loops() -> Iterator[Source]:
    """Loops over rows, tiles and lists; bounds that data decides."""
    uses = {
        "grid_stride": "for (u32 i = BX * BDX + TX; i < n * 4; i += GDX * BDX) out[i] = in[i] + 1;",
        "tail": "u32 i = BX * BDX + TX; if (i < n * 2 + 1) out[i] = in[i];",
        "rows": "for (u32 r = 0; r < 4; r++) if (TX < n) out[r * 32 + TX] = in[TX * 4 + r];",
        "triangle": "for (u32 c = 0; c <= (TX & 7); c++) if (TX < 16 && BX == 0) out[TX * 8 + c] "
        "= c;",
        "bound": "u32 m = in[TX] & 7; for (u32 i = 0; i < m; i++) out[TX * 8 + i] = i;",
        "bound_all": "u32 m = in[0] & 7; for (u32 i = 0; i < m; i++) out[i * 32 + TX] = i;",
        "nested": "for (u32 i = 0; i < (in[TX] & 3); i++) for (u32 j = 0; j <= i; j++) out[TX * 8 "
        "+ i "
        "* 2 + (j & 1)] = j;",
        "search": "u32 i = 0; while (i < 16 && (in[i] & 15) != (more[TX] & 15)) i++; out[TX] = i;",
        "gather": "out[TX] = more[in[TX] & 63];",
        "scatter": "if (TX == 0) for (u32 i = 0; i < 8; i++) out[in[i] & 63] = i;",
        "indirect": "u32 i = more[in[TX] & 31] & 31; out[TX] = in[i + 32];",
        "histogram": "ATOMIC_ADD(out + (in[TX] & 15), 1u);",
        "binary": "u32 l = 0, h = 64; while (l < h) { u32 m = (l + h) / 2; if (in[m] < more[TX]) "
        "l = m "
        "+ 1; else h = m; } out[TX] = l;",
        "unrolled": "u32 s = 0; for (u32 i = 0; i < 16; i++) s += in[TX + i] * i; out[TX] = s;",
        "down": "for (int i = 7; i >= 0; i--) out[TX * 8 + i] = in[TX * 8 + 7 - i];",
        "stencil": "u32 i = TX + 1; out[i] = in[i - 1] + 2 * in[i] + in[i + 1];",
        "break": "for (u32 i = 0; i < 8; i++) { if (in[i] & 4) break; out[i * 32 + TX] = i; }",
        "continue": "for (u32 i = 0; i < 8; i++) { if ((i ^ TX) & 1) continue; out[i * 32 + TX] = "
        "i; }",
        "accumulate": "for (u32 i = 0; i < n / 4; i++) out[TX] += in[TX + i];",
        "two_phase": "out[TX] = in[TX]; more[TX] = out[TX] + 1; out[TX] = more[TX] * 2;",
        "pointer": "const u32 *p = in + TX, *e = in + 128; u32 s = 0; for (; p < e; p += 32) s += "
        "*p; "
        "out[TX] = s;",
        "collatz": "u32 a = in[TX] & 31, c = 0; while (a > 1 && c < 200) { a = a & 1 ? 3 * a + 1 "
        ": a / 2; "
        "c++; } out[TX] = c;",
        "stride_argument": "out[TX * (n / 4)] = in[TX];",
        "wrap32": "u32 i = TX - 5u; if (i < 27u) out[i] = in[i + 5];",
        "negative": "i32 i = (i32)TX - 32; out[i + 32] = in[31 + i + 1]; (out + 64)[i] = 3;",
    }
    blocks = ("grid_stride", "tail")
    for name, body in uses.items():
        yield _case(f"loop_{name}", body, grid=(2 if name in blocks else 1, 1, 1))
    yield _case(
        "loop_2d",
        "u32 x = BX * BDX + TX, y = BY * BDY + TY; if (x < 12 && y < 7) "
        "out[y * 12 + x] = in[x * 7 + y];",
        block=(8, 4, 1),
        grid=(2, 2, 1),
    )
    yield _case(
        "loop_matrix",
        "u32 s = 0; for (u32 k = 0; k < 8; k++) s += in[TY * 8 + k] * "
        "more[k * 8 + TX]; out[TY * 8 + TX] = s;",
        block=(8, 8, 1),
    )


def together() -> Iterator[Source]:
    """Threads that work together: shared memory, barriers, atomics, shuffles."""
    tile = "SHARED u32 s[64];"
    uses = {
        "reverse": f"{tile} s[TX] = in[TX]; SYNC(); out[TX] = s[31 - TX];",
        "reduce": f"{tile} s[TX] = in[TX]; SYNC(); for (u32 d = 16; d; d >>= 1) {{ if (TX < d) "
        f"s[TX] "
        "+= s[TX + d]; SYNC(); } if (TX == 0) out[0] = s[0];",
        "scan": f"{tile} s[TX] = in[TX]; SYNC(); for (u32 d = 1; d < 32; d *= 2) {{ u32 v = TX >= "
        f"d ? "
        "s[TX - d] : 0; SYNC(); s[TX] += v; SYNC(); } out[TX] = s[TX];",
        "index": f"{tile} s[TX] = (TX * 7) & 31; SYNC(); out[s[TX]] = in[TX];",
        "index_data": f"{tile} s[TX] = in[TX] & 31; SYNC(); out[TX] = more[s[31 - TX]];",
        "flag": f"{tile} if (TX == 0) s[0] = in[0] & 1; SYNC(); if (s[0]) out[TX] = 1; else "
        f"more[TX] "
        "= 2;",
        "count": f"{tile} if (TX == 0) s[0] = n; SYNC(); if (TX < s[0]) out[TX] = in[TX];",
        "histogram": f"{tile} s[TX] = 0; SYNC(); ATOMIC_ADD(s + (in[TX] & 15), 1u); SYNC(); if "
        f"(TX < "
        "16) out[TX] = s[TX];",
        "bytes": "SHARED u8 b[128]; for (u32 i = 0; i < 4; i++) b[4 * TX + i] = ((u8 *)in)[TX + "
        "32 * "
        "i]; SYNC(); out[TX] = ((u32 *)b)[31 - TX];",
        "struct": "SHARED struct pair p[32]; p[TX].x = in[TX]; p[TX].y = TX; SYNC(); struct pair "
        "v = "
        "p[TX ^ 1]; out[v.y] = v.x;",
        "atomic_sum": "ATOMIC_ADD(out, in[TX]); ATOMIC_XOR(out + 1, in[TX]);",
        "atomic_bounds": "ATOMIC_MAX(out, in[TX]); ATOMIC_MIN(out + 1, in[TX]); ATOMIC_OR(out + "
        "2, 1u "
        "<< TX); ATOMIC_AND(out + 3, ~(1u << (TX & 7)));",
        "atomic_long": "ATOMIC_ADD64((u64 *)out + (TX & 3), (u64)in[TX] << 20);",
        "atomic_some": "if (in[TX] & 1) ATOMIC_ADD(out + TX / 8, 1u);",
        "shuffle_sum": "u32 v = in[TX]; v += SHFL_XOR(v, 16); v += SHFL_XOR(v, 8); v += "
        "SHFL_XOR(v, "
        "4); v += SHFL_XOR(v, 2); v += SHFL_XOR(v, 1); out[TX] = v;",
        "shuffle_first": "u32 v = SHFL(in[TX], 0); out[TX] = v + TX;",
        "shuffle_index": "u32 i = SHFL((TX * 5) & 31, TX ^ 3); out[i] = in[TX];",
        "shuffle_data": "u32 i = SHFL(in[TX] & 31, 7); out[TX] = more[i + TX];",
        "ballot": "u32 v = in[TX] & 1; for (u32 d = 1; d < 32; d *= 2) v += SHFL_XOR(v, d); if "
        "(TX < "
        "v) out[TX] = v;",
        "stage_quad": "SHARED struct quad q[32]; q[TX] = ((struct quad *)in)[TX]; SYNC(); "
        "((struct quad *)out)[TX] = q[31 - TX];",
    }
    for name, body in uses.items():
        yield _case(f"together_{name}", body)
        if "atomic" not in name and name != "stage_quad":
            two = body.replace("in[", "(in + 32 * BX)[").replace("out[", "(out + 32 * BX)[")
            two = two.replace("more[", "(more + 32 * BX)[").replace("(u8 *)(in", "(u8 *)((in")
            if "(u8 *)" not in two and "m(more" not in two:
                yield _case(f"together_{name}_blocks", two, grid=(2, 1, 1))
    yield _case(
        "together_transpose",
        "SHARED u32 s[8][9]; s[TY][TX] = in[TY * 8 + TX]; SYNC(); out[TY * 8 + TX] = s[TX][TY];",
        block=(8, 8, 1),
    )
    yield _case(
        "together_matrix",
        "SHARED u32 a[8][8], b[8][8]; u32 s = 0; for (u32 k = 0; k < 2; "
        "k++) { a[TY][TX] = in[TY * 16 + k * 8 + TX]; b[TY][TX] = more[(k * 8 + TY) * 8 + "
        "TX]; SYNC(); for (u32 i = 0; i < 8; i++) s += a[TY][i] * b[i][TX]; SYNC(); } "
        "out[TY * 8 + TX] = s;",
        block=(8, 8, 1),
    )


def sources() -> list[Source]:
    """Everything of this module."""
    return [*integers(), *floats(), *vectors(), *loops(), *together()]
