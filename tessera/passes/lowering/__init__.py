"""From a placement to launch programs.

In: a program, its graph, a machine, a device per step. Out: a `LoweredReplica`. `plan` is the
way in. Imported by `driver`.
"""
