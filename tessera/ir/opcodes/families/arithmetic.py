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
