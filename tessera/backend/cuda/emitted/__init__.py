"""A plan as Python programs that need cuda-python alone."""
