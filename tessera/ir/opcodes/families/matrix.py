"""Matrix instructions of warps and warpgroups (PTX ISA 9.0, sections 9.7.14 and 9.7.15)."""

TABLE = """
# 9.7.14.4 wmma: one matrix in memory, at one address for the warp
wmma.load  | d [a]=read/1/matrix stride?  | memory | warp
wmma.store | [a]=write/1/matrix b stride? | memory | warp
wmma.mma   | d a b c                      | tensor | warp

# 9.7.14.5 and 9.7.14.6 mma: scales come with {byte, thread} selectors
mma -block_scale                      | d a b c                     | tensor  | warp
mma +block_scale                      | d a b c s1 {e1} s2 {e2}     | tensor  | warp
mma.sp                                | d a b c e i                 | tensor  | warp
mma.sp::ordered_metadata -block_scale | d a b c e i                 | tensor  | warp
mma.sp::ordered_metadata +block_scale | d a b c e i s1 {e1} s2 {e2} | tensor  | warp
ldmatrix                              | d [a]=read/shared/rows      | shared  | warp
stmatrix                              | [a]=write/shared/rows b     | shared  | warp
movmatrix                             | d a                         | shuffle | warp

# 9.7.15 wgmma: matrices in shared memory behind descriptors, a also in registers
wgmma.fence                             |                                 | tensor | warpgroup
wgmma.commit_group                      |                                 | tensor | warpgroup
wgmma.wait_group                        | i                               | tensor | warpgroup
wgmma.mma_async +s32                    | x smem1 smem2 q                 | tensor | async warpgroup
wgmma.mma_async +s32                    | x {a} smem2 q                   | tensor | async warpgroup
wgmma.mma_async +f16/f32 +tf32/e4m3/e5m2 | x smem1 smem2 q i1 i2          | tensor | async warpgroup
wgmma.mma_async +f16/f32 +tf32/e4m3/e5m2 | x {a} smem2 q i1 i2            | tensor | async warpgroup
wgmma.mma_async +f16/f32 +f16/bf16      | x smem1 smem2 q i1 i2 i3 i4     | tensor | async warpgroup
wgmma.mma_async +f16/f32 +f16/bf16      | x {a} smem2 q i1 i2 i4          | tensor | async warpgroup
wgmma.mma_async.sp +s32                 | x smem1 smem2 e i q             | tensor | async warpgroup
wgmma.mma_async.sp +s32                 | x {a} smem2 e i q               | tensor | async warpgroup
wgmma.mma_async.sp +f16/f32 +tf32/e4m3/e5m2 | x smem1 smem2 e i q i1 i2   | tensor | async warpgroup
wgmma.mma_async.sp +f16/f32 +tf32/e4m3/e5m2 | x {a} smem2 e i q i1 i2     | tensor | async warpgroup
wgmma.mma_async.sp +f16/f32 +f16/bf16   | x smem1 smem2 e i q i1 i2 i3 i4 | tensor | async warpgroup
wgmma.mma_async.sp +f16/f32 +f16/bf16   | x {a} smem2 e i q i1 i2 i4      | tensor | async warpgroup
"""

