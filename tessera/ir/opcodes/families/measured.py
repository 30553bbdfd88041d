"""What ptxas refuses beyond the forms: measured with ptxas 13.4.92, 13.0.88, 12.8.93.

Written by `python -m benchmarks.reading.verdicts learn`; `opcodes.rules` has the notation.
Longer than 400 lines because it is one table.
"""

RULES = """
abs | f16x2 | 6.5 sm_53+
abs cvt fma max min neg | bf16x2 | 7.0 sm_80+
abs cvt fma max min neg wmma.load | bf16 | 7.0 sm_80+
abs | f16 | 6.5 sm_53+
activemask | | 6.2 sm_30+
add fma mul sub | f32x2 | 8.6 sm_100+
add fma mul set setp sub | f16 | 4.2 sm_53+
add atom ex2 mul red set setp sub tanh | bf16 | 7.8 sm_90+
add fma mul set setp sub | f16x2 | 4.2 sm_53+
add max min sub | u8x4 | 9.2 sm_120f+ sm_107f+
add max min sub | s8x4 | 9.2 sm_120f+ sm_107f+
add max min | u16x2 | 8.0 sm_90+
add max min | s16x2 | 8.0 sm_90+
add atom ex2 mul red setp sub tanh | bf16x2 | 7.8 sm_90+
add fma mad mul sub | rp | 1.4 sm_13+
add fma mad mul sub | rm | 1.4 sm_13+
add fma sub | f16 f32 | 8.6 sm_100+
add mad mul sub | f32 rp | 2.0 sm_20+
add mad mul sub | f32 rm | 2.0 sm_20+
add fma sub | bf16 f32 | 8.6 sm_100+
alloca stackrestore stacksave | | 7.3 sm_52+
applypriority createpolicy.cvt createpolicy.fractional createpolicy.range discard | | 7.4 sm_80+
applypriority discard fence.proxy.tensormap::generic | | 1:128
applypriority.async.bulk applypriority.async.bulk.tensor fabric.try_get.async.tensor
    fabric.try_put.async.tensor fabric.try_red.async.tensor | | 9.4 sm_107f+
atom brkpt red | | 1.4 sm_11+
atom ld red st | L2::cache_hint | 7.4 sm_80+
atom red | sys | 5.0 sm_60+
atom red | cta | 5.0 sm_60+
atom red | gpu | 5.0 sm_60+
atom fence ld red st | cluster | 7.8 sm_90+
atom | acq_rel | 5.1 sm_70+
atom cvta cvta.to isspacep ld red st | shared::cluster | 7.8 sm_90+
atom ld red st | relaxed | 5.1 sm_70+
atom ld | acquire | 5.1 sm_70+
atom | b128 | 8.3 sm_90+
atom red | shared::cta | 7.8 sm_12+
atom red st | release | 5.1 sm_70+
atom red | noftz | 6.2 sm_60+
atom red | f64 | 5.0 sm_60+
atom | b16 | 6.3 sm_70+
atom fma red | f32 | 2.0 sm_20+
atom red | s64 | 3.1 sm_32+
atom red | shared | 1.4 sm_12+
atom | v4 | 8.1 sm_90+
atom | b64 | 1.4 sm_12+
atom | u64 | 1.4 sm_12+
atom red | f16 | 6.3 sm_70+
atom red | -global | 1.4 sm_12+
atom | 2=f32 | 2.0 sm_20+
atom | 2=#f | 2.0 sm_20+
atom red | max u64 | 3.1 sm_32+
atom red | min u64 | 3.1 sm_32+
atom red | f32 noftz | 9.4 sm_90+
atom | and b64 | 3.1 sm_32+
atom | b64 xor | 3.1 sm_32+
atom | b64 or | 3.1 sm_32+
atom | b64 shared | 2.0 sm_20+
atom | shared u64 | 2.0 sm_20+
atom | shared::cta u64 | 7.8 sm_20+
atom | b128 sys | 8.4
atom | u64 -global | 2.0 sm_20+
atom | b64 -global | 2.0 sm_20+
atom | and -global | 2.0 sm_20+
atom | max -global | 2.0 sm_20+ | 7.8 sm_12 sm_13
atom | dec -global | 2.0 sm_20+
atom | 3=b32 exch | 2.0 sm_20+ | 7.8 sm_12 sm_13
atom | 2!#f/#i/b128/b16/b32/b64/f32/f64/{f32*4} |
atom cp.async.bulk | 1![%]/[=global]/[=shared]/[b32]/[b64] |
atom | 3!#i/b128/b16/b32/b64/f32 |
bar.arrive bar.red bfe bfi bfind brev clz copysign cvta cvta.to isspacep ldu popc prefetch prefetchu
    prmt testp vabsdiff vadd vmad vmax vmin vset vshl vshr vsub | | 2.0 sm_20+
bar.arrive bar.cta.arrive bar.cta.sync bar.sync barrier.arrive barrier.cta.arrive barrier.cta.sync
    barrier.sync | | 0:0..15
bar.cta.arrive bar.cta.red bar.cta.sync | | 7.8 sm_20+
bar.cta.red bar.red barrier.cta.red barrier.red | | 1:0..15
bar.warp.sync barrier.arrive barrier.red barrier.sync fns shfl.sync vote.sync | | 6.0 sm_72+ sm_30
    sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 | 5.1 sm_70
barrier.cluster.arrive barrier.cluster.wait getctarank griddepcontrol mapa mbarrier.try_wait
    stmatrix | | 7.8 sm_90+
barrier.cluster.arrive mbarrier.arrive | release | 8.0
barrier.cluster.arrive | relaxed | 8.0
barrier.cluster.wait mbarrier.try_wait | acquire | 8.0
barrier.cta.arrive barrier.cta.red barrier.cta.sync | | 7.8 sm_30+
bfe | | 2:0..255
bfe bfi | | 3:0..255
bfi | | 4:0..255
bmsk szext | | 7.6 sm_70+
clmad | | 9.3 sm_80+
clusterlaunchcontrol.query_cancel clusterlaunchcontrol.try_cancel st.bulk | | 8.6 sm_100+
clusterlaunchcontrol.try_cancel | multicast::cluster::all | 8.6 sm_100f+ sm_120f+ sm_110f+
cp.async cp.async.commit_group cp.async.mbarrier.arrive cp.async.wait_all cp.async.wait_group
    mbarrier.arrive mbarrier.arrive_drop mbarrier.init mbarrier.inval mbarrier.pending_count
    mbarrier.test_wait redux.sync | | 7.0 sm_80+
cp.async | L2::cache_hint | 7.4
cp.async | L2::64B | 7.4
cp.async | L2::128B | 7.4
cp.async | L1::32B | 7.4
cp.async | L2::256B | 7.4
cp.async | 3=pred | 7.5
cp.async | | 2:4,8,16
cp.async | cg | 2:16
cp.async | | 3:0..16
cp.async tcgen05.ld | 2!#i |
cp.async | 3!#i/b32/b64/pred |
cp.async.bulk cp.async.bulk.commit_group cp.async.bulk.prefetch cp.async.bulk.prefetch.tensor
    cp.async.bulk.tensor cp.async.bulk.wait_group cp.reduce.async.bulk cp.reduce.async.bulk.tensor
    elect.sync mbarrier.complete_tx mbarrier.expect_tx | | 8.0 sm_90+
cp.async.bulk cp.async.bulk.tensor mbarrier.arrive mbarrier.arrive_drop mbarrier.complete_tx
    mbarrier.expect_tx tcgen05.commit | multicast::cluster::32b | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::80000000 | 9.4
    sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_element::ff | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::8000 | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::80 | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::8 | 9.4 sm_107f+
cp.async.bulk | ignore_oob | 9.2
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::disabled | 9.4 sm_107f+
cp.async.bulk | multicast::cluster::16b | 9.4
cp.async.bulk | relaxed | 9.3
cp.async.bulk | cp_mask | 8.6 sm_100+
cp.async.bulk | mbarrier::complete_tx::bytes -shared::cluster | 8.6
cp.async.bulk cp.reduce.async.bulk | | 2:0..1048560/16
cp.async.bulk | 3!#i/[%]/[=shared]/[b32]/[b64]/b16/b32/b64/{b16*4} |
cp.async.bulk.prefetch cp.async.bulk.prefetch.tensor | L2::evict_last | 9.4 sm_107f+
cp.async.bulk.prefetch.tensor cp.async.bulk.tensor cp.reduce.async.bulk.tensor |
    override::global_address | 9.4 sm_107f+
cp.async.bulk.prefetch.tensor | tile::gather4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.prefetch.tensor | shared::cta |
cp.async.bulk.tensor | cta_group::2 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | cta_group::1 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | tile::scatter4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | tile::gather4 | 8.6 sm_100+
cp.async.bulk.tensor | mbarrier::complete_tx::bytes shared::cta | 8.6
cp.async.bulk.tensor | shared::cluster tile::gather4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | | 3:0..
cp.async.bulk.tensor | multicast::cluster | 3:0..65535
cp.async.bulk.tensor cp.reduce.async.bulk.tensor | L2::evict_last |
cp.async.bulk.tensor cp.reduce.async.bulk.tensor | global*2 |
cp.async.bulk.tensor | cta_group::1*2 |
cp.async.bulk.tensor | cta_group::2*2 |
cp.async.bulk.tensor | multicast::cluster::16b |
cp.async.bulk.tensor | or |
cp.async.bulk.tensor | bf16 |
cp.async.bulk.tensor | ignore_oob |
cp.async.bulk.tensor | inc |
cp.async.bulk.tensor | override::global_address*2 |
cp.async.bulk.tensor | L1::32B |
cp.async.bulk.tensor | L2::128B |
cp.async.bulk.tensor | async |
cp.async.bulk.tensor fabric.try_red | cp_mask |
cp.async.bulk.tensor | gpu |
cp.async.bulk.tensor | mbarrier::complete_tx::bytes*2 |
cp.async.bulk.tensor | multicast::cluster::32b*2 |
cp.async.bulk.tensor | relaxed |
cp.async.bulk.tensor | tensor |
cp.async.bulk.tensor | tile*2 |
cp.async.bulk.tensor | u32 |
cp.async.bulk.tensor | xor |
cp.async.bulk.tensor | 2!#f/=shared/[%]/[=shared]/[b32]/[b64]/b128/b16/b32/b64/f32/f64/pred |
cp.async.bulk.tensor | 3!#i/b16/b32/b64/{b16*1}/{b16*2} |
cp.async.bulk.tensor |
    1!#f/[*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}]/[=shared]/[b32]/[b64]/b128/b16 |
cp.async.bulk.tensor | cta_group::1 cta_group::2 |
cp.async.bulk.tensor | mbarrier::complete_tx::bytes tile::scatter4 |
cp.async.bulk.tensor | 1d tile::gather4 |
cp.async.bulk.tensor | multicast::cluster override::global_address |
cp.async.bulk.tensor | 3d tile::gather4 |
cp.async.bulk.tensor | bulk_group mbarrier::complete_tx::bytes |
cp.async.bulk.tensor | 1![*{b32*1}]/[b32]/[b64]/b128 1d |
cp.async.bulk.tensor | 1![*{b32*4}]/[b32]/b16 4d |
cp.async.bulk.tensor | 1![*{b32*3}]/[=shared]/[b32] 3d |
cp.async.bulk.tensor | 1!#f/[*{b32*5}]/[b32]/[b64] 5d |
cp.async.bulk.tensor | 0!#f/[%]/[=shared]/[b32]/[b64]/b128/b16/b32/b64/f32/pred
    mbarrier::complete_tx::bytes |
cp.async.bulk.tensor | 1![*{b32*2}]/[*{b32*5}]/[=shared]/[b32]/[b64]/b16 2d |
cp.async.bulk.tensor | 1![*{b32*5}] tile::gather4 |
cp.async.bulk.tensor | cta_group::2 -mbarrier::complete_tx::bytes |
cp.async.bulk.tensor | tile::gather4 -2d |
cp.async.mbarrier.arrive cvta cvta.to isspacep ld ldmatrix mbarrier.arrive mbarrier.init
    mbarrier.inval mbarrier.test_wait st | shared::cta | 7.8
cp.reduce.async.bulk.tensor | shared::cta*2 |
cp.reduce.async.bulk.tensor | shared |
cp.reduce.async.bulk.tensor | im2col |
cp.reduce.async.bulk.tensor | noinc |
cp.reduce.async.bulk.tensor | cta_group::1 |
cp.reduce.async.bulk.tensor tcgen05.mma.ws tcgen05.mma.ws.sp | cta_group::2 |
cp.reduce.async.bulk.tensor | u64 |
cp.reduce.async.bulk.tensor fabric.try_red | -shared::cta |
cp.reduce.async.bulk.tensor fabric.try_put.async.tensor |
    0![*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}] |
cp.reduce.async.bulk.tensor | 0![*{b32*1}] 1d |
createpolicy.range | fabric | 9.4 sm_100+
createpolicy.range | | 2:0..256
cvt | satfinite | 8.1 sm_100+ sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_88 sm_89 | 7.8 sm_90 sm_90a
cvt max min | f16x2 | 7.0 sm_80+
cvt wmma.load | tf32 | 7.0 sm_80+
cvt | s2f6x2 | 9.1 sm_100a sm_103a sm_107a sm_110a sm_120a sm_121a
cvt fma | relu | 7.0 sm_80+
cvt | ue8m0x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | bf16*2 | 7.8 sm_90+
cvt | rs | 8.7 sm_100a sm_103a sm_107a
cvt | e5m2x2 | 7.8 sm_90+ | 8.1 sm_89
cvt | e3m2x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | e2m3x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | e4m3x2 | 7.8 sm_90+ | 8.1 sm_89
cvt | bf16 s32 | 7.8 sm_90+
cvt | bf16 f64 | 7.8 sm_90+
cvt | bf16 f16 | 7.8 sm_90+
cvt | bf16 u32 | 7.8 sm_90+
cvt | bf16 s64 | 7.8 sm_90+
cvt | bf16 s16 | 7.8 sm_90+
cvt | rz tf32 | 7.8 sm_90+
cvt | rn tf32 | 7.8 sm_90+
cvt | bf16x2 satfinite | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | ftz s64 | 1.5
cvt | satfinite tf32 | 8.1
cvt | rz satfinite | 8.1
cvt | f16 satfinite | 8.1
cvt | bf16 satfinite | 8.1
cvt | 1=b16 bf16 | 7.1
cvt | 1!#f/#i/%/b128/b16/b32/b64/b8/f32/f64/{f32*4} |
cvt | e2m3x2 rz |
cvt | e3m2x2 sat |
cvt | #!2 rm |
cvt | ftz -f32 |
cvt.pack | | 6.5 sm_72+
cvt.pack | u2 | 6.5 sm_75+
cvt.pack | u4 | 6.5 sm_75+
cvt.pack | s4 | 6.5 sm_75+
cvt.pack | s2 | 6.5 sm_75+
cvta cvta.to isspacep | param::entry | 8.3 sm_70+
cvta cvta.to isspacep | param | 7.7 sm_70+
cvta cvta.to isspacep | const | 3.1
div rcp sqrt | rp | 2.0 sm_20+
div rcp sqrt | rm | 2.0 sm_20+
div rcp sqrt | rz | 2.0 sm_20+
div mad rcp sqrt | f32 rn | 2.0 sm_20+
dp2a.hi dp2a.lo dp4a | | 5.0 sm_61+
ex2 | f16x2 | 7.0 sm_75+
ex2 | f16 | 7.0 sm_75+
fabric.submit fabric.try_get fabric.try_pullred fabric.try_put fabric.try_red fabric.wait
    multimem.red.async multimem.st.async | | 9.3 sm_100+
fabric.try_atom | | 9.4 sm_100+
fabric.try_atom | -relaxed |
fabric.try_atom fabric.try_red | 0![*b64] |
fabric.try_atom | 4!#i/b64 |
fabric.try_get.async.tensor | b32 |
fabric.try_get.async.tensor | -mbarrier::complete_tx::bytes |
fabric.try_pullred | acc::f32 | 9.3 sm_100f+ sm_120f+ sm_110f+
fabric.try_pullred | b128 |
fabric.try_pullred | bf16x2 |
fabric.try_put | override::global_address |
fabric.try_put.async.tensor | relaxed*2 |
fabric.try_put.async.tensor multimem.st | s32 |
fabric.try_put.async.tensor fabric.try_red wmma.load | 2!#i/b32 |
fabric.try_put.async.tensor | 1d override::global_dim_stride |
fabric.try_put.async.tensor | 0![*{b32*4}] 4d |
fabric.try_put.async.tensor | 0![*{b32*3}] 3d |
fabric.try_put.async.tensor | 0![*{b32*5}] 5d |
fabric.try_red | override::global_dim_stride |
fabric.try_red | cas |
fabric.try_red | submit |
fence match | | 5.1 sm_70+
fence | release | 8.0 sm_90+
fence | acquire | 8.6 sm_90+
fence | async | 8.0 sm_90+
fence | generic::fabric | 9.3 sm_100+
fence | sync_restrict::shared::cluster::read | 9.4
fence | fabric::generic | 9.3 sm_100+
fence | fabric::fabric | 9.3 sm_100+
fence | proxy | 7.5
fence | sync_restrict::shared::cta | 8.6
fence | proxy sys | 9.3 sm_100+ | 9.4 sm_90 sm_90a
fence | release sys | 8.6
fence | cta release | 8.6
fence | release -mbarrier_init | 8.6
fence.proxy.tensormap::generic tensormap.cp_fenceproxy | | 8.3 sm_90+
fma | oob | 8.1 sm_90+
fma | 2!#f/b16/b32/b64/f32/f64 |
isspacep | 1!#i/b32/b64 |
ld | L2::256B | 7.4 sm_80+
ld st | L1::no_allocate | 7.4 sm_70+
ld | nc | 3.1 sm_32+
ld | L1::32B | 7.4 sm_75+
ld st | weak | 5.1 sm_70+
ld st | L1::evict_last | 7.4 sm_70+
ld st | L1::evict_first | 7.4 sm_70+
ld | L2::64B | 7.4 sm_75+
ld st | cg | 2.0 sm_20+
ld | L2::128B | 7.4 sm_75+
ld | ca | 2.0 sm_20+
ld st | cs | 2.0 sm_20+
ld | lu | 2.0 sm_20+
ld | cv | 2.0 sm_20+
ld ldu mov st | b128 | 8.3 sm_70+
ld | L1::evict_normal | 7.4 sm_70+
ld st | L2::evict_last | 8.8 sm_100+
ld st | mmio | 8.2
ld st | s64 | 2.0 sm_20+
ld | 0=b128 | 8.3 sm_70+
ld | 0={b32*8} | 8.8 sm_100+
ld | 0={b64*4} | 2.0 sm_20+
ld st | b64 v4 | 8.8 sm_100+
ld | acquire mmio | 9.3
ld st | u8 volatile | 2.0 sm_20+
ld | s8 volatile | 2.0 sm_20+
ld | b16 volatile | 2.0 sm_20+
ld | v4 volatile | 2.0 sm_20+ | 9.1 sm_10 sm_11 sm_12 sm_13
ld | u64 volatile | 2.0 sm_20+
ld | s16 volatile | 2.0 sm_20+
ld st | s16 v4 | 2.0 sm_20+
ld | 0=b16 volatile | 2.0 sm_20+
ld st tcgen05.mma tcgen05.mma.ws | 2!#i/b64 |
ld |
    0!b128/b16/b32/b64/f32/f64/{b16*1}/{b16*2}/{b16*4}/{b16*8}/{b32*1}/{b32*2}/{b32*4}/{b32*8}/{b64*1}/{b64*2}/{b64*4}/{f32*2}/{f32*4}/{f32*8}/{f64*1}/{f64*2}
    |
ld | 1!=const/=global/=shared/[#i]/[%]/[=const]/[=global]/[=shared]/[b32]/[b64] |
ld | L1::evict_first cg |
ld | nc -global |
ldmatrix | | 6.5 sm_75+
ldmatrix | m8n16 | 8.6 sm_100f+ sm_120f+ sm_110f+
ldmatrix | m16n16 | 8.6 sm_100f+ sm_120f+ sm_110f+
ldmatrix | 0!{b32*1}/{b32*2}/{b32*4}/{f32*1}/{f32*2}/{f32*4} |
lop3 | | 4.3 sm_50+
lop3 | or | 8.2 sm_70+
lop3 | and | 8.2 sm_70+
mad | sat | 2.0 sm_20+
mad | ftz | 2.0 sm_20+
mad | f32 rz | 2.0 sm_20+
mad.hi mad.lo | cc | 3.0 sm_20+
madc.hi madc.lo | | 3.0 sm_20+
madc.lo | cc s64 | 4.3
madc.lo | 3=b64 cc | 4.3
max min | NaN | 7.0 sm_80+
max min | abs | 7.2 sm_82+
max min | relu | 8.0 sm_90+
max min | f16 | 7.0 sm_80+
max | #4 | 8.8 sm_100+
mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait | cluster | 8.0 sm_90+
mbarrier.arrive mbarrier.arrive_drop | expect_tx | 8.0 sm_90+
mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait | relaxed | 8.6 sm_90+
mbarrier.arrive | shared::cluster | 8.0 sm_90+
mbarrier.arrive | -shared | 7.1
mbarrier.arrive mbarrier.arrive_drop | 2=#i | 7.8 sm_90+
mbarrier.arrive | 0=_ | 7.1
mbarrier.arrive | 2=b32 shared::cta | 7.8 sm_90+
mbarrier.arrive | cluster | 2:1..
mbarrier.arrive | -expect_tx | 2:1..
mbarrier.arrive mbarrier.check_layout | parity |
mbarrier.arrive | arrive_drop |
mbarrier.arrive | 0!_/b64 |
mbarrier.arrive_drop | shared::cta | 8.0
mbarrier.arrive_drop | shared::cta -noComplete | 8.0 sm_90+
mbarrier.arrive_drop | shared | 2:1..
mbarrier.arrive_drop | 2!#i/b32/{b32*2} |
mbarrier.check_layout | | 9.3 sm_90+
mbarrier.init | layout::v1 | 9.3 sm_90+
mbarrier.init | layout::v0 | 9.3 sm_90+
mbarrier.init | | 1:1..1048575
mbarrier.test_wait | phase_type::primary | 9.3 sm_90+
mbarrier.test_wait | phase_type::conditional | 9.3 sm_90+
mbarrier.test_wait | cta | 8.0
mbarrier.test_wait | parity | 7.1
mbarrier.test_wait mbarrier.try_wait | phase_type::primary*2 |
mbarrier.test_wait mbarrier.try_wait multimem.ld_reduce | release |
mbarrier.test_wait mbarrier.try_wait | -b64 |
mbarrier.test_wait mbarrier.try_wait | 0!pred/pred^pred |
mbarrier.try_wait | phase_type::primary | 9.3
mbarrier.try_wait | phase_type::conditional | 9.3
mbarrier.try_wait | relaxed | 8.6
mbarrier.try_wait tcgen05.mma tcgen05.mma.sp | shared::cluster |
mbarrier.try_wait | parity*2 |
mbarrier.try_wait | 1!#i/[%]/[=shared]/[b32]/[b64]/b8 |
min | 3=f32 | 8.8 sm_100+
min | 2!#f/#i/b16/b32/b64/f32/f64 |
mma.sp mma.sp::ordered_metadata | | 5:0..3
mma.sp::ordered_metadata | m16n8k64 | 8.7 sm_120f+
mma.sp::ordered_metadata | m16n8k64 | 5:0
mov | 1=%aggr_smem_size | 8.1 sm_90+
mov | 1=%cluster_nctarank | 7.8 sm_90+
mov | 1=%cluster_ctarank | 7.8 sm_90+
mov | 1=%reserved_smem_offset_begin | 7.6 sm_80+
mov | 1=%reserved_smem_offset_1 | 7.6 sm_80+
mov | 1=%pm3_64 | 4.0 sm_50+
mov | 1=%current_graph_exec | 8.0 sm_50+
mov | 1=%pm7_64 | 4.0 sm_50+
mov | 1=%pm6_64 | 4.0 sm_50+
mov | 1=%pm5_64 | 4.0 sm_50+
mov | 1=%pm4_64 | 4.0 sm_50+
mov | 1=%pm2_64 | 4.0 sm_50+
mov | 1=%pm1_64 | 4.0 sm_50+
mov | 1=%pm0_64 | 4.0 sm_50+
mov | 1=%globaltimer_lo | 3.1 sm_30+
mov | 1=%lanemask_le | 2.0 sm_20+
mov | 1=%globaltimer_hi | 3.1 sm_30+
mov | 1=%globaltimer | 3.1 sm_30+
mov | 1=%clock_hi | 5.0 sm_20+
mov | 1=%total_smem_size | 4.1 sm_20+
mov | 1=%dynamic_smem_size | 4.1 sm_20+
mov | 1=%pm7 | 3.0 sm_20+
mov | 1=%pm6 | 3.0 sm_20+
mov | 1=%pm5 | 3.0 sm_20+
mov | 1=%pm4 | 3.0 sm_20+
mov | 1=%nwarpid | 2.0 sm_20+
mov | 1=%nsmid | 2.0 sm_20+
mov | 1=%lanemask_lt | 2.0 sm_20+
mov | 1=%lanemask_gt | 2.0 sm_20+
mov | 1=%lanemask_ge | 2.0 sm_20+
mov | 1=%lanemask_eq | 2.0 sm_20+
mov | 1=%clock64 | 2.0 sm_20+
mov |
    1!#f/#i/%/=const/=global/=shared/b128/b16/b32/b64/f32/f64/pred/{b16*2}/{b32*2}/{b64*2}/{f32*2}/{f32*4}
    |
movmatrix | | 7.8 sm_75+
multimem.cp.async.bulk multimem.cp.reduce.async.bulk | | 9.1 sm_90+
multimem.cp.async.bulk | cp_mask | 9.1 sm_100+
multimem.ld_reduce multimem.red multimem.st red.async st.async | | 8.1 sm_90+
multimem.ld_reduce | v4 | 8.2
multimem.ld_reduce | red |
multimem.ld_reduce | bulk |
multimem.ld_reduce | f32*2 |
multimem.ld_reduce | reduce |
multimem.ld_reduce | 0!b32/b64/f32/f64/{b32*4} |
multimem.ld_reduce | 1![=global]/[b32]/[b64] |
multimem.ld_reduce | f32 max |
multimem.ld_reduce | max min |
multimem.ld_reduce | 0!b64/f64 b64 |
multimem.ld_reduce | 0!b64 s64 |
multimem.ld_reduce | 0!b64 u64 |
multimem.ld_reduce | 0!b32/f32 b32 |
multimem.red multimem.st | acquire |
multimem.red | bulk_group |
multimem.red | f16x2 |
multimem.red | 1!#i/b32/b64/f32/f64 |
multimem.red | add s64 |
multimem.red | 1!#i/b64 u64 |
nanosleep | | 6.2 sm_70+
neg | f16x2 | 6.0 sm_72+ sm_53 sm_60 sm_61 sm_62 | 5.1 sm_70
neg | f16 | 6.0 sm_72+ sm_53 sm_60 sm_61 sm_62 | 5.1 sm_70
pmevent | mask | 3.0 sm_20+
pmevent | | 0:0..65535
prefetch | tensormap | 8.0 sm_90+
prefetch | valid_addr | 9.4 sm_90+
prefetch | L2::evict_normal | 7.4 sm_80+
prefetch | L2::evict_last | 7.4 sm_80+
rcp | approx f64 | 2.1 sm_20+
red | b64 | 3.1 sm_32+
red | v2 | 8.1 sm_90+
red | u64 | 2.0 sm_20+
red | xor | 2.0 sm_20+ | 7.8 sm_12 sm_13
red | or | 1.4 sm_12+
red | 1=#i | 2.0 sm_20+
red | add s32 | 2.0 sm_20+
red | or -shared | 2.0 sm_20+
red | xor -shared::cta | 2.0 sm_20+
red | 0![%]/[=global]/[=shared]/[b32]/[b64] |
red.async st.async | sys | 8.7 sm_100+
red.async | mbarrier::complete_tx::bytes sys |
redux.sync | f32 | 8.6 sm_100f+
rsqrt | approx*2 | 4.0 sm_20+
rsqrt | f64 ftz | 4.0 sm_20+
set | u16x2 | 9.4 sm_107f+
set | f16x2 s32 | 6.5
set | f16 s32 | 6.5
set | f16x2 u32 | 6.5
set | f16 neu | 6.5
set | ftz -f32 | 6.5
set | 0=b32 f16 | 6.5
set | 0!b16/b32/f32 |
setmaxnreg | | 8.0 sm_100f+ sm_120f+ sm_110f+ sm_90a
setmaxnreg | | 0:24..256/8
shf.l shf.r | | 3.1 sm_32+
shfl | | 3.0 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 | 5.1-6.3 sm_70 sm_72 sm_75
spcompress spdecompress tcgen05.ld.red.spcompress tcgen05.ld.spcompress | | 9.4 sm_107a
st | wt | 2.0 sm_20+
st | wb | 2.0 sm_20+
st | v8 | 2.0 sm_20+ | 7.8 sm_10 sm_11 sm_12 sm_13
st | L2::evict_first | 8.8 sm_100+
st | L1::evict_normal | 7.4
st | L1::evict_unchanged | 7.4
st | 1={b32*8} | 8.8 sm_100+
st | 1=b128 | 8.3 sm_70+
st | 1={b64*4} | 2.0 sm_20+
st | f64 volatile | 2.0 sm_20+
st | mmio release | 9.3
st | s16 volatile | 2.0 sm_20+ | 7.8 sm_10 sm_11 sm_12 sm_13
st | s32 volatile | 2.0 sm_20+
st | v4 volatile | 2.0 sm_20+ | 7.8 sm_10 sm_11 sm_12 sm_13
st | v8 -u16 | 7.8
st | v8 -shared::cta | 2.0 sm_20+
st | L1::no_allocate -global | 8.3
st | 0=[b32] volatile | 2.0 sm_20+
st.bulk | | 2:0
stmatrix | m16n8 | 8.6 sm_100f+ sm_120f+ sm_110f+
tanh | | 7.0 sm_75+
tcgen05.alloc tcgen05.commit tcgen05.cp tcgen05.dealloc tcgen05.fence::after_thread_sync
    tcgen05.fence::before_thread_sync tcgen05.ld tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws
    tcgen05.mma.ws.sp tcgen05.relinquish_alloc_permit tcgen05.st tcgen05.wait::ld tcgen05.wait::st |
    | 8.6 sm_100f+ sm_110f+
tcgen05.alloc tcgen05.dealloc | exclusive | 9.4
tcgen05.commit | sync_restrict::shared::read::mma::a | 9.4 sm_107f+
tcgen05.cp | 1!#i/b64 |
tcgen05.cp | 0![b32] |
tcgen05.dealloc | | 1:32,64,128,256,512
tcgen05.ld | collector::b3::use |
tcgen05.ld tcgen05.st | -b32 |
tcgen05.ld tcgen05.ld.red tcgen05.st | -sync |
tcgen05.ld tcgen05.ld.red | -aligned |
tcgen05.ld |
    0!{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8}/{f32*128}/{f32*16}/{f32*1}/{f32*2}/{f32*32}/{f32*4}/{f32*64}/{f32*8}
    |
tcgen05.ld | 1![%]/[b32] |
tcgen05.ld.red | | 8.8 sm_101f+ sm_110f+
tcgen05.ld.red tcgen05.mma.ws | x1 |
tcgen05.ld.red | kind::mxf4 |
tcgen05.ld.red tcgen05.mma.ws | 16x128b |
tcgen05.ld.red | 16x256b |
tcgen05.ld.red | 16x64b |
tcgen05.ld.red tcgen05.mma | collector::b0::discard |
tcgen05.ld.red tcgen05.mma | collector::b0::fill |
tcgen05.ld.red | collector::b2::lastuse |
tcgen05.ld.red tcgen05.mma.ws | kind::mxf4nvf4 |
tcgen05.ld.red | pack::16b |
tcgen05.ld.red | scale_vec::2X |
tcgen05.ld.red | st |
tcgen05.ld.red | unpack::16b |
tcgen05.ld.red | ws |
tcgen05.ld.red |
    0!{b32*128}/{b32*16}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8}/{f32*128}/{f32*16}/{f32*2}/{f32*32}/{f32*4}/{f32*64}/{f32*8}
    |
tcgen05.ld.red | 1!b32/f32/{b32*1} |
tcgen05.ld.red | 3!#i |
tcgen05.ld.red | 2![b32] |
tcgen05.ld.red | abs u32 |
tcgen05.ld.red | 0!{b32*128}/{f32*128} x128 |
tcgen05.ld.red | 0!{b32*2}/{f32*2} x2 |
tcgen05.ld.red | 0!{b32*4}/{f32*4} x4 |
tcgen05.ld.red | 0!{b32*8}/{f32*8} x8 |
tcgen05.ld.red | 0!{b32*16}/{f32*16} x16 |
tcgen05.ld.red | 0!{b32*32}/{f32*32} x32 |
tcgen05.ld.red | 0!{b32*64}/{f32*64} x64 |
tcgen05.ld.red.spcompress | 1!{b32*2}/{f32*16}/{f32*2}/{f32*32}/{f32*4}/{f32*64}/{f32*8} |
tcgen05.mma | scale_vec::2X | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma tcgen05.mma.sp | scale_vec::1X | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma | scale_vec::4X | 8.7 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp | kind::i8 | 8.6 sm_100a sm_110a
tcgen05.mma tcgen05.mma.ws tcgen05.mma.ws.sp | kind::ti16 | 9.4 sm_107f+
tcgen05.mma tcgen05.mma.sp | block32 | 8.8
tcgen05.mma tcgen05.mma.sp | block16 | 8.8
tcgen05.mma | decompress::lut::b | 9.4 sm_107f+
tcgen05.mma | kind::mxf4nvf4 | 8.7
tcgen05.mma | 6=#i | 8.6 sm_100f+ sm_110a
tcgen05.mma | 1=#i | 8.6 sm_100f+
tcgen05.mma | 5=pred 6=#i | 8.6 sm_100f+
tcgen05.mma | 5=#i kind::f16 | 8.6 sm_100f+
tcgen05.mma | kind::f16 | 6:0..15
tcgen05.mma | kind::tf32 | 6:0..15
tcgen05.mma | kind::f16 | 5:0..15
tcgen05.mma | cta_group::1 kind::tf32 | 5:0..15
tcgen05.mma | 4=pred kind::tf32 | 5:0..15
tcgen05.mma tcgen05.st | collector::b1::discard |
tcgen05.mma tensormap.replace | aligned |
tcgen05.mma | collector::b0::use |
tcgen05.mma | collector::b2::fill |
tcgen05.mma | NaN |
tcgen05.mma | collector::b3::fill |
tcgen05.mma | min |
tcgen05.mma | multicast::cluster::32b |
tcgen05.mma | 1!#i/[%]/[b32]/b64 |
tcgen05.mma | 6!#i/pred |
tcgen05.mma | 5!#i/[%]/[b32]/pred |
tcgen05.mma | 3!#i/[b32]/b32 |
tcgen05.mma | 4!#i/[%]/[b32]/b32/pred/{b32*4}/{b32*8}/{f32*4}/{f32*8} |
tcgen05.mma | kind::mxf8f6f4 scale_vec::2X |
tcgen05.mma | kind::mxf8f6f4 scale_vec::4X |
tcgen05.mma | block16 kind::mxf4 |
tcgen05.mma | collector::a::fill collector::a::lastuse |
tcgen05.mma | kind::mxf4 scale_vec::4X |
tcgen05.mma | kind::mxf4nvf4 scale_vec::1X |
tcgen05.mma | 4!#i/[%]/[b32]/b32/pred/{b32*4}/{f32*4} cta_group::1 |
tcgen05.mma.sp | kind::mxf4nvf4 | 8.7 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma.sp | kind::mxf4 | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma.sp | | 6:0..15
tcgen05.mma.sp | 32x128b |
tcgen05.mma.sp tcgen05.mma.ws | mma |
tcgen05.mma.sp tcgen05.mma.ws | relinquish_alloc_permit |
tcgen05.mma.sp tcgen05.mma.ws | 1!#i/[b32]/b64 |
tcgen05.mma.sp | 3![%]/[b32] |
tcgen05.mma.ws | fence::before_thread_sync |
tcgen05.mma.ws tcgen05.st | commit |
tcgen05.mma.ws | multicast::cluster |
tcgen05.mma.ws | sync |
tcgen05.mma.ws | x128 |
tcgen05.mma.ws | -cta_group::1 |
tcgen05.mma.ws | 4!#i/pred |
tcgen05.mma.ws | 5!#i/b64 |
tcgen05.mma.ws | 3!#i/b32 |
tcgen05.shift | | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.st | down |
tcgen05.st |
    2!{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8}/{f32*128}/{f32*16}/{f32*1}/{f32*2}/{f32*32}/{f32*4}/{f32*64}/{f32*8}
    |
tensormap.cp_fenceproxy | | 2:128
tensormap.replace | | 8.3 sm_100f+ sm_120f+ sm_110f+ sm_90a
tensormap.replace | swizzle_atomicity | 8.6 sm_100+
tensormap.replace | global_stride | 1:0..4
tensormap.replace | global_dim | 1:0..4
tensormap.replace | fill_mode | 1:0,1
tensormap.replace | elemtype | 1:0..15
tensormap.replace | box_dim | 1:0..4
tensormap.replace | interleave_layout | 1:0..2
tensormap.replace | swizzle_atomicity | 1:0..3
tensormap.replace | swizzle_mode | 1:0..4
tensormap.replace | element_stride | 1:0..4
tensormap.replace | 1!#i/b32/b64/f32 |
tensormap.replace | 1!#i/b32/f32 b32 |
vabsdiff2 vabsdiff4 vadd2 vadd4 vavrg2 vavrg4 vmax2 vmax4 vmin2 vmin4 vset2 vset4 vsub2 vsub4 | |
    3.0 sm_30+
vote | | 1.4 sm_12 sm_13 sm_20 sm_21 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 |
    5.1-6.3 sm_70 sm_72 sm_75
vote | ballot | 2.0 sm_20+
wgmma.commit_group wgmma.fence wgmma.mma_async wgmma.wait_group | | 8.0 sm_90a
wgmma.mma_async | | 4:-1,1
wgmma.mma_async | | 5:-1,1
wgmma.mma_async | | 6:0,1
wgmma.mma_async | | 7:0,1
wgmma.mma_async | | 3:0,1
wgmma.mma_async | 4!#i |
wgmma.mma_async | and f32 |
wgmma.mma_async | f16 m64n32k16 |
wgmma.mma_async.sp | | 8.2 sm_90a
wgmma.mma_async.sp | u8 | 8.4
wgmma.mma_async.sp | | 4:0,1
wgmma.mma_async.sp | m64n8k64 | 4:0
wgmma.mma_async.sp | | 6:-1,1
wgmma.mma_async.sp | | 7:-1,1
wgmma.mma_async.sp | | 8:0,1
wgmma.mma_async.sp | | 9:0,1
wgmma.mma_async.sp | | 5:0,1
wgmma.wait_group | | 0:0..
wmma.load wmma.mma | | 6.3 sm_70+
wmma.load wmma.store | m8n8k4 | 7.0 sm_80+
wmma.load | s8 | 6.3 sm_72+
wmma.load | u8 | 6.3 sm_72+
wmma.load wmma.store | m8n8k128 | 6.3 sm_75+
wmma.load | s4 | 6.3 sm_75+
wmma.load | 0!{b32*1}/{b32*2}/{b32*4}/{b32*8}/{b64*1}/{f32*1}/{f32*8}/{f64*1} |
wmma.load | 0!{b32*8} f16 |
wmma.mma | bf16*2 | 7.0 sm_80+
wmma.mma | tf32*2 | 7.0 sm_80+
wmma.mma | s32*2 | 6.3 sm_72+
wmma.mma | rn | 7.0 sm_80+
wmma.mma | and | 7.1 sm_80+
wmma.mma | s4*2 | 6.3 sm_75+
wmma.mma | 3!{b32*2}/{b32*4}/{b32*8}/{b64*2}/{f32*8}/{f64*2} |
wmma.mma | 2!{b32*1}/{b32*2}/{b32*4}/{b32*8}/{b64*1}/{f64*1} |
wmma.store | aligned | 6.3 sm_70+
wmma.store | s32 | 6.3 sm_72+
wmma.store | m16n16k8 | 7.0 sm_80+
wmma.store | m8n8k32 | 6.3 sm_75+
wmma.store | 1!{b32*2}/{b32*4}/{b32*8}/{b64*2}/{f32*8}/{f64*2} |
"""
