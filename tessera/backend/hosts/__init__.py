"""Launch programs on processes of several hosts.

In: a `Model`, and where its devices are. Out: a `Backend`. `hosts_backend` is the driver's side,
`host_worker` the side of a device, and `examined` answers `tessc doctor`. Imported by `driver`.
"""
