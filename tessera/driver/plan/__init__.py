"""From traces to a plan: read, analyse, price, place, lower, prove.

In: traces, `PlanOptions`. Out: `PlanReport`. `make_plan` is the pipeline; read it first. Imported
by `tessera.cli`, `tessera.report` and the neighbours in `driver`.
"""
