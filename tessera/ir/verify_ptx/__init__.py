"""Rules for PTX modules beyond the grammar: the rules of ptxas.

In: a module (`ir.ptx`), and the forms of opcodes (`ir.opcodes`). Out: diagnostics. `module` is the
entry point. Imported by `frontend.ptx` and `frontend.text`.
"""
