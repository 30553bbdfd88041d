"""Facts about programs and decisions made from them; one idea per file.

In: records of `ir`. Out: analyses, costs, placements, launch programs, proofs. Passes read no
file, no clock and no settings. Imported by `driver`, and by `report` for what it shows.
"""
