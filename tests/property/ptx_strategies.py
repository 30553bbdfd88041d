"""Generated PTX modules: syntactically valid, of every shape the records allow."""

from __future__ import annotations

from hypothesis import strategies as st

from tessera.frontend.ptx.constants import float_constant, integer_constant
from tessera.frontend.ptx.declarations import TYPES
from tessera.ir.ptx import syntax as ptx

KEYWORDS = {"function_name", "inlined_at"}

names = st.one_of(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_$]{0,8}", fullmatch=True),
    st.from_regex(r"[_$%][A-Za-z0-9_$]{1,8}", fullmatch=True),
).filter(lambda name: name not in KEYWORDS and name != "WARP_SZ")
modifiers = st.one_of(
    st.sampled_from(
        ["global", "u32", "v4", "sp::2:4", "f16x2", "2d", "L2::128B", "shared::cta", "to", "lo"]
    ),
    st.from_regex(r"[A-Za-z0-9_]{1,5}(::[A-Za-z0-9_]{1,5}){0,2}", fullmatch=True),
)
integers = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1).map(str),
    st.integers(0, (1 << 64) - 1).map(lambda n: f"0x{n:X}U"),
    st.integers(0, 255).map(lambda n: f"0b{n:b}"),
    st.integers(1, 511).map(lambda n: f"0{n:o}"),
).map(integer_constant)
naturals = st.integers(0, (1 << 64) - 1).map(str).map(integer_constant)
floats = st.one_of(
    st.integers(0, (1 << 32) - 1).map(lambda n: f"0f{n:08X}"),
    st.integers(0, (1 << 64) - 1).map(lambda n: f"0d{n:016x}"),
    st.floats(-1e9, 1e9, allow_nan=False).map(lambda x: f"{x:.3f}"),
    st.sampled_from(["1e10", "2.5E-3", "1.", ".5", "-0.25"]),
).map(float_constant)
plain_names = names.map(ptx.Name)
numbers = st.one_of(integers, floats)


def _expressions(symbols: bool) -> st.SearchStrategy[ptx.Constant]:
    leaves = st.one_of(integers, floats, st.just(ptx.Name("WARP_SZ")))
    if symbols:
        leaves = st.one_of(leaves, plain_names)
    operators = st.sampled_from(
        "+ - * / % << >> & | ^ && || == != < <= > >=".split()  # noqa: SIM905
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(ptx.Binary, operators, inner, inner),
            st.builds(ptx.Unary, st.sampled_from(["~", "!", "+"]), inner),
            st.builds(ptx.Conditional, inner, inner, inner),
            st.builds(ptx.Cast, st.sampled_from(["s64", "u64"]), inner),
        ),
        max_leaves=5,
    )


constants = _expressions(symbols=False)
components = st.builds(ptx.Name, names, st.sampled_from(["x", "w", "b0", "h1", "b3210"]))
sinks = st.builds(ptx.Sink)
elements = st.one_of(plain_names, components, sinks, numbers)
vectors = st.lists(elements, min_size=1, max_size=4).map(lambda e: ptx.Vector(tuple(e)))
offsets = st.builds(ptx.Offset, plain_names, st.one_of(integers, constants))
addresses = st.builds(
    lambda first, rest, suffix: ptx.Address((first, *rest), suffix),
    st.one_of(plain_names, offsets, integers),
    st.lists(st.one_of(plain_names, vectors), max_size=2),
    st.sampled_from([None, None, "unified"]),
)
destinations = st.one_of(plain_names, sinks)
operands: st.SearchStrategy[ptx.Operand] = st.one_of(
    plain_names,
    components,
    numbers,
    constants,
    sinks,
    vectors,
    addresses,
    offsets,
    st.builds(ptx.Not, plain_names),
    st.builds(ptx.Negated, plain_names),
    st.builds(ptx.Pair, st.one_of(destinations, vectors), destinations),
    st.builds(ptx.Subscript, names, st.one_of(integers, offsets)),
)
groups = st.lists(elements, max_size=3).map(lambda e: ptx.Group(tuple(e)))
guards = st.one_of(st.none(), st.builds(ptx.Guard, names, st.booleans()))
opcodes = st.builds(
    ptx.Opcode, names.filter(lambda n: n != "call"), st.lists(modifiers, max_size=4).map(tuple)
)
instructions = st.builds(
    ptx.Instruction, guards, opcodes, st.lists(operands, max_size=5).map(tuple)
)
calls = st.builds(
    lambda guard, results, callee, arguments: ptx.Instruction(
        guard, ptx.Opcode("call", ("uni",)), (results, callee, arguments)
    ),
    guards,
    groups,
    plain_names,
    groups,
)

