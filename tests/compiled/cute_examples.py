"""The examples of CUTLASS for CuTe DSL, at small sizes, and what they launch.

    PYTHONPATH=. python tests/compiled/cute_examples.py OUT ARCH EXAMPLES

EXAMPLES is the folder of them in a checkout of github.com/NVIDIA/cutlass. Needs PyTorch beside what
`cute_launches.py` needs. Tensors of the GPU lie on the host, and nothing is computed: an example
ends where it compares its results, or measures.
"""

from __future__ import annotations

import gc
import runpy
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from cute_record import Recorder, prepared
from launch_files import Array, Launches

LIBRARY = prepared(sys.argv[2])

import torch
from cutlass import cute
from torch.overrides import TorchFunctionMode

# ruff: noqa: E402, E501

KINDS = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "u8", torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
}  # fmt: skip


class OnHost(TorchFunctionMode):
    """Every device is the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def there(value: Any) -> Any:
            is_device = isinstance(value, torch.device) and value.type == "cuda"
            is_name = isinstance(value, str) and value.startswith("cuda")
            return torch.device("cpu") if is_device or is_name else value

        if func is torch.Tensor.cuda:
            return args[0].clone()
        named = {name: there(value) for name, value in (kwargs or {}).items()}
        return func(*map(there, args), **named)


class Memory:
    """All tensors that there are, in place of a list of arrays."""

    def clear(self) -> None: ...

    def __iter__(self) -> Iterator[tuple[int, int, Array]]:
        seen = set()
        for tensor in gc.get_objects():
            if type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
                continue
            storage = tensor.untyped_storage()
            if not storage.nbytes() or storage.data_ptr() in seen:
                continue
            seen.add(storage.data_ptr())
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            whole = tensor.dtype in (torch.int64, torch.int32) and flat.numel() < 1024
            content = flat.tolist() if whole else None
            array = Array(KINDS[tensor.dtype], flat.numel(), content)
            yield storage.data_ptr(), storage.nbytes(), array


class Once(Launches):
    """Launches of which each is kept once."""

    def add(self, *given: Any, **named: Any) -> None:
        super().add(*given, **named)
        [*before, last] = self.rows
        facts = {name: value for name, value in last.items() if name != "name"}
        if any(all(row[name] == value for name, value in facts.items()) for row in before):
            self.rows.pop()


class End(BaseException):
    """An example has launched what it launches."""


def examples(arch: str) -> list[str]:
    """Paths with arguments."""
    ampere, hopper, first = "cute/ampere/kernel", "cute/hopper/kernel", "experimental/primitives"
    found = [
        *(f"{ampere}/elementwise/elementwise_add.py --M {m} --N {n}" for m, n in ((3, 12), (17, 260))),
        *(f"{ampere}/elementwise/elementwise_apply.py --M {m} --N {n} --op {op}" for m, n in ((3, 12), (17, 260)) for op in ("add", "mul")),
        *(f"{ampere}/dense_gemm/sgemm.py --mnk {size} --a_major {a} --b_major {b} --c_major {c}{static}" for size, a, b, c in (("128,128,16", "m", "k", "n"), ("140,60,20", "k", "n", "m"), ("64,132,9", "m", "n", "n")) for static in ("", " --static_shape")),
        *(f"{ampere}/dense_gemm/tensorop_gemm.py --mnkl {size} --a_major {a} --b_major {b} --c_major {c}" for size in ("128,128,64,1", "136,72,40,2") for a, b, c in (("m", "n", "n"), ("k", "k", "m"))),
        *(f"{ampere}/attention/flash_attention_v2.py --batch_size 1 --seqlen_q {q} --seqlen_k {k} --num_head 2 --head_dim {d} --m_block_size 64 --n_block_size 64{causal}" for q, k, d in ((64, 64, 32), (70, 100, 64)) for causal in ("", " --is_causal")),
        *(f"{hopper}/cta_norm/cta_norm.py --M {m} --N {n} --norm_type {kind} --dtype {dtype}" for m, n in ((2, 256), (3, 520)) for kind in ("layer", "rms") for dtype in ("fp16", "fp32")),
    ]  # fmt: skip
    if arch != "sm_80":
        found += [
            *(f"{hopper}/dense_gemm/dense_gemm.py --mnkl {size} --tile_shape_mn {tile} --cluster_shape_mn {cluster} --c_major {c}" for size, tile in (("64,64,64,1", "64,64"), ("136,72,40,2", "64,64"), ("128,128,64,1", "128,128")) for cluster in ("1,1", "2,1") for c in "nm"),
            *(f"cute/blackwell/tutorial/tutorial_tma/tma_v{i}.py --M 128 --N 128" for i in range(3)),
        ]  # fmt: skip
    names = [
        "barrier_cta_sync",
        "barrier_cta_red",
        "basic_types",
        "cp_async_mbarrier_arrive_cta",
        "cp_async_shared_global",
        "cp_async_shared_global_swizzled",
        "ldmatrix_stmatrix",
        "red",
        "redux_sync",
        "shfl_sync",
        "vote_sync",
        "warp_named_barrier",
        "bar_warp_sync",
        "reduction/block_smem_reduce",
        "reduction/thread_vector_reduce",
        "reduction/warp_vector_reduce",
        "tutorial/02_naive_gemm",
        "tutorial/03_gemm_tiled_smem",
        "tutorial/07_vectorized_array",
    ]
    if arch != "sm_80":
        names += [
            "async_pipeline",
            "cp_async_bulk",
            "cp_async_bulk_prefetch",
            "cp_async_mbarrier_arrive_cluster",
            "elect_sync",
            "mapa",
            "mbarrier",
            "mbarrier_lifecycle",
            "pipeline_software_fill",
            "reduction/cluster_smem_reduce",
            "tma/tma_1cta_mbarrier",
            "tma/tma_load_store",
            "tma/tma_load_to_ldmatrix",
            "tma/tma_multicast",
            "tma/tma_pipeline_count2",
            "tma/tma_pipeline_pingpong",
            "tma/tma_pipeline_single_warp",
            "tma/tma_pipeline_warpspec",
            "tma/tma_store",
            "tma/tma_swizzle_modes",
            "tma/tma_tensormap_replace",
            "tutorial/04_tma_load",
            "tutorial/06_softmax",
            "tutorial/09_tma_4d_to_2d",
        ]
    return found + [f"{first}/{name}.py" for name in names]


def main(out: str, arch: str, folder: str, *only: str) -> None:
    import cutlass
    from cutlass.cute import runtime, testing

    version = cutlass.__version__.replace(".", "_")
    launches = Once(out, f"cute_examples_{version}_{arch[3:]}")
    recorder = Recorder(LIBRARY, launches)
    recorder.arrays = Memory()

    def end(*_: Any, **__: Any) -> None:
        raise End

    compiled, made = cute.compile, runtime._Tensor.__init__

    def plain(*given: Any, **named: Any) -> Any:
        if "options" in named:
            named["options"] = named["options"].replace("--enable-tvm-ffi", "").strip()
        return compiled(*given, **{n: v for n, v in named.items() if n != "options" or v})

    def without(this: Any, *given: Any, **named: Any) -> None:
        made(this, *given, **named | {"enable_tvm_ffi": False})

    stream = mock.Mock(cuda_stream=0)
    said = {"is_available": True, "current_stream": stream, "synchronize": None, "get_device_capability": (9, 0), "init": None, "current_device": 0}  # fmt: skip
    for name, value in said.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    torch.cuda.Event = end
    testing.benchmark = end
    cute.compile, runtime._Tensor.__init__ = plain, without
    sys.path.insert(0, folder)
    for line in examples(arch):
        path, *arguments = line.split()
        if only and not any(name in path for name in only):
            continue
        before = len(launches.rows)
        sys.argv = [path, *arguments]
        why = ""
        try:
            with OnHost(), redirect_stdout(StringIO()):
                runpy.run_path(str(Path(folder) / path), run_name="__main__")
        except BaseException as error:
            why = repr(error)[:200]
        recorder.compiled.clear()
        print(f"{line}: {len(launches.rows) - before} launches {why}", file=sys.stderr, flush=True)
    launches.write()
    print(*recorder.left_out, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
