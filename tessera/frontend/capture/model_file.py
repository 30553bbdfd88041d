"""The user's Python file: which function of it makes the model, and what that gives.

The file runs as the user's own Python. In: `FILE.py:FUNCTION`. Out: a callable and its inputs.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.inputs import Inputs
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


def load_model(
    place: tuple[Path, str], sizes: dict[str, object]
) -> tuple[Callable[..., object], Inputs]:
    """Run the file and call the function: what it returns, or the function itself.

    The file's folder stays on the path, as if Python had been started with it: the model may import
    its neighbours when it is called.
    """
    path, name = place
    spec = importlib.util.spec_from_file_location(f"_traced_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise _bad_model(f"`{path}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    # Dataclasses and torch.compile look their module up by its name.
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if not callable(function):
            raise _bad_model(f"`{path}` has no function `{name}`")
        _check_call(function, name, sizes)
        made = function(**sizes)
    except (TesseraError, KeyboardInterrupt):
        raise
    except BaseException as problem:  # whatever the user's own code raises, an exit included
        raise refusal(problem) from problem
    if isinstance(made, tuple | list) and made and callable(made[0]):
        if len(made) != 2:
            raise _bad_model(f"`{name}` returns {len(made)} values, not a callable and its inputs")
        return made[0], _inputs(made[1], name)
    if callable(made):
        return made, Inputs()
    return (lambda: function(**sizes)), Inputs()


def _inputs(given: object, name: str) -> Inputs:
    """Inputs as a tuple or a list, by name, or one alone."""
    if isinstance(given, Mapping):
        odd = [key for key in given if not isinstance(key, str)]
        if odd:
            raise _bad_model(f"`{name}` names an input {odd[0]!r:.60}, which is no name")
        return Inputs(named=dict(given))
    return Inputs(plain=tuple(given) if isinstance(given, tuple | list) else (given,))


def _check_call(function: Callable[..., object], name: str, sizes: dict[str, object]) -> None:
    """Whether the function takes the arguments of `--set` and needs no others."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin; calling it will tell
        return
    try:
        signature.bind(**sizes)
    except TypeError as problem:
        raise TesseraError.of(
            "TSR6007",
            f"`{name}` cannot be called with these arguments: {problem}",
            notes=(f"it takes {', '.join(signature.parameters) or 'none'}",),
            hint="`--set NAME=VALUE` gives it arguments; a model that takes tensors is"
            " returned by a function, together with its inputs",
        ) from None


def _bad_model(headline: str) -> TesseraError:
    hint = "for example `tessc trace examples/models/llama.py:decode -o decode.ptx`"
    return TesseraError.of("TSR6007", headline, hint=hint)
