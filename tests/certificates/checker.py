"""Accepts or refuses a certificate: why a launch touches what the analysis says, and no more.

In: the sizes of buffers, a launch on one architecture, and a certificate. Out: nothing, or
`Refused`. With `ptx_reader.py` and `instructions.py` this is the whole checker. It shares nothing
with `tessera`: it reads the trace itself, and has its own account of the instructions.

Values are exact: a number for each round, CTA and thread, in arrays whose last axes are CTA and
thread, and whose first axis is the round of the innermost loop. A number is modulo 2**width, a
pointer a buffer and a number. What is not known (data, floats, shared memory) has no value.

A loop is proved by induction. The certificate says what registers hold at the head in round `k`,
and how many rounds each thread makes. It is checked that (1) registers hold this for `k = 0` where
the loop is entered; (2) from these values, for each round `k`, the body leads back to the head in
exactly the threads that make a round `k + 1`, with the values claimed for it. A register that is
not claimed keeps its value if the loop does not write it, and has none otherwise. After the loop,
registers hold what the last round of each thread leaves.

Every branch, and every guard, address and size of an access to global memory must have a value. So
every execution does what is followed here: a may region must hold all bytes that are touched, a
must region only bytes that plain stores write (that loads read, for a read). Refused are: what is
not understood, what has no value and needs one, bytes outside of a buffer, a loop that is entered
and not claimed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.certificates.instructions import Flags, Value, Words, computed, low, number, signed
from tests.certificates.ptx_reader import (
    Instruction,
    Launch,
    Memory,
    Operand,
    Refused,
    demand,
    read_kernel,
)

State = dict[str, Value]
MOST_ELEMENTS = 1 << 24
# Instructions that touch no global memory, and write nothing but their first operand.
RESULTS_ONLY = re.compile(
    "abs|activemask|addc?|bar|barrier|bfe|bfi|bfind|brev|clz|copysign|cos|createpolicy|cvt|cvta|div|"
    "dp[24]a|ex2|fence|fma|fns|ldmatrix|lg2|lop3|mad|mad24|madc|match|max|membar|min|mma|mov|mul|"
    "mul24|nanosleep|neg|not|and|or|popc|prmt|rcp|redux|rem|rsqrt|sad|selp|setp?|shfl?|shl|shr|sin|"
    "slct|sqrt|stmatrix|subc?|tanh|testp|vote|wgmma|xor"
)


def check(sizes: dict[str, int], launch: Launch, certificate: dict[str, Any]) -> Proof:
    """Refuse unless a certificate proves what it says of a launch on one architecture."""
    with np.errstate(all="ignore"):
        try:
            proof = Proof(sizes, launch, certificate)
            proof.run()
            proof.compare(certificate["accesses"])
            return proof
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Refused(f"not understood: {error!r}") from error


@dataclass
class _Arrival:
    """Threads that come to a block, and their registers."""

    here: Flags
    state: State


class Proof:
    """The proof of one certificate."""

    def __init__(self, sizes: dict[str, int], launch: Launch, certificate: dict[str, Any]) -> None:
        self.kernel = read_kernel(launch.text, launch.kernel)
        kinds = ("read", "stored", "written")
        self.touched = {
            kind: {k: np.zeros(n, np.bool_) for k, n in sizes.items()} for kind in kinds
        }
        demand(len(launch.args) == len(self.kernel.parameters), "other arguments")
        self.arguments = dict(zip(self.kernel.parameters, launch.args, strict=True))
        self.symbols: dict[str, Words] = {}
        self.special: State = {}
        for name, extent in (("ctaid", launch.grid), ("tid", launch.block)):
            numbers = np.indices(extent[::-1]).reshape(3, -1).astype(np.uint64)
            for axis, size in enumerate(extent):
                values = numbers[2 - axis]
                symbol = f"{name}.{'xyz'[axis]}"
                demand(certificate["ranges"].get(symbol) == size, f"the range of {symbol}")
                self.symbols[symbol] = values[:, None] if name == "ctaid" else values[None, :]
                self.special[f"%{symbol}"] = Value(None, self.symbols[symbol])
                self.special[f"%n{symbol}"] = number(size)
        self.everyone = np.ones((np.prod(launch.grid), np.prod(launch.block)), np.bool_)
        labels = self.kernel.labels
        self.claims = {labels[label]: (label, c) for label, c in certificate["loops"].items()}
        demand(len(self.claims) == len(certificate["loops"]), "two claims of one loop")
        demand(self.claims.keys() <= self.kernel.loops.keys(), "a claim of no loop")

    def run(self) -> None:
        """Run the kernel from its entry."""
        left = self._run({0: _Arrival(self.everyone, {})}, frozenset(self.kernel.order), None)
        demand(left.keys() <= {len(self.kernel.blocks)}, "a way out")

    def _run(
        self, arrived: dict[int, _Arrival], inside: frozenset[int], head: int | None
    ) -> dict[int, _Arrival]:
        """Run blocks once, in order; return who leaves them, or comes back to their head."""
        left: dict[int, _Arrival] = {}
        for block in self.kernel.order:
            if block not in inside or block not in arrived:
                continue
            here = arrived.pop(block)
            is_loop = block in self.kernel.loops and block != head
            for way, threads in (self._loop if is_loop else self._block)(block, here):
                if threads.here.any():
                    goal = arrived if way in inside and way != head else left
                    goal[way] = _merged(goal[way], threads) if way in goal else threads
        demand(not arrived, "blocks in no order")
        return left

    def _block(self, place: int, arrival: _Arrival) -> list[tuple[int, _Arrival]]:
        block, state = self.kernel.blocks[place], dict(arrival.state)
        for instruction in block.code:
            if instruction.opcode not in ("bra", "ret", "exit"):
                self._step(instruction, arrival.here, state)
        if len(block.after) == 1:
            return [(block.after[0], _Arrival(arrival.here, state))]
        taken = self._guard(block.code[-1], state)
        demand(taken is not None, "a branch on what is not known")
        sides = (arrival.here & taken, arrival.here & ~taken)
        return [(way, _Arrival(side, state)) for way, side in zip(block.after, sides, strict=True)]

    def _loop(self, head: int, entered: _Arrival) -> list[tuple[int, _Arrival]]:
        """Prove the claim of a loop; return who leaves it."""
        demand(head in self.claims, "a loop without a claim")
        symbol, claim = self.claims[head]
        trips = signed(self._form(claim["trips"], 64).bits, 64)
        demand(not (entered.here & (trips < 1)).any(), "a loop that is entered without a round")
        most = int((trips * entered.here).max())
        demand(most * entered.here.size <= MOST_ELEMENTS, "too many rounds")
        rounds = np.arange(most, dtype=np.int64).reshape(most, *[1] * entered.here.ndim)
        here = entered.here & (rounds < trips)
        body = [i for block in self.kernel.loops[head] for i in self.kernel.blocks[block].code]
        written = {name for instruction in body for name in instruction.results}
        state = {name: value for name, value in entered.state.items() if name not in written}
        self._prove(head, rounds[:1], entered, "at the start")
        state |= self._claimed(head, rounds)
        left = self._run({head: _Arrival(here, state)}, self.kernel.loops[head], head)
        back = left.pop(head, _Arrival(np.zeros_like(here), {}))
        demand(not (back.here != (here & (rounds + 1 < trips))).any(), "a trip count")
        if back.here.any():
            self._prove(head, rounds + 1, back, "in the next round")
        del self.symbols[symbol]
        last = np.clip(np.broadcast_to(trips, entered.here.shape) - 1, 0, most - 1)
        return [(way, _after(arrival, last, most)) for way, arrival in left.items()]

    def _claimed(self, head: int, rounds: NDArray[np.int64]) -> State:
        """What registers hold at a head in these rounds."""
        symbol, claim = self.claims[head]
        self.symbols[symbol] = rounds.view(np.uint64)
        widths = self.kernel.widths
        return {name: self._form(form, widths[name]) for name, form in claim["registers"].items()}

    def _prove(self, head: int, rounds: NDArray[np.int64], found: _Arrival, when: str) -> None:
        """Refuse unless registers hold what is claimed for these rounds."""
        for name, wanted in self._claimed(head, rounds).items():
            held = found.state.get(name)
            demand(held is not None and held.buffer == wanted.buffer, f"`{name}` {when}")
            demand(not ((held.bits != wanted.bits) & found.here).any(), f"`{name}` {when}")

    def _form(self, form: dict[str, Any], width: int) -> Value:
        """The value of a form: a number, plus numbers times (symbol // divisor % modulus)."""
        bits = number(form["at"]).bits
        for factor, symbol, divisor, modulus in form["terms"]:
            digit = self.symbols[symbol] // np.uint64(divisor) % np.uint64(modulus)
            bits = bits + digit * np.uint64(factor % 2**64)
        return Value(form.get("buffer"), low(bits, width))

    def _guard(self, instruction: Instruction, state: State) -> Flags | None:
        """The threads for which a guard holds, if that is known."""
        name, wanted = instruction.guard or ("", True)
        if not name:
            return self.everyone[:1, :1]
        return (state[name].bits != 0) == wanted if name in state else None

    def _step(self, instruction: Instruction, here: Flags, state: State) -> None:
        guard = self._guard(instruction, state)
        name, parts, operands = instruction.opcode, instruction.parts, instruction.operands
        result: Value | None = None
        if name == "ld" and "param" in parts:
            result = self._parameter(instruction)
        elif name in ("ld", "ldu", "st", "atom", "red") or (name, parts[:1]) == ("cp", ("async",)):
            self._access(instruction, here, guard, state)
        else:
            demand(RESULTS_ONLY.fullmatch(name), f"`{name}`")
            values = [value for word in operands[1:] if (value := self._value(word, state))]
            if values and len(values) == len(operands) - 1 and isinstance(operands[0], str):
                result = computed(instruction, values, here)
        for target in instruction.results:
            self._assign(target, result, guard, here, state)

    def _assign(
        self, name: str, value: Value | None, guard: Flags | None, here: Flags, state: State
    ) -> None:
        if guard is not None and not (here & guard).any():
            return
        old = state.pop(name, None)
        if guard is not None and value is not None:
            if not (here & ~guard).any():
                state[name] = Value(value.buffer, low(value.bits, self.kernel.widths[name]))
            elif old is not None and old.buffer == value.buffer:
                bits = low(value.bits, self.kernel.widths[name])
                state[name] = Value(value.buffer, np.where(guard, bits, old.bits))

    def _value(self, word: Operand, state: State) -> Value | None:
        """What an operand holds, if that is known."""
        if not isinstance(word, str):
            return None
        if word[0].isdigit() or word[0] == "-":
            is_float = word[:2].lower() in ("0f", "0d") or "." in word
            return None if is_float else number(int(word.rstrip("U"), 0))
        return self.special.get(word) or state.get(word)

    def _parameter(self, instruction: Instruction) -> Value | None:
        target, source = instruction.operands
        demand(isinstance(source, Memory) and source.offset == 0, "a part of a parameter")
        width = int(instruction.types[-1][1:])
        declared = int(self.kernel.parameters[source.base][1:])
        demand(declared == width == self.kernel.widths[str(target)], "a part of a parameter")
        kind, _, digits = self.arguments[source.base].rpartition(":")
        if kind:
            return None if kind[0] == "f" else number(int(digits, 0) % 2**width)
        buffer, _, offset = digits.partition("+")
        demand(buffer in self.touched["read"] and width == 64, f"argument `{digits}`")
        return Value(buffer, number(int(offset or "0", 0)).bits)

    def _access(
        self, instruction: Instruction, here: Flags, guard: Flags | None, state: State
    ) -> None:
        """Note the bytes of global memory that an instruction touches."""
        name, parts, operands = instruction.opcode, instruction.parts, instruction.operands
        spaces = {part.split("__")[0] for part in parts}
        waits = {"commit_group", "wait_group", "wait_all"}
        if spaces & (waits if name == "cp" else {"shared", "local"}):
            return
        source = operands[0 if name in ("st", "red") else 1]
        demand(isinstance(source, Memory) and guard is not None, "an access without a place")
        if not (here & guard).any():
            return
        demand(source.base in state, "an address that is not known")
        address = state[source.base]
        demand(address.buffer is not None, "an address in no buffer")
        if name == "cp":
            known = parts[1] in ("ca", "cg") and "L2__cache_hint" not in parts
            known = known and self.kernel.widths.get(str(operands[-1]), 32) == 32
            sizes = [self._value(word, state) for word in operands[2:4]]
            demand(known and len(operands) < 5 and all(sizes), "a size that is not known")
            width = np.minimum(*[v.bits for v in (sizes[0], sizes[-1]) if v is not None])
        else:
            lanes = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
            width = number(lanes * int(instruction.types[-1][1:]) // 8).bits
        start = address.bits + np.uint64(source.offset % 2**64)
        self._touch(name, str(address.buffer), start, width, here & guard)

    def _touch(self, name: str, buffer: str, start: Words, width: Words, active: Flags) -> None:
        start, width, active = np.broadcast_arrays(start, width, active & (width > 0))
        demand(active.size <= MOST_ELEMENTS, "too many addresses")
        first, length = signed(start[active], 64), width[active].astype(np.int64)
        size = len(self.touched["read"][buffer])
        demand(((first >= 0) & (first <= size - length)).all(), "bytes outside of a buffer")
        kinds = {
            "st": ("stored", "written"),
            "red": ("read", "written"),
            "atom": ("read", "written"),
        }
        for i in range(int(length.max(initial=0))):
            for kind in kinds.get(name, ("read",)):
                self.touched[kind][buffer][first[length > i] + i] = True

    def compare(self, accesses: list[dict[str, Any]]) -> None:
        """Refuse unless all that is touched is in the regions, and all that must be, happens."""
        missing = {kind: {k: v.copy() for k, v in f.items()} for kind, f in self.touched.items()}
        for access in accesses:
            buffer, kind = access["buffer"], access["kind"]
            demand(kind in ("read", "write", "atomic"), "an unknown kind")
            region = np.zeros(len(self.touched["read"][buffer]), np.bool_)
            for start, length, stride, count in access["region"]:
                for first in range(start, start + stride * count, stride) if stride else [start]:
                    demand(0 <= first < first + length <= len(region), "a region past its buffer")
                    region[first : first + length] = True
            if kind != "write":
                missing["read"][buffer] &= ~region
            if kind != "read":
                missing["written"][buffer] &= ~region
            if access["must"]:
                surely = self.touched["read" if kind == "read" else "stored"][buffer]
                demand(kind != "atomic" and not (region & ~surely).any(), f"a must-{kind}")
        for kind in ("read", "written"):
            outside = [name for name, found in missing[kind].items() if found.any()]
            demand(not outside, f"bytes {kind} outside of the region in {outside}")


def _merged(first: _Arrival, second: _Arrival) -> _Arrival:
    """Threads that come from two sides; what only one side knows is not known."""
    state = {
        name: a if a is b else Value(a.buffer, np.where(first.here, a.bits, b.bits))
        for name, a in first.state.items()
        if (b := second.state.get(name)) is not None and a.buffer == b.buffer
    }
    return _Arrival(first.here | second.here, state)


def _after(arrival: _Arrival, last: NDArray[np.int64], most: int) -> _Arrival:
    """What threads that leave a loop hold: the values of their last round."""

    def taken(bits: Words) -> Words:
        full = np.broadcast_to(bits, (most, *last.shape))
        return np.take_along_axis(full, last[None], axis=0)[0]

    state = {
        name: Value(v.buffer, taken(v.bits)) if v.bits.ndim > last.ndim else v
        for name, v in arrival.state.items()
    }
    return _Arrival(arrival.here.any(axis=0), state)
