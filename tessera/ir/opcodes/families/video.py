"""Video instructions (PTX ISA 9.0, section 9.7.18): one, two or four values per register.

A secondary operation or a merge adds `c`. Selectors (`%r1.b0`, `%r1.h10`) are parts of operands.
"""

TABLE = """
# 9.7.18.1 scalar
vadd, vsub, vabsdiff, vmin, vmax | d a b c? | video
vshl, vshr                       | d a b c? | video
vmad                             | d a b c  | video
vset                             | d a b c? | video

# 9.7.18.2 SIMD
vadd2, vsub2, vavrg2, vabsdiff2, vmin2, vmax2, vset2 | d a b c? | video
vadd4, vsub4, vavrg4, vabsdiff4, vmin4, vmax4, vset4 | d a b c? | video
"""

FORMS = """
vadd vsub vabsdiff vmin vmax vshl vshr vmad vset | * |
vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 | * |
vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4 | * |
"""
