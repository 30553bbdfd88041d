"""Comparison, selection, logic and shift (PTX ISA 9.0, sections 9.7.6 to 9.7.8)."""

TABLE = """
# 9.7.6 comparison and selection, 9.7.7 half precision; a boolean operator adds a predicate
set  | d a b q@and/or/xor | compare
setp | p a b q@and/or/xor | compare  # p may be a pair p|q
selp | d a b q            | compare
slct | d a b c            | compare

# 9.7.8 logic and shift
and, or, xor       | d a b       | logic
not, cnot          | d a         | logic
lop3 +and/or/xor   | d a b c i q | logic  # d is a pair d|p
lop3 -and -or -xor | d a b c i   | logic
shf                | d a b c     | logic
shl, shr           | d a b       | logic
"""

FORMS = """
# comparison and selection
setp        | eq/ne [and/or/xor] b16/b32/b64 | !_pred& T T pred
setp        | @signed [and/or/xor] s16/s32/s64 | !_pred& T T pred
setp        | @unsigned [and/or/xor] u16/u32/u64 | !_pred& T T pred
setp        | @real [and/or/xor] [ftz] f32/f16/f16x2 | !_pred& T T pred
setp        | @real [and/or/xor] f64/bf16/bf16x2 | !_pred& T T pred
setp        | * u16x2/s16x2/u8x4/s8x4 | | 9.4 sm_107
set         | eq/ne [and/or/xor] u32/s32/f32/f16/bf16 b16/b32/b64 | !D T T pred
set         | @signed [and/or/xor] u32/s32/f32/f16/bf16 s16/s32/s64 | !D T T pred
set         | @unsigned [and/or/xor] u32/s32/f32/f16/bf16 u16/u32/u64 | !D T T pred
set         | @real [and/or/xor] [ftz] u32/s32/f32/f16 f32 | !D T T pred
set         | @real [and/or/xor] u32/s32/f32/f16/bf16 f64 | !D T T pred
set         | @real [and/or/xor] bf16 f32/f16 | !D T T pred
set         | @real [and/or/xor] [ftz] u16/s16/u32/s32 f16 | !D T T pred | 6.5
set         | @real [and/or/xor] [ftz] f16 f16 | !D T T pred
set         | @real [and/or/xor] u16/s16/u32/s32/bf16 bf16 | !D T T pred
set         | @real [and/or/xor] [ftz] u32/s32 f16x2 | !D T T pred | 6.5
set         | @real [and/or/xor] [ftz] f16x2 f16x2 | !D T T pred
set         | @real [and/or/xor] u32/s32/bf16x2 bf16x2 | !D T T pred
set         | * u16x2/s16x2/u8x4/s8x4 |
selp        | b16/b32/b64/@integers/f32/f64 | !D T T pred
slct        | b16/b32/b64/@integers/f32/f64 s32 | !D D D T
slct        | [ftz] b16/b32/b64/@integers/f32/f64 f32 | !D D D T

# logic and shift
and or xor  | pred/b16/b32/b64 | !D T T
not         | pred/b16/b32/b64 | !D T
cnot        | b16/b32/b64 | !D T
lop3        | and/or b32 | !D&& T T T i pred
lop3        | b32 | !_D T T T i
shf.l shf.r | clamp/wrap b32 | !D T T u32
shl         | b16/b32/b64 | !D T u32
shr         | b16/b32/b64/@integers | !D T u32
"""
