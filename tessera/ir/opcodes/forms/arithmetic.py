"""Forms of arithmetic, comparison, logic and conversions (PTX ISA 9.0, sections 9.7.1 to 9.7.9)."""

TABLE = """
# integer
add sub     | u16/u32/u64/s16/s64 | !D T T
add sub     | [sat] s32 | !D T T
add sub     | cc u32/s32/u64/s64 | !D T T | s64:4.3/sm_20 u64:4.3/sm_20
add         | [sat] u16x2/s16x2 | !D T T | 8.0 sm_90 sat:9.2/sm_120a
add sub     | [sat] u8x4/s8x4 | !D T T | 9.2 sm_120a
addc subc   | [cc] u32/s32/u64/s64 | !D T T
mul.lo mul.hi | @integers | !D T T
mul.wide    | u16/u32/s16/s32 | !W T T
mad.lo mad.hi | @integers | !D T T T
mad.lo mad.hi | cc u32/s32/u64/s64 | !D T T T | 3.0 sm_20 s64:4.3 u64:4.3
mad.hi      | sat s32 | !D T T T
mad.wide    | u16/u32/s16/s32 | !W T T W
madc.lo madc.hi | [cc] [sat] u32/s32/u64/s64 | !D T T T | 3.0 sm_20
mul24.lo mul24.hi | u32/s32 | !D T T
mad24.lo mad24.hi | u32/s32 | !D T T T
mad24.hi    | sat s32 | !D T T T
div rem     | @integers | !D T T
sad         | @integers | !D T T T
abs neg     | s16/s32/s64 | !D T
min max     | u16/u32/u64/s16/s64 | !D T T T
min max     | [relu] s32 | !D T T T | relu:8.0/sm_90
min max     | u16x2 | !D T T T | 8.0 sm_90
min max     | [relu] s16x2 | !D T T T | 8.0 sm_90
min max     | u8x4 | !D T T T | 9.2 sm_120a
min max     | [relu] s8x4 | !D T T T | 9.2 sm_120a
popc clz    | b32/b64 | !u32 T | 2.0 sm_20
bfind       | [shiftamt] u32/u64/s32/s64 | !u32 T | 2.0 sm_20
fns         | b32 | !b32 b32 b32 s32 | 6.0 sm_30
brev        | b32/b64 | !D T | 2.0 sm_20
bfe         | u32/u64/s32/s64 | !D T u32 u32 | 2.0 sm_20
bfi         | b32/b64 | !D T T u32 u32 | 2.0 sm_20
szext       | clamp/wrap u32/s32 | !D T u32 | 7.6 sm_70
bmsk        | clamp/wrap b32 | !D u32 u32 | 7.6 sm_70
dp4a        | u32/s32 u32/s32 | !_ _ _ _ | 5.0 sm_61
dp2a.lo dp2a.hi | u32/s32 u32/s32 | !_ _ _ _ | 5.0 sm_61

# floating point
add sub     | [rn/rz/rm/rp] [ftz] [sat] f32 | !D T T
add sub     | [rn/rz/rm/rp] f64 | !D T T
add sub     | [rn] [ftz] [sat] f16/f16x2 | !D T T | 4.2 sm_53
add sub     | [rn] bf16/bf16x2 | !D T T | 7.8 sm_90
add sub     | [rn/rz/rm/rp] [ftz] f32x2 | !D T T | 8.6 sm_100
add sub     | [rn/rz/rm/rp] [sat] f32 f16/bf16 | !D T D | 8.6 sm_100
mul         | [rn/rz/rm/rp] [ftz] [sat] f32 | !D T T
mul         | [rn/rz/rm/rp] f64 | !D T T
mul         | [rn] [ftz] [sat] f16/f16x2 | !D T T | 4.2 sm_53
mul         | [rn] bf16/bf16x2 | !D T T | 7.8 sm_90
mul         | [rn/rz/rm/rp] [ftz] f32x2 | !D T T | 8.6 sm_100
fma         | rn/rz/rm/rp [ftz] [sat] f32 | !D T T T | 2.0 sm_20
fma         | rn/rz/rm/rp f64 | !D T T T
fma         | rn/rz/rm/rp [ftz] f32x2 | !D T T T | 8.6 sm_100
fma         | rn [ftz] [sat/relu] f16/f16x2 | !D T T T | 4.2 sm_53 relu:7.0/sm_80
fma         | rn [relu] bf16/bf16x2 | !D T T T | 7.0 sm_80
fma         | rn oob [relu/sat] f16/f16x2/bf16/bf16x2 | !D T T T | 8.1 sm_90
fma         | rn/rz/rm/rp [sat] f32 f16/bf16 | !D T T D | 8.6 sm_100
mad         | (rn/rz/rm/rp) [ftz] [sat] f32 | !D T T T
mad         | (rn/rz/rm/rp) f64 | !D T T T
div         | (approx/full/rn/rz/rm/rp) [ftz] f32 | !D T T | rm:sm_20 rn:sm_20 rp:sm_20 rz:sm_20
div         | (rn/rz/rm/rp) f64 | !D T T | rm:sm_20 rp:sm_20 rz:sm_20
abs         | [ftz] f32/f16/f16x2 | !D T | f16:6.5/sm_53 f16x2:6.5/sm_53
neg         | [ftz] f32/f16/f16x2 | !D T | f16:6.0/sm_53 f16x2:6.0/sm_53
abs neg     | f64/bf16/bf16x2 | !D T | bf16:7.0/sm_80 bf16x2:7.0/sm_80
min max     | [ftz] [NaN] [xorsign] [abs] f32 | !D T T T | NaN:7.0/sm_80 abs:7.2/sm_86
            xorsign:7.2/sm_86
min max     | f64 | !D T T
min max     | [ftz] [NaN] [xorsign] [abs] f16/f16x2 | !D T T | 7.0 sm_80 abs:7.2/sm_86
            xorsign:7.2/sm_86
min max     | [NaN] [xorsign] [abs] bf16/bf16x2 | !D T T | 7.0 sm_80 abs:7.2/sm_86 xorsign:7.2/sm_86
rcp sqrt    | (approx/rn/rz/rm/rp) [ftz] f32 | !D T | rm:sm_20 rn:sm_20 rp:sm_20 rz:sm_20
rcp sqrt    | (rn/rz/rm/rp) [ftz] f64 | !D T | rm:sm_20 rp:sm_20 rz:sm_20
rcp         | approx ftz f64 | !D T | 2.1 sm_20
rsqrt       | (approx) [ftz] f32 | !D T
rsqrt       | (approx) [ftz] f64 | !D T | ftz:4.0/sm_20
sin cos lg2 | (approx) [ftz] f32 | !D T
ex2         | (approx) [ftz] f32 | !D T
ex2         | approx f16/f16x2 | !D T | 7.0 sm_75
ex2         | approx ftz bf16/bf16x2 | !D T | 7.8 sm_90
tanh        | approx f32/f16/f16x2/bf16/bf16x2 | !D T | 7.0 sm_75 bf16:7.8/sm_90 bf16x2:7.8/sm_90
copysign    | f32/f64 | !D T T | 2.0 sm_20
testp       | finite/infinite/number/notanumber/normal/subnormal f32/f64 | !pred T | 2.0 sm_20

# comparison and selection
setp        | eq/ne [and/or/xor] b16/b32/b64 | !pred T T pred
setp        | @signed [and/or/xor] s16/s32/s64 | !pred T T pred
setp        | @unsigned [and/or/xor] u16/u32/u64 | !pred T T pred
setp        | @real [and/or/xor] [ftz] f32/f16/f16x2 | !pred T T pred | f16:4.2/sm_53
            f16x2:4.2/sm_53
setp        | @real [and/or/xor] f64/bf16/bf16x2 | !pred T T pred | bf16:7.8/sm_90 bf16x2:7.8/sm_90
setp        | * u16x2/s16x2/u8x4/s8x4 | | 9.4 sm_107
set         | eq/ne [and/or/xor] u32/s32/f32 b16/b32/b64 | !D T T pred
set         | @signed [and/or/xor] u32/s32/f32 s16/s32/s64 | !D T T pred
set         | @unsigned [and/or/xor] u32/s32/f32 u16/u32/u64 | !D T T pred
set         | @unsigned [and/or/xor] f16/bf16 @integers/b16/b32/b64 | !D T T pred | 4.2 sm_53
            bf16:7.8/sm_90
set         | @real [and/or/xor] [ftz] u32/s32/f32 f32 | !D T T pred
set         | @real [and/or/xor] u32/s32/f32 f64 | !D T T pred
set         | @real [and/or/xor] [ftz] u16/s16/u32/s32/f16/f32/bf16/f16x2/bf16x2
            f16/f16x2/bf16/bf16x2 | !D T T pred | 4.2 sm_53 bf16:7.8/sm_90 bf16x2:7.8/sm_90
            s16:6.5 s32:6.5 u16:6.5 u32:6.5
set         | @real [and/or/xor] [ftz] f16/bf16 f32/f64 | !D T T pred | 4.2 sm_53 bf16:7.8/sm_90
set         | * u16x2/s16x2/u8x4/s8x4 | | 9.4 sm_107
selp        | b16/b32/b64/@integers/f32/f64 | !D T T pred
slct        | [ftz] b16/b32/b64/@integers/f32/f64 s32/f32 | !D D D T

# logic and shift
and or xor  | pred/b16/b32/b64 | !D T T
not         | pred/b16/b32/b64 | !D T
cnot        | b16/b32/b64 | !D T
lop3        | [and/or] b32 | !D T T T i pred | 4.3 sm_50 and:8.2/sm_70 or:8.2/sm_70
shf.l shf.r | clamp/wrap b32 | !D T T u32 | 3.1 sm_32
shl         | b16/b32/b64 | !D T u32
shr         | b16/b32/b64/@integers | !D T u32
prmt        | b32 [f4e/b4e/rc8/ecl/ecr/rc16] | !D T T T | 2.0 sm_20

# conversions; `.ftz` and `.sat` where they mean something
cvt         | [sat] @integers/u8/s8 @integers/u8/s8 | !D~ T~
cvt         | (rn/rz/rm/rp) [ftz] [sat] f16/f32/f64/bf16 @integers/u8/s8 | !D~ T~ | bf16:7.8/sm_90
cvt         | (rni/rzi/rmi/rpi) [ftz] [sat] @integers/u8/s8 f16/f32/f64/bf16 | !D~ T~ |
            bf16:7.8/sm_90
cvt         | (rn/rz/rm/rp) [ftz] [sat] f32 f64 | !D~ T~
cvt         | (rn/rz/rm/rp) [ftz] [sat] f16 f64 | !D~ T~
cvt         | rn/rz/rm/rp/rs [ftz] [sat] [relu] [satfinite] f16 f32 | !D~ T~ | relu:7.0/sm_80
            satfinite:8.1/sm_70
cvt         | [ftz] [sat] f64 f16/f32 | !D~ T~
cvt         | [ftz] [sat] f32 f16 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [ftz] [sat] f32 f32 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [ftz] [sat] f64 f64 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [ftz] [sat] f16 f16 | !D~ T~
cvt         | [rni/rzi/rmi/rpi] [ftz] [sat] bf16 bf16 | !D~ T~ | 7.8 sm_90
cvt         | rn/rz/rm/rp/rs [ftz] [sat] [relu] [satfinite] bf16 f32 | !D~ T~ | 7.0 sm_80
            satfinite:8.1
cvt         | [rn/rz/rm/rp] [ftz] [sat] [relu] [satfinite] bf16 f16/f64 | !D~ T~ | 7.8 sm_90
cvt         | [rn/rz/rm/rp] [ftz] [sat] [relu] [satfinite] f16 bf16 | !D~ T~ | 7.8 sm_90
cvt         | [rn/rz/rm/rp] [ftz] [sat] f32/f64 bf16 | !D~ T~ | 7.1 sm_80 f64:7.8/sm_90
            ftz:7.8/sm_90
cvt         | rn/rz/rna [relu] [satfinite] tf32 f32 | !b32 T | 7.0 sm_80 relu:7.8/sm_90
            rn:7.8/sm_90 rz:7.8/sm_90 satfinite:8.1
cvt         | * f16x2/bf16x2/@packed f32 | !_ T T | 7.0 sm_80 e4m3x2:7.8/sm_89 e5m2x2:7.8/sm_89
            e2m3x2:8.6/sm_100a e3m2x2:8.6/sm_100a e2m1x2:8.6/sm_100a ue8m0x2:8.6/sm_100a
cvt         | * f16x2/bf16x2/@packed f16x2/bf16x2/@packed | | 7.8 sm_89 e2m3x2:8.6/sm_100a
            e3m2x2:8.6/sm_100a e2m1x2:8.6/sm_100a ue8m0x2:8.6/sm_100a
cvt         | * e4m3x4/e5m2x4/e2m3x4/e3m2x4/e2m1x4 f32 | | 8.7 sm_100a
cvt.pack    | sat u8/s8/u4/s4/u2/s2/u16/s16 s32 [b32] | | 6.5 sm_72
"""
