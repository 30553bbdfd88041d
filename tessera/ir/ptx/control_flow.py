"""Basic blocks of a flat function, and facts that follow from their graph.

In: a `FlatFunction`. Out: a `ControlFlow`: blocks with their edges, an order to visit them in,
dominators, post-dominators, loops, and the blocks in cycles that are not natural loops.

Block 0 is the entry. Blocks that no path reaches are kept (`reachable` is false), have no
dominator, and take no part in the order. An instruction that ends a block: `bra`, `brx.idx`,
`ret`, `exit`, `trap`, and anything the caller adds. A guarded `ret` falls through as well.
`EXIT` (-1) stands for leaving the function in the post-dominator tree; a block from which the
exit cannot be reached (an endless loop) has no post-dominator: None.

`order` is a reverse post-order in which the blocks of a loop stand together, before the blocks
that follow the loop. For reducible graphs, threads of a machine that always runs the lowest block
of this order reconverge at the post-dominator. In other graphs they may not, if the post-dominator
is in a cycle with several entries (`tangled`). The blocks that follow a cycle come after all of it.

Sources: Cooper, Harvey, Kennedy, "A simple, fast dominance algorithm"; PTX ISA 9.0, section
9.7.12 (control flow instructions).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import FlatFunction

EXIT = -1

_LEAVES = frozenset({"ret", "exit", "trap"})
_JUMPS = frozenset({"bra", "brx"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicBlock:
    """Instructions `start` to `end` (exclusive), entered only at the start.

    For a guarded branch `successors` is (target, next); for `brx.idx` the targets of the list
    in order, without repeats, and the next block if it is guarded.
    """

    index: int
    start: int
    end: int
    successors: tuple[int, ...]
    predecessors: tuple[int, ...]
    reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A natural loop. `blocks` is sorted and holds the header; `parent` indexes the loops."""

    header: int
    blocks: tuple[int, ...]
    latches: tuple[int, ...]
    exits: tuple[tuple[int, int], ...]
    parent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFlow:
    """The graph of a function. The trees give the immediate (post-)dominator by block index.

    `leaving` are the reachable blocks from which control may leave the function. `below` numbers
    blocks so that those which a block dominates have the numbers of its range, its own first.
    """

    blocks: tuple[BasicBlock, ...]
    order: tuple[int, ...]
    dominators: tuple[int | None, ...]
    post_dominators: tuple[int | None, ...]
    loops: tuple[Loop, ...]
    tangled: frozenset[int]
    below: tuple[range, ...]
    leaving: frozenset[int] = frozenset()

    def dominates(self, above: int, below: int) -> bool:
        """Whether every path from the entry to `below` goes through `above`."""
        return self.below[below].start in self.below[above] or above == below


def build_control_flow(flat: FlatFunction, leaders: Iterable[int] = ()) -> ControlFlow:
    """Cut a function into blocks; `leaders` are further instructions that start a block."""
    starts = _find_starts(flat, leaders)
    edges = _find_edges(flat, starts)
    loops_first = _depth_first(edges, 0)
    dominators = _immediate_dominators(edges, loops_first, 0)
    loops, circles = _find_loops(edges, loops_first, dominators)
    order = _order_loops_together(edges, loops, circles)
    reachable = set(order)
    predecessors = _invert(edges)
    ends = [*starts[1:], len(flat.instructions)]
    blocks = tuple(
        BasicBlock(
            index=i,
            start=starts[i],
            end=ends[i],
            successors=tuple(s for s in edges[i] if s != EXIT),
            predecessors=tuple(predecessors[i]),
            reachable=i in reachable,
        )
        for i in range(len(starts))
    )
    return ControlFlow(
        blocks=blocks,
        order=tuple(order),
        dominators=tuple(dominators),
        post_dominators=post_dominators(edges, reachable),
        leaving=frozenset(i for i in reachable if EXIT in edges[i]),
        loops=loops,
        tangled=frozenset().union(*circles),
        below=_numbered(dominators),
    )


def ends_block(instruction: ptx.Instruction) -> bool:
    """Whether control may go anywhere other than the next instruction."""
    return instruction.opcode.name in _LEAVES or instruction.opcode.name in _JUMPS


