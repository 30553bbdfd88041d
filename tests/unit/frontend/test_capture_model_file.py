"""The user's model file: which function of it makes the model, and what that gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.model_file import find_model, load_model

MODEL = """
from __future__ import annotations

from dataclasses import dataclass

def pair(size=3):
    return (lambda x: x), [size]

def alone():
    return 7

def named():
    return pair()[0], {"x": 3, "mask": None}

def numbered():
    return abs, {3: 4}

def listed():
    return [abs, 3]

def lonely():
    return (abs,)

def spread():
    return abs, 3, 4

def closure():
    return lambda: 9

def needs(x):
    return x

def leaves():
    raise SystemExit(3)

@dataclass
class Sizes:
    layers: int = 2

def late():
    import neighbour
    return neighbour.value, ()

def broken():
    raise ValueError("hidden must be a multiple of heads")
"""


RAISES = '    raise ValueError("hidden must be a multiple of heads")'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = tmp_path / "model.py"
    place.write_text(MODEL)
    return place


def test_a_function_makes_the_model_or_is_it(model: Path) -> None:
    _, inputs = load_model(find_model(f"{model}:pair"), {"size": 4})
    assert inputs.plain == (4,)
    function, inputs = load_model(find_model(f"{model}:alone"), {})
    assert (function(), inputs.plain) == (7, ())
    function, inputs = load_model(find_model(f"{model}:listed"), {})
    assert (function, inputs.plain) == (abs, (3,))


@pytest.mark.parametrize(("name", "count"), [("lonely", 1), ("spread", 3)])
def test_what_is_returned_is_a_callable_and_its_inputs(model: Path, name: str, count: int) -> None:
    with pytest.raises(TesseraError, match=f"`{name}` returns {count} values, not a callable"):
        load_model(find_model(f"{model}:{name}"), {})


@pytest.mark.parametrize("text", ["model.py", "nowhere.py:step", ":step", "model.py:"])
def test_a_model_that_is_not_there(text: str) -> None:
    with pytest.raises(TesseraError) as caught:
        find_model(text)
    assert caught.value.diagnostics[0].code == "TSR6007"


def test_a_function_that_is_not_there(model: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        load_model((model, "nothing"), {})
    assert caught.value.diagnostics[0].code == "TSR6007"


def test_what_the_model_raises_is_told_with_its_line(model: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        load_model((model, "broken"), {})
    (found,) = caught.value.diagnostics
    assert found.code == "TSR6008"
    assert "hidden must be a multiple" in str(found.headline)
    assert found.notes == (f"in `broken`, model.py:{MODEL.splitlines().index(RAISES) + 1}",)


def test_inputs_may_have_names(model: Path) -> None:
    _, inputs = load_model((model, "named"), {})
    assert (inputs.plain, dict(inputs.named)) == ((), {"x": 3, "mask": None})


def test_a_name_of_an_input_is_a_text(model: Path) -> None:
    with pytest.raises(TesseraError, match="`numbered` names an input 3, which is no name"):
        load_model((model, "numbered"), {})


def test_a_callable_alone_is_the_model(model: Path) -> None:
    function, inputs = load_model((model, "closure"), {})
    assert inputs.call(function) == 9


def test_a_neighbour_of_the_file_can_be_imported(model: Path) -> None:
    (model.parent / "neighbour.py").write_text("def value():\n    return 5\n")
    function, inputs = load_model((model, "late"), {})
    assert inputs.call(function) == 5


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [("needs", {}, "'x'"), ("pair", {"layers": 4}, "'layers'")],
)
def test_arguments_that_do_not_fit(
    model: Path, name: str, sizes: dict[str, int], expected: str
) -> None:
    with pytest.raises(TesseraError) as caught:
        load_model((model, name), sizes)
    (found,) = caught.value.diagnostics
    assert found.code == "TSR6007"
    assert expected in str(found.headline)


def test_a_model_that_leaves_is_told(model: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        load_model((model, "leaves"), {})
    assert caught.value.diagnostics[0].code == "TSR6008"


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    place = tmp_path / "model.py"
    place.write_text("def step(:\n")
    with pytest.raises(TesseraError) as caught:
        load_model((place, "step"), {})
    (found,) = caught.value.diagnostics
    assert (found.code, found.notes) == ("TSR6008", ("in model.py:1",))
