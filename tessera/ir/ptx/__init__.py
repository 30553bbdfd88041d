"""PTX modules: syntax nodes, printer, types, and facts that follow from a function's text.

In: nodes. Out: text, sizes, flattened bodies, control flow. `syntax` has the records.
Imported by everything that reads or runs PTX.
"""
