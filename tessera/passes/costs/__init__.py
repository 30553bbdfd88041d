"""How long steps take on devices.

In: a program, its accesses and a machine. Out: `ir.plan.costs` records. `estimate_costs` is the
way in. Imported by `driver` and `report`.
"""
