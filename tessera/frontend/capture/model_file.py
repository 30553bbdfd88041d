"""The user's Python file: which function of it makes the model, and what that gives.

The file runs as the user's own Python. In: `FILE.py:FUNCTION`. Out: a callable and its inputs.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from tessera.diagnostics import TesseraError, error
from tessera.frontend.capture.problems import refusal


def find_model(text: str) -> tuple[Path, str]:
    """The file and the function that `FILE.py:FUNCTION` names; nothing runs yet."""
    file, _, name = text.rpartition(":")
    if not file or not name.isidentifier():
        raise _bad_model(f"`{text}` is not of the form FILE.py:FUNCTION")
    path = Path(file)
    if not path.is_file():
        raise _bad_model(f"there is no file `{file}`")
    return path, name


def load_model(place: tuple[Path, str], sizes: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """Run the file and call the function: what it returns, or the function itself."""
    path, name = place
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _bad_model(f"`{path}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if not callable(function):
            raise _bad_model(f"`{path}` has no function `{name}`")
        made = function(**sizes)
    except TesseraError:
        raise
    except Exception as problem:  # whatever the user's own code raises
        raise refusal(problem) from problem
    finally:
        sys.path.pop(0)
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        inputs = made[1] if isinstance(made[1], tuple | list) else (made[1],)
        return made[0], tuple(inputs)
    return (lambda: function(**sizes)), ()


def _bad_model(headline: str) -> TesseraError:
    hint = "for example `tessc trace examples/models/llama.py:decode -o decode.ptx`"
    return TesseraError(error("TSR6007", headline, hint=hint))
