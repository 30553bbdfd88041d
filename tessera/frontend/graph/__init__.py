"""The text of a kernel graph, `.tsg`, to `ir.graph` records. Imported by `driver`."""
