"""A whole fleet: kinds and numbers of GPUs, and how each is used, for requests for text.

In: traces of steps, GPUs that exist or are offered, the expected requests and their limits. Out: a
`FleetReport`; `make_fleet` is the pipeline. Imported by `cli` and `report`.
"""
