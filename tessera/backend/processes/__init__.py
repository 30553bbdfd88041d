"""Launch programs on virtual devices of the CPU backend: one process per device, or one for all.

In: a `Model`. Out: a `Backend`. `workers` starts the processes, `inline` runs all devices in one
thread, and `engine` is one device. Imported by `known_backends`, `backend.hosts` and `driver`.
"""
