"""The host's part of running requests, shared by all backends: slots, order, waiting, watchdog.

In: requests and a `service.Backend`. Out: handles with results. `dispatch` is the way in.
Imported by `driver`.
"""
