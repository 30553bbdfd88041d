"""Whether a GPU of this machine is a model of the table, by its name and its SMs.

In: a model of the table, and the driver's facts of a GPU. Out: yes or no.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.backend.cuda.api import GpuFacts
    from tessera.ir.plan.machine import Gpu

# Words of a GPU's name: its memory, its form, and words that do not distinguish models.
_WORD = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"[0-9]+gb")
_FORM = re.compile(r"sxm[0-9]*|pcie")
_MAKERS = frozenset({"nvidia", "tesla", "geforce", "aws", "edition", "generation"})


def is_card(gpu: Gpu, facts: GpuFacts) -> bool:
    """Whether a GPU of this machine is a model of the table, with as many SMs."""
    return _is_model(gpu.name, facts.name) and facts.sms == gpu.sms


def _is_model(wanted: str, there: str) -> bool:
    """Whether a GPU's own name (`NVIDIA A100-SXM4-80GB`) is that of a model of the table.

    The name has to contain every word that distinguishes models. Memory and form (SXM, PCIe) are
    compared only if the name has them: some names do not.
    """
    model, own = (set(_WORD.findall(text.lower())) for text in (wanted, there))
    for kind in (_MEMORY, _FORM):
        ours, theirs = ({w for w in words if kind.fullmatch(w)} for words in (model, own))
        if ours and theirs and not ours & theirs:
            return False
        model -= ours
    return model - _MAKERS <= own
