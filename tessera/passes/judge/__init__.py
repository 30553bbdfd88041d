"""The parts of `passes/check_plan.py`, the judge of plans."""
