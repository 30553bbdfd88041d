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
ldmatrix    | sync aligned m8n8 x1 [trans] [shared/shared::cta] b16 | !1*b32
ldmatrix    | sync aligned m8n8 x2 [trans] [shared/shared::cta] b16 | !2*b32
ldmatrix    | sync aligned m8n8 x4 [trans] [shared/shared::cta] b16 | !4*b32
ldmatrix    | sync aligned m16n16 x1 trans [shared/shared::cta] * | !2*b32
ldmatrix    | sync aligned m16n16 x2 trans [shared/shared::cta] * | !4*b32
ldmatrix    | sync aligned m8n16 x1 [shared/shared::cta] * | !1*b32
ldmatrix    | sync aligned m8n16 x2 [shared/shared::cta] * | !2*b32
ldmatrix    | sync aligned m8n16 x4 [shared/shared::cta] * | !4*b32
stmatrix    | sync aligned m8n8 x1 [trans] [shared/shared::cta] b16 | _ 1*b32
stmatrix    | sync aligned m8n8 x2 [trans] [shared/shared::cta] b16 | _ 2*b32
stmatrix    | sync aligned m8n8 x4 [trans] [shared/shared::cta] b16 | _ 4*b32
stmatrix    | sync aligned m16n8 x1 trans [shared/shared::cta] b8 | _ 1*b32
stmatrix    | sync aligned m16n8 x2 trans [shared/shared::cta] b8 | _ 2*b32
stmatrix    | sync aligned m16n8 x4 trans [shared/shared::cta] b8 | _ 4*b32
movmatrix   | sync aligned m8n8 trans b16 | !b32/!pred b32/pred

# matrices: how many registers each operand has follows from shape and type
mma         | sync aligned m8n8k4 row/col row/col f16 f16 f16 f16 | 4*b32 2*b32 2*b32 4*b32 | 6.4
            sm_70
mma         | sync aligned m8n8k4 row/col row/col f32 f16 f16 f16 | 8*f32 2*b32 2*b32 4*b32 | 6.4
            sm_70
mma         | sync aligned m8n8k4 row/col row/col f32 f16 f16 f32 | 8*f32 2*b32 2*b32 8*f32 | 6.4
            sm_70
mma         | sync aligned m16n8k8 row col f16 f16 f16 f16 | 2*b32 2*b32 1*b32 2*b32 | 6.5 sm_75
mma         | sync aligned m16n8k8 row col f32 f16 f16 f32 | 4*f32 2*b32 1*b32 4*f32 | 6.5 sm_75
mma         | sync aligned m16n8k16 row col f16 f16 f16 f16 | 2*b32 4*b32 2*b32 2*b32 | 7.0 sm_80
mma         | sync aligned m16n8k16 row col f32 f16 f16 f32 | 4*f32 4*b32 2*b32 4*f32 | 7.0 sm_80
mma         | sync aligned m16n8k8 row col f32 bf16 bf16 f32 | 4*f32 2*b32 1*b32 4*f32 | 7.0 sm_80
mma         | sync aligned m16n8k16 row col f32 bf16 bf16 f32 | 4*f32 4*b32 2*b32 4*f32 | 7.0 sm_80
mma         | sync aligned m16n8k4 row col f32 tf32 tf32 f32 | 4*f32 2*b32 1*b32 4*f32 | 7.0 sm_80
mma         | sync aligned m16n8k8 row col f32 tf32 tf32 f32 | 4*f32 4*b32 2*b32 4*f32 | 7.0 sm_80
mma         | sync aligned m8n8k4 row col [rn/rz/rm/rp] f64 f64 f64 f64 | 2*f64 1*f64 1*f64 2*f64 |
            7.0 sm_80
mma         | sync aligned m16n8k4 row col [rn/rz/rm/rp] f64 f64 f64 f64 | 4*f64 2*f64 1*f64 4*f64
            | 7.8 sm_90
