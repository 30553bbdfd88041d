"""From one captured call of a PyTorch model to a trace.

In: a callable and its inputs, through `frontend.capture`. Out: a `Trace`: program, contents,
reference. `capture_trace` is the pipeline. Imported by `tessera.cli` and `driver.fleet`.
"""
