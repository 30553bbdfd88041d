"""Kernels that go over several pointers: from where, which one, how often, by which threads.

In: nothing. Out: named kernels with their launches, one for each way to combine these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tests.helpers.pointer_cases import HEADER

SIZE = 1024
THREADS = 32
SOURCES = ("select", "struct", "local", "shared", "table")
INDICES = ("round", "thread", "cta", "data")
TRIPS = ("constant", "argument", "data")
ACTIVE = ("all", "part")
SWAPS = ("swap", "rotate", "distance", "branch")
BUFFERS = "\n".join(
    [f"//! buffer {name} bytes={SIZE} role=state" for name in "abc"]
    + [
        "//! buffer table bytes=24 role=weight",
        "//! buffer flag bytes=256 role=input",
        "//! pointers table @{0:a,8:b,16:c}",
    ]
)


@dataclass(frozen=True, slots=True)
class Loop:
    """One kernel, as the text of a trace."""

    name: str
    text: str


def pointer_loops() -> Iterator[Loop]:
    """Every way to take one of several pointers, and every way to exchange some."""
    for source, index, trip, active in product(SOURCES, INDICES, TRIPS, ACTIVE):
        body = _taken(source, index)
        yield Loop(f"{source}_{index}_{trip}_{active}", _trace(body, trip, active, source))
    for swap, trip, active in product(SWAPS, TRIPS, ACTIVE):
        yield Loop(f"{swap}_{trip}_{active}", _trace(_swapped(swap), trip, active, "args"))


def _taken(source: str, index: str) -> str:
    which = {
        "round": "  mov.u32 %k, %i;\n",
        "thread": "  rem.u32 %k, %t, 3;\n",
        "cta": "  mov.u32 %k0, %ctaid.x;\n  rem.u32 %k, %k0, 3;\n",
        "data": "  ld.global.u32 %k0, [%pf+8];\n  rem.u32 %k, %k0, 3;\n",
    }[index]
    offset = "  mul.wide.u32 %y, %k, 8;\n"
    take = {
        "select": "  setp.eq.u32 %c1, %k, 1;\n  setp.eq.u32 %c2, %k, 2;\n"
        "  selp.b64 %y, %p1, %p0, %c1;\n  selp.b64 %q, %p2, %y, %c2;\n",
        "struct": f"{offset}  mov.b64 %z, s;\n  add.s64 %v, %z, %y;\n  ld.param.u64 %q, [%v];\n",
        "local": f"{offset}  mov.b64 %z, depot;\n  add.s64 %v, %z, %y;\n  ld.local.u64 %q, [%v];\n",
        "shared": f"{offset}  mov.b64 %z, jobs;\n  add.s64 %v, %z, %y;\n"
        "  ld.shared.u64 %q, [%v];\n",
        "table": f"{offset}  add.s64 %v, %pt, %y;\n  ld.global.u64 %q, [%v];\n",
    }[source]
    return which + take + _touch("%q")


def _touch(register: str) -> str:
    return f"  add.s64 %e, {register}, %o;\n  st.global.u32 [%e], %t;\n"


def _swapped(swap: str) -> str:
    match swap:
        case "swap":
            return _touch("%p0") + "  mov.b64 %q, %p0;\n  mov.b64 %p0, %p1;\n  mov.b64 %p1, %q;\n"
        case "rotate":
            return _touch("%p0") + (
                "  mov.b64 %q, %p0;\n  mov.b64 %p0, %p1;\n  mov.b64 %p1, %p2;\n  mov.b64 %p2, %q;\n"
            )
        case "distance":
            # p = (a + b) - p: the one and the other in turn.
            return _touch("%p0") + "  sub.s64 %p0, %sum, %p0;\n"
    return (
        "  and.b32 %k, %i, 1;\n  setp.eq.u32 %c1, %k, 0;\n  @%c1 bra EVEN;\n"
        f"{_touch('%p1')}  bra JOIN;\nEVEN:\n{_touch('%p0')}JOIN:\n"
    )


def _trace(body: str, trip: str, active: str, source: str) -> str:
    count = {
        "constant": "  mov.u32 %n, 3;\n",
        "argument": "  ld.param.u32 %n, [n];\n",
        "data": "  ld.global.u32 %n, [%pf];\n  min.u32 %n, %n, 3;\n",
    }[trip]
    guard = "  setp.ge.u32 %c0, %t, 28;\n  @%c0 bra END;\n" if active == "part" else ""
    stores = {
        "local": "".join(f"  st.local.u64 [depot+{8 * i}], %p{i};\n" for i in range(3)),
        "shared": "".join(f"  st.shared.u64 [jobs+{8 * i}], %p{i};\n" for i in range(3))
        + "  bar.sync 0;\n",
    }.get(source, "")
    kernel = f"""
.visible .entry k(.param .u64 a0, .param .u64 a1, .param .u64 a2, .param .u64 at, .param .u64 af,
                  .param .u32 n, .param .align 8 .b8 s[24])
{{
  .reg .b64 %p<3>; .reg .b64 %pt; .reg .b64 %pf; .reg .b64 %q; .reg .b64 %z; .reg .b64 %o;
  .reg .b64 %e; .reg .b64 %sum; .reg .b32 %t; .reg .b32 %i; .reg .b32 %n; .reg .b32 %k;
  .reg .b64 %y; .reg .b64 %v; .reg .b32 %k0;
  .reg .pred %c<4>;
  .local .align 8 .b8 depot[24];
  .shared .align 8 .b8 jobs[24];
  ld.param.u64 %p0, [a0];
  ld.param.u64 %p1, [a1];
  ld.param.u64 %p2, [a2];
  ld.param.u64 %pt, [at];
  ld.param.u64 %pf, [af];
  add.s64 %sum, %p0, %p1;
  mov.u32 %t, %tid.x;
  mul.wide.u32 %o, %t, 4;
{stores}{count}{guard}  mov.u32 %i, 0;
LOOP:
  setp.ge.u32 %c3, %i, %n;
  @%c3 bra END;
{body}  add.u32 %i, %i, 1;
  bra LOOP;
END:
  ret;
}}
"""
    launch = (
        f"//! launch m.k grid=2,1,1 block={THREADS},1,1 "
        f"args=[a, b, c, table, flag, u32:3, b8[24]:{'00' * 24}@{{0:a,8:b,16:c}}]"
    )
    return "\n".join(["//! tessera.trace 1", BUFFERS, "//! module m", HEADER + kernel, launch])
