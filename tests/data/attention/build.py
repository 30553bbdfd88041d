"""Make the traces of this folder: attention kernels as Triton compiles them, with small inputs.

    TRITON_DISABLE_LINE_INFO=1 PYTHONPATH=. python tests/data/attention/build.py

Needs torch (a CPU build will do) and Triton, and no GPU: a stand-in for Triton's driver notes what
is launched. Every case calls the kernels as the capture does, with tiles that keep it small.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime.driver import driver

from tessera.driver.trace.build import build_program
from tessera.frontend.capture.attention.launch import Nothing, Seen, Tiles, launch
from tessera.frontend.capture.raw import RawBuffer, RawCapture, RawCode, RawLaunch, RawVariant
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import Role

HERE = Path(__file__).parent
DECODE = Tiles(rows=16, keys=32, warps=4, stages=2, packed=True, splits=2)
PREFILL = Tiles(rows=64, keys=32, warps=4, stages=1)
NUMBERS = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}
KINDS = {
    torch.bfloat16: DataType.BF16,
    torch.float32: DataType.F32,
    torch.int64: DataType.S64,
    torch.int32: DataType.S32,
    torch.uint8: DataType.U8,
    torch.bool: DataType.U8,
}


class Launcher:
    """Notes launches."""

    noted: ClassVar[list[tuple[Any, Any, tuple[int, int, int], tuple[Any, ...]]]] = []

    def __init__(self, source: Any, metadata: Any) -> None:
        self.source, self.metadata = source, metadata

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        self.noted.append((self.source, self.metadata, (x, y, z), rest[6:]))


class Utilities:
    def load_binary(self, *_: Any) -> tuple[int, ...]:
        return (1, 1, 32, 0, 1024)

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 166912, "multiprocessor_count": 108, "warpSize": 32}


class Driver:
    utils, launcher_cls = Utilities(), Launcher

    def __getattr__(self, name: str) -> Any:
        values = {"get_current_target": GPUTarget("cuda", 80, 32)}
        return lambda *_: values.get(name, 0)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).to(torch.bfloat16)


def cases() -> dict[str, tuple[dict[str, torch.Tensor], Any]]:
    """Tensors by name, and the call."""
    torch.manual_seed(5)

    def run(tiles: Tiles, seen: Seen, size: int, **more: Any) -> Any:
        def call(t: dict[str, torch.Tensor]) -> torch.Tensor:
            others = {n: x for n, x in t.items() if n not in ("q", "k", "v")}
            return launch(
                t["q"], t["k"], t["v"], seen=seen, scale=size**-0.5, tiles=tiles, **others, **more
            )

        return call

    return {
        # one token per sequence, grouped heads, a cache with a position, split in two
        "decode": (
            {
                "q": random(2, 1, 8, 64).transpose(1, 2),
                "k": random(2, 2, 128, 64),
                "v": random(2, 2, 128, 64),
                "position": torch.tensor([90]),
            },
            run(DECODE, Seen(causal=True), 64),
        ),
        # a prompt with a window, heads as MLA has them: keys larger than values
        "prefill": (
            {
                "q": random(1, 2, 70, 48),
                "k": random(1, 1, 70, 48),
                "v": random(1, 1, 70, 32),
            },
            run(PREFILL, Seen(causal=True, window=40), 48),
        ),
        # pages behind a table, lengths, a soft cap and sinks
        "paged": (
            {
                "q": random(2, 4, 1, 64),
                "k": random(6, 2, 16, 64),
                "v": random(6, 2, 16, 64),
                "table": torch.tensor([[4, 1, 2], [5, 0, 3]], dtype=torch.int32),
                "lengths": torch.tensor([19, 48]),
                "sinks": random(4),
            },
            run(replace(DECODE, splits=1), Seen(), 64, soft_cap=2.0),
        ),
        # keys that are hidden by the least of all numbers, all of them from the first sequence
        "hidden": (
            {
                "q": random(2, 4, 1, 16),
                "k": random(2, 2, 80, 16),
                "v": random(2, 2, 80, 16),
                "mask": torch.arange(80) < torch.tensor([0, 50]).reshape(2, 1, 1, 1),
            },
            run(DECODE, Seen(), 16, nothing=Nothing.MEAN),
        ),
    }


def trace(tensors: dict[str, torch.Tensor], call: Any) -> tuple[str, dict[str, np.ndarray]]:
    """The text of a trace of a call, and the contents of its inputs."""
    Launcher.noted.clear()
    out = call(tensors)
    place: dict[int, int] = {}
    buffers: list[RawBuffer] = []
    kept: list[Any] = []

    def address(tensor: torch.Tensor, name: str, role: Role) -> int:
        storage = tensor.untyped_storage()
        kept.append(storage)
        if storage.data_ptr() not in place:
            place[storage.data_ptr()] = 0x7F0000000000 + 0x100000 * len(place)
            buffers.append(
                RawBuffer(
                    name=name,
                    address=place[storage.data_ptr()],
                    bytes=storage.nbytes(),
                    role=role,
                    lasting=role is Role.INPUT,
                    dtype=KINDS[tensor.dtype],
                    shape=(storage.nbytes() // tensor.element_size(),),
                )
            )
        return place[storage.data_ptr()] + tensor.storage_offset() * tensor.element_size()

    for name, tensor in tensors.items():
        address(tensor, name, Role.INPUT)
    address(out, "out", Role.OUTPUT)
    nodes, codes = [], {}
    for source, metadata, grid, values in Launcher.noted:
        words = []
        for name, value in zip(source.fn.arg_names, values, strict=True):
            kind = source.signature.get(name, "constexpr")
            if kind.startswith("*"):
                words.append(address(value, f"t{len(buffers)}", Role.TEMP).to_bytes(8, "little"))
            elif kind != "constexpr":
                words.append(NUMBERS[kind](value).tobytes())
        threads = metadata.num_warps * 32
        variant = RawVariant(
            arch="sm_80", text=ASSEMBLED[source], shared_bytes=metadata.shared, threads=threads
        )
        codes[id(source)] = RawCode(function=id(source), variants=(variant,))
        nodes.append(
            RawLaunch(
                name=metadata.name,
                function=id(source),
                grid=grid,
                block=(threads, 1, 1),
                shared_bytes=metadata.shared,
                arguments=(*words, bytes(8), bytes(8)),
            )
        )
    raw = RawCapture(
        buffers=tuple(buffers), nodes=tuple(nodes), operators=(), codes=tuple(codes.values())
    )
    program, findings = build_program(raw)
    assert not findings, findings
    flat = {
        name: torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy().copy()
        for name, tensor in tensors.items()
    }
    return print_program(program), flat


ASSEMBLED: dict[Any, str] = {}


def stand_in() -> None:
    """Have Triton compile for a GPU that is not there, and note what is launched."""
    made = CompiledKernel.__init__

    def keep(self: Any, source: Any, *more: Any, **named: Any) -> None:
        made(self, source, *more, **named)
        ASSEMBLED[source] = self.asm["ptx"]

    CompiledKernel.__init__ = keep
    driver.set_active(Driver())


def main() -> None:
    stand_in()
    for name, (tensors, call) in cases().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        text, contents = trace(tensors, call)
        (HERE / f"{name}.ptx").write_text(text)
        np.savez_compressed(HERE / f"{name}.npz", **contents)
        sys.stdout.write(f"{name} {len(text)}\n")


if __name__ == "__main__":
    main()
