"""Memory and its accesses: lanes, state spaces, checked accesses, watches and logs.

In: addresses of lanes. Out: the bytes at those addresses, or a fault that names the access.
Imported by the neighbours in `ptx_executor`, by `processes`, `backend.hosts`, `driver.run` and
`driver.trace`.
"""
