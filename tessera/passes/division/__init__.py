"""Steps in parts and twins: legal cuts, the program that a division makes, parts as kernels.

In: a program and a `Division`. Out: programs. Imported by `planning`, `driver` and `report`.
"""