def branch_targets(flat: FlatFunction, instruction: ptx.Instruction) -> tuple[str, ...]:
    """The labels that a `bra` or `brx.idx` names, in order, repeats included."""
    if instruction.opcode.name == "bra":
        target = instruction.operands[0]
        return (target.name,) if isinstance(target, ptx.Name) else ()
    table = instruction.operands[1]
    if not isinstance(table, ptx.Name):
        return ()
    return next((t.targets for t in flat.targets if t.name == table.name), ())


def innermost_loops(flow: ControlFlow) -> dict[int, int | None]:
    """The smallest loop around each block; loops are in order of size."""
    innermost: dict[int, int | None] = dict.fromkeys(range(len(flow.blocks)))
    for index, loop in enumerate(flow.loops):
        innermost.update(dict.fromkeys(loop.blocks, index))
    return innermost


def _find_starts(flat: FlatFunction, leaders: Iterable[int]) -> list[int]:
    """The first instruction of each block; an empty function has one empty block."""
    count = len(flat.instructions)
    starts = {0, *leaders, *(label.index for label in flat.labels)}
    starts |= {i + 1 for i, item in enumerate(flat.instructions) if ends_block(item)}
    return sorted(s for s in starts if s < count) or [0]


def _find_edges(flat: FlatFunction, starts: list[int]) -> list[list[int]]:
    count = len(flat.instructions)
    block_at = {start: i for i, start in enumerate(starts)}
    labels = {label.name: block_at.get(label.index, EXIT) for label in flat.labels}
    edges: list[list[int]] = []
    for i in range(len(starts)):
        end = starts[i + 1] if i + 1 < len(starts) else count
        following = i + 1 if i + 1 < len(starts) else EXIT
        last = flat.instructions[end - 1] if end > starts[i] else None
        edges.append(_successors(flat, last, labels, following))
    return edges


def _successors(
    flat: FlatFunction, last: ptx.Instruction | None, labels: dict[str, int], following: int
) -> list[int]:
    if last is None or not ends_block(last):
        return [following]
    if last.opcode.name in _JUMPS:
        successors = [labels.get(name, EXIT) for name in branch_targets(flat, last)]
    else:
        successors = [EXIT]
    if last.guard is not None:
        successors.append(following)
    return list(dict.fromkeys(successors))


