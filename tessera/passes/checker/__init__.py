"""The parts of `passes/checker/check_plan.py`, the checker of plans."""
