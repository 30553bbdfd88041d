"""Tensor cores of the fifth generation and tensor memory (PTX ISA 9.0, section 9.7.16).

`tmem` is a space of its own: an address in it is a lane and a column. Matrices in shared
memory (`smem`) stand behind descriptors.
"""

TABLE = """
# 9.7.16.7 allocation: the address of the columns goes to shared memory
tcgen05.alloc                   | [a]=write/1/4 b | tensor_memory | warp
tcgen05.dealloc                 | a b             | tensor_memory | warp
tcgen05.relinquish_alloc_permit |                 | tensor_memory | warp

# 9.7.16.8 data movement; the shape 16x32bx2 has the offset of the second half
tcgen05.ld                | d [tmem] i@16x32bx2              | tensor_memory | async warp
tcgen05.ld.red            | d d2 [tmem] i@16x32bx2           | tensor_memory | async warp
tcgen05.ld.spcompress     | d1 d2 [tmem]                     | tensor_memory | async warp
tcgen05.ld.red.spcompress | d1 d2 d3 [tmem]                  | tensor_memory | async warp
tcgen05.st                | [tmem]=write/tmem/? i@16x32bx2 b | tensor_memory | async warp
tcgen05.wait::ld          |                                  | tensor_memory | warp
tcgen05.wait::st          |                                  | tensor_memory | warp
tcgen05.cp                | [tmem]=write/tmem/? smem         | tensor_memory | async
tcgen05.shift             | [acc]                            | tensor_memory | async

# 9.7.16.10 multiply; a is in shared or in tensor memory
tcgen05.mma -block_scale    | [acc] smem1 smem2 [lut] desc {mask}? q i?          | tensor | async
tcgen05.mma -block_scale    | [acc] [tmem1] smem2 [lut] desc {mask}? q i?        | tensor | async
tcgen05.mma +block_scale    | [acc] smem1 smem2 desc [tmem2] [tmem3] q           | tensor | async
tcgen05.mma +block_scale    | [acc] [tmem1] smem2 desc [tmem2] [tmem3] q         | tensor | async
tcgen05.mma.sp -block_scale | [acc] smem1 smem2 [tmem4] desc {mask}? q i?        | tensor | async
tcgen05.mma.sp -block_scale | [acc] [tmem1] smem2 [tmem4] desc {mask}? q i?      | tensor | async
tcgen05.mma.sp +block_scale | [acc] smem1 smem2 [tmem4] desc [tmem2] [tmem3] q   | tensor | async
tcgen05.mma.sp +block_scale | [acc] [tmem1] smem2 [tmem4] desc [tmem2] [tmem3] q | tensor | async
tcgen05.mma.ws              | [acc] smem1 smem2 desc q desc2?                    | tensor | async
tcgen05.mma.ws              | [acc] [tmem1] smem2 desc q desc2?                  | tensor | async
tcgen05.mma.ws.sp           | [acc] smem1 smem2 [tmem4] desc q desc2?            | tensor | async
tcgen05.mma.ws.sp           | [acc] [tmem1] smem2 [tmem4] desc q desc2?          | tensor | async

# 9.7.16.11 and 9.7.16.12 order
tcgen05.fence::before_thread_sync |             | fence   | side
tcgen05.fence::after_thread_sync  |             | fence   | side
tcgen05.commit                    | [mbar] ctas | barrier | side
"""

FORMS = """
tcgen05     | * |
"""
