"""Rules for a PTX module beyond its grammar: names, labels, operand counts, directives.

In: a module. Out: diagnostics; errors mean that ptxas would refuse it. Names follow PTX's
scopes: declarations and labels belong to their block, an inner name shadows an outer name, labels
may be used before they appear, and everything else only after it is declared.

Where a module's version is newer than `NEWEST_VERSION`, an unknown special register, directive,
opcode or modifier is only a warning: it may have come with that version. In all others it is an
error.

Operand lists of equal text are one object in a parsed module, so a list that was found good stays
good until a scope closes; that keeps this near the cost of a set look-up per instruction. Types are
compared once per opcode and list of kinds of operands, in all of a module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tessera.diagnostics import Diagnostic, Label, Severity, error, warning
from tessera.ir.opcodes import meaning_of
from tessera.ir.opcodes.rules import reads_values
from tessera.ir.opcodes.targets import NEWEST_VERSION
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import WARP_SIZE_NAME
from tessera.ir.ptx.locate import name_span, operand_span
from tessera.ir.ptx.unread import BodyOutline, UnreadBody
from tessera.ir.verify_ptx.accept_outline import accepts, good_texts
from tessera.ir.verify_ptx.declarations import (
    FUNCTION_DIRECTIVES,
    call_faults,
    directive_fault,
    directive_lacks,
    header_fault,
    is_good_directive,
    same_prototype,
    variable_fault,
)
from tessera.ir.verify_ptx.instruction import Ground, close_matches, form_fault, instruction_fault
from tessera.ir.verify_ptx.names import (
    FUNCTION,
    NameScope,
    names_in,
    names_in_constant,
    operand_word,
    special_kind,
    variable_kind,
)

MAX_ERRORS = 100


def verify_module(module: ptx.Module) -> list[Diagnostic]:
    """Everything that is wrong with a module, in text order within each function."""
    return _Verifier(module).run()


class _EnoughFound(Exception):
    """`MAX_ERRORS` errors have been found."""


class _Verifier:
    def __init__(self, module: ptx.Module) -> None:
        self.module = module
        self.diagnostics: list[Diagnostic] = []
        self.errors = 0
        self.is_new = module.version > NEWEST_VERSION
        self.globals = NameScope()
        self.bodies: set[str] = set()
        self.scopes: list[NameScope] = []
        self.good: set[int] = set()
        self.known: dict[str, str] = {}
        self.unknown_opcodes: set[str] = set()
        self.kinds: dict[int, set[int]] = {}
        # By the words of operands: opcodes that were found good with them.
        self.good_opcodes: dict[tuple[str, ...], set[int]] = {}
        target = module.target[0] if module.target else ""
        self.ground = Ground(module.version, target, self.is_new)
        self.good_texts = good_texts(self.ground)
        self.functions: dict[str, ptx.Function] = {}
        self.variables: dict[str, ptx.Variable] = {}

    def run(self) -> list[Diagnostic]:
        with contextlib.suppress(_EnoughFound):
            header = header_fault(self.module, is_new=self.is_new)
            if header is not None:
                self.add(header)
            for item in self.module.items:
                self.item(item)
        return self.diagnostics

    def item(self, item: ptx.Item) -> None:
        match item:
            case ptx.Variable():
                self.declare(self.globals, item, "module")
            case ptx.Function():
                self.function(item)
            case ptx.Alias(name, aliasee, at):
                self.globals.names.setdefault(name, at)
                self.globals.kinds.setdefault(name, FUNCTION)
                if self.globals.declared(aliasee) is None:
                    self.undeclared(aliasee, name_span(self.module, at, aliasee))
            case _:
                pass

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep a finding; after `MAX_ERRORS` errors the rest of the module is not checked."""
        self.diagnostics.append(diagnostic)
        self.errors += diagnostic.severity is Severity.ERROR
        if self.errors >= MAX_ERRORS:
            raise _EnoughFound

    # --- declarations ---------------------------------------------------------------------

    def declare(self, scope: NameScope, variable: ptx.Variable, place: str = "body") -> None:
        if variable.initializer is not None:
            self.check_initializer(variable.initializer, variable.at)
        fault = variable_fault(variable, place, self.module.version)
        if fault is not None:
            span = name_span(self.module, variable.at, variable.name)
            self.add(error("TSR1013", f"`{variable.name}` cannot be declared so: {fault}", span))
        if variable.name == "_":
            return
        earlier = self.earlier_declaration(scope, variable)
        if earlier is not None:
            self.duplicate("name", variable.name, variable.at, earlier)
        scope.add(variable, variable_kind(variable, is_input=place == "entry"))
        if variable.name in self.known or (variable.count is not None and len(self.scopes) > 1):
            self.forget()  # it may shadow a name of an outer block

    def earlier_declaration(self, scope: NameScope, variable: ptx.Variable) -> int | None:
        if scope is self.globals:
            return self.earlier_global(variable)
        if variable.count is None:
            return scope.declared(variable.name)
        same_range = scope.ranges.get(variable.name)
        return None if same_range is None else same_range[1]

    def earlier_global(self, variable: ptx.Variable) -> int | None:
        """The position of an earlier declaration that a linker cannot merge with this variable."""
        name = variable.name
        earlier = self.variables.get(name)
        at = self.globals.names.get(name)
        if earlier is None:
            self.variables[name] = variable
            return at
        joined = "extern" in (variable.linkage, earlier.linkage) and None not in (
            variable.linkage,
            earlier.linkage,
        )
        if earlier.linkage == "extern":
            self.variables[name] = variable
        same = (variable.type, variable.vector) == (earlier.type, earlier.vector)
        return None if joined and same else at

    def check_initializer(self, initializer: ptx.Initializer, at: int) -> None:
        for name in names_in_constant(initializer):
            if self.lookup(name) is None and name != WARP_SIZE_NAME:
                self.undeclared(name, name_span(self.module, at, name))

    # --- functions ------------------------------------------------------------------------

    def function(self, function: ptx.Function) -> None:
        self.check_directives(function)
        if function.has_body:
            if function.name in self.bodies:
                earlier = self.globals.names[function.name]
                self.duplicate("name", function.name, function.at, earlier)
            self.bodies.add(function.name)
        self.check_prototype(function)
        self.globals.names[function.name] = function.at
        self.globals.kinds[function.name] = FUNCTION
        self.functions[function.name] = function
        outer = NameScope()
        for variable in function.returns:
            self.declare(outer, variable, "func")
        for variable in function.parameters:
            self.declare(outer, variable, "entry" if function.is_entry else "func")
            if not function.is_entry and variable.space == "param":
                outer.kinds[variable.name] = "=param:in"
        unread = function.unread
        outline = None if unread is None else unread.outline
        if unread is None or outline is None or not self.is_clean(unread, outline, outer):
            self.block(function.body or (), outer)

    def is_clean(self, unread: UnreadBody, outline: BodyOutline, outer: NameScope) -> bool:
        """Whether an unread body has no faults, by its outline."""
        scope = outer.copy()
        # A parameter that is called like a register of a range hides it.
        clean = accepts(self, unread, outline, scope) and not any(map(scope.ranged, outer.names))
        self.scopes.clear()
        return clean

    def declared_kind(self, name: str) -> str | None:
        """The word for a name in scope that something declares."""
        for scope in reversed(self.scopes):
            kind = scope.kind(name)
            if kind is not None:
                return kind
        return self.globals.kinds.get(name)

    def check_prototype(self, function: ptx.Function) -> None:
        """Check a function against an earlier declaration of its name."""
        earlier = self.functions.get(function.name)
        if earlier is None and function.name in self.variables:
            at = self.variables[function.name].at
            self.duplicate("name", function.name, function.at, at)
        if earlier is not None and not same_prototype(earlier, function):
            self.duplicate("name", function.name, function.at, earlier.at)

    def check_directives(self, function: ptx.Function) -> None:
        for directive in function.directives:
            if directive.name not in FUNCTION_DIRECTIVES:
                near = close_matches(directive.name, FUNCTION_DIRECTIVES, 0.6)
                span = name_span(self.module, function.at, f".{directive.name}")
                hint = f"did you mean `.{near[0]}`?" if near else None
                headline = f"directive is not known: `.{directive.name}`"
                self.report("TSR1025", headline, span, hint=hint)
                continue
            if is_good_directive(directive, self.ground, is_entry=function.is_entry):
                continue
            span = name_span(self.module, function.at, f".{directive.name}")
            lacks = directive_lacks(directive, self.module.version, self.ground.target)
            if lacks is not None and not self.is_new:
                self.add(error("TSR1029", f"`.{directive.name}` needs {lacks} or later", span))
            fault = directive_fault(directive, is_entry=function.is_entry)
            if fault is not None:
                self.add(error("TSR1013", fault, span))

    def block(self, statements: tuple[ptx.Statement, ...], scope: NameScope) -> None:
        for statement in statements:
            if isinstance(statement, ptx.LabelStatement | ptx.CallPrototype | ptx.TargetList):
                earlier = scope.labels.get(statement.name)
                earlier = scope.declared(statement.name) if earlier is None else earlier
                if earlier is not None:
                    self.duplicate("label", statement.name, statement.at, earlier)
                scope.labels[statement.name] = statement.at
        self.scopes.append(scope)
        good, kinds = self.good, self.kinds
        for statement in statements:
            if type(statement) is not ptx.Instruction:
                self.statement(scope, statement)
                continue
            guard, operands = statement.guard, statement.operands
            if guard is not None and id(guard) not in good:
                self.check_guard(guard, statement)
            if id(operands) not in good:
                self.check_names(operands, statement, operands)
            kind = kinds.get(id(operands))
            if kind is None:
                words = self.words(operands)
                kind = kinds[id(operands)] = self.good_opcodes.setdefault(words, set())
            if id(statement.opcode) not in kind:
                self.check_opcode(statement, kind)
        self.scopes.pop()
        self.forget()

    def forget(self) -> None:
        """Clear cached results, because names may change their meaning from here on."""
        self.good.clear()
        self.known.clear()
        self.kinds.clear()

    def statement(self, scope: NameScope, statement: ptx.Statement) -> None:
        match statement:
            case ptx.Variable():
                self.declare(scope, statement)
            case ptx.Block(statements):
                outside = self.good, self.known, self.kinds
                self.good, self.known, self.kinds = set(), {}, {}
                self.block(statements, NameScope())
                self.good, self.known, self.kinds = outside
            case ptx.TargetList(_, _, targets, at):
                for target in targets:
                    if self.lookup(target) is None:
                        self.undeclared(target, name_span(self.module, at, target))
            case _:
                pass

    # --- instructions ---------------------------------------------------------------------

    def words(self, operands: tuple[ptx.Operand, ...]) -> tuple[str, ...]:
        """The words for the kinds of operands."""
        known = self.known
        return tuple([operand_word(operand, known) for operand in operands])

    def check_guard(self, guard: ptx.Guard, instruction: ptx.Instruction) -> None:
        """Check that the register of a guard is declared and is a predicate."""
        self.check_names((ptx.Name(guard.register),), instruction, guard)
        kind = self.known.get(guard.register)
        if kind not in (None, "pred", "%pred", "?"):
            self.good.discard(id(guard))
            span = name_span(self.module, instruction.at, guard.register)
            headline = f"the guard `{guard.register}` is not a predicate"
            self.add(error("TSR1028", headline, span, "a register of type `.pred` belongs here"))

    def check_opcode(self, instruction: ptx.Instruction, good: set[int]) -> None:
        """Check an instruction by itself: once per kind, calls and constants each time."""
        if instruction.opcode.name == "call":
            for fault in call_faults(self.module, instruction, self.functions, self.known):
                self.add(fault)
        elif not reads_values(instruction.opcode):
            good.add(id(instruction.opcode))
        if len(self.unknown_opcodes) >= MAX_ERRORS and meaning_of(instruction) is None:
            return
        diagnostic = instruction_fault(self.module, instruction, is_new=self.is_new)
        if diagnostic is None:
            words = self.words(instruction.operands)
            diagnostic = form_fault(self.module, instruction, words, self.ground)
        if diagnostic is None:
            return
        if diagnostic.code == "TSR1025":
            name = str(instruction.opcode)
            if name in self.unknown_opcodes:
                return  # one report per name is enough
            self.unknown_opcodes.add(name)
        else:
            good.discard(id(instruction.opcode))  # every such instruction is reported
        self.add(diagnostic)

    def check_names(
        self, operands: tuple[ptx.Operand, ...], instruction: ptx.Instruction, shared: object
    ) -> None:
        known, faults = self.known, False
        for index, operand in enumerate(operands):
            names = (operand.name,) if type(operand) is ptx.Name else names_in(operand)
            for name in names:
                if name in known:
                    continue
                kind = self.kind(name)
                if kind is not None:
                    known[name] = kind
                    continue
                faults = True
                span = operand_span(self.module, instruction, index)
                if span is not None:
                    span = name_span(self.module, span.start, name)
                self.undeclared(name, span)
        if not faults:
            self.good.add(id(shared))

    def kind(self, name: str) -> str | None:
        """The word for a name in scope; None if it is not declared."""
        return self.declared_kind(name) or special_kind(name)

    def lookup(self, name: str) -> int | None:
        for scope in reversed(self.scopes):
            place = scope.declared(name)
            if place is None:
                place = scope.labels.get(name)
            if place is not None:
                return place
        return self.globals.names.get(name)

    # --- reports --------------------------------------------------------------------------

    def report(self, code: str, headline: str, span: object, **parts: object) -> None:
        """An error, or a warning if the version of the module is newer than the tables."""
        build: Callable[..., Diagnostic] = warning if self.is_new else error
        self.add(build(code, headline, span, **parts))

    def undeclared(self, name: str, span: object) -> None:
        if name.startswith("%") and self.is_new:
            self.report("TSR1020", f"`{name}` is not declared", span)
            return
        candidates = [
            known
            for scope in (*self.scopes, self.globals)
            for known in (*scope.names, *scope.labels)
        ]
        near = close_matches(name, candidates[:2000], 0.8)
        label = "no register range of that name reaches so far" if self.in_range(name) else ""
        self.add(
            error(
                "TSR1020",
                f"`{name}` is not declared",
                span,  # type: ignore[arg-type]
                label,
                hint=f"did you mean `{near[0]}`?" if near else None,
            )
        )

    def in_range(self, name: str) -> bool:
        prefix = name.rstrip("0123456789")
        return prefix != name and any(prefix in scope.ranges for scope in self.scopes)

    def duplicate(self, what: str, name: str, at: int, earlier: int) -> None:
        first = name_span(self.module, earlier, name)
        secondary = () if first is None else (Label(first, "first declared here"),)
        self.add(
            error(
                "TSR1021",
                f"{what} is declared twice: `{name}`",
                name_span(self.module, at, name),
                "declared again here",
                secondary=secondary,
            )
        )
