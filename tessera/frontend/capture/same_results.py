"""Whether two captures of one call leave the same in memory, buffer by buffer.

In: two `Call`s with the same buffers, whose kernels differ. Out: the name of a buffer that they
disagree on, or None. Then every kernel of one can take the place of its like in the other: it finds
what it expects, and leaves what others expect. What lasts is put back after each run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tessera.frontend.capture.tensors import torch_type

if TYPE_CHECKING:
    import torch

    from tessera.frontend.capture.raw import RawBuffer
    from tessera.frontend.capture.session import Call

# By norm: kernels that are cut otherwise round otherwise.
_TOLERANCE = 0.02


def differing(first: Call, second: Call, written: Collection[str]) -> str | None:
    """Run both calls; a buffer of those that are written with other contents after the second."""
    buffers = [
        {b.name: b for b in call.raw.buffers if b.name in written} for call in (first, second)
    ]
    kept = {name: _bytes(first, b) for name, b in buffers[0].items() if b.lasting}
    before = {name: flat.clone() for name, flat in kept.items() if flat is not None}

    def results(call: Call, held: dict[str, RawBuffer]) -> dict[str, torch.Tensor]:
        call.replay()
        flats = {name: _bytes(call, buffer) for name, buffer in held.items()}
        made = {name: flat.clone() for name, flat in flats.items() if flat is not None}
        for name, old in before.items():
            flat = kept[name]
            assert flat is not None
            flat.copy_(old)
        return made

    ours, theirs = (results(c, held) for c, held in zip((first, second), buffers, strict=True))
    for name, flat in ours.items():
        if name not in theirs or not _alike(flat, theirs[name], buffers[0][name]):
            return name
    return None


def _bytes(call: Call, buffer: RawBuffer) -> torch.Tensor | None:
    return call.memory.on_gpu(buffer)


def _alike(ours: torch.Tensor, theirs: torch.Tensor, buffer: RawBuffer) -> bool:
    import torch

    if ours.numel() != theirs.numel():
        return False
    if torch.equal(ours, theirs):
        return True
    kind = None if buffer.dtype is None else torch_type(buffer.dtype)
    if kind is None or not kind.is_floating_point or int(ours.numel()) % int(kind.itemsize):
        return False
    a, b = (flat.view(kind).float() for flat in (ours, theirs))
    if not torch.equal(a.isfinite(), b.isfinite()):
        return False
    a, b = (torch.where(x.isfinite(), x, 0.0) for x in (a, b))
    return bool((a - b).norm() <= _TOLERANCE * a.norm())
