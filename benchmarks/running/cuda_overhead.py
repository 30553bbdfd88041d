"""What serving costs on top of the kernels: a one-device plan against one plain CUDA graph.

    python -m benchmarks.running.cuda_overhead OUTPUT_FOLDER [--models mlp,decode]

Plain: the kernels of a request and the copies of its inputs, captured from one stream and replayed
back to back. Plan: the same kernels through the backend and its host loop, every request with
inputs and outputs of its own, as many under way as the host loop takes. The two take turns. With
more slots than one, kernels of several requests may run side by side: so the plan is also held
against the plain graph replayed on as many streams at once.

Host time is processor time of threads per request, in the steady state:

- `submit_us`: of the thread that submits and waits for results, all it does, naps too
- `collect_us`: of the host loop's own thread, which has little to do while others wait
- `process_us`: of all threads of the process, the driver's too
- `told_us`: of the first two together where futures call something at their end, so that the host
  loop's own thread collects
- `bare_us`: of a bare `cuGraphLaunch` of the same graphs, nothing else, in the same rhythm: as many
  under way, the thread asleep until one has ended
- `host_to_bare`: the sum of the first two over the third
- `copying_us`: what copying the bytes of inputs and outputs takes by itself; it is in the first two

`alone_us` is the time from `submit` to the result with nothing else under way, `plain_alone_us`
from the launch of the plain graph until the thread that waits for it is awake.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from typing import Any

from benchmarks.running.cuda_bench import WHOLE, BenchModel, facts, on_one, served, start, write
from benchmarks.running.cuda_models import CudaModel, Sizes, build
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.cuda.enqueue import Enqueuer
from tessera.backend.cuda.issue_order import Do, Move
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.ir.plan.launch_program import HOST, Queue

ROUNDS, ROUND_S = 5, 0.12
BLOCKING_EVENT = 3
MODELS = {
    "mlp": ("stack", Sizes(tokens=2048, hidden=1024, inner=4096, layers=4)),
    "mlp_small_steps": ("stack", Sizes(tokens=512, hidden=1024, inner=4096, layers=8)),
    "prefill": ("prefill", Sizes(tokens=512, hidden=1024, inner=2048, layers=4, length=512)),
    "decode": ("decode", Sizes(hidden=1024, inner=4096, layers=8, length=1024)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    result: dict[str, object] = {"machine": facts(), "rounds": ROUNDS, "round_s": ROUND_S}
    for label in arguments.models.split(","):
        name, sizes = MODELS[label]
        model = build(name, sizes)
        result[label] = {f"slots_{slots}": measure(model, slots) for slots in (1, 2, 4)}
        print(label, result[label], flush=True)
        write(arguments.folder, "cuda_overhead.json", result)


def measure(model: CudaModel, slots: int) -> dict[str, object]:
    """Plain and planned in turn; medians over rounds."""
    backend = start(served(model, on_one(model), slots, slots), WHOLE)
    plain = [plain_graph(backend, slot) for slot in range(slots)]
    dispatcher = Dispatcher(backend, slots=slots, lanes=slots)
    count = max(20, min(100, round(ROUND_S / (replay(backend, plain[:1], 5) / 1e6))))
    serve(dispatcher, model, slots, 4 * slots)
    rounds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        found = {
            "plain_us": replay(backend, plain[:1], count),
            "plain_on_as_many_streams_us": replay(backend, plain, count),
            **serve(dispatcher, model, slots, count),
            "told_us": told(dispatcher, model, slots, count),
            "alone_us": alone(dispatcher, model),
            "plain_alone_us": plain_alone(backend, plain[0]),
        }
        dispatcher.read_states(0)  # nothing is under way
        found["bare_us"] = bare(backend, slots, count)
        found["ratio"] = found["plan_us"] / found["plain_us"]
        found["host_to_bare"] = (found["submit_us"] + found["collect_us"]) / found["bare_us"]
        for name, value in found.items():
            rounds.setdefault(name, []).append(value)
    copying = copying_us(backend, model)
    dispatcher.close()
    host_us = statistics.median(rounds["submit_us"]) + statistics.median(rounds["collect_us"])
    sizes = backend.replica.buffers[0, 0]
    return {
        **{name: round(statistics.median(values), 3) for name, values in rounds.items()},
        "ratio_least_and_most": [round(min(rounds["ratio"]), 4), round(max(rounds["ratio"]), 4)],
        "copying_us": round(copying, 2),
        "host_to_bare_without_copying": round(
            (host_us - copying) / statistics.median(rounds["bare_us"]), 2
        ),
        "input_bytes": sum(view.nbytes for view in sizes.inputs.values()),
        "output_bytes": sum(view.nbytes for view in sizes.outputs.values()),
        "requests": count,
        "under_way": dispatcher.capacity,
    }


def plain_graph(backend: CudaBackend, slot: int) -> tuple[Any, Any]:
    """The kernels and the inputs they need, one after the other on one stream."""
    writer = Enqueuer(
        backend.replica.parts,
        0,
        slot,
        0,
        backend.replica.buffers[0, slot],
        backend.replica.stamps[0, slot],
    )
    tape = writer.writer
    stream = tape.stream("gpu", Queue.COMPUTE)
    for action in backend.replica.orders[0]:
        if isinstance(action, Do):
            writer.act(action)
        elif isinstance(action, Move) and action.transfer.source == HOST:
            (moved,) = action.transfer.portions
            places = tape.address("gpu", moved.buffer), writer.buffers.addresses[moved.buffer]
            links = backend.replica.parts.links
            links.copy_ranges(tape, "gpu", Queue.COMPUTE, *places, moved.bytes)
    return backend.replica.capture(tape.tape, stream, "gpu"), stream


def replay(backend: CudaBackend, graphs: list[tuple[Any, Any]], count: int) -> float:
    """Microseconds per replay, one after the other on every stream."""
    backend.driver.use(backend.replica.devices["gpu"].context)
    for graph, stream in graphs:
        backend.driver.launch_graph(graph, stream)
    backend.driver.finish()
    begun = time.perf_counter()
    for number in range(count):
        graph, stream = graphs[number % len(graphs)]
        backend.driver.launch_graph(graph, stream)
    backend.driver.finish()
    return (time.perf_counter() - begun) / count * 1e6


def serve(dispatcher: Dispatcher, model: BenchModel, slots: int, count: int) -> dict[str, float]:
    """Microseconds per request in the steady state, and processor time of both threads."""
    inputs = model.inputs(0, 0)
    clock = time.pthread_getcpuclockid(dispatcher.collector.thread.ident or 0)
    pending = [
        dispatcher.submit(inputs, trace=0, lane=i % slots) for i in range(dispatcher.capacity)
    ]
    pending.pop(0).result()
    begun = time.perf_counter(), time.thread_time(), time.clock_gettime(clock), time.process_time()
    for number in range(count):
        pending.append(dispatcher.submit(inputs, trace=0, lane=number % slots))
        pending.pop(0).result()
    ended = time.perf_counter(), time.thread_time(), time.clock_gettime(clock), time.process_time()
    for future in pending:
        future.result()
    names = ("plan_us", "submit_us", "collect_us", "process_us")
    return {
        name: (end - start) / count * 1e6
        for name, start, end in zip(names, begun, ended, strict=True)
    }


def told(dispatcher: Dispatcher, model: CudaModel, slots: int, count: int) -> float:
    """Processor time per request of both threads where every future calls something."""
    inputs = model.inputs(0, 0)
    clock = time.pthread_getcpuclockid(dispatcher.collector.thread.ident or 0)
    begun = time.thread_time() + time.clock_gettime(clock)
    done = threading.Semaphore(0)
    for number in range(count):
        future = dispatcher.submit(inputs, trace=0, lane=number % slots)
        future.add_done_callback(lambda _: done.release())
    for _ in range(count):
        done.acquire()
    return (time.thread_time() + time.clock_gettime(clock) - begun) / count * 1e6


def bare(backend: CudaBackend, slots: int, count: int) -> float:
    """Processor time of a launch of the backend's own graphs, as many under way as it has."""
    driver = backend.driver
    driver.use(backend.replica.devices["gpu"].context)
    driver.finish()
    stages = slots * backend.replica.depth
    lanes = {
        stage: stage % slots if 0 in backend.replica.of_lanes else 0 for stage in range(stages)
    }
    graphs = [backend.replica.ready[0, stage, lanes[stage], ()].graph for stage in range(stages)]
    events = [driver.call("cuEventCreate", BLOCKING_EVENT) for _ in range(stages)]
    spent = 0
    for number in range(stages + count):
        stage = number % stages
        stream = backend.replica.roots[stage % slots].stream
        if number >= stages:
            driver.call("cuEventSynchronize", events[stage])
        before = time.thread_time_ns()
        driver.cu.cuGraphLaunch(graphs[stage], stream)
        if number >= stages:
            spent += time.thread_time_ns() - before
        driver.record(events[stage], stream)
    driver.finish()
    for event in events:
        driver.destroy_event(event)
    return spent / count / 1e3


