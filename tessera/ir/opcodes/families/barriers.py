"""Barriers, fences and mbarrier objects (PTX ISA 9.0, section 9.7.13)."""

TABLE = """
# 9.7.13.1 barriers of a CTA; `bar` is `barrier.aligned`
bar.sync, bar.cta.sync             | bar threads?     | barrier | cta aligned
bar.arrive, bar.cta.arrive         | bar threads      | barrier | cta aligned
bar.red, bar.cta.red +pred         | p bar threads? q | barrier | cta aligned
bar.red, bar.cta.red -pred         | d bar threads? q | barrier | cta aligned
barrier.sync, barrier.cta.sync     | bar threads?     | barrier | cta
barrier.arrive, barrier.cta.arrive | bar threads      | barrier | cta
barrier.red, barrier.cta.red +pred | p bar threads? q | barrier | cta
barrier.red, barrier.cta.red -pred | d bar threads? q | barrier | cta

# 9.7.13.2 and 9.7.13.3 warps and clusters
bar.warp.sync                                | mask | barrier | warp
barrier.cluster.arrive, barrier.cluster.wait |      | barrier | cluster

# 9.7.13.4 fences
membar                                  |                      | fence | side
fence +async::generic +acq_rel          | [a]=read/generic/n n | fence | side
fence                                   |                      | fence | side
fence.proxy.tensormap::generic +acquire | [a]=read/generic/n n | fence | side
fence.proxy.tensormap::generic +release |                      | fence | side
fence.proxy.tensormap::generic +acq_rel | [a]=read/generic/n n | fence | side
fence.proxy.tensormap::generic +acq_rel |                      | fence | side

# 9.7.13.15 mbarrier; a wait may also give a report, p|q and r
mbarrier.init                              | [mbar] count                           | barrier
mbarrier.inval                             | [mbar]                                 | barrier
mbarrier.arrive, mbarrier.arrive_drop +expect_tx/noComplete | d [mbar] count~ ctas  | barrier
mbarrier.arrive, mbarrier.arrive_drop -expect_tx -noComplete | d [mbar] count~? ctas | barrier
mbarrier.expect_tx, mbarrier.complete_tx   | [mbar] count ctas                      | barrier
mbarrier.test_wait -phase_type::primary | p [mbar]=mbarrier_test/1/8 phase          | barrier | side
mbarrier.test_wait +phase_type::primary | p r? [mbar]=mbarrier_test/1/8 phase       | barrier | side
mbarrier.try_wait -phase_type::primary | p [mbar]=mbarrier_test/1/8 phase count?   | barrier | side
mbarrier.try_wait +phase_type::primary | p r? [mbar]=mbarrier_test/1/8 phase count? | barrier | side
mbarrier.check_layout                      | p [mbar]=mbarrier_test/1/8             | barrier
mbarrier.pending_count                     | d s                                    | barrier

# 9.7.13.17 cluster launch control
clusterlaunchcontrol.try_cancel                | [d]=write/1/16 [mbar] | barrier | async
clusterlaunchcontrol.query_cancel +is_canceled | p s                   | barrier
clusterlaunchcontrol.query_cancel -is_canceled | d s                   | barrier
"""

