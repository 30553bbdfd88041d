"""Names, tables and files of GPUs, links and profiles to `ir.plan` records.

In: `a100,l40s`, a machine file, a profile. Out: a `Machine`, measured durations. Imported by
`planning`, `driver`, `cli`, `report` and `frontend.plan`.
"""
