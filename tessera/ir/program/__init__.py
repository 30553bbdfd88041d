"""Traces: buffers, modules, steps, their types and their printer. `program` has the records."""
