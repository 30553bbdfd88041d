"""The parts of `passes/checker/check_plan.py`, the judge of plans."""
