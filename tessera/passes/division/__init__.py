"""Steps in parts and twins: the program that a division makes, and parts as kernels.

In: a program and a `Division`. Out: programs. Imported by `planning` and `driver`.
"""
