"""One change at a time in the code that soundness depends on, and in which runs it matters.

In: the files of `PACKAGES`. `mutants` lists the changes of a package, `apply_change` makes one in
the loaded function. `watch_changes` makes the loaded functions note which changes make a
difference: a condition, number or sum without effects is computed both as it is and as it would be
changed, and the change is noted in `_sabotage_differs` where the two are unlike. Of all else, each
run that comes to the statement is noted. A run in which no difference is noted is the same with
the change.
"""

from __future__ import annotations

import ast
import builtins
import copy
import gc
import hashlib
import importlib
import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "kernel_facts": "tessera/passes/kernel_facts",
    "lane_values": "tessera/passes/lane_values",
    "footprint": "tessera/passes/footprint",
    "dependences": "tessera/passes/dependences",
    "byte_sets": "tessera/passes/byte_sets",
    "lowering": "tessera/planning/lower",
    "checker": "tessera/passes/checker",
    "access checks": "tessera/backend/ptx_executor/memory",
}

_OPPOSITE = {
    "Lt": ("LtE", "GtE"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "LtE"), "GtE": ("Gt", "Lt"),
    "Eq": ("NotEq",), "NotEq": ("Eq",), "Is": ("IsNot",), "IsNot": ("Is",), "In": ("NotIn",),
    "NotIn": ("In",), "Add": ("Sub",), "Sub": ("Add",), "BitAnd": ("BitOr",), "BitOr": ("BitAnd",),
}  # fmt: skip
_WIDENS = re.compile(r"widen|hull|join|union|cover|anything|unknown")
_MAKES_MANY = {"tuple", "list", "set", "frozenset", "sorted", "dict"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
_FOR_PEOPLE = (ast.Raise, ast.JoinedStr, ast.Assert)

_NO_HOSTS = (ast.comprehension, ast.keyword, ast.Slice, ast.Starred, ast.GeneratorExp)
_PURE_FORMS = (
    *(ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Constant, ast.Name),
    *(ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Slice, ast.Call),
    *(ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.comprehension, ast.keyword),
    ast.Starred,
)
_PURE = {
    *("len", "min", "max", "abs", "int", "bool", "any", "all", "sum", "range", "zip", "enumerate"),
    *("isinstance", "set", "frozenset", "tuple", "list", "dict", "sorted", "str", "_sabotage_less"),
}
_PURE_METHODS = {
    *("any", "all", "get", "startswith", "endswith", "items", "keys", "values", "sum", "low"),
    *("bit_length", "count", "isdisjoint", "issubset", "tolist", "item", "astype"),
}
_PLAIN = (bool, int, float, str, bytes, set, frozenset, np.generic)

Mutant = dict[str, Any]
Change = tuple[str, Callable[[], None]]


def _less(values: Any) -> Any:
    """A collection without its last element."""
    if isinstance(values, dict):
        return dict(list(values.items())[:-1])
    return type(values)(list(values)[:-1])


builtins.__dict__["_sabotage_less"] = _less
builtins.__dict__["_sabotage_differs"] = {}
builtins.__dict__["_sabotage_first"] = lambda first, *_rest, **_named: first


def changes_of(node: ast.AST) -> Iterator[Change]:
    """The ways to change a node: what is done, and the function that does it."""

    def put(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in _OPPOSITE.get(type(op).__name__, ()):
                    changed = [*ops[:place], getattr(ast, other)(), *ops[place + 1 :]]
                    yield f"{type(op).__name__} {place} to {other}", put("ops", changed)
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} to the other", put("op", other)
            for place in range(len(values)):
                rest = [*values[:place], *values[place + 1 :]]
                yield f"without condition {place}", put("values", [*rest, rest[-1]])
        case ast.BinOp(op=op):
            for other in _OPPOSITE.get(type(op).__name__, ()):
                yield f"{type(op).__name__} to {other}", put("op", getattr(ast, other)())
        case ast.AugAssign(op=ast.BitOr(), target=target):
            same = copy.deepcopy(target)
            same.ctx = ast.Load()
            yield "without what is added", put("value", same)
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", put("value", not value)
        case ast.Constant(value=int(value)):
            yield f"{value} to {value + 1}", put("value", value + 1)
            if value > 0:
                yield f"{value} to {value - 1}", put("value", value - 1)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "branches swapped", put("test", ast.UnaryOp(ast.Not(), test))
            yield "always", put("test", ast.Constant(True))
            yield "never", put("test", ast.Constant(False))
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield "no round", put("test", ast.Constant(False))
        case ast.comprehension(ifs=[_, *_]):
            yield "without its filter", put("ifs", [])
        case ast.Expr(value=ast.Call()):
            yield "statement left out", put("value", ast.Constant(None))
        case ast.Return(value=value) if _is_many(value):
            yield "returns less", put("value", _call("_sabotage_less", [value]))
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            other = "max" if name == "min" else "min"
            yield f"{name} to {other}", put("func", ast.Name(other, ast.Load()))
        case ast.Call(func=ast.Name(id=name), args=[_, *_]) if _WIDENS.search(name):
            yield f"without {name}", put("func", ast.Name("_sabotage_first", ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name, value=owner), args=args):
            if _WIDENS.search(name) and not isinstance(owner, ast.Constant):
                yield f"without {name}", lambda: _take_owner(node, owner, args)


def _take_owner(node: ast.Call, owner: ast.expr, arguments: list[ast.expr]) -> None:
    node.func, node.args = ast.Name("_sabotage_first", ast.Load()), [owner, *arguments]


def _is_many(value: ast.expr | None) -> bool:
    """Whether an expression is a collection, by its form."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in _MAKES_MANY
    return isinstance(value, _COMPREHENSIONS)


def _call(name: str, arguments: list[Any]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without annotations and texts for people."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_code = isinstance(child, ast.AST) and not isinstance(child, _FOR_PEOPLE)
            if is_code and name not in ("annotation", "returns"):
                yield from _inside(child)


def sites_of(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The nodes in functions and methods of a module, each with the name of the function."""
    for outer in tree.body:
        owner = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
        for function in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            if isinstance(function, ast.FunctionDef) and function.name not in (
                "__repr__",
                "__str__",
            ):
                for statement in function.body:
                    for node in _inside(statement):
                        yield owner + function.name, node


def mutants(package: str) -> Iterator[Mutant]:
    for path in sorted((ROOT / PACKAGES[package]).rglob("*.py")):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for site, (function, node) in enumerate(sites_of(ast.parse(text))):
            for how, _ in changes_of(node):
                reached = getattr(node, "test", getattr(node, "iter", node))
                yield {
                    "package": package,
                    "path": str(path.relative_to(ROOT)),
                    "function": function,
                    "site": site,
                    "how": how,
                    "lines": [reached.lineno, reached.end_lineno],
                    "text": lines[reached.lineno - 1].strip(),
                    "source": hashlib.sha256(text.encode()).hexdigest()[:16],
                }


def apply_change(mutant: Mutant) -> bool:
    """Puts the changed code into the loaded function; False if the function is a wrapper's."""
    path = ROOT / mutant["path"]
    tree = ast.parse(path.read_text("utf-8"))
    node = [*sites_of(tree)][mutant["site"]][1]
    next(change for how, change in changes_of(node) if how == mutant["how"])()
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return _put(path, code, mutant["function"])


def _put(path: Path, code: CodeType, function: str) -> bool:
    name = str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".")
    target: Any = importlib.import_module(name)
    for name in function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
        target = target.__dict__[name]
    target = getattr(target, "fget", None) or getattr(target, "__func__", target)
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    if not isinstance(target, FunctionType) or target.__code__.co_freevars != code.co_freevars:
        return False
    made = zip(_inner(target.__code__), _inner(code), strict=False)
    target.__code__ = code
    gc.unfreeze()  # functions that this one has made before, when its module was loaded
    for before, after in made:
        for one in gc.get_referrers(before):
            if isinstance(one, FunctionType) and before.co_freevars == after.co_freevars:
                one.__code__ = after
    return True


