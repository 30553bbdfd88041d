"""What serving costs on top of the kernels: a one-device plan against one plain CUDA graph.

    python -m benchmarks.run_cuda_overhead OUTPUT_FOLDER

Plain: the kernels of a request and the copies of its inputs, captured from one stream and replayed
back to back. Plan: the same kernels through the backend and its host loop, every request with
inputs and outputs of its own. The two take turns. With one slot the GPU waits for the host between
requests; with more it need not, and kernels of several requests may run side by side. So the plan
is also held against the plain graph replayed on as many streams at once.

Host time is that of the thread that makes the call: of `begin` for the backend, of `submit` with
all of the host loop, against a bare `cuGraphLaunch` of the very same graph while the stream is
empty.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.cuda_bench import WHOLE, facts, on_one, served, start, write
from benchmarks.cuda_models import CudaModel, Sizes, build
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.enqueue import Enqueuer
from tessera.backend.cuda.issue_order import Do, Move
from tessera.backend.dispatch import Dispatcher
from tessera.backend.service import Request
from tessera.ir.launch_program import HOST, Queue

ROUNDS, REQUESTS = 5, 60
MODELS = {
    "mlp": ("stack", Sizes(tokens=2048, hidden=1024, inner=4096, layers=4)),
    "mlp_small_steps": ("stack", Sizes(tokens=512, hidden=1024, inner=4096, layers=8)),
    "prefill": ("prefill", Sizes(tokens=512, hidden=1024, inner=2048, layers=4, length=512)),
    "decode": ("decode", Sizes(hidden=1024, inner=4096, layers=8, length=1024)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    arguments = parser.parse_args()
    result: dict[str, object] = {"machine": facts(), "rounds": ROUNDS, "requests": REQUESTS}
    for label, (name, sizes) in MODELS.items():
        model = build(name, sizes)
        result[label] = {f"slots_{slots}": measure(model, slots) for slots in (1, 2, 4)}
        print(label, result[label], flush=True)
        write(arguments.folder, "cuda_overhead.json", result)


def measure(model: CudaModel, slots: int) -> dict[str, object]:
    """Plain and planned in turn; medians over rounds."""
    backend = start(served(model, on_one(model), slots, slots), WHOLE)
    plain = [plain_graph(backend, slot) for slot in range(slots)]
    dispatcher = Dispatcher(backend, slots=slots, lanes=slots)
    serve(dispatcher, model, slots, 2 * slots)
    plain_us, together_us, plan_us, submit_us = [], [], [], []
    for _ in range(ROUNDS):
        plain_us.append(replay(backend, plain[:1], REQUESTS))
        together_us.append(replay(backend, plain, REQUESTS))
        took, submitting = serve(dispatcher, model, slots, REQUESTS)
        plan_us.append(took)
        submit_us.append(submitting)
    ratios = [plan / bare for plan, bare in zip(plan_us, plain_us, strict=True)]
    host = host_times(backend, model)
    dispatcher.close()
    return {
        "plain_graph_us": round(statistics.median(plain_us), 1),
        "plain_graph_on_as_many_streams_us": round(statistics.median(together_us), 1),
        "plan_us": round(statistics.median(plan_us), 1),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_least_and_most": [round(min(ratios), 4), round(max(ratios), 4)],
        "submit_us": round(statistics.median(submit_us), 2),
        **host,
    }


def plain_graph(backend: CudaBackend, slot: int) -> tuple[Any, Any]:
    """The kernels and the inputs they need, one after the other on one stream."""
    writer = Enqueuer(
        backend._parts, 0, slot, 0, backend._buffers[0, slot], backend._stamps[0, slot]
    )
    stream = writer.stream("gpu", Queue.COMPUTE)
    for action in backend._orders[0]:
        if isinstance(action, Do):
            writer._act(action)
        elif isinstance(action, Move) and action.transfer.source == HOST:
            buffer = action.transfer.buffer
            places = writer.address("gpu", buffer), writer.buffers.addresses[buffer]
            writer.copy_ranges("gpu", Queue.COMPUTE, *places, action.transfer.bytes)
    return backend._capture(writer.tape, stream, "gpu"), stream


def replay(backend: CudaBackend, graphs: list[tuple[Any, Any]], count: int) -> float:
    """Microseconds per replay, one after the other on every stream."""
    backend.driver.use(backend.devices["gpu"].context)
    for graph, stream in graphs:
        backend.driver.launch_graph(graph, stream)
    backend.driver.finish()
    begun = time.perf_counter()
    for number in range(count):
        graph, stream = graphs[number % len(graphs)]
        backend.driver.launch_graph(graph, stream)
    backend.driver.finish()
    return (time.perf_counter() - begun) / count * 1e6


def serve(dispatcher: Dispatcher, model: CudaModel, slots: int, count: int) -> tuple[float, float]:
    """Microseconds per request in the steady state, and of its submission but for waiting."""
    inputs = model.inputs(0, 0)
    warm = [dispatcher.submit(inputs, trace=0, lane=i % slots) for i in range(2 * slots)]
    for future in warm:
        future.result()
    pending: list[Any] = []
    submitting = 0.0
    begun = time.perf_counter()
    for number in range(count):
        if len(pending) == slots:
            pending.pop(0).result()
        before = time.thread_time()
        pending.append(dispatcher.submit(inputs, trace=0, lane=number % slots))
        submitting += time.thread_time() - before
    for future in pending:
        future.result()
    return (time.perf_counter() - begun) / count * 1e6, submitting / count * 1e6


def host_times(backend: CudaBackend, model: CudaModel) -> dict[str, object]:
    """Host microseconds of `begin` and of a bare launch of the same graph, streams empty."""
    inputs = model.inputs(0, 0)
    request = Request(number=0, trace=0, slot=0, lane=0, inputs=inputs)
    ready = backend._ready[0, 0, 0]
    driver = backend.driver
    begin, bare, inputs_us, collect = [], [], [], []
    for _ in range(40):
        driver.use(ready.context)
        driver.finish()
        at = time.perf_counter()
        driver.cu.cuGraphLaunch(ready.graph, ready.stream)
        bare.append(time.perf_counter() - at)
        driver.finish()
        at = time.perf_counter()
        ready.buffers.put(inputs)
        inputs_us.append(time.perf_counter() - at)
        at = time.perf_counter()
        backend.begin(request)
        begin.append(time.perf_counter() - at)
        at = time.thread_time()
        while not backend.collect(5.0):
            pass
        collect.append(time.thread_time() - at)
    took = {
        "begin_us": statistics.median(begin) * 1e6,
        "bare_launch_us": statistics.median(bare) * 1e6,
        "copying_inputs_us": statistics.median(inputs_us) * 1e6,
        "collect_us": statistics.median(collect) * 1e6,
    }
    share = (took["begin_us"] - took["copying_inputs_us"]) / took["bare_launch_us"]
    rounded: dict[str, object] = {name: round(value, 2) for name, value in took.items()}
    sizes = {name: view.nbytes for name, view in ready.buffers.inputs.items()}
    return rounded | {
        "begin_to_bare": round(took["begin_us"] / took["bare_launch_us"], 2),
        "begin_to_bare_without_copying": round(share, 2),
        "input_bytes": sum(sizes.values()),
    }


if __name__ == "__main__":
    main()
