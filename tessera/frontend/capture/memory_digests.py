"""Digests of memory, computed where it is: by them a capture knows which buffers a call changes.

In: bytes on any device, as a tensor. Out: a digest; little leaves the device.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Words of a digest at a time (32 MiB), and what makes neighbours differ; shifts and factors.
_DIGEST_WORDS = 1 << 22
_SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)
_MIXES = (
    (30, 0xBF58476D1CE4E5B9 - (1 << 64)),
    (27, 0x94D049BB133111EB - (1 << 64)),
    (31, 1),
)


def digest_of(flat: torch.Tensor) -> bytes:
    """A digest of a tensor of bytes, computed where it is; little leaves the device.

    Words are mixed with their place and added up modulo 2^64: any one word that changes shows, and
    several that change cancel each other with a chance of about 2^-64, whatever changes in them.
    """
    import torch

    whole = flat.numel() // 8 * 8
    words = flat[:whole].view(torch.int64)
    places = torch.arange(min(words.numel(), _DIGEST_WORDS), device=flat.device) * _SPREAD
    digest = hashlib.sha256(flat[whole:].cpu().numpy().tobytes())
    for start in range(0, words.numel(), _DIGEST_WORDS):
        part = words[start : start + _DIGEST_WORDS]
        total = _mixed(part + places[: part.numel()]).sum()
        digest.update(int(total).to_bytes(8, "little", signed=True))
    return digest.digest()


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """Each word as another one, of which every bit depends on all of its bits (splitmix64)."""
    for shift, factor in _MIXES:
        # A shift of a signed number brings copies of its sign, which do not count.
        words = (words ^ (words >> shift & (1 << 64 - shift) - 1)) * factor
    return words
