"""Many small cases as one test: a test of its own costs more than most of them take.

In: cases, and a test of one of them. Out: a test of all, which names every case that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def each(cases: Iterable[object]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Takes the place of `parametrize`: a case that is a tuple is several arguments."""
    known = list(cases)

    def of_all(test: Callable[..., None]) -> Callable[[], None]:
        def every() -> None:
            assert known
            wrong = []
            for case in known:
                try:
                    test(*(case if type(case) is tuple else (case,)))
                except Exception as error:
                    error.add_note(f"the case: {case!r}")
                    wrong.append(error)
            if wrong:
                raise ExceptionGroup(f"{len(wrong)} of {len(known)} cases", wrong)

        every.__name__, every.__doc__ = test.__name__, test.__doc__
        return every

    return of_all
