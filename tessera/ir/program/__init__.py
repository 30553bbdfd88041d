"""Traces: buffers, modules, steps, their types and their printer.

In: values. Out: a `Program`, its text. `program` has the records. Imported by everything that
reads, analyses or runs traces.
"""
