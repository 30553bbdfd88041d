"""What the host loop of the CUDA backend itself takes per request: the driver's calls cost nothing.

    python -m benchmarks.running.host_time [--requests 1500]

No GPU: the stand-in of the tests starts the backend; then the two calls of the steady state are
replaced by functions that do nothing. Microseconds of processor time of the thread that submits and
waits: the median over rounds, and the least, which a busy machine disturbs less:

- `warm_us`: as many requests under way as the host loop takes; the first of them ends when the last
  is handed over, so that nobody sleeps: only the code, its data in the caches
- `cold_us`: the same, after a sleep of 1.3 ms before each, which is how long a request of a small
  model takes: caches and the processor's clock are what they are then. `sleep_us` is what the
  sleeps take by themselves, measured the same way, and is not in it
- `paced_us`: requests that take 1.3 ms on the GPU, as many under way as the host loop takes; the
  naps of the thread are in it. `naps` are those per request; `late_us` is how long after its end a
  request is found, `late_most_us` 95 of 100. What stands for the word of a request is a Python
  object, read about twice per nap, which adds some 2 us

`bytes` are those of the input and of the output. Writes `benchmarks/results/host_time.json`.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import arguments, machine, write
from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import BackendOptions
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import Ask, inputs_of, model_of
from tests.helpers.traces import COPY, trace

ROUNDS, PERIOD_NS, JITTER = 9, 1_300_000, 0.005
STEPS = "launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[y, x, u32:64]\n"
BUFFERS = """
buffer x bytes={bytes} role=input dtype=f32 shape={words}
buffer y bytes={bytes} role=output dtype=f32 shape={words}
"""


class Gpu:
    """What stands for the GPU: requests of a slot take `PERIOD_NS`, one after the other."""

    def __init__(self, backend: CudaBackend) -> None:
        slots = len(backend.replica.roots)
        self._stages = {ready.graph: ready.stage for ready in backend.replica.ready.values()}
        self._free_ns = [0] * slots
        self._random = random.Random(1)
        self.ends_ns = [0] * len(backend.replica.done)

    def launch(self, graph: Any, stream: Any) -> tuple[int]:
        """For `cuGraphLaunch`."""
        stage = self._stages[graph]
        slot = stage % len(self._free_ns)
        took_ns = int(PERIOD_NS * (1 + JITTER * self._random.gauss(0, 1)))
        self._free_ns[slot] = max(self._free_ns[slot], time.perf_counter_ns()) + took_ns
        self.ends_ns[stage] = self._free_ns[slot]
        return (0,)


class Word:
    """The word of a stage: set when the time has come."""

    def __init__(self, ends_ns: list[int], stage: int) -> None:
        self._ends_ns = ends_ns
        self._stage = stage

    def __getitem__(self, index: int) -> int:
        return int(0 < self._ends_ns[self._stage] <= time.perf_counter_ns())

    def __setitem__(self, index: int, value: int) -> None:
        self._ends_ns[self._stage] = value


class Bench:
    """A backend on the stand-in, and requests to it."""

    def __init__(self, *, slots: int, size: int) -> None:
        program = trace(BUFFERS.format(bytes=size, words=size // 4), COPY, STEPS)
        model = model_of([program], [["gpu"]], slots=slots, lanes=slots)
        self.slots = slots
        options = BackendOptions(targets={"gpu": "cuda:0"}, timeline=False)
        self.backend = backend = CudaBackend(model, options, driver=Driver(FakeCuda()))
        # Calls that cost as good as nothing: functions in C that return what succeeds.
        driver: Any = backend.driver
        context = int(backend.replica.roots[0].context)
        driver._current = itertools.repeat((0, context)).__next__
        driver._graph_launch = {ready.graph: (0,) for ready in backend.replica.ready.values()}.get
        self.words: list[Any] = list(backend.replica.done)
        self.begun = 0
        self.dispatcher = Dispatcher(backend, slots=slots, lanes=slots)
        self.inputs = inputs_of(model, Ask(0))

    def submit(self) -> RequestHandle[Any]:
        """The next request; the first of as many as can be under way ends."""
        handle = self.dispatcher.submit(self.inputs, trace=0, lane=self.begun % self.slots)
        self.begun += 1
        self.words[self.begun % len(self.words)][0] = 1
        return handle

    def requests(self, count: int, before_each: Callable[[], object] | None = None) -> float:
        """Microseconds of this thread per request, as many under way as can be."""
        pending = [self.submit() for _ in self.words[1:]]
        begun_ns = time.thread_time_ns()
        for _ in range(count):
            if before_each is not None:
                before_each()
            pending.append(self.submit())
            pending.pop(0).result()
        spent_ns = time.thread_time_ns() - begun_ns
        for word in self.words:
            word[0] = 1
        for handle in pending:
            handle.result()
        return spent_ns / count / 1e3

    def paced(self, count: int) -> dict[str, float]:
        """Requests that take their time on the GPU."""
        backend: Any = self.backend
        gpu = Gpu(backend)
        backend.driver._graph_launch = gpu.launch
        backend._done = [Word(gpu.ends_ns, stage) for stage in range(len(self.words))]
        backend._words = [(word,) for word in backend._done]
        late_ns: list[int] = []
        naps = [0]
        take, nap = backend._completion, backend._nap.sleep

        def completion(flight: Any) -> Any:
            late_ns.append(time.perf_counter_ns() - gpu.ends_ns[flight.ready.stage])
            return take(flight)

        def sleep(now_ns: int, until_ns: int) -> Any:
            naps[0] += 1
            return nap(now_ns, until_ns)

        self.requests(60)
        backend._completion, backend._nap.sleep = completion, sleep
        spent = [self.requests(count) for _ in range(ROUNDS)]
        late_ns.sort()
        return {
            "paced_us": statistics.median(spent),
            "paced_us_least": min(spent),
            "naps": naps[0] / len(late_ns),
            "late_us": statistics.median(late_ns) / 1e3,
            "late_most_us": late_ns[len(late_ns) * 95 // 100] / 1e3,
        }

    def measure(self, count: int) -> dict[str, float]:
        """All figures."""
        found: dict[str, list[float]] = {"warm_us": [], "cold_us": [], "sleep_us": []}
        self.requests(200)
        for _ in range(ROUNDS):
            found["warm_us"].append(self.requests(count))
            found["sleep_us"].append(slept(count // ROUNDS))
            cold = self.requests(count // ROUNDS, sleep)
            found["cold_us"].append(cold - found["sleep_us"][-1])
        figures = {name: statistics.median(values) for name, values in found.items()}
        figures |= {f"{name}_least": min(values) for name, values in found.items()}
        figures |= self.paced(count // ROUNDS)
        self.dispatcher.close(wait=False)
        return {name: round(value, 2) for name, value in sorted(figures.items())}


def sleep() -> None:
    time.sleep(PERIOD_NS * 1e-9)


def slept(count: int) -> float:
    """Microseconds of this thread per sleep."""
    begun_ns = time.thread_time_ns()
    for _ in range(count):
        sleep()
    return (time.thread_time_ns() - begun_ns) / count / 1e3


def main() -> None:
    parser = arguments(__doc__, "host_time.json")
    parser.add_argument("--requests", type=int, default=1500)
    options = parser.parse_args()
    count = options.requests
    data: dict[str, object] = {
        **machine(),
        "requests": count,
        "period_us": PERIOD_NS / 1e3,
    }
    for slots, size in ((1, 256), (2, 256), (1, 1 << 18)):
        label = f"slots_{slots}_bytes_{size}"
        data[label] = Bench(slots=slots, size=size).measure(count)
        print(label, data[label], flush=True)
    write(data, options.output)


if __name__ == "__main__":
    main()
