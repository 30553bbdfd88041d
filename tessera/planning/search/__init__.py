"""Which device runs which step.

In: a `Problem` and an objective. Out: placements with their predictions and a proved bound. `plans`
chooses. Imported by its neighbours in `planning`, by `driver` and `cli`.
"""
