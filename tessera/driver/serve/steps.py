"""The traces of a plan as steps that generate text.

In: the programs of a plan, and perhaps a declaration (`tessera-steps/1`: a file of JSON, or the
same as a mapping). Out: `GenerationSteps`, with every statement checked against the buffers of the
traces. Without a declaration, inputs and outputs that are named after a role have that role; a
lone output with another name is the `logits`, or `next` if its type is an integer.

Roles of inputs, `R` rows (sequences) with `T` tokens each:

- `tokens` [R, T]: the input tokens. T is 1 in a decode step, the chunk size in a prefill step.
- `positions` [R] or [R, T]: the number of tokens of the sequence before the first token, or before
  each. A step without positions must have `lengths`.
- `lengths` [R]: how many of the T tokens are present; 0: the row is not to be touched.
- `rows` [R]: the row of the states for each row of the step. Needed if the states have more rows.
- `blocks` [R, N]: the table of blocks, if states are a cache in blocks. Block 0 is never given to a
  sequence: absent rows and tokens write to it.
- `temperature` [R], `uniform` [R]: for a step that draws tokens itself.
- `top_k` [R], `top_p` [R], `min_p` [R]: which tokens it may draw.

A step with an input `last` is mixed: it takes N tokens of any sequences, prompts and answers alike.

- `tokens` [N], `positions` [N], `rows` [N]: the tokens, their positions, and their rows.
- `blocks` [R + 1, M]: the table of blocks; its last row belongs to nobody, and so do tokens of it.
- `last` [R]: which of the tokens is the last of each row; `logits` [R, V] are of these.
- `earlier` [R]: what `next` was in the step before; a token -1 - r is that of row r of it.

Roles of outputs: `logits` [R, V] or [R, T, V], or `next` [R], the token that comes next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import cast

from tessera.driver.serve.batches import StepSize
from tessera.driver.serve.sampling import LIMITS
from tessera.driver.serve.step_roles import (
    UNBOUNDED,
    GenerationSteps,
    StepRoles,
    check_steps,
    wrong_steps,
)
from tessera.frontend.text.readfile import read_source
from tessera.ir.graph.access import AddressClass
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import Buffer, BufferId, Program, Role

FORMAT = "tessera-steps/1"
INPUTS = (
    "tokens",
    "positions",
    "lengths",
    "rows",
    "blocks",
    "last",
    "earlier",
    *("temperature", "uniform", *LIMITS),
)
OUTPUTS = ("logits", "next")
_INTEGERS = ("s64", "s32", "u32", "u64")
_FLOATS = ("f32", "f16", "bf16", "f64")
_FLOAT_ROLES = ("temperature", "uniform", "top_p", "min_p", "logits")
_KEYS = ("format", "context", "block", "end", "reset", "steps")
_SIZES = ("rows", "tokens", "context")

Declaration = Mapping[str, object]


# --- reading --------------------------------------------------------------------------------------


def declaration_beside(plan: object) -> str | None:
    """The declaration `NAME.steps.json` beside a plan file; None if there is no such file."""
    if not isinstance(plan, str | os.PathLike):
        return None
    path = os.path.splitext(os.fspath(plan))[0] + ".steps.json"
    return path if os.path.isfile(path) else None


def read_declaration(given: Declaration | str | os.PathLike[str]) -> Declaration:
    """A declaration as a mapping; a path is read."""
    if isinstance(given, Mapping):
        return given
    source = read_source(given)
    try:
        value = json.loads(source.text)
    except (ValueError, RecursionError) as problem:
        raise wrong_steps(f"`{source.name}` is no JSON: {problem}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise wrong_steps(
            f'`{source.name}` is no declaration of steps: it has no `"format": "{FORMAT}"`'
        )
    return cast("Declaration", value)


def find_steps(
    names: Sequence[str], programs: Sequence[Program], declared: Declaration | None = None
) -> GenerationSteps:
    """The steps of a plan with these traces; raises TSR3026 if they cannot generate text."""
    declared = {} if declared is None else declared
    for key in declared:
        if key not in _KEYS:
            raise wrong_steps(f"a declaration has no key `{key}`", f"keys: {', '.join(_KEYS)}")
    listed = _mapping(declared.get("steps", {}), "steps")
    for name in listed:
        if name not in names:
            raise wrong_steps(f"the plan has no trace `{name}`", f"traces: {', '.join(names)}")
    context = _count(declared, "context")
    stated = []
    for number, (name, program) in enumerate(zip(names, programs, strict=True)):
        if listed and name not in listed:
            continue
        own = _mapping(listed.get(name, {}), f"steps.{name}")
        roles = _roles(name, program, own)
        if "tokens" in roles or own:
            stated.append((number, name, program, roles, own))
    if not stated:
        raise wrong_steps(
            "no trace of the plan states an input `tokens`",
            "name the inputs of the model so when it is captured, or give a declaration of its "
            "steps (docs/guides/serve.md)",
        )
    states = _states([program for _, _, program, _, _ in stated])
    tables = [roles["blocks"] for _, _, _, roles, _ in stated if "blocks" in roles]
    blocks, block, rows = _room(states, tables, declared)
    context = context or _context(states, tables, block, [roles for *_, roles, _ in stated])
    steps = tuple(
        StepRoles(name=name, size=_size(number, name, roles, own, context), buffers=roles)
        for number, name, _, roles, own in stated
    )
    widest = max((step.size.rows for step in steps if step.size.answers), default=0)
    is_driven = any(step.has("tokens") for step in steps)  # else sizes are stated, to simulate
    resets = bool(declared.get("reset", any(not step.has("positions") for step in steps)))
    made = GenerationSteps(
        steps=steps,
        state_rows=(rows if is_driven else 0) or widest,
        context=context,
        vocabulary=_vocabulary(steps),
        blocks=blocks,
        block=block,
        end=_tokens(declared.get("end", ())),
        resets=resets,
        token_axis=0 if resets else _token_axis(states, block or context),
    )
    check_steps(made)
    return made


def _mapping(value: object, key: str) -> Declaration:
    if not isinstance(value, Mapping):
        raise wrong_steps(f"`{key}` of a declaration must be an object")
    return cast("Declaration", value)


def _count(declared: Declaration, key: str) -> int:
    value = declared.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong_steps(f"`{key}` of a declaration must be a whole number, not `{value}`")
    return value


def _tokens(value: object) -> tuple[int, ...]:
    listed = [value] if isinstance(value, int) else value
    if not isinstance(listed, list | tuple) or not all(
        isinstance(token, int) and token >= 0 for token in listed
    ):
        raise wrong_steps("`end` of a declaration must be tokens: whole numbers")
    return tuple(listed)


def _roles(name: str, program: Program, own: Declaration) -> dict[str, Buffer]:
    """The buffers of a trace that have a role, by role."""
    sides = {Role.INPUT: INPUTS, Role.OUTPUT: OUTPUTS}
    buffers = {b.name: b for b in program.buffers if b.role in sides}
    roles = {}
    for role, given in own.items():
        if role == "sizes":
            continue
        if role not in INPUTS + OUTPUTS:
            hint = f"roles: {', '.join(INPUTS + OUTPUTS)}"
            raise wrong_steps(f"step `{name}` has no role `{role}`", hint)
        buffer = buffers.get(given) if isinstance(given, str) else None
        if buffer is None or role not in sides[buffer.role]:
            side = "input" if role in INPUTS else "output"
            raise wrong_steps(f"`{role}` of step `{name}` names no {side} of the trace: `{given}`")
        roles[role] = buffer
    if not own:
        roles = {n: b for n, b in buffers.items() if n in sides[b.role]}
        given_back = [b for b in buffers.values() if b.role is Role.OUTPUT]
        if "tokens" in roles and len(given_back) == 1 and given_back[0] not in roles.values():
            (only,) = given_back  # captures call it `out`
            kind = "" if only.dtype is None else only.dtype.value
            roles["next" if kind in _INTEGERS else "logits"] = only
    if roles and "tokens" in roles:
        missing = [
            b.name for b in buffers.values() if b.role is Role.INPUT and b not in roles.values()
        ]
        if missing:
            raise wrong_steps(
                f"input `{missing[0]}` of step `{name}` has no role",
                "an engine gives a step what its roles say, and nothing else",
            )
    for role, buffer in roles.items():
        _check_type(name, role, buffer)
    return roles


def _check_type(name: str, role: str, buffer: Buffer) -> None:
    types = _FLOATS if role in _FLOAT_ROLES else _INTEGERS
    kind = None if buffer.dtype is None else buffer.dtype.value
    if kind not in types or buffer.shape is None:
        raise wrong_steps(
            f"`{buffer.name}` of step `{name}` cannot be `{role}`: it is of type {kind}",
            f"it must have a shape and be one of: {', '.join(types)}",
        )


# --- sizes ----------------------------------------------------------------------------------------


def _size(
    number: int, name: str, roles: Mapping[str, Buffer], own: Declaration, context: int
) -> StepSize:
    sizes = _mapping(own.get("sizes", {}), f"steps.{name}.sizes")
    for key in sizes:
        if key not in _SIZES:
            raise wrong_steps(f"`sizes` of step `{name}` has no `{key}`")
    if "tokens" not in roles:
        if not (_count(sizes, "rows") and _count(sizes, "tokens")):
            raise wrong_steps(f"step `{name}` states neither `tokens` nor its sizes")
        rows, tokens = _count(sizes, "rows"), _count(sizes, "tokens")
    else:
        shape = roles["tokens"].shape or ()
        if "last" in roles:
            rows, tokens = prod(roles["last"].shape or ()), prod(shape)
            _check_mixed(name, roles, rows, tokens)
            return StepSize(trace=number, rows=rows, tokens=tokens, context=context, is_mixed=True)
        if len(shape) not in (1, 2):
            raise wrong_steps(f"`tokens` of step `{name}` must be of shape [rows, tokens]")
        rows, tokens = (shape[0], 1) if len(shape) == 1 else (shape[0], shape[1])
        given = _count(sizes, "rows") or rows, _count(sizes, "tokens") or tokens
        if given != (rows, tokens):
            raise wrong_steps(f"step `{name}` has {rows} rows of {tokens} tokens, not {given}")
        _check_shapes(name, roles, rows, tokens)
    return StepSize(
        trace=number, rows=rows, tokens=tokens, context=_count(sizes, "context") or context
    )


def _check_shapes(name: str, roles: Mapping[str, Buffer], rows: int, tokens: int) -> None:
    for role in ("lengths", "rows", "temperature", "uniform", *LIMITS, "next", "positions"):
        if role not in roles:
            continue
        count = prod(roles[role].shape or ())
        if count != rows and not (role == "positions" and count == rows * tokens):
            raise wrong_steps(
                f"`{role}` of step `{name}` has {count} elements, and the step {rows} rows"
            )
    if "logits" in roles:
        shape = roles["logits"].shape or (0,)
        if prod(shape[:-1]) not in (rows, rows * tokens):
            raise wrong_steps(f"`logits` of step `{name}` must be of shape [rows, vocabulary]")
    if "blocks" in roles and (roles["blocks"].shape or ())[:1] != (rows,):
        raise wrong_steps(f"`blocks` of step `{name}` must be of shape [rows, blocks]")
    if "positions" not in roles and "lengths" not in roles:
        raise wrong_steps(
            f"step `{name}` has neither `positions` nor `lengths`",
            "without them nothing says which tokens are there",
        )


def _check_mixed(name: str, roles: Mapping[str, Buffer], rows: int, tokens: int) -> None:
    """Check the shapes of a mixed step."""
    counts = {"positions": tokens, "rows": tokens}
    counts |= dict.fromkeys(("temperature", "uniform", *LIMITS, "earlier", "next"), rows)
    for role in ("positions", "rows", "blocks"):
        if role not in roles:
            raise wrong_steps(f"mixed step `{name}` has no input `{role}`")
    for role, count in counts.items():
        if role in roles and prod(roles[role].shape or ()) != count:
            raise wrong_steps(f"`{role}` of mixed step `{name}` must have {count} elements")
    if (roles["blocks"].shape or ())[:1] != (rows + 1,):
        raise wrong_steps(f"`blocks` of mixed step `{name}` must have {rows + 1} rows")
    if "logits" in roles and prod((roles["logits"].shape or (0,))[:-1]) != rows:
        raise wrong_steps(f"`logits` of mixed step `{name}` must be of shape [rows, vocabulary]")


def _states(programs: Sequence[Program]) -> dict[str, Buffer]:
    return {b.name: b for program in programs for b in program.buffers if b.role is Role.STATE}


def _room(
    states: Mapping[str, Buffer],
    tables: Sequence[Buffer],
    declared: Declaration,
) -> tuple[int, int, int]:
    """The number of blocks of the states, tokens per block, and rows; 0 for what they lack."""
    shapes = [state.shape for state in states.values() if state.shape is not None]
    firsts = {shape[0] for shape in shapes if shape}
    if len(firsts) > 1:
        raise wrong_steps(
            "the states have different numbers of rows or blocks: "
            + ", ".join(f"`{b.name}` {b.shape}" for b in list(states.values())[:4]),
            "the first axis of every state counts sequences, or the blocks of a cache",
        )
    first = min(firsts, default=0)
    if not tables:
        return 0, 0, first
    seconds = {shape[1] for shape in shapes if len(shape) > 1}
    block = _count(declared, "block") or (min(seconds) if len(seconds) == 1 else 0)
    if not block:
        raise wrong_steps("how many tokens a block of the cache holds is not stated: `block`")
    return first, block, 0


def _context(
    states: Mapping[str, Buffer],
    tables: Sequence[Buffer],
    block: int,
    roles: Sequence[Mapping[str, Buffer]],
) -> int:
    """The most tokens of a sequence, by the shapes of tables and states."""
    if tables:
        return min((table.shape or (0, 0))[-1] for table in tables) * block
    if not any("positions" in own for own in roles):
        return UNBOUNDED
    seconds = {state.shape[1] for state in states.values() if state.shape and len(state.shape) > 1}
    if len(seconds) != 1:
        raise wrong_steps(
            "how many tokens a sequence can have is not stated: `context`",
            "give it in a declaration of the steps (docs/guides/serve.md)",
        )
    return seconds.pop()


def _token_axis(states: Mapping[str, Buffer], tokens: int) -> int:
    """The length of the second axis of every state, if it is that of a row or block of tokens.

    If a later axis is as long, that one may count tokens, so rows are taken to be used whole.
    """
    shapes = [state.shape or () for state in states.values()]
    is_it = all(shape[1:2] == (tokens,) and tokens not in shape[2:] for shape in shapes)
    return tokens if shapes and is_it else 0


def _vocabulary(steps: Sequence[StepRoles]) -> int:
    sizes = {(step.buffers["logits"].shape or (0,))[-1] for step in steps if step.has("logits")}
    if len(sizes) > 1:
        raise wrong_steps(f"the steps have logits of different sizes: {sorted(sizes)}")
    return max(sizes, default=0)


# --- which tokens there can be -------------------------------------------------------------------


# A step that gives tokens instead of logits does not state the size of the vocabulary. The tables
# that it indexes with tokens do: in a step that reads tokens, these are weights of at least two
# axes whose rows are chosen by values read from memory. Which of them the tokens index is not
# known, so the longest counts: no token that the model knows is refused.
_AXES = 2


def with_token_range(
    model: GenerationSteps, programs: Sequence[Program], graphs: Sequence[KernelGraph]
) -> GenerationSteps:
    """The same steps, with the size of the vocabulary if it is not stated but can be derived."""
    if model.vocabulary:
        return model
    limits = [
        _limit(programs[step.size.trace], graphs[step.size.trace], step.buffers["tokens"].id)
        for step in model.steps
        if step.has("tokens")
    ]
    return replace(model, vocabulary=min((limit for limit in limits if limit), default=0))


def _limit(program: Program, graph: KernelGraph, tokens: BufferId) -> int:
    longest = 0
    for node in graph.nodes:
        if not any(access.buffer == tokens for access in node.accesses):
            continue
        for access in node.accesses:
            buffer = program.buffers[access.buffer]
            is_table = buffer.role is Role.WEIGHT and len(buffer.shape or ()) >= _AXES
            if access.address is AddressClass.INDEXED and is_table:
                longest = max(longest, (buffer.shape or (0,))[0])
    return longest
