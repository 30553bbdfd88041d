"""Ways between devices: one small interface, and what stands behind it.

In: bytes and notes of one device. Out: the same at another. `transport` has the interface;
docs/developer/errands/transport.md says how to write another. Imported by `backend` and `driver`.
"""
