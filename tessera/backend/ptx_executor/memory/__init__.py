"""Memory and who accesses it: lanes, spaces, checked accesses, what is watched and logged.

In: addresses of lanes. Out: their bytes, or a fault that names the access. Imported by
the neighbours in `ptx_executor`, by `processes`, `backend.hosts`, `driver.run` and `driver.trace`.
"""
