"""Values of many threads at once, exact or as intervals.

In: operands as `Lanes`. Out: the result of each operation. Imported by `footprint`,
`kernel_facts` and `planning.prices`.
"""
