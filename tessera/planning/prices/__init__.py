"""Durations of steps on devices.

In: a program, its accesses and a machine. Out: `ir.plan.costs` records. `durations` is the entry
point, `estimate_costs` the model. Imported by its neighbours in `planning`, by `driver` and
`report`.
"""
