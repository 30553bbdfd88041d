"""The modifiers of PTX ISA 1.0 to 9.5, to distinguish a wrong operand count from an unknown form.

A modifier that is not listed comes from a later ISA and may change the operands. An instruction
that has such a modifier and fits no form is therefore an opcode that the table lacks, not a user
error. A gap in this list has one consequence: an error is reported as an unknown opcode. Modifiers
that appear in the forms of `families` are known; the others are listed here.

Source: PTX ISA 9.4, chapter 9.
"""

from __future__ import annotations

import re
from functools import cache

from tessera.ir.opcodes import families
from tessera.ir.opcodes.form_notation import written_lines, written_modifiers
from tessera.ir.ptx.types import SPACES, VECTOR_COUNTS, is_type

_LIST = """
    approx full ftz noftz sat satfinite relu oob rn rz rm rp rna rs rni rzi rmi rpi pzo NaN xorsign
    abs hi lo wide cc shiftamt clamp wrap l r to uni up down bfly idx sync aligned
    eq ne lt le gt ge ls hs equ neu ltu leu gtu geu num nan and or xor finite infinite number
    notanumber normal subnormal f4e b4e rc8 ecl ecr rc16 pack mode
    ca cg cs cv lu wb wt nc volatile relaxed acquire release acq_rel sc weak mmio unified
    cta cluster gpu sys gl L1 L2 L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last
    L1::no_allocate L1::32B L2::evict_normal L2::evict_first L2::evict_last L2::evict_unchanged
    L2::cache_hint L2::64B L2::128B L2::256B valid_addr fractional range cvt level
    add min max inc dec exch cas popc ballot all any mask
    async bulk bulk_group tensor reduce prefetch commit_group wait_group wait_all read noinc
    mbarrier mbarrier::complete_tx::bytes mbarrier::complete_tx::16B mbarrier::arrive::one
    mbarrier::report::fabric mbarrier::report::disabled
    multicast::cluster multicast::cluster::16b multicast::cluster::32b multicast::cluster::all
    cp_mask ignore_oob tile tile::gather4 tile::scatter4 im2col im2col::w im2col::w::128
    im2col_no_offs im2col_no_offs::w override::global_address override::global_dim
    override::global_dim_stride
    global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout
    swizzle_mode fill_mode swizzle_atomicity replace cp_fenceproxy tensormap tensormap::generic
    1d 2d 3d a1d a2d cube acube 2dms a2dms base grad width height depth channel_data_type
    channel_order normalized_coords force_unnormalized_coords filter_mode addr_mode_0 addr_mode_1
    addr_mode_2 array_size num_mipmap_levels num_samples memory_layout b p trap zero g a
    arrive wait warp red proxy alias generic async::generic mbarrier_init
    op_restrict::fetching sync_restrict::read sync_restrict::reads sync_restrict::shared::cta
    sync_restrict::shared::cluster sync_restrict::shared::cluster::read
    sync_restrict::shared::read::mma::a sync_restrict::proxy::async
    mark init inval expect_tx complete_tx arrive_drop test_wait try_wait pending_count check_layout
    noComplete parity layout::v0 layout::v1 phase_type::primary phase_type::conditional
    try_cancel query_cancel is_canceled get_first_ctaid get_first_ctaid::x get_first_ctaid::y
    get_first_ctaid::z launch_dependents
    load store mma c d row col trans sp sp::ordered_metadata block_scale
    scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 mma_async fence
    alloc dealloc relinquish_alloc_permit ld st cp shift commit ws spcompress exclusive
    wait::ld wait::st fence::before_thread_sync fence::after_thread_sync ashift
    cta_group::1 cta_group::2 pack::16b unpack::16b warpx4 warpx2::02_13 warpx2::01_23
    decompress::lut::b scaled::n1::ue8m0 scaled::n2::ue8m0 acc::f16 acc::f32
    ld_reduce try_get try_put try_red try_pullred try_atom submit multimem counted::bytes fabric
    po shr7 shr15 b2 b1024 b8x16 b6x16_p32 b4x16_p64
"""
KNOWN_MODIFIERS = frozenset(_LIST.split()) | frozenset(SPACES) | frozenset(VECTOR_COUNTS)
"""The modifiers that can be listed; types and shapes such as `m16n8k16` are known as well."""

_PATTERNS = re.compile(
    r"""x\d+ | [1-5]d | m\d+n\d+(k\d+)? | \d+x\d+b(x2)? | kind::\w+ | collector::\w+(::\w+)?
    | mbarrier::report::validity::\w+::\w+ | sp::\d:\d | const\[\d+\] | (tex|sampler|surf)ref""",
    re.VERBOSE,
)


def is_known_modifier(modifier: str) -> bool:
    """Whether PTX ISA 9.4 or an earlier one has the modifier (given without its dot)."""
    if modifier in KNOWN_MODIFIERS or is_type(modifier):
        return True
    return _PATTERNS.fullmatch(modifier) is not None or modifier in _modifiers_of_forms()


@cache
def _modifiers_of_forms() -> frozenset[str]:
    lines = (line for table in families.FORMS for _, line in written_lines(table))
    return frozenset(modifier for line in lines for modifier in written_modifiers(line))
