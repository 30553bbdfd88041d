"""The problem that the planner solves: tasks, tensors, devices and links.

In: graphs, costs, a machine, slots and sequences. Out: `Planning` with its `Problem`
(`plan_problem`). Imported by its neighbours in `planning`, by `driver` and `report`.
"""
