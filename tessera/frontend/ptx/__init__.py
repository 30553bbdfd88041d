"""PTX text to `ir.ptx` records.

In: the text of a module. Out: a `Module`, diagnostics. `read_ptx` is the way in. Imported by
`driver`, `frontend.trace` and `frontend.capture`.
"""
