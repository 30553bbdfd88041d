"""Moves, conversions, loads and stores (PTX ISA 9.0, section 9.7.9) and the stack (9.7.17)."""

TABLE = """
# 9.7.9.3 to 9.7.9.7
mov        | d a          | move
shfl -sync | d a b c      | shuffle | warp
shfl.sync  | d a b c mask | shuffle | warp
prmt       | d a b c      | move

# 9.7.9.8 to 9.7.9.16 loads and stores; a cache hint adds a policy
ld                 | d [a]=read policy   | memory
ldu                | d [a]=read          | memory
st                 | [a]=write b policy  | memory
st.async +v2/v4    | [a]=write b [done]? | async_copy | async
st.async -v2 -v4   | [a]=write b~ [done]? | async_copy | async
st.bulk            | [a]=write/1/n n b   | memory
multimem.ld_reduce | d [a]=read          | memory
multimem.st.async  | [a]=write b         | async_copy | async
multimem.red.async | [a]=reduce b        | atomic     | async
multimem.st        | [a]=write b         | memory
multimem.red       | [a]=reduce b        | atomic

# 9.7.9.17 to 9.7.9.20 cache control; what discard leaves is undefined, the old bytes on an H200
prefetch                | [a]=prefetch/1/?   | cache | side
prefetchu               | [a]=prefetch/1/?   | cache | side
applypriority           | [a]=prefetch/1/n n | cache | side
discard                 | [a]=update/1/n n   | cache
createpolicy.fractional | d a?               | cache
createpolicy.range      | d [a] b c          | cache
createpolicy.cvt        | d a                | cache

# 9.7.9.21 to 9.7.9.25 addresses and conversions; packed results take two values, `.rs` random bits
isspacep, istypep                                  | p a              | compare
cvta                                               | d a              | convert
mapa                                               | d a b            | convert
getctarank                                         | d a              | convert
cvt +e4m3x4/e5m2x4/e3m2x4/e2m3x4/e2m1x4            | d {a} b          | convert
cvt +f16x2/bf16x2/e4m3x2/e5m2x2/e2m3x2/e3m2x2 +f32 | d a b c@rs scale | convert
cvt +e2m1x2/ue8m0x2/s2f6x2/ue5m3x2 +f32            | d a b scale      | convert
cvt                                                | d a scale        | convert
cvt.pack                                           | d a b c@b32      | convert

# 9.7.9.28 tensor maps in memory
tensormap.replace    | [a]=update/1/128 i@box_dim/global_dim/global_stride/element_stride b | memory
tensormap.cp_fenceproxy | [d]=write/global/n [a]=read/shared::cta/n n        | fence  | warp aligned

# 9.7.10.30 and 9.7.10.31 of 9.4: metadata, compressed data, data
spcompress   | d1 d2 a b | move
spdecompress | d a b     | move

# 9.7.17 stack
stacksave    | d      | stack | state
stackrestore | a      | stack | side
alloca       | d n i? | stack | side
"""

