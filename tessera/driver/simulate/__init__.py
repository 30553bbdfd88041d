"""Follow launch programs through time without running them.

In: a `Plan` (its launch programs, durations and machine). Out: when every request begins and ends.
Imports `ir` alone, so that what plans and prices shares nothing with what judges its promises; the
planner, the command line and the report may import it.
"""
