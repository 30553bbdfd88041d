"""Traces of a model from its config file, for `tessc fleet hf:CONFIG`: several sizes, one folder.

In: `hf:PATH/config.json`. Out: the paths of traces in a folder that is removed afterwards: decode
steps of 1 to 256 sequences, and a prefill step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tessera.cli.console import Messages
from tessera.driver.progress import OnProgress, StageProgress

_DECODE = (1, 64, 256)
_PROMPT = 1024
_CONTEXT = 2048


@contextmanager
def traces_of_config(
    messages: Messages, named: Sequence[str], on_progress: OnProgress
) -> Iterator[list[str]]:
    """The traces of a config file, while they are needed."""
    from tessera.driver.trace.capture_trace import write_trace
    from tessera.driver.trace.config_trace import ConfigTracer
    from tessera.frontend.capture.meta import hf
    from tessera.frontend.capture.meta.record import among_fakes

    config = hf.read_config(hf.find_config(named[0]))
    hf.require_transformers()
    messages.show(config.notes)
    steps = [hf.HfStep(phase="decode", batch=rows, context=_CONTEXT) for rows in _DECODE]
    steps.append(hf.HfStep(phase="prefill", batch=1, context=_PROMPT))
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        with among_fakes():
            tracer = ConfigTracer(config)
            for step in steps:
                name = f"{step.phase}-{step.batch}"
                on_progress(StageProgress("running the model on shapes", note=name))
                made = tracer.trace(step)
                path = str(Path(folder, f"{name}.ptx"))
                write_trace(made.trace, path, data=False)
                paths.append(path)
        messages.show(made.trace.diagnostics)
        yield paths