def _inner(code: CodeType) -> list[CodeType]:
    """The functions in a function, without those that note changes."""
    found = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [one for one in found if one.co_name.isidentifier()]


def sources() -> list[Path]:
    """The files that are changed."""
    return [path for folder in PACKAGES.values() for path in sorted((ROOT / folder).rglob("*.py"))]


def key_of(mutant: Mutant) -> tuple[object, ...]:
    return tuple(mutant[name] for name in ("path", "source", "site", "how"))


def name_of(mutant: Mutant) -> tuple[str, ...]:
    """What `survivors.txt` calls a change; it stays while other lines of the file change."""
    return tuple(str(mutant[part]) for part in ("path", "function", "how", "text"))


def draw(count: int, seed: int) -> list[Mutant]:
    """A sample with as many changes of each package, in random order."""
    chosen = random.Random(seed)
    share = -(-count // len(PACKAGES))
    every = ([*mutants(package)] for package in PACKAGES)
    drawn = [one for rows in every for one in chosen.sample(rows, min(share, len(rows)))]
    chosen.shuffle(drawn)
    return drawn[:count]


def watch_changes(changes: Iterable[Mutant]) -> None:
    """Makes the loaded functions note which changes would make a difference."""
    files: dict[str, list[Mutant]] = {}
    for change in changes:
        files.setdefault(change["path"], []).append(change)
    for name, of_file in files.items():
        tree = ast.parse((ROOT / name).read_text("utf-8"))
        weave(tree, of_file)
        code = compile(ast.fix_missing_locations(tree), ROOT / name, "exec", dont_inherit=True)
        for function in sorted({change["function"] for change in of_file}):
            _put(ROOT / name, code, function)


def differing() -> dict[tuple[object, ...], int]:
    """The changes that were noted since it was last cleared, by key."""
    found: dict[tuple[object, ...], int] = builtins.__dict__["_sabotage_differs"]
    return found


def weave(tree: ast.Module, changes: list[Mutant]) -> None:
    """Puts what notes changes into a module."""
    sites = [node for _, node in sites_of(tree)]
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    compared: dict[ast.AST, list[ast.expr]] = {}
    noted: dict[ast.AST, list[ast.stmt]] = {}
    for change in changes:
        node, key = sites[change["site"]], key_of(change)
        host = _host(node, above)
        if host is None:
            while not isinstance(node, ast.stmt):
                node = above[node]
            noted.setdefault(node, []).extend(ast.parse(f"_sabotage_differs[{key!r}] = 1").body)
        else:
            changed = _later(_changed(node, host, change["how"]))
            name = ast.parse(repr(key), mode="eval").body
            compared.setdefault(host, []).append(ast.Tuple([name, changed], ast.Load()))
    _Weaver(compared, noted).visit(tree)


class _Weaver(ast.NodeTransformer):
    """Wraps expressions, and puts statements before others."""

    def __init__(
        self, compared: dict[ast.AST, list[ast.expr]], noted: dict[ast.AST, list[ast.stmt]]
    ) -> None:
        self.compared, self.noted = compared, noted

    def visit(self, node: ast.AST) -> Any:
        changed = super().generic_visit(node)
        if entries := self.compared.get(node):
            return _call("_sabotage_compare", [_later(changed), *entries])
        return [*self.noted[node], changed] if node in self.noted else changed


def _later(value: Any) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(nothing, value)


def _host(node: ast.AST, above: dict[ast.AST, ast.AST]) -> ast.AST | None:
    """The largest expression around a change that can be computed twice; None if there is none."""
    if isinstance(node, ast.If | ast.While):
        return node.test if _is_pure(node.test) else None
    if isinstance(node, ast.Return):
        return node.value if node.value is not None and _is_pure(node.value) else None
    found = None
    while isinstance(node, ast.expr | ast.comprehension | ast.keyword) and _is_pure(node):
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return found
        if not isinstance(node, _NO_HOSTS):
            found = node
        node = above[node]
    return None if isinstance(node, ast.pattern) else found


def _is_pure(node: ast.AST) -> bool:
    """Whether an expression only computes a value, as far as its form says."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name not in _PURE:
            return False
        case ast.Call(func=ast.Attribute(value=owner, attr=name)):
            is_numpy = isinstance(owner, ast.Name) and owner.id == "np"
            if not is_numpy and name not in _PURE_METHODS:
                return False
        case ast.Call(func=ast.Name()):
            pass
        case ast.expr() | ast.comprehension() | ast.keyword():
            if not isinstance(node, _PURE_FORMS):
                return False
        case _:
            return True  # operators and contexts
    return all(_is_pure(child) for child in ast.iter_child_nodes(node))


def _changed(node: ast.AST, host: ast.AST, how: str) -> Any:
    """A copy of an expression, with a change of a node inside of it, or of the statement's."""
    if isinstance(node, ast.stmt):
        node = copy.deepcopy(node)
        next(change for name, change in changes_of(node) if name == how)()
        return node.value if isinstance(node, ast.Return) else node.test  # type: ignore[attr-defined]
    place = next(number for number, one in enumerate(ast.walk(host)) if one is node)
    host = copy.deepcopy(host)
    node = next(one for number, one in enumerate(ast.walk(host)) if number == place)
    next(change for name, change in changes_of(node) if name == how)()
    return host


def _compare(value: Callable[[], Any], *changes: tuple[Any, Callable[[], Any]]) -> Any:
    """A value; notes the changes that make another one of it."""
    found = value()
    noted = builtins.__dict__["_sabotage_differs"]
    for key, changed in changes:
        if key not in noted:
            try:
                is_same = _is_same(found, changed())
            except Exception:
                is_same = False
            if not is_same:
                noted[key] = 1
    return found


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and _is_same([*one.values()], [*other.values()])
    return isinstance(one, _PLAIN) and bool(one == other)


builtins.__dict__["_sabotage_compare"] = _compare
