"""The CPU backend: executes PTX without a GPU, as SIMT over NumPy lanes.

In: PTX modules, launches, bytes of buffers. Out: the bytes after the launches, and the bytes that
each launch accessed. `device` is the entry point for programs, `run` for whole traces. Imported by
`backend.processes` and `driver.run`.
"""
