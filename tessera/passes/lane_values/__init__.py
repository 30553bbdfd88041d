"""Values of many threads at once, exact or as intervals.

In: operands of lanes. Out: what each operation makes of them. Imported by `footprint`,
`kernel_facts` and `planning.prices`.
"""
