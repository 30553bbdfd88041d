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
