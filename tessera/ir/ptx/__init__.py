"""PTX modules: syntax nodes, printer, verifier, and what follows from a function's text alone.

In: nodes. Out: text, diagnostics, flattened bodies, control flow. `syntax` has the records.
Imported by everything that reads or runs PTX.
"""
