"""A function body as one flat list of instructions: scopes resolved, names made unique.

In: a `ptx.Function` with a body. Out: a `FlatFunction` whose instructions are those of the
body in text order, nested blocks opened. Every register, variable and label declared inside
has a unique name: the first declaration of a name keeps it, a later declaration (in another scope,
or a shadowing one) is `name#N`, where N is a different number each time. A vector register
`.reg .v4 .f32 %v` becomes `%v.x` to `%v.w`: `%v` alone is then a `Vector` of those, and no
operand selects a component of a register except for the bytes and halves of video
instructions. Names declared nowhere in the body (special registers, module variables,
functions, parameters) stay as they are.

Labels stand for the index of the instruction that follows them; a label at the end stands for
the number of instructions.

Source: PTX ISA 9.0, sections 4.4 (identifiers), 5.4 (declarations), 6.4.2 (vectors).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from operator import is_

from tessera.ir.ptx import syntax as ptx

COMPONENTS = ("x", "y", "z", "w")
COLOURS = {"r": "x", "g": "y", "b": "z", "a": "w"}


@dataclass(frozen=True, slots=True)
class Register:
    """A register by its unique name, with its type (`b32`, `pred`)."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class LabelIndex:
    """A label by its unique name and the index of the instruction it stands before."""

    name: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatFunction:
    """A function with its body as one list.

    `registers` holds the registers that some instruction names, in order of first use.
    `variables` holds the other variables declared in the body (`.local`, `.shared`, `.param`,
    ...) under their unique names. `targets` and `prototypes` are the `.branchtargets`,
    `.calltargets` and `.callprototype` declarations, with unique names inside.
    """

    function: ptx.Function
    instructions: tuple[ptx.Instruction, ...]
    labels: tuple[LabelIndex, ...]
    registers: tuple[Register, ...]
    variables: tuple[ptx.Variable, ...]
    targets: tuple[ptx.TargetList, ...] = ()
    prototypes: tuple[ptx.CallPrototype, ...] = ()


@dataclass(slots=True)
class _DeclaredName:
    """A declared name in a scope: its unique name, and for registers type and width."""

    unique: str
    type: str = ""
    vector: int | None = None
    count: int | None = None
    register: bool = False


@dataclass(slots=True)
class _Scope:
    """The names of one `{ }`; a counted declaration is found by its prefix."""

    names: dict[str, _DeclaredName] = field(default_factory=dict)
    counted: dict[str, _DeclaredName] = field(default_factory=dict)


def flatten(function: ptx.Function) -> FlatFunction:
    """Flatten a function; one without a body has no instructions."""
    return _Flattener(function).run()


