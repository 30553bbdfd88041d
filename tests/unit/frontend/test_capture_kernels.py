"""The PTX of kernels: Triton's, that of other compilers, the user's own."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture import ptx_sources
from tessera.frontend.capture.kernels import (
    KernelSources,
    find_codes,
    find_sources,
    without_folders,
)
from tessera.frontend.ptx.read_ptx import parse_module

TEXT = """.version 8.0
.target {arch}
.address_size 64
.visible .entry {name}() {{ ret; }}
"""


class Bag:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class CompiledKernel:
    """A kernel as Triton keeps it."""

    function = 7
    src = "source"

    def __init__(self, arch: str = "sm_90a") -> None:
        self.asm = {"ptx": TEXT.format(arch=arch, name="matmul")}
        self.metadata = Bag(name="matmul", shared=64, num_warps=4)


def triton(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    package = types.ModuleType("triton")
    inner, outer = types.ModuleType("triton.compiler.compiler"), types.ModuleType("backends")
    inner.CompiledKernel = CompiledKernel  # type: ignore[attr-defined]
    outer.GPUTarget = lambda *parts: parts  # type: ignore[attr-defined]
    package.compile = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", package)
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", inner)
    monkeypatch.setitem(sys.modules, "triton.backends.compiler", outer)


def test_a_kernel_that_does_not_compile_for_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What TSR6006 reports: the code there is stays, the rest is said."""

    def compile_for(source: str, target: Any, options: dict[str, int]) -> None:
        assert (source, target, options) == ("source", ("cuda", 80, 32), {"num_warps": 4})
        raise RuntimeError("first line\nout of shared memory")

    triton(monkeypatch, compile_for)
    kernel = CompiledKernel()
    sources = find_sources([("own.ptx", TEXT.format(arch="sm_75", name="own") + "\0")])
    assert sources.triton == {7: kernel}
    names = {7: "matmul", 8: "own", 9: "gone"}
    assert [sources.knows(*one) for one in names.items()] == [True, True, False]
    kernels, problems = find_codes(names, ["sm_80", "sm_90a"], sources)
    assert [(k.function, [v.arch for v in k.variants]) for k in kernels] == [
        (7, ["sm_90a"]),
        (8, ["sm_75"]),
    ]
    assert kernels[0].variants[0].threads == 128
    assert problems == ["`matmul` does not compile for sm_80: out of shared memory"]


def test_a_kernel_is_compiled_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its libraries and its precision, and with the warps that were asked for: where warps
    have jobs of their own, the code that ran has more, and other code has not."""
    seen: list[dict[str, Any]] = []

    def compile_for(source: str, target: Any, options: dict[str, Any]) -> CompiledKernel:
        seen.append(options)
        return CompiledKernel("sm_80")

    triton(monkeypatch, compile_for)
    kernel = CompiledKernel()
    kernel.asm["ttgir"] = 'module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 8 : i32}'
    kernel.metadata = Bag(
        name="matmul",
        shared=64,
        num_warps=12,
        extern_libs=(("own", "own.bc"),),
        default_dot_input_precision="ieee",
        supported_fp8_dtypes=("fp8e4nv",),
        arch="sm90",
    )
    (code,), problems = find_codes({7: "matmul"}, ["sm_80"], KernelSources({7: kernel}, {}, {}))
    assert not problems
    assert seen == [
        {"num_warps": 8, "extern_libs": {"own": "own.bc"}, "default_dot_input_precision": "ieee"}
    ]
    assert [variant.threads for variant in code.variants] == [384, 128]


def test_assertions_name_one_file_in_all_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's cache has code of an equal kernel that was in another file; a trace has one."""

    def named(arch: str, codes: str, text: str) -> CompiledKernel:
        kernel = CompiledKernel(arch)
        size = codes.count(",") + 1
        more = f".global .align 1 .b8 assertFile_0[{size}] = {{{codes}}};\n"
        more += f".global .align 1 .b8 assertMessage_0[2] = {{{text}}};\n"
        kernel.asm["ptx"] = kernel.asm["ptx"].replace(".visible", more + ".visible")
        return kernel

    triton(monkeypatch, lambda *given, **named_too: named("sm_80", "98, 46, 112, 121, 0", "2, 0"))
    first = named("sm_90a", "97, 46, 112, 0", "1, 0")
    (code,), _ = find_codes({7: "matmul"}, ["sm_80"], KernelSources({7: first}, {}, {}))
    files = [variant.text.count("assertFile_0[4] = {97, 46, 112, 0};") for variant in code.variants]
    assert files == [1, 1]
    assert "{2, 0}" in code.variants[1].text  # everything else stays


RECORDS = """.version 8.0
.target {target}
.address_size 64
.visible .entry matmul()
{{
	.loc	1 18 0                          // kernel.py:18:0
	.loc	2 40 9, function_name $L__info_string0, inlined_at 1 20 4
	ret;
}}
	.file	1 "{folder}kernel.py"
	.file	2 "{folder}standard.py"
	.section	.debug_abbrev
	{{
.b8 1                                   // Abbreviation Code
	}}
	.section	.debug_info
	{{
.b32 .debug_abbrev                      // Offset Into Abbrev. Section
.b8 {letter}                            // DW_AT_comp_dir
	}}
	.section	.debug_str
	{{
$L__info_string0:
.b8 99                                  // string offset=0
	}}
	.section	.debug_macinfo	{{	}}
"""


