"""`launch` records and their `variant` records.

In: the fields of a record. Out: launches among the steps. A launch is checked against its kernel
when the first record that is not one of its variants arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.diagnostics import Label
from tessera.frontend.trace.check import (
    MAX_BLOCK,
    MAX_CLUSTER,
    MAX_GRID,
    MAX_SHARED_BYTES,
    OpenLaunch,
    check_block,
    check_launch,
)
from tessera.frontend.trace.fields import Fields, read_stream
from tessera.frontend.trace.findings import did_you_mean
from tessera.frontend.trace.modules import Modules, OpenModule, code_for
from tessera.frontend.trace.steps import TraceSteps
from tessera.frontend.trace.syntax import Token
from tessera.frontend.trace.values import Values
from tessera.ir.program.program import Argument, Launch, LaunchVariant, Triple


class Launches:
    """Reads launches into `steps`."""

    def __init__(self, values: Values, modules: Modules, steps: TraceSteps) -> None:
        self.values = values
        self.findings = values.findings
        self.modules = modules
        self.steps = steps
        self._open: OpenLaunch | None = None
        # After a launch with a fault, its variants are passed over in silence.
        self._skip_variants = False

    def launch(self, fields: Fields, names: Sequence[Token]) -> None:
        """`launch m0.saxpy grid=4,1,1 block=256,1,1 smem=0 args=[...]`."""
        self._skip_variants = True
        module, kernel = self._kernel(names[0], fields.base)
        module.launched = True
        grid = self._grid(fields)
        block = self._block(fields)
        launch = Launch(
            id=self.steps.next_id(),
            module=module.id,
            kernel=kernel,
            grid=grid,
            block=block,
            cluster=self._cluster(fields),
            shared_bytes=self._shared_bytes(fields),
            cooperative=self._cooperative(fields),
            arguments=self._arguments(fields),
            stream=read_stream(fields, self.findings),
            span=self.findings.span(fields.line.start, fields.line.end),
        )
        self._open = OpenLaunch(launch, fields, module)

    def variant(self, fields: Fields, names: Sequence[Token]) -> None:
        """`variant sm_90a smem=24576`, right after a launch or another variant of it."""
        opened = self._open
        if opened is None:
            if self._skip_variants:
                return
            self.findings.fail(
                "TSR1109",
                "`variant` does not follow a launch",
                (fields.line.start, fields.line.end),
                hint="put it on the line after the launch whose settings it changes",
            )
        arch = str(names[0])
        self._check_arch(opened, arch, fields.base + (names[0].start_pos or 0))
        variant = LaunchVariant(
            arch=arch,
            grid=self._grid(fields) if "grid" in fields else None,
            block=self._block(fields) if "block" in fields else None,
            cluster=self._cluster(fields),
            shared_bytes=self._shared_bytes(fields) if "smem" in fields else None,
            arguments=self._arguments(fields) if "args" in fields else None,
            span=self.findings.span(fields.line.start, fields.line.end),
        )
        opened.variants.append((variant, fields))

    def close(self) -> None:
        """Check the open launch and put it among the steps."""
        opened, self._open = self._open, None
        self._skip_variants = False
        if opened is None:
            return
        if not opened.module.broken:
            check_launch(opened, self.values)
        launch = opened.launch
        if opened.variants:
            launch = replace(launch, variants=tuple(variant for variant, _ in opened.variants))
        self.steps.steps.append(launch)

    # --- the kernel ------------------------------------------------------------------------

    def _kernel(self, token: Token, base: int) -> tuple[OpenModule, str]:
        start = base + (token.start_pos or 0)
        name, dot, kernel = token.rpartition(".")
        if not dot or not name or not kernel:
            self.findings.fail(
                "TSR1103",
                f"expected `MODULE.KERNEL`, found `{token}`",
                (start, start + len(token)),
            )
        module = self.modules.by_name.get(name)
        if module is None:
            self._unknown_module(name, (start, start + len(name)))
            raise AssertionError("unreachable")
        if not module.broken:
            self._check_kernel(module, kernel, start + len(name) + 1)
        return module, kernel

    def _unknown_module(self, name: str, place: tuple[int, int]) -> None:
        if later := self.modules.declared_later(name, place[0]):
            self.findings.fail(
                "TSR1114",
                f"module `{name}` is launched before it is declared",
                place,
                secondary=(Label(later, "declared here"),),
                hint="move the module up",
            )
        self.findings.fail(
            "TSR1112",
            f"unknown module `{name}`",
            place,
            hint=did_you_mean(name, self.modules.by_name),
        )

    def _check_kernel(self, module: OpenModule, kernel: str, at: int) -> None:
        first = module.variants[0]
        if kernel in module.kernels[first.arch]:
            return
        kernels = module.kernels[first.arch]
        device = any(f.name == kernel for f in first.ptx.functions())
        self.findings.fail(
            "TSR1113",
            f"`{kernel}` is a function without `.entry` or body, not a kernel"
            if device
            else f"module `{module.name}` has no kernel `{kernel}`",
            (at, at + len(kernel)),
            notes=("kernels: " + (", ".join(list(kernels)[:10]) or "none"),),
            hint=did_you_mean(kernel, kernels),
        )

    def _check_arch(self, opened: OpenLaunch, arch: str, at: int) -> None:
        place = (at, at + len(arch))
        known = [code.arch for code in opened.module.variants]
        if code_for(opened.module, arch) is None and not opened.module.broken:
            self.findings.fail(
                "TSR1152",
                f"module `{opened.module.name}` has no code for `{arch}`",
                place,
                notes=("it has: " + ", ".join(known),),
                hint=did_you_mean(arch, known),
            )
        if any(variant.arch == arch for variant, _ in opened.variants):
            self.findings.fail("TSR1155", f"the launch has two variants for `{arch}`", place)

    # --- fields ----------------------------------------------------------------------------

    def _grid(self, fields: Fields) -> Triple:
        return self._triple(fields, "grid", MAX_GRID)

    def _block(self, fields: Fields) -> Triple:
        block = self._triple(fields, "block", MAX_BLOCK)
        check_block(block, fields, self.findings)
        return block

    def _cluster(self, fields: Fields) -> Triple | None:
        return self._triple(fields, "cluster", MAX_CLUSTER) if "cluster" in fields else None

    def _triple(self, fields: Fields, key: str, high: Triple) -> Triple:
        return self.values.triple(*fields.value(key), f"`{key}`", high)

    def _shared_bytes(self, fields: Fields) -> int:
        if "smem" not in fields:
            return 0
        return self.values.integer(*fields.value("smem"), "`smem`", 0, MAX_SHARED_BYTES)

    def _cooperative(self, fields: Fields) -> bool:
        if "cooperative" not in fields:
            return False
        return bool(self.values.integer(*fields.value("cooperative"), "`cooperative`", 0, 1))

    def _arguments(self, fields: Fields) -> tuple[Argument, ...]:
        return self.values.arguments(*fields.value("args"))
