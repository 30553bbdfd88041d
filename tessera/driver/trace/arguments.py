"""Turns the bytes of a launch's arguments into arguments of a program.

In: raw launches. Out: pointers, scalars and structs. A word is a pointer if the kernel uses it as a
base (`passes.kernel_facts.base_words`) or declares it as one, and if it points into a buffer. If a
kernel computes addresses from numbers, every word that points into a buffer is a pointer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.driver.trace.addresses import Addresses
from tessera.frontend.capture.raw import RawLaunch
from tessera.ir.graph.access import PinKind
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.ir.ptx import syntax as ptx
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.kernel_facts.base_words import base_words

_SCALARS = frozenset(kind.value for kind in DataType)


class Arguments:
    """Reads arguments; `unowned` are addresses of memory that was freed."""

    def __init__(self, addresses: Addresses, unowned: frozenset[int]) -> None:
        self._findings: list[Diagnostic] = []
        self._reported: set[str] = set()
        self.addresses = addresses
        self.unowned = unowned
        self.bases: dict[tuple[int, str], dict[str, frozenset[int] | None]] = {}

    def of_launch(
        self,
        module: ir.ProgramModule,
        kernel: ptx.Function,
        node: RawLaunch,
        *,
        any_word: bool = False,
    ) -> Iterator[ir.Argument]:
        """The arguments of a launch, in order; with `any_word`, every word that may be a pointer is
        one."""
        key = (int(module.id), kernel.name)
        if key not in self.bases:
            self.bases[key] = base_words(module.variants[0].ptx, kernel)
        if len(node.arguments) != len(kernel.parameters):
            raise TesseraError.of(
                "TSR6004",
                f"`{node.name}` was launched with {len(node.arguments)} arguments"
                f" and has {len(kernel.parameters)} parameters",
            )
        for parameter, content in zip(kernel.parameters, node.arguments, strict=True):
            words = None if any_word else self.bases[key][parameter.name]
            yield self._argument(parameter, content, words, node.name)

    def all_findings(self, steps: tuple[StepAccesses, ...]) -> tuple[Diagnostic, ...]:
        """Warnings about arguments; `steps` are the accesses of the launches with these
        arguments."""
        numbers = dict.fromkeys(step.name for step in steps if is_from_number(step))
        others = [
            warning(
                "TSR6005",
                f"`{name}` makes an address of numbers: it is right in this process only",
                notes=("its arguments hold an address of the call's memory in another form",),
                hint="pass the address to the kernel as a pointer",
            )
            for name in numbers
            if name.rpartition(".")[2] not in self._reported
        ]
        return tuple(dict.fromkeys((*self._findings, *others)))

    def _argument(
        self, parameter: ptx.Variable, content: bytes, words: frozenset[int] | None, kernel: str
    ) -> ir.Argument:
        pointers = self._pointers_in(content, words)
        if not parameter.dimensions and parameter.type in _SCALARS:
            bits = int.from_bytes(content, "little")
            declared = parameter.pointer_space is not None
            pointer = pointers.get(0) or (self.addresses.find(bits) if declared else None)
            if pointer is not None:
                return pointer
            if bits and words and (declared or bits in self.unowned):
                self._report_unowned(f"`{parameter.name}`", kernel)
            return ir.Scalar(DataType(parameter.type), bits)
        cleared = bytearray(content)
        for at in pointers:
            cleared[at : at + 8] = bytes(8)
        for at in sorted(words or ()):
            if at not in pointers and _word_at(content, at) in self.unowned:
                self._report_unowned(f"the word at {at} of `{parameter.name}`", kernel)
        return ir.ByValue(
            bytes(cleared), tuple(ir.PointerWord(at, p) for at, p in pointers.items())
        )

    def _pointers_in(self, content: bytes, words: frozenset[int] | None) -> dict[int, ir.Pointer]:
        """The words of an argument that are pointers: used as a base, and pointing into a
        buffer."""
        pointers: dict[int, ir.Pointer] = {}
        end = 0
        for at in range(0, len(content) - 7, 8) if words is None else sorted(words):
            value = _word_at(content, at)
            pointer = (
                None if at < end else self.addresses.find(value) or self.addresses.find_end(value)
            )
            if pointer is not None:
                pointers[at], end = pointer, at + 8
        return pointers

    def _report_unowned(self, what: str, kernel: str) -> None:
        self._reported.add(kernel)
        self._findings.append(
            warning(
                "TSR6005",
                f"{what} of `{kernel}` is an address of no known tensor",
                hint="keep the tensor alive until the trace is made, or pass it as an input",
            )
        )


def is_from_number(step: StepAccesses) -> bool:
    """Whether a launch is known to compute an address from numbers."""
    return any(pin.kind is PinKind.NUMBER for pin in step.pins)


def _word_at(content: bytes, at: int) -> int:
    """The 64-bit word at an offset; 0 if there is none."""
    return int.from_bytes(content[at : at + 8], "little") if at + 8 <= len(content) else 0
