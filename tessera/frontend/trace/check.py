"""A launch against the kernel it names: arguments against parameters, shapes against limits.

In: a launch with its variants, and the kernel in the code for each architecture. Out: findings.
Every rule is one that the driver or the hardware would refuse later, or would not notice at all
(a float passed for an integer). Limits: CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability"; PTX ISA 9.0, sections 11.4 (`.reqntid`, `.maxntid`) and 11.8 (clusters).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tessera.frontend.trace.fields import Fields
from tessera.frontend.trace.findings import TraceFindings
from tessera.frontend.trace.kernels import Kernel, Parameter
from tessera.frontend.trace.modules import OpenModule, code_for
from tessera.frontend.trace.values import Values
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

MAX_GRID: Triple = (2**31 - 1, 65535, 65535)
MAX_BLOCK: Triple = (1024, 1024, 64)
MAX_CLUSTER: Triple = (16, 16, 16)
MAX_THREADS = 1024
MAX_CLUSTER_BLOCKS = 16
MAX_SHARED_BYTES = 2**31 - 1


@dataclass(slots=True)
class OpenLaunch:
    """A launch whose variants are still being read."""

    launch: Launch
    fields: Fields
    module: OpenModule
    variants: list[tuple[LaunchVariant, Fields]] = field(default_factory=list)


def check_launch(opened: OpenLaunch, values: Values) -> None:
    """Report what is wrong with a launch for the code of any architecture."""
    module, launch = opened.module, opened.launch
    kernel = module.kernels[module.variants[0].arch][launch.kernel]
    # Variants of a module agree on parameters, so any kernel serves to check the arguments.
    _check_arguments(launch.arguments, kernel, opened.fields, values)
    _check_cluster(launch.grid, launch.cluster, opened.fields, values.findings)
    blocks = {code.arch: (launch.block, opened.fields) for code in module.variants}
    for variant, fields in opened.variants:
        _check_variant(launch, variant, kernel, fields, values)
        block = (launch.block, opened.fields) if variant.block is None else (variant.block, fields)
        blocks[variant.arch] = block
    for arch, (block_of_arch, fields) in blocks.items():
        code = module.kernels[code_for(module, arch) or module.variants[0].arch]
        own_kernel = code.get(launch.kernel, kernel)
        if not _block_fits(block_of_arch, own_kernel, fields, arch, values.findings):
            return


def check_block(block: Triple, fields: Fields, findings: TraceFindings) -> None:
    """The limit on the threads of any block."""
    if prod(block) > MAX_THREADS:
        findings.fail(
            "TSR1125",
            f"a block has at most {MAX_THREADS} threads, not {prod(block)}",
            fields.place("block"),
        )


def _check_variant(
    launch: Launch, variant: LaunchVariant, kernel: Kernel, fields: Fields, values: Values
) -> None:
    if variant.arguments is not None:
        _check_arguments(variant.arguments, kernel, fields, values)
    if variant.grid is not None or variant.cluster is not None:
        grid, cluster = variant.grid or launch.grid, variant.cluster or launch.cluster
        _check_cluster(grid, cluster, fields, values.findings)


def _block_fits(
    block: Triple, kernel: Kernel, fields: Fields, arch: str, findings: TraceFindings
) -> bool:
    """Whether a block obeys the kernel's `.reqntid` and `.maxntid`; reports it if not."""
    required, threads = kernel.required_block, prod(block)
    if required is not None and required != block:
        x, y, z = required
        findings.error(
            "TSR1127",
            f"kernel `{kernel.name}` for `{arch}` requires a block of {x},{y},{z}",
            fields.place("block"),
            f"`.reqntid {x}, {y}, {z}`",
            hint=f"give `block={x},{y},{z}`, or `//! variant {arch} block={x},{y},{z}` below it",
        )
        return False
    if kernel.max_threads is not None and threads > kernel.max_threads:
        findings.error(
            "TSR1127",
            f"kernel `{kernel.name}` for `{arch}` takes {kernel.max_threads} threads per block "
            f"at most, not {threads}",
            fields.place("block"),
            "its `.maxntid` is smaller",
        )
        return False
    return True


def _check_cluster(
    grid: Triple, cluster: Triple | None, fields: Fields, findings: TraceFindings
) -> None:
    if cluster is None:
        return
    if prod(cluster) > MAX_CLUSTER_BLOCKS:
        findings.error(
            "TSR1126",
            f"a cluster has at most {MAX_CLUSTER_BLOCKS} blocks, not {prod(cluster)}",
            fields.place("cluster"),
        )
    elif any(blocks % size for blocks, size in zip(grid, cluster, strict=True)):
        findings.error(
            "TSR1126",
            "the grid is not a multiple of the cluster in every dimension",
            fields.place("cluster"),
            "grid={},{},{}".format(*grid),
        )


def _check_arguments(
    arguments: tuple[Argument, ...], kernel: Kernel, fields: Fields, values: Values
) -> None:
    if len(arguments) != len(kernel.parameters):
        values.findings.error(
            "TSR1130",
            f"kernel `{kernel.name}` takes {_count(len(kernel.parameters), 'argument')}, "
            f"but {len(arguments)} {'is' if len(arguments) == 1 else 'are'} given",
            fields.place("args"),
            notes=(f"parameters: {', '.join(map(_described, kernel.parameters)) or 'none'}",),
        )
        return
    for index, (argument, parameter) in enumerate(zip(arguments, kernel.parameters, strict=True)):
        if not _fits(argument, parameter):
            _report_mismatch(argument, parameter, index, fields, values)
        elif parameter.is_pointer and isinstance(argument, Scalar) and argument.bits:
            values.findings.warning(
                "TSR1135",
                f"a number is passed for the pointer parameter `{parameter.name}`",
                values.argument_places(*fields.value("args"))[index],
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
    argument: Argument, parameter: Parameter, index: int, fields: Fields, values: Values
) -> None:
    place = values.argument_places(*fields.value("args"))[index]
    given = "an address (8 bytes)"
    if isinstance(argument, Scalar):
        given = f"`{argument.type.value}` ({_count(argument.type.bytes, 'byte')})"
    elif isinstance(argument, ByValue):
        given = f"a struct of {_count(len(argument.content), 'byte')}"
    values.findings.error(
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
