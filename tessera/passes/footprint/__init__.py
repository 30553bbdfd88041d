"""A kernel's slice, run over all threads of a launch: the bytes that it touches."""
