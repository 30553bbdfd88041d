"""Statements near known ones: with another modifier, another operand, or what a rule asks for.

In: statements that ptxas takes. Out: statements that it may take or not.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.reading.statements import name_of, opcode_of, operand_text_word, split_operands
from tessera.ir.opcodes.rules import operand_class


class Neighbours:
    """Statements that differ from known ones in a modifier or an operand."""

    def __init__(self, statements: Sequence[str]) -> None:
        self.statements = list(statements)
        self.of_name: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for text in self.statements:
            self.of_name[name_of(text)].append(text)
        self.names = list(self.of_name)
        self.mates: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.words: dict[str, dict[str, None]] = defaultdict(dict)
        self.fillers: dict[str, dict[str, None]] = defaultdict(dict)
        around: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for statement in self.statements:
            head, *modifiers = opcode_of(statement).split(".")
            self.words[head] |= dict.fromkeys(modifiers)
            self.fillers[head] |= dict.fromkeys(split_operands(statement))
            for place, word in enumerate(modifiers):
                around[head, *modifiers[:place], "*", *modifiers[place + 1 :]].add(word)
        texts = dict.fromkeys([*_OPERANDS, *(t for group in self.fillers.values() for t in group)])
        kinds = {text: operand_class(operand_text_word(text)) for text in texts}
        self.classes = {text: kind for text, kind in kinds.items() if "?" not in kind}
        for (head, *_), words in around.items():
            for word in words:
                self.mates[head, word] |= words

    def draw(self, rng: random.Random, *, operands: bool) -> str:
        """A known statement with one or two changes, in its operands too if `operands` says so."""
        group = self.of_name[rng.choice(self.names)] if rng.random() < 0.5 else self.statements
        return self.changed(rng.choice(group), rng, operands=operands)

    def changed(self, statement: str, rng: random.Random, *, operands: bool) -> str:
        """The statement with one or two changes."""
        for _ in range(rng.choice((1, 1, 2))):
            if operands and rng.random() < 0.5:
                statement = self._other_operand(statement, rng)
            else:
                statement = self._other_modifier(statement, rng)
        return statement

    def _other_modifier(self, statement: str, rng: random.Random) -> str:
        opcode = opcode_of(statement)
        head, *modifiers = opcode.split(".")
        place = rng.randrange(len(modifiers)) if modifiers else 0
        match rng.randrange(8):
            case 0:
                del modifiers[place : place + 1]
            case 1:
                modifiers.insert(place, rng.choice(list(self.words[head]) or ["rn"]))
            case _ if modifiers:
                modifiers[place] = rng.choice(sorted(self.mates[head, modifiers[place]]) or ["rn"])
        return ".".join([head, *modifiers]) + statement[len(opcode) :]

    def _other_operand(self, statement: str, rng: random.Random) -> str:
        operands = split_operands(statement)
        place = rng.randrange(len(operands)) if operands else 0
        head = opcode_of(statement).partition(".")[0]
        other = rng.choice(_OPERANDS if rng.random() < 0.7 else list(self.fillers[head]) or ["1"])
        match rng.randrange(6):
            case 0:
                del operands[place : place + 1]
            case 1:
                operands.insert(place, other)
            case _ if operands:
                operands[place] = other
        return f"{opcode_of(statement)} {', '.join(operands)}".strip() + ";"

    def forced(self, statement: str, literals: Iterable[str], rng: random.Random) -> str:
        """The statement, changed so that it has the literals of a rule."""
        for literal in sorted(literals):
            statement = self._with(statement, literal, rng)
        return statement

    def _with(self, statement: str, literal: str, rng: random.Random) -> str:
        opcode, operands = opcode_of(statement), split_operands(statement)
        modifiers = opcode.split(".")
        place, _, classes = literal.partition("=")
        match literal[0]:
            case "-":
                modifiers = [word for word in modifiers if word != literal[1:]]
            case "#":
                wanted = int(rng.choice((classes or literal[1:]).split("/")))
                more = rng.choices(_OPERANDS, k=max(wanted - len(operands), 0))
                operands = (operands + more)[:wanted]
            case _ if place.isdigit() and classes:
                known = classes.split("/")
                texts = [text for text, kind in self.classes.items() if kind in known]
                if int(place) < len(operands) and texts:
                    operands[int(place)] = rng.choice(texts)
            case _ if literal.removesuffix("*2") not in modifiers or literal.endswith("*2"):
                word = literal.removesuffix("*2")
                mates = [
                    n for n, m in enumerate(modifiers) if n and m in self.mates[modifiers[0], word]
                ]
                if mates and rng.random() < 0.6 and not literal.endswith("*2"):
                    modifiers[rng.choice(mates)] = word
                else:
                    modifiers.insert(rng.randint(min(len(modifiers), 1), len(modifiers)), word)
        return f"{'.'.join(modifiers)} {', '.join(operands)}".strip() + ";"


_OPERANDS = (
    *("%rs9", "%r9", "%rd9", "%f9", "%fd9", "%rq9", "%p9", "0", "1", "16", "77", "-3", "1.5", "_"),
    *("[%r9]", "[%rd9]", "[s]", "[g+4]", "{%r8, %r9}", "{%r8}", "{%rd8, %rd9}", "{%f6, %f7}"),
    *("{%rs6, %rs7}", "{%r5, %r6, %r7, %r8}", "[%rd9, {%r8}]", "[%rd9, {%r8, %r9}]", "%tid.x", "g"),
    *("s", "k", "[k]", "{%f4, %f5, %f6, %f7}", "{%rd5, %rd6, %rd7, %rd8}", "%p8|%p9", "%r8|%p9"),
    *("{%r1, %r2, %r3}", "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}", "8", "32", "128", "255"),
)
