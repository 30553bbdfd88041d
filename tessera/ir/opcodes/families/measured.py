"""What ptxas refuses beyond the forms: measured with ptxas 13.5.37, 13.4.92, 13.0.88, 12.8.93.

Learnt by `python -m benchmarks.reading.verdicts learn`, piece by piece, and then changed by hand,
as `docs/developer/errands/cuda-release.md` says; `opcodes.rules` has the notation.
Longer than 400 lines because it is one table.
"""

RULES = """
abs | f16 | 6.5 sm_53+
abs | f16x2 | 6.5 sm_53+
abs cvt fma max min neg wmma.load wmma.mma | bf16 | 7.0 sm_80+
abs cvt fma max min neg | bf16x2 | 7.0 sm_80+
activemask | | 6.2 sm_30+
add fma mul set setp sub | f16 | 4.2 sm_53+
add fma mul sub | f32x2 | 8.6 sm_100+
add atom ex2 mul red set setp sub tanh | bf16 | 7.8 sm_90+
add fma mul set setp sub | f16x2 | 4.2 sm_53+
add max min sub | s8x4 | 9.2 sm_120f+ sm_107f+
add max min sub | u8x4 | 9.2 sm_120f+ sm_107f+
add max min | s16x2 | 8.0 sm_90+
add max min | u16x2 | 8.0 sm_90+
add atom ex2 mul red set setp sub tanh | bf16x2 | 7.8 sm_90+
add fma mad mul sub | rm | 1.4 sm_13+
add fma mad mul sub | rp | 1.4 sm_13+
add fma sub | f16 f32 | 8.6 sm_100+
add mad mul sub | f32 rm | 2.0 sm_20+
add mad mul sub | f32 rp | 2.0 sm_20+
add fma sub | bf16 f32 | 8.6 sm_100+
add addc mad.hi mad.lo madc.hi sub subc | cc u64 | 4.3 sm_20+
add addc mad.hi mad.lo madc.hi sub subc | cc s64 | 4.3 sm_20+
add | sat u32 | 9.2 sm_120f+ sm_107f+
add | sat s16x2 | 9.2 sm_120f+ sm_107f+
add | sat u16x2 | 9.2 sm_120f+ sm_107f+
alloca stackrestore stacksave | | 7.3 sm_52+
applypriority createpolicy.cvt createpolicy.fractional createpolicy.range discard | | 7.4 sm_80+
applypriority discard | | 1:128
applypriority.async.bulk applypriority.async.bulk.tensor fabric.try_get.async.tensor
    fabric.try_put.async.tensor fabric.try_red.async.tensor | | 9.4 sm_107f+
applypriority.async.bulk | | 1:0..1048560/16
atom brkpt red | | 1.4 sm_11+
atom ld red st | L2::cache_hint | 7.4 sm_80+
atom red | sys | 5.0 sm_60+
atom red | cta | 5.0 sm_60+
atom red | gpu | 5.0 sm_60+
atom fence ld red st | cluster | 7.8 sm_90+
atom | b128 | 8.3 sm_90+
atom ld red st | relaxed | 5.1 sm_70+
atom ld | acquire | 5.1 sm_70+
atom | acq_rel | 5.1 sm_70+
atom cvta cvta.to isspacep ld red st | shared::cluster | 7.8 sm_90+
atom red st | release | 5.1 sm_70+
atom red | shared::cta | 7.8 sm_12+
atom red | noftz | 6.2 sm_60+
atom red | f64 | 5.0 sm_60+
atom | b16 | 6.3 sm_70+
atom red | s64 | 3.1 sm_32+
atom red | shared | 1.4 sm_12+
atom fma red | f32 | 2.0 sm_20+
atom red | v2 | 8.1 sm_90+
atom red | v4 | 8.1 sm_90+
atom red | v8 | 8.1 sm_90+
atom | b64 | 1.4 sm_12+
atom red | u64 | 1.4 sm_12+
atom red | f16 | 6.3 sm_70+
atom red | -global | 1.4 sm_12+
atom red | -global -shared -shared::cluster -shared::cta | 1.4 sm_20+
atom red | max u64 | 3.1 sm_32+
atom | f32 noftz | 9.4 sm_90+
atom | and b64 | 3.1 sm_32+
atom | b64 or | 3.1 sm_32+
atom red | min u64 | 3.1 sm_32+
atom | b64 xor | 3.1 sm_32+
atom | b64 shared | 2.0 sm_20+
atom red | shared u64 | 2.0 sm_20+
atom red | shared::cta u64 | 7.8 sm_20+
atom | b64 shared::cta | 7.8 sm_20+
atom | b128 sys | 8.4
atom | 3=b32^pred/{b32*1}/{b32*2}/{b32*8} |
atom | #4 3=b64 -L2::cache_hint -cas |
atom | #=5 |
atom red | L2::cache_hint shared |
atom red | L2::cache_hint shared::cta |
atom red | L2::cache_hint shared::cluster |
bar.arrive bar.red bfe bfi bfind brev clz copysign cvta cvta.to isspacep ldu popc prefetch prefetchu
    prmt testp vabsdiff vadd vmad vmax vmin vset vshl vshr vsub | | 2.0 sm_20+
bar.arrive bar.cta.arrive bar.cta.sync bar.sync barrier.arrive barrier.cta.arrive barrier.cta.sync
    barrier.sync | | 0:0..15
bar.cta.arrive bar.cta.red bar.cta.sync | | 7.8 sm_20+
bar.cta.red bar.red barrier.cta.red barrier.red | | 1:0..15
bar.warp.sync barrier.arrive barrier.red barrier.sync fns shfl.sync vote.sync | | 5.1 sm_30+
barrier.cluster.arrive barrier.cluster.wait getctarank griddepcontrol mapa mbarrier.try_wait
    stmatrix | | 7.8 sm_90+
bar.arrive bar.cta.arrive barrier.arrive barrier.cta.arrive | | 1:32../32
bar.cta.sync bar.sync barrier.cta.sync barrier.sync | | 1:0../32
bar.cta.red bar.red barrier.cta.red barrier.red | #4 | 2:0../32
barrier.cluster.arrive | relaxed | 8.0
barrier.cluster.arrive | release | 8.0
barrier.cluster.wait mbarrier.test_wait mbarrier.try_wait | acquire | 8.0
barrier.cta.arrive barrier.cta.red barrier.cta.sync | | 7.8 sm_30+
barrier.red | 1=pred^pred/{b32*1}/{b32*8} |
bfe | | 2:0..255
bfe bfi | | 3:0..255
bfi | | 4:0..255
bmsk szext | | 7.6 sm_70+
clmad.hi clmad.lo | | 9.3 sm_80+
clusterlaunchcontrol.query_cancel clusterlaunchcontrol.try_cancel st.bulk | | 8.6 sm_100+
clusterlaunchcontrol.try_cancel | multicast::cluster::all | 8.6 sm_100f+ sm_120f+ sm_110f+
cp.async cp.async.commit_group cp.async.mbarrier.arrive cp.async.wait_all cp.async.wait_group
    mbarrier.arrive mbarrier.arrive_drop mbarrier.init mbarrier.inval mbarrier.pending_count
    mbarrier.test_wait redux.sync | | 7.0 sm_80+
cp.async | L2::cache_hint | 7.4
cp.async | L2::128B | 7.4
cp.async | L2::64B | 7.4
cp.async | L2::256B | 7.4
cp.async | L1::32B | 7.4
cp.async | | 2:4,8,16
cp.async | cg | 2:16
cp.async | -L2::cache_hint | 3:0..16
cp.async.bulk cp.async.bulk.commit_group cp.async.bulk.prefetch cp.async.bulk.prefetch.tensor
    cp.async.bulk.tensor cp.async.bulk.wait_group cp.reduce.async.bulk cp.reduce.async.bulk.tensor
    elect.sync mbarrier.complete_tx mbarrier.expect_tx | | 8.0 sm_90+
cp.async.bulk cp.async.bulk.tensor mbarrier.arrive mbarrier.arrive_drop mbarrier.complete_tx
    mbarrier.expect_tx tcgen05.commit | multicast::cluster::32b | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::8 | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::80 | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::8000 | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_16bytes::80000000 | 9.4
    sm_107f+
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::validity::per_element::ff | 9.4 sm_107f+
cp.async.bulk | ignore_oob | 9.2
cp.async.bulk cp.async.bulk.tensor | mbarrier::report::disabled | 9.4 sm_107f+
cp.async.bulk cp.async.bulk.tensor | multicast::cluster::16b | 9.4
cp.async.bulk cp.reduce.async.bulk multimem.cp.async.bulk multimem.cp.reduce.async.bulk | relaxed |
    9.3
cp.async.bulk | global relaxed shared::cluster | 9.3 sm_100f+ sm_110f+ sm_90a
cp.async.bulk | cp_mask | 8.6 sm_100+
cp.async.bulk | mbarrier::complete_tx::bytes -shared::cluster | 8.6
cp.async.bulk cp.reduce.async.bulk multimem.cp.async.bulk multimem.cp.reduce.async.bulk | |
    2:0..1048560/16
cp.async.bulk.prefetch cp.async.bulk.prefetch.tensor | L2::evict_last | 9.4 sm_107f+
cp.async.bulk.prefetch.tensor cp.async.bulk.tensor cp.reduce.async.bulk.tensor |
    override::global_address | 9.4 sm_107f+
cp.async.bulk.prefetch.tensor | tile::gather4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.prefetch.tensor cp.async.bulk.tensor | im2col::w::128 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.prefetch.tensor | im2col::w | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | im2col::w | 8.6 sm_100+
cp.async.bulk.tensor | im2col::w shared::cluster | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | cta_group::1 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | cta_group::2 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | tile::scatter4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | tile::gather4 | 8.6 sm_100+
cp.async.bulk.tensor | shared::cluster tile::gather4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | mbarrier::complete_tx::bytes shared::cta | 8.6
cp.async.bulk.tensor | multicast::cluster tile::gather4 | 8.6 sm_100f+ sm_110f+
cp.async.bulk.tensor | | 3:0..
cp.async.bulk.tensor | shared::cluster 2=pred/b8/b16/b128/f32/f64/#f | 8.0 sm_90 sm_90a sm_100
    sm_100a sm_100f sm_103 sm_103a sm_103f sm_107 sm_107a sm_107f sm_110 sm_110a sm_110f
cp.async.mbarrier.arrive cvta cvta.to isspacep ld ldmatrix mbarrier.arrive mbarrier.arrive_drop
    mbarrier.init mbarrier.inval mbarrier.test_wait st | shared::cta | 7.8
createpolicy.range | fabric | 9.4 sm_100+
cvt | satfinite | 8.1 sm_100+ sm_70 sm_72 sm_75 sm_80 sm_86 sm_87 sm_88 sm_89 | 7.8 sm_90 sm_90a
cvt max min | f16x2 | 7.0 sm_80+
cvt | tf32 | 7.0 sm_80+
cvt | s2f6x2 | 9.1 sm_100a sm_103a sm_107a sm_110a sm_120a sm_121a
cvt | ue8m0x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | e2m3x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | bf16*2 | 7.8 sm_90+
cvt | e3m2x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | e2m1x2 | 8.6 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e4m3x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e4m3x2 -satfinite | 9.2 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e5m2x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e5m2x2 -satfinite | 9.2 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e2m1x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e2m1x2 -satfinite | 9.2 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e2m3x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e2m3x2 -satfinite | 9.2 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e3m2x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | bf16x2 e3m2x2 -satfinite | 9.2 sm_100f+ sm_120f+ sm_110f+
cvt | f16x2 satfinite e2m1x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | f16x2 satfinite e2m3x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | f16x2 satfinite e3m2x2 | 9.1 sm_100f+ sm_120f+ sm_110f+
cvt | rs | 8.7 sm_100a sm_103a sm_107a
cvt | e4m3x2 | 7.8 sm_90+ | 8.1 sm_89
cvt | e5m2x2 | 7.8 sm_90+ | 8.1 sm_89
cvt | relu*2 | 7.8 sm_90+
cvt fma | relu | 7.0 sm_80+
cvt | bf16 f64 | 7.8 sm_90+
cvt | bf16 rni | 7.8 sm_90+
cvt | bf16 rpi | 7.8 sm_90+
cvt | bf16 rzi | 7.8 sm_90+
cvt | bf16 f16 | 7.8 sm_90+
cvt | relu tf32 | 7.8 sm_90+
cvt | bf16 s64 | 7.8 sm_90+
cvt | bf16 u32 | 7.8 sm_90+
cvt | bf16 u64 | 7.8 sm_90+
cvt | rn tf32 | 7.8 sm_90+
cvt | rz tf32 | 7.8 sm_90+
cvt | bf16 s16 | 7.8 sm_90+
cvt | bf16 s32 | 7.8 sm_90+
cvt | bf16 u16 | 7.8 sm_90+
cvt | ftz s64 | 1.5
cvt | rz satfinite | 8.1
cvt | satfinite tf32 | 8.1
cvt | rn satfinite tf32 | 8.6 sm_100+
cvt | rz satfinite tf32 | 8.6 sm_100+
cvt | f16 satfinite | 8.1
cvt | 1=b16 bf16 | 7.1
cvt | 0={f32*4} |
cvt | s32 satfinite |
cvt | ftz -f32 |
cvt.pack | | 6.5 sm_72+
cvt.pack | u2 | 6.5 sm_75+
cvt.pack | s2 | 6.5 sm_75+
cvt.pack | s4 | 6.5 sm_75+
cvt.pack | u4 | 6.5 sm_75+
cvt.pack | 0=b16/pred |
cvta cvta.to isspacep | param::entry | 8.3 sm_70+
cvta cvta.to isspacep | param | 7.7 sm_70+
cvta cvta.to isspacep | const | 3.1
cvta | 1=#f/_/b16/pred/{b32*1} |
div rcp sqrt | rp | 2.0 sm_20+
div rcp sqrt | rm | 2.0 sm_20+
div rcp sqrt | rz | 2.0 sm_20+
div mad rcp sqrt | f32 rn | 2.0 sm_20+
dp2a.hi dp2a.lo dp4a | | 5.0 sm_61+
ex2 | f16x2 | 7.0 sm_75+
ex2 | f16 | 7.0 sm_75+
fabric.submit fabric.try_get fabric.try_pullred fabric.try_put fabric.try_red fabric.wait
    multimem.red.async multimem.st.async | | 9.3 sm_100+
fabric.submit | commit_group | 9.5
fabric.try_atom | | 9.4 sm_100+
fabric.wait fence | sync_restrict::read | 9.5
fabric.try_pullred | | 4:-1,4294967295
fabric.try_pullred | acc::f32 | 9.3 sm_100f+ sm_120f+ sm_110f+
fence match wmma.load wmma.store | | 5.1 sm_70+
fence | release | 8.0 sm_90+
fence | acquire | 8.6 sm_90+
fence | async | 8.0 sm_90+
fence | async::generic | 8.3 sm_90+
fence | alias sys -fabric::fabric -fabric::generic -generic::fabric | 9.4
fence | fabric::fabric | 9.3 sm_100+
fence fence.proxy.tensormap::generic | sync_restrict::shared::cluster::read | 9.4 sm_90+
fence | fabric::generic | 9.3 sm_100+
fence | generic::fabric | 9.3 sm_100+
fence | alias | 7.5
fence fence.proxy.tensormap::generic | sync_restrict::shared::cluster | 8.6 sm_90+
fence fence.proxy.tensormap::generic | sync_restrict::shared::cta | 8.6 sm_90+
fence | alias sys | 9.3 sm_100+ | 9.4 sm_90 sm_90a
fence | release sys | 8.6
fence | release -mbarrier_init | 8.6
fence.proxy.tensormap::generic tensormap.cp_fenceproxy | | 8.3 sm_90+
fence.proxy.tensormap::generic | -acq_rel | 1:128
fma | oob | 8.1 sm_90+
isspacep | 1=b16/pred/{b32*2} |
ld | L2::256B | 7.4 sm_80+
ld | nc | 3.1 sm_32+
ld | L2::128B | 7.4 sm_75+
ld st | L1::evict_first | 7.4 sm_70+
ld | L1::32B | 7.4 sm_75+
ld st | L1::no_allocate | 7.4 sm_70+
ld st | L1::evict_last | 7.4 sm_70+
ld st | weak | 5.1 sm_70+
ld | L2::64B | 7.4 sm_75+
ld st | cg | 2.0 sm_20+
ld | ca | 2.0 sm_20+
ld | cv | 2.0 sm_20+
ld ldu mov st | b128 | 8.3 sm_70+
ld st | cs | 2.0 sm_20+
ld | lu | 2.0 sm_20+
ld st | L1::evict_normal | 7.4 sm_70+
ld st | L2::evict_last | 8.8 sm_100+
ld st | mmio | 8.2
ld ldu | 0=b128 | 8.3 sm_70+
ld st | b64 v4 | 8.8 sm_100+
ld st | f64 v4 | 8.8 sm_100+
ld st | s64 v4 | 8.8 sm_100+
ld st | u64 v4 | 8.8 sm_100+
ld st | b32 v8 | 8.8 sm_100+
ld st | f32 v8 | 8.8 sm_100+
ld st | s32 v8 | 8.8 sm_100+
ld st | u32 v8 | 8.8 sm_100+
ld st | local volatile | 9.1
ld | acquire mmio | 9.3
ld | 2=f64/pred/{b16*8}/{b32*1} |
ld st | param::func | 8.3
ld | 1=[b32]/[b64] param::func |
st | 0=[b32]/[b64] param::func |
ld | nc weak |
ld | nc -global |
ldmatrix | | 6.5 sm_75+
ldmatrix | b8x16 | 8.6 sm_100f+ sm_120f+ sm_110f+
ldmatrix stmatrix | b8 | 8.6 sm_100f+ sm_120f+ sm_110f+
lop3 | | 4.3 sm_50+
lop3 | and | 8.2 sm_70+
lop3 | 0=b32 and |
lop3 | 0=b32 or |
lop3 | or | 8.2 sm_70+
mad | f32 rz | 2.0 sm_20+
mad.hi mad.lo | cc | 3.0 sm_20+
madc.hi madc.lo | | 3.0 sm_20+
madc.lo | cc*2 | 4.3
madc.lo | cc s64 | 4.3
madc.lo | sat |
mad | f32 -rm -rn -rp -rz | 1.4-3.1 | 1.4 sm_10 sm_11 sm_12 sm_13
max min | NaN | 7.0 sm_80+
max min | abs | 7.2 sm_82+
max min | relu | 8.0 sm_90+
max min | f16 | 7.0 sm_80+
max min | #3 abs -xorsign |
max min | #4 | 8.8 sm_100+
mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait | cluster | 8.0 sm_90+
mbarrier.arrive mbarrier.arrive_drop | expect_tx | 8.0 sm_90+
mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait | relaxed | 8.6 sm_90+
mbarrier.arrive | shared::cluster | 8.0 sm_90+
mbarrier.arrive mbarrier.arrive_drop | expect_tx 2={b32*1}/{b32*2}/{b32*4} |
mbarrier.arrive mbarrier.arrive_drop | cta | 8.0
mbarrier.arrive mbarrier.arrive_drop | #3 -noComplete | 7.8 sm_90+
mbarrier.arrive mbarrier.arrive_drop | -expect_tx -multicast::cluster -multicast::cluster::16b
    -multicast::cluster::32b | 2:1..
mbarrier.arrive mbarrier.arrive_drop | -expect_tx #4 | 2:1..
mbarrier.check_layout | | 9.3 sm_90+
mbarrier.init | layout::v1 | 9.3 sm_90+
mbarrier.init mbarrier.pending_count | layout::v0 | 9.3 sm_90+
mbarrier.init | | 1:1..1048575
mbarrier.test_wait | phase_type::primary | 9.3 sm_90+
mbarrier.test_wait | phase_type::conditional | 9.3 sm_90+
mbarrier.test_wait | parity | 7.1
mbarrier.try_wait | phase_type::primary | 9.3
mbarrier.try_wait | phase_type::conditional | 9.3
mbarrier.try_wait | relaxed | 8.6
mma | 0=b32/f32 |
mma | bf16 | 7.0 sm_80+
mma.sp mma.sp::ordered_metadata | | 5:0..3
mma mma.sp::ordered_metadata | kind::f8f6f4 | 8.6 sm_100f+ sm_120f+ sm_110f+
mma | kind::mxf8f6f4 | 8.6 sm_100f+ sm_120f+ sm_110f+
mma | kind::mxf4 | 8.6 sm_100f+ sm_120f+ sm_110f+
mma | kind::mxf4nvf4 | 8.7 sm_100f+ sm_120f+ sm_110f+
mma mma.sp::ordered_metadata | e2m1 | 8.7 sm_120f+
mma mma.sp::ordered_metadata | e2m3 | 8.7 sm_120f+
mma mma.sp::ordered_metadata | e3m2 | 8.7 sm_120f+
mma mma.sp::ordered_metadata | block_scale | 8.7 sm_120f+
mma.sp::ordered_metadata | | 8.5
mma.sp | s32 1=b32/f32/pred/#f/{pred*2}/{pred*4} | 7.1 sm_80 sm_82 sm_86 sm_87 sm_88 sm_89 sm_90
    sm_90a
mma.sp mma.sp::ordered_metadata | s4 1=b32/f32/pred/#f/{pred*2}/{pred*4} | 7.1 sm_80 sm_82 sm_86
    sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | u4 1=b32/f32/pred/#f/{pred*2}/{pred*4} | 7.1 sm_80 sm_82 sm_86
    sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | s4 2={pred*2}/{pred*4} | 7.1 sm_80 sm_82 sm_86 sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | u4 2={pred*2}/{pred*4} | 7.1 sm_80 sm_82 sm_86 sm_87 sm_88 sm_89
mma.sp::ordered_metadata | e4m3 f16 | 8.7 sm_120f+
mma.sp::ordered_metadata | e5m2 f16 | 8.7 sm_120f+
mma.sp::ordered_metadata | kind::mxf4 | 8.7 sm_120a sm_121a
mma.sp::ordered_metadata | kind::mxf4nvf4 | 8.7 sm_120a sm_121a
mma.sp mma.sp::ordered_metadata | m16n8k16 tf32 | 5:0,1
mma.sp mma.sp::ordered_metadata | bf16 m16n8k32 | 5:0,1
mma.sp mma.sp::ordered_metadata | f16 m16n8k32 -f32 | 5:0,1
mma.sp mma.sp::ordered_metadata | s32 | 5:0,1
mma.sp mma.sp::ordered_metadata | m16n8k64 u8 | 5:0
mma.sp mma.sp::ordered_metadata | m16n8k64 s8 | 5:0
mma.sp mma.sp::ordered_metadata | m16n8k128 | 5:0
mma.sp mma.sp::ordered_metadata | e4m3 | 5:0
mma.sp mma.sp::ordered_metadata | e5m2 | 5:0
mma.sp mma.sp::ordered_metadata | e2m1 | 5:0
mma.sp mma.sp::ordered_metadata | e2m3 | 5:0
mma.sp mma.sp::ordered_metadata | e3m2 | 5:0
mma.sp | f16 4=pred/{b32*1}/{b32*2}/{b32*4}/{b32*8} | 7.1 sm_80 sm_82 sm_86 sm_87 sm_88 sm_89 sm_90
    sm_90a
mma.sp | f16 4={f32*1}/{f32*2}/{f32*4}/{f32*8}/{pred*1}/{pred*2}/{pred*4}/{pred*8} | 7.1 sm_80 sm_82
    sm_86 sm_87 sm_88 sm_89 sm_90 sm_90a
mma.sp | s32 4=pred/{b32*1}/{b32*2}/{b32*4}/{b32*8} | 7.1 sm_80 sm_82 sm_86 sm_87 sm_88 sm_89 sm_90
    sm_90a
mma.sp | s32 4={f32*1}/{f32*2}/{f32*4}/{f32*8}/{pred*1}/{pred*2}/{pred*4}/{pred*8} | 7.1 sm_80 sm_82
    sm_86 sm_87 sm_88 sm_89 sm_90 sm_90a
mma.sp mma.sp::ordered_metadata | s4 4=pred/{b32*1}/{b32*2}/{b32*4}/{b32*8} | 7.1 sm_80 sm_82 sm_86
    sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | s4
    4={f32*1}/{f32*2}/{f32*4}/{f32*8}/{pred*1}/{pred*2}/{pred*4}/{pred*8} | 7.1 sm_80 sm_82 sm_86
    sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | u4 4=pred/{b32*1}/{b32*2}/{b32*4}/{b32*8} | 7.1 sm_80 sm_82 sm_86
    sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | u4
    4={f32*1}/{f32*2}/{f32*4}/{f32*8}/{pred*1}/{pred*2}/{pred*4}/{pred*8} | 7.1 sm_80 sm_82 sm_86
    sm_87 sm_88 sm_89
mma.sp mma.sp::ordered_metadata | e4m3 4=pred/{b32*1}/{b32*2}/{b32*4}/{b32*8}/f32/#f | 8.4 sm_89
    sm_120+
mma.sp mma.sp::ordered_metadata | e4m3
    4={f32*1}/{f32*2}/{f32*4}/{f32*8}/{pred*1}/{pred*2}/{pred*4}/{pred*8} | 8.4 sm_89 sm_120+
mma.sp mma.sp::ordered_metadata | e5m2 4=pred/{b32*1}/{b32*2}/{b32*4}/{b32*8}/f32/#f | 8.4 sm_89
    sm_120+
mma.sp mma.sp::ordered_metadata | e5m2
    4={f32*1}/{f32*2}/{f32*4}/{f32*8}/{pred*1}/{pred*2}/{pred*4}/{pred*8} | 8.4 sm_89 sm_120+
mov | 1=%nwarpid/%nsmid/%lanemask_eq/%lanemask_le/%lanemask_lt/%lanemask_ge/%lanemask_gt/%clock64 |
    2.0 sm_20+
mov | 1=%is_explicit_cluster/%clusterid/%nclusterid/%cluster_ctaid/%cluster_nctaid | 7.8 sm_90+
mov | 1=%cluster_ctarank/%cluster_nctarank | 7.8 sm_90+
mov | 1=%clock_hi | 5.0 sm_20+
mov | 1=%globaltimer/%globaltimer_lo/%globaltimer_hi | 3.1 sm_30+
mov | 1=%reserved_smem_offset_begin/%reserved_smem_offset_end/%reserved_smem_offset_cap | 7.6 sm_80+
mov | 1=%reserved_smem_offset_0/%reserved_smem_offset_1 | 7.6 sm_80+
mov | 1=%total_smem_size/%dynamic_smem_size | 4.1 sm_20+
mov | 1=%aggr_smem_size | 8.1 sm_90+
mov | 1=%locality_domain_id/%locality_domain_supplemental_sm | 9.5 sm_100+
mov | 1=%current_graph_exec | 8.0 sm_50+
mov | 1=%pm0_64/%pm1_64/%pm2_64/%pm3_64/%pm4_64/%pm5_64/%pm6_64/%pm7_64 | 4.0 sm_50+
mov | 1=%pm4/%pm5/%pm6/%pm7 | 3.0 sm_20+
movmatrix | | 7.8 sm_75+
multimem.cp.async.bulk multimem.cp.reduce.async.bulk | | 9.1 sm_90+
multimem.cp.async.bulk | cp_mask | 9.1 sm_100+
cp.async.bulk multimem.cp.async.bulk | weak | 9.3
cp.async.bulk | global shared::cluster 3=b16/#i/{b16*1}/{b16*2}/{b16*4} | 8.0 sm_90 sm_90a sm_100
    sm_100a sm_100f sm_103 sm_103a sm_103f sm_107 sm_107a sm_107f sm_110 sm_110a sm_110f
fabric.try_put | 4={b16*1}/{b16*2}/{b16*4} |
multimem.ld_reduce multimem.red multimem.st red.async st.async | | 8.1 sm_90+
multimem.ld_reduce | acc::f32 | 8.2
multimem.ld_reduce multimem.st | e4m3x2 | 8.6 sm_100f+ sm_110f+ sm_120a sm_121a
multimem.ld_reduce multimem.st | e5m2x2 | 8.6 sm_100f+ sm_110f+ sm_120a sm_121a
multimem.ld_reduce multimem.st | e4m3x4 | 8.6 sm_100f+ sm_110f+ sm_120a sm_121a
multimem.ld_reduce multimem.st | e5m2x4 | 8.6 sm_100f+ sm_110f+ sm_120a sm_121a
multimem.ld_reduce multimem.st | e4m3 | 8.6 sm_100f+ sm_110f+ sm_120a sm_121a
multimem.ld_reduce multimem.st | e5m2 | 8.6 sm_100f+ sm_110f+ sm_120a sm_121a
nanosleep | | 6.2 sm_70+
neg | f16 | 5.1 sm_53+
neg | f16x2 | 5.1 sm_53+
pmevent | mask | 3.0 sm_20+
pmevent | mask | 0:0..65535
pmevent | -mask | 0:0..15
prefetch | L1::32B | 9.4 sm_90+
prefetch | tensormap | 8.0 sm_90+
prefetch | L2::evict_last | 7.4 sm_80+
prefetch | L2::evict_normal | 7.4 sm_80+
rcp | approx f64 | 2.1 sm_20+
red | b64 | 3.1 sm_32+
red | f32 noftz | 9.4
red | 2=%/b16/b32/f32/f64/{b32*4}/{b64*4} |
red.async st.async | release | 8.7 sm_100+
red.async | 1=f32 -mbarrier::complete_tx::bytes |
st.async | #3 release -global |
st.async | #2 v2 |
st.async | #2 v4 |
st.async | #2 b128 |
st.async | #3 b16 |
st.async | #3 b8 |
st.async | #3 s16 |
st.async | #3 s8 |
st.async | #3 u16 |
st.async | #3 u8 |
st.async | #2 1={b32*1}/{b32*2}/{b32*4}/{b64*1}/{b64*2}/{f32*1}/{f32*2}/{f32*4}/{f64*1}/{f64*2} |
st.async red.async | global | 8.7 sm_100+
redux.sync | f32 | 8.6 sm_100f+
rsqrt | f64 ftz | 4.0 sm_20+
set | u16x2 | 9.4 sm_107f+
set | 0=_/b32^pred |
set | 1=_/b32^pred |
setmaxnreg | | 8.0 sm_100f+ sm_120f+ sm_110f+ sm_90a
setmaxnreg | | 0:24..256/8
shf.l shf.r | | 3.1 sm_32+
shfl | | 3.0 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 | 5.1-6.3 sm_70+
shfl.sync | 1=b32^pred |
spcompress spdecompress tcgen05.ld.red.spcompress tcgen05.ld.spcompress | | 9.4 sm_107a
st | wt | 2.0 sm_20+
st | wb | 2.0 sm_20+
st | L2::evict_first | 8.8 sm_100+
st | L1::evict_unchanged | 7.4
st | 1=b128 | 8.3 sm_70+
st | mmio release | 9.3
st | 2=f32/pred^pred |
st.bulk | | 1:0../8
st.bulk | | 2:0
stmatrix | 1=#f/#i |
suld.b sust.b | 3d | 1.4 sm_20+
suld.b sust.b | a1d | 1.4 sm_20+
suld.b sust.b | a2d | 1.4 sm_20+
suq txq | 1=[b64] | 3.1 sm_20+
suq txq | array_size | 4.1 sm_20+
suq | memory_layout | 4.2 sm_20+
sured.b | min s64 | 8.1 sm_50+
sured.b | max s64 | 8.1 sm_50+
sured.b | min u64 | 8.1 sm_50+
sured.b | max u64 | 8.1 sm_50+
sust.p | | 1.4 sm_20+
tanh | | 7.0 sm_75+
tcgen05.alloc tcgen05.commit tcgen05.cp tcgen05.dealloc tcgen05.fence::after_thread_sync
    tcgen05.fence::before_thread_sync tcgen05.ld tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws
    tcgen05.mma.ws.sp tcgen05.relinquish_alloc_permit tcgen05.st tcgen05.wait::ld tcgen05.wait::st |
    | 8.6 sm_100f+ sm_110f+
tcgen05.alloc tcgen05.dealloc | exclusive | 9.4
tcgen05.alloc tcgen05.dealloc | | 1:32,64,128,256,512
tcgen05.commit | sync_restrict::shared::read::mma::a | 9.4 sm_107f+
tcgen05.ld.red | | 8.8 sm_101f+ sm_110f+
tcgen05.ld.red tcgen05.ld.red.spcompress tcgen05.ld.spcompress | x1 |
tcgen05.ld tcgen05.st | 16x256b x64 |
tcgen05.ld tcgen05.st | 16x256b x128 |
tcgen05.ld tcgen05.st | 16x128b x128 |
tcgen05.mma | scale_vec::2X | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma tcgen05.mma.sp | scale_vec::1X | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma | scale_vec::4X | 8.7 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp | kind::i8 | 8.6 sm_100a sm_110a
tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp | kind::ti16 | 9.4 sm_107f+
tcgen05.mma tcgen05.mma.sp | block32 | 8.8
tcgen05.mma tcgen05.mma.sp | block16 | 8.8
tcgen05.mma | decompress::lut::b | 9.4 sm_107f+
tcgen05.mma | kind::mxf4nvf4 | 8.7
tcgen05.mma | #7 kind::f16 | 8.6 sm_100f+
tcgen05.mma | #6 4=pred | 8.6 sm_100f+ sm_110a
tcgen05.mma | #7 kind::tf32 | 8.6 sm_100f+
tcgen05.mma | 4=pred 5=#i -kind::i8 | 8.6 sm_100f+
tcgen05.mma | kind::f8f6f4 4=pred 5=#i |
tcgen05.mma tcgen05.mma.sp | kind::f8f6f4 5=pred 6=#i |
tcgen05.mma | kind::f16 4=pred | 5:0..15
tcgen05.mma | kind::tf32 4=pred | 5:0..15
tcgen05.mma tcgen05.mma.sp | kind::f16 5=pred | 6:0..15
tcgen05.mma tcgen05.mma.sp | kind::tf32 5=pred | 6:0..15
tcgen05.mma.sp | 5=pred 6=#i -kind::i8 | 8.6 sm_100f+
tcgen05.mma.sp | 6=pred 7=#i | 8.6 sm_100f+
tcgen05.mma.sp | kind::f8f6f4 6=pred 7=#i |
tcgen05.mma.sp | kind::f16 6=pred | 7:0..15
tcgen05.mma.sp | kind::tf32 6=pred | 7:0..15
tcgen05.mma.sp | kind::mxf4nvf4 | 8.7 sm_100a sm_103a sm_107a sm_110a
tcgen05.mma.sp | kind::mxf4 | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05.shift | | 8.6 sm_100a sm_103a sm_107a sm_110a
tensormap.cp_fenceproxy | | 2:128
tensormap.replace | | 8.3 sm_100f+ sm_120f+ sm_110f+ sm_90a
tensormap.replace | swizzle_atomicity | 8.6 sm_100+
tensormap.replace | box_dim | 1:0..4
tensormap.replace | fill_mode | 1:0,1
tensormap.replace | elemtype | 1:0..15
tensormap.replace | global_dim | 1:0..4
tensormap.replace | global_stride | 1:0..4
tensormap.replace | swizzle_mode | 1:0..4
tensormap.replace | interleave_layout | 1:0..2
tensormap.replace | element_stride | 1:0..4
tensormap.replace | swizzle_atomicity | 1:0..3
tex tld4 | 0={b32*4}^pred/{f32*4}^pred | 7.1 sm_60+
tex | level | 1.4 sm_20+
tex | 2dms | 3.2 sm_30+
tex | a2dms | 3.2 sm_30+
tld4 | a2d | 4.3 sm_30+
tld4 | cube | 4.3 sm_30+
tld4 | acube | 4.3 sm_30+
txq | level | 4.3 sm_30+
txq | num_mipmap_levels | 4.1 sm_20+
txq | num_samples | 4.1 sm_30+
trace.mark | | 9.5 sm_107f+
trace.mark | | 0:0..4095
vabsdiff2 vabsdiff4 vadd2 vadd4 vavrg2 vavrg4 vmax2 vmax4 vmin2 vmin4 vset2 vset4 vsub2 vsub4 | |
    3.0 sm_30+
vote | | 1.4 sm_12 sm_13 sm_20 sm_21 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 |
    5.1-6.3 sm_70+
vote | b32 | 2.0 sm_20+
wgmma.commit_group wgmma.fence wgmma.mma_async wgmma.wait_group | | 8.0 sm_90a
wgmma.mma_async | | 3:0,1
wgmma.mma_async | | 4:-1,1
wgmma.mma_async | | 5:-1,1
wgmma.mma_async | | 6:0,1
wgmma.mma_async | | 7:0,1
wgmma.mma_async.sp | | 8.2 sm_90a
wgmma.mma_async.sp | | 4:0,1
wgmma.mma_async.sp | | 5:0,1
wgmma.mma_async.sp | | 6:-1,1
wgmma.mma_async.sp | | 7:-1,1
wgmma.mma_async.sp | | 8:0,1
wgmma.mma_async.sp | | 9:0,1
wgmma.wait_group | | 0:0..
wmma.load wmma.mma wmma.store | f64 | 7.0 sm_80+
wmma.load wmma.mma wmma.store | m16n16k8 | 7.0 sm_80+
wmma.load | u8 | 6.3 sm_72+
wmma.load | b1 | 6.3 sm_75+
wmma.load | s8 | 6.3 sm_72+
wmma.load wmma.mma wmma.store | m8n8k32 | 6.3 sm_75+
wmma.load wmma.mma wmma.store | aligned | 6.3
wmma.load wmma.mma wmma.store | -aligned | 6.0-6.2
wmma.load wmma.mma wmma.store | m8n32k16 | 6.1
wmma.load wmma.mma wmma.store | m32n8k16 | 6.1
wmma.mma | satfinite -s32 | 6.0-6.4
wmma.load wmma.store | shared::cta | 7.8
wmma.load | f16 m8n8k128 |
wmma.mma | | 6.0 sm_70+
wmma.mma wmma.store | s32 | 6.3 sm_72+
wmma.mma | and | 7.1 sm_80+
wmma.store | m8n8k128 | 6.3 sm_75+
"""
