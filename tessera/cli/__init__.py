"""The command line, `tessc`: one file per command.

In: arguments. Out: one call of `tessera.driver`, one report, an exit code. Imported by
`tessera.__main__`, which is the script `tessc`, alone.
"""
