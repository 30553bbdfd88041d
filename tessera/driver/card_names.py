"""Whether a GPU of this machine is one of the table: by its own name and its SMs.

In: a model of the table and what the driver says of a GPU. Out: yes or no.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.backend.cuda.api import GpuFacts
    from tessera.ir.plan.machine import Gpu

# Words of a GPU's name: its memory, its form, and those that tell no model apart.
_WORD = re.compile(r"[a-z0-9]+")
_MEMORY = re.compile(r"[0-9]+gb")
_FORM = re.compile(r"sxm[0-9]*|pcie")
_MAKERS = frozenset({"nvidia", "tesla", "geforce", "aws", "edition", "generation"})


def is_card(gpu: Gpu, facts: GpuFacts) -> bool:
    """Whether a GPU that is here is of a model of the table, with as many SMs."""
    return _is_model(gpu.name, facts.name) and facts.sms == gpu.sms


def _is_model(wanted: str, there: str) -> bool:
    """Whether a GPU's own name (`NVIDIA A100-SXM4-80GB`) is that of a model of the table.

    All that tells models apart has to be in it. Memory and form (SXM, PCIe) count where it has
    them: some names do without.
    """
    model, own = (set(_WORD.findall(text.lower())) for text in (wanted, there))
    for kind in (_MEMORY, _FORM):
        ours, theirs = ({w for w in words if kind.fullmatch(w)} for words in (model, own))
        if ours and theirs and not ours & theirs:
            return False
        model -= ours
    return model - _MAKERS <= own
