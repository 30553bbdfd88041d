"""The input of the planner: options, traces, machine, durations.

In: values. Out: `PlanOptions`, and the `PlanSetting` that every stage receives. Imported by its
neighbours in `planning`, by `driver` and `report`.
"""
