"""Sets of bytes: intervals, regions, maps from bytes to values. Imported by the other passes."""
