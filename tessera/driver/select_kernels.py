"""The kernels and functions of a summary that patterns name; `*` and `?` match.

In: a `ProgramSummary` and patterns. Out: the summary with those alone. A pattern that matches
nothing is refused: it is more likely a slip than a wish.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from fnmatch import fnmatchcase

from tessera.ir.options import WrongOption
from tessera.passes.kernel_facts.summarise_program import FunctionSummary, ProgramSummary


def select_kernels(summary: ProgramSummary, patterns: tuple[str, ...]) -> ProgramSummary:
    """The same, with only the kernels and functions whose name matches."""
    _check_patterns(summary, patterns)

    def kept(functions: tuple[FunctionSummary, ...]) -> tuple[FunctionSummary, ...]:
        return tuple(f for f in functions if any(fnmatchcase(f.name, p) for p in patterns))

    variants = tuple(
        replace(
            variant,
            summary=replace(
                variant.summary,
                kernels=kept(variant.summary.kernels),
                functions=kept(variant.summary.functions),
            ),
        )
        for variant in summary.variants
    )
    return replace(summary, variants=variants)


def _check_patterns(summary: ProgramSummary, patterns: tuple[str, ...]) -> None:
    names = [
        function.name
        for variant in summary.variants
        for function in (*variant.summary.kernels, *variant.summary.functions)
    ]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise WrongOption("no kernel or function matches", f" `{pattern}`{hint}")