def alone(dispatcher: Dispatcher, model: CudaModel) -> float:
    """From `submit` to the result, the devices idle."""
    inputs = model.inputs(0, 0)
    found = []
    for _ in range(8):
        begun = time.perf_counter()
        dispatcher.submit(inputs, trace=0, lane=0).result()
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e6


def plain_alone(backend: CudaBackend, plain: tuple[Any, Any]) -> float:
    """From the launch of a plain graph until the thread that waits for it is awake."""
    driver, (graph, stream) = backend.driver, plain
    event = driver.call("cuEventCreate", BLOCKING_EVENT)
    found = []
    for _ in range(8):
        begun = time.perf_counter()
        driver.launch_graph(graph, stream)
        driver.record(event, stream)
        driver.call("cuEventSynchronize", event)
        found.append(time.perf_counter() - begun)
    driver.destroy_event(event)
    return statistics.median(found) * 1e6


def copying_us(backend: CudaBackend, model: CudaModel) -> float:
    """Inputs into pinned memory and outputs out of it."""
    inputs, buffers = model.inputs(0, 0), backend.replica.buffers[0, 0]
    found = []
    for _ in range(40):
        begun = time.perf_counter()
        buffers.put(inputs)
        buffers.take()
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e6


if __name__ == "__main__":
    main()
