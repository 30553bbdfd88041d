"""Library operators on the CPU: the functions behind the names of `ir.operators.table`.

In: the call of an operator and the memory of its operands. Out: the bytes of its results. Imported
by the neighbours in `ptx_executor`. `run` executes a call: it reads the operands, applies the
function of the table below, rounds to the types of the results, writes them and logs the bytes.
Functions compute element by element in a fixed order, in float32 or wider, so that results are the
same on every machine.
"""
