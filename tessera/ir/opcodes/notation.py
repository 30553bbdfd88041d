"""The notation of the opcode tables, and its reader.

One line per form, four columns (`#` starts a comment):

    NAMES [+MOD]... [-MOD]... | OPERANDS | KIND | FLAGS

NAMES are opcodes, separated by commas. A dotted name covers every opcode that has all its parts,
the first in front and the others in any order, because ptxas ignores the order of modifiers; the
name with the most parts wins. `+MOD` must occur among the modifiers (several in that order; `+a/b`
means either), `-MOD` must not. Forms of one name are tried from top to bottom.

OPERANDS are words; a word's role is in `_WORDS`, with the effect that it implies. `[w]` is an
address, `{w}` a vector, `(w)` a group. After the word, in this order:
    ~                     ptxas also takes an address without brackets, or a vector for a value; the
                          instruction then has no meaning
    =ACCESS/SPACE/EXTENT  what happens behind an address. SPACE `1` or `2` is the opcode's first or
                          second state space, generic where it names none; EXTENT is a number of
                          bytes, the word of the operand that gives the size, `rows` (ldmatrix),
                          `matrix` (wmma), `box` (tensor map) or `?` (anything); left out, it is
                          type times vector.
    @MOD/MOD              only, and then always, present with one of these modifiers
    ?                     may be left out

KIND is an `InstructionKind` by name, or `arithmetic` (INTEGER or FLOAT by the type), `memory` (by
the state space) or `copy` (ASYNC_COPY with the flag `async`). FLAGS: a `Flow` or `ThreadScope` by
name; `side` (side effects), `state` (reads machine state), `aligned` (all threads of the warp
together), `async` (reads, writes, updates and reductions happen later). Writes, flow and scopes
above THREAD imply `side`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from tessera.ir.opcodes.records import Flow, InstructionKind, MemoryAction, OperandRole, ThreadScope

_WORDS: dict[str, tuple[OperandRole, str]] = {
    "d": (OperandRole.DESTINATION, ""),
    "r": (OperandRole.DESTINATION, ""),
    "x": (OperandRole.DESTINATION_SOURCE, ""),
    "p": (OperandRole.PREDICATE_DESTINATION, ""),
    "q": (OperandRole.PREDICATE, ""),
    **dict.fromkeys(
        ("a", "b", "c", "e", "s", "mask", "bytemask", "phase", "count", "stride"),
        (OperandRole.SOURCE, ""),
    ),
    "i": (OperandRole.IMMEDIATE, ""),
    "n": (OperandRole.SIZE, ""),
    "srcsize": (OperandRole.SOURCE_SIZE, ""),
    "policy": (OperandRole.CACHE_POLICY, "@L2::cache_hint"),
    "ctas": (
        OperandRole.SOURCE,
        "@multicast::cluster/multicast::cluster::16b/multicast::cluster::32b",
    ),
    "off": (OperandRole.SOURCE, "@im2col/im2col::w/im2col::w::128"),
    "scale": (OperandRole.SOURCE, "@scaled::n1::ue8m0/scaled::n2::ue8m0"),
    "desc": (OperandRole.DESCRIPTOR, ""),
    "smem": (OperandRole.DESCRIPTOR, "=read/shared/?"),
    "bar": (OperandRole.BARRIER, ""),
    "threads": (OperandRole.THREADS, ""),
    "label": (OperandRole.LABEL, ""),
    "targets": (OperandRole.TARGETS, ""),
    **dict.fromkeys(("f", "pointer"), (OperandRole.FUNCTION, "")),
    "results": (OperandRole.RESULTS, ""),
    "args": (OperandRole.ARGUMENTS, ""),
    "proto": (OperandRole.PROTOTYPE, ""),
}

_ADDRESS_WORDS: dict[str, tuple[OperandRole, str]] = {
    "a": (OperandRole.ADDRESS, ""),
    "d": (OperandRole.ADDRESS, ""),
    "mbar": (OperandRole.MBARRIER, "=mbarrier/1/8"),
    "done": (
        OperandRole.MBARRIER,
        "=mbarrier/1/8@mbarrier::complete_tx::bytes/shared/shared::cta",
    ),
    "map": (OperandRole.TENSOR_MAP, "=read/2/box"),
    "tmem": (OperandRole.TENSOR_MEMORY, "=read/tmem/?"),
    "acc": (OperandRole.TENSOR_MEMORY, "=update/tmem/?"),
    "lut": (OperandRole.TENSOR_MEMORY, "=read/tmem/?@decompress::lut::b"),
    "remote": (OperandRole.REMOTE, ""),
    "tex": (OperandRole.TEXTURE, "=read/tex/?"),
    "surf": (OperandRole.SURFACE, "=update/surf/?"),
    "opaque": (OperandRole.OPAQUE, ""),
}

_ASYNC = {
    MemoryAction.READ: MemoryAction.ASYNC_READ,
    MemoryAction.WRITE: MemoryAction.ASYNC_WRITE,
    MemoryAction.REDUCE: MemoryAction.ASYNC_REDUCE,
    MemoryAction.UPDATE: MemoryAction.ASYNC_UPDATE,
}

_FLOWS = {flow.name.lower(): flow for flow in Flow}
_SCOPES = {scope.name.lower(): scope for scope in ThreadScope}
_FLAGS = frozenset({"side", "state", "aligned", "async"})

_SHAPES = {"[": "address", "{": "vector", "(": "group"}

_OPERAND = re.compile(
    r"(?P<open>[\[{(]?)(?P<word>[a-z]+\d?)(?P<close>[\]})]?)(?P<loose>~?)"
    r"(?:=(?P<access>\w+)(?:/(?P<space>[^/@?\s]+))?(?:/(?P<extent>[^@\s]+?))?)?"
    r"(?:@(?P<when>[^?\s]+))?"
    r"(?P<optional>\??)"
)


@dataclass(frozen=True, slots=True)
class EffectSpec:
    """An effect as written: space "1" or "2" and extent "type" depend on the opcode."""

    access: MemoryAction
    space: str
    extent: str


@dataclass(frozen=True, slots=True)
class OpcodeOperand:
    """One operand of a form; `when` empty means that no modifier decides its presence."""

    word: str
    role: OperandRole
    shape: str
    effect: EffectSpec | None
    when: frozenset[str]
    optional: bool
    is_loose: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpcodeForm:
    """One line of a table, for one of its names."""

    name: tuple[str, ...]
    required: tuple[frozenset[str], ...]
    forbidden: frozenset[str]
    operands: tuple[OpcodeOperand, ...]
    kind: str
    flow: Flow
    scope: ThreadScope
    flags: frozenset[str]


def read_table(text: str) -> Iterator[OpcodeForm]:
    """The forms of a table, in order; ValueError names the line that breaks the notation."""
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        try:
            yield from _read_line(content)
        except (KeyError, ValueError) as fault:
            raise ValueError(f"table line {number}: {fault} in: {content}") from fault


def _read_line(content: str) -> Iterator[OpcodeForm]:
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
        InstructionKind[kind.upper()]
    for name in names.split(","):
        yield OpcodeForm(
            name=tuple(name.strip().split(".")),
            required=tuple(frozenset(c[1:].split("/")) for c in conditions if c[0] == "+"),
            forbidden=frozenset(c[1:] for c in conditions if c[0] == "-"),
            operands=specs,
            kind=kind,
            flow=flows[0] if flows else Flow.NEXT,
            scope=scopes[-1] if scopes else ThreadScope.THREAD,
            flags=extra,
        )


@cache
def _read_operand(token: str, is_async: bool) -> OpcodeOperand:
    match = _match(token)
    shape = _SHAPES.get(match["open"], "")
    words = _ADDRESS_WORDS if shape == "address" else _WORDS
    role, implied = words[match["word"].rstrip("0123456789")]
    defaults = _match(match["word"] + implied)
    effect = _read_effect(match) or _read_effect(defaults)
    if effect is not None and is_async:
        effect = replace(effect, access=_ASYNC.get(effect.access, effect.access))
    when = match["when"] or defaults["when"]
    return OpcodeOperand(
        word=match["word"],
        role=role,
        shape=shape,
        effect=effect,
        when=frozenset(when.split("/")) if when else frozenset(),
        optional=bool(match["optional"]),
        is_loose=bool(match["loose"]),
    )


def _match(token: str) -> re.Match[str]:
    match = _OPERAND.fullmatch(token)
    if match is None or match["open"] + match["close"] not in {"", "[]", "{}", "()"}:
        raise ValueError(f"cannot read operand {token!r}")
    return match


def _read_effect(match: re.Match[str]) -> EffectSpec | None:
    if not match["access"]:
        return None
    return EffectSpec(
        MemoryAction(match["access"]), match["space"] or "1", match["extent"] or "type"
    )
