"""From a plan file to results: open and prove it, load its contents, run requests, compare.

In: a `.tsp` file or a `Plan`, `PlanRunOptions`. Out: an outcome with outputs, states and figures.
`run_plan` is the pipeline, `runtime` the API for programs. Imported by `tessera.cli`,
`tessera.report` and the neighbours in `driver`.
"""
