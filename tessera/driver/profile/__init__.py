"""`tessc profile`: how long the steps of a trace take on GPUs and slices of this machine.

In: a trace and a list of devices. Out: a profile, as JSON data. `profile_trace` is the pipeline,
`trace_timer` measures one device. Imported by `tessera`, `tessera.cli`, `tessera.report` and
`driver.selftest`.
"""
