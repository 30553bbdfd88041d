"""Text in, records out.

In: files and texts: PTX, traces, graphs, plans, machines, contents; also what a PyTorch model
launches (`capture`). Out: records of `ir`, diagnostics. Imported by `driver`, and by `cli` and
`report` for arguments that are files, and for units.
"""
