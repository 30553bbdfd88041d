"""Integer and floating-point arithmetic (PTX ISA 9.0, sections 9.7.1 to 9.7.5)."""

TABLE = """
# 9.7.2 extended precision: `.cc` writes the carry flag, addc, subc and madc read it
add, sub +cc   | d a b   | integer | side
mad +cc        | d a b c | integer | side
addc, subc +cc | d a b   | integer | side state
madc +cc       | d a b c | integer | side state
addc, subc -cc | d a b   | integer | state
madc -cc       | d a b c | integer | state

# 9.7.1 integer, 9.7.3 floating point, 9.7.4 half precision, 9.7.5 mixed precision
add, sub -cc           | d a b     | arithmetic
mul, div, rem          | d a b     | arithmetic
mad -cc                | d a b c   | arithmetic
fma                    | d a b c   | float
min, max               | d a b c?  | arithmetic  # three inputs since 8.8
abs, neg               | d a       | arithmetic
mul24                  | d a b     | integer
mad24, sad             | d a b c   | integer
popc, clz, bfind, brev | d a       | integer
fns                    | d a b c   | integer
clmad                  | d a b c   | integer  # carry-less, 9.3
bfe                    | d a b c   | integer
bfi                    | d a b c e | integer
szext, bmsk            | d a b     | integer
dp4a, dp2a             | d a b c   | integer
copysign               | d a b     | float
testp                  | p a       | compare

# 9.7.3.13 to 9.7.3.22, 9.7.4.9 and 9.7.4.10
rcp, sqrt, rsqrt   | d a | special_function
sin, cos, lg2, ex2 | d a | special_function
tanh               | d a | special_function
"""

FORMS = """
# integer
add sub     | u16/u32/u64/s16/s64 | !D T T
add         | sat u32 | !D T T
add sub     | [sat] s32 | !D T T
add sub     | cc u32/s32/u64/s64 | !D T T
add         | [sat] u16x2/s16x2 | !D T T
add sub     | [sat] u8x4/s8x4 | !D T T
addc subc   | [cc] u32/s32/u64/s64 | !D T T
mul.lo mul.hi | @integers | !D T T
mul.wide    | u16/u32/s16/s32 | !W T T
mad.lo mad.hi | @integers | !D T T T
mad.lo mad.hi | cc u32/s32/u64/s64 | !D T T T
mad.hi      | sat s32 | !D T T T
mad.wide    | u16/u32/s16/s32 | !W T T W
madc.lo madc.hi | [cc] u32/s32/u64/s64 | !D T T T
madc.hi     | sat s32 | !D T T T
mul24.lo mul24.hi | u32/s32 | !D T T
mad24.lo mad24.hi | u32/s32 | !D T T T
mad24.hi    | sat s32 | !D T T T
div rem     | @integers | !D T T
sad         | @integers | !D T T T
abs neg     | s16/s32/s64 | !D T
min max     | u16/u32/u64/s16/s64 | !D T T -
min max     | [relu] s32 | !D T T -
min max     | u16x2 | !D T T -
min max     | [relu] s16x2 | !D T T -
min max     | u8x4 | !D T T -
min max     | [relu] s8x4 | !D T T -
popc clz    | b32/b64 | !u32 T
bfind       | [shiftamt] u32/u64/s32/s64 | !u32 T
fns         | b32 | !b32 b32 b32 s32/f32
brev        | b32/b64 | !D T
bfe         | u32/u64/s32/s64 | !D T u32 u32
bfi         | b32/b64 | !D T T u32 u32
szext       | clamp/wrap u32/s32 | !D T u32
bmsk        | clamp/wrap b32 | !D u32 u32
dp4a        | u32/s32 u32/s32 | !u32 u32 u32 u32
dp2a.lo dp2a.hi | u32/s32 u32/s32 | !u32 u32 u32 u32
clmad.lo clmad.hi | u64 | !D T T T

# floating point
add sub     | [rn/rz/rm/rp] [ftz] [sat] f32 | !D T T
add sub     | [rn/rz/rm/rp] f64 | !D T T
add sub     | [rn] [ftz] [sat] f16/f16x2 | !D T T
add sub     | [rn] bf16/bf16x2 | !D T T
add sub     | [rn/rz/rm/rp] [ftz] f32x2 | !D T T
add sub     | [rn/rz/rm/rp] [sat] f32 f16/bf16 | !D T D
mul         | [rn/rz/rm/rp] [ftz] [sat] f32 | !D T T
mul         | [rn/rz/rm/rp] f64 | !D T T
mul         | [rn] [ftz] [sat] f16/f16x2 | !D T T
mul         | [rn] bf16/bf16x2 | !D T T
mul         | [rn/rz/rm/rp] [ftz] f32x2 | !D T T
fma         | rn/rz/rm/rp [ftz] [sat] f32 | !D T T T
fma         | rn/rz/rm/rp f64 | !D T T T
fma         | rn/rz/rm/rp [ftz] f32x2 | !D T T T
fma         | rn [ftz] [sat/relu] f16/f16x2 | !D T T T
fma         | rn/rz/rm/rp [relu] bf16/bf16x2 | !D T T T
fma         | rn oob [relu/sat] f16/f16x2 | !D T T T
fma         | rn/rz/rm/rp oob [relu] bf16/bf16x2 | !D T T T
fma         | rn/rz/rm/rp [sat] f32 f16/bf16 | !D T T D
mad         | [rn/rz/rm/rp] [ftz] [sat] f32 | !D T T T
mad         | (rn/rz/rm/rp) f64 | !D T T T
div         | (approx/full/rn/rz/rm/rp) [ftz] f32 | !D T T
div         | (rn/rz/rm/rp) f64 | !D T T
abs         | [ftz] f32/f16/f16x2 | !D T
neg         | [ftz] f32/f16/f16x2 | !D T
abs neg     | f64/bf16/bf16x2 | !D T
min max     | [ftz] [NaN] [abs] f32 | !D T T T  # without abs, or of three inputs
min max     | [ftz] [NaN] xorsign abs f32 | !D T T -
min max     | f64 | !D T T -
min max     | [ftz] [NaN] f16/f16x2 | !D T T -
min max     | [ftz] [NaN] xorsign abs f16/f16x2 | !D T T -
min max     | [NaN] bf16/bf16x2 | !D T T -
min max     | [NaN] xorsign abs bf16/bf16x2 | !D T T -
rcp sqrt    | (approx/rn/rz/rm/rp) [ftz] f32 | !D T
rcp         | (rn/rz/rm/rp) [ftz] f64 | !D T
sqrt        | (rn/rz/rm/rp) f64 | !D T
rcp         | approx ftz f64 | !D T
rsqrt       | (approx) [ftz] f32 | !D T
rsqrt       | (approx) [ftz] f64 | !D T
sin cos lg2 | (approx) [ftz] f32 | !D T
ex2         | (approx) [ftz] f32 | !D T
ex2         | approx f16/f16x2 | !D T
ex2         | approx ftz bf16/bf16x2 | !D T
tanh        | approx f32/f16/f16x2/bf16/bf16x2 | !D T
copysign    | f32/f64 | !D T T
testp       | [finite/infinite/number/notanumber/normal/subnormal] f32/f64 | !pred T
"""
