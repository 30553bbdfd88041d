"""A whole fleet: how many GPUs of which kinds, each used how, for requests for text.

In: traces of steps, GPUs that are there or offered, what comes and what is promised. Out: a
`FleetReport`; `make_fleet` is the pipeline. Imported by `cli` and `report`.
"""
