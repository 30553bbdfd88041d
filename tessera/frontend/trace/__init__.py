"""The text of a trace to `ir.program` records. `read_trace` is the way in; imported by `driver`."""
