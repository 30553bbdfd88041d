"""The steps of a model from its config file: decode steps of several sizes, and a prefill step.

In: `hf:PATH/config.json`. Out: programs by name, as `tessc trace` would write them, or files of
them for `tessc plan`. Needs PyTorch and transformers; no weights and no GPU.
"""

from __future__ import annotations

from pathlib import Path

from tessera.diagnostics import Diagnostic
from tessera.driver.traces import read_share
from tessera.ir.options import WrongOption
from tessera.ir.program.print_trace import print_program
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


def write_steps(name: str, folder: str) -> tuple[str, ...]:
    """Write the traces of `hf:PATH:TOKENS` to a folder; gives what `tessc plan` takes of them.

    TOKENS are those of the answer to each prompt.
    """
    path, tokens = read_share(name)
    if tokens <= 1:
        raise WrongOption(f"say how many tokens the answer to a prompt has: `{path}:256`")
    programs, _ = steps_of_config(path, None, alike=True)
    files: dict[bool, list[str]] = {True: [], False: []}
    for label, program in programs.items():
        file = Path(folder, f"{label}.ptx")
        file.write_text(print_program(program), "utf-8")
        files[label.startswith("decode")].append(str(file))
    return f"{','.join(files[True])}:{tokens:g}", f"{','.join(files[False])}:1"
