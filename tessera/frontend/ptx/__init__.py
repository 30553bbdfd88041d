"""PTX text to `ir.ptx` records. `read_ptx` is the way in, for `driver` and `frontend.trace`."""
