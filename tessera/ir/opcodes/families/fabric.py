"""Fabric instructions: memory of other GPUs by endpoint (PTX ISA 9.4, section 9.7.11).

`[remote]` names an endpoint, an offset in it and, for counted writes, the offset of a counter; its
space is "fabric". No pointer of this GPU reaches it.
"""

TABLE = """
# 9.7.11.5
fabric.try_get     | [d]~=write/1/n [remote]=read/fabric/n n [mbar]~ policy        | copy
fabric.try_put     | [remote]=write/fabric/n [a]~=read/1/n n [mbar]~ bytemask~@cp_mask policy | copy
fabric.try_red     | [remote]=reduce/fabric/n [a]~=read/1/n n [mbar]~ policy       | copy
fabric.try_pullred | [d]~=write/1/n [remote]=read/fabric/n n [mbar] mask policy  | copy       | warp
fabric.try_atom    | [remote]=update/fabric/? [d]~=update/1/? [a]~=read/1/? [mbar] policy | copy
fabric.submit      |                                                             | async_copy | side
fabric.wait        | i                                                           | async_copy | side
fabric.wait -sync_restrict::read |                                               | async_copy | side

# 9.7.11.5.7 to 9.7.11.5.9: tensor map, endpoint, offset and coordinates
fabric.try_get.async.tensor | [d]~=write/1/box [remote]=read/fabric/box [mbar]~ policy     | copy
fabric.try_put.async.tensor | [remote]=update/fabric/box [a]~=read/1/box n [mbar] policy  | copy
fabric.try_red.async.tensor | [remote]=reduce/fabric/box [a]~=read/1/box n? [mbar] policy | copy
"""

FORMS = """
fabric.try_get | async shared::cta mbarrier::complete_tx::bytes mbarrier::report::fabric
            [L2::cache_hint] {[relaxed] sys} b128 [acc::f32] | . . u32
fabric.try_put | async [multimem] shared::cta mbarrier::complete_tx::16B mbarrier::report::fabric
            [L2::cache_hint] [cp_mask/counted::bytes] {[relaxed] sys} b128 [acc::f32] | . . u32
fabric.try_red | async [multimem] shared::cta mbarrier::complete_tx::16B
            mbarrier::report::fabric [counted::bytes] [L2::cache_hint] {[relaxed] sys}
            add u32/u64/f32/f64/f16/bf16 [acc::f32] | . . u32
fabric.try_red | async [multimem] shared::cta mbarrier::complete_tx::16B
            mbarrier::report::fabric [counted::bytes] [L2::cache_hint] {[relaxed] sys}
            min/max u32/u64/s32/s64/f16/bf16 [acc::f32] | . . u32
fabric.try_red | async [multimem] shared::cta mbarrier::complete_tx::16B
            mbarrier::report::fabric [counted::bytes] [L2::cache_hint] {[relaxed] sys}
            and/or/xor b32/b64 [acc::f32] | . . u32
fabric.try_pullred | async multimem shared::cta mbarrier::complete_tx::bytes
            mbarrier::report::fabric [relaxed] sys
            add u32/u64/f32 sync | . . u32 . i
fabric.try_pullred | async multimem shared::cta mbarrier::complete_tx::bytes
            mbarrier::report::fabric [relaxed] sys
            add [acc::f32] f16/bf16 sync | . . u32 . i
fabric.try_pullred | async multimem shared::cta mbarrier::complete_tx::bytes
            mbarrier::report::fabric [relaxed] sys
            min/max u32/u64/s32/s64/f16/bf16 sync | . . u32 . i
fabric.try_pullred | async multimem shared::cta mbarrier::complete_tx::bytes
            mbarrier::report::fabric [relaxed] sys
            and/or/xor b32/b64 sync | . . u32 . i
fabric.try_atom | async shared::cta mbarrier::complete_tx::16B mbarrier::report::fabric
            [L2::cache_hint] relaxed sys
            and/or/xor b32/b64 [acc::f32] |
fabric.try_atom | async shared::cta mbarrier::complete_tx::16B mbarrier::report::fabric
            [L2::cache_hint] relaxed sys
            exch/cas b32/b64/b128 [acc::f32] |
fabric.try_atom | async shared::cta mbarrier::complete_tx::16B mbarrier::report::fabric
            [L2::cache_hint] relaxed sys
            add u32/u64/f32/f64/f16x2/bf16x2 [acc::f32] |
fabric.try_atom | async shared::cta mbarrier::complete_tx::16B mbarrier::report::fabric
            [L2::cache_hint] relaxed sys
            min/max u32/u64/s32/s64/f16x2/bf16x2 [acc::f32] |
fabric.try_get.async.tensor | @tensor shared::cta [tile] mbarrier::complete_tx::bytes
            mbarrier::report::fabric [L2::cache_hint] @moved [@resized] {[relaxed] sys} b128
            [acc::f32] |
fabric.try_put.async.tensor | [multimem] @tensor shared::cta [tile] mbarrier::complete_tx::16B
            mbarrier::report::fabric [counted::bytes] [L2::cache_hint] @moved [@resized] {[relaxed]
            sys} b128 [acc::f32] | . . u32
fabric.try_red.async.tensor | [multimem] @tensor shared::cta [tile] mbarrier::complete_tx::16B
            mbarrier::report::fabric [counted::bytes] [L2::cache_hint] @moved [@resized] {[relaxed]
            sys} add/min/max/and/or/xor [acc::f32] | . . u32
fabric.submit | [op_restrict::fetching/commit_group] [acc::f32] |
fabric.wait | sync_restrict::read/sync_restrict::reads [acc::f32] | i
"""
