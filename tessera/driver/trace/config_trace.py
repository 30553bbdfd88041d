"""`ConfigTracer`: traces of the steps of a config file's model; equal layers are traced once.

In: a config file and a step. Out: a `FakeTrace`. If all layers are alike
(`frontend.capture.meta.equal_layers`), models with two, three and four layers are traced. If
`repeat_layers` makes the third trace from the first two, it also makes the trace of all layers;
otherwise the whole model is traced.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tessera.diagnostics import TesseraError
from tessera.driver.trace.meta_trace import FakeTrace, trace_among_fakes
from tessera.driver.trace.quantize import quantize
from tessera.driver.trace.repeat_layers import is_same, with_more_layers
from tessera.ir.progress import OnProgress

if TYPE_CHECKING:
    import transformers

    from tessera.frontend.capture.meta.hf import HfConfig, HfStep

_FEW = (2, 3, 4)
_MANY = 12  # models with fewer layers are traced whole


class ConfigTracer:
    """Traces of one model, which is reused from step to step. Tensors are fake here."""

    def __init__(
        self, config: HfConfig, *, fused: bool = True, on_progress: OnProgress | None = None
    ) -> None:
        self._config = config
        self._fused = fused
        self._on_progress = on_progress
        self._models: dict[int, list[transformers.PreTrainedModel]] = {}
        self._layers: int | None = None

    def trace(self, step: HfStep) -> FakeTrace:
        """One step of the model."""
        return self._quantized(self._plain(step))

    def _plain(self, step: HfStep) -> FakeTrace:
        from tessera.frontend.capture.meta.equal_layers import equal_layers

        count = self._config.values.get("num_hidden_layers")
        if not isinstance(count, int) or count < _MANY:
            return self._traced(self._config, 0, step)
        if self._layers is None:
            self._layers = equal_layers(self._config)
        made = self._repeated(step, self._layers) if self._layers else None
        return self._traced(self._config, 0, step) if made is None else made

    def _quantized(self, traced: FakeTrace) -> FakeTrace:
        """The trace with the weights of the checkpoint."""
        from tessera.frontend.capture.meta.quantized import general_name, layers_of

        how = self._config.quantization
        if how is None or not self._fused:
            return traced
        model = next(known[0] for known in self._models.values() if known)
        layers = layers_of(model, how)
        program = quantize(traced.trace.program, how, lambda name: general_name(name) in layers)
        return replace(traced, trace=replace(traced.trace, program=program))

    def _repeated(self, step: HfStep, layers: int) -> FakeTrace | None:
        """The trace of all layers from traces of a few layers; None if these do not agree."""
        from tessera.frontend.capture.meta.equal_layers import with_layers

        try:
            few = [self._traced(with_layers(self._config, n), n, step) for n in _FEW]
        except TesseraError:
            return None  # the library may not accept a model with so few layers
        third = with_more_layers(few[0], few[1], _FEW[2] - _FEW[0])
        if third is None or not is_same(third, few[2]):
            return None
        return with_more_layers(few[0], few[1], layers - _FEW[0])

    def _traced(self, config: HfConfig, layers: int, step: HfStep) -> FakeTrace:
        from tessera.frontend.capture.meta import hf

        model = self._models.setdefault(layers, [])
        return trace_among_fakes(
            partial(hf.make_step, config, step, model),
            fused=self._fused,
            warm_ups=0,
            on_progress=self._on_progress,
        )
