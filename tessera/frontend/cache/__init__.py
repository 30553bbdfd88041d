"""What was read and analysed before, on disk, found by content.

In: texts and results. Out: the same results again, or None. An entry counts only for the code
that wrote it. Imported by `cli`, `driver`, `frontend.ptx` and `frontend.capture`.
"""
