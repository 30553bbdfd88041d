"""Text in, records out: PTX modules and traces."""