@pytest.mark.parametrize("folder", ["/home/somebody/.cache/7b/", "C:\\Users\\x\\", ""])
def test_equal_kernels_have_equal_text_wherever_they_were_compiled(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """And nobody is told where: files have plain names, by which lines are still found."""
    triton(monkeypatch, lambda: None)
    kernel = CompiledKernel()
    kernel.asm = {"ptx": RECORDS.format(target="sm_90a", folder=folder, letter=ord("h"))}
    sources = KernelSources({7: kernel}, {}, {})  # type: ignore[dict-item]
    ((code,), _) = find_codes({7: "matmul"}, [], sources)
    text = code.variants[0].text
    whole = RECORDS.format(target="sm_90a", folder="", letter=0)
    before, _, _ = whole.partition("\t.section\t.debug_abbrev")
    assert text.startswith(before)
    assert text.count(".section") == 1
    assert "$L__info_string0:" in text
    assert without_folders(text) == text
    assert [kernel.name for kernel in parse_module(text, "t").kernels()] == ["matmul"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (r"/a \"b\"/kernel.py", "kernel.py"),
        (r"/a/the \"best\".py", r"the \"best\".py"),
        (r"C:\\Users\\x\\kernel.py", "kernel.py"),
        ("kernel.py", "kernel.py"),
        ("/a/", ""),
    ],
)
def test_names_of_files_that_are_written_with_escapes(given: str, wanted: str) -> None:
    text = '\t.file\t1 "{}", 12, 34\n// .file 2 "/a/b.py"\n'
    assert without_folders(text.format(given)) == text.format(wanted)


def test_equal_code_of_two_files_of_a_cache_is_equal_text() -> None:
    """Which file is named depends on what was compiled before."""
    names = ["c" + "a" * 51, "c" + "7" * 51]
    code = '\t.file\t1 "/tmp/x/{0}.py"\n\t.loc\t1 18 0 // h.py:9:2 @[ {0}.py:18:0 ]\n\tret;\n'
    first, second = (without_folders(code.format(name)) for name in names)
    assert first == second == without_folders(code.format("compiled"))
    assert without_folders(code.format("mine")).count("mine.py") == 2


def test_code_for_debuggers_keeps_the_records_that_it_must_have() -> None:
    text = RECORDS.format(target="sm_90a, debug", folder="/home/somebody/", letter=0)
    assert without_folders(text) == text.replace("/home/somebody/", "")


def test_an_architecture_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For sm_90 Triton writes code for sm_90a, and that is there already."""

    def compile_for(source: str, target: Any, options: dict[str, int]) -> CompiledKernel:
        return CompiledKernel({90: "sm_90a", 80: "sm_80"}[target[1]])

    triton(monkeypatch, compile_for)
    sources = KernelSources({7: CompiledKernel()}, {}, {})
    (code,), problems = find_codes({7: "matmul"}, ["sm_90", "sm_80", "sm_80"], sources)
    assert [variant.arch for variant in code.variants] == ["sm_90a", "sm_80"]
    assert problems == []


def test_kernels_of_numba_and_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the objects of numba-cuda 0.30 and cuda.core 1.2 have, where a GPU compiled them."""

    class CUDADispatcher:
        def __init__(self) -> None:
            asm = TEXT.format(arch="sm_90", name="_ZN3add")
            device = Bag(inspect_asm=lambda cc: None)
            whole = Bag(entry_name="_ZN3add", inspect_asm=lambda cc: asm if cc == (9, 0) else "")
            self.overloads = {"a": device, "b": whole}

    class ObjectCode:
        code_type = "ptx"
        code = TEXT.format(arch="sm_90", name="twice").encode() + b"\0"

        def get_kernel(self, name: str) -> Bag:
            return Bag(handle=f"handle of {name}")

    driver = types.ModuleType("cuda.bindings.driver")
    driver.cuKernelGetFunction = lambda h: (0, 33 if h == "handle of twice" else 0)  # type: ignore
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    torch = types.ModuleType("torch")
    torch.cuda = Bag(get_device_capability=lambda: (9, 0))  # type: ignore[attr-defined]
    for name in ("cuda", "cuda.core", "numba", "numba.cuda", "triton", "triton.compiler.compiler"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "torch", torch)
    living = [CUDADispatcher(), ObjectCode()]
    found = find_sources()
    assert living
    assert list(found.by_name) == ["_ZN3add"]
    assert list(found.by_handle) == [33]
    (code,), _ = find_codes({33: "twice"}, ["sm_80"], found)
    assert [variant.arch for variant in code.variants] == ["sm_90"]


def test_kernels_of_cupy_are_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what `RawKernel` of CuPy 14.2 has; one without source, and one that does not compile."""

    class RawKernel:
        backend = "nvrtc"

        def __init__(self, code: str | None, name: str, handle: int) -> None:
            self.code, self.name, self.options = code, name, ("-std=c++17",)
            self.kernel = Bag(ptr=handle)

    def compiled(source: str, options: tuple[str, ...]) -> str | None:
        assert options == ("-std=c++17", "--device-as-default-execution-space")
        return None if source == "wrong" else TEXT.format(arch="sm_90", name=source)

    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(ptx_sources, "compile_to_ptx", compiled)
    living = [
        RawKernel("scale", "scale", 5),
        RawKernel(None, "module", 6),
        RawKernel("wrong", "f", 7),
        RawKernel("other", "template<float>", 8),
    ]
    assert [handle for handle, _ in ptx_sources.cupy_texts()] == [5]
    assert living


def test_a_text_of_the_users_that_is_no_ptx() -> None:
    with pytest.raises(TesseraError):
        find_sources([("own.ptx", "not PTX at all")])
