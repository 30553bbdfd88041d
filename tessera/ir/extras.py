"""The extras of this package: what each is for, and which of its packages are installed.

In: the metadata of the installed package. Out: `Extra` records, in the order of `PURPOSES`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

PURPOSES = {
    "cuda": "run plans on GPUs, measure them",
    "torch": "capture PyTorch models",
    "triton": "compile models without a GPU",
    "hf": "trace models from their config files",
    "tables": "use measured kernel times of more GPUs",
    "hosts": "use Ray clusters, and NIXL between hosts",
    "serve": "answer prompts over HTTP",
    "grammar": "answer prompts in JSON by a schema",
}
_REQUIREMENT = re.compile(r"""^([\w.-]+)[^;]*;.*\bextra == ['"](\w+)['"]""")


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra, what it is for, and the installed version of each package; None if absent."""

    name: str
    purpose: str
    packages: tuple[tuple[str, str | None], ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that are not installed."""
        return tuple(name for name, installed in self.packages if installed is None)


def installed_extras() -> tuple[Extra, ...]:
    """Every extra, with the packages that its requirements name."""
    named: dict[str, list[str]] = {extra: [] for extra in PURPOSES}
    for requirement in _requirements():
        if matched := _REQUIREMENT.match(requirement):
            named.setdefault(matched[2], []).append(matched[1])
    return tuple(
        Extra(
            extra, PURPOSES.get(extra, ""), tuple((name, installed_version(name)) for name in names)
        )
        for extra, names in named.items()
    )


def _requirements() -> list[str]:
    try:
        return requires("tessera-compiler") or []
    except PackageNotFoundError:  # run from a checkout without an installation
        return []


def installed_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
