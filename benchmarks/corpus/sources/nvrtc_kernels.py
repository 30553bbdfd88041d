"""Compile `nvrtc/*.cu` with one NVRTC: `python nvrtc_kernels.py libnvrtc.so INCLUDE OUT ARCH,...`.

With `functions` as a fifth argument the sources are those of `device_functions.py`, each for one of
the architectures by turns.

The library is called through ctypes, so no GPU, driver or Python package is needed.
"""

import ctypes
import pathlib
import sys

import device_functions

OPTIONS = {"": [], ".lineinfo": ["-lineinfo"], ".debug": ["-G"], ".rdc": ["-rdc=true"]}


def compile_ptx(nvrtc, source, name, options):
    """The PTX that NVRTC makes of `source`, or an error with its log."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None)
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    return text.value


def main(library, include, out, archs):
    """Every source for every architecture, plus debug forms for the first one."""
    nvrtc = ctypes.CDLL(library)
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((pathlib.Path(__file__).parent / "nvrtc").glob("*.cu")):
        for arch in archs:
            for suffix, extra in OPTIONS.items():
                if suffix and arch != archs[0]:
                    continue
                flags = [
                    f"--gpu-architecture=compute_{arch}",
                    "-default-device",
                    "-std=c++14",
                    f"-I{include}",
                    *extra,
                ]
                try:
                    text = compile_ptx(nvrtc, path.read_bytes(), path.name.encode(), flags)
                except RuntimeError as failure:
                    print(
                        f"left out {path.stem}.sm_{arch}{suffix}: {str(failure)[:300]}", flush=True
                    )
                    continue
                (folder / f"{path.stem}.sm_{arch}{suffix}.ptx").write_bytes(text)


def compile_functions(library, include, out, archs):
    """Every source of `device_functions`, the architectures and forms by turns."""
    nvrtc = ctypes.CDLL(library)
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    forms = [[], [], [], ["-lineinfo"], ["-use_fast_math"], ["-rdc=true"], ["-G"], ["-fmad=false"]]
    for number, (name, text) in enumerate(device_functions.sources()):
        arch, extra = archs[number % len(archs)], forms[number // len(archs) % len(forms)]
        flags = [
            f"--gpu-architecture=compute_{arch}",
            "-default-device",
            "-std=c++17",
            "-w",
            "-device-int128",
        ]
        try:
            made = compile_ptx(
                nvrtc,
                text.encode(),
                f"{name}.cu".encode(),
                [*flags, f"-I{include}", f"-I{include}/cccl", *extra],
            )
        except RuntimeError as failure:
            print(f"left out {name}.sm_{arch}: {str(failure)[:150]}", flush=True)
            continue
        (folder / f"{name}.sm_{arch}.ptx").write_bytes(made)


if __name__ == "__main__":
    chosen = compile_functions if sys.argv[5:] == ["functions"] else main
    chosen(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4].split(","))
