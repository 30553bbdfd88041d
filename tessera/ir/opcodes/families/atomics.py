"""Atomics, reductions, votes and other exchanges in a warp (PTX ISA 9.0, section 9.7.13)."""

TABLE = """
# 9.7.13.5 to 9.7.13.7
atom +cas       | d [a]=atomic b c policy  | atomic
atom +exch      | d [a]=atomic b c? policy | atomic  # ptxas lets one more pass
atom -cas -exch | d [a]=atomic b policy    | atomic
red             | [a]=reduce b policy      | atomic
red.async       | [a]=reduce b [mbar]?     | atomic | async

# 9.7.13.8 to 9.7.13.14; d of match.all and elect is a pair d|p
vote -ballot      | p q      | vote    | warp
vote +ballot      | d q      | vote    | warp
vote.sync -ballot | p q mask | vote    | warp
vote.sync +ballot | d q mask | vote    | warp
match             | d a mask | vote    | warp
activemask        | d        | vote    | state
redux.sync        | d a mask | integer | warp
elect.sync        | d mask   | vote    | warp
griddepcontrol    |          | barrier | grid
"""
