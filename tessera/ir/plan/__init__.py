"""Plans: machines, costs, placements, launch programs, their printers and verifiers.

In: values. Out: records, texts, diagnostics. `plan` has the records of a plan,
`launch_program` what its devices do, `machine` where. Imported by everything that plans or runs.
"""
