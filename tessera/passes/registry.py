"""The analyses of this package by name: a plain table, for tools that take a name from a user."""

from __future__ import annotations

ANALYSES: dict[str, str] = {
    "kernel-codes": "tessera.passes.kernel_codes:KernelCodes",
    "register-values": "tessera.passes.register_values:RegisterValues",
    "loop-bounds": "tessera.passes.loop_bounds:LoopBounds",
    "kernel-accesses": "tessera.passes.kernel_accesses:KernelAccesses",
    "indirect": "tessera.passes.indirect:IndirectAccesses",
    "access-regions": "tessera.passes.access_regions:AccessRegions",
    "dependences": "tessera.passes.dependences:Dependences",
}
