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
