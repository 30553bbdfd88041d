"""What the checker of certificates reads: the records of a trace and the bodies of its kernels.

In: the text of a trace. Out: its buffers and launches, and a kernel as blocks of instructions with
the loops among them. Shares nothing with `tessera`. What it does not know it refuses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple


class Refused(Exception):
    """The certificate is not accepted; the text says why."""


def demand(holds: object, why: str) -> None:
    """Refuse unless something holds."""
    if not holds:
        raise Refused(why)


class Launch(NamedTuple):
    """A launch on one architecture: the text of its module, and what the record says."""

    text: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[str, ...]


_KEY = re.compile(r"(\S+)=(\[[^\]]*\]|\S+)")


def read_trace(text: str) -> tuple[dict[str, int], list[dict[str, Launch]]]:
    """The size of each buffer, and per launch what it is on each architecture of its module."""
    sizes: dict[str, int] = {}
    modules: dict[str, list[list[str]]] = {}
    launches: list[tuple[str, dict[str, dict[str, str]]]] = []
    current: list[str] = []
    for line in text.splitlines():
        if not line.startswith("//! "):
            current.append(line)
            continue
        kind, name, *_ = line[4:].split()
        keys = dict(_KEY.findall(line))
        if kind in ("module", "launch", "memset", "memcpy", "op"):
            current = []
        if kind == "module":
            modules.setdefault(name, []).append(current)
        elif kind == "buffer":
            sizes[name] = int(keys["bytes"])
        elif kind == "launch":
            launches.append((name, {"": keys}))
        elif kind == "variant":
            launches[-1][1][name] = {**launches[-1][1][""], **keys}
    texts = {name: ["\n".join(lines) for lines in found] for name, found in modules.items()}
    return sizes, [_launch(name, keys, texts) for name, keys in launches]


def _launch(
    name: str, keys: dict[str, dict[str, str]], texts: dict[str, list[str]]
) -> dict[str, Launch]:
    module, kernel = name.rsplit(".", 1)
    made = {}
    for text in texts[module]:
        (target,) = re.findall(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
        record = keys.get(target, keys[""])
        demand("cluster" not in record, "a cluster")
        grid, block = (tuple(map(int, record[key].split(","))) for key in ("grid", "block"))
        args = tuple(word.strip() for word in record["args"].strip("[]").split(","))
        made[target] = Launch(text, kernel, grid, block, args)
    return made


class Memory(NamedTuple):
    """An operand in brackets."""

    base: str
    offset: int


Operand = str | list[str] | Memory


@dataclass(frozen=True)
class Instruction:
    """One instruction. An operand is a name or number, a list of such (a vector), or `Memory`."""

    guard: tuple[str, bool] | None
    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]

    @property
    def types(self) -> list[str]:
        """The types of numbers in the opcode; the last one says how operands are read."""
        return [part for part in self.parts if re.fullmatch(r"[busf]\d+|pred", part)]

    @property
    def results(self) -> list[str]:
        """The registers that it may write, and perhaps others: the first operand."""
        first = self.operands[0] if self.operands else []
        return [] if isinstance(first, Memory) else [first] if isinstance(first, str) else first


@dataclass
class Block:
    """Instructions that run one after the other, and the blocks that may follow."""

    code: list[Instruction] = field(default_factory=list)
    after: list[int] = field(default_factory=list)


class Kernel(NamedTuple):
    """A kernel: parameters with their types, widths of registers, and its control flow.

    `order` is a reverse postorder. `loops` has the blocks of the loop of each head, `labels` the
    block of each label. The block after the last one stands for the end.
    """

    parameters: dict[str, str]
    widths: dict[str, int]
    blocks: list[Block]
    labels: dict[str, int]
    order: list[int]
    loops: dict[int, frozenset[int]]


_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[.%$\w]+(?:::[\w.]+)*|-\d\w*|[^\s"]')
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*\.(?:loc|file)\b[^\n]*$", re.DOTALL | re.M)


def read_kernel(text: str, name: str) -> Kernel:
    """Find a kernel in the text of a module and read it."""
    plain = _COMMENTS.sub(" ", text)
    found = re.search(rf"\.entry\s+{re.escape(name)}\s*\(([^)]*)\)([^{{]*){{", plain)
    demand(found and "cluster" not in found[2], "no such kernel, or one of clusters")
    declared = [part.split() for part in found[1].split(",") if part.strip()]
    demand("[" not in found[1], "a parameter that is a struct")
    parameters = {words[-1]: words[1].lstrip(".") for words in declared}
    return _BodyReader(plain, found.end()).kernel(parameters)


class _BodyReader:
    """Reads the tokens of a body up to its closing brace."""

    def __init__(self, text: str, start: int) -> None:
        self.tokens = (match[0] for match in _TOKEN.finditer(text, start))
        self.scopes: list[dict[str, str]] = [{}]
        self.widths: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.blocks = [Block()]

    def kernel(self, parameters: dict[str, str]) -> Kernel:
        words: list[str] = []
        for token in self.tokens:
            if not words and token == "{":
                self.scopes.append({})
            elif not words and token == "}":
                self.scopes.pop()
                if not self.scopes:
                    break
            elif token == ":" and len(words) == 1:
                self._start_block()
                demand(words[0] not in self.labels, "a label twice")
                self.labels[words.pop()] = len(self.blocks) - 1
            elif token == ";":
                self._statement(words)
                words = []
            else:
                words.append(token)
        demand(not self.scopes, "a body without an end")
        for place, block in enumerate(self.blocks):
            block.after = self._ways(place, block.code[-1] if block.code else None)
        order = _reverse_postorder(self.blocks)
        loops = _loops(self.blocks, order)
        return Kernel(parameters, self.widths, self.blocks, self.labels, order, loops)

    def _start_block(self) -> None:
        if self.blocks[-1].code:
            self.blocks.append(Block())

    def _statement(self, words: list[str]) -> None:
        if words and words[0] == ".reg":
            self._declare(words[1:])
        elif words and words[0].startswith("."):
            demand(words[0] in (".pragma", ".shared", ".local"), f"`{words[0]}`")
        elif words:
            self.blocks[-1].code.append(self._instruction(words))
            if self.blocks[-1].code[-1].opcode in ("bra", "ret", "exit"):
                self._start_block()

    def _declare(self, words: list[str]) -> None:
        width = 1 if words[0] == ".pred" else int(words[0][2:])
        for name, count in re.findall(r"([%$\w.]+)(?: < (\d+) >)?", " ".join(words[1:])):
            for each in [f"{name}{i}" for i in range(int(count))] if count else [name]:
                own = each if each not in self.widths else f"{each}#{len(self.widths)}"
                self.scopes[-1][each] = own
                self.widths[own] = width

    def _name(self, word: str) -> str:
        return next((scope[word] for scope in reversed(self.scopes) if word in scope), word)

    def _instruction(self, words: list[str]) -> Instruction:
        guard = None
        if words[0] == "@":
            is_negated = words[1] == "!"
            guard = (self._name(words[1 + is_negated]), not is_negated)
            words = words[2 + is_negated :]
        opcode, *parts = words[0].replace("::", "__").split(".")
        operands: list[Operand] = []
        rest = words[1:]
        while rest:
            operand, rest = self._operand(rest)
            operands.append(operand)
            demand(not rest or rest.pop(0) == ",", f"operands of `{words[0]}`")
        return Instruction(guard, opcode, tuple(parts), tuple(operands))

    def _operand(self, rest: list[str]) -> tuple[Operand, list[str]]:
        if rest[0] == "{":
            end = rest.index("}")
            return [self._name(word) for word in rest[1:end] if word != ","], rest[end + 1 :]
        if rest[0] == "[":
            end = rest.index("]")
            base, *offset = (word for word in rest[1:end] if word != "+")
            demand(len(offset) < 2, "an address of another form")
            return Memory(self._name(base), int(offset[0], 0) if offset else 0), rest[end + 1 :]
        end = next((i for i, word in enumerate(rest) if word == ","), len(rest))
        words = [self._name(word) for word in rest[:end]]
        return [w for w in words if w != "|"] if "|" in words else "".join(words), rest[end:]

    def _ways(self, place: int, last: Instruction | None) -> list[int]:
        """The blocks after a block; where its last instruction leads comes first."""
        if last is None or last.opcode not in ("bra", "ret", "exit"):
            return [place + 1]
        end = len(self.blocks)
        target = self.labels.get(str(last.operands[0])) if last.opcode == "bra" else end
        demand(target is not None, "a branch to no label")
        return [target] if last.guard is None else [target, place + 1]


def _reverse_postorder(blocks: list[Block]) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].after))]
    while stack:
        block, ways = stack[-1]
        following = next((way for way in ways if way < len(blocks) and way not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(blocks[following].after)))
    return order[::-1]


def _loops(blocks: list[Block], order: list[int]) -> dict[int, frozenset[int]]:
    """The natural loops; a circle with several entries is refused."""
    rank = {block: place for place, block in enumerate(order)}
    before = {block: [b for b in order if block in blocks[b].after] for block in order}
    above = {block: set(order) for block in order} | {0: {0}}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            found = set.intersection(*(above[way] for way in before[block])) | {block}
            changed |= found != above[block]
            above[block] = found
    loops: dict[int, set[int]] = {}
    for block in order:
        for head in (
            way for way in blocks[block].after if rank.get(way, len(order)) <= rank[block]
        ):
            demand(head in above[block], "a circle with several entries")
            body, pending = loops.setdefault(head, {head}), [block]
            while pending:
                inside = pending.pop()
                if inside not in body:
                    body.add(inside)
                    pending.extend(before[inside])
    return {head: frozenset(body) for head, body in loops.items()}
