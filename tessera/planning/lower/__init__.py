"""From a placement to launch programs.

In: a program, its graph, a machine, a device per step. Out: a `LoweredReplica`. `lower_plan` is the
entry point. Imported by its neighbours in `planning` and by `driver`.
"""
