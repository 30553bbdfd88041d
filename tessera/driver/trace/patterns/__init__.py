"""Finds operators that serving engines compute in one kernel in a trace of smaller operators.

In: a program of library calls. Out: a program with fewer calls. `fuse` is the way in;
`pattern_table` has the patterns with an example each, `match` finds them, and `experts` finds the
groups that no pattern can express. Imported by `driver.trace`.
"""
