"""The analyses of this package by name: a plain table, for tools that take a name from a user."""

from __future__ import annotations

ANALYSES: dict[str, str] = {
    "access-regions": "tessera.passes.access_regions:AccessRegions",
    "dependences": "tessera.passes.dependences:Dependences",
}
