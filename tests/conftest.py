"""Options that all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.helpers.forked_devices import Forker
from tests.helpers.share import ALL

# As `tessera.cli.main.main` does: a worker holds a million objects, and hardly a cycle.
gc.set_threshold(200_000, 20)

# What is imported neither sees nor fills the user's cache; tests have one of their own, see below.
os.environ["TESSERA_NO_CACHE"] = "1"

# Some environments tell Python to keep no bytecode. Tests start hundreds of processes, and each
# would compile the package again, for a second: it is kept in the environment, and for later runs.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", f"{sys.prefix}/bytecode")
    sys.pycache_prefix, sys.dont_write_bytecode = prefix, False

# A shell starts what runs in the background with SIGINT ignored, and children inherit that; tests
# that interrupt commands want them to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A loaded machine is slow, not wrong: no deadline. What has to pass is the same every time;
# `make slow` takes all cases, and `HYPOTHESIS_PROFILE=nightly` more, and new ones each time.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
settings.register_profile(
    "ci",
    deadline=None,
    suppress_health_check=_QUIET,
    max_examples=4,
    phases=_PHASES,
    derandomize=True,
)
_CI = settings.get_profile("ci")
settings.register_profile("slow", parent=_CI, max_examples=ALL)
settings.register_profile("nightly", parent=_CI, max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite expected output with what is found now; read the diff afterwards",
    )


def pytest_collection_finish() -> None:
    """What was collected lives as long as the process: no garbage collection looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """What a test leaves is collected now or never looked at again: runs of plans, and tests that
    look at all objects, would take a second for those of the tests before. An engine that is
    closed has put them all back; the young ones are the test's own."""
    yield
    gc.collect(1)
    gc.freeze()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expected output is to be rewritten."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True, scope="session")
def kept_analyses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this run alone: many tests analyse the same traces, and ask for something else. No
    result depends on it: `tests/unit/frontend/test_analysis_cache.py`. Workers share one; a child
    that tries a change of the code (`tests/sabotage.py`) has its own."""
    folder = tmp_path_factory.getbasetemp() / f"kept-analyses-{os.getpid()}"
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parents[1] / "kept-analyses"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TESSERA_NO_CACHE")
        patch.setenv("TESSERA_CACHE_DIR", str(folder))
        yield


@pytest.fixture(autouse=True, scope="session")
def forked_devices() -> Iterator[None]:
    """Runs inside the test process fork their devices from a process that has imported it all."""
    forker = Forker()
    with mock.patch("tessera.backend.processes.workers.start_process", forker.start):
        yield
    forker.close()


@pytest.fixture
def fresh_devices() -> Iterator[None]:
    """Every device is a process that starts from nothing, as it is for users."""
    from tessera.backend.processes.processes import start_process

    with mock.patch("tessera.backend.processes.workers.start_process", start_process):
        yield
