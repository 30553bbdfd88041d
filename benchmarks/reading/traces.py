"""How long reading and printing a trace takes, at several sizes, and the memory it needs.

    python -m benchmarks.reading.traces [-o FILE]

Writes JSON: machine, Python, and for each number of launches the size of the file, the median and
all times of reading (cold PTX included), the CPU time of reading and of printing (wall time says
little on a busy machine; the load is recorded), and the peak of Python's own allocations in
a reading of its own (measuring it slows the reading down).
"""

from __future__ import annotations

import json
import random
import statistics
import time
import tracemalloc

from benchmarks.common import arguments, machine, write
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.print_trace import print_program

KERNELS = 40
PARAMETERS = 9
SEED = 20


def synthetic_trace(launches: int) -> str:
    """A trace with `KERNELS` kernels, a buffer per ten launches, and varied arguments."""
    choose = random.Random(SEED)
    buffers = max(launches // 10, 20)
    lines = ["//! tessera.trace 1"]
    lines += [
        f"//! buffer activation_{i} bytes=1048576 role=temp dtype=bf16 shape=512x1024"
        for i in range(buffers)
    ]
    for kernel in range(KERNELS):
        lines += [f"//! module m{kernel}", _module(kernel)]
    for index in range(launches):
        arguments = [_address(choose, buffers) for _ in range(4)]
        arguments += [f"u32:{choose.randrange(1 << 20)}", f"f32:{choose.randrange(1 << 12) / 8!r}"]
        arguments += [f"u32:{index}", "u64:0", "u64:0"]
        kernel = choose.randrange(KERNELS)
        lines.append(
            f"//! launch m{kernel}.{_kernel_name(kernel)} grid={choose.randrange(1, 5000)},1,1 "
            f"block=128,1,1 smem={choose.randrange(100) * 1024} args=[{', '.join(arguments)}]"
        )
    return "\n".join(lines) + "\n"


def _kernel_name(kernel: int) -> str:
    return f"triton_per_fused_add_mul_native_layer_norm_split_{kernel}"


def _address(choose: random.Random, buffers: int) -> str:
    name = f"activation_{choose.randrange(buffers)}"
    return name if choose.random() < 0.7 else f"{name}+{choose.randrange(1, 1 << 16) * 16}"


def _module(kernel: int) -> str:
    name = _kernel_name(kernel)
    types = ["u64"] * 4 + ["u32", "f32", "u32", "u64", "u64"]
    parameters = ",\n".join(f"\t.param .{t} {name}_param_{i}" for i, t in enumerate(types))
    return (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        f".visible .entry {name}(\n{parameters}\n)\n.reqntid 128\n{{\n\tret;\n}}"
    )


def measure(launches: int, repeats: int) -> dict[str, object]:
    """Times and sizes at one number of launches."""
    text = synthetic_trace(launches)
    reading, reading_cpu, printing_cpu = [], [], []
    for _ in range(repeats):
        start, start_cpu = time.perf_counter(), time.process_time()
        program = parse_trace(text)
        reading.append(time.perf_counter() - start)
        reading_cpu.append(time.process_time() - start_cpu)
        start_cpu = time.process_time()
        printed = print_program(program)
        printing_cpu.append(time.process_time() - start_cpu)
    assert printed == text, "printing must give the trace back"
    del program, printed
    tracemalloc.start()
    parse_trace(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "launches": launches,
        "file_bytes": len(text),
        "read_seconds_median": round(statistics.median(reading), 3),
        "read_seconds": [round(value, 3) for value in reading],
        "read_cpu_seconds_median": round(statistics.median(reading_cpu), 3),
        "print_cpu_seconds_median": round(statistics.median(printing_cpu), 3),
        "peak_bytes": peak,
        "peak_bytes_per_file_byte": round(peak / len(text), 2),
    }


def main() -> None:
    options = arguments(__doc__, "trace_read.json")
    options.add_argument("--launches", default="1000,10000,50000")
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    parse_trace(synthetic_trace(10))  # builds the grammars, once per process
    sizes = [int(size) for size in given.launches.split(",")]
    result = {
        "benchmark": "trace_read",
        **machine(),
        "seed": SEED,
        "repeats": given.repeats,
        "sizes": [measure(size, given.repeats) for size in sizes],
    }
    write(result, given.output)
    print(json.dumps(result["sizes"], indent=1))


if __name__ == "__main__":
    main()