def _invert(edges: list[list[int]]) -> list[list[int]]:
    predecessors: list[list[int]] = [[] for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            if target != EXIT:
                predecessors[target].append(source)
    return predecessors


def _depth_first(edges: list[list[int]], root: int) -> list[int]:
    """Reverse post-order from the root, first successor first."""
    seen = {root}
    finished: list[int] = []
    stack = [(root, iter(reversed(edges[root])))]
    while stack:
        node, pending = stack[-1]
        for target in pending:
            if target != EXIT and target not in seen:
                seen.add(target)
                stack.append((target, iter(reversed(edges[target]))))
                break
        else:
            finished.append(node)
            stack.pop()
    return finished[::-1]


def _immediate_dominators(edges: list[list[int]], order: list[int], root: int) -> list[int | None]:
    """The tree by iteration to a fixed point; None for the root and for unreachable blocks."""
    rank = {node: i for i, node in enumerate(order)}
    predecessors = _invert(edges)
    tree: dict[int, int] = {root: root}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            # From the lowest up, so that paths to a common ancestor are walked once.
            known = sorted((p for p in predecessors[node] if p in tree), key=rank.__getitem__)
            best = known.pop()
            for other in reversed(known):
                best = _meet(tree, rank, best, other)
            if tree.get(node) != best:
                tree[node] = best
                changed = True
    return [None if i == root else tree.get(i) for i in range(len(edges))]


def _numbered(dominators: list[int | None]) -> tuple[range, ...]:
    """Ranges of numbers; the range of a block contains those of the blocks that it dominates."""
    children: list[list[int]] = [[] for _ in dominators]
    for node, parent in enumerate(dominators):
        if parent is not None:
            children[parent].append(node)
    numbers = [range(-1, -1)] * len(dominators)
    pending = [(0, False)]
    count = 0
    while pending:
        node, is_done = pending.pop()
        if is_done:
            numbers[node] = range(numbers[node].start, count)
            continue
        numbers[node] = range(count, count)
        count += 1
        pending += [(node, True), *((child, False) for child in children[node])]
    return tuple(numbers)


def _meet(tree: dict[int, int], rank: dict[int, int], left: int, right: int) -> int:
    """The lowest common ancestor in the tree, as far as the tree is known."""
    while left != right:
        while rank[left] > rank[right]:
            left = tree[left]
        while rank[right] > rank[left]:
            right = tree[right]
    return left


def post_dominators(edges: list[list[int]], reachable: set[int]) -> tuple[int | None, ...]:
    """Dominators of the inverted graph, with a separate node for the exit."""
    last = len(edges)
    inverted: list[list[int]] = [[] for _ in range(last + 1)]
    for source, targets in enumerate(edges):
        if source not in reachable:
            continue
        for target in targets:
            inverted[last if target == EXIT else target].append(source)
    tree = _immediate_dominators(inverted, _depth_first(inverted, last), last)
    return tuple(EXIT if parent == last else parent for parent in tree[:last])


def _find_loops(
    edges: list[list[int]], order: list[int], dominators: list[int | None]
) -> tuple[tuple[Loop, ...], list[set[int]]]:
    """Natural loops by header, outermost first, and the blocks of each circle that is none: it has
    an edge back to no dominator."""
    rank = {node: i for i, node in enumerate(order)}
    predecessors = _invert(edges)
    latches: dict[int, list[int]] = {}
    circles: list[set[int]] = []
    for node in order:
        for target in edges[node]:
            if target == EXIT or rank[target] > rank[node]:
                continue
            if _is_above(dominators, target, node):
                latches.setdefault(target, []).append(node)
            elif not any(node in circle for circle in circles):
                circles.append(_reached(edges, target) & _reached(predecessors, node))
    bodies = {
        header: _loop_body(predecessors, rank, header, latches[header])
        for header in sorted(latches, key=rank.__getitem__)
    }
    ordered = sorted(bodies, key=lambda h: (-len(bodies[h]), rank[h]))
    loops: list[Loop] = []
    around: dict[int, int] = {}
    for i, header in enumerate(ordered):
        body = bodies[header]
        inside = sorted(body)
        exits = tuple((n, target) for n in inside for target in edges[n] if target not in body)
        loops.append(
            Loop(
                header=header,
                blocks=tuple(inside),
                latches=tuple(latches[header]),
                exits=exits,
                parent=around.get(header),
            )
        )
        around.update(dict.fromkeys(inside, i))
    return tuple(loops), circles


def _reached(edges: list[list[int]], start: int) -> set[int]:
    """The blocks that can be reached from a block, itself included."""
    reached, pending = {start}, [start]
    while pending:
        more = set(edges[pending.pop()]) - reached - {EXIT}
        reached |= more
        pending += more
    return reached


def _is_above(dominators: list[int | None], above: int, below: int) -> bool:
    at: int | None = below
    while at is not None and at != above:
        at = dominators[at]
    return at == above


def _loop_body(
    predecessors: list[list[int]], rank: dict[int, int], header: int, latches: list[int]
) -> set[int]:
    body = {header}
    pending = list(latches)
    while pending:
        node = pending.pop()
        if node not in body:
            body.add(node)
            pending.extend(p for p in predecessors[node] if p in rank)
    return body


def _order_loops_together(
    edges: list[list[int]], loops: tuple[Loop, ...], circles: list[set[int]]
) -> list[int]:
    """Reverse post-order that visits the exits of a loop before the blocks inside it.

    The blocks visited first come last. The exits are therefore visited from the header, as if it
    had an edge to each: such edges add no path, so the order stays a reverse post-order. The exits
    of a cycle are visited from the block of the cycle that is reached first.
    """
    arranged = [list(targets) for targets in edges]
    for loop in loops:
        arranged[loop.header].extend(target for _, target in loop.exits)
    for circle in circles:
        ways_out = sorted({target for node in circle for target in edges[node]} - circle)
        for node in circle:
            arranged[node].extend(ways_out)
    return _depth_first(arranged, 0)
