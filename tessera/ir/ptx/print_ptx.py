"""Print PTX records as PTX text that ptxas accepts.

The text has one statement per line, one declaration per name, and no comments. A parsed module
prints to text that gives the same machine code and parses back to an equal module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from tessera.ir.ptx import syntax as ptx


def print_module(module: ptx.Module) -> str:
    """The text of a whole module."""
    lines = [f".version {module.version[0]}.{module.version[1]}"]
    lines.append(f".target {', '.join(module.target)}")
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    for item in module.items:
        lines += _item(item)
    return "\n".join(lines) + "\n"


def print_operand(operand: ptx.Operand) -> str:
    """The text of one operand."""
    match operand:
        case ptx.Name(name, component):
            return name if component is None else f"{name}.{component}"
        case ptx.Integer(text) | ptx.Float(text):
            return text
        case ptx.Address(parts, suffix):
            return f"[{_commas(parts)}]" + (f".{suffix}" if suffix else "")
        case ptx.Offset(base, displacement):
            return f"{print_operand(base)}+{print_operand(displacement)}"
        case ptx.Vector(elements):
            return "{" + _commas(elements) + "}"
        case ptx.Pair(first, second):
            return f"{print_operand(first)}|{print_operand(second)}"
        case ptx.Not(inner):
            return f"!{print_operand(inner)}"
        case ptx.Negated(inner):
            return f"-{print_operand(inner)}"
        case ptx.Sink():
            return "_"
        case ptx.Group(elements):
            return f"({_commas(elements)})"
        case ptx.Subscript(name, index):
            return f"{name}[{print_operand(index)}]"
        case _:
            return _expression(operand)


def _expression(constant: ptx.Constant) -> str:
    match constant:
        case ptx.Unary(operator, operand):
            return f"({operator}{print_operand(operand)})"
        case ptx.Binary(operator, left, right):
            return f"({print_operand(left)} {operator} {print_operand(right)})"
        case ptx.Conditional(condition, then, otherwise):
            parts = (print_operand(part) for part in (condition, then, otherwise))
            return "({} ? {} : {})".format(*parts)
        case ptx.Cast(kind, operand):
            return f"((.{kind}){print_operand(operand)})"
        case ptx.Generic(operand):
            return f"generic({_symbol_sum(operand)})"
        case ptx.MaskedByte(mask, operand):
            return f"{mask.text}({_symbol_sum(operand)})"
        case ptx.Name() | ptx.Integer() | ptx.Float():
            return print_operand(constant)
        case _:
            assert_never(constant)


def _symbol_sum(constant: ptx.Constant) -> str:
    """`symbol+4` without parentheses, which ptxas requires for symbols."""
    match constant:
        case ptx.Binary("+" | "-" as operator, left, right):
            return f"{_symbol_sum(left)}{operator}{print_operand(right)}"
        case _:
            return print_operand(constant)


def _commas(operands: Iterable[ptx.Operand]) -> str:
    return ", ".join(map(print_operand, operands))


def _initializer(initializer: ptx.Initializer) -> str:
    match initializer:
        case ptx.InitializerList(elements):
            return "{" + ", ".join(map(_initializer, elements)) + "}"
        case ptx.InitializerField(name, value):
            return f"{name} = {print_operand(value)}"
        case _:
            return _symbol_sum(initializer)


def _attributes(attributes: tuple[ptx.Attribute, ...]) -> list[str]:
    if not attributes:
        return []
    entries = (f".{a.name}" + (f"({_commas(a.values)})" if a.values else "") for a in attributes)
    return [f".attribute({', '.join(entries)})"]


def _variable(variable: ptx.Variable) -> str:
    bank = "" if variable.bank is None else f"[{variable.bank}]"
    words = [f".{variable.linkage}"] if variable.linkage else []
    words += [f".{variable.space}{bank}", *_attributes(variable.attributes)]
    if variable.align is not None:
        words.append(f".align {variable.align}")
    if variable.vector is not None:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    if variable.pointer_space is not None:
        words.append(".ptr")
        if variable.pointer_space:
            words.append(f".{variable.pointer_space}")
        if variable.pointer_align is not None:
            words.append(f".align {variable.pointer_align}")
    sizes = "".join("[]" if size is None else f"[{size}]" for size in variable.dimensions)
    count = "" if variable.count is None else f"<{variable.count}>"
    words.append(variable.name + count + sizes)
    if variable.initializer is not None:
        words += ["=", _initializer(variable.initializer)]
    return " ".join(words)


def _parameters(variables: tuple[ptx.Variable, ...]) -> str:
    return f"({', '.join(map(_variable, variables))})"


def _directive(directive: ptx.Directive) -> str:
    if directive.name == "pragma":
        return ".pragma " + ", ".join(f'"{text}"' for text in directive.values) + ";"
    values = (v if isinstance(v, str) else print_operand(v) for v in directive.values)
    return f".{directive.name} {', '.join(values)}".rstrip()


def _location(location: ptx.Location) -> str:
    text = f".loc {location.file} {location.line} {location.column}"
    if location.inlined_at is None:
        return text
    offset = f"+{location.function_offset}" if location.function_offset else ""
    origin = " ".join(map(str, location.inlined_at))
    return f"{text}, function_name {location.function_name}{offset}, inlined_at {origin}"


def _function(function: ptx.Function) -> Iterator[str]:
    words = [f".{function.linkage}"] if function.linkage else []
    words += [".entry" if function.is_entry else ".func", *_attributes(function.attributes)]
    if function.returns:
        words.append(_parameters(function.returns))
    words.append(function.name)
    if function.has_parameter_list:
        words.append(_parameters(function.parameters))
    yield " ".join(words)
    yield from map(_directive, function.directives)
    if function.body is None:
        yield ";"
        return
    yield "{"
    yield from _statements(function.body, "\t")
    yield "}"


def _statements(statements: tuple[ptx.Statement, ...], indent: str) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ptx.Block):
            yield indent + "{"
            yield from _statements(statement.statements, indent + "\t")
            yield indent + "}"
        else:
            yield indent + _simple(statement)


def _simple(statement: ptx.Statement) -> str:
    match statement:
        case ptx.Instruction(guard, opcode, operands):
            head = "" if guard is None else f"@{'!' * guard.negated}{guard.register} "
            return f"{head}{opcode} {_commas(operands)};" if operands else f"{head}{opcode};"
        case ptx.LabelStatement(name):
            return f"{name}:"
        case ptx.Variable():
            return _variable(statement) + ";"
        case ptx.Location():
            return _location(statement)
        case ptx.Pragma(strings):
            return ".pragma " + ", ".join(f'"{text}"' for text in strings) + ";"
        case ptx.CallPrototype():
            directives = "".join(f" {_directive(d)}" for d in statement.directives)
            returns = _parameters(statement.returns) + " " if statement.returns else ""
            parameters = _parameters(statement.parameters)
            return f"{statement.name}: .callprototype {returns}_ {parameters}{directives};"
        case ptx.TargetList(name, kind, targets):
            return f"{name}: .{kind} {', '.join(targets)};"
        case ptx.Block():
            raise AssertionError("blocks are printed by their parent")
        case _:
            assert_never(statement)


def _item(item: ptx.Item) -> Iterator[str]:
    match item:
        case ptx.Function():
            yield from _function(item)
        case ptx.Variable():
            yield _variable(item) + ";"
        case ptx.SourceFile():
            extra = "".join(f", {n}" for n in (item.timestamp, item.size) if n is not None)
            yield f'.file {item.index} "{item.name}"{extra}'
        case ptx.Section(text):
            yield text
        case ptx.Alias(name, aliasee):
            yield f".alias {name}, {aliasee};"
        case ptx.Pragma():
            yield _simple(item)
        case ptx.Target(names):
            yield f".target {', '.join(names)}"
        case _:
            assert_never(item)
