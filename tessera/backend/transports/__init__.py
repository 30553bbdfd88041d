"""Transports between devices: one small interface, and its implementations.

In: bytes and notes of one device. Out: the same bytes and notes at another device. `transport` has
the interface; docs/developer/errands/transport.md says how to write another. Imported by `backend`
and `driver`.
"""
