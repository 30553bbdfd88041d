"""A kernel compiled to Python: every function it may reach, block by block.

In: a module and the name of a kernel. Out: a `KernelProgram` whose blocks are Python functions over
NumPy arrays, numbered in the order in which the scheduler prefers them: callees before callers, and
inside a function the order of `ir.ptx.control_flow`. Compiling needs no device: values that depend
on the device (addresses of variables, parameters) are read from the launch.

An instruction that the executor does not support is an error here, before anything runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.emit import handlers
from tessera.backend.ptx_executor.emit.block import (
    EXIT,
    Control,
    Emitter,
    following_blocks,
    live_out,
)
from tessera.backend.ptx_executor.emit.control import save_registers
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind, kind_of
from tessera.backend.ptx_executor.emit.layout import (
    FunctionLayout,
    SymbolPlace,
    align,
    function_addresses,
    place_in_order,
    variable_align,
    variable_size,
)
from tessera.backend.ptx_executor.emit.lower import BARRIERS, is_warp_wide
from tessera.backend.ptx_executor.emit.namespace import NAMESPACE, constant_array
from tessera.backend.ptx_executor.emit.reach import functions_by_name, names_in, reach
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.numerics import quiet
from tessera.backend.ptx_executor.simt.compiled import (
    FUNCTION_BASE,
    FUNCTION_STEP,
    CompiledBlock,
    KernelProgram,
    Members,
    Site,
)
from tessera.diagnostics import Diagnostic, TesseraError, error
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import build_control_flow

_STACK_POINTER = 0
_CALLS_NUMERICS = re.compile(r"\b(integer|bitwise|compare|floats|convert|approx|video)\.")
_REGISTER = re.compile(r"\br(\d+)([usfp])\b")
_TEMPORARY = re.compile(r"\bt\d+\b")
_MOST_ERRORS = 20


@dataclass(slots=True)
class _BlockDraft:
    """A block between emission and the final source."""

    name: str
    emitter: Emitter
    members: Members
    only_waits: bool
    length: int
    site: int
    outs: list[int] = field(default_factory=list)


class KernelCompiler:
    """Compiles one kernel."""

    def __init__(self, module: ptx.Module, kernel: ptx.Function) -> None:
        self.module = module
        self.kernel = kernel
        self.functions = functions_by_name(module)
        self.reached = reach(module, kernel)
        self.flats = self.reached.flats
        self.addresses = function_addresses(module)
        self.stack_pointer = _STACK_POINTER
        self.register_kinds: list[ValueKind] = [ValueKind("u", 8)]
        self.always_out: set[int] = {_STACK_POINTER}
        self.layouts: dict[str, FunctionLayout] = {}
        self.constants: dict[tuple[int, ValueKind], str] = {}
        self.block_constants: dict[str, str] = {}
        self.symbols: dict[str, int] = {}
        self.sites: list[Site] = []
        self.drafts: list[_BlockDraft] = []
        self.namespace: dict[str, Any] = dict(NAMESPACE)
        self.shared_static = 0
        self.shared_dynamic = False
        self.uses_reserved = False
        self.uses_workspace = False
        self.problems: list[Diagnostic] = []
        self.probed: set[str] = set()

    # --- used by the emitters ------------------------------------------------------------

    def constant(self, bits: int, kind: ValueKind) -> str:
        """The name of a constant of shape (1, 1)."""
        if kind.form == "p":
            bits &= 1
        else:
            bits &= (1 << 8 * kind.width) - 1
        name = self.constants.get((bits, kind))
        if name is None:
            name = f"k{len(self.constants)}"
            self.constants[bits, kind] = name
            self.namespace[name] = constant_array(bits, kind)
        return name

    def block_constant(self, block: str) -> str:
        """The name of a constant that holds the number of a block."""
        return self.block_constants.setdefault(block, f"B{len(self.block_constants)}")

    def frozen(self, value: object, stem: str = "c") -> str:
        """The name under which generated code sees a value."""
        name = f"{stem}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def probe(self, expression: str) -> None:
        """Try a call of `numerics` on zeros, to refuse unsupported forms before a launch."""
        if not _CALLS_NUMERICS.search(expression) or "cx" in expression:
            return
        used = {
            match[0]: ValueKind(match[2], self.register_kinds[int(match[1])].width)
            for match in _REGISTER.finditer(expression)
        }
        form = _REGISTER.sub(lambda match: f"R{match[2]}{used[match[0]].width}", expression)
        if form in self.probed or _TEMPORARY.search(form):
            return
        self.probed.add(form)
        values = {name: constant_array(0, kind) for name, kind in used.items()}
        try:
            with quiet():
                eval(expression, self.namespace, values)
        except NotImplementedError as reason:
            raise Unsupported(str(reason)) from None
        except (AttributeError, TypeError) as reason:
            raise Unsupported(f"no such form ({reason})") from None

    # --- the pipeline --------------------------------------------------------------------

    def build(self) -> KernelProgram:
        """Compile, or raise all errors together."""
        order = self.reached.order
        self._lay_out(order)
        for name in order:
            self._emit_function(name)
        if self.problems:
            raise TesseraError(self.problems[:_MOST_ERRORS])
        return self._assemble(order)

    def resolve(self, name: str) -> str:
        """The name under which a function is compiled, aliases followed."""
        function = self.functions.get(name)
        return name if function is None else function.name

    # --- layouts -------------------------------------------------------------------------

    def _lay_out(self, order: list[str]) -> None:
        shared, outer = self._place_shared(order)
        for number, name in enumerate(order):
            flat = self.flats[name]
            layout = FunctionLayout(flat, number, name == self.kernel.name)
            layout.outer = outer | {
                n: shared[v.name] for v in flat.variables if (n := v.name) in shared
            }
            self.layouts[name] = layout
            for register in flat.registers:
                self._add_register(layout, register.name, register.type)
            self._place_variables(layout)
        for layout in self.layouts.values():
            for name, address in self.addresses.items():
                layout.outer.setdefault(name, SymbolPlace("function", address))
        for name, layout in self.layouts.items():
            layout.recursive = self.reached.is_recursive(name)
            if layout.recursive:
                layout.reserve_saves()
            layout.close()

    def _add_register(self, layout: FunctionLayout, name: str, type_name: str) -> int:
        number = len(self.register_kinds)
        kind = kind_of(type_name)
        held = kind if kind.form == "p" else ValueKind("u", kind.width)
        self.register_kinds.append(held)
        layout.registers[name] = (number, held)
        return number

    def carry(self, layout: FunctionLayout) -> int:
        """The number of the carry flag of a function."""
        flag = layout.registers.get("%cc")
        return flag[0] if flag else self._add_register(layout, "%cc", "pred")

    def _place_variables(self, layout: FunctionLayout) -> None:
        function = layout.flat.function
        if layout.is_entry:
            offsets, _ = place_in_order(function.parameters)
            for variable, (offset, _) in zip(function.parameters, offsets, strict=True):
                layout.places[variable.name] = SymbolPlace("param", offset)
                layout.variables[variable.name] = variable
        else:
            for variable in (*function.parameters, *function.returns):
                if variable.space != "reg":
                    layout.add_frame(variable)
                    continue
                if variable.name not in layout.registers:
                    self._add_register(layout, variable.name, variable.type)
                self.always_out.add(layout.registers[variable.name][0])
        for variable in layout.flat.variables:
            if variable.space in ("local", "param"):
                layout.add_frame(variable)
            elif variable.space in ("global", "const"):
                number = self.symbols.setdefault(variable.name, len(self.symbols))
                layout.places[variable.name] = SymbolPlace("global", number)

    def _place_shared(
        self, order: list[str]
    ) -> tuple[dict[str, SymbolPlace], dict[str, SymbolPlace]]:
        """Static shared variables in order of use, then the dynamic ones at their end."""
        used = {n for f in order for i in self.flats[f].instructions for n in names_in(i)}
        outer: dict[str, SymbolPlace] = {}
        shared_list = [v for f in order for v in self.flats[f].variables if v.space == "shared"]
        for variable in self.module.variables():
            if variable.name not in used:
                continue
            if variable.space == "shared":
                shared_list.append(variable)
            elif variable.space in ("global", "const"):
                number = self.symbols.setdefault(variable.name, len(self.symbols))
                outer[variable.name] = SymbolPlace("global", number)
        static = [v for v in shared_list if variable_size(v) > 0]
        dynamic = [v for v in shared_list if variable_size(v) == 0]
        offsets, end = place_in_order(static)
        places = {
            variable.name: SymbolPlace("shared", offset)
            for variable, (offset, _) in zip(static, offsets, strict=True)
        }
        if dynamic:
            end = align(end, max(16, *(variable_align(v) for v in dynamic)))
            self.shared_dynamic = True
        places |= {v.name: SymbolPlace("shared", end) for v in dynamic}
        self.shared_static = end
        return places, outer | places

    # --- emission ------------------------------------------------------------------------

    def _emit_function(self, name: str) -> None:
        flat, layout = self.flats[name], self.layouts[name]
        flow = build_control_flow(flat, self.reached.leaders[name])
        labels = {label.name: label.index for label in flat.labels}
        starts = {block.start: block.index for block in flow.blocks}
        targets = {
            label: f"{name}:{starts[index]}" if index in starts else EXIT
            for label, index in labels.items()
        }
        for number in flow.order:
            block = flow.blocks[number]
            after = f"{name}:{number + 1}" if number + 1 < len(flow.blocks) else EXIT
            emitter = Emitter(self, layout)
            emitter.after = after
            emitter.labels = targets
            members: Members = None
            first_site = len(self.sites)
            inside = flat.instructions[block.start : block.end]
            for instruction in inside:
                members = members or handlers.members(emitter, instruction)
                self._emit(emitter, instruction)
            if emitter.control is None:
                emitter.control = Control("goto", (after,))
            together = [i for i in inside if is_warp_wide(i)]
            only_waits = bool(together) and all(i.opcode.name in BARRIERS for i in together)
            full_name, length = f"{name}:{number}", block.end - block.start
            draft = _BlockDraft(full_name, emitter, members, only_waits, length, first_site)
            self.drafts.append(draft)

    def _emit(self, emitter: Emitter, instruction: ptx.Instruction) -> None:
        emitter.site = len(self.sites)
        self.sites.append(Site(emitter.layout.name, instruction))
        try:
            handlers.emit(emitter, instruction)
        except Unsupported as reason:
            self.problems.append(
                error(
                    "TSR5001",
                    f"the CPU backend cannot run `{instruction.opcode}`",
                    self.module.span(instruction.at, len(str(instruction.opcode))),
                    str(reason),
                    notes=(f"in kernel `{self.kernel.name}`",),
                )
            )

    # --- assembly ------------------------------------------------------------------------

    def _assemble(self, order: list[str]) -> KernelProgram:
        numbers = {draft.name: i for i, draft in enumerate(self.drafts)}
        numbers[EXIT] = -1
        for block, constant in self.block_constants.items():
            self.namespace[constant] = np.array([[numbers[block]]], dtype=np.uint32)
        self._decide_outputs()
        source = "\n".join(self._block_source(i, d) for i, d in enumerate(self.drafts))
        exec(compile(source, f"<{self.kernel.name}>", "exec"), self.namespace)
        blocks = [self._finish_block(i, d, numbers) for i, d in enumerate(self.drafts)]
        offsets, parameter_size = place_in_order(self.kernel.parameters)
        return KernelProgram(
            kernel=self.kernel,
            module=self.module,
            blocks=blocks,
            entry=numbers[f"{self.kernel.name}:0"],
            sites=self.sites,
            source=source,
            initial_registers=[constant_array(0, kind) for kind in self.register_kinds],
            local_bytes=sum(layout.frame_size for layout in self.layouts.values()),
            recursive=any(layout.recursive for layout in self.layouts.values()),
            symbols=tuple(self.symbols),
            shared_static=self.shared_static,
            shared_dynamic=self.shared_dynamic,
            reserved_shared=1024 if self.uses_reserved else 0,
            uses_workspace=self.uses_workspace,
            parameters=tuple(offsets),
            parameter_size=parameter_size,
            function_entries=self._function_entries(numbers),
            frame_limit=max(layout.frame_size for layout in self.layouts.values()),
        )

    def _function_entries(self, numbers: dict[str, int]) -> Array:
        """Entry blocks, indexed by the number in a function's address; -2 if not compiled."""
        entries = np.full(len(self.addresses) + 1, -2, dtype=np.int64)
        for name, address in self.addresses.items():
            place = (address - FUNCTION_BASE) // FUNCTION_STEP
            entries[place] = max(entries[place], numbers.get(f"{name}:0", -2))
        return entries

    def _decide_outputs(self) -> None:
        """Make live registers the outputs of each block; save registers around recursive calls."""
        drafts = {draft.name: draft for draft in self.drafts}
        flow = {
            name: (set(d.emitter.ins), set(d.emitter.defined), following_blocks(d.emitter))
            for name, d in drafts.items()
        }
        live = live_out(flow)
        for name, draft in drafts.items():
            emitter = draft.emitter
            assert emitter.control is not None
            if emitter.control.kind in ("call", "table_call") and emitter.layout.recursive:
                back = drafts[emitter.after].emitter
                save_registers(emitter, back, sorted(live[name]))
        for name, draft in drafts.items():
            emitter = draft.emitter
            wanted = live[name] | self.always_out
            draft.outs = [number for number in sorted(emitter.defined) if number in wanted]

    def _block_source(self, number: int, draft: _BlockDraft) -> str:
        emitter = draft.emitter
        outs = [emitter.read_number(n, self.register_kinds[n]) for n in draft.outs]
        arguments = "".join(f", {name}" for name in emitter.ins.values())
        body = "\n    ".join(emitter.lines) if emitter.lines else "pass"
        given = "".join(f"{name}, " for name in outs)
        assert emitter.control is not None
        return (
            f"def block_{number}(cx{arguments}):  # {draft.name!r}\n"
            f"    {body}\n    return ({given}), {emitter.control.value}\n"
        )

    def _finish_block(
        self, number: int, draft: _BlockDraft, numbers: dict[str, int]
    ) -> CompiledBlock:
        control = draft.emitter.control
        assert control is not None
        return CompiledBlock(
            number=number,
            name=draft.name,
            ins=tuple(draft.emitter.ins),
            outs=tuple(draft.outs),
            control=control.kind,
            targets=tuple(numbers[target] for target in control.targets),
            members=draft.members,
            only_waits=draft.only_waits,
            polls=draft.emitter.polls,
            length=max(draft.length, 1),
            site=draft.site,
            run=self.namespace[f"block_{number}"],
        )


def compile_kernel(module: ptx.Module, name: str) -> KernelProgram:
    """Compile one kernel of a module."""
    kernel = next((k for k in module.kernels() if k.name == name), None)
    if kernel is None:
        known = ", ".join(f"`{k.name}`" for k in module.kernels()) or "none"
        raise TesseraError.of(
            "TSR5014", f"no kernel `{name}` in the module", notes=(f"kernels: {known}",)
        )
    return KernelCompiler(module, kernel).build()