small = st.integers(0, 1 << 20)
locations = st.one_of(
    st.builds(ptx.Location, small, small, small),
    st.builds(ptx.Location, small, small, small, names, small, st.tuples(small, small, small)),
)
strings = st.text(st.characters(exclude_characters='"\n\r', codec="utf-8"), max_size=12)
pragmas = st.lists(strings, min_size=1, max_size=2).map(lambda s: ptx.Pragma(tuple(s)))
types = st.sampled_from(sorted(TYPES))
optional = st.one_of(st.none(), st.sampled_from([1, 2, 4, 8, 16]))
initializers = st.recursive(
    _expressions(symbols=True),
    lambda inner: st.lists(inner, max_size=4).map(lambda e: ptx.InitializerList(tuple(e))),
    max_leaves=8,
)
registers = st.builds(
    ptx.Variable,
    space=st.just("reg"),
    type=types,
    name=names,
    count=st.one_of(st.none(), st.integers(1, 1 << 16)),
    vector=st.sampled_from([None, 2, 4]),
)
arrays = st.builds(
    ptx.Variable,
    space=st.sampled_from(["local", "shared", "param", "global", "const"]),
    type=types,
    name=names,
    align=optional,
    vector=st.sampled_from([None, 2, 4, 8]),
    dimensions=st.lists(st.integers(0, 1 << 20), max_size=3).map(tuple),
)
parameters = st.builds(
    ptx.Variable,
    space=st.just("param"),
    type=types,
    name=names,
    align=optional,
    pointer_space=st.sampled_from([None, "", "global", "shared"]),
    dimensions=st.lists(st.integers(0, 64), max_size=1).map(tuple),
)
attributes = st.one_of(
    st.just(()),
    st.just((ptx.Attribute(name="managed"),)),
    st.tuples(naturals, naturals).map(lambda v: (ptx.Attribute(name="unified", values=v),)),
)
module_variables = st.builds(
    ptx.Variable,
    space=st.sampled_from(["global", "const"]),
    type=types,
    name=names,
    align=optional,
    linkage=st.sampled_from([None, "visible", "extern", "weak", "common"]),
    dimensions=st.lists(st.one_of(st.none(), st.integers(0, 99)), max_size=2).map(tuple),
    initializer=st.one_of(st.none(), initializers),
    attributes=attributes,
)
target_lists = st.builds(
    ptx.TargetList,
    names,
    st.sampled_from(["branchtargets", "calltargets"]),
    st.lists(names, min_size=1, max_size=3).map(tuple),
)
prototypes = st.builds(
    ptx.CallPrototype,
    name=names,
    returns=st.lists(parameters, max_size=1).map(tuple),
    parameters=st.lists(parameters, max_size=3).map(tuple),
)
simple_statements = st.one_of(
    instructions,
    instructions,
    calls,
    locations,
    pragmas,
    registers,
    arrays,
    target_lists,
    prototypes,
    st.builds(ptx.LabelStatement, names),
)
bodies = st.recursive(
    st.lists(simple_statements, max_size=6).map(tuple),
    lambda inner: st.lists(st.one_of(simple_statements, inner.map(ptx.Block)), max_size=4).map(
        tuple
    ),
    max_leaves=3,
)
directives = st.builds(
    ptx.Directive,
    st.sampled_from(["maxntid", "minnctapersm", "noreturn", "maxnreg"]),
    st.lists(st.integers(1, 1024).map(str).map(integer_constant), max_size=3).map(tuple),
)
functions = st.builds(
    ptx.Function,
    is_entry=st.just(False),
    name=names,
    linkage=st.sampled_from([None, "visible", "extern", "weak"]),
    returns=st.lists(parameters, max_size=2).map(tuple),
    parameters=st.lists(parameters, max_size=4).map(tuple),
    directives=st.lists(directives, max_size=2).map(tuple),
    attributes=attributes,
    body=st.one_of(st.none(), bodies),
)
kernels = st.builds(
    ptx.Function,
    is_entry=st.just(True),
    name=names,
    parameters=st.just(()),
    has_parameter_list=st.booleans(),
    directives=st.lists(directives, max_size=2).map(tuple),
    body=bodies,
)
files = st.builds(ptx.SourceFile, small, strings, st.none(), st.none())
items = st.one_of(
    functions,
    kernels,
    kernels,
    module_variables,
    files,
    pragmas,
    st.builds(ptx.Alias, names, names),
)
modules = st.builds(
    ptx.Module,
    version=st.tuples(st.integers(1, 9), st.integers(0, 9)),
    target=st.lists(st.sampled_from(["sm_80", "sm_90a", "debug"]), min_size=1, max_size=2).map(
        tuple
    ),
    address_size=st.sampled_from([None, 32, 64]),
    items=st.lists(items, max_size=4).map(tuple),
)
