"""The CPU backend: runs PTX itself, SIMT over NumPy lanes, without a GPU.

In: PTX modules, launches, bytes of buffers. Out: the bytes after them, and what was accessed.
`device` is the way in for programs, `run` for whole traces. Imported by `backend.processes` and
`driver.run`.
"""
