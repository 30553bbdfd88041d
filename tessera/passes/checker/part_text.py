"""Kernels of parts: that each is the kernel of its launch, with its CTAs counted from another one.

In: a divided program, and the same program with a kernel for each part (for backends, which know
nothing of parts). Out: findings. Nothing is shared with `passes.division`, which makes the kernels.

Two functions are compared statement by statement. At its beginning the new one may put special
registers of CTAs into registers of its own, along one axis plus the first CTA, or the extent. From
there on it names these registers where the old one names special ones, and a function that is equal
in the same sense where the old one names a function that reads such registers. All else is the
same, lines of source files aside. Every item of the module is still there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace

from tessera.diagnostics import Diagnostic
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.passes.checker.findings import Findings

SHIFTED = frozenset({"%ctaid", "%nctaid", "%clusterid", "%nclusterid"})
_OWN = "%tessera_"
_SHORT = ("u16", "s16", "b16")


def cluster_of(launch: ir.Launch, module: ptx.Module) -> ir.Triple | None:
    """The size of the clusters of a launch; None if it is not known."""
    kernel = module.definitions().get(launch.kernel)
    if launch.cluster is not None or kernel is None:
        return launch.cluster
    asked = {directive.name: directive.values for directive in kernel.directives}
    if "reqnctapercluster" not in asked:
        return None if "explicitcluster" in asked else (1, 1, 1)
    values = asked["reqnctapercluster"]
    sizes = [value.value or 1 for value in values if isinstance(value, ptx.Integer)]
    if len(sizes) < len(values):  # `WARP_SZ`
        return None
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def mentioned_names(module: ptx.Module, kernel: str) -> set[str]:
    """The names and instructions in the code of a kernel and in all that it may call."""
    aliases = {item.name: item.aliasee for item in module.items if isinstance(item, ptx.Alias)}
    functions = module.definitions()
    seen: set[str] = set()
    pending = [kernel]
    while pending:
        name = pending.pop()
        function = functions.get(aliases.get(name, name))
        for mentioned in () if function is None else _names(function.body):
            if mentioned not in seen:
                seen.add(mentioned)
                pending.append(mentioned)
    return seen


def _names(node: object) -> Iterator[str]:
    match node:
        case ptx.Name(name) | ptx.Opcode(name):
            yield name
        case ptx.Guard(register):
            yield register
        case ptx.TargetList(targets=targets):
            yield from targets
        case tuple():
            for each in node:
                yield from _names(each)
        case _ if is_dataclass(node):
            for each in fields(node):
                yield from _names(getattr(node, each.name))


def _declared(body: tuple[ptx.Statement, ...]) -> Iterator[str]:
    for statement in ptx.walk_statements(body):
        if not isinstance(statement, ptx.Instruction | ptx.Location | ptx.Pragma | ptx.Block):
            yield statement.name


# --- programs --------------------------------------------------------------------------------


def check_part_kernels(divided: ir.Program, made: ir.Program) -> tuple[Diagnostic, ...]:
    """The faults of a program whose launches no longer are parts."""
    findings = Findings()
    plain = replace(divided, modules=(), steps=())
    if replace(made, modules=(), steps=()) != plain or len(made.steps) != len(divided.steps):
        findings.add("TSR4018", "the program of kernels of parts has other buffers or steps")
        return findings.result()
    judge = _PartJudge(divided, made)
    for old, new in zip(divided.modules, made.modules, strict=False):
        if old is not new and (reason := judge.module(old, new)):
            findings.add("TSR4018", f"module `{old.name}` has other code: {reason}")
    if len(divided.modules) != len(made.modules):
        findings.add("TSR4018", "there are more modules, or fewer")
    if findings.count:
        return findings.result()
    for before, after in zip(divided.steps, made.steps, strict=True):
        if (before is not after or _is_part(before)) and (reason := judge.step(before, after)):
            findings.add("TSR4018", f"a step is not the part that it stands for: {reason}")
    return findings.result()


def _is_part(step: ir.Step) -> bool:
    if not isinstance(step, ir.Launch):
        return False
    return step.ctas is not None or any(variant.ctas for variant in step.variants)


@dataclass(slots=True)
class _PartJudge:
    """Compares modules and steps of two programs."""

    divided: ir.Program
    made: ir.Program
    judged: dict[tuple[object, ...], str] = field(default_factory=dict)

    def module(self, old: ir.ProgramModule, new: ir.ProgramModule) -> str:
        """Why a module does not have all the code that it had."""
        if (old.id, old.name) != (new.id, new.name) or len(old.variants) != len(new.variants):
            return "another name or other variants"
        for first, second in zip(old.variants, new.variants, strict=True):
            before, after = first.ptx, second.ptx
            kept = [item for item in before.items if not isinstance(item, ptx.Section)]
            heads = [(m.version, m.target, m.address_size) for m in (before, after)]
            if first.arch != second.arch or heads[0] != heads[1] or len(after.items) < len(kept):
                return "another target, or items are missing"
            same = _FunctionComparison(before, after, {})
            for item, copy in zip(kept, after.items, strict=False):
                if reason := same.difference(item, copy):
                    return reason
            # What stays must name the very same functions, not only ones that compare.
            if same.pending:
                named, other = same.pending[0]
                return f"`{other}` instead of `{named}`"
            if not all(isinstance(item, ptx.Function) for item in after.items[len(kept) :]):
                return "it has more than new functions"
            names = [item.name for item in after.functions() if item.has_body]
            if len(set(names)) < len(names):
                return "two functions have one name"
        return ""

    def step(self, old: ir.Step, new: ir.Step) -> str:
        """Why a step does not do what its part of a launch does."""
        if not isinstance(old, ir.Launch) or not isinstance(new, ir.Launch):
            return "" if old == new else "it is another step"
        variants = tuple(replace(variant, ctas=None) for variant in old.variants)
        if replace(old, kernel=new.kernel, ctas=None, variants=variants) != new:
            return f"`{new.kernel}` is launched in another way than `{old.kernel}`"
        pairs = zip(
            self.divided.modules[old.module].variants,
            self.made.modules[new.module].variants,
            strict=True,
        )
        for before, after in pairs:
            own = ir.for_arch(old, before.arch)
            size = cluster_of(own, before.ptx)
            key = (old.module, before.arch, old.kernel, new.kernel, own.ctas, size)
            if key not in self.judged:
                values = _values(own.ctas, size)
                compared = _FunctionComparison(before.ptx, after.ptx, values)
                self.judged[key] = compared.functions(old.kernel, new.kernel)
            if self.judged[key]:
                return f"`{new.kernel}` for `{before.arch}`: {self.judged[key]}"
        return ""


Values = Mapping[str, tuple[str, str, int]]
"""By special register: the component that differs, whether it is added to or replaced, by what."""


def _values(ctas: ir.CtaRange | None, cluster: ir.Triple | None) -> Values:
    if ctas is None:
        return {}
    letter = "xyz"[ctas.axis]
    size = 1 if cluster is None else cluster[ctas.axis]
    values = {
        "%ctaid": (letter, "add", ctas.first),
        "%nctaid": (letter, "mov", ctas.extent),
    }
    if not (ctas.first % size or ctas.extent % size):
        values["%clusterid"] = (letter, "add", ctas.first // size)
        values["%nclusterid"] = (letter, "mov", ctas.extent // size)
    return values


def _calls_any(body: tuple[ptx.Statement, ...], functions: Collection[str]) -> bool:
    """Whether a body calls what none of these functions is: one that a register names."""
    for statement in ptx.walk_statements(body):
        if isinstance(statement, ptx.Instruction) and statement.opcode.name == "call":
            named = (o.name for o in statement.operands if isinstance(o, ptx.Name))
            if next(named, "") not in functions:
                return True
    return False


# --- functions -------------------------------------------------------------------------------


@dataclass(slots=True)
class _FunctionComparison:
    """Two functions, and those that they name, under the values of special registers."""

    old: ptx.Module
    new: ptx.Module
    values: Values
    registers: dict[str, str] = field(default_factory=dict)
    pending: list[tuple[str, str]] = field(default_factory=list)

    def functions(self, old: str, new: str) -> str:
        """Why a function, with all that it calls, is not the other one; empty if it is."""
        self.pending = [(old, new)]
        seen: set[tuple[str, str]] = set()
        while self.pending:
            pair = self.pending.pop()
            if pair in seen:
                continue
            seen.add(pair)
            if reason := self._function(*pair):
                return f"{reason} in `{pair[1]}`"
        return ""

    def _function(self, name: str, other: str) -> str:
        old, new = self.old.definitions().get(name), self.new.definitions().get(other)
        if old is None or new is None:
            return "no code"
        if replace(old, body=None) != replace(new, name=name, body=None):
            return "another head"
        old_body, new_body = old.body or (), new.body or ()
        if any(name.startswith(_OWN) for name in (*_names(old_body), *_declared(old_body))):
            return "registers of parts in the kernel itself"
        if self._is_hidden(old_body):
            return "a function that only a register or a variable of the kernel names"
        self.registers = {}
        count = self._head(new_body)
        return self.difference(old_body, new_body[count:])

    def _head(self, body: tuple[ptx.Statement, ...]) -> int:
        """Take the registers of parts from the beginning of a body; returns their statements."""
        at = 0
        while at + 2 < len(body):
            declared, read, changed = body[at : at + 3]
            if not (isinstance(declared, ptx.Variable) and declared.name.startswith(_OWN)):
                break
            name = declared.name
            plain = ptx.Variable(space="reg", type="u32", name=name, vector=4)
            match read:
                case ptx.Instruction(
                    None, ptx.Opcode("mov", ("v4", "u32")), (to, ptx.Name() as by)
                ):
                    special = by.name
                case _:
                    break
            if declared != plain or to != ptx.Name(name) or special not in self.values:
                break
            letter, operation, value = self.values[special]
            own, number = ptx.Name(name, letter), ptx.Integer(str(value), value)
            operands = (own, own, number) if operation == "add" else (own, number)
            wanted = ptx.Instruction(None, ptx.Opcode(operation, ("u32",)), operands)
            if by.component or changed != wanted or name in self.registers:
                break
            self.registers[name] = special
            at += 3
        return at

    def _is_hidden(self, body: tuple[ptx.Statement, ...]) -> bool:
        """Whether a body may call a function that it does not name, or hides the name of one."""
        functions = {function.name for function in self.old.functions()}
        if not functions.isdisjoint(_declared(body)):
            return True
        return _calls_any(body, functions) and any(map(self._reads, functions))

    def _reads(self, function: str) -> bool:
        """Whether a function may read the number of its CTA, also by a call of any function."""
        names = {function, *mentioned_names(self.old, function)}
        functions = {own.name: own.is_entry for own in self.old.functions()}
        defined = self.old.definitions()
        bodies = [defined[name].body or () for name in names & defined.keys()]
        if any(_calls_any(body, functions) for body in bodies):
            called = [name for name, is_entry in functions.items() if not is_entry]
            names.update(*(mentioned_names(self.old, name) for name in called))
        return not names.isdisjoint(SHIFTED)

    def difference(self, old: object, new: object) -> str:
        """What differs between two nodes; empty if nothing does."""
        if type(old) is not type(new):
            return "another kind of statement"
        match old, new:
            case ptx.Name() as mine, ptx.Name() as other:
                same = mine.component == other.component and self._name(mine.name, other.name)
                return "" if same else f"`{other.name}` instead of `{mine.name}`"
            case tuple() as mine, tuple() as other:
                kept = [
                    [each for each in own if not isinstance(each, ptx.Location)]
                    for own in (mine, other)
                ]
                if len(kept[0]) != len(kept[1]):
                    return "more or fewer statements"
                return next(filter(None, map(self.difference, *kept)), "")
            case ptx.Function() as mine, ptx.Function() as other:
                heads = replace(mine, body=None), replace(other, body=None)
                if heads[0] != heads[1] or mine.has_body != other.has_body:
                    return f"`{mine.name}` has changed"
                return self.difference(mine.body, other.body)
            case ptx.TargetList() as mine, ptx.TargetList() as other:
                same = replace(mine, targets=()) == replace(other, targets=())
                same = same and len(mine.targets) == len(other.targets)
                same = same and all(map(self._name, mine.targets, other.targets))
                return "" if same else "other targets"
            case ptx.Instruction() as mine, ptx.Instruction() as other:
                is_same = mine.opcode == other.opcode or self._as_short(mine, other)
                if mine.guard != other.guard or not is_same:
                    return f"`{other.opcode}` instead of `{mine.opcode}`"
                return self.difference(mine.operands, other.operands)
        if is_dataclass(old) and not isinstance(old, ptx.Variable | ptx.Integer | ptx.Float):
            listed = (each.name for each in fields(old) if each.compare)
            pairs = ((getattr(old, name), getattr(new, name)) for name in listed)
            return next(filter(None, (self.difference(*pair) for pair in pairs)), "")
        return "" if old == new else f"`{new}` instead of `{old}`"

    def _as_short(self, old: ptx.Instruction, new: ptx.Instruction) -> bool:
        """Whether both take the low half of a special register: `mov.u16` of it is allowed."""
        return (
            old.opcode.name == "mov"
            and len(old.opcode.modifiers) == 1
            and old.opcode.modifiers[0] in _SHORT
            and new.opcode == ptx.Opcode("cvt", ("u16", "u32"))
            and len(new.operands) == 2
            and isinstance(new.operands[1], ptx.Name)
            and new.operands[1].name in self.registers
        )

    def _name(self, old: str, new: str) -> bool:
        """Whether two names mean the same."""
        if new in self.registers:
            return old == self.registers[new]
        if old in SHIFTED:
            return old == new and not self.values
        functions = self.old.definitions()
        if old == new:
            return not (self.values and self._is_function(old) and self._reads(old))
        self.pending.append((old, new))
        return old in functions and new in self.new.definitions()

    def _is_function(self, name: str) -> bool:
        return name in self.old.definitions() or any(
            isinstance(item, ptx.Alias) and item.name == name for item in self.old.items
        )