mma         | sync aligned m16n8k8 row col [rn/rz/rm/rp] f64 f64 f64 f64 | 4*f64 4*f64 2*f64 4*f64
            | 7.8 sm_90
mma         | sync aligned m16n8k16 row col [rn/rz/rm/rp] f64 f64 f64 f64 | 4*f64 8*f64 4*f64 4*f64
            | 7.8 sm_90
mma         | sync aligned m8n8k16 row col [satfinite] s32 u8/s8 u8/s8 s32 | 2*s32 1*b32 1*b32
            2*s32 | 6.5 sm_75
mma         | sync aligned m16n8k16 row col [satfinite] s32 u8/s8 u8/s8 s32 | 4*s32 2*b32 1*b32
            4*s32 | 7.0 sm_80
mma         | sync aligned m16n8k32 row col [satfinite] s32 u8/s8 u8/s8 s32 | 4*s32 4*b32 2*b32
            4*s32 | 7.0 sm_80
mma         | sync aligned m8n8k32 row col [satfinite] s32 u4/s4 u4/s4 s32 | 2*s32 1*b32 1*b32
            2*s32 | 6.5 sm_75
mma         | sync aligned m16n8k32 row col [satfinite] s32 u4/s4 u4/s4 s32 | 4*s32 2*b32 1*b32
            4*s32 | 7.0 sm_80
mma         | sync aligned m16n8k64 row col [satfinite] s32 u4/s4 u4/s4 s32 | 4*s32 4*b32 2*b32
            4*s32 | 7.0 sm_80
mma         | sync aligned m8n8k128 row col s32 b1 b1 s32 and/xor popc | 2*s32 1*b32 1*b32 2*s32 |
            7.0 sm_75
mma         | sync aligned m16n8k128 row col s32 b1 b1 s32 and/xor popc | 4*s32 2*b32 1*b32 4*s32 |
            7.0 sm_80
mma         | sync aligned m16n8k256 row col s32 b1 b1 s32 and/xor popc | 4*s32 4*b32 2*b32 4*s32 |
            7.0 sm_80
mma         | sync aligned m16n8k16 row col [kind::f8f6f4/@scaled] f16 @fp8 @fp8 f16
            | 2*b32 2*b32 1*b32 2*b32 | 8.7 sm_89
mma         | sync aligned m16n8k16 row col [kind::f8f6f4/@scaled] f32 @fp8 @fp8 f32
            | 4*f32 2*b32 1*b32 4*f32 | 8.7 sm_89
mma         | sync aligned m16n8k32 row col [@scaled] f16 @fp8 @fp8 f16 | 2*b32 4*b32 2*b32 2*b32
            | 8.7 sm_89
mma         | sync aligned m16n8k32 row col [@scaled] f32 @fp8 @fp8 f32 | 4*f32 4*b32 2*b32 4*f32
            | 8.4 sm_89
mma         | sync aligned m16n8k32 row col kind::f8f6f4 f16 @narrow @narrow f16 | 2*b32 4*b32 2*b32
            2*b32 | 8.7 sm_100a
mma         | sync aligned m16n8k32 row col kind::f8f6f4 f32 @narrow @narrow f32 | 4*f32 4*b32 2*b32
            4*f32 | 8.6 sm_100a
mma         | sync aligned m16n8k32 row col kind::mxf8f6f4 block_scale [scale_vec::1X] f32 @narrow
            @narrow f32 ue8m0 | 4*f32 4*b32 2*b32 4*f32 | 8.7 sm_120a
mma         | sync aligned m16n8k64 row col kind::mxf4 block_scale [scale_vec::2X] f32 e2m1 e2m1 f32
            ue8m0 | 4*f32 4*b32 2*b32 4*f32 | 8.7 sm_120a
mma         | sync aligned m16n8k64 row col kind::mxf4nvf4 block_scale scale_vec::2X f32 e2m1 e2m1
            f32 ue8m0 | 4*f32 4*b32 2*b32 4*f32 | 8.7 sm_120a
