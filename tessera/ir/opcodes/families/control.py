"""Control flow and miscellaneous instructions (PTX ISA 9.0, sections 9.7.12 and 9.7.19)."""

TABLE = """
# 9.7.12 control flow; the shapes of the operands tell the forms of call apart
bra     | label                     | control | branch
brx.idx | a targets                 | control | indexed_branch
call    | f                         | control | call
call    | (results) f (args)        | control | call
call    | f (args)                  | control | call
call    | (results) f               | control | call
call    | (results) pointer (args) proto | control | call
call    | pointer (args) proto      | control | call
call    | (results) pointer proto   | control | call
call    | pointer proto             | control | call
ret     |                           | control | return
exit    |                           | control | exit

# 9.7.19 miscellaneous
trap       |   | control | trap
brkpt      |   | control | side
pmevent    | a | other   | side
nanosleep  | a | other   | side
trace.mark | i | other   | side
setmaxnreg | i | other   | warpgroup
"""

FORMS = """
bra         | [uni] | label
brx         | idx [uni] | u32 label | 6.0 sm_30
call        | [uni] |
ret         | [uni] |
exit        | |
trap        | |
brkpt       | |
pmevent     | [mask] | i
nanosleep   | u32 | u32
trace.mark  | [acc::f32] | i
setmaxnreg  | inc/dec sync aligned u32 | i
"""
