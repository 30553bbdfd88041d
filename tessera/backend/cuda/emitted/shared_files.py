"""The files that all emitted programs share.

In: nothing. Out: files by name, each the text of one of our modules. In the folder of a program
they import each other by the names that they have there, and nothing of Tessera.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
_SHARED = {
    "common.py": _HERE / "emitted_common.py",
    "serve.py": _HERE / "emitted_serve.py",
    "slices.py": _HERE.parent / "slices.py",
}
# The module that another one imports, and its name in the folder of a program.
_OUR_NAME, _THEIR_NAME = f"from {__package__}.emitted_common ", "from common "


def shared_files() -> dict[str, str]:
    """The texts by file name."""
    return {
        name: path.read_text("utf-8").replace(_OUR_NAME, _THEIR_NAME)
        for name, path in _SHARED.items()
    }
