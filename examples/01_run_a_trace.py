"""Run a trace of CUDA kernels without a GPU, and check the result against NumPy.

    python examples/01_run_a_trace.py

`traces/mlp.ptx` is one step of a small perceptron: six launches of five kernels that nvcc compiled,
a memset and a memcpy. It names no contents, so its inputs and weights come from a seed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.contents.write import as_array

TRACE = Path(__file__).parent / "traces" / "mlp.ptx"
SEED = 7


def main() -> None:
    report = run_trace(TRACE, RunOptions(seed=SEED))
    found = {buffer.name: as_array(buffer, content) for buffer, content in report.kept()}

    with open_contents(report.program, TRACE.parent, seed=SEED) as contents:
        given = {b.name: as_array(b, contents.read(b)) for b in report.program.buffers}
    hidden = np.maximum(given["x"] @ given["w1"] + given["b1"], 0)
    y = hidden @ given["w2"] + given["b2"] + given["x"]
    y /= np.abs(y).max(axis=1, keepdims=True)

    worst = float(np.abs(found["y"] - y).max())
    assert worst < 1e-5, worst
    assert found["active"][0] == np.count_nonzero(hidden > 0)
    launches = len(report.result.launches)
    print(f"{launches} launches ran in {report.seconds:.2f} s; y is within {worst:.1e} of NumPy")
    for record in report.result.launches:
        print(f"  {record.kernel}")
        for access in record.result.accesses:
            read = sum(end - start for start, end in access.reads)
            wrote = sum(end - start for start, end in access.writes)
            print(f"    {access.buffer}: {read} bytes read, {wrote} written")


if __name__ == "__main__":
    main()
