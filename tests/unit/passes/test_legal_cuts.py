"""Which steps can be cut: a kernel that breaks each condition, and one beside it that does not."""

from __future__ import annotations

import pytest

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.division import Cut
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.division.legal_cuts import LegalCuts, StepCuts, for_every_arch, why_not
from tessera.wording import Wording

KERNEL = """.version 8.6
.target {arch}
.address_size 64
{globals}
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n) {directive}
{{
    .reg .pred %p<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    {body}
    ret;
}}
"""
STORE = "st.global.u32 [%rd5], %r5;"
CUT = Cut(step=0, axis="x", edges=(0, 5, 12))


def program(
    body: str = STORE,
    *,
    launch: str = "",
    arch: str = "sm_90",
    directive: str = "",
    variables: str = "",
    records: str = "",
) -> Program:
    text = KERNEL.format(arch=arch, body=body, directive=directive, globals=variables)
    return parse_trace(
        "//! tessera.trace 2\n"
        "//! buffer x bytes=4096 role=input\n//! buffer y bytes=4096 role=output\n"
        f"//! module m\n{text}"
        f"//! launch m.k grid=12,1,1 block=32,1,1 args=[x, y, u32:7]{launch}\n{records}",
        "t.ptx",
    )


def cuts(of: Program) -> StepCuts:
    return AnalysisManager(of).get(LegalCuts).steps[0]


BROKEN = [
    ("mov.u32 %r6, 7; st.global.u32 [%rd2], %r6;", "may both write bytes 0:4 of `y`"),
    ("st.global.u32 [%rd4+128], %r5;", "of `x`, which another part may write"),
    ("red.global.add.u32 [%rd5], 1;", "`red.global.add.u32` makes its CTAs share bytes of `y`"),
    ("atom.global.add.u32 %r6, [%rd2], 1;", "makes its CTAs share bytes of `y`"),
    (
        "mul.wide.u32 %rd6, %r5, 4; add.u64 %rd6, %rd2, %rd6; st.global.u32 [%rd6], %r4;",
        "values from memory decide where it writes in `y`",
    ),
    ("st.global.u32 [%rd6], %r5;", "it is pinned"),
    (
        "WAIT: ld.volatile.global.u32 %r6, [%rd1]; setp.eq.u32 %p1, %r6, 0; @%p1 bra WAIT;" + STORE,
        "its threads wait for others",
    ),
    *(
        (f"mov.u32 %r6, {name}; st.global.u32 [%rd5], %r6;", f"the kernel reads `{name}`")
        for name in ("%smid", "%nsmid", "%clock", "%globaltimer_lo", "%warpid")
    ),
    ("mov.u64 %rd6, %gridid; st.global.u32 [%rd5], %r5;", "it reads `%gridid`"),
    ("mov.u32 %r6, %envreg3; st.global.u32 [%rd5], %r6;", "it reads `%envreg3`"),
]


@pytest.mark.parametrize(("body", "reason"), BROKEN)
def test_what_cannot_be_cut(body: str, reason: str) -> None:
    broken = program(body)
    found = cuts(broken)
    assert not found.axes
    assert reason in str(found.refused[0].reason)
    assert reason in str(why_not(AnalysisManager(broken), CUT))


def test_a_plain_kernel_can_be_cut_anywhere() -> None:
    manager = AnalysisManager(program())
    (axis,) = manager.get(LegalCuts).steps[0].axes
    assert (axis.axis, axis.extent, axis.multiple) == ("x", 12, 1)
    for edges in ((0, 5, 12), (0, 1, 2, 11, 12), tuple(range(13))):
        assert why_not(manager, Cut(step=0, axis="x", edges=edges)) is None


def test_a_part_may_read_what_it_writes_itself() -> None:
    assert cuts(program("st.global.u32 [%rd4], %r4;")).axes


