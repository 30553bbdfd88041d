"""Facts about programs and decisions made from them; one idea per file.

In: records of `ir`. Out: analyses, costs, placements, launch programs, proofs. Passes read no
file and no settings, and the clock only for the time limit of a search (`placement.limits`).
Imported by `driver`, and by `report` for what it shows.
"""
