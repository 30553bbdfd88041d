"""Plans in which devices share steps: parts of launches, twins, and the shares of each device.

In: a `PlanSetting`. Out: promises of divided plans, which `find_plan` ranks with the others.
Imported by `planning`.
"""
