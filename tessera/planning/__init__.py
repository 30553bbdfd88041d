"""From traces to a proved plan: price, place, lower, promise, prove.

In: traces with their kernel graphs, `PlanOptions`. Out: `PlanReport`. `make_plan` is the pipeline;
read it first. Its parts, each of which imports only those before it: `lower` (launch programs of a
placement), `problem` (tasks and tensors), `bound` (lower bounds on all plans), `search`
(placements), `given` (the input of planning), `prices` (durations of steps), `promise` (simulated
figures of the launch programs of a placement). Imported by `driver`, `cli` and `report`.
"""
