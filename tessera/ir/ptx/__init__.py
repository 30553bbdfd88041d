"""PTX modules: syntax nodes, printer, verifier, and what follows from a function's text alone.

`syntax` has the records. Imported by everything that reads or runs PTX.
"""
