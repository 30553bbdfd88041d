"""Turns the code of a capture into modules.

In: `RawCode`s. Out: `Codes`: modules with the variants that agree with the code that ran, and the
launch settings of the other variants.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.backend.ptx_executor.emit.initialize import initial_bytes
from tessera.backend.ptx_executor.emit.kinds import Unsupported
from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.frontend.capture.raw import RawCapture, RawCode, RawLaunch, RawVariant
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import size_bytes


class Codes:
    """Modules, one per distinct text, and the module of each function."""

    def __init__(self, raw: RawCapture) -> None:
        self.findings: list[Diagnostic] = []
        self.modules: list[ir.ProgramModule] = []
        self._of: dict[int, ir.ProgramModule] = {}
        self._codes = {code.function: code for code in raw.codes}
        self._read(raw)

    def check_variables(self) -> None:
        """Refuse code whose module variables differ from the initial values in a trace."""
        for function, code in self._codes.items():
            declared = {v.name: v for v in self._of[function].variants[0].ptx.variables()}
            for name, content in code.variables:
                first = _initial(declared[name])
                if first is not None and first != content[: len(first)]:
                    raise TesseraError.of(
                        "TSR6002",
                        f"the variable `{name}` of a kernel's module holds"
                        " something else than its module says, which a trace"
                        " cannot hold",
                        hint="pass it to the kernel as an argument",
                    )

    def has(self, node: RawLaunch) -> bool:
        """Whether a launch has code."""
        return node.function in self._of

    def find(self, node: RawLaunch) -> tuple[ir.ProgramModule, ptx.Function]:
        """The module and the kernel that a node launches."""
        module = self._of.get(node.function)
        if module is None:
            raise TesseraError.of(
                "TSR6004",
                f"the kernel `{node.name}` has no PTX and belongs to no operator",
                hint="use the route that compiles everything to PTX, launch the kernel from a"
                " torch operator, or give its PTX with `--ptx`",
            )
        kernels = module.variants[0].ptx.kernels()
        kernel = next((k for k in kernels if k.name == node.name), None)
        if kernel is None:
            raise TesseraError.of("TSR6004", f"the PTX of `{node.name}` does not define it")
        return module, kernel

    def overrides(self, node: RawLaunch) -> Iterator[ir.LaunchVariant]:
        """The settings that differ when another variant is launched."""
        return _overrides(self._of[node.function], self._codes[node.function].variants, node)

    def _read(self, raw: RawCapture) -> None:
        by_text: dict[tuple[tuple[str, str], ...], ir.ProgramModule] = {}
        for code in raw.codes:
            key = tuple((variant.arch, variant.text) for variant in code.variants)
            if key not in by_text:
                name = f"m{len(by_text)}"
                variants = tuple(self._variants(code, name))
                kept = agreeing(variants)
                self.findings += [
                    warning(
                        "TSR6006",
                        f"`{_kernel_name(variant)}` has other parameters or variables"
                        f" on {variant.arch} than on {variants[0].arch}",
                    )
                    for variant in variants
                    if variant not in kept
                ]
                by_text[key] = ir.ProgramModule(ir.ModuleId(len(by_text)), name, kept)
                self.modules.append(by_text[key])
            self._of[code.function] = by_text[key]

    def _variants(self, code: RawCode, name: str) -> Iterator[ir.ModuleVariant]:
        """The code that ran, and the code for other GPUs that have its instructions."""
        first, *others = code.variants
        made = ir.ModuleVariant(
            arch=first.arch, text=first.text, ptx=parse_module(first.text, name)
        )
        yield made
        for other in others:
            try:
                module = parse_module(other.text, name)
            except TesseraError as problem:
                why = problem.diagnostics[0].headline
                text = f"`{_kernel_name(made)}` does not compile for {other.arch}: {why}"
                self.findings.append(warning("TSR6006", text))
            else:
                yield ir.ModuleVariant(arch=other.arch, text=other.text, ptx=module)


def _initial(variable: ptx.Variable) -> bytes | None:
    """The initial bytes of a variable; None if they hold an address."""

    def address_of(name: str) -> int:
        raise LookupError(name)

    try:
        return initial_bytes(variable, address_of)
    except (LookupError, Unsupported):
        return None


def agreeing(variants: tuple[ir.ModuleVariant, ...]) -> tuple[ir.ModuleVariant, ...]:
    """The variants with the parameters and the variables of the first."""

    def shape(variant: ir.ModuleVariant) -> object:
        kernels = [(k.name, [size_bytes(p) for p in k.parameters]) for k in variant.ptx.kernels()]
        kept = [v for v in variant.ptx.variables() if v.space in ("global", "const")]
        return kernels, sorted((v.name, size_bytes(v)) for v in kept)

    return tuple(v for v in variants if shape(v) == shape(variants[0]))


def _kernel_name(variant: ir.ModuleVariant) -> str:
    return next((kernel.name for kernel in variant.ptx.kernels()), "a kernel")


def _overrides(
    module: ir.ProgramModule, variants: tuple[RawVariant, ...], node: RawLaunch
) -> Iterator[ir.LaunchVariant]:
    """The settings that differ when another variant is launched."""
    kept = {variant.arch for variant in module.variants}
    for variant in variants[1:]:
        block = (variant.threads, 1, 1)
        shared = variant.shared_bytes
        if variant.arch in kept and (block != node.block or shared != node.shared_bytes):
            yield ir.LaunchVariant(
                arch=variant.arch,
                block=block if block != node.block else None,
                shared_bytes=shared if shared != node.shared_bytes else None,
            )
