"""Plans: machines, costs, placements, launch programs, their printers and verifiers.

In: values. Out: records, texts, diagnostics. `plan` has the records of a plan, `launch_program` the
operations of its devices, `machine` the devices. Imported by everything that plans or runs.
"""
