"""Files of named arrays, in and out: what the buffers of a trace hold. Imported by `driver`."""