mma         | sync aligned m16n8k64 row col kind::mxf4nvf4 block_scale scale_vec::4X f32 e2m1 e2m1
            f32 ue4m3/ue8m0 | 4*f32 4*b32 2*b32 4*f32 | 8.7 sm_120a ue8m0:9.1

# sparse matrices: half of a, with its metadata and a selector behind the others
mma         | sync @sparse aligned m16n8k16 row col f16 f16 f16 f16 | 2*b32 2*b32 2*b32 2*b32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k32 row col f16 f16 f16 f16 | 2*b32 4*b32 4*b32 2*b32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k16 row col f32 f16 f16 f32 | 4*f32 2*b32 2*b32 4*f32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k32 row col f32 f16 f16 f32 | 4*f32 4*b32 4*b32 4*f32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k16 row col f32 bf16 bf16 f32 | 4*f32 2*x32 2*x32 4*f32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k32 row col f32 bf16 bf16 f32 | 4*f32 4*x32 4*x32 4*f32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k8 row col f32 tf32 tf32 f32 | 4*f32 2*x32 2*x32 4*f32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k16 row col f32 tf32 tf32 f32 | 4*f32 4*x32 4*x32 4*f32
            x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k32 row col [satfinite] s32 u8/s8 u8/s8 s32 |
            4*s32 2*x32/x32 2*x32 4*s32 x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k64 row col [satfinite] s32 u8/s8 u8/s8 s32 |
            4*s32 4*x32/x32 4*x32 4*s32 x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k64 row col [satfinite] s32 u4/s4 u4/s4 s32 |
            4*s32 2*x32/x32 2*x32 4*s32 x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k128 row col [satfinite] s32 u4/s4 u4/s4 s32 |
            4*s32 4*x32/x32 4*x32 4*s32 x32/+*x32 i | 7.1 sm_80
mma         | sync @sparse aligned m16n8k64 row col f32 @fp8 @fp8 f32 | 4*f32 4*b32 4*b32 4*f32
            x32/+*x32 i | 8.4 sm_89
mma         | sync sp::ordered_metadata aligned m16n8k64 row col [kind::f8f6f4] f16 @fp8 @fp8 f16 |
            2*b32 4*b32 4*b32 2*b32 x32/+*x32 i | 8.7 sm_120a
mma         | sync sp::ordered_metadata aligned m16n8k64 row col kind::f8f6f4 f16 @narrow @narrow
            f16 | 2*b32 4*b32 4*b32 2*b32 x32/+*x32 i | 8.7 sm_120a
mma         | sync sp::ordered_metadata aligned m16n8k64 row col kind::f8f6f4 f32 @narrow @narrow
            f32 | 4*f32 4*b32 4*b32 4*f32 x32/+*x32 i | 8.6 sm_100a
mma         | sync sp::ordered_metadata aligned m16n8k64 row col kind::mxf8f6f4 block_scale
            [scale_vec::1X] f32 @narrow @narrow f32 ue8m0 | 4*f32 4*b32 4*b32 4*f32 x32/+*x32 i |
            8.7 sm_120a
mma         | sync sp::ordered_metadata aligned m16n8k128 row col kind::mxf4 block_scale
            [scale_vec::2X] f32 e2m1 e2m1 f32 ue8m0 | 4*f32 4*b32 4*b32 4*f32 x32/+*x32 i | 8.7
            sm_120a
mma         | sync sp::ordered_metadata aligned m16n8k128 row col kind::mxf4nvf4 block_scale
            scale_vec::2X f32 e2m1 e2m1 f32 ue8m0 | 4*f32 4*b32 4*b32 4*f32 x32/+*x32 i | 8.7
            sm_120a
