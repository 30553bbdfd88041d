"""Runs launch programs and traces on machines.

In: `service.Model` and `service.BackendOptions`, or a trace for `ptx_executor`. Out: completed
requests, measurements, emitted programs. Imported by `driver`; `known_backends` also by `report`
and `cli`. `service` is the contract, and `known_backends` the table of backends.
"""
