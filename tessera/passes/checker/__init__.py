"""Proves that launch programs are right, or names the operations that break a rule.

In: a plan, its programs, and graphs that were analysed afresh. Out: diagnostics; an empty result is
the proof. `check_plan` is the entry point. Imported by `planning` and `driver`. It imports no
other pass; an import contract enforces this.
"""
