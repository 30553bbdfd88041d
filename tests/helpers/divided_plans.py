"""Plans with parts and twins for traces of small kernels, placed by the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.plan.plan import Plan
from tessera.ir.program import program as ir
from tessera.passes.division.divide import divide
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.plan_files import plan_of, replica_of
from tests.helpers.served import graph_of

_HEAD = """.version 8.5
.target {arch}
.address_size 64
"""
_KERNEL = """.visible .entry {name}(.param .u64 to, .param .u64 from) {directive}
{{
    .reg .b32 %at, %cta, %wide, %value, %number;
    .reg .b64 %to, %from, %byte, %long;
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    mov.u32 %cta, %ctaid.x;
    mov.u32 %wide, %ntid.x;
    mov.u32 %at, %tid.x;
    mad.lo.u32 %at, %cta, %wide, %at;
    mul.wide.u32 %byte, %at, 4;
    add.u64 %to, %to, %byte;
    add.u64 %from, %from, %byte;
    ld.global.u32 %value, [%from];
{code}
    st.global.u32 [%to], %value;
    ret;
}}
"""
# What the kernels do with `%value`, that of their own word, before they store it.
CODE = {
    "plain": "    add.u32 %value, %value, 1;",
    "before": "    ld.global.u32 %number, [%from+-4]; add.u32 %value, %value, %number;",
    "same": "    ld.param.u64 %to, [to]; mov.u32 %value, 1;",
    "count": "    atom.global.add.u32 %number, [%from], 1;",
    "smid": "    mov.u32 %number, %smid; add.u32 %value, %value, %number;",
    "grid": "    mov.u64 %long, %gridid; cvt.u32.u64 %value, %long;",
    "timed": "    mov.u32 %value, %clock;",
    "pairs": "",
}
WORDS = 256


def module_text(arch: str) -> str:
    """All kernels; those of `pairs` go together in clusters of two."""
    clusters = {"pairs": ".reqnctapercluster 2, 1, 1"} if arch == "sm_90" else {}
    kernels = (
        _KERNEL.format(name=name, code=code, directive=clusters.get(name, ""))
        for name, code in CODE.items()
    )
    return _HEAD.format(arch=arch) + "".join(kernels)


@cache
def program_of(*steps: str, arches: Sequence[str] = ("sm_80",)) -> ir.Program:
    """A trace of these records over buffers `x` (input), `h` (temp), `y` (output), `s` (state)."""
    roles = {"x": "input", "h": "temp", "y": "output", "s": "state"}
    lines = ["//! tessera.trace 1"]
    lines += [f"//! buffer {name} bytes={4 * WORDS} role={role}" for name, role in roles.items()]
    for arch in arches:
        lines += [f"//! module m arch={arch}", module_text(arch)]
    text = "\n".join([*lines, *(f"//! {step}" for step in steps)]) + "\n"
    return read_program(Source("trace.ptx", text))[0]


def launch(kernel: str, to: str, source: str, ctas: int = 8) -> str:
    """The record of a launch over all words."""
    size = f"grid={ctas},1,1 block={WORDS // ctas},1,1"
    return f"launch m.{kernel} {size} args=[{to}, {source}]"


def divided_plan(
    program: ir.Program, division: Division, placed: Sequence[str], arch: str = "sm_80"
) -> tuple[Plan, ir.Program, KernelGraph]:
    """A plan, the divided program and its graph; `placed` has a device for each of its steps."""
    divided = divide(program, division)
    graph = graph_of(divided)
    count = sum(1 for _ in program.work())
    devices = sorted(set(placed))
    plan = plan_of([program], [(devices * count)[:count]], slots=1, lanes=1, arch=arch)
    return planned_again(plan, divided, graph, division, placed, arch), divided, graph


def planned_again(
    plan: Plan,
    divided: ir.Program,
    graph: KernelGraph,
    division: Division,
    placed: Sequence[str],
    arch: str = "sm_80",
) -> Plan:
    """The plan with the launch programs of a divided program."""
    lowered = lower_replica([divided], [graph], [placed], slots=1, lanes=1)
    card, device = plan.cards[0], plan.devices[0]
    cards = tuple(
        replace(card, name=name, used_bytes=lowered.memory_bytes(name)) for name in lowered.devices
    )
    return replace(
        plan,
        cards=cards,
        devices=tuple(replace(device, name=c.name, card=c.name) for c in cards),
        traces=(replace(plan.traces[0], division=division),),
        replicas=(replica_of([divided], [graph], [placed], lowered, arch),),
    )


def divided_steps() -> ir.Program:
    """Parts of launches, of a library call and of bytes, and twins."""
    product = "op aten::mm.out reads=[h:f32[16,16], s:f32[16,16]] writes=[h:f32[16,16]]"
    steps = [
        launch("plain", "h", "x"),
        "memset s+512 bytes=512 value=0x0102 element_bytes=2",
        product.replace("writes=[h", "writes=[y"),
        launch("plain", "s", "y"),
        launch("plain", "h", "s"),
        launch("plain", "y", "h"),
    ]
    cuts = (
        Cut(step=0, axis="x", edges=(0, 3, 8)),
        Cut(step=1, axis="bytes", edges=(0, 98, 512)),
        Cut(step=2, axis="columns", edges=(0, 4, 16)),
        Cut(step=5, axis="x", edges=(0, 2, 3, 8)),
    )
    return divide(program_of(*steps), Division(cuts, (Twin(3, 2), Twin(4, 3))))
