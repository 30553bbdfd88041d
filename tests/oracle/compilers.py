"""Compiles oracle kernels to PTX: by NVRTC, nvcc and clang, optimised and not.

In: the text of a kernel in the subset. Out: PTX. Which compilers there are is looked up: `nvcc` and
`clang` on the path, NVRTC by the variable ORACLE_NVRTC (a path of the library), by its wheel, or
by the system's linker. Floats are never contracted, divisions and roots are exact.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

HEADER = (Path(__file__).resolve().parent / "host" / "subset.h").read_text()
ARCH = "80"

# Every way to compile, and whether the code is as unoptimised as the host's.
WAYS = {
    "nvrtc": False,
    "nvrtc-G": True,
    "nvcc": False,
    "nvcc-G": True,
    "clang": False,
    "clang-O0": False,
}


class Uncompiled(Exception):
    """The compiler refused a text."""


def missing(way: str) -> str | None:
    """Why a way to compile is not there, or None."""
    if way.startswith("nvrtc"):
        return None if _nvrtc() is not None else "NVRTC is not installed (set ORACLE_NVRTC)"
    name = way.split("-")[0]
    return None if shutil.which(name) else f"{name} is not on the path"


def no_host_compiler() -> str | None:
    """Why kernels cannot run on the host, or None."""
    return None if shutil.which("g++") else "g++ is not on the path"


def compile_ptx(code: str, way: str) -> str:
    """The PTX of a kernel."""
    text = f"{HEADER}\n{code}"
    by: dict[str, Callable[[str, bool], str]] = {
        "nvrtc": _by_nvrtc,
        "nvcc": _by_nvcc,
        "clang": _by_clang,
    }
    return by[way.split("-")[0]](text, WAYS[way])


@functools.cache
def _nvrtc() -> ctypes.CDLL | None:
    given = os.environ.get("ORACLE_NVRTC")
    names = [given] if given else [*_wheels(), ctypes.util.find_library("nvrtc")]
    for name in names:
        if name:
            try:
                return ctypes.CDLL(name)
            except OSError:
                continue
    return None


def _wheels() -> list[str]:
    try:
        import nvidia
    except ImportError:
        return []
    found = [p for folder in nvidia.__path__ for p in Path(folder).glob("*/lib/libnvrtc.so.*")]
    return sorted(str(path) for path in found if "builtins" not in path.name)


def _by_nvrtc(text: str, debug: bool) -> str:
    library = _nvrtc()
    assert library is not None, "see `missing`"
    options = [
        f"-arch=compute_{ARCH}",
        "--fmad=false",
        "-default-device",
        *(["-G"] if debug else []),
    ]
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"case.cu", 0, None, None)
    raw = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    # With -G the folder it works in gets into its output.
    with contextlib.chdir("/"):
        failed = library.nvrtcCompileProgram(program, len(options), raw)
    what = ("Log", library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
    if not failed:
        what = ("PTX", library.nvrtcGetPTXSize, library.nvrtcGetPTX)
    size = ctypes.c_size_t()
    what[1](program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    what[2](program, room)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise Uncompiled(room.value.decode()[:2000])
    return room.value.decode()


def _by_nvcc(text: str, debug: bool) -> str:
    return _by_command(
        text, ["nvcc", "-ptx", f"-arch=sm_{ARCH}", "--fmad=false", *(["-G"] if debug else [])]
    )


def _by_clang(text: str, debug: bool) -> str:
    return _by_command(
        text,
        [
            "clang",
            "-x",
            "cuda",
            "-Wno-unknown-cuda-version",
            "--cuda-device-only",
            "-S",
            "-nocudainc",
            "-nocudalib",
            f"--cuda-gpu-arch=sm_{ARCH}",
            "-Xclang",
            "-target-feature",
            "-Xclang",
            "+ptx70",
            "-O0" if debug else "-O2",
            "-ffp-contract=off",
            "-fno-strict-aliasing",
            "-fsigned-char",
        ],
    )


def _by_command(text: str, command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "case.cu", Path(folder) / "case.ptx"
        source.write_text(text)
        done = subprocess.run(
            [*command, "-o", str(out), str(source)], capture_output=True, text=True, cwd=folder
        )
        if done.returncode:
            raise Uncompiled(done.stderr[:2000])
        return out.read_text()
