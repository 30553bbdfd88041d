"""Library operators: the operators that an `op` record may call.

In: a name with its operands. Out: shapes, types, accesses of the call. `table` finds an operator
by its name. Imported by `passes`, `planning`, `frontend`, `driver.trace` and `backend`.
"""
