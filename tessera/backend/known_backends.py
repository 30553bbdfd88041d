"""The backends that run launch programs, one row per backend.

In: the name of a backend. Out: the targets that `--map` accepts for it, and its name in reports.
Imported by `driver.run`, `report` and `cli`, also for `--help`, so the constructors of backends are
in `driver.run.backends`.
"""

from __future__ import annotations

from enum import StrEnum


class BackendName(StrEnum):
    """The backend of a run; `AUTO` takes GPUs if there are any, otherwise the CPU backend.

    A row has the word for `--backend`; a regular expression for the targets that `--map` accepts,
    which begin with that word; whether such a target is a GPU of this machine; and the name in
    reports.
    """

    target: str
    is_on_gpus: bool
    shown_as: str

    AUTO = "auto", r"(?!)", False, ""
    CPU = "cpu", r"cpu", False, "the CPU backend"
    CUDA = "cuda", r"cuda:\d{1,3}(:[1-9]\d{0,3}sm)?", True, "GPUs"

    def __new__(cls, word: str, target: str, is_on_gpus: bool, shown_as: str) -> BackendName:
        """A member is its word, with the rest of its row as attributes."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.target, member.is_on_gpus, member.shown_as = target, is_on_gpus, shown_as
        return member


KNOWN_BACKENDS = tuple(name for name in BackendName if name is not BackendName.AUTO)


def gpu_target(ordinal: int | str, sms: int, *, is_whole: bool) -> str:
    """The target `cuda:0`, or `cuda:0:84sm` for a slice of 84 SMs."""
    return f"cuda:{ordinal}" if is_whole else f"cuda:{ordinal}:{sms}sm"
