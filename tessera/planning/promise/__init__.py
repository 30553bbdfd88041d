"""Figures of a placement as launch programs: lowered and simulated, with slots and gates.

In: candidates. Out: `Simulated` candidates, and the `Plan` of one (`assemble`). `promise` is the
entry point. Imported by its neighbours in `planning`, by `driver` and by
`report`.
"""
