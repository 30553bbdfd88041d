"""Whether a run computed what one device computes.

In: the outcome of a run and what it started from. Out: a `Verdict`; a difference raises TSR5054
with exit code 5 and names the first launch that diverges (`compare_runs`).

On the CPU backend bytes are equal whatever devices took part, since the run on one device takes
each launch in the variant that the plan chose. On GPUs that holds for equal GPUs and variants and
without atomics on floats; otherwise launches are compared one by one (`verify_devices`).
"""

from __future__ import annotations

from dataclasses import replace

from tessera.backend.known_backends import BackendName
from tessera.backend.processes.reference import Reference
from tessera.backend.service import Model
from tessera.backend.unwritten import ComparedSide, filled_ranges
from tessera.driver.run.compare_runs import Verdict, compare_runs, variants_used
from tessera.driver.run.launches import compare_launches, in_oldest_variant
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.serving import models_of
from tessera.ir.progress import OnProgress


def verify_run(
    outcome: Outcome, prepared: Prepared, on_progress: OnProgress | None = None
) -> Verdict:
    """Compare what a run computed with one device, and with what PyTorch recorded."""
    from tessera.driver.run.recorded import compare_recorded

    verdict = _verify_on_one(outcome, prepared, on_progress)
    return replace(verdict, notes=(*verdict.notes, *compare_recorded(outcome, prepared)))


def _verify_on_one(outcome: Outcome, prepared: Prepared, on_progress: OnProgress | None) -> Verdict:
    models = models_of(prepared.opened, prepared.materials)
    if outcome.backend != BackendName.CPU:
        from tessera.driver.run.verify_devices import verify_on_devices

        return verify_on_devices(outcome, prepared, models, on_progress)
    limit = prepared.options.max_steps
    side = ComparedSide.ONE_DEVICE if outcome.has_patterns else None
    references = [
        Reference(
            m.traces,
            m.weights,
            m.states,
            m.fillings,
            max_steps=limit,
            unwritten=side,
            filled=filled_ranges(m.lowered),
        )
        for m in models
    ]
    verdict = compare_runs(outcome, prepared.materials, models, references, on_progress)
    return replace(verdict, notes=_compare_variants(prepared, models[0]))


def _compare_variants(prepared: Prepared, model: Model) -> tuple[str, ...]:
    """Where devices run different variants, one GPU could not: compare the variants themselves."""
    places: dict[str, list[str]] = {}
    for arches in variants_used(prepared).values():
        for arch, names in arches.items():
            places.setdefault(arch, []).extend(n for n in names if n not in places.get(arch, ()))
    if len(places) < 2:
        return ()
    rows = ", ".join(f"{arch} on {', '.join(names)}" for arch, names in sorted(places.items()))
    compared = compare_launches(prepared, model, in_oldest_variant(model), "its oldest variant")
    return (
        f"code for several architectures ran ({rows}); on one device each launch took the same",
        "with one variant for all, bytes need not be equal; launches that have an older one are "
        "within the tolerance of each type",
        *compared.notes(),
    )
