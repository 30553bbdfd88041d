"""What is given to the planner: options, traces, machine, durations.

In: values. Out: `PlanOptions`, and the `PlanSetting` that every stage is given. Imported by its
neighbours in `planning`, by `driver` and `report`.
"""
