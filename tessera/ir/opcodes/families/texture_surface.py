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
