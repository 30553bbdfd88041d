"""The modules of a trace: their PTX is parsed, and the variants of each are compared.

In: `module` records with their PTX. Out: per module name its variants, kernels and module
variables. Each distinct PTX text is parsed once. A module whose PTX has faults is known but
`broken`: its launches are not checked, so that one fault does not cause many reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tessera.diagnostics import Label, Source, Span, TesseraError, error
from tessera.frontend.trace.findings import TraceFindings
from tessera.frontend.trace.kernels import Kernel, ModuleVariable, kernels_of, variables_of
from tessera.frontend.trace.records import ModuleRecord
from tessera.frontend.trace.split import Segment
from tessera.ir.program.program import Buffer, BufferId, ModuleId, ModuleVariant, Role
from tessera.ir.ptx import syntax as ptx

PLAIN_MODULE = "m0"

ParsePtx = Callable[[Source], ptx.Module]
Declared = TypeVar("Declared", Kernel, ModuleVariable)


@dataclass(slots=True)
class OpenModule:
    """A module while its trace is being read."""

    id: ModuleId
    name: str
    broken: bool = False
    launched: bool = False
    variants: list[ModuleVariant] = field(default_factory=list)
    kernels: dict[str, dict[str, Kernel]] = field(default_factory=dict)  # by arch, then name
    variables: dict[str, ModuleVariable] = field(default_factory=dict)  # of the first variant


def code_for(module: OpenModule, arch: str) -> str | None:
    """The architecture of the code that runs on `arch`: its own, else the newest older one.

    Code with a suffix (`sm_90a`) runs on its own architecture only. If the module has code for the
    same number with another suffix, `arch` is more likely a misspelling than intended.
    """
    known = [code.arch for code in module.variants]
    if arch in known:
        return arch
    number = _number(arch)
    if number is None or number in map(_number, known):
        return None
    older = [name for name in known if name[-1].isdecimal() and (_number(name) or 0) < number]
    return max(older, key=lambda name: _number(name) or 0, default=None)


def _number(arch: str) -> int | None:
    match = re.fullmatch(r"sm_([0-9]{1,4})[a-z]?", arch)
    return int(match[1]) if match else None


def variable_buffers(module: OpenModule, first: int) -> list[Buffer]:
    """A buffer for each variable of a module that takes memory, with ids from `first` on."""
    used = [(v, v.bytes) for v in module.variables.values() if v.bytes]
    return [
        Buffer(
            id=BufferId(first + place),
            name=f"{module.name}.{variable.name}",
            bytes=size,
            role=Role.VARIABLE,
            span=module.variants[0].ptx.span(variable.at),
        )
        for place, (variable, size) in enumerate(used)
    ]


def plain_module(source: Source, modules: Modules) -> OpenModule:
    """A whole PTX file as the only module."""
    place = (0, 1)
    record = ModuleRecord(
        name=PLAIN_MODULE, name_place=place, arch_place=place, span=Span(source, *place)
    )
    return modules.add(record, Segment(source))


class Modules:
    """All modules of one trace, by name."""

    def __init__(self, findings: TraceFindings, parse_ptx: ParsePtx) -> None:
        self.findings = findings
        self.by_name: dict[str, OpenModule] = {}
        self._parse_ptx = parse_ptx
        self._parsed: dict[str, ptx.Module] = {}

    def mark_broken(self, name: str) -> None:
        """Register a module whose record or PTX cannot be used."""
        self._open(name).broken = True

    def declared_later(self, name: str, at: int) -> Span | None:
        """The place of a module's declaration after an offset."""
        pattern = rf"^//![ \t]*module[ \t]+({re.escape(name)})(?=\s)"
        record = re.compile(pattern, re.MULTILINE).search(self.findings.source.text, at)
        return self.findings.span(*record.span(1)) if record else None

    def add(self, record: ModuleRecord, segment: Segment) -> OpenModule:
        """Read the PTX of a module or of one more variant of it."""
        module = self._open(record.name)
        parsed = self._parse(record, segment.source)
        if parsed is None:
            module.broken = True
            return module
        arch = self._arch(record, parsed)
        if arch is None or not self._is_new(module, record, arch):
            module.broken = True
            return module
        variant = ModuleVariant(
            arch=arch,
            text=segment.source.text,
            ptx=parsed,
            span=record.span,
            notes=record.notes,
        )
        kernels, variables = kernels_of(parsed), variables_of(parsed)
        if module.variants and not module.broken:
            self._check_agreement(module, variant, kernels, variables)
        if not module.variants:
            module.variables = variables
        module.variants.append(variant)
        module.kernels[arch] = kernels
        return module

    def _open(self, name: str) -> OpenModule:
        if name not in self.by_name:
            self.by_name[name] = OpenModule(ModuleId(len(self.by_name)), name)
        return self.by_name[name]

    def _parse(self, record: ModuleRecord, source: Source) -> ptx.Module | None:
        if not source.text.strip():
            self.findings.error(
                "TSR1117",
                f"module `{record.name}` has no PTX",
                record.name_place,
                hint="put the PTX on the lines after this record",
            )
            return None
        known = self._parsed.get(source.text)
        if known is not None:
            return replace(known, source=source)
        try:
            parsed = self._parse_ptx(source)
        except TesseraError as problem:
            for diagnostic in problem.diagnostics:
                self.findings.add(diagnostic)
            return None
        self._parsed[source.text] = parsed
        return parsed

    def _arch(self, record: ModuleRecord, parsed: ptx.Module) -> str | None:
        target = parsed.target[0]
        if record.arch is None:
            return target
        if record.arch.partition(":")[0] == target:
            return record.arch
        self.findings.error(
            "TSR1153",
            f"module `{record.name}` says `arch={record.arch}`, but its PTX is for `{target}`",
            record.arch_place,
            f"`.target {target}`",
            hint=f"write `arch={target}`, or compile the module for `{record.arch}`",
        )
        return None

    def _is_new(self, module: OpenModule, record: ModuleRecord, arch: str) -> bool:
        if module.launched:
            self.findings.error(
                "TSR1109",
                f"a variant of module `{module.name}` comes after a launch of it",
                record.name_place,
                hint="put all variants of a module before its first launch",
            )
            return False
        first = _span_of(module, arch)
        if first is None:
            return True
        self.findings.error(
            "TSR1110",
            f"module `{module.name}` is given twice for `{arch}`",
            record.name_place,
            secondary=(Label(first, "first given here"),),
            hint="another architecture makes a variant; another module needs another name",
        )
        return False

    def _check_agreement(
        self,
        module: OpenModule,
        variant: ModuleVariant,
        kernels: dict[str, Kernel],
        variables: dict[str, ModuleVariable],
    ) -> None:
        first = module.variants[0]
        for a, b in self._in_both("kernel", module, variant, module.kernels[first.arch], kernels):
            self._check_kernel(first, variant, a, b)
        for c, d in self._in_both("variable", module, variant, module.variables, variables):
            self._check_variable(first, variant, c, d)

    def _in_both(
        self,
        what: str,
        module: OpenModule,
        variant: ModuleVariant,
        before: Mapping[str, Declared],
        now: Mapping[str, Declared],
    ) -> Iterator[tuple[Declared, Declared]]:
        """What both variants declare, in pairs; what one of them lacks is an error."""
        first = module.variants[0]
        for name in [*before, *(name for name in now if name not in before)]:
            if name in before and name in now:
                yield before[name], now[name]
                continue
            is_first = name in before
            present, absent = (first, variant) if is_first else (variant, first)
            self._disagree(
                f"{what} `{name}` of module `{module.name}` is in the `{present.arch}` "
                f"code but not in the `{absent.arch}` code",
                _name_span(present, (before if is_first else now)[name].at, name),
            )

    def _check_kernel(
        self, first: ModuleVariant, variant: ModuleVariant, a: Kernel, b: Kernel
    ) -> None:
        same = len(a.parameters) == len(b.parameters) and all(
            p.agrees_with(q) for p, q in zip(a.parameters, b.parameters, strict=True)
        )
        if same:
            return
        self._disagree(
            f"kernel `{a.name}` has other parameters in the `{variant.arch}` code "
            f"than in the `{first.arch}` code",
            _name_span(variant, b.at, b.name),
            f"({', '.join(map(str, b.parameters))})",
            _label(_name_span(first, a.at, a.name), f"({', '.join(map(str, a.parameters))})"),
        )

    def _check_variable(
        self, first: ModuleVariant, variant: ModuleVariant, a: ModuleVariable, b: ModuleVariable
    ) -> None:
        if (a.space, a.bytes, a.initializer) != (b.space, b.bytes, b.initializer):
            what = "another size" if a.bytes != b.bytes else "another space or initial value"
            self._disagree(
                f"variable `{b.name}` has {what} in the `{variant.arch}` code "
                f"than in the `{first.arch}` code",
                _name_span(variant, b.at, b.name),
                "",
                _label(_name_span(first, a.at, a.name), f"`{first.arch}`"),
            )

    def _disagree(
        self,
        headline: str,
        span: Span | None,
        label: str = "",
        secondary: tuple[Label, ...] = (),
    ) -> None:
        hint = "compile all variants of a module from the same source"
        self.findings.add(error("TSR1150", headline, span, label, secondary=secondary, hint=hint))


def _span_of(module: OpenModule, arch: str) -> Span | None:
    return next((v.span for v in module.variants if v.arch == arch), None)


def _label(span: Span | None, text: str) -> tuple[Label, ...]:
    return () if span is None else (Label(span, text),)


def _name_span(variant: ModuleVariant, at: int, name: str) -> Span | None:
    """The place of a declared name: its first occurrence in the declaration."""
    source = variant.ptx.source
    if source is None or at < 0:
        return None
    start = source.text.find(name, at)
    return Span(source, start, start + len(name)) if start >= 0 else variant.ptx.span(at)
