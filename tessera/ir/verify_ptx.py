"""What must hold of a PTX module beyond its grammar: names, labels, operand counts, directives.

In: a module. Out: diagnostics; errors mean that ptxas would refuse it. Names follow PTX's
scopes: a block's declarations and labels are its own, an inner name shadows an outer one, labels
may be used before they stand, everything else only after it is declared.

Where a module's version is newer than `NEWEST_VERSION`, an unknown special register or directive
is only a warning: it may have come with that version. So is an unknown opcode in any module, unless
it is a near miss of one that is known.

Operand lists of equal text are one object in a parsed module, so a list that was found good stays
good until a scope closes; that keeps this near the cost of a set look-up per instruction.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

from tessera.diagnostics import Diagnostic, Label, Severity, error, warning
from tessera.ir import ptx
from tessera.ir.opcodes import meaning_of, special_register
from tessera.ir.ptx_constants import WARP_SIZE_NAME
from tessera.ir.ptx_locate import name_span, operand_span
from tessera.ir.verify_instruction import close_matches, instruction_fault

NEWEST_VERSION = (9, 4)
FUNCTION_DIRECTIVES = frozenset(
    """maxnreg maxntid reqntid minnctapersm maxnctapersm noreturn pragma abi_preserve
    abi_preserve_control reqnctapercluster explicitcluster maxclusterrank
    blocksareclusters""".split()  # noqa: SIM905
)
MAX_ERRORS = 100
_DIGITS = "0123456789"


def verify_module(module: ptx.Module) -> list[Diagnostic]:
    """Everything that is wrong with a module, in text order within each function."""
    return _Verifier(module).run()


class _TooManyErrors(Exception):
    """Enough has been found to show."""


class _Scope:
    """The names of one block: single ones with their place, and register ranges by prefix."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.ranges: dict[str, tuple[int, int]] = {}
        self.labels: dict[str, int] = {}

    def declared(self, name: str) -> int | None:
        """Where a name is declared in this block, if it is."""
        found = self.names.get(name)
        if found is not None or not self.ranges:
            return found
        for end in range(len(name.rstrip(_DIGITS)), len(name)):  # `%r1<20>` declares `%r10` too
            span = self.ranges.get(name[:end])
            if span is not None and len(name) - end <= 10 and int(name[end:]) < span[0]:
                return span[1]
        return None


