"""What `tessc analyze` prints in place of its report, or after it: PTX, accesses of kernels.

In: a `Report` or its parts. Out: bytes or text.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.driver.analyze import Report
from tessera.frontend.text.readfile import text_to_bytes
from tessera.ir.program.program import Program
from tessera.ir.ptx.print_ptx import print_module
from tessera.report.table import fitted


def describe_kernels(report: Report, width: int | None = None) -> str:
    """What the kernels of a report access, in terms of their parameters."""
    # They need NumPy, which the report of a PTX file does without.
    from tessera.passes.kernel_facts.describe_kernel import describe_kernel
    from tessera.passes.kernel_facts.kernel_code import prepare_kernel

    blocks: list[str] = []
    variants = (v for module in report.program.modules for v in module.variants)
    for variant, summary in zip(variants, report.summary.variants, strict=True):
        wanted = {function.name for function in summary.summary.kernels}
        for function in variant.ptx.kernels():
            if function.name in wanted:
                lines = describe_kernel(prepare_kernel(variant.ptx, function))
                rows = [f"  {line}" for line in lines] or ["  none"]
                blocks.append("\n".join([f"accesses of {function.name} ({variant.arch})", *rows]))
    return fitted("".join(f"\n{block}\n" for block in blocks), width)


def emit_ptx(program: Program) -> bytes:
    """The PTX of every module as Tessera prints it; several make a trace without steps."""
    return text_to_bytes("".join(_ptx_parts(program)))


def _ptx_parts(program: Program) -> Iterator[str]:
    variants = [(m.name, v) for m in program.modules for v in m.variants]
    if len(variants) != 1:
        yield "//! tessera.trace 1\n"
    for name, variant in variants:
        if len(variants) > 1:
            yield f"//! module {name} arch={variant.arch}\n"
        yield print_module(variant.ptx)
