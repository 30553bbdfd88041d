"""Plans: machines, costs, placements, launch programs, their printers and verifiers.

`plan` has the records of a plan, `launch_program` what its devices do, `machine` where.
"""
