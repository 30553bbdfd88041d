"""Measures steps on a GPU or a slice of a GPU, alone and beside other work.

In: a trace and the device to measure on. Out: nanoseconds per step, and per copy by size. `profile`
is the entry point. Imported by `driver`.
"""
