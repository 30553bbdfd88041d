"""Operators that serving engines compute in one kernel, found in a trace of smaller ones.

In: a program of library calls. Out: a program of fewer. `fuse` is the way in; `pattern_table` has
the patterns, with an example each, `match` finds them, `experts` those that no pattern can say.
Imported by `driver.trace`.
"""
