"""What a placement gives as launch programs: lowered and simulated, with slots and gates.

In: candidates. Out: `Simulated` candidates, and the `Plan` of one (`assemble`). `promise` is the
way in. Imported by its neighbours in `planning` and by `driver`.
"""
