"""Simulation of launch programs in time, without running them.

In: a plan (its launch programs, durations and machine) and the arrival times of requests. Out: a
`SimulationReport` with the begin and end of every request. `simulate_plan` is the entry point. The
modules below it read only records of `ir`, so that the code that plans and prices shares nothing
with the code that judges its promises. Imported by `planning`, which ranks plans by simulated
figures, and by `driver`, `cli` and `report`.
"""