FORMS = """
# conversions; `.ftz` and `.sat` where they mean something
cvt         | @integers/u8/s8 @integers/u8/s8 | !D~ T~
cvt         | sat u8 @integers/s8 | !D~ T~
cvt         | sat s8 @integers/u8 | !D~ T~
cvt         | sat u16 s8/s16/u32/s32/u64/s64 | !D~ T~
cvt         | sat s16 u16/u32/s32/u64/s64 | !D~ T~
cvt         | sat u32 s8/s16/s32/u64/s64 | !D~ T~
cvt         | sat s32 u32/u64/s64 | !D~ T~
cvt         | sat u64 s8/s16/s32/s64 | !D~ T~
cvt         | sat s64 u64 | !D~ T~
cvt         | (rn/rz/rm/rp) [ftz] [sat] f32 @integers/u8/s8 | !D~ T~
cvt         | (rn/rz/rm/rp) [sat] f16/f64 @integers/u8/s8 | !D~ T~
cvt         | rn/rz/rm/rp bf16 @integers | !D~ T~
cvt         | (rni/rzi/rmi/rpi) [ftz] [sat] @integers/u8/s8 f32 | !D~ T~
cvt         | (rni/rzi/rmi/rpi) [sat] @integers/u8/s8 f16/f64 | !D~ T~
cvt         | rni/rzi/rmi/rpi @integers bf16 | !D~ T~
cvt         | rn/rz/rm/rp bf16 u8/s8 | !D~ T | 7.8 sm_90
cvt         | rni/rzi/rmi/rpi u8/s8 bf16 | !D T~ | 7.8 sm_90
cvt         | (rn/rz/rm/rp) [ftz] [sat] f32 f64 | !D~ T~
cvt         | (rn/rz/rm/rp) [sat] f16 f64 | !D~ T~
cvt         | rn/rz/rm/rp [ftz] [sat] f16 f32 | !D~ T~
cvt         | rn/rz/rm/rp [ftz] bf16 f32 | !D~ T~
cvt         | rn/rz [relu] [satfinite] f16/bf16 f32 | !D~ T~
cvt         | [ftz] [sat] f64 f32 | !D~ T~
cvt         | [sat] f64 f16 | !D~ T~
cvt         | [ftz] [sat] f32 f16 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [ftz] [sat] f32 f32 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [sat] f64 f64 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [sat] f16 f16 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] bf16 bf16 | !D~ T~
cvt         | rn/rz/rm/rp bf16 f64 | !D~ T~
cvt         | [rn/rz/rm/rp] bf16 f16 | !D~ T~
cvt         | [rn/rz/rm/rp] f16/f64 bf16 | !D~ T~
cvt         | [rn/rz/rm/rp] [ftz] f32 bf16 | !D~ T~
cvt         | rn/rz [relu] [satfinite] tf32 f32 | !b32 T
cvt         | rna [satfinite] tf32 f32 | !b32 T
cvt         | * f16x2/bf16x2/@packed f32 | !_ T T
cvt         | * f16x2/bf16x2/@packed f16x2/bf16x2/@packed |
cvt         | * e4m3x4/e5m2x4/e2m3x4/e3m2x4/e2m1x4 f32 | | 8.7 sm_100a
cvt.pack    | sat u16/s16 s32 | !s32~ s32~ s32~
cvt.pack    | sat u8/s8/u4/s4/u2/s2 s32 b32 | !s32~ s32~ s32~ b32~

# moves, loads, stores, cache control, addresses
prmt        | b32 [f4e/b4e/rc8/ecl/ecr/rc16] | !D T T T
mov         | b16/b32/b64/u16/u32/u64/s16/s32/s64/f32/f64/pred/b128 | !M M
mov         | v2 b16/b32/b64/u16/u32/u64/s16/s32/s64/f32/f64 | !V M
mov         | v4 b16/b32/u16/u32/s16/s32/f32 | !V M
ld          | [weak] @inside/const/const[]/param/param::entry/param::func [ca/cg/cs/lu/cv]
            [v2/v4/v8] @memory | !V A
ld          | [weak] global [ca/cg/cs/lu/cv/@L1] [L2::cache_hint] [@ahead] [v2/v4/v8] @memory | !V A
ld          | [weak] [ca/cg/cs/lu/cv/@L1] [L2::cache_hint] [@ahead] [v2/v4/v8] @memory | !V A |
            sm_20
ld          | [weak] [global] [ca/cg/cs/lu/cv/@L1] @L2 [L2::cache_hint] [@ahead] v8
            b32/u32/s32/f32 | !V A
ld          | [weak] [global] [ca/cg/cs/lu/cv/@L1] @L2 [L2::cache_hint] [@ahead] v4
            b64/u64/s64/f64 | !V A
ld          | [weak] [global] nc [ca/cg/cs/@L1] [L2::cache_hint] [@ahead] [v2/v4/v8] @memory | !V A
ld          | [weak] [global] nc [ca/cg/cs/@L1] @L2 [L2::cache_hint] [@ahead] v8 b32/u32/s32/f32 |
            !V A
ld          | [weak] [global] nc [ca/cg/cs/@L1] @L2 [L2::cache_hint] [@ahead] v4 b64/u64/s64/f64 |
            !V A
ld          | volatile @inside [v2/v4/v8] @memory | !V A
ld          | volatile global [@ahead] [v2/v4/v8] @memory | !V A
ld          | volatile [@ahead] [v2/v4/v8] @memory | !V A | sm_20
ld          | volatile [global] @L2 [@ahead] v8 b32/u32/s32/f32 | !V A | 8.8 sm_100
ld          | volatile [global] @L2 [@ahead] v4 b64/u64/s64/f64 | !V A | 8.8 sm_100
ld          | relaxed/acquire @scope @shared [v2/v4/v8] @memory | !V A
ld          | relaxed/acquire @scope [global] [@L1] [L2::cache_hint] [@ahead] [v2/v4/v8] @memory |
            !V A
ld          | relaxed/acquire @scope [global] [@L1] @L2 [L2::cache_hint] [@ahead] v8
            b32/u32/s32/f32 | !V A
ld          | relaxed/acquire @scope [global] [@L1] @L2 [L2::cache_hint] [@ahead] v4
            b64/u64/s64/f64 | !V A
ld          | mmio relaxed/acquire sys [global] @memory | !V A
ldu         | [global] [v2] @memory | !V A
ldu         | [global] v4 b8/b16/b32/u8/u16/u32/s8/s16/s32/f32 | !V A
st          | [weak] @inside/param/param::func [wb/cg/cs/wt] [v2/v4/v8] @memory | A V
st          | [weak] global [wb/cg/cs/wt/@L1] [L2::cache_hint] [v2/v4/v8] @memory | A V
st          | [weak] [wb/cg/cs/wt/@L1] [L2::cache_hint] [v2/v4/v8] @memory | A V | sm_20
st          | [weak] [global] [wb/cg/cs/wt/@L1] @L2 [L2::cache_hint] v8 b32/u32/s32/f32 | A V
st          | [weak] [global] [wb/cg/cs/wt/@L1] @L2 [L2::cache_hint] v4 b64/u64/s64/f64 | A V
st          | volatile @inside/global [v2/v4/v8] @memory | A V
st          | volatile [v2/v4/v8] @memory | A V | sm_20
st          | volatile [global] @L2 v8 b32/u32/s32/f32 | A V | 8.8 sm_100
st          | volatile [global] @L2 v4 b64/u64/s64/f64 | A V | 8.8 sm_100
st          | relaxed/release @scope @shared [v2/v4/v8] @memory | A V
st          | relaxed/release @scope [global] [@L1] [L2::cache_hint] [v2/v4/v8] @memory | A V
st          | relaxed/release @scope [global] [@L1] @L2 [L2::cache_hint] v8 b32/u32/s32/f32 | A V
st          | relaxed/release @scope [global] [@L1] @L2 [L2::cache_hint] v4 b64/u64/s64/f64 | A V
st          | mmio relaxed/release sys [global] @memory | A V
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes v2/v4 b32/u32/s32/f32 | A v*T/T
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes v2 b64/u64/s64/f64 | A v*T/T
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes u32/s32/f32/u64/s64/f64 | A T/+*T
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes b32 | A T/1*T/2*b16/4*b8
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes b64 | A T/1*T/2*b32/4*b16
st.async    | [weak] [shared/shared::cta] v2/v4 b32/u32/s32/f32 | A v*T/T
st.async    | [weak] [shared/shared::cta] v2 b64/u64/s64/f64 | A v*T/T
st.async    | [weak] [shared/shared::cta] u32/s32/f32/u64/s64/f64 | A T/+*T
st.async    | [weak] [shared/shared::cta] b32 | A T/1*T/2*b16/4*b8
st.async    | [weak] [shared/shared::cta] b64 | A T/1*T/2*b32/4*b16
st.async    | [weak] shared/shared::cta b128 | A T | 9.2
st.async    | [weak] [global/shared/shared::cta] @plain | A T
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes b128 | A T | 9.2
st.async    | [weak] [@shared] mbarrier::complete_tx::bytes b8/u8/s8/b16/u16/s16 | A T
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster v2/v4 b32/u32/s32/f32
            | A v*T/T
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster v2 b64/u64/s64/f64
            | A v*T/T
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster
            u32/s32/f32/u64/s64/f64 | A T/+*T
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster b32 | A T/1*T/2*b16/4*b8
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster b64 | A T/1*T/2*b32/4*b16
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster b128 | A T | 9.2
st.async    | [shared::cluster] mbarrier::complete_tx::bytes cluster b8/u8/s8/b16/u16/s16 | A T
st.async    | [release] gpu/sys [global] @plain | A T
st.async    | mmio release sys [global] @plain | A T
st.bulk     | [weak] [shared::cta] | . u64/u32 i
prefetch    | [global/local] L1/L2 | A
prefetch    | [global] L2::evict_last/L2::evict_normal | A
prefetch    | [const/param] tensormap |
prefetch    | [L1/L2/L2::evict_last/L2::evict_normal/tensormap] [global] L1::32B valid_addr | A
prefetchu   | L1 | A
isspacep    | @windows | !pred u32/u64
cvta.to     | @windows u32/u64 | !D T
cvta        | @windows u32/u64 | !D M
mapa        | [shared::cluster] u32/u64 | !D T/shared u32
getctarank  | [shared::cluster] u32/u64 | !u32 T/shared
applypriority | [global] L2::evict_normal | A i
discard     | [global] L2 | A i
createpolicy.fractional | @policy [L2::evict_first/L2::evict_unchanged] b64 | !b64 f32
createpolicy.range | [global] @policy [L2::evict_first/L2::evict_unchanged] b64 | !b64 . u32 u32
createpolicy.range | fabric @policy [L2::evict_first/L2::evict_unchanged] b64 | !b64 [parts] u32
            u32
createpolicy.cvt | L2 b64 | !b64 u64
istypep     | texref/samplerref/surfref | !pred u64 | 4.0 sm_30
stacksave   | u32/u64 | !D
stackrestore | u32/u64 | !T
alloca      | u32/u64 | !D T i
shfl        | [sync] up/down/bfly/idx b32 | !D& T b32 b32 b32
tensormap.replace | tile global_address [global/shared::cta] b1024 b64 | . b64
tensormap.replace | tile rank [global/shared::cta] b1024 b32 | . b32
tensormap.replace | tile box_dim/global_dim/element_stride [global/shared::cta] b1024 b32 | . i b32
tensormap.replace | tile global_stride [global/shared::cta] b1024 b64 | . i b64
tensormap.replace | tile elemtype/interleave_layout/swizzle_mode/swizzle_atomicity/fill_mode
            [global/shared::cta] b1024 b32 | . i
tensormap.cp_fenceproxy | global shared::cta tensormap::generic release @scope sync aligned
            [@field] | . . i
spcompress spdecompress | b8/b16 b4/b2 sp::1:2/sp::2:4/sp::4:8 @many |
"""
