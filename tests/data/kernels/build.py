"""Regenerate every PTX file of this folder from its source.

Needs `nvcc` 13.0 on PATH (its headers serve NVRTC too), and the packages
`nvidia-cuda-nvrtc==13.0.88` and `triton==3.6.0`; newer Triton writes PTX that the 580 driver does
not load. No GPU is needed.

    python tests/data/kernels/build.py [MODULE...]

The modules ptx/handwritten_*.ptx are written by hand, ptx/probe_*.ptx by `make_probes.py`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# module: (source, compiler, architecture); what ends in _strict fuses no products and sums, so that
# every rounding is in the PTX and none is left to ptxas
CUDA = {
    "elementwise": ("elementwise", "nvrtc", "sm_80"),
    "reduce": ("reduce", "nvrtc", "sm_80"),
    "groups": ("groups", "nvcc", "sm_80"),
    "shared": ("shared", "nvrtc", "sm_75"),
    "rows": ("rows", "nvcc", "sm_80"),
    "control": ("control", "nvcc", "sm_75"),
    "bits": ("bits", "nvcc", "sm_75"),
    "warp": ("warp", "nvrtc", "sm_80"),
    "memory": ("memory", "nvcc", "sm_80"),
    "atomics": ("atomics", "nvcc", "sm_80"),
    "math": ("math", "nvrtc", "sm_75"),
    "wmma": ("wmma", "nvcc", "sm_80"),
    "mma_sm80": ("mma", "nvcc", "sm_80"),
    "mma_sm89": ("mma", "nvcc", "sm_89"),
    "model": ("model", "nvrtc", "sm_80"),
    "rows_strict": ("rows", "nvcc", "sm_80"),
    "model_strict": ("model", "nvrtc", "sm_80"),
    "async": ("async", "nvcc", "sm_80"),
    "hopper": ("hopper", "nvcc", "sm_90a"),
    "system": ("system", "nvcc", "sm_75"),
    "unusual": ("unusual", "nvcc", "sm_80"),
    "unusual_90": ("unusual_90", "nvcc", "sm_90"),
}


def nvcc_path() -> Path:
    """The toolkit's compiler behind whatever wrapper is on PATH."""
    found = shutil.which("nvcc")
    if found is None:
        raise SystemExit("nvcc 13.0 is not on PATH")
    dry = subprocess.run([found, "-dryrun", "-x", "cu", os.devnull], capture_output=True, text=True)
    for line in dry.stderr.splitlines():
        if line.startswith("#$ TOP="):
            return Path(line.removeprefix("#$ TOP=").strip()) / "bin" / "nvcc"
    raise SystemExit("cannot find the toolkit of nvcc")


def compile_nvcc(source: Path, arch: str, strict: bool) -> str:
    """PTX by nvcc."""
    command = [str(nvcc_path()), "-ptx", f"-arch={arch}", "-std=c++17"]
    command += [f"-fmad={str(not strict).lower()}", source.name, "-o"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "module.ptx"
        subprocess.run([*command, str(target)], check=True, cwd=source.parent)
        return target.read_text()


def nvrtc_library() -> ctypes.CDLL:
    """The library of the `nvidia-cuda-nvrtc` package."""
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations if spec else ():
        for found in sorted(Path(place).glob("**/libnvrtc.so.13")):
            builtins = next(found.parent.glob("libnvrtc-builtins.so.13*"))
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(found))
    raise SystemExit("the package nvidia-cuda-nvrtc is not installed")


def compile_nvrtc(source: Path, arch: str, strict: bool) -> str:
    """PTX by NVRTC, with the toolkit's headers."""
    nvrtc = nvrtc_library()
    include = nvcc_path().parents[1] / "include"
    flags = [f"--gpu-architecture={arch}", "--std=c++17", f"-I{include}", f"-I{include / 'cccl'}"]
    flags.append(f"--fmad={str(not strict).lower()}")
    program = ctypes.c_void_p()
    text = source.read_text().encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
    options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    status = nvrtc.nvrtcCompileProgram(program, len(flags), options)
    size = ctypes.c_size_t()
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise SystemExit(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


def build_cuda(name: str) -> None:
    """One module from CUDA C++."""
    source, compiler, arch = CUDA[name]
    path = HERE / "sources" / f"{source}.cu"
    text = (compile_nvrtc if compiler == "nvrtc" else compile_nvcc)(
        path, arch, name.endswith("_strict")
    )
    (HERE / "ptx" / f"{name}.ptx").write_text(text)


def build_triton(names: list[str]) -> None:
    """The modules of sources/*.py that ask for Triton, all or those named."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
    sys.path.insert(0, str(HERE / "sources"))
    import triton_kernels

    facts_file = HERE / "triton.json"
    facts = json.loads(facts_file.read_text()) if facts_file.exists() else {}
    for name, text, launch in triton_kernels.modules(names):
        (HERE / "ptx" / f"{name}.ptx").write_text(text)
        facts[name] = launch
    facts_file.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


def main(names: list[str]) -> None:
    """Build the modules named, or all."""
    (HERE / "ptx").mkdir(exist_ok=True)
    for name in CUDA:
        if not names or name in names:
            build_cuda(name)
    others = [name for name in names if name not in CUDA]
    if others or not names:
        build_triton(others)


if __name__ == "__main__":
    main(sys.argv[1:])
