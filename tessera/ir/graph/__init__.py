"""Kernel graphs: accesses, regions, edges and their printer.

In: accesses. Out: a `KernelGraph`, its text, and a networkx graph. `graph` has the records.
Imported by everything that analyses or plans.
"""
