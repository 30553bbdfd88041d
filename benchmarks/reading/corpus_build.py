"""Build the PTX corpus: compile the sources in `corpus/sources` with many compilers, and pack it.

    python -m benchmarks.reading.corpus_build [--work DIR] [--only PRODUCER ...] [--pack]
    python -m benchmarks.reading.corpus_build --functions [--work DIR] [--pack]

Needs nvcc and ptxas 13.0 on PATH and a package index for the other compilers, each of which gets
an environment of its own under the work folder. No GPU. Sources are copied into the work folder
first, since debug information names the path they were compiled from. Every file must be accepted
by ptxas; what is refused is reported and left out. The result is `corpus/corpus.tar.xz` with a
`manifest.json` inside: producer, version, architecture, bytes, SHA-256, ptxas options, licence.

`--functions` builds `corpus/functions.tar.xz` instead: all of `sources/device_functions.py` through
eight versions of NVRTC, each for one architecture of each version, from sm_35 to sm_120a.
`TESSERA_PTXAS` names the assemblers that are asked, for the newest version ptxas 13.4.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.ptxas import architecture, assemble, ptxas_version

HERE = Path(__file__).resolve().parents[1]
SOURCES = HERE / "corpus" / "sources"
ARCHIVE = HERE / "corpus" / "corpus.tar.xz"
FUNCTIONS = ARCHIVE.with_name("functions.tar.xz")
HANDWRITTEN = HERE.parent / "tests" / "data" / "ptx" / "handwritten"
CUDA_INCLUDE = Path("/usr/local/cuda/include")

OWN = "Apache-2.0 (source in this repository)"
NVIDIA_HEADERS = "Apache-2.0 (source in this repository; includes CCCL headers: Apache-2.0 WITH LLVM-exception, and CUDA toolkit headers)"  # noqa: E501
CUTLASS = "BSD-3-Clause (CUTLASS templates) and Apache-2.0 (instantiations in this repository)"
WARP = "Apache-2.0 (Warp and the kernels in this repository)"
TRITON = "Apache-2.0 (kernels in this repository) and MIT (Triton's library functions)"
NUMBA = "Apache-2.0 (kernels in this repository) and BSD-2-Clause (Numba's run-time functions)"


@dataclass(frozen=True, slots=True)
class Work:
    """The folders of one build."""

    folder: Path

    @property
    def sources(self) -> Path:
        """The copy of the sources that is compiled."""
        return self.folder / "sources"

    def out(self, producer: str) -> Path:
        """Where a producer's PTX goes."""
        path = self.folder / "out" / producer
        path.mkdir(parents=True, exist_ok=True)
        return path

    def python(self, name: str, *requirements: str) -> str:
        """A Python with some packages, installed on first use."""
        environment = self.folder / "envs" / name
        if not environment.exists():
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
            pip = [str(environment / "bin" / "pip"), "install", "--quiet", *requirements]
            subprocess.run(pip, check=True)
        return str(environment / "bin" / "python")

    def unpacked(self, requirement: str) -> Path:
        """The files of one wheel, without installing it."""
        folder = self.folder / "wheels" / requirement.replace("==", "-")
        if not folder.exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--dest", str(folder), requirement], check=True)
            for wheel in folder.glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(folder)
                wheel.unlink()
        return folder


@dataclass(frozen=True, slots=True)
class Producer:
    """A compiler of one version: its name, the licence of what it emits, and how to run it."""

    name: str
    version: str
    licence: str
    build: Callable[[Work, Path], None]


def nvcc_jobs() -> list[tuple[str, str, list[str]]]:
    """Source, architecture and options of every nvcc run."""
    jobs: list[tuple[str, str, list[str]]] = []
    for source in ("elementwise", "reduce", "matmul", "softmax", "control", "memory", "stencil"):
        jobs += [(source, arch, []) for arch in ("75", "80", "90", "120")]
        jobs += [(source, "86", ["-Xcicc", "-O1"]), (source, "89", ["-G"])]
        jobs += [(source, "100", ["-lineinfo"]), (source, "80", ["-rdc=true"])]
        jobs += [(source, "87", ["-use_fast_math"])]
    for arch in ("80", "89", "90", "100a", "103a", "120a", "121a"):
        jobs.append(("lowprec", arch, []))
    jobs.append(("lowprec", "90a", ["-G"]))
    for arch in ("90", "90a", "100a", "100f", "110a", "120a", "121"):
        jobs.append(("hopper", arch, []))
    jobs += [("hopper", "90a", ["-G"]), ("hopper", "90a", ["-lineinfo"])]
    for source in ("libcudacxx", "cub_block"):
        jobs += [(source, arch, []) for arch in ("75", "80", "90")] + [
            (source, "90", ["-lineinfo"])
        ]
    jobs.append(("libcudacxx", "80", ["-G"]))
    libraries = ("cub_reduce", "cub_sort", "cub_select", "cub_merge", "thrust_algos", "thrust_sort")
    jobs += [(source, arch, []) for source in libraries for arch in ("75", "90")]
    jobs += [("separate", "80", ["-rdc=true", *extra]) for extra in ([], ["-G"], ["-lineinfo"])]
    return jobs


