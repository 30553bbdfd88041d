"""The host's part of running requests, for all backends: slots, order, waits, a watchdog.

In: requests and a `service.Backend`. Out: handles with results. `dispatch` is the entry point.
Imported by `driver`.
"""
