"""Launch programs and traces, run on machines.

In: `service.Model` and `service.BackendOptions`, or a trace for `ptx_executor`. Out: completed
requests, measurements, emitted programs. Imported by `driver`; `known_backends` by `report` and
`cli` too. `service` is the contract, `known_backends` the table.
"""
