"""Launch programs on virtual devices of the CPU backend: a process per device, or all in one.

In: a `Model`. Out: a `Backend`. `workers` starts the processes, `inline` is the same in one
thread, `engine` is one device. Imported by `known_backends`, `backend.hosts` and `driver`.
"""
