"""The backends that run launch programs: a row each.

In: a word. Out: what `--map` may name for it, and how reports call it. Imported by `driver.run`,
`report` and `cli`, also for `--help`: what makes a backend is in `driver.run.backends`.
"""

from __future__ import annotations

from enum import StrEnum


class BackendName(StrEnum):
    """Where requests run; `AUTO` takes GPUs if there are any, else the CPU backend.

    A row: the word for `--backend`; a regular expression of what may stand for a device of a plan
    in `--map`, which begins with that word; whether that is a GPU of this machine; what reports
    call it.
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
    """`cuda:0`, or `cuda:0:84sm` for so many SMs of it."""
    return f"cuda:{ordinal}" if is_whole else f"cuda:{ordinal}:{sms}sm"
