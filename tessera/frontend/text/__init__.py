"""The parts that all readers share: bytes to text, text to parsers, faults to diagnostics.

In: paths, bytes, grammars. Out: sources, parsers, diagnostics. Imported by the other folders of
`frontend`, by `planning`, `simulation` and `driver`, and by `cli` and `report` for files
and names that users give.
"""
