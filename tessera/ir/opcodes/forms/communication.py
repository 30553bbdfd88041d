"""Forms of atomics, barriers, fences and exchanges in a warp (PTX ISA 9.0, section 9.7.13)."""

TABLE = """
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
shfl        | [sync] up/down/bfly/idx b32 | !D T b32 b32 b32 | 3.0 sm_30 sync:6.0
griddepcontrol | launch_dependents/wait | | 7.8 sm_90
bar         | [cta] sync | u32 u32 | cta:7.8/sm_20
bar         | [cta] arrive | u32 u32 | 2.0 sm_20 cta:7.8
bar         | [cta] red popc u32 | !u32 | 2.0 sm_20 cta:7.8
bar         | [cta] red and/or pred | !pred | 2.0 sm_20 cta:7.8
bar         | warp sync | u32 | 6.0 sm_30
barrier     | [cta] sync [aligned] | u32 u32 | 6.0 sm_30 cta:7.8
barrier     | [cta] arrive [aligned] | u32 u32 | 6.0 sm_30 cta:7.8
barrier     | [cta] red popc [aligned] u32 | !u32 | 6.0 sm_30 cta:7.8
barrier     | [cta] red and/or [aligned] pred | !pred | 6.0 sm_30 cta:7.8
barrier     | cluster arrive [release/relaxed] [aligned] | | 7.8 sm_90 relaxed:8.0 release:8.0
barrier     | cluster wait [acquire] [aligned] | | 7.8 sm_90 acquire:8.0
membar      | cta/gl/sys | | sys:2.0/sm_20
membar      | proxy alias/async/async::generic | | 7.5 sm_60 async:8.0/sm_90
fence       | [sc/acq_rel/acquire/release] @scope | | 6.0 sm_70 acquire:8.6/sm_90
            cluster:7.8/sm_90 release:8.6/sm_90
fence       | mbarrier_init release cluster | | 8.0 sm_90
fence       | acquire/release sync_restrict::shared::cta/sync_restrict::shared::cluster cluster |
            | 8.6 sm_90
fence       | proxy alias/async/async::generic [@proxied] | | 7.5 sm_60 async:8.0/sm_90
            async::generic:8.6/sm_90 tensormap::generic:8.3/sm_90
fence       | proxy tensormap::generic acquire/release @scope | | 7.5 sm_60 async:8.0/sm_90
            async::generic:8.6/sm_90 tensormap::generic:8.3/sm_90
fence       | proxy async::generic acquire/release * | | 7.5 sm_60 async:8.0/sm_90
            async::generic:8.6/sm_90 tensormap::generic:8.3/sm_90
fence       | op_restrict::fetching * |
fence       | acquire/release sync_restrict::reads/sync_restrict::shared::cluster::read * | | 8.6
            sm_90
mbarrier.init mbarrier.inval | [layout::v0/layout::v1] [shared/shared::cta] b64 | | 7.0 sm_80
mbarrier    | * | | 7.0 sm_80
clusterlaunchcontrol | * | | 8.6 sm_100
"""
