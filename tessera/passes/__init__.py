"""Facts about programs, and proofs of launch programs; one idea per file.

In: records of `ir`. Out: analyses and proofs. Passes read no file, no settings and no clock.
Imported by `planning` and `driver`, and by `report`, which shows the results.
"""
