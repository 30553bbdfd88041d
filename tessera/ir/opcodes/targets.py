"""The versions and targets of PTX, and the requirements of forms on them.

Source: PTX ISA 9.4, section 13 (release notes), and ptxas 13.5 for the versions of each target.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

Version = tuple[int, int]

NEWEST_VERSION: Version = (9, 5)
_LAST_MINORS = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8, 9: 5}

# target: the first version that supports it
_TARGETS = """
sm_10 1.0  sm_11 1.0  sm_12 1.2  sm_13 1.2  sm_20 2.0  sm_21 2.0  sm_30 3.0  sm_32 4.0  sm_35 3.1
sm_37 4.1  sm_50 4.0  sm_52 4.1  sm_53 4.2  sm_60 5.0  sm_61 5.0  sm_62 5.0  sm_70 5.1  sm_72 6.1
sm_75 6.3  sm_80 7.0  sm_82 6.2  sm_86 7.1  sm_87 7.4  sm_88 9.0  sm_89 7.8  sm_90 7.8  sm_90a 8.0
sm_100 8.6  sm_100a 8.6  sm_100f 8.8  sm_101 8.6  sm_101a 8.6  sm_101f 8.8  sm_103 8.8  sm_103a 8.8
sm_103f 8.8  sm_107 9.4  sm_107a 9.4  sm_107f 9.4  sm_110 9.0  sm_110a 9.0  sm_110f 9.0  sm_120 8.7
sm_120a 8.7  sm_120f 8.8  sm_121 8.8  sm_121a 8.8  sm_121f 8.8
"""
VERSIONS: tuple[Version, ...] = tuple(
    (major, minor) for major, last in _LAST_MINORS.items() for minor in range(last + 1)
)
"""Every version, oldest first."""

TARGET_OPTIONS = frozenset({"texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"})
_NAME = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


def read_version(text: str) -> Version:
    """Parse `8.6`."""
    major, minor = text.split(".")
    return int(major), int(minor)


_WORDS = _TARGETS.split()
TARGETS: dict[str, Version] = dict(zip(_WORDS[::2], map(read_version, _WORDS[1::2]), strict=True))
"""Every target, with the first PTX version that has it."""


def is_version(version: Version) -> bool:
    """Whether a version exists, up to the newest known version."""
    return version[1] <= _LAST_MINORS.get(version[0], -1)


def target_since(name: str) -> Version | None:
    """The first version with a target; None if the target does not exist."""
    return TARGETS.get(name.replace("compute_", "sm_", 1))


@dataclass(frozen=True, slots=True)
class Needs:
    """The least version and target; with a `letter`, only targets with a letter are enough."""

    version: Version = (1, 0)
    target: int = 10
    letter: str = ""

    def joined(self, other: Needs) -> Needs:
        """The combined requirements of both."""
        return Needs(
            max(self.version, other.version),
            max(self.target, other.target),
            self.letter or other.letter,
        )

    def missing(self, version: Version, target: str) -> str | None:
        """The unmet requirements of a module, as text; None if it meets all."""
        if version < self.version:
            return f"PTX {self.version[0]}.{self.version[1]}"
        match = _NAME.fullmatch(target)
        if match is None:
            return None
        if int(match[1]) < self.target or (self.letter and not match[2]):
            return f"`.target sm_{self.target}{self.letter}`"
        return None


@cache
def read_needs(text: str) -> Needs:
    """Parse `7.0/sm_80`; either part may be omitted, and the order is free."""
    needs = Needs()
    for word in text.split("/"):
        match = _NAME.fullmatch(word)
        if match is not None:
            needs = needs.joined(Needs(target=int(match[1]), letter=match[2]))
        elif word:
            needs = needs.joined(Needs(version=read_version(word)))
    return needs
