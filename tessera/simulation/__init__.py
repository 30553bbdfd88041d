"""Follow launch programs through time without running them.

In: a plan (its launch programs, durations and machine), and when requests come. Out: when every
request begins and ends; a `SimulationReport`. `simulate_plan` is the way in; what is below it reads
records of `ir` alone, so that what plans and prices shares nothing with what judges its promises.
Imported by `planning`, which ranks by it, and by `driver`, `cli` and
`report`.
"""
