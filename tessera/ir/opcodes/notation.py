"""The notation that the opcode tables are written in, and its reader.

One line per form, four columns (`#` starts a comment):

    NAMES [+MOD]... [-MOD]... | OPERANDS | KIND | FLAGS

NAMES are opcodes, separated by commas. A dotted name covers every opcode that has all its parts,
the first in front and the others in any order, since ptxas does not mind the order of modifiers;
the name with most parts wins. `+MOD` must occur among the modifiers (several in that order; `+a/b`
means either), `-MOD` must not. Forms of one name are tried from top to bottom.

OPERANDS are words; a word's role is in `_WORDS`, with the effect that it implies. `[w]` is an
address, `{w}` a vector, `(w)` a group. After the word, in this order:
    =ACCESS/SPACE/EXTENT  what happens behind an address. SPACE `1` or `2` is the opcode's first or
                          second state space, generic where it names none; EXTENT is a number of
                          bytes, the word of the operand that gives the size, `rows` (ldmatrix),
                          `matrix` (wmma), `box` (tensor map) or `?` (anything); left out, it is
                          type times vector.
    @MOD/MOD              only, and then always, present with one of these modifiers
    ?                     may be left out

KIND is a `Kind` by name, or `arithmetic` (INTEGER or FLOAT by the type), `memory` (by the state
space) or `copy` (ASYNC_COPY with the flag `async`). FLAGS: a `Flow` or `Scope` by name; `side`
(side effects), `state` (reads machine state), `aligned` (all threads of the warp together), `async`
(reads, writes, updates and reductions happen later). Writes, flow and scopes above THREAD imply
`side`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from tessera.ir.opcodes.records import Access, Flow, Kind, Role, Scope

_WORDS: dict[str, tuple[Role, str]] = {
    "d": (Role.DESTINATION, ""),
    "x": (Role.DESTINATION_SOURCE, ""),
    "p": (Role.PREDICATE_DESTINATION, ""),
    "q": (Role.PREDICATE, ""),
    **dict.fromkeys(("a", "b", "c", "e", "s", "mask", "count", "stride"), (Role.SOURCE, "")),
    "i": (Role.IMMEDIATE, ""),
    "n": (Role.SIZE, ""),
    "srcsize": (Role.SOURCE_SIZE, ""),
    "policy": (Role.CACHE_POLICY, "@L2::cache_hint"),
    "ctas": (Role.SOURCE, "@multicast::cluster/multicast::cluster::16b/multicast::cluster::32b"),
    "off": (Role.SOURCE, "@im2col/im2col::w/im2col::w::128"),
    "scale": (Role.SOURCE, "@scaled::n1::ue8m0/scaled::n2::ue8m0"),
    "desc": (Role.DESCRIPTOR, ""),
    "smem": (Role.DESCRIPTOR, "=read/shared/?"),
    "bar": (Role.BARRIER, ""),
    "threads": (Role.THREADS, ""),
    "label": (Role.LABEL, ""),
    "targets": (Role.TARGETS, ""),
    "f": (Role.FUNCTION, ""),
    "results": (Role.RESULTS, ""),
    "args": (Role.ARGUMENTS, ""),
    "proto": (Role.PROTOTYPE, ""),
}

_ADDRESS_WORDS: dict[str, tuple[Role, str]] = {
    "a": (Role.ADDRESS, ""),
    "d": (Role.ADDRESS, ""),
    "mbar": (Role.MBARRIER, "=mbarrier/1/8"),
    "map": (Role.TENSOR_MAP, "=read/2/box"),
    "tmem": (Role.TENSOR_MEMORY, "=read/tmem/?"),
    "acc": (Role.TENSOR_MEMORY, "=update/tmem/?"),
    "lut": (Role.TENSOR_MEMORY, "=read/tmem/?@decompress::lut::b"),
    "remote": (Role.REMOTE, ""),
    "tex": (Role.TEXTURE, "=read/tex/?"),
    "surf": (Role.SURFACE, "=update/surf/?"),
    "opaque": (Role.OPAQUE, ""),
}

_ASYNC = {
    Access.READ: Access.ASYNC_READ,
    Access.WRITE: Access.ASYNC_WRITE,
    Access.REDUCE: Access.ASYNC_REDUCE,
    Access.UPDATE: Access.ASYNC_UPDATE,
}

_FLOWS = {flow.name.lower(): flow for flow in Flow}
_SCOPES = {scope.name.lower(): scope for scope in Scope}
_FLAGS = frozenset({"side", "state", "aligned", "async"})

_SHAPES = {"[": "address", "{": "vector", "(": "group"}

_OPERAND = re.compile(
    r"(?P<open>[\[{(]?)(?P<word>[a-z]+\d?)(?P<close>[\]})]?)"
    r"(?:=(?P<access>\w+)(?:/(?P<space>[^/@?\s]+))?(?:/(?P<extent>[^@\s]+?))?)?"
    r"(?:@(?P<when>[^?\s]+))?"
    r"(?P<optional>\??)"
)


@dataclass(frozen=True, slots=True)
class EffectSpec:
    """An effect as written: space "1" or "2" and extent "type" depend on the opcode."""

    access: Access
    space: str
    extent: str


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of a form; `when` empty means that no modifier decides its presence."""

    word: str
    role: Role
    shape: str
    effect: EffectSpec | None
    when: frozenset[str]
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One line of a table, for one of its names."""

    name: tuple[str, ...]
    required: tuple[frozenset[str], ...]
    forbidden: frozenset[str]
    operands: tuple[OperandSpec, ...]
    kind: str
    flow: Flow
    scope: Scope
    flags: frozenset[str]


def read_table(text: str) -> Iterator[Form]:
    """The forms of a table, in order; ValueError names the line that breaks the notation."""
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        try:
            yield from _read_line(content)
        except (KeyError, ValueError) as fault:
            raise ValueError(f"table line {number}: {fault} in: {content}") from fault


def _read_line(content: str) -> Iterator[Form]:
    pattern, operands, kind, *rest = (column.strip() for column in content.split("|"))
    names, *conditions = re.split(r"\s+(?=[+-])", pattern)
    flags = frozenset(rest[0].split()) if rest else frozenset()
    if kind == "copy":
        kind, flags = "async_copy", flags | {"async"}
    specs = tuple(_read_operand(token, "async" in flags) for token in operands.split())
    flows = [flow for name, flow in _FLOWS.items() if name in flags]
    scopes = [scope for name, scope in _SCOPES.items() if name in flags]
    extra = flags - _FLOWS.keys() - _SCOPES.keys()
    if extra - _FLAGS or len(rest) > 1:
        raise ValueError(f"unknown flags {sorted(extra)}")
    if kind not in {"arithmetic", "memory"}:
        Kind[kind.upper()]
    for name in names.split(","):
        yield Form(
            name=tuple(name.strip().split(".")),
            required=tuple(frozenset(c[1:].split("/")) for c in conditions if c[0] == "+"),
            forbidden=frozenset(c[1:] for c in conditions if c[0] == "-"),
            operands=specs,
            kind=kind,
            flow=flows[0] if flows else Flow.NEXT,
            scope=scopes[-1] if scopes else Scope.THREAD,
            flags=extra,
        )


@cache
def _read_operand(token: str, is_async: bool) -> OperandSpec:
    match = _match(token)
    shape = _SHAPES.get(match["open"], "")
    words = _ADDRESS_WORDS if shape == "address" else _WORDS
    role, implied = words[match["word"].rstrip("0123456789")]
    defaults = _match(match["word"] + implied)
    effect = _read_effect(match) or _read_effect(defaults)
    if effect is not None and is_async:
        effect = replace(effect, access=_ASYNC.get(effect.access, effect.access))
    when = match["when"] or defaults["when"]
    return OperandSpec(
        word=match["word"],
        role=role,
        shape=shape,
        effect=effect,
        when=frozenset(when.split("/")) if when else frozenset(),
        optional=bool(match["optional"]),
    )


def _match(token: str) -> re.Match[str]:
    match = _OPERAND.fullmatch(token)
    if match is None or match["open"] + match["close"] not in {"", "[]", "{}", "()"}:
        raise ValueError(f"cannot read operand {token!r}")
    return match


def _read_effect(match: re.Match[str]) -> EffectSpec | None:
    if not match["access"]:
        return None
    return EffectSpec(Access(match["access"]), match["space"] or "1", match["extent"] or "type")