mma         | sync sp::ordered_metadata aligned m16n8k128 row col kind::mxf4nvf4 block_scale
            scale_vec::4X f32 e2m1 e2m1 f32 ue4m3/ue8m0 | 4*f32 4*b32 4*b32 4*f32 x32/+*x32 i | 8.7
            sm_120a ue8m0:9.1

# matrices in memory
wmma.load   | a/b sync [aligned] row/col @half [@tile] f16 | !8*b32 _ u32
wmma.load   | a/b sync aligned row/col m16n16k16 [@tile] bf16 | !4*b32 _ u32
wmma.load   | a sync aligned row/col m8n32k16 [@tile] bf16 | !2*b32 _ u32
wmma.load   | a sync aligned row/col m32n8k16 [@tile] bf16 | !8*b32 _ u32
wmma.load   | b sync aligned row/col m8n32k16 [@tile] bf16 | !8*b32 _ u32
wmma.load   | b sync aligned row/col m32n8k16 [@tile] bf16 | !2*b32 _ u32
wmma.load   | a/b sync aligned row/col m16n16k16 [@tile] u8/s8 | !2*b32 _ u32
wmma.load   | a sync aligned row/col m8n32k16 [@tile] u8/s8 | !1*b32 _ u32
wmma.load   | a sync aligned row/col m32n8k16 [@tile] u8/s8 | !4*b32 _ u32
wmma.load   | b sync aligned row/col m8n32k16 [@tile] u8/s8 | !4*b32 _ u32
wmma.load   | b sync aligned row/col m32n8k16 [@tile] u8/s8 | !1*b32 _ u32
wmma.load   | a/b sync aligned row/col m16n16k8 [@tile] tf32 | !4*b32 _ u32
wmma.load   | a/b sync aligned row/col m8n8k4 [@tile] f64 | !1*f64 _ u32
wmma.load   | a sync aligned row m8n8k32 [@tile] u4/s4 | !1*b32 _ u32
wmma.load   | b sync aligned col m8n8k32 [@tile] u4/s4 | !1*b32 _ u32
wmma.load   | a sync aligned row m8n8k128 [@tile] b1 | !1*b32 _ u32
wmma.load   | b sync aligned col m8n8k128 [@tile] b1 | !1*b32 _ u32
wmma.load   | c sync [aligned] row/col @half [@tile] f16 | !4*b32 _ u32
wmma.load   | c sync [aligned] row/col @half/m16n16k8 [@tile] f32 | !8*f32 _ u32
wmma.load   | c sync aligned row/col @half [@tile] s32 | !8*s32 _ u32
wmma.load   | c sync aligned row/col m8n8k32/m8n8k128 [@tile] f32/s32 | !2*b32 _ u32
wmma.load   | c sync aligned row/col m8n8k4 [@tile] f64 | !2*f64 _ u32
wmma.store  | d sync [aligned] row/col @half [@tile] f16 | _ 4*b32 u32
wmma.store  | d sync [aligned] row/col @half/m16n16k8 [@tile] f32 | _ 8*f32 u32
wmma.store  | d sync aligned row/col @half [@tile] s32 | _ 8*s32 u32
wmma.store  | d sync aligned row/col m8n8k32/m8n8k128 [@tile] f32/s32 | _ 2*b32 u32
wmma.store  | d sync aligned row/col m8n8k4 [@tile] f64 | _ 2*f64 u32
wmma.mma    | sync [aligned] row/col row/col @half f16 f16 [satfinite] | 4*b32 8*b32 8*b32 4*b32
wmma.mma    | sync [aligned] row/col row/col @half f16 f32 [satfinite] | 4*b32 8*b32 8*b32 8*f32
wmma.mma    | sync [aligned] row/col row/col @half f32 f16 [satfinite] | 8*f32 8*b32 8*b32 4*b32
wmma.mma    | sync [aligned] row/col row/col @half f32 f32 [satfinite] | 8*f32 8*b32 8*b32 8*f32
wmma.mma    | sync aligned row/col row/col m16n16k16 f32 bf16 bf16 f32 | 8*f32 4*b32 4*b32 8*f32
wmma.mma    | sync aligned row/col row/col m8n32k16 f32 bf16 bf16 f32 | 8*f32 2*b32 8*b32 8*f32
wmma.mma    | sync aligned row/col row/col m32n8k16 f32 bf16 bf16 f32 | 8*f32 8*b32 2*b32 8*f32
wmma.mma    | sync aligned row/col row/col m16n16k8 f32 tf32 tf32 f32 | 8*f32 4*b32 4*b32 8*f32
wmma.mma    | sync aligned row/col row/col m8n8k4 [rn/rz/rm/rp] f64 f64 f64 f64 | 2*f64 1*f64 1*f64
            2*f64
