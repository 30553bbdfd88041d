"""A plan as Python programs that need cuda-python alone.

In: a lowered replica and its traces. Out: the text of one program per device. `emit_python` is
the way in. Imported by `driver.plan`; `emitted_common` is copied into the programs and imports
nothing of Tessera.
"""