FORMS = """
bar bar.cta | sync |
bar bar.cta | arrive |
bar bar.cta | red popc u32 | !u32
bar bar.cta | red and/or pred | !pred
bar         | warp sync | u32
barrier barrier.cta | sync [aligned] |
barrier barrier.cta | arrive [aligned] |
barrier barrier.cta | red popc [aligned] u32 | !u32
barrier barrier.cta | red and/or [aligned] pred | !pred
barrier     | cluster arrive [release/relaxed] [aligned] |
barrier     | cluster wait [acquire] [aligned] |
membar      | cta/gl/sys |  | sys:2.0/sm_20
membar      | proxy alias/async |  | 7.5 sm_60 async:8.0/sm_90
fence       | [async] [sc/acq_rel/acquire/release] @scope |
fence       | [async] mbarrier_init release cluster
            [sync_restrict::shared::cta/sync_restrict::shared::cluster] |
fence       | [async] acquire sync_restrict::shared::cluster cluster |
fence       | [async] release sync_restrict::shared::cta cluster |
fence       | alias release sync_restrict::read sys |
fence       | proxy fabric::fabric/fabric::generic/generic::fabric alias acquire/release sys
            [@restricted] [@spaces] |
fence       | proxy fabric::fabric/fabric::generic/generic::fabric alias acq_rel @scope
            [@restricted] [@spaces] |
fence       | proxy alias {acquire/release sys} [@restricted] |
fence       | proxy async [global/shared::cta/shared::cluster] [@restricted] |
fence       | proxy async::generic acquire sync_restrict::shared::cluster cluster [@spaces] |
fence       | proxy async::generic release sync_restrict::shared::cta cluster [@spaces] |
fence       | proxy async::generic release sync_restrict::shared::cluster::read cta/cluster
            [@spaces] |
fence       | proxy async::generic/tensormap::generic acq_rel @scope | . i
fence       | proxy async::generic/tensormap::generic acq_rel @scope @restricted [@spaces] | - -
fence       | proxy async::generic/tensormap::generic acq_rel @scope @spaces | - -
fence       | proxy tensormap::generic acquire @scope | . i
fence       | proxy tensormap::generic release @scope [@restricted] [@spaces] |
mbarrier.init | [layout::v0/layout::v1] [shared/shared::cta] b64 | . u32
mbarrier.inval | [shared/shared::cta] b64 |
mbarrier.arrive mbarrier.arrive_drop | noComplete {release cta} [shared/shared::cta] b64
            | !_b64 . u32/+*u32
mbarrier.arrive mbarrier.arrive_drop | [expect_tx] {release/relaxed cta/cluster}
            [shared/shared::cta] b64 | !_b64 . u32/+*u32
mbarrier.arrive mbarrier.arrive_drop | [expect_tx] {release/relaxed cta/cluster} shared::cluster
            b64 | sink . u32/+*u32
mbarrier.arrive mbarrier.arrive_drop | [expect_tx] {release/relaxed cta/cluster} [shared::cluster]
            multicast::cluster::32b b64 | sink/!b64 . u32/+*u32 u32
mbarrier.expect_tx mbarrier.complete_tx | {relaxed cta/cluster} [@shared] b64 | . u32
mbarrier.expect_tx mbarrier.complete_tx | {relaxed cta/cluster} [shared::cluster]
            multicast::cluster::32b b64 | . u32 u32
mbarrier.test_wait mbarrier.try_wait | [parity] {acquire/relaxed cta/cluster} [shared/shared::cta]
            b64 | !pred
mbarrier.test_wait mbarrier.try_wait | [parity] phase_type::primary {acquire/relaxed cta/cluster}
            [shared/shared::cta] b64 | !pred&
mbarrier.test_wait mbarrier.try_wait | parity phase_type::conditional {acquire/relaxed
            cta/cluster} [shared/shared::cta] b64 | !pred
mbarrier.check_layout | layout::v0/layout::v1 [shared/shared::cta] b64 [cta/cluster] |
mbarrier.pending_count | b64 [layout::v0] | !u32 b64
clusterlaunchcontrol.try_cancel | async [shared::cta] mbarrier::complete_tx::bytes
            [multicast::cluster::all] b128 |
clusterlaunchcontrol.query_cancel | is_canceled pred b128 | !pred b128
clusterlaunchcontrol.query_cancel | get_first_ctaid v4 b32 b128 | !4*b32
clusterlaunchcontrol.query_cancel | get_first_ctaid::x/get_first_ctaid::y/get_first_ctaid::z b32
            b128 | !b32
"""
