"""Which cut of a kernel was measured to be the fastest, on disk.

In: what decides it: the size of a call, the candidates, the GPU, the versions and our kernels. Out:
the number of a candidate, or None where nothing was kept. Like the other caches it never fails a
command: a file that is damaged, or not ours, counts as absent, and is made again. Files appear
whole, so any number of captures can share the folder.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.cache.private_files import keep_checked, read_checked
from tessera.settings import read_settings

if TYPE_CHECKING:
    import torch

SUFFIX = ".tuning"


def kept_choice(
    size: object, cuts: Sequence[object], device: torch.device, sms: int = 0
) -> int | None:
    """The number of the candidate that was the fastest, if that was measured before.

    On so many SMs of the GPU; 0 is all of them.
    """
    path = _path(size, cuts, device, sms)
    kept = None if path is None else read_checked(path)
    if kept is None:
        return None
    text = bytes(kept)
    number = int(text) if text.isdigit() else len(cuts)
    return number if number < len(cuts) else None


def keep_choice(
    size: object, cuts: Sequence[object], device: torch.device, number: int, sms: int = 0
) -> None:
    """Keep what was measured."""
    path = _path(size, cuts, device, sms)
    if path is not None:
        keep_checked(path, str(number).encode())


def _path(size: object, cuts: Sequence[object], device: torch.device, sms: int) -> Path | None:
    """The file of a choice; none where there is no cache."""
    settings = read_settings()
    if settings.cache_dir is None or not settings.use_cache:
        return None
    part = (f"{sms} SMs",) if sms else ()
    key = "\n".join((repr(size), *map(repr, cuts), *_where(device), *part))
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return settings.cache_dir / (name + SUFFIX)


def _where(device: torch.device) -> tuple[str, ...]:
    """The GPU, and the versions of what compiles for it and of our kernels."""
    import torch
    import triton

    versions = (str(torch.__version__), str(triton.__version__), _code())
    if device.type != "cuda":
        return versions
    properties = torch.cuda.get_device_properties(device)
    return (properties.name, str(properties.multi_processor_count), *versions)


@functools.cache
def _code() -> str:
    return code_digest(("frontend/capture/attention", "frontend/capture/experts"))
