"""Kernel graphs: accesses, regions, edges and their printer. `graph` has the records."""
