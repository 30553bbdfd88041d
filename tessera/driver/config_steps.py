"""The steps of a model from its config file: decode steps of several sizes, and a prefill step.

In: `hf:PATH/config.json`. Out: programs by name, as `tessc trace` would write them. Needs PyTorch
and transformers; no weights, no GPU and no file.
"""

from __future__ import annotations

from tessera.diagnostics import Diagnostic
from tessera.ir.program.program import Program
from tessera.ir.progress import OnProgress, StageProgress

CONFIG = "hf:"
"""Prefix of the name of a config file."""
_DECODE_ROWS = (1, 64, 256)
_PROMPT_TOKENS = 1024
_CONTEXT_TOKENS = 2048


def steps_of_config(
    path: str, on_progress: OnProgress | None, *, alike: bool = False
) -> tuple[dict[str, Program], tuple[Diagnostic, ...]]:
    """The traces of a config file by name, and notes about them.

    `alike`: prompts are as long as caches, so that all traces can share them.
    """
    from tessera.frontend.capture.meta import hf

    config = hf.read_config(hf.find_config(path))
    hf.require_transformers()
    from tessera.driver.trace.config_trace import ConfigTracer
    from tessera.frontend.capture.meta.record import among_fakes  # needs PyTorch

    prompt = _CONTEXT_TOKENS if alike else _PROMPT_TOKENS
    steps = [hf.HfStep(phase="decode", batch=n, context=_CONTEXT_TOKENS) for n in _DECODE_ROWS]
    steps.append(hf.HfStep(phase="prefill", batch=1, context=prompt))
    programs = {}
    with among_fakes():
        tracer = ConfigTracer(config)
        for step in steps:
            name = f"{step.phase}-{step.batch}"
            if on_progress is not None:
                on_progress(StageProgress("running the model on shapes", note=name))
            made = tracer.trace(step).trace
            programs[name] = made.program
    return programs, (*config.notes, *made.diagnostics)
