"""Results of reading and analysis on disk, found by content.

In: texts and results. Out: the stored results, or None. An entry is valid only for the code that
wrote it. Imported by `cli`, `driver`, `frontend.ptx` and `frontend.capture`.
"""