class _Verifier:
    def __init__(self, module: ptx.Module) -> None:
        self.module = module
        self.found: list[Diagnostic] = []
        self.errors = 0
        self.is_new = module.version > NEWEST_VERSION
        self.globals = _Scope()
        self.bodies: set[str] = set()
        self.scopes: list[_Scope] = []
        self.good: set[int] = set()
        self.known: set[str] = set()
        self.unknown_opcodes: set[str] = set()
        self.kinds: dict[int, set[int]] = {}
        self.good_opcodes: dict[tuple[type, ...], set[int]] = {}
        self.functions: dict[str, ptx.Function] = {}

    def run(self) -> list[Diagnostic]:
        with contextlib.suppress(_TooManyErrors):
            self.check_version()
            for item in self.module.items:
                self.item(item)
        return self.found

    def item(self, item: ptx.Item) -> None:
        match item:
            case ptx.Variable():
                self.declare(self.globals, item)
            case ptx.Function():
                self.function(item)
            case ptx.Alias(name, aliasee, at):
                self.globals.names.setdefault(name, at)
                if self.globals.declared(aliasee) is None:
                    self.undeclared(aliasee, name_span(self.module, at, aliasee))
            case _:
                pass

    def add(self, found: Diagnostic) -> None:
        """Keep a finding; after `MAX_ERRORS` errors the rest of the module is left alone."""
        self.found.append(found)
        self.errors += found.severity is Severity.ERROR
        if self.errors >= MAX_ERRORS:
            raise _TooManyErrors

    def check_version(self) -> None:
        major, minor = self.module.version
        if 1 <= major <= NEWEST_VERSION[0]:
            return
        span = self.module.span(0) if self.module.source is None else None
        if self.module.source is not None:
            span = name_span(self.module, self.module.source.text.find(".version"), ".version")
        newest = ".".join(map(str, NEWEST_VERSION))
        self.add(
            error(
                "TSR1011", f"PTX version is not known: {major}.{minor}", span,
                f"known are 1.0 to {NEWEST_VERSION[0]}.x",
                hint=f"compile for an older PTX version, such as {newest}",
            )
        )  # fmt: skip

    # --- declarations ---------------------------------------------------------------------

    def declare(self, scope: _Scope, variable: ptx.Variable) -> None:
        self.check_initializer(variable)
        if variable.name == "_":
            return
        earlier = self.earlier_declaration(scope, variable)
        if earlier is not None:
            self.duplicate("TSR1021", variable.name, variable.at, earlier)
        if variable.count is None:
            scope.names[variable.name] = variable.at
        else:
            scope.ranges[variable.name] = (variable.count, variable.at)

    def earlier_declaration(self, scope: _Scope, variable: ptx.Variable) -> int | None:
        if scope is self.globals:
            # A linker joins `.extern`, `.weak` and `.common` declarations of one name.
            return None if variable.linkage else scope.names.get(variable.name)
        if variable.count is None:
            return scope.declared(variable.name)
        same_range = scope.ranges.get(variable.name)
        return None if same_range is None else same_range[1]

    def check_initializer(self, variable: ptx.Variable) -> None:
        if variable.initializer is None or isinstance(variable.initializer, ptx.Integer):
            return
        for name in _constant_names(variable.initializer):
            if self.lookup(name) is None and name != WARP_SIZE_NAME:
                self.undeclared(name, name_span(self.module, variable.at, name))

    # --- functions ------------------------------------------------------------------------

    def function(self, function: ptx.Function) -> None:
        self.check_directives(function)
        if function.has_body:
            if function.name in self.bodies:
                earlier = self.globals.names[function.name]
                self.duplicate("TSR1021", function.name, function.at, earlier)
            self.bodies.add(function.name)
        self.globals.names[function.name] = function.at
        self.functions[function.name] = function
        outer = _Scope()
        for variable in (*function.returns, *function.parameters):
            self.declare(outer, variable)
        sample = None if function.unread is None else function.unread.sample()
        if sample is None or not self.is_clean(sample, outer):
            self.block(function.body or (), outer)

    def is_clean(self, sample: tuple[ptx.Statement, ...], outer: _Scope) -> bool:
        """Whether the statements that stand for all of an unread body have nothing wrong."""
        trial = copy.copy(self)  # what is found good stays good for the next function
        trial.found, trial.scopes = [], []
        trial.unknown_opcodes = set(self.unknown_opcodes)
        with contextlib.suppress(_TooManyErrors):
            trial.block(sample, copy.deepcopy(outer))
        if trial.found:
            for known in (self.good, self.known, self.kinds, self.good_opcodes):
                known.clear()
        return not trial.found

    def check_directives(self, function: ptx.Function) -> None:
        for directive in function.directives:
            if directive.name not in FUNCTION_DIRECTIVES:
                near = close_matches(directive.name, FUNCTION_DIRECTIVES, 0.6)
                span = name_span(self.module, function.at, f".{directive.name}")
                hint = f"did you mean `.{near[0]}`?" if near else None
                headline = f"directive is not known: `.{directive.name}`"
                self.report("TSR1026", headline, span, hint=hint)

    def block(self, statements: tuple[ptx.Statement, ...], scope: _Scope) -> None:
        for statement in statements:
            if isinstance(statement, ptx.Label | ptx.CallPrototype | ptx.TargetList):
                earlier = scope.labels.get(statement.name)
                earlier = scope.declared(statement.name) if earlier is None else earlier
                if earlier is not None:
                    self.duplicate("TSR1023", statement.name, statement.at, earlier)
                scope.labels[statement.name] = statement.at
        self.scopes.append(scope)
        good, kinds = self.good, self.kinds
        for statement in statements:
            if type(statement) is not ptx.Instruction:
                self.statement(scope, statement)
                continue
            guard, operands = statement.guard, statement.operands
            if guard is not None and id(guard) not in good:
                self.check_names((ptx.Name(guard.register),), statement, guard)
            if id(operands) not in good:
                self.check_names(operands, statement, operands)
            kind = kinds.get(id(operands))
            if kind is None:
                kind = kinds[id(operands)] = self.kind_of(operands)
            if id(statement.opcode) not in kind:
                self.check_opcode(statement, kind)
        self.scopes.pop()
        self.good.clear()
        self.known.clear()

    def statement(self, scope: _Scope, statement: ptx.Statement) -> None:
        match statement:
            case ptx.Variable():
                self.declare(scope, statement)
            case ptx.Block(statements):
                self.block(statements, _Scope())
            case ptx.TargetList(_, _, targets, at):
                for target in targets:
                    if self.lookup(target) is None:
                        self.undeclared(target, name_span(self.module, at, target))
            case _:
                pass

    # --- instructions ---------------------------------------------------------------------

    def kind_of(self, operands: tuple[ptx.Operand, ...]) -> set[int]:
        """The opcodes that were found good with operands of these kinds."""
        kinds = tuple(map(type, operands))
        found = self.good_opcodes.get(kinds)
        if found is None:
            found = self.good_opcodes[kinds] = set()
        return found

    def check_opcode(self, instruction: ptx.Instruction, good: set[int]) -> None:
        """Look at an instruction by itself, and again at the next of its kind if it is a call."""
        if instruction.opcode.name == "call":
            self.check_call(instruction)
        else:
            good.add(id(instruction.opcode))
        if len(self.unknown_opcodes) >= MAX_ERRORS and meaning_of(instruction) is None:
            return
        found = instruction_fault(self.module, instruction, is_new=self.is_new)
        if found is None or found.headline in self.unknown_opcodes:
            return
        if found.code == "TSR1025":
            self.unknown_opcodes.add(found.headline)  # one of a name is enough
        else:
            good.discard(id(instruction.opcode))  # every such instruction is reported
        self.add(found)

    def check_call(self, call: ptx.Instruction) -> None:
        """Hold a direct call against the function that it names."""
        groups = [index for index, o in enumerate(call.operands) if isinstance(o, ptx.Group)]
        first = 1 if groups[:1] == [0] else 0
        target = call.operands[first] if first < len(call.operands) else None
        function = self.functions.get(target.name) if isinstance(target, ptx.Name) else None
        if function is None or any(None in v.dimensions for v in function.parameters):
            return
        results = _length(call.operands[0]) if first else 0
        rest = call.operands[first + 1 :]
        arguments = _length(rest[0]) if rest else 0
        wanted, got = (len(function.returns), len(function.parameters)), (results, arguments)
        if function.is_entry or wanted != got:
            self.wrong_call(call, function, first, wanted, got)

    def wrong_call(self, call: ptx.Instruction, function: ptx.Function, index: int,
                   wanted: tuple[int, int], got: tuple[int, int]) -> None:  # fmt: skip
        name = function.name
        headline = f"a kernel cannot be called: `{name}`"
        if not function.is_entry:
            headline = (
                f"`{name}` has {wanted[1]} parameters and {wanted[0]} results, "
                f"and is called with {got[1]} and {got[0]}"
            )
        declared = name_span(self.module, function.at, name)
        secondary = () if declared is None else (Label(declared, "declared here"),)
        span = operand_span(self.module, call, index)
        self.add(error("TSR1024", headline, span, secondary=secondary))

    def check_names(
        self, operands: tuple[ptx.Operand, ...], instruction: ptx.Instruction, shared: object
    ) -> None:
        known, faults = self.known, False
        for index, operand in enumerate(operands):
            names = (operand.name,) if type(operand) is ptx.Name else _names(operand)
            for name in names:
                if name in known:
                    continue
                if self.is_declared(name):
                    known.add(name)
                    continue
                faults = True
                span = operand_span(self.module, instruction, index)
                if span is not None:
                    span = name_span(self.module, span.start, name)
                self.undeclared(name, span)
        if not faults:
            self.good.add(id(shared))

    def is_declared(self, name: str) -> bool:
        if self.lookup(name) is not None or name == WARP_SIZE_NAME:
            return True
        return special_register(name) is not None

    def lookup(self, name: str) -> int | None:
        for scope in reversed(self.scopes):
            found = scope.declared(name)
            if found is None:
                found = scope.labels.get(name)
            if found is not None:
                return found
        return self.globals.names.get(name)

    # --- reports --------------------------------------------------------------------------

    def report(self, code: str, headline: str, span: object, **parts: object) -> None:
        """An error, or a warning where the module may know better than we do."""
        build: Callable[..., Diagnostic] = warning if self.is_new else error
        self.add(build(code, headline, span, **parts))

    def undeclared(self, name: str, span: object) -> None:
        if name.startswith("%") and self.is_new:
            self.report("TSR1020", f"`{name}` is not declared", span)
            return
        candidates = [known for scope in (*self.scopes, self.globals)
                      for known in (*scope.names, *scope.labels)]  # fmt: skip
        near = close_matches(name, candidates[:2000], 0.8)
        label = "no register range of that name reaches so far" if self.in_range(name) else ""
        self.add(
            error(
                "TSR1020", f"`{name}` is not declared", span, label,  # type: ignore[arg-type]
                hint=f"did you mean `{near[0]}`?" if near else None,
            )
        )  # fmt: skip

    def in_range(self, name: str) -> bool:
        prefix = name.rstrip(_DIGITS)
        return prefix != name and any(prefix in scope.ranges for scope in self.scopes)

    def duplicate(self, code: str, name: str, at: int, earlier: int) -> None:
        what = "label" if code == "TSR1023" else "name"
        first = name_span(self.module, earlier, name)
        secondary = () if first is None else (Label(first, "first declared here"),)
        self.add(
            error(
                code, f"{what} is declared twice: `{name}`", name_span(self.module, at, name),
                "declared again here", secondary=secondary,
            )
        )  # fmt: skip


