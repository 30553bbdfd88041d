"""How deep values read from JSON or TOML are nested.

No file of ours nests deeply. A deeply nested value is refused before anything walks it: a parser
written in C may read more levels than Python can print.
"""

from __future__ import annotations

MOST_LEVELS = 32


def is_deep(value: object) -> bool:
    """Whether lists and tables are nested on more levels than any file needs."""
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: object) -> list[object]:
    """The lists and tables in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [inner for inner in value if isinstance(inner, dict | list)]
        if isinstance(value, list)
        else []
    )