class _Flattener:
    """One walk over the body with a stack of scopes."""

    def __init__(self, function: ptx.Function) -> None:
        self.function = function
        self.scopes: list[_Scope] = []
        self.names: set[str] = set()
        self.prefixes: set[str] = set()
        self.serial = 1
        self.instructions: list[ptx.Instruction] = []
        self.labels: list[LabelIndex] = []
        self.registers: dict[str, Register] = {}
        self.variables: list[ptx.Variable] = []
        # The meaning of names without a component in the current scopes.
        self.renamed: dict[str, ptx.Operand] = {}
        self.targets: list[ptx.TargetList] = []
        self.prototypes: list[ptx.CallPrototype] = []

    def run(self) -> FlatFunction:
        self.declare_parameters()
        self.walk_block(self.function.body or ())
        return FlatFunction(
            function=self.function,
            instructions=tuple(self.instructions),
            labels=tuple(self.labels),
            registers=tuple(self.registers.values()),
            variables=tuple(self.variables),
            targets=tuple(self.targets),
            prototypes=tuple(self.prototypes),
        )

    def declare_parameters(self) -> None:
        """Register-space parameters of old `.func`s are registers; the others keep their names."""
        scope = _Scope()
        self.scopes.append(scope)
        for variable in (*self.function.returns, *self.function.parameters):
            if variable.space == "reg":
                self.declare_register(scope, variable)
            elif variable.name:
                self.names.add(variable.name)

    def walk_block(self, statements: tuple[ptx.Statement, ...]) -> None:
        """Add the declarations of the block (labels may be used before them), then walk it."""
        scope = _Scope()
        self.scopes.append(scope)
        for statement in statements:
            self.declare(scope, statement)
        outer, self.renamed = self.renamed, {}
        for statement in statements:
            self.walk(statement)
        self.renamed = outer
        self.scopes.pop()

    def declare(self, scope: _Scope, statement: ptx.Statement) -> None:
        match statement:
            case ptx.Variable(space="reg"):
                self.declare_register(scope, statement)
            case ptx.Variable() | ptx.LabelStatement() | ptx.TargetList() | ptx.CallPrototype():
                scope.names[statement.name] = _DeclaredName(self.unique(statement.name))
            case _:
                pass

    def declare_register(self, scope: _Scope, variable: ptx.Variable) -> None:
        counted = variable.count is not None
        declared = _DeclaredName(
            unique=self.unique_counted(variable.name) if counted else self.unique(variable.name),
            type=variable.type,
            vector=variable.vector,
            count=variable.count,
            register=True,
        )
        table = scope.names if variable.count is None else scope.counted
        table[variable.name] = declared

    def unique_counted(self, prefix: str) -> str:
        """A unique prefix for a counted declaration; it must not match a plain name."""
        taken = prefix in self.prefixes or any(
            name.startswith(prefix) and name[len(prefix) :].isdigit() for name in self.names
        )
        self.prefixes.add(prefix)
        return self.number(prefix) if taken else prefix

    def unique(self, name: str) -> str:
        """A unique name for a plain declaration; no counted declaration may cover it."""
        digits = len(name) - len(name.rstrip("0123456789"))
        ends = range(len(name) - digits, len(name))
        taken = name in self.names or any(name[:end] in self.prefixes for end in ends)
        self.names.add(name)
        return self.number(name) if taken else name

    def number(self, name: str) -> str:
        """A numbered name. Each number is used for one declaration, so names never collide."""
        self.serial += 1
        return f"{name}#{self.serial}"

    def walk(self, statement: ptx.Statement) -> None:
        match statement:
            case ptx.Block():
                self.walk_block(statement.statements)
            case ptx.Instruction():
                self.instructions.append(self.rename_instruction(statement))
            case ptx.LabelStatement():
                index = len(self.instructions)
                self.labels.append(LabelIndex(self.resolve(statement.name), index))
            case ptx.Variable() if statement.space != "reg":
                self.variables.append(replace(statement, name=self.resolve(statement.name)))
            case ptx.TargetList():
                self.targets.append(
                    replace(
                        statement,
                        name=self.resolve(statement.name),
                        targets=tuple(map(self.resolve, statement.targets)),
                    )
                )
            case ptx.CallPrototype():
                self.prototypes.append(replace(statement, name=self.resolve(statement.name)))
            case _:
                pass

    def rename_instruction(self, instruction: ptx.Instruction) -> ptx.Instruction:
        guard = instruction.guard
        if guard is not None:
            guard = ptx.Guard(self.resolve(guard.register), guard.negated)
        operands = tuple(map(self.rename, instruction.operands))
        if guard is None and all(map(is_, operands, instruction.operands)):
            return instruction
        return ptx.Instruction(guard, instruction.opcode, operands, instruction.at)

    def rename(self, operand: ptx.Operand) -> ptx.Operand:
        """The operand with unique names; a whole vector register becomes a `Vector`."""
        match operand:
            case ptx.Name():
                return self.rename_name(operand)
            case ptx.Integer():
                return operand
            case ptx.Not() | ptx.Negated():
                return type(operand)(self.plain(operand.operand))
            case ptx.Pair(first, second):
                return ptx.Pair(self.half(first), self.single(second))
            case ptx.Vector() | ptx.Group():
                return type(operand)(tuple(map(self.rename, operand.elements)))
            case ptx.Address():
                return ptx.Address(tuple(map(self.rename, operand.parts)), operand.suffix)
            case ptx.Offset():
                moved = self.rename_constant(operand.displacement)
                return ptx.Offset(self.plain(operand.base), moved)
            case ptx.Subscript():
                return self.rename_subscript(operand)
            case ptx.Sink():
                return operand
            case _:
                return self.rename_constant(operand)

    def half(self, operand: ptx.Name | ptx.Sink | ptx.Vector) -> ptx.Name | ptx.Sink | ptx.Vector:
        if isinstance(operand, ptx.Vector):
            return ptx.Vector(tuple(map(self.rename, operand.elements)))
        return self.single(operand)

    def single(self, operand: ptx.Name | ptx.Sink) -> ptx.Name | ptx.Sink:
        return operand if isinstance(operand, ptx.Sink) else self.plain(operand)

    def rename_subscript(self, operand: ptx.Subscript) -> ptx.Subscript:
        index = operand.index
        if isinstance(index, ptx.Offset):
            moved = self.rename_constant(index.displacement)
            return ptx.Subscript(
                self.resolve(operand.name), ptx.Offset(self.plain(index.base), moved)
            )
        return ptx.Subscript(self.resolve(operand.name), self.rename_constant(index))

    def rename_constant(self, constant: ptx.Constant) -> ptx.Constant:
        match constant:
            case ptx.Name():
                return self.plain(constant)
            case ptx.Integer() | ptx.Float():
                return constant
            case _:
                parts = ((f.name, getattr(constant, f.name)) for f in fields(constant))
                renamed = {n: self.rename_constant(p) for n, p in parts if not isinstance(p, str)}
                return replace(constant, **renamed)  # type: ignore[arg-type]

    def plain(self, name: ptx.Name) -> ptx.Name:
        """The unique name of an operand that cannot be a vector."""
        renamed = self.rename_name(name)
        return renamed if isinstance(renamed, ptx.Name) else name

    def rename_name(self, name: ptx.Name) -> ptx.Operand:
        if name.component is not None:
            return self.find_name(name)
        renamed = self.renamed.get(name.name)
        if renamed is None:
            renamed = self.renamed[name.name] = self.find_name(name)
        return name if renamed == name else renamed

    def find_name(self, name: ptx.Name) -> ptx.Operand:
        """The operand that a name stands for; a register counts as used."""
        declared, unique = self.look_up(name.name)
        if declared is None:
            return name
        if not declared.register:
            return ptx.Name(unique, name.component)
        if declared.vector is None:
            self.note(unique, declared.type)
            return ptx.Name(unique, name.component)
        parts = tuple(f"{unique}.{c}" for c in COMPONENTS[: declared.vector])
        for part in parts:
            self.note(part, declared.type)
        if name.component is None:
            return ptx.Vector(tuple(ptx.Name(part) for part in parts))
        return ptx.Name(f"{unique}.{COLOURS.get(name.component, name.component)}")

    def note(self, unique: str, kind: str) -> None:
        if unique not in self.registers:
            self.registers[unique] = Register(unique, kind)

    def resolve(self, name: str) -> str:
        """The unique name; registers count as used."""
        declared, unique = self.look_up(name)
        if declared is not None and declared.register and declared.vector is None:
            self.note(unique, declared.type)
        return unique

    def look_up(self, name: str) -> tuple[_DeclaredName | None, str]:
        """The innermost declaration of a name, and the unique name it gives."""
        prefix = name.rstrip("0123456789")
        for scope in reversed(self.scopes):
            declared = scope.names.get(name)
            if declared is not None:
                return declared, declared.unique
            counted = self.look_up_counted(scope, name, prefix)
            if counted is not None:
                return counted
        return None, name

    def look_up_counted(
        self, scope: _Scope, name: str, prefix: str
    ) -> tuple[_DeclaredName, str] | None:
        """`%r12` among `%r<20>`; the prefix may itself end in digits (`%r1<20>`)."""
        if not scope.counted:
            return None
        for end in range(len(prefix), len(name)):
            declared = scope.counted.get(name[:end])
            if declared is None:
                continue
            digits = name[end:]
            if len(digits) <= 10 and int(digits) < (declared.count or 0):
                number = str(int(digits))  # ptxas treats `%r01` as `%r1`
                return declared, name[:end] + number + declared.unique[end:]
        return None
