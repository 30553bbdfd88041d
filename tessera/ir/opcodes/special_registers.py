"""The special registers: type, components, and dependences of their value.

Source: PTX ISA 9.0, chapter 10.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass


class Varies(enum.Enum):
    """What the value of a special register depends on: the smallest scope that determines it."""

    CONSTANT = "constant"
    LAUNCH = "launch"
    CLUSTER = "cluster"
    CTA = "CTA"
    WARP = "warp"
    LANE = "lane"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """A special register; `components` is "" for a scalar, "xyz" or "xyzw" for a vector.

    `is_volatile`: two reads by one thread may differ. A register that varies by MACHINE depends on
    where and when a thread runs, so a result that uses it may differ from run to run.
    """

    name: str
    type: str
    varies: Varies
    components: str = ""
    is_volatile: bool = False


# name, type, varies, components; a trailing `*` marks volatile registers
_TABLE = """
# 10.1 to 10.9 threads and CTAs; the fourth component is always zero (one for ntid, nctaid)
%tid                              u32 LANE    xyzw
%ntid                             u32 LAUNCH  xyzw
%laneid                           u32 LANE
%warpid                           u32 MACHINE *
%nwarpid                          u32 MACHINE
%ctaid                            u32 CTA     xyzw
%nctaid                           u32 LAUNCH  xyzw
%smid                             u32 MACHINE *
%nsmid                            u32 MACHINE
%gridid                           u64 LAUNCH
# 10.10 to 10.16 clusters
%is_explicit_cluster              pred LAUNCH
%clusterid                        u32 CLUSTER xyzw
%nclusterid                       u32 LAUNCH  xyzw
%cluster_ctaid                    u32 CTA     xyzw
%cluster_nctaid                   u32 LAUNCH  xyzw
%cluster_ctarank                  u32 CTA
%cluster_nctarank                 u32 LAUNCH
# 10.17 to 10.21
%lanemask_eq                      u32 LANE
%lanemask_le                      u32 LANE
%lanemask_lt                      u32 LANE
%lanemask_ge                      u32 LANE
%lanemask_gt                      u32 LANE
# 10.22 to 10.27
%clock                            u32 MACHINE *
%clock_hi                         u32 MACHINE *
%clock64                          u64 MACHINE *
%globaltimer                      u64 MACHINE *
%globaltimer_lo                   u32 MACHINE *
%globaltimer_hi                   u32 MACHINE *
# 10.28 to 10.32
%reserved_smem_offset_begin       b32 LAUNCH
%reserved_smem_offset_end         b32 LAUNCH
%reserved_smem_offset_cap         b32 LAUNCH
%total_smem_size                  u32 LAUNCH
%aggr_smem_size                   u32 LAUNCH
%dynamic_smem_size                u32 LAUNCH
%current_graph_exec               u64 LAUNCH
# 10.34 and 10.35 of 9.4
%perctamemoryoffset               u64 CTA
%perctamemorysize                 u32 LAUNCH
# of 9.5, as ptxas 13.5 takes them
%locality_domain_id               u32 MACHINE
%locality_domain_supplemental_sm  u32 MACHINE
# 6.4 predefined constant
WARP_SZ                           u32 CONSTANT
"""


def _read(text: str) -> dict[str, SpecialRegister]:
    registers = {}
    for line in text.splitlines():
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        name, type_name, varies, *rest = fields
        components = next((field for field in rest if field != "*"), "")
        registers[name] = SpecialRegister(name, type_name, Varies[varies], components, "*" in rest)
    return registers


def _numbered() -> Iterator[SpecialRegister]:
    for number in range(32):
        yield SpecialRegister(f"%envreg{number}", "b32", Varies.LAUNCH)
    for number in range(8):
        yield SpecialRegister(f"%pm{number}", "u32", Varies.MACHINE, "", True)
        yield SpecialRegister(f"%pm{number}_64", "u64", Varies.MACHINE, "", True)
    for number in range(2):
        yield SpecialRegister(f"%reserved_smem_offset_{number}", "b32", Varies.LAUNCH)


SPECIAL_REGISTERS: dict[str, SpecialRegister] = {
    **_read(_TABLE),
    **{register.name: register for register in _numbered()},
}
"""Every special register by name, `WARP_SZ` included."""


def special_register(name: str) -> SpecialRegister | None:
    """The special register with a name (`%tid`, without component), or None."""
    return SPECIAL_REGISTERS.get(name)
