"""What goes wrong while a model runs or is captured, in terms of what to do about it.

In: exceptions of PyTorch, its compiler, or the model. Out: errors with a code.
"""

from __future__ import annotations

import errno
import re
import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.settings import read_settings

NOT_COMPILED = "TSR6010"
RAISED = "TSR6008"
_LONGEST = 200
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>[0-9]+)(, in (?P<name>.+))?')
_CAUSE = re.compile(r"Caused by: .*# (?P<file>[^ ]+):(?P<line>[0-9]+) in (?P<name>\w+) \(")
# What an operator says of tensors without contents, as torch.compile passes it on.
_RAISED_THERE = re.compile(
    r"with fake tensors: .*: got (?P<kind>\w+)\((?P<quote>['\"])(?P<text>.*)(?P=quote)\)$",
    re.MULTILINE,
)
_STANDARD = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")})
_OURS = Path(__file__).parents[2]
_ADVICE = (
    "the model must not wait for the GPU, copy to the host, or depend on data on the host side"
    " (`.item()`, `.cpu()`, `nonzero`, printing a tensor)"
)

# Exceptions of PyTorch's fake tensors, and what they mean.
_READS = "DataDependentOutputException"
_SIZES = "DynamicOutputShapeException"
_NEEDS = {
    _READS: "reads a value of a tensor on the GPU",
    _SIZES: "makes a tensor whose size depends on data",
    "GuardOnDataDependentSymNode": "decides by data on the GPU",
    "UnsupportedOperatorException": "calls an operator whose result needs data",
    "UnsupportedFakeTensorException": "asks a tensor for its data",
}
# Operators over functions that the compiler leaves to the host.
BRANCHES = ("cond", "while_loop")


def refusal(problem: BaseException) -> TesseraError:
    """An error that says why the model does not run before the capture."""
    if (own := next((c for c in chain(problem) if isinstance(c, TesseraError)), None)) is not None:
        return own
    kinds = {kind.__module__ + "." + kind.__name__ for kind in type(problem).__mro__}
    if (full := next(filter(_is_full, chain(problem)), None)) is not None:
        return _no_room(full)
    if _is_memory(problem):
        return TesseraError.of(
            "TSR5102",
            "the GPU has too little memory for the model",
            notes=(first_line(problem),),
            hint="give the model smaller sizes (`--set`), or free the GPU",
        )
    if (raised := _RAISED_THERE.search(str(problem))) is not None:
        headline = f"the model's code raised {raised['kind']}: {raised['text']}"[:_LONGEST]
        return TesseraError.of(RAISED, headline, notes=_user_lines(str(problem)))
    if any(kind.startswith(("torch._dynamo.exc", "torch._inductor.exc")) for kind in kinds):
        return TesseraError.of(
            NOT_COMPILED,
            "torch.compile cannot make one graph of the model",
            notes=(first_line(problem), *_explained(problem), *_user_lines(str(problem))),
            hint="take the line out of the traced function, or use `--route eager`",
        )
    headline = f"the model's code raised {type(problem).__name__}: {first_line(problem)}"
    return TesseraError.of(RAISED, headline, notes=_places(problem))


def not_captured(problem: BaseException) -> TesseraError:
    """An error that says why a call that runs cannot be captured."""
    first = _first_cause(problem)
    if _is_memory(first) or _is_memory(problem):
        return refusal(first if _is_memory(first) else problem)
    headline = "the call cannot be captured as a CUDA graph"
    notes = (first_line(first), *_places(first))
    return TesseraError.of("TSR6003", headline, notes=notes, hint=_ADVICE)


def not_fake(problem: BaseException) -> TesseraError | None:
    """An error for a call that needs contents of tensors; None for any other failure."""
    names = {kind.__name__ for cause in chain(problem) for kind in type(cause).__mro__}
    what = next((text for name, text in _NEEDS.items() if name in names), None)
    if what is None and "SymInt" in str(problem):  # a number that was read stands for itself
        what = _NEEDS[_READS]
    if what is None:
        return _no_shapes(problem)
    notes = (first_line(problem), *_places(problem))
    hint = f"{_ADVICE}; experts can be computed by grouped products (`torch._grouped_mm`)"
    headline = f"the model {what}, and without a GPU there is none"
    return TesseraError.of("TSR6003", headline, notes=notes, hint=hint)


