"""Which device runs which step.

In: a planning problem (`plan_problem`): steps, costs, memory, an objective. Out: placements with
their predictions and a proved bound. `plans` chooses. Imported by `driver.plan` and
`driver.fleet`.
"""
