"""Sets of bytes: intervals, regions, maps from bytes to values.

In: ranges. Out: their unions, differences and overlaps. Imported by `planning`, `driver`, `report`
and all other passes except `checker`.
"""