def _no_shapes(problem: BaseException) -> TesseraError | None:
    """An error for an operator whose result shapes PyTorch does not know; None for others."""
    said = (
        re.search(r"([\w:.]+): attempted to run .* no fake impl", str(c)) for c in chain(problem)
    )
    operator = next((match[1] for match in said if match), None)
    if operator is None:
        return None
    if "sparse" in operator:
        return TesseraError.of(
            "TSR6002",
            f"the model makes a sparse tensor (`{operator}`), which a trace cannot hold",
            notes=_places(problem),
            hint="compute with dense tensors (`.to_dense()` before the call), or pick what is"
            " there by places (`index_select`, `index_add`)",
        )
    return TesseraError.of(
        "TSR6003",
        f"PyTorch cannot run `{operator}` on tensors without memory",
        notes=_places(problem),
        hint="write it with other operators, use `--device none`, where torch.compile takes"
        " some of them apart, or capture on a machine with a GPU",
    )


def takes_functions(name: str, stack: str | None = None) -> TesseraError:
    """An error for an operator over functions, at the call or at the end of a stack."""
    if name in BRANCHES:
        headline = f"the model decides by data on the GPU (`{name}`), which a trace cannot hold"
        hint = "compute both sides and choose by `torch.where`, or loop a fixed number of times"
    else:
        headline = f"the model calls `{name}`, which takes functions: a trace cannot hold it"
        hint = (
            "use `--route ptx` or `--route library`, where torch.compile makes kernels of it, or"
            " write it without"
        )
    return TesseraError.of("TSR6002", headline, notes=_lines(stack), hint=hint)


def draws_numbers(name: str, stack: str | None = None) -> TesseraError:
    """An error for a draw of random numbers, at the call or at the end of a stack."""
    headline = f"the model draws random numbers (`{name}`), which a trace cannot hold"
    hint = (
        "switch dropout off (`.eval()`), or pass the numbers in as an input; choices by"
        " probability can be made of those: `(p.log() - (-u.log()).log()).argmax(-1)` for `u` of"
        " `torch.rand`"
    )
    return TesseraError.of("TSR6002", headline, notes=_lines(stack), hint=hint)


def _lines(stack: str | None) -> tuple[str, ...]:
    """The line of the model: that a stack of calls ends in, or that is under way."""
    if stack is not None:
        return _user_lines(stack)
    own = [frame for frame in traceback.extract_stack() if not _is_library(frame.filename)]
    return tuple(f"in `{f.name}`, {Path(f.filename).name}:{f.lineno}" for f in own[-1:])


def reads_data(stack: str, *, is_size: bool) -> TesseraError:
    """The model waits for the GPU in the place that a stack of calls ends in."""
    what = _NEEDS[_SIZES if is_size else _READS]
    notes = (*_user_lines(stack), "the call cannot be captured as a CUDA graph")
    return TesseraError.of("TSR6003", f"the model {what}", notes=notes, hint=_ADVICE)


def launches_nothing() -> TesseraError:
    """The call has no work for a GPU in it."""
    return TesseraError.of(
        "TSR6003",
        "the call launches nothing on the GPU, so there is nothing to capture",
        hint="put the model and its inputs on the GPU (`.cuda()`)",
    )


def keeps_nothing() -> Diagnostic:
    """A warning for a call without results."""
    return warning(
        "TSR6018",
        "the call returns no tensor that it computes, and changes none: the trace has no results",
        notes=("numbers, empty tensors and tensors on the host are not results of a trace",),
        hint="return the tensors themselves: in a tuple, a dictionary or a dataclass",
    )


def computes_on_host() -> TesseraError:
    """A part of the call is computed on the host, from what is not known without a GPU."""
    return TesseraError.of(
        "TSR6003",
        "the model, or a part of it, is on the host: that is computed there, not captured",
        hint="put the model and its inputs on the GPU (`.cuda()`); with `--device none` too,"
        " where no GPU is needed for that",
    )


def on_host(name: str) -> Diagnostic:
    """A warning for an input on the host."""
    headline = f"the input `{name}` is on the host: what its values decide is fixed in the trace"
    hint = "move it to the GPU (`.cuda()`) if it is data of the request"
    return warning("TSR6012", headline, hint=hint)


def fixed_constants(count: int) -> Diagnostic:
    """A note about constants of a trace."""
    what = "1 tensor is" if count == 1 else f"{count} tensors are"
    return warning(
        "TSR6012",
        f"{what} copied from the host during the call: what they hold is fixed in the trace",
        hint="make them once, on the GPU, before the call",
    )


