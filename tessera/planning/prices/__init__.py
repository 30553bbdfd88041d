"""How long steps take on devices.

In: a program, its accesses and a machine. Out: `ir.plan.costs` records. `durations` is the way in,
`estimate_costs` the model. Imported by its neighbours in `planning`, by `driver` and `report`.
"""