def test_neighbours_that_share_bytes_stay_together() -> None:
    shared = "shr.u32 %r6, %r1, 2; mul.wide.u32 %rd6, %r6, 4; add.u64 %rd6, %rd2, %rd6;"
    manager = AnalysisManager(program(shared + "st.global.u32 [%rd6], 7;"))
    (axis,) = manager.get(LegalCuts).steps[0].axes
    assert axis.multiple == 4
    assert why_not(manager, Cut(step=0, axis="x", edges=(0, 4, 12))) is None
    reason = str(why_not(manager, CUT))
    assert "part 1 and one before it may both write bytes 4:8 of `y`" in reason
    assert reason.endswith("the nearest legal cut is x=0:4:12")


def test_clusters_are_not_cut_apart() -> None:
    for clustered in (
        program(launch=" cluster=4,1,1"),
        program(directive=".reqnctapercluster 4, 1, 1"),
    ):
        manager = AnalysisManager(clustered)
        (axis,) = manager.get(LegalCuts).steps[0].axes
        assert axis.multiple == 4
        reason = str(why_not(manager, CUT))
        assert reason == (
            "edge 5 divides clusters of 4 along `x`; the nearest legal cut is x=0:4:12"
        )
    whole = cuts(program(launch=" cluster=12,1,1"))
    assert "are one unit" in str(whole.refused[0].reason)
    unknown = cuts(program(directive=".explicitcluster"))
    assert "the size of its clusters is not known" in str(unknown.refused[0].reason)


def test_a_cooperative_launch_is_whole() -> None:
    found = cuts(program(launch=" cooperative=1"))
    assert "its CTAs run at the same time" in str(found.refused[0].reason)


def test_a_written_module_variable_is_whole() -> None:
    body = "mov.u64 %rd6, count; add.u64 %rd6, %rd6, %rd3; st.global.u32 [%rd6], %r5;"
    found = cuts(program(body, variables=".global .align 4 .b8 count[4096];"))
    assert "writes the module variable `m.count`" in str(found.refused[0].reason)


def test_ctas_that_take_others_away_are_whole() -> None:
    body = (
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128"
        " [tile], [tile+16];" + STORE
    )
    found = cuts(program(body, arch="sm_100"))
    assert "takes CTAs of the grid away" in str(found.refused[0].reason)


RECURSIVE = """.func (.reg .u32 %up) deep(.reg .u32 %n)
{
    .reg .pred %p;
    .reg .b32 %m;
    mov.u32 %up, %n;
    setp.eq.u32 %p, %n, 0;
    @%p ret;
    sub.u32 %m, %n, 1;
    call (%up), deep, (%m);
    ret;
}"""


def test_calls_that_are_not_followed_are_whole() -> None:
    body = "call (%r5), deep, (%r5);" + STORE
    found = cuts(program(body, variables=RECURSIVE))
    assert "it calls a function that is not followed" in str(found.refused[0].reason)


def test_asserts_are_no_matter() -> None:
    body = "setp.eq.u32 %p1, %r5, 7; @%p1 bra FAIL;" + STORE + "ret; FAIL: call bad, (); trap;"
    assert cuts(program(body, variables=".extern .func bad() .noreturn;")).axes


def test_atomics_in_shared_memory_are_no_matter() -> None:
    assert cuts(program("atom.shared.add.u32 %r6, [tile], 1;" + STORE)).axes


RECORDS = "//! memset y bytes=4096 value=0 element_bytes=4\n//! memcpy y x bytes=1001\n"


def test_fills_and_copies_are_cut_by_bytes() -> None:
    manager = AnalysisManager(program(records=RECORDS))
    fill, copied = manager.get(LegalCuts).steps[1:]
    assert [(a.axis, a.extent, a.multiple) for a in (*fill.axes, *copied.axes)] == [
        ("bytes", 4096, 4),
        ("bytes", 1001, 1),
    ]
    assert why_not(manager, Cut(step=2, axis="bytes", edges=(0, 7, 1001))) is None
    wrong = why_not(manager, Cut(step=1, axis="bytes", edges=(0, 7, 4096)))
    assert str(wrong).endswith("the nearest legal cut is bytes=0:8:4096")


