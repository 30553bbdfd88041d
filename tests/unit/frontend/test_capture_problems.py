"""Exceptions of PyTorch, its compiler and the model, as errors that say what to do."""

from __future__ import annotations

import errno
from itertools import islice
from pathlib import Path

import pytest

from tessera.frontend.capture.problems import (
    chain,
    launches_nothing,
    not_captured,
    not_fake,
    on_host,
    refusal,
)


def made(name: str, module: str, text: str) -> Exception:
    kind = type(name, (RuntimeError,), {"__module__": module})
    problem: Exception = kind(text)
    try:
        raise problem
    except RuntimeError:
        return problem


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("OutOfMemoryError", "torch", "TSR5102"),
        ("Unsupported", "torch._dynamo.exc", "TSR6010"),
        ("ValueError", "builtins", "TSR6008"),
    ],
)
def test_what_a_model_raises(name: str, module: str, expected: str) -> None:
    found = refusal(made(name, module, "first\nsecond"))
    (only,) = found.diagnostics
    assert only.code == expected
    assert "first" in (str(only.headline) + "".join(only.notes))
    assert "second" not in (str(only.headline) + "".join(only.notes))


def test_exceptions_that_come_from_themselves_have_an_end() -> None:
    """`raise problem from problem` makes one."""
    itself, first, second = ValueError("alone"), ValueError("first"), RuntimeError("second")
    itself.__cause__ = itself
    first.__context__, second.__context__ = second, first
    assert list(islice(chain(itself), 9)) == [itself]
    assert list(islice(chain(first), 9)) == [first, second]
    assert refusal(itself).diagnostics[0].code == "TSR6008"
    assert not_captured(first).diagnostics[0].notes[0].endswith("second")


def test_what_a_part_of_the_compiler_raised_is_told() -> None:
    text = "backend='inductor' raised:\nRuntimeError: no room\n\nSet TORCHDYNAMO_VERBOSE=1"
    (found,) = refusal(made("BackendCompilerFailed", "torch._dynamo.exc", text)).diagnostics
    assert found.notes == ("backend='inductor' raised: RuntimeError: no room",)


def test_the_compiler_names_the_line_of_the_model() -> None:
    text = 'graph break\n  File "/x/torch/a.py", line 1\n  File "model.py", line 7, in step'
    (found,) = refusal(made("Unsupported", "torch._dynamo.exc", text)).diagnostics
    assert found.notes == ("graph break", "in `step`, model.py:7")
    # The model is a library's, in an environment whose path has the name of another.
    inner = "/opt/torchenv/lib/python3.12/site-packages"
    text += f'\n  File "{inner}/transformers/masks.py", line 9, in make'
    text += f'\n  File "{inner}/torch/nn/flex.py", line 3, in block'
    (found,) = refusal(made("Unsupported", "torch._dynamo.exc", text)).diagnostics
    assert found.notes == ("graph break", "in `step`, model.py:7", "in `make`, masks.py:9")


@pytest.mark.parametrize(
    "said", ["ValueError('no', 3)", "ValueError([ConstantVariable(str: 'no'), 3])"]
)
def test_what_the_model_raised_under_the_compiler_is_told(said: str) -> None:
    text = f"Observed exception\n  Developer debug context: raised exception {said}\n\nfrom"
    (found,) = refusal(made("Unsupported", "torch._dynamo.exc", text)).diagnostics
    assert found.notes[1].startswith("the model's code raised ValueError(")
    assert "'no', 3" in found.notes[1]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_not_put_down_to_the_model(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler wraps what it meets when it writes what it has compiled."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    problem = made("LoweringException", "torch._inductor.exc", "OSError: [Errno 28]")
    problem.__context__ = OSError(code, "no room")
    (told,) = refusal(problem).diagnostics
    assert told.code == "TSR1911"
    assert "no room" in str(told.headline)
    assert str(tmp_path) in told.notes[0]
    other = made("LoweringException", "torch._inductor.exc", "no file")
    other.__context__ = OSError(errno.ENOENT, "no file")
    assert refusal(other).diagnostics[0].code == "TSR6010"


SHAPES = """RuntimeError when making fake tensor call
  Explanation: Dynamo failed to run FX node with fake tensors: call_function <matmul>(*(FakeTensor(\
..., size=(4, 16))), **{}): got RuntimeError('sizes differ: [4, 16] X [4, 16].')
  Hint: none

from user code:
   File "/models/mine.py", line 7, in f
"""


def test_shapes_that_do_not_fit_are_the_models_own_fault() -> None:
    told = refusal(made("TorchRuntimeError", "torch._dynamo.exc", SHAPES)).diagnostics[0]
    assert told.code == "TSR6008"
    assert str(told.headline).endswith("raised RuntimeError: sizes differ: [4, 16] X [4, 16].")
    assert told.notes == ("in `f`, mine.py:7",)


def test_a_number_that_was_read_is_told_with_the_line_of_the_model() -> None:
    said = IndexError(
        'valid indices (got SymInt)\n\nfrom user code:\n File "/m/a.py", line 3, in f'
    )
    refused = not_fake(said)
    assert refused is not None
    assert "reads a value" in str(refused.diagnostics[0].headline)
    assert refused.diagnostics[0].notes[-1] == "in `f`, a.py:3"


def test_what_a_compiler_says_below_code_is_told() -> None:
    text = "CompilationError: at 68:15:\n  a = b"
    problem = made("InductorError", "torch._inductor.exc", text)
    problem.__cause__ = AssertionError("both must be alike")
    told = refusal(problem).diagnostics[0]
    assert told.notes[0] == "CompilationError: at 68:15: both must be alike"


def test_a_capture_that_fails_says_what_not_to_do() -> None:
    (found,) = not_captured(RuntimeError("operation not permitted")).diagnostics
    assert found.code == "TSR6003"
    assert "`.item()`" in (found.hint or "")


def failed_twice(first: Exception) -> Exception:
    """The model fails, and then the end of the capture does."""
    try:
        try:
            raise first
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as problem:
        return problem


def test_what_failed_first_is_told_with_its_line() -> None:
    first = RuntimeError("operation not permitted when stream is capturing")
    (found,) = not_captured(failed_twice(first)).diagnostics
    assert found.notes[0] == "operation not permitted when stream is capturing"
    assert "`failed_twice`, test_capture_problems.py:" in found.notes[1]


def test_too_little_memory_while_capturing_is_that() -> None:
    first = made("OutOfMemoryError", "torch", "tried to allocate 2 GiB")
    (found,) = not_captured(failed_twice(first)).diagnostics
    assert found.code == "TSR5102"
    assert found.notes == ("tried to allocate 2 GiB",)


def test_a_call_without_work_and_an_input_on_the_host() -> None:
    assert launches_nothing().diagnostics[0].code == "TSR6003"
    assert on_host("in0").code == "TSR6012"


def test_an_operator_that_has_no_shapes_is_named() -> None:
    text = (
        "aten::cell: attempted to run this operator with Meta tensors, but there was no fake impl"
    )
    last = made("NotImplementedError", "builtins", "Could not run 'aten::empty'")
    last.__context__ = made("NotImplementedError", "builtins", text)
    refused = not_fake(last)
    assert refused is not None
    assert "`aten::cell`" in str(refused.diagnostics[0].headline)
    assert not_fake(made("ValueError", "builtins", "other")) is None
