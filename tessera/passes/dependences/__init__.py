"""From launches to buffers: accesses, dependences, cuts.

In: a program. Out: the regions of every step (`access_regions`), the kernel graph
(`dependences`). Imported by `planning`, `driver`, `report` and the other passes.
"""
