"""An answer of `tessc fleet` as files that start it: with vLLM, with Dynamo, with `tessc serve`.

In: a `FleetReport`. Out: an `EmittedFleet`; `emit_fleet` is the way in. `deployment` says which
engines run where, with which limits; the other files write them for one system each. Imported by
`cli` and `report`.
"""
