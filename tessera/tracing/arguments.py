"""The bytes of a launch's arguments as arguments of a program.

In: raw launches. Out: pointers, scalars and structs. A word is a pointer if the kernel uses it as a
base (`passes.base_words`) or declares it as one, and if it points into a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.diagnostics import Diagnostic, TesseraError, error, warning
from tessera.frontend.capture.raw import RawLaunch
from tessera.ir import program as ir
from tessera.ir import ptx
from tessera.ir.data_type import DataType
from tessera.passes.kernels.base_words import base_words
from tessera.tracing.addresses import Addresses

_SCALARS = frozenset(kind.value for kind in DataType)


class Arguments:
    """Reads arguments; `unowned` are addresses of memory that is nobody's any more."""

    def __init__(self, addresses: Addresses, unowned: frozenset[int]) -> None:
        self.findings: list[Diagnostic] = []
        self.addresses = addresses
        self.unowned = unowned
        self.bases: dict[tuple[int, str], dict[str, frozenset[int] | None]] = {}

    def of_launch(
        self, module: ir.Module, kernel: ptx.Function, node: RawLaunch
    ) -> Iterator[ir.Argument]:
        """The arguments of a launch, in order."""
        key = (int(module.id), kernel.name)
        if key not in self.bases:
            self.bases[key] = base_words(module.variants[0].ptx, kernel)
        if len(node.arguments) != len(kernel.parameters):
            raise TesseraError(
                error("TSR6004", f"`{node.name}` was launched with {len(node.arguments)} arguments"
                                 f" and has {len(kernel.parameters)} parameters")
            )  # fmt: skip
        for parameter, content in zip(kernel.parameters, node.arguments, strict=True):
            words = self.bases[key][parameter.name]
            yield self._argument(parameter, content, words, node.name)

    def _argument(
        self, parameter: ptx.Variable, content: bytes, words: frozenset[int] | None, kernel: str
    ) -> ir.Argument:
        found = self._pointers_in(content, words)
        if not parameter.dimensions and parameter.type in _SCALARS:
            bits = int.from_bytes(content, "little")
            declared = parameter.pointer_space is not None
            pointer = found.get(0) or (self.addresses.find(bits) if declared else None)
            if pointer is not None:
                return pointer
            if bits and words and (declared or bits in self.unowned):
                self._report_unowned(f"`{parameter.name}`", kernel)
            return ir.Scalar(DataType(parameter.type), bits)
        cleared = bytearray(content)
        for at in found:
            cleared[at : at + 8] = bytes(8)
        for at in sorted(words or ()):
            if at not in found and _word_at(content, at) in self.unowned:
                self._report_unowned(f"the word at {at} of `{parameter.name}`", kernel)
        return ir.ByValue(bytes(cleared), tuple(ir.PointerWord(at, p) for at, p in found.items()))

    def _pointers_in(self, content: bytes, words: frozenset[int] | None) -> dict[int, ir.Pointer]:
        """The words of an argument that are pointers: used as one, and pointing somewhere."""
        found: dict[int, ir.Pointer] = {}
        end = 0
        for at in range(0, len(content) - 7, 8) if words is None else sorted(words):
            value = _word_at(content, at)
            pointer = (
                None if at < end else self.addresses.find(value) or self.addresses.find_end(value)
            )
            if pointer is not None:
                found[at], end = pointer, at + 8
        return found

    def _report_unowned(self, what: str, kernel: str) -> None:
        self.findings.append(
            warning("TSR6005", f"{what} of `{kernel}` is an address of no known tensor",
                    hint="keep the tensor alive until the trace is made, or pass it as an input")
        )  # fmt: skip


def _word_at(content: bytes, at: int) -> int:
    """The 64-bit word at an offset; 0 where there is none."""
    return int.from_bytes(content[at : at + 8], "little") if at + 8 <= len(content) else 0
