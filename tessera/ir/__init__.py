"""Records of every level of the program: PTX modules, traces, graphs, plans.

In: values. Out: frozen records, their printers and verifiers, and tables of facts (opcodes,
operators, architectures, choices). Imported by everything above; it imports only `diagnostics`,
`codes`, `settings` and `output`.
"""
