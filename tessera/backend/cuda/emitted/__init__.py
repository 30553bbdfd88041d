"""A plan as Python programs that need only cuda-python.

In: a lowered replica and its traces. Out: the text of one program per device. `emit_python` is the
entry point. Imported by `driver.cuda_python`. `common` is copied beside the programs, with the
modules of `backend.cuda` that it imports, which import nothing else of Tessera.
"""
