"""Library operators: what an `op` record may call. `table` finds an operator by its name."""
