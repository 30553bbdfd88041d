"""Rules for declarations and calls: version and targets, variables, directives, arguments.

In: a declaration and its place, or a call and the functions of the module. Out: faults as
diagnostics, or as text if the caller knows the position. The rules are those of ptxas 13; rules
that matter only to a linker are not checked.

Source: PTX ISA 9.0, sections 5.1 (state spaces), 5.2 (types), 5.4 (variables), 7 (calls), 11
(directives).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from tessera.diagnostics import Diagnostic, Label, Span, error, warning
from tessera.ir.opcodes.operand_types import value_fits
from tessera.ir.opcodes.targets import (
    NEWEST_VERSION,
    TARGET_OPTIONS,
    TARGETS,
    is_version,
    read_needs,
    target_since,
)
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.locate import name_span, operand_span
from tessera.ir.ptx.types import is_float, type_bits
from tessera.ir.verify_ptx.instruction import Ground, close_matches
from tessera.ir.verify_ptx.names import operand_word

_INSTRUCTION_TYPES = frozenset({"bf16", "bf16x2", "tf32", "f32x2"})
_OPAQUE = frozenset({"texref", "samplerref", "surfref"})
_WITH_VALUE = frozenset({"global", "const"})
# The number of values of each directive of a kernel; other directives are not for kernels.
DIRECTIVE_VALUES = {
    "maxntid": (1, 3),
    "reqntid": (1, 3),
    "minnctapersm": (1, 1),
    "maxnctapersm": (1, 1),
    "maxnreg": (1, 1),
    "reqnctapercluster": (1, 3),
    "maxclusterrank": (1, 1),
    "explicitcluster": (0, 0),
    "blocksareclusters": (0, 0),
}
DIRECTIVE_NEEDS = {
    "explicitcluster": "7.8/sm_90",
    "reqnctapercluster": "7.8/sm_90",
    "maxclusterrank": "7.8/sm_90",
    "blocksareclusters": "9.0/sm_90",
    "noreturn": "6.4/sm_30",
    "abi_preserve": "9.0/sm_80",
    "abi_preserve_control": "9.0/sm_80",
    "reqntid": "2.1",
    "minnctapersm": "2.0",
}
FUNCTION_ONLY = frozenset({"noreturn", "abi_preserve", "abi_preserve_control"})
FUNCTION_DIRECTIVES = frozenset({*DIRECTIVE_VALUES, *FUNCTION_ONLY, "pragma"})


# --- version and targets ---------------------------------------------------------------------


def header_fault(module: ptx.Module, *, is_new: bool) -> Diagnostic | None:
    """What is wrong with `.version` or `.target`; `is_new` if the version is a later one."""
    if _is_good_header(module.version, module.target, is_new):
        return None
    return _header_fault(module, is_new)


@functools.lru_cache(maxsize=1_000)
def _is_good_header(version: tuple[int, int], target: tuple[str, ...], is_new: bool) -> bool:
    module = ptx.Module(version=version, target=target, address_size=None, items=())
    return _header_fault(module, is_new) is None


def _header_fault(module: ptx.Module, is_new: bool) -> Diagnostic | None:
    major, minor = module.version
    if not is_version(module.version) and not (is_new and major == NEWEST_VERSION[0]):
        newest = ".".join(map(str, NEWEST_VERSION))
        return error(
            "TSR1012",
            f"PTX version is not known: {major}.{minor}",
            _place(module, ".version"),
            f"known are 1.0 to {NEWEST_VERSION[0]}.x",
            hint=f"compile for an older PTX version, such as {newest}",
        )
    for name in module.target:
        since = target_since(name)
        if since is None and name not in TARGET_OPTIONS:
            return _unknown_target(module, name, is_new)
        if since is not None and since > module.version:
            first = ".".join(map(str, since))
            headline = f"`.target {name}` needs PTX {first} or later, and this is {major}.{minor}"
            return error("TSR1012", headline, _place(module, ".version"))
    if all(target_since(name) is None for name in module.target):
        headline = "`.target` names no architecture, such as `sm_80`"
        return error("TSR1012", headline, _place(module, ".target"))
    return None


def _unknown_target(module: ptx.Module, name: str, is_new: bool) -> Diagnostic:
    span = _place(module, ".target")
    if span is not None:
        span = name_span(module, span.end, name)
    near = close_matches(name, TARGETS, 0.6)
    build = warning if is_new else error
    hint = f"did you mean `{near[0]}`?" if near else None
    return build("TSR1012", f"target is not known: `{name}`", span, hint=hint)


def _place(module: ptx.Module, directive: str) -> Span | None:
    """The position of the first directive with a name."""
    if module.source is None:
        return None
    return name_span(module, module.source.text.find(directive), directive)


# --- variables and directives ----------------------------------------------------------------


def variable_fault(variable: ptx.Variable, place: str, version: tuple[int, int]) -> str | None:
    """What is wrong with a variable; `place` is module, body, entry or func (its parameters)."""
    if variable.initializer is not None:
        return _fault_but_for_value(variable, place, version) or _initializer(variable)
    aligns = variable.align, variable.pointer_align
    shape = variable.type, variable.vector, variable.dimensions
    return _fault_without_value(variable.space, variable.linkage, aligns, shape, place, version)


@functools.lru_cache(maxsize=10_000)
def _fault_without_value(
    space: str,
    linkage: str | None,
    aligns: tuple[int | None, int | None],
    shape: tuple[str, int | None, tuple[int | None, ...]],
    place: str,
    version: tuple[int, int],
) -> str | None:
    """What is wrong with a variable that has no initialiser; its name is never at fault."""
    (align, pointer_align), (kind, vector, dimensions) = aligns, shape
    variable = ptx.Variable(
        space=space,
        type=kind,
        name="",
        vector=vector,
        align=align,
        dimensions=dimensions,
        linkage=linkage,
        pointer_align=pointer_align,
    )
    return _fault_but_for_value(variable, place, version)


def _fault_but_for_value(
    variable: ptx.Variable, place: str, version: tuple[int, int]
) -> str | None:
    checks = (_align, _type, _space, _array, _linkage)
    return next(filter(None, (check(variable, place, version) for check in checks)), None)


def _align(variable: ptx.Variable, _place: str, _version: object) -> str | None:
    for align in (variable.align, variable.pointer_align):
        if align is not None and (align <= 0 or align & (align - 1)):
            return f"an alignment is a power of two, not {align}"
    return None


def _type(variable: ptx.Variable, _place: str, _version: object) -> str | None:
    kind, vector = variable.type, variable.vector
    if kind in _INSTRUCTION_TYPES:
        return f"`.{kind}` is a type of instructions, not of variables"
    if kind == "pred" and (variable.space != "reg" or vector is not None):
        return "predicates are single registers"
    if vector is not None and (vector > 4 or vector * type_bits(kind) > 128):
        return "a vector has 2 or 4 elements and at most 128 bits"
    return None


def _space(variable: ptx.Variable, place: str, version: tuple[int, int]) -> str | None:
    space, kind = variable.space, variable.type
    if space == "sreg":
        return "special registers are not declared"
    if kind in _OPAQUE and space not in ("global", "param", "reg"):
        return "textures, samplers and surfaces are in `.global`"
    if place == "module" and version >= (3, 0) and space in ("reg", "local"):
        return f"`.{space}` variables belong into functions"
    if place == "module" and space.startswith("param"):
        return "parameters belong to functions"
    if place == "entry" and not space.startswith("param"):
        return "parameters of a kernel are in `.param`"
    if place == "func" and not space.startswith(("param", "reg")):
        return "parameters are in `.param` or `.reg`"
    if space.startswith("param") and variable.vector is not None:
        return "a parameter cannot be a vector"
    return None


def _array(variable: ptx.Variable, place: str, _version: object) -> str | None:
    sizes = variable.dimensions
    if not sizes:
        return None
    if variable.space == "reg":
        return "registers come in ranges, `%r<4>`, not in arrays"
    if None in sizes[1:]:
        return "only the first size of an array may be left out"
    if sizes[0] or variable.linkage in ("extern", "weak", "common") or place == "func":
        return None
    if place == "entry":
        return "a parameter of a kernel has a size"
    if isinstance(variable.initializer, ptx.InitializerList) and variable.initializer.elements:
        return None
    return "an array without a size is `.extern` or has an initialiser"


def _linkage(variable: ptx.Variable, place: str, _version: object) -> str | None:
    if variable.linkage is None:
        return None
    if place != "module":
        return f"`.{variable.linkage}` is for variables of a module"
    if variable.linkage == "common" and variable.space != "global":
        return "`.common` variables are in `.global`"
    return None


def _initializer(variable: ptx.Variable) -> str | None:
    if variable.space not in _WITH_VALUE:
        return f"variables in `.{variable.space}` have no initialiser"
    if variable.linkage == "extern":
        return "an `.extern` variable has no initialiser"
    if variable.type in _OPAQUE:
        return None
    if variable.type in ("f16", "f16x2"):
        return f"variables of type `.{variable.type}` have no initialiser"
    sizes = [*variable.dimensions, *((variable.vector,) if variable.vector else ())]
    level: list[ptx.Initializer] = [variable.initializer]  # type: ignore[list-item]
    for size in sizes:
        if not all(isinstance(part, ptx.InitializerList) for part in level):
            return "the initialiser of an array or vector is a list in braces"
        lists = [part for part in level if isinstance(part, ptx.InitializerList)]
        if size and any(len(part.elements) > size for part in lists):
            return f"the initialiser has more elements than the {size} that there are"
        level = [element for part in lists for element in part.elements]
    if ptx.InitializerList in set(map(type, level)):
        return "the initialiser has more braces than the variable has sizes"
    return _values(variable.type, level)


def _values(kind: str, values: list[ptx.Initializer]) -> str | None:
    wants_float = is_float(kind)
    for value in set(map(type, values)) if len(values) > 64 else map(type, values):
        if wants_float and value is ptx.Integer:
            return f"an integer does not initialise a `.{kind}`"
        if value is ptx.Float and kind[0] in "us":
            return f"a float does not initialise a `.{kind}`"
        if value is ptx.Name and (wants_float or type_bits(kind) < 32):
            return f"an address does not fit in a `.{kind}`"
    return None


def directive_lacks(directive: ptx.Directive, version: tuple[int, int], target: str) -> str | None:
    """What a module lacks for a directive in the head of a function."""
    return read_needs(DIRECTIVE_NEEDS.get(directive.name, "")).missing(version, target)


def directive_fault(directive: ptx.Directive, *, is_entry: bool) -> str | None:
    """What is wrong with a directive in the head of a function."""
    name = directive.name
    if name == "pragma":
        return None
    if name in FUNCTION_ONLY:
        return f"`.{name}` is not for kernels" if is_entry else None
    bounds = DIRECTIVE_VALUES.get(name)
    if bounds is None:
        return None
    if not is_entry:
        return f"`.{name}` is for kernels only"
    low, high = bounds
    if not low <= len(directive.values) <= high:
        return f"`.{name}` takes {low if low == high else f'{low} to {high}'} values"
    for value in directive.values:
        number = None if isinstance(value, str) else integer_value(value)
        if number is None or number <= 0:
            return f"`.{name}` takes whole numbers above zero"
    return None


@functools.lru_cache(maxsize=1_000)
def is_good_directive(directive: ptx.Directive, ground: Ground, *, is_entry: bool) -> bool:
    """Whether a module has what a directive needs, and the directive no fault."""
    lacks = directive_lacks(directive, ground.version, ground.target)
    return lacks is None and directive_fault(directive, is_entry=is_entry) is None


def same_prototype(first: ptx.Function, second: ptx.Function) -> bool:
    """Whether two declarations of a function agree."""
    if first.is_entry != second.is_entry:
        return False
    if not (first.has_parameter_list and second.has_parameter_list):
        return True
    lists = ((first.parameters, second.parameters), (first.returns, second.returns))
    return all([*map(_shape, a)] == [*map(_shape, b)] for a, b in lists)


def _shape(variable: ptx.Variable) -> tuple[object, ...]:
    align = variable.align or max(type_bits(variable.type) // 8, 1)
    return variable.space, variable.type, variable.vector, variable.dimensions, align


# --- calls -----------------------------------------------------------------------------------


def call_faults(
    module: ptx.Module,
    call: ptx.Instruction,
    functions: Mapping[str, ptx.Function],
    kinds: Mapping[str, str],
) -> Iterator[Diagnostic]:
    """Check a direct call against the function that it names."""
    groups = [index for index, o in enumerate(call.operands) if isinstance(o, ptx.Group)]
    first = 1 if groups[:1] == [0] else 0
    target = call.operands[first] if first < len(call.operands) else None
    if not isinstance(target, ptx.Name):
        return
    if kinds.get(target.name, "?")[0] in "=:#":
        span = operand_span(module, call, first)
        yield error("TSR1024", f"`{target.name}` is no function", span)
        return
    function = functions.get(target.name)
    if function is None or any(None in v.dimensions for v in function.parameters):
        return
    results = _length(call.operands[0]) if first else 0
    rest = call.operands[first + 1 :]
    arguments = _length(rest[0]) if rest else 0
    wanted, got = (len(function.returns), len(function.parameters)), (results, arguments)
    if function.is_entry or wanted != got:
        yield _wrong_call(module, call, function, first, wanted, got)
        return
    yield from _argument_faults(module, call, function.returns, 0 if first else None, kinds)
    last = first + 1 if rest else None
    yield from _argument_faults(module, call, function.parameters, last, kinds)


def _argument_faults(
    module: ptx.Module,
    call: ptx.Instruction,
    formals: tuple[ptx.Variable, ...],
    index: int | None,
    kinds: Mapping[str, str],
) -> Iterator[Diagnostic]:
    group = None if index is None else call.operands[index]
    if not isinstance(group, ptx.Group) or index is None:
        return
    for formal, argument in zip(formals, group.elements, strict=False):
        fault = argument_fault(formal, operand_word(argument, kinds), is_result=index == 0)
        if fault is not None:
            headline = f"the argument for `{formal.name}` does not fit: {fault}"
            yield error("TSR1028", headline, operand_span(module, call, index))
            return


def _wrong_call(
    module: ptx.Module,
    call: ptx.Instruction,
    function: ptx.Function,
    index: int,
    wanted: tuple[int, int],
    got: tuple[int, int],
) -> Diagnostic:
    name = function.name
    headline = f"a kernel cannot be called: `{name}`"
    if not function.is_entry:
        headline = (
            f"`{name}` has {wanted[1]} parameters and {wanted[0]} results, "
            f"and is called with {got[1]} and {got[0]}"
        )
    declared = name_span(module, function.at, name)
    secondary = () if declared is None else (Label(declared, "declared here"),)
    return error("TSR1024", headline, operand_span(module, call, index), secondary=secondary)


def _length(operand: ptx.Operand) -> int:
    return len(operand.elements) if isinstance(operand, ptx.Group) else 0


def argument_fault(formal: ptx.Variable, word: str, *, is_result: bool) -> str | None:
    """What is wrong with an argument of a call, given as a word of `names`."""
    if word[0] in "?_=(!{":
        return None
    if word[0] == "#" and is_result:
        return "a result goes into a register or a parameter"
    if formal.dimensions and formal.space != "reg":
        return "an array is passed as a `.param` variable"
    if formal.vector is not None or word[0] in "%:":
        return None
    if not value_fits(word, formal.type, wider=False, takes_special=False):
        return f"`.{formal.type}` is wanted"
    return None