wmma.mma    | sync aligned row/col row/col m16n16k16 s32 u8 u8 s32 [satfinite] | 8*s32 2*b32 2*b32
            8*s32
wmma.mma    | sync aligned row/col row/col m16n16k16 s32 s8 s8 s32 [satfinite] | 8*s32 2*b32 2*b32
            8*s32
wmma.mma    | sync aligned row/col row/col m8n32k16 s32 u8 u8 s32 [satfinite] | 8*s32 1*b32 4*b32
            8*s32
wmma.mma    | sync aligned row/col row/col m8n32k16 s32 s8 s8 s32 [satfinite] | 8*s32 1*b32 4*b32
            8*s32
wmma.mma    | sync aligned row/col row/col m32n8k16 s32 u8 u8 s32 [satfinite] | 8*s32 4*b32 1*b32
            8*s32
wmma.mma    | sync aligned row/col row/col m32n8k16 s32 s8 s8 s32 [satfinite] | 8*s32 4*b32 1*b32
            8*s32
wmma.mma    | sync aligned row col m8n8k32 s32 u4 u4 s32 [satfinite] | 2*s32 1*b32 1*b32 2*s32
wmma.mma    | sync aligned row col m8n8k32 s32 s4 s4 s32 [satfinite] | 2*s32 1*b32 1*b32 2*s32
wmma.mma    | and/xor popc sync aligned row col m8n8k128 s32 b1 b1 s32 | 2*s32 1*b32 1*b32 2*s32 |
            6.3 sm_75
wgmma.fence wgmma.commit_group wgmma.wait_group | sync [aligned] |
wgmma.mma_async | sync [aligned] @n64k16 f16 f16 f16 | !F*b32
wgmma.mma_async | sync [aligned] @n64k16 f32 f16/bf16 f16/bf16 | !F*f32
wgmma.mma_async | sync [aligned] @n64k8 f32 tf32 tf32 | !F*f32
wgmma.mma_async | sync [aligned] @n64k32 f16 @fp8 @fp8 | !F*b32
wgmma.mma_async | sync [aligned] @n64k32 f32 @fp8 @fp8 | !F*f32
wgmma.mma_async | sync [aligned] @n64k32 [satfinite] s32 u8/s8 u8/s8 | !F*s32
wgmma.mma_async | sync [aligned] @n64k256 s32 b1 b1 and popc | !F*s32
wgmma.mma_async.sp | sync [aligned] @n64k32 f16 f16 f16 | !F*b32
wgmma.mma_async.sp | sync [aligned] @n64k32 f32 f16/bf16 f16/bf16 | !F*f32
wgmma.mma_async.sp | sync [aligned] @n64k16 f32 tf32 tf32 | !F*f32
wgmma.mma_async.sp | sync [aligned] @n64k64 f16 @fp8 @fp8 | !F*b32
wgmma.mma_async.sp | sync [aligned] @n64k64 f32 @fp8 @fp8 | !F*f32
wgmma.mma_async.sp | sync [aligned] @n64k64 [satfinite] s32 u8/s8 u8/s8 | !F*s32
"""