@pytest.mark.parametrize(
    ("cut", "reason"),
    [
        (Cut(step=3, axis="x", edges=(0, 1, 2)), "there is no step #3"),
        (Cut(step=0, axis="bytes", edges=(0, 1, 2)), "it has no axis `bytes`"),
        (Cut(step=0, axis="y", edges=(0, 1)), "edges of `y` go up from 0 to 1"),
        (Cut(step=0, axis="x", edges=(0, 12)), "edges of `x` go up"),
        (Cut(step=0, axis="x", edges=(0, 13)), "edges of `x` go up"),
        (Cut(step=0, axis="x", edges=(0, 6, 6, 12)), "edges of `x` go up"),
        (Cut(step=0, axis="x", edges=(1, 6, 12)), "edges of `x` go up"),
    ],
)
def test_edges_that_do_not_fit(cut: Cut, reason: str) -> None:
    assert reason in str(why_not(AnalysisManager(program(records=RECORDS)), cut))


# --- code for several architectures ----------------------------------------------------------

TILES = """.version 8.0
.target {arch}
.address_size 64
.visible .entry fill(.param .u64 y, .param .u32 n)
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    .reg .pred %p;
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.{axis};
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p, %r2, %r1;
    @%p ret;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r2;
    ret;
}}
"""


def tiled(grid: str, block: int, axis: str = "x") -> AnalysisManager:
    """12 CTAs of 32 threads on sm_80, of which the last is half empty; other tiles on sm_89."""
    first, second = TILES.format(arch="sm_80", axis="x"), TILES.format(arch="sm_89", axis=axis)
    text = (
        "//! tessera.trace 2\n//! buffer y bytes=4096 role=output\n"
        f"//! module m\n{first}//! module m arch=sm_89\n{second}"
        "//! launch m.fill grid=12,1,1 block=32,1,1 args=[y, u32:370]\n"
        f"//! variant sm_89 grid={grid} block={block},1,1\n"
    )
    return AnalysisManager(parse_trace(text, "t.ptx"))


@pytest.mark.parametrize(
    ("grid", "block", "axis", "multiple", "edges"),
    [
        ("24,1,1", 16, "x", 1, (0, 14, 24)),
        ("6,1,1", 64, "x", 2, (0, 4, 6)),
        ("1,6,1", 64, "y", 2, (0, 4, 6)),
        ("4,1,1", 96, "x", 3, None),
    ],
)
def test_a_cut_falls_on_the_same_bytes_of_every_grid(
    grid: str, block: int, axis: str, multiple: int, edges: tuple[int, ...] | None
) -> None:
    manager = tiled(grid, block, axis)
    (found,) = manager.get(LegalCuts).steps[0].axes
    assert (found.axis, found.extent, found.multiple) == ("x", 12, multiple)
    cut = Cut(step=0, axis="x", edges=(0, 7 if multiple == 1 else 8, 12))
    made = for_every_arch(manager, cut)
    if edges is None:
        assert isinstance(made, Wording)
        return
    assert made == (cut, Cut(step=0, axis=axis, edges=edges, arch="sm_89"))
    assert why_not(manager, *made) is None
    assert "the code for `sm_89` has another grid, and no cut" in str(why_not(manager, cut))
    off = Cut(step=0, axis=axis, edges=(0, edges[1] - 1, edges[2]), arch="sm_89")
    assert "may both write" in str(why_not(manager, cut, off))


def test_tiles_without_a_common_boundary_cannot_be_cut() -> None:
    (refused,) = tiled("2,1,1", 200).get(LegalCuts).steps[0].refused
    assert "the code for `sm_89` has another grid" in str(refused.reason)