def changed_constant(name: str) -> TesseraError:
    """A constant that the call writes: the next call would begin with what this one has left."""
    return TesseraError.of(
        "TSR6003",
        f"the model copies a tensor from the host and then changes it (`{name}`)",
        hint="make it on the GPU (`torch.full`, `torch.zeros`, `torch.arange`), or change a"
        " copy (`.clone()`)",
    )


def _first_cause(problem: BaseException) -> Exception:
    """The first exception of a chain: the end of a capture raises another after it."""
    cause, seen = problem, {id(problem)}
    while isinstance(cause.__context__, Exception) and id(cause.__context__) not in seen:
        cause = cause.__context__
        seen.add(id(cause))
    return cause if isinstance(cause, Exception) else Exception(str(cause))


def chain(problem: BaseException) -> Iterator[BaseException]:
    """An exception, and those that it came from, each once: one may come from itself."""
    seen: list[BaseException] = []
    cause: BaseException | None = problem
    while cause is not None and not any(cause is other for other in seen):
        yield cause
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__


def _is_memory(problem: BaseException) -> bool:
    return any("OutOfMemoryError" in kind.__name__ for kind in type(problem).__mro__)


def _is_full(problem: BaseException) -> bool:
    """Whether a disk has no room, or takes no files any more."""
    return isinstance(problem, OSError) and problem.errno in _FULL


def _no_room(problem: BaseException) -> TesseraError:
    cache = read_settings().cache_dir
    return TesseraError.of(
        "TSR1911",
        f"cannot write what is compiled: {first_line(problem)}",
        notes=(f"compilers write to `{cache}` and to `{tempfile.gettempdir()}`",),
        hint="make room there, or name another folder (`TESSERA_CACHE_DIR`, `TMPDIR`);"
        " `tessc cache --clear` removes what was kept",
    )


def _places(problem: BaseException) -> tuple[str, ...]:
    """The line of the model where it happened: the last that is neither a library's nor ours."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return (f"in {Path(problem.filename).name}:{problem.lineno}",)
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not own and (named := _user_lines(str(problem))):
        return named
    # Of a library's model the line in that library says more than where PyTorch gave up.
    own = own or [f for f in frames if "torch" not in Path(f.filename).parts and not _is_ours(f)]
    return tuple(f"in `{f.name}`, {Path(f.filename).name}:{f.lineno}" for f in own[-1:])


def _is_ours(frame: traceback.FrameSummary) -> bool:
    is_standard = frame.filename.startswith((*_STANDARD, str(_OURS), "<"))
    return is_standard and "site-packages" not in Path(frame.filename).parts


def _is_library(filename: str) -> bool:
    parts = Path(filename).parts
    return (
        "site-packages" in parts
        or filename.startswith("<")
        or any(filename.startswith(folder) for folder in (*_STANDARD, str(_OURS)))
    )


def first_line(problem: BaseException) -> str:
    """The text of an exception in one line."""
    lines = str(problem).strip().splitlines() or [repr(problem)]
    # `backend='inductor' raised:` says it below.
    more = " ".join(lines[:2]) if lines[0].endswith("raised:") else lines[0]
    # `CompilationError: at 68:15:` shows code, and says it in what it came from.
    if re.search(r"at [0-9]+:[0-9]+:$", more) and (last := list(chain(problem))[-1]) is not problem:
        more = f"{more} {first_line(last)}"
    return more[:_LONGEST]


def _explained(problem: BaseException) -> tuple[str, ...]:
    """The exception of the model, if the compiler gave up because of it."""
    raised = re.search(r"raised exception (.+)$", str(problem), re.MULTILINE)
    if raised is None:
        return ()
    text = re.sub(r"ConstantVariable\(\w+: ([^)]*)\)", r"\1", raised[1].strip())
    return (f"the model's code raised {text}"[:_LONGEST],)


def _user_lines(text: str) -> tuple[str, ...]:
    """The places in the model that the compiler names: its message ends in them.

    The last one, and the last one that is no library's, where that is another.
    """
    lines = [line.strip() for line in text.splitlines()]
    places = [place for line in lines if (place := _PLACE.match(line) or _CAUSE.match(line))]
    places = [place for place in places if "torch" not in Path(place["file"]).parts]
    own = [place for place in places if not _is_library(place["file"])]
    named = [*own[-1:], *places[-1:]]
    texts = (
        f"in `{place['name'] or 'the model'}`, {Path(place['file']).name}:{place['line']}"
        for place in named
    )
    return tuple(dict.fromkeys(texts))
