"""`tessc selftest`: what a machine computes, how fast its links are, and how true predictions are.

In: devices of this machine. Out: one document to send in. `run_selftest` is the way in. Imported by
`tessera.cli` and `tessera.report`.
"""
