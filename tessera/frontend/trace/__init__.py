"""The text of a trace to `ir.program` records.

In: text. Out: a `Program`, diagnostics. `read_trace` is the way in. Imported by `driver`
and `frontend.contents`.
"""
