"""Sets of lanes: taking and putting registers, in every form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tessera.backend.ptx_executor.memory.lanes import LaneSet


@st.composite
def sets(draw):
    """A chunk and flags over its lanes: random, whole CTAs, whole threads, or nearly all."""
    ctas, threads = draw(st.integers(1, 5)), draw(st.sampled_from([1, 3, 32, 40, 64]))
    seed = draw(st.integers(0, 1 << 30))
    rng = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["random", "rows", "columns", "product", "most", "all"]))
    rows, cols = rng.random((ctas, 1)) < 0.6, rng.random((1, threads)) < 0.6
    flags = {
        "random": rng.random((ctas, threads)) < 0.3,
        "rows": np.broadcast_to(rows, (ctas, threads)),
        "columns": np.broadcast_to(cols, (ctas, threads)),
        "product": rows & cols,
        "most": rng.random((ctas, threads)) < 0.9,
        "all": np.ones((ctas, threads), bool),
    }[kind].copy()
    flags.flat[rng.integers(flags.size)] = True
    return SimpleNamespace(ctas=ctas, threads=threads), flags, rng


def uniform_shape(draw, chunk):
    return (draw(st.sampled_from([1, chunk.ctas])), draw(st.sampled_from([1, chunk.threads])))


@given(st.data(), sets())
def test_put_changes_these_lanes_only(data, made):
    chunk, flags, rng = made
    lanes = LaneSet(chunk, flags.reshape(-1))
    old = rng.integers(0, 1 << 30, uniform_shape(data.draw, chunk)).astype(np.uint32)
    height = data.draw(st.sampled_from([1, lanes.shape[0]]))
    width = data.draw(st.sampled_from([1, lanes.shape[1]]))
    new = rng.integers(0, 1 << 30, (height, width)).astype(np.uint32)
    result = np.broadcast_to(lanes.put(old, new, False), flags.shape)
    expected = np.array(np.broadcast_to(old, flags.shape), order="C")
    index = lanes.index.reshape(-1)
    wide = np.broadcast_to(new, lanes.shape).reshape(-1)
    if lanes.active is not None:
        index, wide = index[lanes.active.reshape(-1)], wide[lanes.active.reshape(-1)]
    expected.reshape(-1)[index] = wide
    assert (result == expected).all()
    assert set(index) == set(np.flatnonzero(flags))


@given(st.data(), sets())
def test_take_gives_the_lanes_own_values(data, made):
    chunk, flags, rng = made
    lanes = LaneSet(chunk, flags.reshape(-1))
    value = rng.integers(0, 1 << 30, uniform_shape(data.draw, chunk)).astype(np.uint32)
    taken = np.broadcast_to(lanes.take(value), lanes.shape)
    wide = np.broadcast_to(value, flags.shape).reshape(-1)
    assert (taken == wide[lanes.index]).all()


@given(sets())
def test_warps_and_back(made):
    chunk, flags, rng = made
    lanes = LaneSet(chunk, flags.reshape(-1))
    value = rng.integers(0, 1 << 30, lanes.shape).astype(np.uint32)
    wide = lanes.to_warps(value)
    assert wide.shape == (lanes.warp_count, 32)
    assert (lanes.from_warps(wide) == value).all()
    places = lanes.to_warps(np.broadcast_to(lanes.col, lanes.shape) % 32)
    active = lanes.warp_active
    if active is None:
        active = np.ones(wide.shape, bool)
    assert (places[active] == np.broadcast_to(np.arange(32), wide.shape)[active]).all()
    assert np.count_nonzero(active) == lanes.count
