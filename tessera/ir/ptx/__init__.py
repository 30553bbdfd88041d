"""PTX modules: syntax nodes, printer, types, and what follows from a function's text alone.

In: nodes. Out: text, sizes, flattened bodies, control flow. `syntax` has the records.
Imported by everything that reads or runs PTX.
"""
