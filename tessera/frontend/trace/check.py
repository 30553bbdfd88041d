"""Checks a launch against its kernel: arguments against parameters, shapes against limits.

In: a launch with its variants, and the kernel in the code for each architecture. Out: findings.
Each rule finds a fault that the driver or the hardware would refuse later, or would not notice at
all (a float passed for an integer). Limits: CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability"; PTX ISA 9.0, sections 11.4 (`.reqntid`, `.maxntid`) and 11.8 (clusters).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod

from tessera.frontend.trace.findings import TraceFindings
from tessera.frontend.trace.kernels import Kernel, Parameter
from tessera.frontend.trace.modules import OpenModule, code_for
from tessera.frontend.trace.records import OpenRecord
from tessera.ir.program.program import (
    POINTER_BYTES,
    Argument,
    ByValue,
    Launch,
    LaunchVariant,
    Pointer,
    Scalar,
    Triple,
)

MAX_THREADS = 1024
MAX_CLUSTER_BLOCKS = 16


@dataclass(slots=True)
class OpenLaunch:
    """A launch whose variants are still being read."""

    launch: Launch
    record: OpenRecord
    module: OpenModule
    variants: list[tuple[LaunchVariant, OpenRecord]] = field(default_factory=list)


def check_launch(opened: OpenLaunch, findings: TraceFindings) -> None:
    """Report what is wrong with a launch for the code of any architecture."""
    module, launch = opened.module, opened.launch
    kernel = module.kernels[module.variants[0].arch][launch.kernel]
    # Variants of a module agree on parameters, so any kernel serves to check the arguments.
    _check_arguments(launch.arguments, kernel, opened.record, findings)
    _check_cluster(launch.grid, launch.cluster, opened.record, findings)
    blocks = {code.arch: (launch.block, opened.record) for code in module.variants}
    for variant, record in opened.variants:
        _check_variant(launch, variant, kernel, record, findings)
        block = (launch.block, opened.record) if variant.block is None else (variant.block, record)
        blocks[variant.arch] = block
    for arch, (block_of_arch, record) in blocks.items():
        code = module.kernels[code_for(module, arch) or module.variants[0].arch]
        own_kernel = code.get(launch.kernel, kernel)
        if not _block_fits(block_of_arch, own_kernel, record, arch, findings):
            return


def check_block(block: Triple, record: OpenRecord, findings: TraceFindings) -> None:
    """Check a block against the limit on its threads."""
    if prod(block) > MAX_THREADS:
        findings.fail(
            "TSR1125",
            f"a block has at most {MAX_THREADS} threads, not {prod(block)}",
            record.place("block"),
        )


def _check_variant(
    launch: Launch,
    variant: LaunchVariant,
    kernel: Kernel,
    record: OpenRecord,
    findings: TraceFindings,
) -> None:
    if variant.arguments is not None:
        _check_arguments(variant.arguments, kernel, record, findings)
    if variant.grid is not None or variant.cluster is not None:
        grid, cluster = variant.grid or launch.grid, variant.cluster or launch.cluster
        _check_cluster(grid, cluster, record, findings)


def _block_fits(
    block: Triple, kernel: Kernel, record: OpenRecord, arch: str, findings: TraceFindings
) -> bool:
    """Whether a block obeys the kernel's `.reqntid` and `.maxntid`; reports it if not."""
    required, threads = kernel.required_block, prod(block)
    if required is not None and required != block:
        x, y, z = required
        findings.error(
            "TSR1125",
            f"kernel `{kernel.name}` for `{arch}` requires a block of {x},{y},{z}",
            record.place("block"),
            f"`.reqntid {x}, {y}, {z}`",
            hint=f"give `block={x},{y},{z}`, or `//! variant {arch} block={x},{y},{z}` below it",
        )
        return False
    if kernel.max_threads is not None and threads > kernel.max_threads:
        findings.error(
            "TSR1125",
            f"kernel `{kernel.name}` for `{arch}` takes {kernel.max_threads} threads per block "
            f"at most, not {threads}",
            record.place("block"),
            "its `.maxntid` is smaller",
        )
        return False
    return True


