"""What ptxas refuses beyond the forms: measured with ptxas 13.4.92.

Learned by the functions of `python -m benchmarks.reading.verdicts learn`, then filtered (see the
errand for a CUDA release); `opcodes.rules` has the notation. A first word has rules only if the
measured statements cover it densely.
"""

RULES = """
applypriority | 7.4 sm_80+
applypriority bulk_group | 9.4 sm_107f+
barrier | 5.1
barrier cluster | 7.8 sm_90+
barrier cta | 7.8
barrier release | 8.0 sm_90+
barrier relaxed | 8.0 sm_90+
barrier acquire | 8.0 sm_90+
clusterlaunchcontrol | 8.6 sm_100+
clusterlaunchcontrol multicast::cluster::all | 8.6 sm_100f+ sm_120f+ sm_110f+
clusterlaunchcontrol -b128 |
cp | 7.0 sm_80+
cp override::global_address | 9.4 sm_107f+
cp bulk | 8.0 sm_90+
cp multicast::cluster::32b | 9.4 sm_107f+
cp cta_group::2 | 8.6 sm_100f+ sm_110f+
cp cta_group::1 | 8.6 sm_100f+ sm_110f+
cp mbarrier::report::validity::per_element::ff | 9.4 sm_107f+
cp mbarrier::report::validity::per_16bytes::80000000 | 9.4 sm_107f+
cp L2::evict_last | 9.4 sm_107f+
cp mbarrier::report::validity::per_16bytes::80 | 9.4 sm_107f+
cp mbarrier::report::validity::per_16bytes::8 | 9.4 sm_107f+
cp mbarrier::report::validity::per_16bytes::8000 | 9.4 sm_107f+
cp mbarrier::report::disabled | 9.4 sm_107f+
cp ignore_oob | 9.2 sm_90+
cp tile::gather4 | 8.6 sm_100+
cp multicast::cluster::16b | 9.4 sm_90+
cp L2::cache_hint | 7.4
cp relaxed | 9.3 sm_90+
cp tile::scatter4 | 8.6 sm_100f+ sm_110f+
cp cp_mask | 8.6 sm_100+
cp L2::64B | 7.4
cp L2::256B | 7.4
cp L1::32B | 7.4
cp L2::128B | 7.4
cp shared::cluster tile::gather4 | 8.6 sm_100f+ sm_110f+
cp prefetch tile::gather4 | 8.6 sm_100f+ sm_110f+
cp mbarrier shared::cta | 7.8
cp mbarrier::complete_tx::bytes -shared::cluster | 8.6 sm_90+
cp shared::cta*2 |
cp multicast::cluster::32b*2 |
cp bulk*2 |
cp mbarrier::report::validity::per_16bytes::8*2 |
cp override::global_address*2 |
cp mbarrier::report::validity::per_16bytes::80000000*2 |
cp mbarrier::report::validity::per_16bytes::8000*2 |
cp global*2 |
cp mbarrier::report::validity::per_element::ff*2 |
cp mbarrier::complete_tx::bytes*2 |
cp cta_group::2*2 |
cp 2!#f/#i/[b32]/[b64]/b128/b32/b64/pred |
cp 3!#i/[b32]/[b64]/b16/b32/b64/pred/{b16*1}/{b16*2} |
cp
    1!#f/#i/[*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}]/[b32]/[b64]/b128/b16/b32/b64/pred/{b16*1}
    |
cp 0!#f/#i/[*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}]/[b32]/[b64]/b128/b16/b32/b64/pred
    |
cp mbarrier::complete_tx::bytes tile::scatter4 |
cp L2::evict_last shared::cta |
cp mbarrier::report::disabled mbarrier::report::validity::per_16bytes::8 |
cp reduce tile::scatter4 |
cp multicast::cluster::16b override::global_address |
cp mbarrier::report::validity::per_16bytes::8 mbarrier::report::validity::per_16bytes::80000000 |
cp cta_group::1 cta_group::2 |
cp noinc tensor |
cp mbarrier::report::validity::per_16bytes::80000000 mbarrier::report::validity::per_element::ff |
cp L2::evict_last shared::cluster |
cp ignore_oob tensor |
cp bulk_group im2col |
cp bulk_group cta_group::2 |
cp 1d tile::gather4 |
cp mbarrier::report::validity::per_16bytes::8000 mbarrier::report::validity::per_element::ff |
cp multicast::cluster override::global_address |
cp bulk shared |
cp ca tensor |
cp tile tile::gather4 |
cp and mbarrier::report::validity::per_16bytes::8000 |
cp arrive bulk |
cp read tile |
cp 2d 4d |
cp b128 tensor |
cp b32 override::global_address |
cp 1d override::global_dim_stride |
cp add multicast::cluster::32b |
cp bulk_group mbarrier::report::validity::per_16bytes::80 |
cp mbarrier::report::validity::per_16bytes::80 mbarrier::report::validity::per_16bytes::8000 |
cp mbarrier::report::disabled mbarrier::report::validity::per_16bytes::80 |
cp 0!#f/[b32]/[b64]/b128/b16/b32/b64/pred mbarrier::complete_tx::bytes |
cp 1![*{b32*4}]/[b32]/[b64]/b32/b64 4d |
cp 1!#f/#i/[*{b32*2}]/[*{b32*5}]/[b32]/[b64]/b32/b64/pred 2d |
cp 1![*{b32*3}]/[b32]/[b64]/b64/{b16*1} 3d |
cp 1!#i/[*{b32*5}]/[b32]/[b64]/b128/b64 5d |
cp 0!#f/[*{b32*2}]/[*{b32*5}]/[b32]/[b64]/b128/b16/b32/b64 2d |
cp 0!#f/[*{b32*3}]/[b32]/[b64]/b32/b64/pred 3d |
cp 0![*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}]/[b32]/[b64] bulk_group |
cp 0![*{b32*5}]/[b32]/[b64]/b128/b16/b32/b64/pred 5d |
cp 0![*{b32*1}]/[b32]/[b64]/b128/b64 1d |
cp 1!#f/#i/[*{b32*1}]/[b32]/[b64]/b128/b16/b32/b64 1d |
cp 1![*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}] cta_group::2 |
cp 1![*{b32*5}]/b64 tile::gather4 |
cp 1!#f/[b32]/[b64]/b128/b16/b32/b64/pred reduce |
cp 3!#i/[b32]/[b64]/b32 multicast::cluster::32b |
cp 0!#f/[*{b32*4}]/[b32]/[b64]/b32/b64 4d |
cp 1![*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}] cta_group::1 |
cp 2!#i/b32/b64 reduce |
cp 1![*{b32*1}]/[b32]/[b64]/b128/b16/b64 override::global_dim |
cp override::global_dim_stride -override::global_address |
cp shared::cluster -mbarrier::complete_tx::bytes |
cp gpu -b128 |
cp tile::scatter4 -2d |
cp s64 -bulk_group |
cp cta_group::1 -mbarrier::complete_tx::bytes |
cp 1!#f/#i/[*{b32*2}]/[b32]/[b64]/b32/b64/pred 2d tile |
cp 0!#f/[*{b32*2}]/[b32]/[b64]/b16/b32/b64 2d tile |
cp 0![*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}] L2 tensor |
elect | 8.0 sm_90+
fabric | 9.3 sm_100+
fabric tensor | 9.4 sm_107f+
fabric try_atom | 9.4
fabric relaxed*2 |
fabric shared::cta*2 |
fabric counted::bytes*2 |
fabric mbarrier::complete_tx::16B*2 |
fabric 2!#i/[b32]/[b64]/b32 |
fabric 3!#i/[b32]/[b64]/b32/b64 |
fabric 4!#i/b16/b64 |
fabric 0![*b64]/[*{b32*1}]/[*{b32*2}]/[*{b32*3}]/[*{b32*4}]/[*{b32*5}]/[b32]/[b64]/b32 |
fabric cp_mask try_red |
fabric b32 try_put |
fabric max override::global_dim_stride |
fabric b64 override::global_address |
fabric b32 override::global_dim_stride |
fabric cp_mask tensor |
fabric tensor try_pullred |
fabric add override::global_dim_stride |
fabric 1![b32]/[b64]/b32/b64 mbarrier::complete_tx::16B |
fabric 0![*b64] try_atom |
fabric 0![*b64]/[*{b32*2}] try_red |
fabric 0![b32]/[b64]/b32 mbarrier::complete_tx::bytes |
fabric override::global_dim -1d |
fabric sys -async |
fabric async -sys |
fabric try_atom -relaxed |
fence | 5.1 sm_70+
fence release | 8.0 sm_90+
fence acquire | 8.3 sm_90+
fence async | 8.0 sm_90+
fence cluster | 7.8 sm_90+
fence fabric::generic | 9.3 sm_100+
fence sync_restrict::shared::cluster::read | 9.4 sm_90+
fence generic::fabric | 9.3 sm_100+
fence fabric::fabric | 9.3 sm_100+
fence proxy | 7.5
fence tensormap::generic | 8.3 sm_90+
fence sync_restrict::shared::cta | 8.6 sm_90+
fence sync_restrict::shared::cluster | 8.6 sm_90+
fence alias sys | 9.3 sm_100+ | 9.4 sm_90 sm_90a
fence release sys | 8.3 sm_90+
fence cta release | 8.3 sm_90+
fence release -mbarrier_init | 8.3 sm_90+
fence sync_restrict::shared::cluster::read -proxy |
mbarrier | 7.0 sm_80+
mbarrier phase_type::primary | 9.3 sm_90+
mbarrier cluster | 8.0 sm_90+
mbarrier multicast::cluster::32b | 9.4 sm_107f+
mbarrier try_wait | 7.8 sm_90+
mbarrier layout::v1 | 9.3 sm_90+
mbarrier phase_type::conditional | 9.3 sm_90+
mbarrier relaxed | 8.0 sm_90+
mbarrier layout::v0 | 9.3 sm_90+
mbarrier expect_tx | 8.0 sm_90+
mbarrier shared::cta | 7.8
mbarrier shared::cluster | 8.0 sm_90+
mbarrier cta | 8.0
mbarrier parity | 7.1
mbarrier phase_type::primary*2 |
mbarrier -b64 |
mbarrier 0![b32]/[b64]/b32/b64/pred/pred^pred |
mbarrier 2!#i/[b32]/[b64]/b32/b64 |
mbarrier 1!#i/[b32]/[b64]/b32/b64/b8 |
mbarrier 3!#i/b32/b64 |
mbarrier shared::cluster try_wait |
mbarrier release try_wait |
mbarrier shared::cluster test_wait |
mbarrier complete_tx release |
mbarrier noComplete relaxed |
mbarrier arrive try_wait |
mbarrier acquire arrive |
mbarrier multicast::cluster::32b shared::cta |
mbarrier acquire check_layout |
mbarrier 0!b64 arrive |
mbarrier 0!pred/pred^pred parity |
mbarrier 2!#i/[b32]/[b64]/b32 parity |
mbarrier 1!#i/[b32]/[b64]/b8 phase_type::primary |
mbarrier 0!pred/pred^pred try_wait |
mbarrier 0![b32]/[b64] shared::cluster |
multimem | 8.1 sm_90+
multimem async | 9.1
multimem cp_mask | 9.1 sm_100+
multimem v4 | 8.2
multimem async release | 9.3 sm_100+
multimem red*2 |
multimem 0![b32]/[b64]/b32/b64/{b32*4} |
multimem 1!#f/#i/[b32]/[b64]/b32/b64 |
multimem ld_reduce release |
multimem add s64 |
multimem acquire red |
multimem b64 s64 |
multimem async relaxed |
multimem cluster weak |
multimem cluster cta |
multimem cp ld_reduce |
multimem 1!#i/[b32]/[b64]/b32 b32 |
multimem 1!#i/[b32]/[b64]/b32 u32 |
multimem 0![b32]/[b64]/b64 b64 |
multimem 1!#i/[b32]/[b64]/b32 s32 |
multimem 1!#f/#i/[b32]/[b64]/b64 b64 |
multimem 0![b32]/[b64]/b32 u32 |
multimem 1!#i/[b32]/[b64]/b64 u64 |
multimem 0![b32]/[b64]/b32 b32 |
multimem 1!#i/[b32]/[b64]/b64 s64 |
multimem 0![b32]/[b64]/b64 u64 |
multimem 0![b32]/[b64]/b64 s64 |
multimem 0!b32/b64 acquire |
multimem f32 -add |
multimem bulk -shared::cta |
redux | 7.0 sm_80+
redux f32 | 8.6 sm_100f+
setmaxnreg | 8.0 sm_100f+ sm_120f+ sm_110f+ sm_90a
shfl -sync | 3.0 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61 sm_62 | 3.0-6.3 sm_70+
spcompress | 9.4 sm_107a
spdecompress | 9.4 sm_107a
stmatrix | 7.8 sm_90+
stmatrix m16n8 | 8.6 sm_100f+ sm_120f+ sm_110f+
tcgen05 | 8.6 sm_100f+ sm_110f+
tcgen05 red | 8.8 sm_101+
tcgen05 kind::ti16 | 9.4 sm_107f+
tcgen05 kind::i8 | 8.6 sm_100a sm_110a
tcgen05 spcompress | 9.4 sm_107a
tcgen05 scale_vec::2X | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05 scale_vec::4X | 8.7 sm_100a sm_103a sm_107a sm_110a
tcgen05 scale_vec::1X | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05 exclusive | 9.4
tcgen05 sync_restrict::shared::read::mma::a | 9.4 sm_107f+
tcgen05 block32 | 8.8
tcgen05 multicast::cluster::32b | 9.4 sm_107f+
tcgen05 decompress::lut::b | 9.4 sm_107f+
tcgen05 block16 | 8.8
tcgen05 shift | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05 kind::mxf4nvf4 | 8.7
tcgen05 kind::mxf4nvf4 sp | 8.7 sm_100a sm_103a sm_107a sm_110a
tcgen05 kind::mxf4 sp | 8.6 sm_100a sm_103a sm_107a sm_110a
tcgen05 5=pred 6=#i | 8.6 sm_100f+
tcgen05 4=pred 5=#i | 8.6 sm_100f+
tcgen05 5=#i kind::tf32 | 8.6 sm_100f+
tcgen05 collector::a::discard*2 |
tcgen05 st*2 |
tcgen05 3!#i/[b32]/b32 |
tcgen05 1!#i/[b32]/b16/b32/b64/{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8}
    |
tcgen05 4!#i/[b32]/b32/pred/{b32*4}/{b32*8} |
tcgen05 0![b32]/[b64]/b32/{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8} |
tcgen05 2!#i/[b32]/b32/b64/{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8} |
tcgen05 6!#i/[b32]/b64/pred |
tcgen05 5!#i/[b32]/b64/pred/{b32*4} |
tcgen05 7!#i/pred |
tcgen05 cta_group::2 ws |
tcgen05 red x1 |
tcgen05 kind::f16 sync |
tcgen05 b4x16_p64 unpack::16b |
tcgen05 abs s32 |
tcgen05 kind::mxf4 scale_vec::4X |
tcgen05 b6x16_p32 collector::b1::use |
tcgen05 16x64b red |
tcgen05 16x256b red |
tcgen05 block16 kind::mxf8f6f4 |
tcgen05 mma u32 |
tcgen05 kind::mxf4nvf4 scale_vec::1X |
tcgen05 64x128b mma |
tcgen05 b6x16_p32 collector::b3::lastuse |
tcgen05 b64 mma |
tcgen05 kind::mxf4 scale_vec::1X |
tcgen05 kind::f16 kind::tf32 |
tcgen05 NaN mma |
tcgen05 cta_group::2 x128 |
tcgen05 aligned mma |
tcgen05 kind::mxf4nvf4 x4 |
tcgen05 b6x16_p32 collector::b1::fill |
tcgen05 f32 sp |
tcgen05 collector::b3::fill sync |
tcgen05 abs block_scale |
tcgen05 mma multicast::cluster::32b |
tcgen05 block_scale collector::b1::fill |
tcgen05 16x256b kind::tf32 |
tcgen05 down mma |
tcgen05 b6x16_p32 kind::ti16 |
tcgen05 f32 u32 |
tcgen05 1!#i/[b32]/b64 mma |
tcgen05 1!#i/[b32]/b32/{b32*1} 16x32bx2 |
tcgen05 2!#i/b64 mma |
tcgen05 1!#i/{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8} st |
tcgen05 0![b32]/{b32*128}/{b32*4} x128 |
tcgen05 0![b32]/{b32*16}/{b32*1}/{b32*4}/{b32*8} x4 |
tcgen05 0![b32]/{b32*2}/{b32*4}/{b32*8} x2 |
tcgen05 4!#i/b32/pred ws |
tcgen05 0![b32]/{b32*128}/{b32*1}/{b32*32}/{b32*64} x32 |
tcgen05 0![b32]/{b32*128}/{b32*2}/{b32*64} x64 |
tcgen05 0![b32]/{b32*16}/{b32*1}/{b32*32}/{b32*64} x16 |
tcgen05 16x32bx2 2!#i/[b32]/{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8} |
tcgen05 1!b32/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8} max |
tcgen05 2!#i/[b32]/b32 ld |
tcgen05 0!{b32*128}/{b32*16}/{b32*1}/{b32*2}/{b32*32}/{b32*4}/{b32*64}/{b32*8} abs |
tcgen05 1!#i/[b32]/b32/{b32*128}/{b32*32}/{b32*64} x64 |
tcgen05 #!3/4 f32 |
tcgen05 0![b32]/{b32*16}/{b32*1}/{b32*32}/{b32*8} x8 |
tcgen05 1!#i/[b32]/b32/{b32*128}/{b32*1}/{b32*64} x128 |
tcgen05 3!#i/[b32] min |
tcgen05 4!#i/[b32]/b32/pred/{b32*8} cta_group::2 |
tcgen05 0![b32] ws |
tcgen05 4!#i/[b32]/b32 block_scale |
tcgen05 1!#i/[b32]/b32/{b32*16}/{b32*1}/{b32*32}/{b32*4}/{b32*8} x8 |
tcgen05 1!b32/{b32*1} s32 |
tcgen05 1!#i/[b32]/b32/{b32*2}/{b32*4}/{b32*8} x2 |
tcgen05 1!#i/[b32]/b16/b32/b64 cta_group::2 |
tcgen05 #!7/8 kind::mxf4nvf4 |
tcgen05 aligned -sync |
tcgen05 sync -aligned |
tcgen05 ws -cta_group::1 |
tcgen05 collector::b2::lastuse -ws |
tcgen05 block16 -kind::mxf4nvf4 |
tcgen05 collector::b3::discard -ws |
tcgen05 collector::b2::discard -ws |
tcgen05 shared::cluster -commit |
tcgen05 collector::b1::use -ws |
tcgen05 collector::b2::fill -ws |
tcgen05 collector::b0::fill -ws |
tcgen05 collector::b0::use -ws |
tcgen05 collector::b3::use -ws |
tcgen05 x1 -b32 |
tcgen05 sp::2:4 -32x32b |
tcgen05 warpx4 -32x128b |
tcgen05 collector::b3::lastuse -ws |
tcgen05 collector::b0::discard -ws |
tcgen05 collector::b1::discard -ws |
tcgen05 alloc -b32 |
tcgen05 abs -f32 |
tcgen05 pack::16b -b32 |
tensormap | 8.3 sm_90+
tensormap tile | 8.3 sm_100f+ sm_120f+ sm_110f+ sm_90a
tensormap swizzle_atomicity | 8.6 sm_100f+ sm_120f+ sm_110f+
tensormap tile*2 |
tensormap replace*2 |
tensormap sync -tensormap::generic |
vote -sync | 1.2 sm_12 sm_13 sm_20 sm_21 sm_30 sm_32 sm_35 sm_37 sm_50 sm_52 sm_53 sm_60 sm_61
    sm_62 | 1.2-6.3 sm_70+
wgmma | 8.0 sm_90a
wgmma sp | 8.2
wgmma s8 | 8.4
"""
