"""Single PTX instructions, each with the `numerics` call that should give the same bits.

`tests/gpu/record_numerics.py` runs the instructions on a GPU and stores what comes out;
`test_numerics_recorded.py` compares. A body reads `%a`, `%b`, `%c` and writes `%d`.
"""

from __future__ import annotations

from tests.helpers import numerics_cases_float as floating
from tests.helpers.numerics_case import Case
from tests.helpers.numerics_cases_convert import conversions
from tests.helpers.numerics_cases_integer import integers, video_instructions


def all_cases() -> list[Case]:
    """Every case, each name once."""
    groups = (
        floating.single_precision,
        floating.approximations,
        floating.double_precision,
        floating.half_precision,
        conversions,
        integers,
        video_instructions,
        floating.payloads,
    )
    cases = {case.name: case for group in groups for case in group()}
    return list(cases.values())
