"""The text of a kernel graph, `.tsg`, to `ir.graph` records.

In: text. Out: a `KernelGraph`. `tsg` is the way in. Imported by `driver` and `report`.
"""
