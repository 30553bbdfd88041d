"""What `tessc analyze` shows of a report: text for people, JSON for programs.

In: a `driver.analyze.Report`. Out: strings and JSON values; nothing is printed here. The JSON
schema is described in `docs/reference/json.md` and only ever grows within one `schema` version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tessera.diagnostics import Diagnostic
from tessera.driver.analyze import Report
from tessera.frontend.text.readfile import text_to_bytes
from tessera.ir.program.program import Program
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.print_ptx import print_module, print_operand
from tessera.passes.kernel_facts.summarise_program import (
    Count,
    FunctionSummary,
    LaunchTotal,
    ModuleSummary,
    ParameterSummary,
    ProgramSummary,
    VariableSummary,
    VariantSummary,
)
from tessera.report.diagnostics import in_order, safe, to_json
from tessera.report.table import Column, Fit, amount, fitted, table

SCHEMA = "tessera-analyze/1"

_FIELDS = (Column(least=14), Column(fit=Fit.WRAP))
_LAUNCHES = (Column(right=True, least=6), Column(), Column(fit=Fit.WRAP))
_PARAMETERS = (Column(), Column())


# --- text --------------------------------------------------------------------------------------


def report_text(report: Report, width: int | None = None) -> str:
    """The report as text, for a terminal of that width or for a file."""
    summary = report.summary
    blocks = [_trace_block(safe(report.name), summary, width)] if is_trace(summary) else []
    if report.graph is not None:
        from tessera.report.graph import graph_blocks

        blocks += graph_blocks(report.graph)
    for variant in summary.variants:
        title = (
            f"module {variant.module} ({variant.arch})" if is_trace(summary) else safe(report.name)
        )
        blocks += _module_blocks(title, variant.summary, width)
    return fitted("\n\n".join(blocks) + "\n", width)


def is_trace(summary: ProgramSummary) -> bool:
    """Whether a summary is of a trace, not of a PTX file."""
    return bool(summary.roles or summary.launches or len(summary.variants) != 1)


def _trace_block(name: str, summary: ProgramSummary, width: int | None) -> str:
    roles = [
        f"{total.buffers} {total.role.value} ({amount(total.bytes, 'byte')})"
        for total in summary.roles
    ]
    kinds = (
        (sum(total.launches for total in summary.launches), "launch", "launches"),
        (summary.memsets, "memset", "memsets"),
        (summary.memcpys, "memcpy", "memcpys"),
        (summary.library_calls, "library call", "library calls"),
    )
    steps = ", ".join(amount(*kind) for kind in kinds if kind[0])
    if summary.streams > 1:
        steps += f" on {summary.streams} streams"
    rows = [
        ("buffers", ", ".join(roles) or "none"),
        ("contents", summary.resident or "none; generated"),
        ("steps", steps or "none"),
        ("modules", "; ".join(_module_list(summary.variants)) or "none"),
    ]
    lines = [f"trace {name}", *table(_FIELDS, rows, width)]
    if summary.launches:
        launches = table(_LAUNCHES, map(_launch_row, summary.launches), width, gap=1)
        lines += ["", "launches", *launches]
    return "\n".join(lines)


def _module_list(variants: Iterable[VariantSummary]) -> list[str]:
    """Modules grouped by the architectures that they have code for."""
    archs: dict[str, list[str]] = {}
    for variant in variants:
        archs.setdefault(variant.module, []).append(variant.arch)
    modules: dict[str, list[str]] = {}
    for module, module_archs in archs.items():
        modules.setdefault(", ".join(module_archs), []).append(module)
    return [f"{', '.join(names)} ({listed})" for listed, names in modules.items()]


def _launch_row(total: LaunchTotal) -> tuple[str, str, str]:
    shape = f"grid {_triple(total.grid)}, block {_triple(total.block)}"
    shared = "varies" if total.shared_bytes is None else amount(total.shared_bytes, "byte")
    dynamic = "" if total.shared_bytes == 0 else f", dynamic shared {shared}"
    return str(total.launches), "x", f"{total.module}.{total.kernel}: {shape}{dynamic}"


def _triple(extent: tuple[int, int, int] | None) -> str:
    return "varies" if extent is None else "x".join(map(str, extent))


def _module_blocks(title: str, summary: ModuleSummary, width: int | None) -> Iterator[str]:
    major, minor = summary.version
    size = f", {summary.address_size}-bit addresses" if summary.address_size else ""
    head = f"{title}: PTX {major}.{minor}, target {', '.join(summary.target)}{size}"
    rows = [("variable", _variable_text(variable)) for variable in summary.variables]
    if summary.declarations:
        rows.append(("declared only", ", ".join(summary.declarations)))
    if not summary.kernels and not summary.functions:
        rows.append(("kernels", "none"))
    yield "\n".join([head, *table(_FIELDS, rows, width)])
    for function in (*summary.kernels, *summary.functions):
        kind = "kernel" if function.is_entry else "function"
        where = f" (line {function.line})" if function.line is not None else ""
        fields = table(_FIELDS, _function_rows(function), width)
        yield "\n".join([f"{kind} {function.name}{where}", *fields])


def _variable_text(variable: VariableSummary) -> str:
    size = "size open" if variable.bytes is None else amount(variable.bytes, "byte")
    linkage = f"{variable.linkage} " if variable.linkage else ""
    first = ", initialised" if variable.is_initialized else ""
    text = f"{linkage}{variable.space} {variable.type} {variable.name}: {size}"
    return f"{text}, align {variable.align}{first}"


def _function_rows(function: FunctionSummary) -> Iterator[tuple[str, str]]:
    yield from _parameter_rows("results", function.returns)
    yield from _parameter_rows("parameters", function.parameters)
    if not function.parameters:
        yield "parameters", "none"
    if function.directives:
        yield "directives", ", ".join(map(directive_text, function.directives))
    yield "registers", _count_list(function.registers) or "none"
    yield "shared memory", _shared_text(function)
    if function.local_bytes:
        yield "local memory", amount(function.local_bytes, "byte")
    yield "instructions", _mix_text(function)
    if function.calls or function.indirect_calls:
        yield "calls", _call_text(function)


def _parameter_rows(
    label: str, parameters: tuple[ParameterSummary, ...]
) -> Iterator[tuple[str, str]]:
    cells = ((parameter.name, _parameter_text(parameter)) for parameter in parameters)
    for index, line in enumerate(table(_PARAMETERS, cells, indent=0)):
        yield "" if index else label, line


def _parameter_text(parameter: ParameterSummary) -> str:
    size = "size open" if parameter.bytes is None else amount(parameter.bytes, "byte")
    array = " array" if parameter.is_array else ""
    pointer = ""
    if parameter.pointer_space is not None:
        align = f", align {parameter.pointer_align}" if parameter.pointer_align else ""
        pointer = f", pointer to {parameter.pointer_space}{align}"
    return f"{parameter.type}{array}, {size}{pointer}"


def _shared_text(function: FunctionSummary) -> str:
    static = f"{amount(function.shared_bytes, 'byte')} static" if function.shared_bytes else ""
    dynamic = "dynamic (the launch gives the size)" if function.uses_dynamic_shared else ""
    return ", ".join(filter(None, (static, dynamic))) or "none"


def _mix_text(function: FunctionSummary) -> str:
    mix = f": {_count_list(function.mix)}" if function.mix else ""
    return f"{function.instructions}{mix}"


def _call_text(function: FunctionSummary) -> str:
    calls = [f"{call.name} {call.count}" for call in function.calls]
    if function.indirect_calls:
        calls.append(f"indirect {function.indirect_calls}")
    return ", ".join(calls)


def _count_list(counts: Iterable[Count]) -> str:
    return ", ".join(f"{count.name} {count.count}" for count in counts)


def directive_text(directive: ptx.Directive) -> str:
    """A directive as in the text, without its dot: `maxntid 128, 1, 1`."""
    values = ", ".join(v if isinstance(v, str) else print_operand(v) for v in directive.values)
    return f"{directive.name} {values}".strip()


# --- in place of the report, or after it ---------------------------------------------------------


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


# --- JSON --------------------------------------------------------------------------------------


def report_json(report: Report, graph_file: str | None = None) -> str:
    """The report as one JSON document; `graph_file` is where its kernel graph was written."""
    value = report_value(report)
    return json.dumps({**value, "graph_file": graph_file}, indent=2) + "\n"


def failure_json(name: str, diagnostics: Iterable[Diagnostic]) -> str:
    """The document for a file that could not be read: only the findings."""
    value = {"schema": SCHEMA, "file": name, "diagnostics": list(map(to_json, diagnostics))}
    return json.dumps(value, indent=2) + "\n"


def _graph_value(report: Report) -> object:
    if report.graph is None:
        return None
    from tessera.report.graph import graph_value

    return graph_value(report.graph)


def report_value(report: Report) -> dict[str, object]:
    """The report as JSON values."""
    summary = report.summary
    return {
        "schema": SCHEMA,
        "file": report.name,
        "diagnostics": [to_json(diagnostic) for diagnostic in in_order(report.diagnostics)],
        "trace": _trace_value(report) if is_trace(summary) else None,
        "graph": _graph_value(report),
        "modules": [_module_value(variant) for variant in summary.variants],
    }


def _trace_value(report: Report) -> dict[str, object]:
    summary = report.summary
    return {
        "resident": summary.resident,
        "streams": summary.streams,
        "memsets": summary.memsets,
        "memcpys": summary.memcpys,
        "library_calls": summary.library_calls,
        "buffers": [
            {
                "name": buffer.name,
                "bytes": buffer.bytes,
                "role": buffer.role.value,
                "dtype": buffer.dtype.value if buffer.dtype else None,
                "shape": list(buffer.shape) if buffer.shape is not None else None,
            }
            for buffer in report.program.declared_buffers()
        ],
        "launches": [
            {
                "module": total.module,
                "kernel": total.kernel,
                "launches": total.launches,
                "grid": total.grid,
                "block": total.block,
                "dynamic_shared_bytes": total.shared_bytes,
            }
            for total in summary.launches
        ],
    }


def _module_value(variant: VariantSummary) -> dict[str, object]:
    summary = variant.summary
    return {
        "name": variant.module,
        "arch": variant.arch,
        "version": ".".join(map(str, summary.version)),
        "target": list(summary.target),
        "address_size": summary.address_size,
        "kernels": list(map(_function_value, summary.kernels)),
        "functions": list(map(_function_value, summary.functions)),
        "declarations": list(summary.declarations),
        "variables": [
            {
                "name": variable.name,
                "space": variable.space,
                "type": variable.type,
                "bytes": variable.bytes,
                "align": variable.align,
                "linkage": variable.linkage,
                "initialized": variable.is_initialized,
            }
            for variable in summary.variables
        ],
    }


def _function_value(function: FunctionSummary) -> dict[str, object]:
    return {
        "name": function.name,
        "line": function.line,
        "linkage": function.linkage,
        "directives": list(map(directive_text, function.directives)),
        "returns": list(map(_parameter_value, function.returns)),
        "parameters": list(map(_parameter_value, function.parameters)),
        "registers": _counts_value(function.registers),
        "shared_bytes": function.shared_bytes,
        "uses_dynamic_shared": function.uses_dynamic_shared,
        "local_bytes": function.local_bytes,
        "instructions": function.instructions,
        "mix": _counts_value(function.mix),
        "calls": _counts_value(function.calls),
        "indirect_calls": function.indirect_calls,
    }


def _parameter_value(parameter: ParameterSummary) -> dict[str, object]:
    return {
        "name": parameter.name,
        "type": parameter.type,
        "bytes": parameter.bytes,
        "align": parameter.align,
        "array": parameter.is_array,
        "pointer_space": parameter.pointer_space,
        "pointer_align": parameter.pointer_align,
    }


def _counts_value(counts: Iterable[Count]) -> dict[str, int]:
    return {count.name: count.count for count in counts}
