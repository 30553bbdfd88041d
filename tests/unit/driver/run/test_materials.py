"""Contents of a run: seeds, files, and files that are not to be trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.materials import Materials, read_materials
from tessera.driver.run.open_plan import open_plan
from tessera.driver.run.schedule import schedule
from tessera.ir.plan.plan import Plan
from tessera.ir.program import program as ir
from tessera.ir.text_digest import text_digest
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=64 role=input dtype=f32 shape=16
buffer i bytes=8 role=input dtype=u32 shape=2
buffer w bytes=64 role=weight dtype=f32 shape=16
buffer s bytes=64 role=state dtype=f32 shape=16
buffer y bytes=64 role=output dtype=f32 shape=16
"""
STEPS = """
launch m.copy grid=1,1,1 block=16,1,1 args=[s, x, u32:16]
launch m.copy grid=1,1,1 block=16,1,1 args=[y, w, u32:16]
"""


def program(resident: str = "") -> ir.Program:
    records = BUFFERS + (f"resident data={resident}" if resident else "")
    return trace(records, COPY, STEPS)


def make_plan(resident: str = "", contents: bytes | None = None) -> Plan:
    given = [] if contents is None else [contents]
    return plan_of([program(resident)], [["a", "b"]], contents=given)


def materials(tmp_path: Path, plan: Plan, **more: str) -> Materials:
    return read_materials(open_plan(write_plan(tmp_path, plan)), sequences=2, **more)


def test_every_request_has_its_own_inputs_and_every_lane_its_own_state(tmp_path: Path) -> None:
    found = materials(tmp_path, make_plan())
    inputs = [found.inputs(n, 0, n)["x"].tobytes() for n in range(4)]
    assert len(set(inputs)) == 4
    assert inputs[0] == found.inputs(0, 0, 0)["x"].tobytes()
    assert found.states[0]["s"].tobytes() != found.states[1]["s"].tobytes()


def test_contents_beside_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    arrays = {
        "w": np.full(16, 2, np.float32),
        "s": np.full(16, 3, np.float32),
        "i": np.array([4, 5], np.uint32),
        "x": np.full(16, 6, np.float32),
    }
    np.savez(path, **arrays)
    found = materials(tmp_path, make_plan("c.npz", path.read_bytes()))
    assert found.weights["w"].view(np.float32).tolist() == [2] * 16
    assert [lane["s"].view(np.float32)[0] for lane in found.states] == [3, 3]
    assert found.inputs(0, 0, 0)["x"].view(np.float32)[0] == 6
    assert found.inputs(1, 0, 1)["x"].view(np.float32)[0] != 6
    # A run whose results nobody waits for tells its lanes apart.
    apart = found.with_own_states({0})
    assert (apart.states[0]["s"] == found.states[0]["s"]).all()
    assert (
        apart.states[1]["s"].tobytes() == materials(tmp_path, make_plan()).states[1]["s"].tobytes()
    )
    # A seed would only give zeros, and an index that is zero everywhere tests nothing.
    assert found.inputs(1, 0, 1)["i"].view(np.uint32).tolist() == [4, 5]


def test_changed_contents_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", w=np.zeros(16, np.float32))
    plan = make_plan("c.npz", b"other bytes")
    with pytest.raises(TesseraError, match="TSR5057"):
        materials(tmp_path, plan)
    # Named by the user, the file counts, and the plan is proved for it.
    opened = open_plan(write_plan(tmp_path, plan), data=str(tmp_path / "c.npz"))
    found = read_materials(opened, sequences=1, data=str(tmp_path / "c.npz"))
    assert not found.weights["w"].any()


def test_large_contents_are_not_read_twice_for_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessera.frontend.text.plain_files.MOST_DIGESTED_BYTES", 8)
    np.savez(tmp_path / "c.npz", w=np.ones(16, np.float32))
    found = materials(tmp_path, make_plan("c.npz", b"other bytes"))
    assert found.weights["w"].view(np.float32).tolist() == [1] * 16


def test_missing_contents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TesseraError, match="TSR1181"):
        materials(tmp_path, make_plan("c.npz", b"x"))


def test_a_plan_opens_no_file_outside_its_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret.npz"
    np.savez(secret, w=np.zeros(16, np.float32))
    folder = tmp_path / "plan"
    folder.mkdir()
    (folder / "c.npz").symlink_to(secret)
    with pytest.raises(TesseraError, match="TSR1181"):
        materials(folder, make_plan("c.npz", secret.read_bytes()))


@pytest.mark.parametrize("name", ["../secret.npz", "/etc/passwd.npz", "a/b.npz"])
def test_a_trace_in_a_plan_cannot_name_a_path(tmp_path: Path, name: str) -> None:
    plan = make_plan("c.npz")
    text = plan.traces[0].text.replace("c.npz", name)
    hostile = replace(plan.traces[0], text=text, digest=text_digest(text))
    with pytest.raises(TesseraError, match=r"plain file name|TSR11"):
        materials(tmp_path, replace(plan, traces=(hostile,)))


