"""Textures and surfaces (PTX ISA 9.0, sections 9.7.10 and 9.7.11).

Coordinates, and a sampler in independent mode, stand inside the brackets. Offsets (`e`) and the
reference of a depth comparison come after them and are optional; the destination of `tex`,
`tld4` may be a pair with a predicate that says whether the texels are resident.
"""

TABLE = """
# 9.7.10; a is a level of detail or gradient
tex -level -grad | d [tex]=read/tex/? b? c?     | texture
tex +level       | d [tex]=read/tex/? a b? c?   | texture
tex +grad        | d [tex]=read/tex/? a b c? e? | texture
tld4             | d [tex]=read/tex/? b? c?     | texture
txq              | d [opaque] a@level           | texture

# 9.7.11
suld  | d [surf]=read/surf/?   | surface
sust  | [surf]=update/surf/? b | surface
sured | [surf]=reduce/surf/? b | surface
suq   | d [opaque]             | surface
"""

FORMS = """
tex         | [level/grad/base] @texture v4 u32/s32/f32 s32/f32 | 4*D&
tex         | [level/grad/base] @texture v2 f16x2 s32/f32 | | 4.2 sm_53
tld4        | r/g/b/a 2d/a2d/cube/acube v4 u32/s32/f32 f32 | 4*D& | 2.2 sm_20
txq         | [level] @query b32 |
suq         | * |
sured.b     | add/min/max/and/or @surface u32/u64/s32/s64/b32/b64 trap/clamp/zero | C | 2.0 sm_20
sured.p     | * | | 2.0 sm_20
suld.b      | @surface [v2/v4] b8/b16/b32/b64 trap/clamp/zero | _ C
sust.b      | @surface [v2/v4] b8/b16/b32/b64 trap/clamp/zero | C
sust.p      | @surface [v2/v4] b32 trap/clamp/zero | C
"""
