"""Puts barriers into kernels of torch.compile whose threads access the same memory.

In: the source of a Triton kernel, and which of its parameters are the same memory. Out: the same
source with a barrier between any two accesses to the same memory of which one is a store. Triton
gives every load and store a layout of its own, and orders nothing between the threads of a block:

- Inductor writes a reduction over more than a block as several loops, and a later one loads what an
  earlier one has stored. A thread then reads what another one has written, or not yet (seen with
  mixtures of experts).
- A buffer that a model changes in place is loaded by one parameter and stored by another. A value
  that all warps load is changed by the first of them, and the last one loads the new one.

The source is read as Python, not as lines: pointers are the parameters whose type says so, and what
is made of them (`tl.make_block_ptr`, sums, names for them).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from unittest import mock

_BARRIER = "tl.debug_barrier()"
_BARRIERS = frozenset(("debug_barrier", "x_grid_barrier"))
_LOADS = frozenset(("load", "load_tensor_descriptor"))
_STORES = frozenset(("store", "store_tensor_descriptor"))
# Functions that make a pointer from a pointer.
_POINTERS = frozenset(("make_block_ptr", "make_tensor_descriptor", "advance", "to", "cast"))
# Inductor's classes that write kernels; the second ones combine several kernels in one.
_WRITERS = (
    ("torch._inductor.codegen.triton", "TritonKernel"),
    ("torch._inductor.codegen.triton_combo_kernel", "ComboKernel"),
)


def with_barriers(source: str, same: Mapping[str, str] | None = None) -> str:
    """The source of kernels with barriers; `same` maps parameters to others with the same
    memory."""
    lines = source.split("\n")
    places: set[tuple[int, int]] = set()
    # A kernel without a name is `Placeholder.KERNEL_NAME`, which Python does not parse.
    for part in ast.parse(source.replace("Placeholder.", "Placeholder_")).body:
        if isinstance(part, ast.FunctionDef):
            kernel = _BarrierPlaces(_pointers(part), same or {})
            kernel.follow(part.body)
            places |= kernel.places
    for line, column in sorted(places, reverse=True):
        lines.insert(line - 1, " " * column + _BARRIER)
    return "\n".join(lines)


def _pointers(kernel: ast.FunctionDef) -> frozenset[str]:
    """The parameters that are pointers: by the types in its decorator, or all parameters without
    types."""
    names = {parameter.arg for parameter in (*kernel.args.args, *kernel.args.kwonlyargs)}
    typed: dict[str, str] = {}
    for decorator in kernel.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Dict):
                typed |= {
                    str(key.value): value.value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                    and isinstance(value, ast.Constant)
                    and isinstance(value.value, str)
                }
    known = {name for name in names if name in typed}
    return frozenset({n for n in known if typed[n].startswith("*")} if known else names)


@dataclass(slots=True)
class _Moments:
    """When memory was last loaded, stored and changed by an atomic operation, as counts of
    statements (-1: not since a barrier), and which statement stored it."""

    loaded: int = -1
    stored: int = -1
    added: int = -1
    by: ast.stmt | None = None

    def clash(self, how: str, statement: ast.stmt) -> int:
        """The last moment of an access that conflicts with this one; -1 if there is none.

        The same store in the next iteration of a loop has other addresses, and atomics do not
        conflict.
        """
        stored = -1 if how == "store" and self.by is statement else self.stored
        match how:
            case "load":
                return max(stored, self.added)
            case "store":
                return max(stored, self.added, self.loaded)
            case _:
                return max(stored, self.loaded)


@dataclass(slots=True)
class _BarrierPlaces:
    """The statements of a kernel in the order in which they run; loops are followed twice, so that
    conflicts between iterations are seen."""

    pointers: frozenset[str]
    same: Mapping[str, str]
    places: set[tuple[int, int]] = field(default_factory=set)
    _made_of: dict[str, frozenset[str]] = field(default_factory=dict)
    _moments: dict[str, _Moments] = field(default_factory=dict)
    _loops: list[tuple[int, ast.stmt]] = field(default_factory=list)
    _now: int = 0

    def follow(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._now += 1
            if (statement.lineno, statement.col_offset) in self.places:
                self._moments.clear()  # a barrier was put there in an earlier iteration
            match statement:
                case ast.For() | ast.While():
                    self._loops.append((self._now, statement))
                    for _ in range(2):
                        self.follow(statement.body)
                    self._loops.pop()
                case ast.If():
                    self._calls(statement.test, statement)
                    self._follow_both(statement)
                case ast.With():
                    self.follow(statement.body)
                case _:
                    self._calls(statement, statement)
                    if isinstance(statement, ast.Assign | ast.AnnAssign):
                        self._name(statement)

    def _follow_both(self, branch: ast.If) -> None:
        """Follow both sides of a branch, which all threads of a block take together."""
        before = {memory: replace(moments) for memory, moments in self._moments.items()}
        self.follow(branch.body)
        first, self._moments = self._moments, before
        self.follow(branch.orelse)
        for memory, moments in first.items():
            other = self._moments.setdefault(memory, _Moments())
            if moments.stored > other.stored:
                other.stored, other.by = moments.stored, moments.by
            other.loaded = max(moments.loaded, other.loaded)
            other.added = max(moments.added, other.added)

    def _calls(self, node: ast.AST, statement: ast.stmt) -> None:
        """Note the accesses of the calls of a statement, loads first."""
        calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
        if any(_name_of(call) in _BARRIERS for call in calls):
            self._moments.clear()
        for how in ("load", "store", "atomic"):
            for call in calls:
                if how in _does(_name_of(call)):
                    for memory in self._memory_of(call):
                        self._access(memory, statement, how)

    def _memory_of(self, call: ast.Call) -> frozenset[str]:
        """The memory that a call accesses: by its object, or by its operands."""
        given: list[ast.expr] = [*call.args, *(named.value for named in call.keywords)]
        if len(_does(_name_of(call))) == 1:  # the pointer is known
            named = [named.value for named in call.keywords if named.arg == "pointer"]
            given = [*call.args[:1], *named]
        if isinstance(call.func, ast.Attribute):
            given.append(call.func.value)
        return frozenset().union(*map(self._roots, given))

    def _roots(self, node: ast.AST) -> frozenset[str]:
        """The memory of the pointers in an expression, except those inside loads."""
        if isinstance(node, ast.Call) and _name_of(node) not in _POINTERS:
            return frozenset()
        if isinstance(node, ast.Name):
            if node.id in self.pointers:
                return frozenset((self.same.get(node.id, node.id),))
            return self._made_of.get(node.id, frozenset())
        return frozenset().union(*map(self._roots, ast.iter_child_nodes(node)))

    def _name(self, statement: ast.Assign | ast.AnnAssign) -> None:
        """Note the names that an assignment gives to pointers."""
        roots = self._roots(statement.value) if statement.value else frozenset()
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self._made_of[node.id] = roots

    def _access(self, memory: str, statement: ast.stmt, how: str) -> None:
        moments = self._moments.setdefault(memory, _Moments())
        before = moments.clash(how, statement)
        if 0 <= before < self._now:
            self._put_barrier(before, statement)
        if how == "store":
            moments.stored, moments.by = self._now, statement
        elif how == "load":
            moments.loaded = self._now
        else:
            moments.added = self._now

    def _put_barrier(self, before: int, statement: ast.stmt) -> None:
        """Put a barrier after a moment: before the outermost loop begun since then, or here."""
        begun = next(((at, loop) for at, loop in self._loops if at > before), None)
        since, place = begun or (self._now, statement)
        self.places.add((place.lineno, place.col_offset))
        for moments in self._moments.values():
            moments.loaded = moments.loaded if moments.loaded >= since else -1
            moments.stored = moments.stored if moments.stored >= since else -1
            moments.added = moments.added if moments.added >= since else -1


def _does(name: str) -> tuple[str, ...]:
    """The kinds of access of a call of that name; an unknown call may do anything."""
    if name in _POINTERS or name in _BARRIERS:
        return ()
    if name in _LOADS:
        return ("load",)
    if name in _STORES:
        return ("store",)
    return ("atomic",) if name.startswith("atomic_") else ("load", "store")


def _name_of(call: ast.Call) -> str:
    """`store` for `tl.store(...)` and for `descriptor.store(...)`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@contextmanager
def barriers() -> Iterator[None]:
    """Make Inductor write its kernels with barriers."""
    with ExitStack() as stack:
        for module, name in _WRITERS:
            writer = getattr(import_module(module), name)
            written = _written(writer.codegen_kernel)
            stack.enter_context(mock.patch.object(writer, "codegen_kernel", written))
        yield


def _written(before: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(before)
    def codegen_kernel(kernel: object, *given: object, **named: object) -> str:
        return with_barriers(before(kernel, *given, **named), _same_memory(kernel))

    return codegen_kernel


def _same_memory(kernel: object) -> dict[str, str]:
    """Parameters that share a buffer with another parameter: one loads it, the other stores it."""
    arguments = getattr(kernel, "args", None)
    loaded = dict(getattr(arguments, "input_buffers", {}))
    stored = dict(getattr(arguments, "output_buffers", {}))
    return {
        str(loaded[name]): str(stored[name]) for name in loaded if isinstance(stored.get(name), str)
    }
