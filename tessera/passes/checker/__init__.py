"""Proves launch programs, or says which operations break them.

In: a plan, its programs, and graphs that were analysed afresh. Out: diagnostics; none is the
proof. `check_plan` is the way in. Imported by `planning` and `driver`. It imports no other
pass: an import contract holds it.
"""
