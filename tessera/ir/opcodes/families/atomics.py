"""Atomics, reductions, votes and other exchanges in a warp (PTX ISA 9.0, section 9.7.13)."""

TABLE = """
# 9.7.13.5 to 9.7.13.7
atom +cas       | d [a]=atomic b c policy  | atomic
atom -cas       | d [a]=atomic b c? policy | atomic  # ptxas lets one more pass
red             | [a]=reduce b policy      | atomic
red.async       | [a]=reduce b [mbar]?     | atomic | async

# 9.7.13.8 to 9.7.13.14; d of match.all and elect is a pair d|p
vote -ballot      | p q      | vote    | warp
vote +ballot      | d q      | vote    | warp
vote.sync -ballot | p q mask | vote    | warp
vote.sync +ballot | d q mask | vote    | warp
match             | d a mask | vote    | warp
activemask        | d        | vote    | state
redux.sync        | d a mask | integer | warp
elect.sync        | d mask   | vote    | warp
griddepcontrol    |          | barrier | grid
"""

FORMS = """
atom        | [@atomic] [@scope] [@shared/global] and/or/xor [L2::cache_hint] b32/b64 | !D A T |
            sm_11 L2::cache_hint:7.4/sm_80 acq_rel:6.0/sm_70 acquire:6.0/sm_70 b64:3.1/sm_32
            cluster:7.8/sm_90 cta:5.0/sm_60 gpu:5.0/sm_60 relaxed:6.0/sm_70 release:6.0/sm_70
            shared:sm_12 shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60
atom        | [@atomic] [@scope] [@shared/global] exch [L2::cache_hint] b32/b64/b128 | !D A T |
            sm_11 L2::cache_hint:7.4/sm_80 acq_rel:6.0/sm_70 acquire:6.0/sm_70 b128:8.3/sm_90
            b64:sm_12 cluster:7.8/sm_90 cta:5.0/sm_60 gpu:5.0/sm_60 relaxed:6.0/sm_70
            release:6.0/sm_70 shared:sm_12 shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12
            sys:5.0/sm_60
atom        | [@atomic] [@scope] [@shared/global] cas [L2::cache_hint] b16/b32/b64/b128 | !D A T T
            | sm_11 acq_rel:6.0/sm_70 acquire:6.0/sm_70 b128:8.3/sm_90 b16:6.3/sm_70 b64:sm_12
            cluster:7.8/sm_90 cta:5.0/sm_60 gpu:5.0/sm_60 relaxed:6.0/sm_70 release:6.0/sm_70
            shared:sm_12 shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60
atom        | [@atomic] [@scope] [@shared/global] add [noftz] [L2::cache_hint]
            u32/s32/u64/f32/f64 | !D A
            T | sm_11 L2::cache_hint:7.4/sm_80 acq_rel:6.0/sm_70 acquire:6.0/sm_70
            cluster:7.8/sm_90 cta:5.0/sm_60 f32:2.0/sm_20 f64:5.0/sm_60 gpu:5.0/sm_60
            relaxed:6.0/sm_70 release:6.0/sm_70 shared:sm_12 shared::cluster:7.8/sm_90
            shared::cta:7.8/sm_12 sys:5.0/sm_60 u64:sm_12
atom        | [@atomic] [@scope] [@shared/global] add noftz [L2::cache_hint] f16/f16x2/bf16/bf16x2
            | !D A T | 6.2 sm_60 L2::cache_hint:7.4/sm_80 acq_rel:sm_70 acquire:sm_70
            bf16:7.8/sm_90 bf16x2:7.8/sm_90 cluster:7.8/sm_90 f16:6.3/sm_70 relaxed:sm_70
            release:sm_70 shared::cluster:7.8/sm_90 shared::cta:7.8
atom        | [@atomic] [@scope] [@shared/global] min/max [L2::cache_hint] u32/s32/u64/s64 | !D A
            T | L2::cache_hint:7.4/sm_80 acq_rel:6.0/sm_70 cluster:7.8/sm_90 cta:5.0/sm_60
            global:sm_11 max:sm_11 relaxed:6.0/sm_70 release:6.0/sm_70 s32:sm_11 s64:3.1/sm_32
            shared:sm_12 shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60
            u64:3.1/sm_32
atom        | [@atomic] [@scope] [@shared/global] inc/dec [L2::cache_hint] u32 | !D A T | sm_11
            L2::cache_hint:7.4/sm_80 acq_rel:6.0/sm_70 acquire:6.0/sm_70 cluster:7.8/sm_90
            cta:5.0/sm_60 gpu:5.0/sm_60 relaxed:6.0/sm_70 release:6.0/sm_70 shared:sm_12
            shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60
atom        | [@atomic] [@scope] [global] add/min/max [noftz] [L2::cache_hint] v2/v4/v8
            f16/f16x2/bf16/bf16x2/f32 | | 8.1 sm_90
red         | [relaxed/release] [@scope] [@shared/global] and/or/xor [L2::cache_hint] b32/b64 | A
            T | sm_11 L2::cache_hint:7.4/sm_80 b64:3.1/sm_32 cluster:7.8/sm_90 cta:5.0/sm_60
            gpu:5.0/sm_60 relaxed:6.0/sm_70 release:6.0/sm_70 shared:sm_12
            shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60
red         | [relaxed/release] [@scope] [@shared/global] add [noftz] [L2::cache_hint]
            u32/s32/u64/f32/f64
            | A T | sm_11 L2::cache_hint:7.4/sm_80 cluster:7.8/sm_90 cta:5.0/sm_60 f32:2.0/sm_20
            f64:5.0/sm_60 gpu:5.0/sm_60 relaxed:6.0/sm_70 release:6.0/sm_70 shared:sm_12
            shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60 u64:sm_12
red         | [relaxed/release] [@scope] [@shared/global] add noftz [L2::cache_hint]
            f16/f16x2/bf16/bf16x2 | A T | 6.2 sm_60 L2::cache_hint:7.4/sm_80 bf16:7.8/sm_90
            bf16x2:7.8/sm_90 cluster:7.8/sm_90 f16:6.3/sm_70 relaxed:sm_70 release:sm_70
            shared::cluster:7.8/sm_90 shared::cta:7.8
red         | [relaxed/release] [@scope] [@shared/global] min/max [L2::cache_hint] u32/s32/u64/s64
            | A T | sm_11 L2::cache_hint:7.4/sm_80 cluster:7.8/sm_90 cta:5.0/sm_60 gpu:5.0/sm_60
            relaxed:6.0/sm_70 release:6.0/sm_70 s64:3.1/sm_32 shared:sm_12
            shared::cluster:7.8/sm_90 shared::cta:7.8/sm_12 sys:5.0/sm_60 u64:3.1/sm_32
red         | [relaxed/release] [@scope] [@shared/global] inc/dec [L2::cache_hint] u32 | A T |
            sm_11 L2::cache_hint:7.4/sm_80 cluster:7.8/sm_90 cta:5.0/sm_60 gpu:5.0/sm_60
            relaxed:6.0/sm_70 release:6.0/sm_70 shared:sm_12 shared::cluster:7.8/sm_90
            shared::cta:7.8/sm_12 sys:5.0/sm_60
red         | [relaxed/release] [@scope] [global] add/min/max [noftz] [L2::cache_hint] v2/v4/v8
            f16/f16x2/bf16/bf16x2/f32 | | 8.1 sm_90
red.async   | * | | 8.1 sm_90
vote        | [sync] all/any/uni pred | !pred pred u32 | 1.2 sm_12 ballot:2.0/sm_20 sync:6.0/sm_30
vote        | [sync] ballot b32 | !b32 pred u32 | 1.2 sm_12 ballot:2.0/sm_20 sync:6.0/sm_30
match       | any/all sync b32/b64 | !b32 T u32 | 6.0 sm_70
activemask  | b32 | !b32 | 6.2 sm_30
redux       | sync add/min/max u32/s32 | !D T u32 | 7.0 sm_80
redux       | sync and/or/xor b32 | !D T u32 | 7.0 sm_80
redux       | sync min/max [abs] [NaN] f32 | !D T u32 | 8.6 sm_100a
elect       | sync | !b32 u32 | 8.0 sm_90
griddepcontrol | launch_dependents/wait | | 7.8 sm_90
"""
