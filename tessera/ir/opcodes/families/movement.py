"""Moves, conversions, loads and stores (PTX ISA 9.0, section 9.7.9) and the stack (9.7.18)."""

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
st.async           | [a]=write b [mbar]? | async_copy | async
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

# 9.7.9.26 tensor maps in memory
tensormap.replace    | [a]=update/1/128 i@box_dim/global_dim/global_stride/element_stride b | memory
tensormap.cp_fenceproxy | [d]=write/global/n [a]=read/shared::cta/n n        | fence  | warp aligned

# 9.7.10.30 and 9.7.10.31 of 9.4: metadata, compressed data, data
spcompress   | d1 d2 a b | move
spdecompress | d a b     | move

# 9.7.18 stack
stacksave    | d      | stack | state
stackrestore | a      | stack | side
alloca       | d n i? | stack | side
"""