def _check_cluster(
    grid: Triple, cluster: Triple | None, record: OpenRecord, findings: TraceFindings
) -> None:
    if cluster is None:
        return
    if prod(cluster) > MAX_CLUSTER_BLOCKS:
        findings.error(
            "TSR1125",
            f"a cluster has at most {MAX_CLUSTER_BLOCKS} blocks, not {prod(cluster)}",
            record.place("cluster"),
        )
    elif any(blocks % size for blocks, size in zip(grid, cluster, strict=True)):
        findings.error(
            "TSR1125",
            "the grid is not a multiple of the cluster in every dimension",
            record.place("cluster"),
            "grid={},{},{}".format(*grid),
        )


def _check_arguments(
    arguments: tuple[Argument, ...], kernel: Kernel, record: OpenRecord, findings: TraceFindings
) -> None:
    if len(arguments) != len(kernel.parameters):
        findings.error(
            "TSR1131",
            f"kernel `{kernel.name}` takes {_count(len(kernel.parameters), 'argument')}, "
            f"but {len(arguments)} {'is' if len(arguments) == 1 else 'are'} given",
            record.place("args"),
            notes=(f"parameters: {', '.join(map(_described, kernel.parameters)) or 'none'}",),
        )
        return
    for index, (argument, parameter) in enumerate(zip(arguments, kernel.parameters, strict=True)):
        if not _fits(argument, parameter):
            _report_mismatch(argument, parameter, index, record, findings)
        elif parameter.is_pointer and isinstance(argument, Scalar) and argument.bits:
            findings.warning(
                "TSR1135",
                f"a number is passed for the pointer parameter `{parameter.name}`",
                _argument_places(*record.given["args"])[index],
                "not an address of any buffer",
                about=(kernel.name, parameter.name),
                hint="pass `BUFFER+OFFSET`, or `u64:0` for a null pointer",
            )


def _fits(argument: Argument, parameter: Parameter) -> bool:
    """Whether an argument has the size and the kind of a parameter."""
    if isinstance(argument, Pointer):
        right_size = parameter.bytes == POINTER_BYTES and not parameter.is_aggregate
        return right_size and parameter.kind != "float"
    if isinstance(argument, ByValue):
        return len(argument.content) == parameter.bytes
    if parameter.is_aggregate or argument.type.bytes != parameter.bytes:
        return False
    if parameter.kind == "bits" or argument.type.is_bits:
        return True
    return argument.type.is_float == (parameter.kind == "float")


def _report_mismatch(
    argument: Argument,
    parameter: Parameter,
    index: int,
    record: OpenRecord,
    findings: TraceFindings,
) -> None:
    place = _argument_places(*record.given["args"])[index]
    given = "an address (8 bytes)"
    if isinstance(argument, Scalar):
        given = f"`{argument.type.value}` ({_count(argument.type.bytes, 'byte')})"
    elif isinstance(argument, ByValue):
        given = f"a struct of {_count(len(argument.content), 'byte')}"
    findings.error(
        "TSR1131",
        f"argument {index + 1} is {given}, but the parameter is `{parameter}` "
        f"({_count(parameter.bytes, 'byte')})",
        place,
        f"parameter `{parameter.name}`",
        hint=_repair(argument, parameter),
    )


def _repair(argument: Argument, parameter: Parameter) -> str | None:
    if parameter.is_aggregate:
        return f"pass a struct: `b8[{parameter.bytes}]:HEX@{{OFFSET:BUFFER}}`"
    same_size = isinstance(argument, Scalar) and argument.type.bytes == parameter.bytes
    if same_size:
        return f"`b{8 * parameter.bytes}:0x...` passes exact bits for any type"
    if parameter.bytes in (1, 2, 4, 8):
        return f"pass `{parameter.type}:VALUE`"
    return None


def _described(parameter: Parameter) -> str:
    return f"{parameter} {parameter.name}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _argument_places(text: str, at: int) -> list[tuple[int, int]]:
    """The place of each argument of a list, for a diagnostic."""
    places, start, depth = [], 1, 0
    for sign in re.finditer(r"[\[\]{},]", text[:-1]):
        if sign.start() and sign[0] in "[{":
            depth += 1
        elif sign[0] in "]}":
            depth -= 1
        elif sign[0] == "," and depth == 0:
            places.append((start, sign.start()))
            start = sign.end()
    places.append((start, len(text) - 1))
    return [_trimmed(text, at, *place) for place in places]


def _trimmed(text: str, at: int, start: int, end: int) -> tuple[int, int]:
    bare = text[start:end]
    left = start + len(bare) - len(bare.lstrip())
    return (at + left, at + left + len(bare.strip()))
