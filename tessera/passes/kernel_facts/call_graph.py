"""Facts about all that a function calls, in time linear in the calls.

In: who calls whom. `components` is Tarjan's algorithm without recursion, so that a chain of any
length is walked; `closed_names` is the greatest set that holds all it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

Item = TypeVar("Item")


def components(calls: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """The functions in groups that call each other in circles, callees before their callers."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []
    is_open: set[str] = set()
    for root in calls:
        if root in order:
            continue
        path = [(root, iter(calls[root]))]
        order[root] = lowest[root] = len(order)
        open_names.append(root)
        is_open.add(root)
        while path:
            name, rest = path[-1]
            callee = next(
                (c for c in rest if c in calls and (c not in order or c in is_open)), None
            )
            if callee is not None and callee in order:
                lowest[name] = min(lowest[name], order[callee])
                continue
            if callee is not None:
                order[callee] = lowest[callee] = len(order)
                open_names.append(callee)
                is_open.add(callee)
                path.append((callee, iter(calls[callee])))
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
            if lowest[name] == order[name]:
                start = len(open_names) - 1
                while open_names[start] != name:
                    start -= 1
                group = open_names[start:]
                del open_names[start:]
                is_open.difference_update(group)
                yield group


def gather(
    calls: Mapping[str, Collection[str]], own: Mapping[str, Collection[Item]]
) -> dict[str, frozenset[Item]]:
    """What each function and all that it calls have of their own; equal sets are one object."""
    gathered: dict[str, frozenset[Item]] = {}
    for group in components(calls):
        parts = [gathered[c] for name in group for c in calls[name] if c in gathered]
        largest = max(parts, key=len, default=frozenset[Item]())
        more = {item for name in group for item in own.get(name, ())}
        for part in parts:
            if part is not largest:
                more |= part
        total = largest if more <= largest else largest | more
        gathered.update(dict.fromkeys(group, total))
    return gathered


def closed_names(needs: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The names that need, directly or not, only names of the mapping."""
    users: dict[str, list[str]] = {}
    bad: list[str] = []
    for name, needed in needs.items():
        for need in needed:
            users.setdefault(need, []).append(name)
        if any(need not in needs for need in needed):
            bad.append(name)
    gone = set(bad)
    while bad:
        for user in users.get(bad.pop(), ()):
            if user not in gone:
                gone.add(user)
                bad.append(user)
    return frozenset(needs.keys() - gone)
