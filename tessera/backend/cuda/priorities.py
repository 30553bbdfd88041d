"""Priorities of kernels: the further a request has come on a device, the higher.

In: the actions of a request and the range of priorities. Out: a priority per step. Requests of one
plan that share a device go through the same steps, so the one that has come further is the older
one. With one priority for all, kernels of several requests share the device, and requests that
came together go from device to device together, while the other devices have nothing to do. The
highest priority is left to transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tessera.backend.cuda.issue_order import Action, steps_of


def step_priorities(
    actions: Sequence[Action], devices: Collection[str], lowest: int, highest: int
) -> dict[int, int]:
    """The priority of every step; a smaller number is higher."""
    levels = max(lowest - highest, 1)
    priorities = {}
    for device in devices:
        steps = steps_of(actions, device)
        for position, step in enumerate(steps):
            priorities[step] = lowest - position * levels // len(steps)
    return priorities
