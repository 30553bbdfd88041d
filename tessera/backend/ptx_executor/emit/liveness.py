"""Which registers each block must hand on: backward liveness over the blocks."""

from __future__ import annotations

Facts = dict[str, tuple[set[int], set[int], tuple[str, ...]]]


def live_out(blocks: Facts) -> dict[str, set[int]]:
    """Registers that some path after the block reads before it sets them.

    In: for each block what it reads before setting it, what it sets, and what may follow.
    """
    before: dict[str, list[str]] = {name: [] for name in blocks}
    for name, (_, _, following) in blocks.items():
        for target in following:
            before[target].append(name)
    live_in = {name: set(reads) for name, (reads, _, _) in blocks.items()}
    outs: dict[str, set[int]] = {name: set() for name in blocks}
    pending = dict.fromkeys(reversed(list(blocks)))
    while pending:
        name = next(iter(pending))
        del pending[name]
        reads, sets, following = blocks[name]
        out = set().union(*(live_in[target] for target in following))
        outs[name] = out
        inside = reads | (out - sets)
        if inside != live_in[name]:
            live_in[name] = inside
            pending.update(dict.fromkeys(before[name]))
    return outs
