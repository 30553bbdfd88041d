"""Facts about the code of kernels that hold for every launch.

In: kernels (`ir.ptx`). Out: analyses per kernel: values, loops, accesses, the reduced code that
addresses depend on. Imported by the other passes, `planning`, `driver` and `report`.
"""
