"""From traces to a proved plan: price, place, lower, promise, prove.

In: traces with their kernel graphs, `PlanOptions`. Out: `PlanReport`. `make_plan` is the pipeline;
read it first. Its parts, each of which imports only those above it: `lower` (launch programs of a
placement), `problem` (what is planned), `prices` (how long steps take), `bound` (what no plan
beats), `search` (placements), `promise` (what their launch programs give). Imported by `driver` and
`report`.
"""