def _length(operand: ptx.Operand) -> int:
    return len(operand.elements) if isinstance(operand, ptx.Group) else 0


def _names(operand: ptx.Operand) -> Iterator[str]:
    """The names in an operand that must be declared."""
    match operand:
        case ptx.Name(name):
            yield name
        case ptx.Address(parts) | ptx.Vector(parts) | ptx.Group(parts):
            for part in parts:
                yield from _names(part)
        case ptx.Offset(base):
            yield base.name
        case ptx.Not(inner) | ptx.Negated(inner):
            yield inner.name
        case ptx.Pair(first, second):
            yield from _names(first)
            yield from _names(second)
        case ptx.Subscript(name, index):
            yield name
            if isinstance(index, ptx.Offset | ptx.Name):
                yield from _names(index)
        case ptx.Generic(inner) | ptx.MaskedByte(_, inner):
            yield from _constant_names(inner)
        case _:
            return


def _constant_names(initializer: ptx.Initializer) -> Iterator[str]:
    """The symbols in an initialiser (fields of samplers name modes, not symbols)."""
    pending: list[ptx.Initializer] = [initializer]
    while pending:
        match pending.pop():
            case ptx.Name(name):
                yield name
            case ptx.InitializerList(elements):
                pending += elements
            case ptx.Generic(inner) | ptx.MaskedByte(_, inner) | ptx.Unary(_, inner):
                pending.append(inner)
            case ptx.Binary(_, left, right):
                pending += (right, left)
            case _:
                pass
