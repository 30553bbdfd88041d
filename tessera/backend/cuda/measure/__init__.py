"""How long steps take on a GPU or a slice of one, alone and beside others.

In: a trace and the device to measure on. Out: nanoseconds per step, and per copy by size.
`profile` is the way in. Imported by `driver`.
"""