FORMS = """
ldmatrix    | sync aligned m8n8 x1/x2/x4 [trans] [shared/shared::cta] b16 |
ldmatrix    | sync aligned m16n16/m8n16 x1/x2/x4 [trans] [shared/shared::cta] * |
stmatrix    | sync aligned m8n8 x1/x2/x4 [trans] [shared/shared::cta] b16 |
stmatrix    | sync aligned m16n8 x1/x2/x4 [trans] [shared/shared::cta] b8 |
movmatrix   | sync aligned m8n8 trans b16 | !b32 b32

# matrices: how many registers each operand has follows from shape and type
mma         | sync aligned m8n8k4 row/col row/col f16 f16 f16 f16/f32 | 4*b32 2*b32 2*b32 _ | 6.4
            sm_70
mma         | sync aligned m8n8k4 row/col row/col f32 f16 f16 f16/f32 | 8*f32 2*b32 2*b32 _ | 6.4
            sm_70
mma         | sync aligned m16n8k8 row col f16 f16 f16 f16 | 2*b32 2*b32 1*b32 2*b32 | 6.5 sm_75
mma         | sync aligned m16n8k8 row col f32 f16 f16 f32 | 4*f32 2*b32 1*b32 4*f32 | 6.5 sm_75
mma         | sync aligned m16n8k16 row col f16 f16 f16 f16 | 2*b32 4*b32 2*b32 2*b32 | 7.0 sm_80
mma         | sync aligned m16n8k16 row col f32 f16 f16 f32 | 4*f32 4*b32 2*b32 4*f32 | 7.0 sm_80
mma         | sync aligned m16n8k8/m16n8k16 row col f32 bf16 bf16 f32 | 4*f32 _ _ 4*f32 | 7.0 sm_80
mma         | sync aligned m16n8k4/m16n8k8 row col f32 tf32 tf32 f32 | 4*f32 _ _ 4*f32 | 7.0 sm_80
mma         | sync aligned m8n8k4/m16n8k4/m16n8k8/m16n8k16 row col [rn/rz/rm/rp] f64 f64 f64 f64 | |
            7.0 sm_80 m16n8k4:7.8/sm_90 m16n8k8:7.8/sm_90 m16n8k16:7.8/sm_90
mma         | sync aligned m8n8k16/m16n8k16/m16n8k32 row col [satfinite] s32 u8/s8 u8/s8 s32 | |
            6.5 sm_75 m16n8k16:7.0/sm_80 m16n8k32:7.0/sm_80
mma         | sync aligned m8n8k32/m16n8k32/m16n8k64 row col [satfinite] s32 u4/s4 u4/s4 s32 | |
            6.5 sm_75 m16n8k32:7.0/sm_80 m16n8k64:7.0/sm_80
mma         | sync aligned m8n8k128/m16n8k128/m16n8k256 row col s32 b1 b1 s32 and/xor popc | | 7.0
            sm_75 m16n8k128:sm_80 m16n8k256:sm_80
mma         | sync aligned m16n8k16/m16n8k32 row col f16/f32 e4m3/e5m2 e4m3/e5m2 f16/f32 | | 8.4
            sm_89
mma         | sync aligned m16n8k32/m16n8k64 row col
            kind::f8f6f4/kind::mxf8f6f4/kind::mxf4/kind::mxf4nvf4 * | | 8.7 sm_120a
mma         | sync sp/sp::ordered_metadata aligned * | | 7.1 sm_80
mma.sp      | * | | 7.1 sm_80
mma.sp::ordered_metadata | * | | 8.5 sm_80
wmma.load   | a/b/c sync [aligned] row/col @wmma [global/shared/shared::cta] @fragment |
wmma.store  | d sync [aligned] row/col @wmma [global/shared/shared::cta] f16/f32/s32/f64 |
wmma.mma    | sync [aligned] row/col row/col @wmma f16/f32 f16/f32 [satfinite] |
wmma.mma    | sync [aligned] row/col row/col @wmma f16/f32 f16 f16 f16/f32 [satfinite] | | 6.0 sm_70
wmma.mma    | sync [aligned] row/col row/col @wmma f32 bf16 bf16 f32 |
wmma.mma    | sync [aligned] row/col row/col @wmma f32 tf32 tf32 f32 |
wmma.mma    | sync [aligned] row/col row/col @wmma [rn/rz/rm/rp] f64 f64 f64 f64 |
wmma.mma    | sync [aligned] row/col row/col @wmma s32 u8/s8/u4/s4 u8/s8/u4/s4 s32 [satfinite] |
wmma.mma    | [and/xor] popc sync [aligned] row/col row/col @wmma s32 b1 b1 s32 | | 6.3 sm_75
wgmma       | * |
"""
