"""The analyses of this package by name: a plain table, for tools that take a name from a user."""

from __future__ import annotations

ANALYSES: dict[str, str] = {
    "kernel-codes": "tessera.passes.kernels.kernel_codes:KernelCodes",
    "register-values": "tessera.passes.kernels.register_values:RegisterValues",
    "loop-bounds": "tessera.passes.kernels.loop_bounds:LoopBounds",
    "kernel-accesses": "tessera.passes.kernels.kernel_accesses:KernelAccesses",
    "indirect": "tessera.passes.kernels.indirect:IndirectAccesses",
    "access-regions": "tessera.passes.launches.access_regions:AccessRegions",
    "dependences": "tessera.passes.launches.dependences:Dependences",
}
