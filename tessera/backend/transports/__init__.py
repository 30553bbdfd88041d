"""Ways between devices: one small interface, and what stands behind it.

`transport` has the interface. docs/developer/errands/transport.md says how to add one.
"""
