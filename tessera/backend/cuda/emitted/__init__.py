"""A plan as Python programs that need cuda-python alone.

In: a lowered replica and its traces. Out: the text of one program per device. `emit_python` is
the way in. Imported by `driver.cuda_python`. `emitted_common` and `emitted_serve` are copied into
the programs (`shared_files`) and import nothing else of Tessera.
"""
