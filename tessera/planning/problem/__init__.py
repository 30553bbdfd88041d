"""What is planned: traces, machine, durations and options, as a problem of tasks and tensors.

In: graphs, costs, a machine, slots and sequences. Out: `Planning` with its `Problem`
(`plan_problem`). Imported by its neighbours in `planning`, by `driver` and `report`.
"""
