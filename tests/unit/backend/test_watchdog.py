"""Which request has stopped getting on, by a clock that the test moves."""

from __future__ import annotations

import pytest

from tessera.backend.host_loop.watchdog import LOOK_S, StalledRequest, Watchdog


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def looks(
    count: int, marks: list[dict[int, object]], limit_s: float = 1.0
) -> StalledRequest | None:
    """Look so often, with each of the marks in turn; what is found first."""
    clock = Clock()
    watchdog = Watchdog(limit_s, clock)
    for number in range(count):
        clock.now_s += LOOK_S
        assert watchdog.is_due()
        found = watchdog.look(marks[number % len(marks)])
        assert not watchdog.is_due()
        if found is not None:
            return found
    return None


def test_what_gets_on_is_left_alone() -> None:
    assert looks(50, [{0: 1}, {0: 2}]) is None
    assert looks(50, [{}]) is None
    assert looks(50, [{0: 1}, {}]) is None  # another request of that number each time


def test_what_does_not_is_found() -> None:
    found = looks(50, [{0: 1}])
    assert found is not None
    assert found.request == 0
    assert 1.0 < found.seconds < 1.5


def test_later_requests_are_no_excuse() -> None:
    found = looks(50, [{0: "stuck", 1: 1}, {0: "stuck", 1: 2}, {0: "stuck", 2: 0}])
    assert found is not None
    assert found.request == 0


def test_earlier_requests_are() -> None:
    """They go first, so one may wait for them; of several that hang the first is named."""
    assert looks(50, [{0: 1, 1: "in line"}, {0: 2, 1: "in line"}]) is None
    found = looks(50, [{0: None, 1: None, 2: None}])
    assert found is not None
    assert found.request == 0


def test_the_end_of_an_earlier_request_is_an_excuse() -> None:
    clock = Clock()
    watchdog = Watchdog(1.0, clock)
    for marks in [{0: 1, 1: 1}] * 5 + [{1: 1}] * 5:
        clock.now_s += LOOK_S
        assert watchdog.look(marks) is None
    clock.now_s += 2 * LOOK_S
    found = watchdog.look({1: 1})
    assert found is not None
    assert (found.request, found.seconds) == (1, pytest.approx(6 * LOOK_S))


def test_a_host_that_was_away_has_not_waited() -> None:
    """Stopped for an hour between two looks, it has not seen that nothing happens."""
    clock = Clock()
    watchdog = Watchdog(10.0, clock)
    watchdog.look({0: 1})
    for _ in range(3):
        clock.now_s += 3600.0
        assert watchdog.look({0: 1}) is None
    for _ in range(60):
        clock.now_s += LOOK_S
        if watchdog.look({0: 1}) is not None:
            return
    raise AssertionError("never found")
