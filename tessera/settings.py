"""Settings from the environment: every `TESSERA_*` variable, typed, with its default.

In: the environment. Out: one frozen `Settings`. Nothing else in Tessera reads `os.environ`, so
this file is the whole list. A flag is on unless it is unset, empty, or one of `0`, `false`,
`no`, `off`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment asks for."""

    cache_dir: Path | None
    """`TESSERA_CACHE_DIR`: where parsed modules and what the analysis found out about their
    kernels are kept; by default `tessera` in the user's
    cache folder; None if there is no home folder."""

    use_cache: bool
    """False under `TESSERA_NO_CACHE=1`: neither read nor write that folder."""

    traceback: bool
    """`TESSERA_TRACEBACK=1`: show Python tracebacks of internal errors."""

    verify: bool
    """`TESSERA_VERIFY=1`: check after each stage that its result survives printing and reading."""

    use_graphs: bool
    """False under `TESSERA_NO_GRAPHS=1`: the CUDA backend makes every call of a request one by one;
    slower, but a fault then names its launch."""

    compile_processes: int | None
    """`TESSERA_COMPILE_PROCESSES`: how many processes compile kernels while a model is captured on
    a GPU; 1 compiles in the process itself; None (unset, or no number) leaves it to the cores."""

    color: bool | None
    """False under `NO_COLOR`; None leaves it to the terminal."""


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in an environment, the process's own unless given."""
    values = os.environ if environment is None else environment
    return Settings(
        cache_dir=_cache_dir(values),
        use_cache=not _flag(values, "TESSERA_NO_CACHE"),
        traceback=_flag(values, "TESSERA_TRACEBACK"),
        verify=_flag(values, "TESSERA_VERIFY"),
        use_graphs=not _flag(values, "TESSERA_NO_GRAPHS"),
        compile_processes=_count(values, "TESSERA_COMPILE_PROCESSES"),
        color=False if values.get("NO_COLOR") else None,
    )


def with_environment(values: Mapping[str, str]) -> dict[str, str]:
    """The environment for a new process: this process's own, updated with `values`."""
    return {**os.environ, **values}


def set_default(name: str, value: str) -> None:
    """Set another program's variable, for a library in this process, unless it is set."""
    os.environ.setdefault(name, value)


def drop_empty(name: str) -> None:
    """Remove another program's variable if it is set to an empty value."""
    if os.environ.get(name) == "":
        del os.environ[name]


@contextmanager
def overridden(values: Mapping[str, str]) -> Iterator[None]:
    """Temporarily set other programs' variables, for libraries in this process."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _flag(values: Mapping[str, str], name: str) -> bool:
    return values.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def _count(values: Mapping[str, str], name: str) -> int | None:
    """A number of at least 1; None if the variable is not set."""
    text = values.get(name, "").strip()
    return max(1, int(text)) if text.isdecimal() else None


def _cache_dir(values: Mapping[str, str]) -> Path | None:
    """The named folder, else that of the XDG base directory specification."""
    if named := values.get("TESSERA_CACHE_DIR"):
        return Path(named)
    base = values.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path here is invalid and has to be ignored.
    if os.path.isabs(base):
        return Path(base, "tessera")
    home = values.get("HOME") or values.get("USERPROFILE")
    return Path(home, ".cache", "tessera") if home else None