def run_nvcc(source: Path, arch: str, options: Sequence[str], target: Path) -> None:
    """Compile one source to PTX, or say why not; debug information names the current folder."""
    if target.exists():
        return
    command = ["nvcc", "-ptx", f"-arch=compute_{arch}", "-std=c++17", "--extended-lambda", "-w"]
    command += ["--expt-relaxed-constexpr", *options, "-o", str(target), str(source)]
    folder = target.parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        print(f"left out {target.name}: {done.stderr.strip()[:300]}")


def build_nvcc(work: Work, out: Path) -> None:
    """The project's own kernels, and those of the headers that come with CUDA."""
    for source, arch, options in nvcc_jobs():
        tag = "".join(options).replace("=true", "").replace("-", "_")
        target = out / f"{source}.sm_{arch}{tag}.ptx"
        run_nvcc(work.sources / "nvcc" / f"{source}.cu", arch, options, target)


def build_cutlass(work: Work, out: Path) -> None:
    """Instantiations of CUTLASS: Ampere, Hopper and Blackwell."""
    root = work.unpacked("nvidia-cutlass==4.2.0.0") / "cutlass_library" / "source"
    include = [f"-I{root}/include", f"-I{root}/tools/util/include"]
    for source in sorted((work.sources / "cutlass").glob("*.cu")):
        arch = {"sm80": "80", "sm90": "90a", "sm100": "100a"}[source.stem.split("_")[0]]
        run_nvcc(source, arch, include, out / f"{source.stem}.sm_{arch}.ptx")


def script(
    name: str, environment: str, requirements: Sequence[str], *rest: str
) -> Callable[[Work, Path], None]:
    """A producer that is a Python script in an environment of its own."""

    def build(work: Work, out: Path) -> None:
        python = work.python(environment, *requirements)
        cache = {"TRITON_CACHE_DIR": str(work.folder / "cache" / environment)}
        command = [python, str(work.sources / name), str(out), *rest]
        subprocess.run(command, env=os.environ | cache, cwd=work.folder, check=True)

    return build


def nvrtc(wheel: str, headers: str | None, archs: str, *rest: str) -> Callable[[Work, Path], None]:
    """A producer that is NVRTC of one version, taken out of its wheel."""

    def build(work: Work, out: Path) -> None:
        library = next(
            path for path in sorted(work.unpacked(wheel).rglob("libnvrtc.so*")) if path.is_file()
        )
        include = CUDA_INCLUDE
        if headers is not None:
            include = next(work.unpacked(headers).rglob("cuda_fp16.h")).parent
        path = {"LD_LIBRARY_PATH": str(library.parent)}
        main = [sys.executable, str(work.sources / "nvrtc_kernels.py")]
        arguments = [str(library), str(include), str(out), archs, *rest]
        subprocess.run([*main, *arguments], env=os.environ | path, cwd=work.folder, check=True)

    return build


def copy_handwritten(_: Work, out: Path) -> None:
    """The hand-written test inputs belong to the corpus too."""
    for path in HANDWRITTEN.glob("*.ptx"):
        shutil.copy(path, out / path.name)


TRITON_SCRIPT = "triton_kernels.py"
PRODUCERS = (
    Producer("nvcc-13.0", "13.0.88", NVIDIA_HEADERS, build_nvcc),
    Producer("cutlass-4.2.0", "CUTLASS 4.2.0, nvcc 13.0.88", CUTLASS, build_cutlass),
    Producer(
        "nvrtc-11.8",
        "11.8.89",
        OWN,
        nvrtc("nvidia-cuda-nvrtc-cu11==11.8.89", "nvidia-cuda-runtime-cu11==11.8.89", "75,86"),
    ),
    Producer(
        "nvrtc-12.1",
        "12.1.105",
        OWN,
        nvrtc("nvidia-cuda-nvrtc-cu12==12.1.105", "nvidia-cuda-runtime-cu12==12.9.79", "75,90"),
    ),
    Producer(
        "nvrtc-12.9",
        "12.9.86",
        OWN,
        nvrtc("nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-runtime-cu12==12.9.79", "80,90,120"),
    ),
    Producer("nvrtc-13.0", "13.0.88", OWN, nvrtc("nvidia-cuda-nvrtc==13.0.88", None, "90,100")),
    Producer(
        "triton-3.0.0",
        "3.0.0",
        TRITON,
        script(TRITON_SCRIPT, "triton30", ["triton==3.0.0", "setuptools<81"], "80,90,75"),
    ),
    Producer(
        "triton-3.2.0",
        "3.2.0",
        TRITON,
        script(TRITON_SCRIPT, "triton32", ["triton==3.2.0", "setuptools<81"], "80,90"),
    ),
    Producer(
        "triton-3.6.0",
        "3.6.0",
        TRITON,
        script(TRITON_SCRIPT, "triton36", ["triton==3.6.0"], "80,89,90,100"),
    ),
    Producer(
        "numba-cuda-0.30",
        "0.30.4, NVVM 13.0",
        NUMBA,
        script(
            "numba_kernels.py",
            "numba",
            ["numba-cuda[cu13]==0.30.4", "nvidia-nvvm==13.0.*", "nvidia-cuda-nvrtc==13.0.*"],
        ),
    ),
    Producer(
        "llvm-22",
        "llvmlite 0.50.0, LLVM 22.1",
        OWN,
        script("llvm_kernels.py", "llvm", ["llvmlite==0.50.0"]),
    ),
    Producer(
        "warp-1.9",
        "1.9.1",
        WARP,
        script("warp_kernels.py", "warp", ["warp-lang==1.9.1", "numpy"], "75,90"),
    ),
    Producer("handwritten", "", OWN, copy_handwritten),
)


