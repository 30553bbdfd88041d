"""Parts of an undirected graph: what is connected by pairs, directly or through others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def connected(nodes: Iterable[Node], pairs: Iterable[tuple[Node, Node]]) -> list[list[Node]]:
    """The nodes of each part, in the order of their first nodes; pairs may name further nodes."""
    beside: dict[Node, list[Node]] = {node: [] for node in nodes}
    for left, right in pairs:
        beside.setdefault(left, []).append(right)
        beside.setdefault(right, []).append(left)
    parts = []
    seen: set[Node] = set()
    for first in beside:
        if first in seen:
            continue
        seen.add(first)
        part = [first]
        for node in part:  # which grows meanwhile
            new = [other for other in dict.fromkeys(beside[node]) if other not in seen]
            seen.update(new)
            part += new
        parts.append(part)
    return parts
