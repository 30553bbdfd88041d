"""What must hold of a PTX module beyond its grammar: the rules of ptxas.

In: a module (`ir.ptx`), and the forms of opcodes (`ir.opcodes`). Out: diagnostics. `module` is the
way in. Imported by `frontend.ptx` and `frontend.text`.
"""