OLD_NVRTC, NVRTC = "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc"
OLD_HEADERS = "nvidia-cuda-runtime-cu12"
VERSIONS = (
    (
        "11.8.89",
        "nvidia-cuda-nvrtc-cu11",
        "nvidia-cuda-runtime-cu11==11.8.89",
        "35,37,50,52,53,60,61,70,72,75,80",
    ),
    ("12.3.107", OLD_NVRTC, f"{OLD_HEADERS}==12.3.101", "50,52,60,61,70,75,80,87,90"),
    ("12.4.127", OLD_NVRTC, f"{OLD_HEADERS}==12.3.101", "86,61,80,52,90,70,72,50"),
    ("12.6.85", OLD_NVRTC, f"{OLD_HEADERS}==12.6.77", "90,80,75,70,62,53,50"),
    ("12.8.93", OLD_NVRTC, f"{OLD_HEADERS}==12.9.79", "100,120a,90a,89,75,60"),
    ("13.0.88", NVRTC, None, "75,80,86,89,90,100,120"),
    ("13.1.115", NVRTC, None, "86,120,100f,87,75,90,121"),
    ("13.4.92", NVRTC, None, "90a,80,100a,120a,89,103a,110,88"),
)
FUNCTION_PRODUCERS = tuple(
    Producer(
        f"nvrtc-{version}",
        version,
        OWN,
        nvrtc(f"{wheel}=={version}", headers, archs, "functions"),
    )
    for version, wheel, headers, archs in VERSIONS
)


def check_files(work: Work, producers: Sequence[Producer]) -> list[dict[str, object]]:
    """The manifest entries of all files that ptxas accepts."""
    entries: list[dict[str, object]] = []
    for producer in producers:
        for path in sorted(work.out(producer.name).glob("*.ptx")):
            text = path.read_bytes().decode()
            assembly = assemble(text)
            if not assembly.accepted:
                print(f"left out {producer.name}/{path.name}: {assembly.output.strip()[:200]}")
                continue
            entries.append(
                {
                    "file": f"{producer.name}/{path.name}",
                    "producer": producer.name,
                    "version": producer.version,
                    "arch": architecture(text),
                    "ptxas": ptxas_version(assembly.executable),
                    "ptxas_options": list(assembly.options),
                    "bytes": path.stat().st_size,
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                    "licence": producer.licence,
                }
            )
    return entries


def pack(work: Work, entries: Sequence[dict[str, object]], target: Path) -> None:
    """Write the archive; the same files give the same bytes."""
    text = json.dumps({"files": entries}, indent=1) + "\n"
    with tarfile.open(target, "w:xz", preset=9) as archive:
        _add(archive, "manifest.json", text.encode())
        for entry in entries:
            name = str(entry["file"])
            _add(archive, name, (work.folder / "out" / name).read_bytes())
    if target == ARCHIVE:
        (ARCHIVE.parent / "manifest.json").write_text(text)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size, header.mode = len(content), 0o644
    archive.addfile(header, io.BytesIO(content))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build everything, or some producers; pack unless only some were built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("/tmp/tessera-corpus"))
    parser.add_argument("--only", nargs="*", choices=[producer.name for producer in PRODUCERS])
    parser.add_argument("--functions", action="store_true", help="the archive of device functions")
    parser.add_argument("--pack", action="store_true", help="check and pack what is built")
    options = parser.parse_args(arguments)
    work = Work(options.work)
    producers: Sequence[Producer] = PRODUCERS
    target = ARCHIVE
    if options.functions:
        producers, target = FUNCTION_PRODUCERS, FUNCTIONS
    shutil.copytree(SOURCES, work.sources, dirs_exist_ok=True)
    if not options.pack:
        for producer in producers:
            if options.only is None or producer.name in options.only:
                print(f"building {producer.name}", flush=True)
                producer.build(work, work.out(producer.name))
    if options.pack or options.only is None:
        entries = check_files(work, producers)
        pack(work, entries, target)
        print(f"{len(entries)} files, {sum(int(str(e['bytes'])) for e in entries)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