def test_inputs_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    rows = np.arange(48, dtype=np.float32).reshape(3, 16)
    np.savez(path, x=rows, i=np.array([7, 8], np.uint32))
    found = materials(tmp_path, make_plan(), inputs=str(path))
    assert found.requests_given() == 3
    for n in range(3):
        given = found.inputs(n, 0, n)
        assert given["x"].view(np.float32).tolist() == rows[n].tolist()
        assert given["i"].view(np.uint32).tolist() == [7, 8]
    found.check_enough(schedule(3, [1.0], [(1.0, 2)]))
    with pytest.raises(TesseraError, match="`x` is given for 3 requests, not for 4"):
        found.check_enough(schedule(4, [1.0], [(1.0, 2)]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros(16, np.float32)}, "no input of the plan"),
        ({"x": np.zeros(15, np.float32)}, r"it is float32 of shape \(15,\)"),
        ({"x": np.zeros((4, 16), np.float64)}, "it is float64"),
        ({"x": np.zeros((4, 32), np.float16)}, "it is float16"),
        ({"x": np.zeros((4, 16), np.int32)}, "it is int32"),
        ({"i": np.zeros((4, 2), np.float32)}, "it is float32"),
        ({"i": np.zeros((4, 2), np.int64)}, "it is int64"),
        ({"x": np.zeros(48, np.float32)}, r"shape \(48,\)"),
        ({"x": np.zeros((16, 2), np.float32)}, r"shape \(16, 2\)"),
        ({"x": np.zeros((0, 16), np.float32)}, r"shape \(0, 16\)"),
        ({"x": np.zeros(63, np.uint8)}, "it is uint8"),
        ({"x": np.zeros((16, 1), np.complex64)}, "it is complex64"),
    ],
)
def test_inputs_that_cannot_be_used(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, **arrays)
    with pytest.raises(TesseraError, match=message) as failure:
        materials(tmp_path, make_plan(), inputs=str(path))
    assert failure.value.diagnostics[0].code == "TSR5053"


@pytest.mark.parametrize(
    ("array", "requests"),
    [
        (np.ones(16, np.float32), None),
        (np.ones(64, np.uint8).view(np.uint8), None),
        (np.ones((5, 16), np.float32), 5),
        (np.ones((1, 16), np.float32), 1),
        (np.full((5, 16), 0x3F800000, np.uint32), 5),  # bits
        (np.ones((5, 16), np.float32).view(np.uint8), 5),  # raw bytes
        (np.ones((5, 16), np.float32).view(np.uint8).reshape(-1), 5),
        (np.asfortranarray(np.ones((5, 16), np.float32)), 5),
    ],
)
def test_inputs_that_can_be_used(tmp_path: Path, array: np.ndarray, requests: int | None) -> None:
    np.savez(tmp_path / "in.npz", x=array)
    found = materials(tmp_path, make_plan(), inputs=str(tmp_path / "in.npz"))
    assert found.requests_given() == requests
    last = (requests or 7) - 1
    row = found.inputs(last, 0, last)["x"]
    assert row.tobytes() == np.ascontiguousarray(array).tobytes()[-64:]


def test_inputs_for_different_numbers_of_requests(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((5, 16), np.float32), i=np.ones((3, 2), np.uint32))
    found = materials(tmp_path, make_plan(), inputs=str(tmp_path / "in.npz"))
    with pytest.raises(TesseraError, match="`i` for 3, `x` for 5"):
        found.requests_given()
    np.savez(tmp_path / "in.npz", x=np.ones((5, 16), np.float32), i=np.ones((1, 2), np.uint32))
    found = materials(tmp_path, make_plan(), inputs=str(tmp_path / "in.npz"))
    assert found.requests_given() == 5  # one row is for all


def test_a_file_of_inputs_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TesseraError, match="TSR1181") as failure:
        materials(tmp_path, make_plan(), inputs=str(tmp_path / "in.npz"))
    assert failure.value.diagnostics[0].hint is None


def test_types_of_inputs_in_safetensors(tmp_path: Path) -> None:
    for dtype, message in (("F32", None), ("I32", "it is int32"), ("F16", "it is float16")):
        size = 64 if dtype != "F16" else 32
        head = json.dumps({"x": {"dtype": dtype, "shape": [16], "data_offsets": [0, size]}})
        path = tmp_path / f"{dtype}.safetensors"
        path.write_bytes(len(head).to_bytes(8, "little") + head.encode() + bytes(size))
        if message is None:
            assert "x" in materials(tmp_path, make_plan(), inputs=str(path)).given_inputs
            continue
        with pytest.raises(TesseraError, match=message):
            materials(tmp_path, make_plan(), inputs=str(path))


def test_data_with_an_array_of_no_buffer(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, q=np.zeros(1, np.float32))
    with pytest.raises(TesseraError, match="TSR1185"):
        materials(tmp_path, make_plan(), data=str(path))


def test_contents_that_the_machine_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessera.driver.run.materials.available_bytes", lambda: 300)
    with pytest.raises(TesseraError, match="TSR5020") as failure:
        materials(tmp_path, make_plan())
    assert failure.value.exit_code == 6


def test_an_input_of_two_traces_that_differ_in_size(tmp_path: Path) -> None:
    """One array: two rows for the one, and one for the other."""
    text = "buffer x bytes={0} role=input\nbuffer y bytes={0} role=output\n"
    programs = [trace(text.format(n), COPY, f"memcpy y x bytes={n}") for n in (64, 128)]
    plan = plan_of(programs, [["a"], ["a"]], shares=[0.5, 0.5])
    np.savez(tmp_path / "in.npz", x=np.arange(128, dtype=np.uint8))
    found = materials(tmp_path, plan, inputs=str(tmp_path / "in.npz"))
    assert found.inputs(0, 0, 1)["x"].tolist() == list(range(64, 128))
    assert found.inputs(1, 1, 1)["x"].tolist() == list(range(128))
