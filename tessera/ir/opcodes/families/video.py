"""Video instructions (PTX ISA 9.0, section 9.7.18): one, two or four values per register.

A secondary operation or a merge adds `c`. Selectors (`%r1.b0`, `%r1.h10`) are parts of operands.
"""

TABLE = """
# 9.7.18.1 scalar
vadd, vsub, vabsdiff, vmin, vmax +add/min/max | d a b c  | video
vshl, vshr, vset +add/min/max                 | d a b c  | video
vadd, vsub, vabsdiff, vmin, vmax -add -min -max | d a b c? | video
vshl, vshr, vset -add -min -max               | d a b c? | video
vmad                                          | d a b c  | video

# 9.7.18.2 SIMD
vadd2, vsub2, vavrg2, vabsdiff2, vmin2, vmax2, vset2 | d a b c | video
vadd4, vsub4, vavrg4, vabsdiff4, vmin4, vmax4, vset4 | d a b c | video
"""

FORMS = """
vadd vsub vabsdiff vmin vmax | u32/s32 u32/s32 u32/s32 [sat] | !%u32 %u32 %u32 u32
vadd vsub vabsdiff vmin vmax | u32/s32 u32/s32 u32/s32 [sat] add/min/max | !u32 %u32 %u32 u32
vshl vshr   | u32/s32 u32/s32 u32 [sat] clamp/wrap | !%u32 %u32 %u32 u32
vshl vshr   | u32/s32 u32/s32 u32 [sat] clamp/wrap add/min/max | !u32 %u32 %u32 u32
vmad        | u32/s32 u32/s32 u32/s32 [po] [sat] [shr7/shr15] | !u32 %u32 %u32 %u32
vset        | u32/s32 u32/s32 @signed | !%u32 %u32 %u32 u32
vset        | u32/s32 u32/s32 @signed add/min/max | !u32 %u32 %u32 u32
vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 | u32/s32 u32/s32 u32/s32 [sat/add] | !%u32 !%u32 !%u32
            !u32
vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 | u32/s32 u32/s32 u32/s32 [sat/add] | !%u32 !%u32 !%u32
            !u32
vset2 vset4 | u32/s32 u32/s32 @signed [add] | !%u32 !%u32 !%u32 !u32
"""
