"""Forms of control flow, matrices and miscellany; of some, the modifiers are not looked at."""

TABLE = """
bra         | [uni] | label
brx         | idx [uni] | u32 _ | 6.0 sm_30
call        | [uni] |
ret         | [uni] |
exit        |  |
trap        |  |
brkpt       |  | | sm_11
pmevent     | [mask] | | mask:3.0/sm_20
nanosleep   | u32 | u32 | 6.2 sm_70
setmaxnreg  | inc/dec sync aligned u32 | _ | 8.0 sm_90a

cp.async    | ca/cg shared/shared::cta global [L2::cache_hint] [@ahead] | | 7.0 sm_80
cp.async.commit_group |  | | 7.0 sm_80
cp.async.wait_all |  | | 7.0 sm_80
cp.async.wait_group |  | | 7.0 sm_80
cp.async.mbarrier.arrive | [noinc] [shared/shared::cta] b64 | | 7.0 sm_80
cp.async.bulk | * | | 8.0 sm_90
cp.reduce   | * | | 8.0 sm_90
multimem    | * | | 8.1 sm_90
tensormap   | * | | 8.3 sm_90 replace:8.3/sm_90a
ldmatrix    | sync aligned m8n8 x1/x2/x4 [trans] [shared/shared::cta] b16 | | 6.5 sm_75
ldmatrix    | sync aligned m16n16/m8n16 x1/x2/x4 [trans] [shared/shared::cta] * | | 8.6 sm_100a
stmatrix    | sync aligned m8n8 x1/x2/x4 [trans] [shared/shared::cta] b16 | | 7.8 sm_90
stmatrix    | sync aligned m16n8 x1/x2/x4 [trans] [shared/shared::cta] b8 | | 8.6 sm_100a
movmatrix   | sync aligned m8n8 trans b16 | !b32 b32 | 7.8 sm_75

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
mma         | sync aligned m8n8k4/m16n8k4/m16n8k8/m16n8k16 row col [rn/rz/rm/rp] f64 f64 f64 f64 |
            | 7.0 sm_80 m16n8k4:7.8/sm_90 m16n8k8:7.8/sm_90 m16n8k16:7.8/sm_90
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
wmma.load   | a/b/c sync aligned row/col @wmma [global/shared/shared::cta] @fragment | | 6.0 sm_70
            bf16:7.0/sm_80 tf32:7.0/sm_80 f64:7.0/sm_80
wmma.store  | d sync aligned row/col @wmma [global/shared/shared::cta] f16/f32/s32/f64 | | 6.0
            sm_70 bf16:7.0/sm_80 tf32:7.0/sm_80 f64:7.0/sm_80
wmma.mma    | sync aligned row/col row/col @wmma f16/f32 f16/f32 [satfinite] | | 6.0 sm_70
wmma.mma    | sync aligned row/col row/col @wmma f16/f32 f16 f16 f16/f32 [satfinite] | | 6.0 sm_70
wmma.mma    | sync aligned row/col row/col @wmma f32 bf16 bf16 f32 | | 7.0 sm_80
wmma.mma    | sync aligned row/col row/col @wmma f32 tf32 tf32 f32 | | 7.0 sm_80
wmma.mma    | sync aligned row/col row/col @wmma [rn/rz/rm/rp] f64 f64 f64 f64 | | 7.0 sm_80
wmma.mma    | sync aligned row/col row/col @wmma s32 u8/s8/u4/s4 u8/s8/u4/s4 s32 [satfinite] | |
            6.3 sm_72
wmma.mma    | [and/xor] popc sync aligned row/col row/col @wmma s32 b1 b1 s32 | | 6.3 sm_75
wgmma       | * | | 8.0 sm_90a
tcgen05     | * | | 8.6 sm_100a
fabric      | * | | 9.4 sm_107
tex         | [level/grad/base] @texture v4 u32/s32/f32 s32/f32 | 4*D
tex         | [level/grad/base] @texture v2 f16x2 s32/f32 | | 4.2 sm_53
tld4        | r/g/b/a 2d/a2d/cube/acube v4 u32/s32/f32 f32 | 4*D | 2.2 sm_20
txq         | [level] @query b32 |
suq         | * |
sured.b     | add/min/max/and/or @surface u32/u64/s32/s64/b32/b64 trap/clamp/zero | C | 2.0 sm_20
sured.p     | * | | 2.0 sm_20
suld.b      | @surface [v2/v4] b8/b16/b32/b64 trap/clamp/zero | _ C
sust.b      | @surface [v2/v4] b8/b16/b32/b64 trap/clamp/zero | C
sust.p      | @surface [v2/v4] b32 trap/clamp/zero | C
vadd vsub vabsdiff vmin vmax vshl vshr vmad vset | * | | 2.0 sm_20
vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 | * | | 3.0 sm_30
vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4 | * | | 3.0 sm_30
clmad spcompress spdecompress | * |
"""
