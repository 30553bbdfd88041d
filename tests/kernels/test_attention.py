"""The attention kernels of the capture, as Triton compiled them: results and regions.

Results are compared with NumPy in double precision: off by no more than the rounding of weights
and results to bf16.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tessera.driver.analyze import analyze
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.ir.graph.access import AddressClass, Certainty
from tests.kernels.formats import from_bf16

DATA = Path(__file__).parents[1] / "data" / "attention"


def arrays(case: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, NDArray]:
    """The inputs of a case that have these shapes, in double precision."""
    with np.load(DATA / f"{case}.npz", allow_pickle=False) as held:
        return {
            name: from_bf16(held[name].view(np.uint16)).astype(np.float64).reshape(shape)
            for name, shape in shapes.items()
        }


def ran(case: str, shape: tuple[int, ...]) -> NDArray:
    """What the trace leaves in `out`: batch, token, head, size; as batch, head, token, size."""
    options = RunOptions(data=str(DATA / f"{case}.npz"))
    report = run_trace(DATA / f"{case}.ptx", options)
    (out,) = [data for buffer, data in report.kept() if buffer.name == "out"]
    found = from_bf16(np.asarray(out).reshape(-1).view(np.uint16)).reshape(shape)
    return found.swapaxes(1, 2)


def attended(
    q: NDArray,
    k: NDArray,
    v: NDArray,
    seen: NDArray,
    cap: float = 0.0,
    sinks: NDArray | None = None,
) -> NDArray:
    """Attention in double precision; heads of keys are shared by a group."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    score = q @ k.swapaxes(2, 3) * q.shape[3] ** -0.5
    if cap:
        score = cap * np.tanh(score / cap)
    weight = np.where(seen, np.exp(score), 0.0)
    below = weight.sum(-1, keepdims=True)
    if sinks is not None:
        below = below + np.exp(sinks)[None, :, None, None]
    return weight / below @ v


def check(found: NDArray, wanted: NDArray) -> None:
    assert found.shape == wanted.shape
    assert np.linalg.norm(found - wanted) <= 0.004 * np.linalg.norm(wanted)
    assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()


def test_a_token_against_a_cache_in_two_parts() -> None:
    held = arrays("decode", {"q": (2, 1, 8, 64), "k": (2, 2, 128, 64), "v": (2, 2, 128, 64)})
    seen = np.arange(128) <= 90
    wanted = attended(held["q"].swapaxes(1, 2), held["k"], held["v"], seen)
    check(ran("decode", (2, 1, 8, 64)), wanted)


def test_a_prompt_with_a_window_and_keys_larger_than_values() -> None:
    held = arrays("prefill", {"q": (1, 2, 70, 48), "k": (1, 1, 70, 48), "v": (1, 1, 70, 32)})
    token, key = np.arange(70)[:, None], np.arange(70)[None, :]
    wanted = attended(held["q"], held["k"], held["v"], (key <= token) & (key > token - 40))
    check(ran("prefill", (1, 70, 2, 32)), wanted)


def test_pages_behind_a_table_with_lengths_a_cap_and_sinks() -> None:
    shapes = {"q": (2, 4, 1, 64), "k": (6, 2, 16, 64), "v": (6, 2, 16, 64), "sinks": (4,)}
    held = arrays("paged", shapes)
    table = np.array([[4, 1, 2], [5, 0, 3]])
    k, v = (held[n][table].swapaxes(1, 2).reshape(2, 2, 48, 64) for n in ("k", "v"))
    seen = np.arange(48) < np.array([19, 48])[:, None, None, None]
    wanted = attended(held["q"], k, v, seen, 2.0, held["sinks"])
    check(ran("paged", (2, 1, 4, 64)), wanted)


def test_a_sequence_that_sees_nothing_gets_the_mean_of_parts_that_differ_in_size() -> None:
    held = arrays("hidden", {"q": (2, 4, 1, 16), "k": (2, 2, 80, 16), "v": (2, 2, 80, 16)})
    seen = np.arange(80) < np.array([0, 50]).reshape(2, 1, 1, 1)
    held["q"][0] = 0  # all keys alike
    wanted = attended(held["q"], held["k"], held["v"], seen | ~seen.any(-1, keepdims=True))
    check(ran("hidden", (2, 1, 4, 16)), wanted)


@pytest.mark.parametrize(
    ("case", "indexed"),
    [("decode", {"k", "v"}), ("prefill", set()), ("paged", {"table", "k", "v"}), ("hidden", set())],
)
def test_all_regions_are_known_and_results_are_certain(case: str, indexed: set[str]) -> None:
    """No launch is pinned; what is read by way of a position or a table is said to be."""
    report = analyze(DATA / f"{case}.ptx")
    assert report.diagnostics == ()
    assert report.graph is not None
    names = [buffer.name for buffer in report.graph.buffers]
    by_data = set()
    for node in report.graph.nodes:
        assert node.pins == ()
        assert all(
            access.certainty is Certainty.MUST for access in node.accesses if access.kind.writes
        )
        by_data |= {
            names[access.buffer]
            for access in node.accesses
            if access.address is AddressClass.INDEXED
        }
    assert by_data == indexed
