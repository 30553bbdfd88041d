"""Parts of launches as kernels of their own, for devices (K__x96of128).

In: a program whose launches may be parts (`Launch.ctas`). Out: the same program without parts: a
part launches a copy of its kernel that reads its CTA's number counted from the first CTA of the
part, and the extent of the whole grid, as constants. Parts that differ in nothing else share one
kernel. The copies stand in the module of their kernel, whose variables they use; its debug
information, which names labels, is removed.

A copy begins with `mov.v4.u32 %tessera_ctaid, %ctaid; add.u32 %tessera_ctaid.x, ...` and names that
register instead of `%ctaid`. So do copies of the functions that it may call. Numbers of clusters
are counted in the same way.

Source: PTX ISA 9.0, sections 5.4.2 (vectors) and 10 (special registers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.print_ptx import print_module

AXES = "xyz"
_SHORT = frozenset({"u16", "s16", "b16"})
_SHIFTED = frozenset({"%ctaid", "%nctaid", "%clusterid", "%nclusterid"})

Node = TypeVar("Node")
Ranges = tuple[tuple[ir.CtaRange | None, ir.Triple], ...]
"""The range and the cluster of a part, for each variant of its module."""


def with_part_kernels(program: ir.Program) -> ir.Program:
    """The program with every part as a launch of a kernel of its own."""
    made: dict[ir.ModuleId, dict[tuple[str, Ranges], str]] = {}
    steps: list[ir.Step] = []
    for step in program.steps:
        if isinstance(step, ir.Launch) and (ranges := _ranges(program, step)):
            names = made.setdefault(step.module, {})
            name = names.setdefault((step.kernel, ranges), _free_name(step, names))
            variants = tuple(replace(variant, ctas=None) for variant in step.variants)
            step = replace(step, kernel=name, ctas=None, variants=variants)
        steps.append(step)
    if not made:
        return program
    modules = tuple(
        replace(module, variants=tuple(_with_copies(module, made[module.id])))
        if module.id in made
        else module
        for module in program.modules
    )
    return replace(program, modules=modules, steps=tuple(steps), whole=None)


def _ranges(program: ir.Program, launch: ir.Launch) -> Ranges:
    """What the kernels of a part read, by variants of its module; empty if it is no part."""
    ranges = []
    for variant in program.modules[launch.module].variants:
        own = ir.for_arch(launch, variant.arch)
        function = variant.ptx.definitions().get(launch.kernel)
        asked = (
            [d for d in function.directives if d.name == "reqnctapercluster"] if function else ()
        )
        sizes = [v.value for d in asked for v in d.values if isinstance(v, ptx.Integer)]
        x, y, z = (*sizes, 1, 1, 1)[:3]
        ranges.append((own.ctas, own.cluster or (x, y, z)))
    return tuple(ranges) if any(ctas for ctas, _ in ranges) else ()


def _free_name(launch: ir.Launch, names: Mapping[tuple[str, Ranges], str]) -> str:
    """A name that says the range; code for other architectures may have another one."""
    ctas = launch.ctas or next(v.ctas for v in launch.variants if v.ctas)
    name = f"{launch.kernel}__{AXES[ctas.axis]}{ctas.first}of{ctas.extent}"
    while name in names.values():
        name += "_"
    return name


def _with_copies(
    module: ir.ProgramModule, names: Mapping[tuple[str, Ranges], str]
) -> Iterator[ir.ModuleVariant]:
    """The code of a module with the kernels of parts behind its own."""
    kernels = {kernel for kernel, _ in names}
    for number, variant in enumerate(module.variants):
        whole = [
            replace(item, body=tuple(_plain(item.body or ())))
            if isinstance(item, ptx.Function) and item.has_body
            else item
            for item in variant.ptx.items
            if not isinstance(item, ptx.Section)
        ]
        mentioned: dict[str, set[str]] = {}
        for item in whole:
            if isinstance(item, ptx.Function) and (not item.is_entry or item.name in kernels):
                mentioned.setdefault(item.name, set()).update(_names(item.body))
        copies = [
            copy
            for (kernel, ranges), name in names.items()
            for copy in _copies(whole, mentioned, kernel, name, *ranges[number])
        ]
        text = replace(variant.ptx, items=(*whole, *copies))
        yield replace(variant, text=print_module(text), ptx=text)


def _plain(statements: tuple[ptx.Statement, ...]) -> Iterator[ptx.Statement]:
    """Statements without the lines of their source."""
    for statement in statements:
        if isinstance(statement, ptx.Block):
            statement = replace(statement, statements=tuple(_plain(statement.statements)))
        if not isinstance(statement, ptx.Location):
            yield statement


def _copies(
    items: Sequence[ptx.Item],
    mentioned: Mapping[str, set[str]],
    kernel: str,
    name: str,
    ctas: ir.CtaRange | None,
    cluster: ir.Triple,
) -> Iterator[ptx.Function]:
    """A kernel for a range of its CTAs, and what it may call that reads the number of the CTA."""
    reading = {name for name, all_names in mentioned.items() if not all_names.isdisjoint(_SHIFTED)}
    while more := {name for name, known in mentioned.items() if known & reading} - reading:
        reading |= more
    called = {kernel}
    while more := {name for caller in called for name in mentioned[caller] & reading} - called:
        called |= more
    names = {function: f"{function}__of_{name}" for function in sorted(called)} | {kernel: name}
    names |= {special: f"%tessera_{special[1:]}" for special in _SHIFTED if ctas}
    for item in items:
        if isinstance(item, ptx.Function) and item.name in called:
            body = item.body
            if body is not None:
                head = () if ctas is None else _head(mentioned[item.name], ctas, cluster)
                body = (*head, *_renamed(body, names))
            yield replace(item, name=names[item.name], body=body)


def _head(mentioned: set[str], ctas: ir.CtaRange, cluster: ir.Triple) -> Iterator[ptx.Statement]:
    """The registers that a copy reads instead of special ones, and their values."""
    size = cluster[ctas.axis]
    values = {
        "%ctaid": ("add", ctas.first),
        "%nctaid": ("mov", ctas.extent),
        "%clusterid": ("add", ctas.first // size),
        "%nclusterid": ("mov", ctas.extent // size),
    }
    for special, (operation, value) in values.items():
        if special in mentioned:
            register = f"%tessera_{special[1:]}"
            yield ptx.Variable(space="reg", type="u32", name=register, vector=4)
            read = (ptx.Name(register), ptx.Name(special))
            yield ptx.Instruction(None, ptx.Opcode("mov", ("v4", "u32")), read)
            own, number = ptx.Name(register, AXES[ctas.axis]), ptx.Integer(str(value), value)
            operands = (own, own, number) if operation == "add" else (own, number)
            yield ptx.Instruction(None, ptx.Opcode(operation, ("u32",)), operands)


def _names(node: object) -> Iterator[str]:
    """The names that statements mention, those that they declare aside."""
    if isinstance(node, ptx.Name):
        yield node.name
    elif isinstance(node, ptx.TargetList):
        yield from node.targets
    elif isinstance(node, tuple):
        for each in node:
            yield from _names(each)
    elif is_dataclass(node):
        for each in fields(node):
            yield from _names(getattr(node, each.name))


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Statements with other names."""
    match node:
        case ptx.Name() if node.name in names:
            return replace(node, name=names[node.name])
        case ptx.TargetList():
            return replace(node, targets=tuple(names.get(name, name) for name in node.targets))
        case ptx.Instruction(
            opcode=ptx.Opcode("mov", (kind,)), operands=(_, ptx.Name(read, _))
        ) if (
            kind in _SHORT and read in _SHIFTED and read in names
        ):  # special registers of 32 bits can be read as if they had 16, others cannot
            operands = _renamed(node.operands, names)
            return replace(node, opcode=ptx.Opcode("cvt", ("u16", "u32")), operands=operands)
        case tuple():
            return type(node)(_renamed(each, names) for each in node)
        case ptx.Name() | ptx.Variable() | ptx.Opcode() | ptx.Guard() | ptx.Integer() | ptx.Float():
            return node
        case _ if is_dataclass(node) and not isinstance(node, type):
            new = {each.name: _renamed(getattr(node, each.name), names) for each in fields(node)}
            return replace(node, **new)
    return node
