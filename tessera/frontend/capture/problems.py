"""What goes wrong while a model runs or is captured, in terms of what to do about it.

In: exceptions of PyTorch, its compiler, or the model. Out: errors with a code.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from tessera.diagnostics import TesseraError, error

NOT_COMPILED = "TSR6010"
_LONGEST = 200
_ADVICE = (
    "the model must not wait for the GPU, copy to the host, or depend on data on the host side"
    " (`.item()`, `.cpu()`, `nonzero`, printing a tensor)"
)


def refusal(problem: Exception) -> TesseraError:
    """Why the model does not run as it has to before it can be captured."""
    kinds = {kind.__module__ + "." + kind.__name__ for kind in type(problem).__mro__}
    if any("OutOfMemoryError" in kind for kind in kinds):
        return TesseraError(
            error("TSR6011", "the GPU has too little memory for the model",
                  notes=(_first_line(problem),),
                  hint="give the model smaller sizes (`--set`), or free the GPU")
        )  # fmt: skip
    if any(kind.startswith(("torch._dynamo.exc", "torch._inductor.exc")) for kind in kinds):
        return TesseraError(
            error(NOT_COMPILED, "torch.compile cannot make one graph of the model",
                  notes=(_first_line(problem), *_user_lines(problem)),
                  hint="take the line out of the traced function, or use `--route eager`")
        )  # fmt: skip
    place = traceback.extract_tb(problem.__traceback__)[-1]
    where = f"in `{place.name}`, {Path(place.filename).name}:{place.lineno}"
    headline = f"the model's code raised {type(problem).__name__}: {_first_line(problem)}"
    return TesseraError(error("TSR6008", headline, notes=(where,)))


def not_captured(problem: Exception) -> TesseraError:
    """Why a call that runs cannot be captured."""
    headline = "the call cannot be captured as a CUDA graph"
    return TesseraError(error("TSR6003", headline, notes=(_first_line(problem),), hint=_ADVICE))


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines() or [repr(problem)]
    return lines[0][:_LONGEST]


def _user_lines(problem: Exception) -> tuple[str, ...]:
    """The places in the model that the compiler names: its message ends in them."""
    lines = [line.strip() for line in str(problem).splitlines()]
    return tuple(line for line in lines if line.startswith('File "') and "torch" not in line)[-2:]
