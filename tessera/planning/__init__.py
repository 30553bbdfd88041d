"""From traces to a proved plan: price, place, lower, promise, prove.

In: traces with their kernel graphs, `PlanOptions`. Out: `PlanReport`. `make_plan` is the pipeline;
read it first. Its parts, each of which imports only those before it: `lower` (launch programs of a
placement), `problem` (tasks and tensors), `bound` (what no plan beats), `search` (placements),
`given` (what is planned), `prices` (how long steps take), `promise` (what launch programs of a
placement give). Imported by `driver`, `cli` and `report`.
"""
