"""The analyses of this package by name: a plain table, for tools that take a name from a user."""

from __future__ import annotations

ANALYSES: dict[str, str] = {
    "kernel-codes": "tessera.passes.kernel_facts.kernel_codes:KernelCodes",
    "register-values": "tessera.passes.kernel_facts.register_values:RegisterValues",
    "loop-bounds": "tessera.passes.kernel_facts.loop_bounds:LoopBounds",
    "kernel-accesses": "tessera.passes.kernel_facts.kernel_accesses:KernelAccesses",
    "indirect": "tessera.passes.kernel_facts.indirect:IndirectAccesses",
    "access-regions": "tessera.passes.dependences.access_regions:AccessRegions",
    "dependences": "tessera.passes.dependences.dependences:Dependences",
}
