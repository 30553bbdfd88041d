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
tcgen05.alloc | @ctas [exclusive] sync aligned [shared::cta] b32 [@ignored] | . u32
tcgen05.dealloc | @ctas [exclusive] sync aligned b32 [@ignored] | u32 u32
tcgen05.relinquish_alloc_permit | @ctas sync aligned [@ignored] |
tcgen05.ld  | sync aligned @lanes/16x32bx2 @many [pack::16b] b32 [@ignored] | !F*b32
tcgen05.st  | sync aligned @lanes @many [unpack::16b] b32 [@ignored] | . !F*b32
tcgen05.st  | sync aligned 16x32bx2 @many [unpack::16b] b32 [@ignored] | . i !F*b32
tcgen05.ld.red | sync aligned 32x32b/16x32bx2 @many min/max u32/s32 [@ignored] | !F*b32 !_
tcgen05.ld.red | sync aligned 32x32b/16x32bx2 @many min/max [abs] [NaN] f32 [@ignored] | !F*b32 !_
tcgen05.ld.spcompress tcgen05.ld.red.spcompress | sync aligned 32x32b @many min/max sp::2:4 [abs]
            [NaN] f32 b2 [@ignored] |
tcgen05.wait::ld tcgen05.wait::st | sync aligned [@ignored] |
tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync | [@ignored] |
tcgen05.cp  | @ctas 128x256b/4x256b/128x128b {b8x16 b6x16_p32/b4x16_p64; b2} |
tcgen05.cp  | @ctas 64x128b warpx2::02_13/warpx2::01_23 {b8x16 b6x16_p32/b4x16_p64; b2} |
tcgen05.cp  | @ctas 32x128b warpx4 {b8x16 b6x16_p32/b4x16_p64; b2} |
tcgen05.shift | @ctas down [@ignored] |
tcgen05.mma | @ctas kind::i8 [@collector] [@ignored] | . . . . . i/pred
tcgen05.mma.sp | @ctas kind::i8 [@collector] [@ignored] | . . . . . . i/pred
tcgen05.mma tcgen05.mma.sp | @ctas @kinds [@collector] [@ignored] |
tcgen05.mma tcgen05.mma.sp | @ctas @kinds ashift [collector::a::lastuse/collector::a::discard]
            [@ignored] | . [u32]
tcgen05.mma | @ctas kind::f8f6f4 decompress::lut::b [@collector] [@ignored] |
tcgen05.mma tcgen05.mma.sp | @ctas kind::mxf8f6f4 block_scale [scale_vec::1X/block32] [@collector]
            [@ignored] |
tcgen05.mma tcgen05.mma.sp | @ctas kind::mxf4 block_scale [scale_vec::2X/block32] [@collector]
            [@ignored] |
tcgen05.mma tcgen05.mma.sp | @ctas kind::mxf4nvf4 block_scale
            scale_vec::2X/scale_vec::4X/block16/block32 [@collector] [@ignored] |
tcgen05.mma.ws tcgen05.mma.ws.sp | cta_group::1 @kinds [@collectors] [@ignored] |
tcgen05.commit | @ctas mbarrier::arrive::one [shared::cluster] [multicast::cluster]
            [sync_restrict::shared::read::mma::a] b64 [@ignored] | . u16
tcgen05.commit | @ctas mbarrier::arrive::one [shared::cluster] multicast::cluster::32b
            [sync_restrict::shared::read::mma::a] b64 [@ignored] | . u32
"""
