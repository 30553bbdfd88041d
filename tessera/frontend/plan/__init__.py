"""The text of a plan, `.tsp`, to `ir.plan` records.

In: text. Out: a `Plan`. `tsp` is the way in. Imported by `planning`, `simulation`,
`driver` and `report`.
"""
