"""Sets of bytes: intervals, regions, maps from bytes to values.

In: ranges. Out: their unions, differences and overlaps. Imported by the other passes
except `checker`, by `planning`, `driver` and `report`.
"""
