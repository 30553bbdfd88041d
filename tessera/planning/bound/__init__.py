"""Lower bounds on all placements: the integer program, its relaxation, counts of classes.

In: a `Problem`. Out: bounds, and placements that come with them. `relax` is the entry point.
Imported by its neighbours in `planning` and by `driver.fleet`.
"""
