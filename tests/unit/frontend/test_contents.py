"""Contents of buffers: seeded, read from files that may be hostile, written and read again."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.contents import write
from tessera.frontend.contents.open_contents import Contents, open_contents, open_contents_file
from tessera.frontend.contents.write import as_array, write_contents
from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Program, Role
from tessera.ir.program.scalar_text import FORMATS, float_value
from tessera.ir.program.seeded import seeded_bytes

TRACES = Path(__file__).parents[3] / "examples" / "traces"


def buffer(name: str, size: int, dtype: DataType | None = None, index: int = 0) -> Buffer:
    shape = None if dtype is None else (size // dtype.bytes,)
    return Buffer(
        id=BufferId(index), name=name, bytes=size, role=Role.INPUT, dtype=dtype, shape=shape
    )


def program(*buffers: Buffer, resident: str | None = "data.npz") -> Program:
    return Program(buffers=buffers, resident=resident)


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(TesseraError) as caught:
        action()
    return caught.value.diagnostics[0].code


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def zipped(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


# --- seeded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [DataType.F32, DataType.F64, DataType.C64, DataType.C128])
def test_seeded_wide_floats_are_uniform(dtype: DataType) -> None:
    kind = {4: "<f4", 8: "<f8"}[dtype.bytes // (2 if dtype.name.startswith("C") else 1)]
    values = seeded_bytes(buffer("x", 64 * 1024, dtype), 7).view(kind)
    assert values.min() >= -1
    assert values.max() < 1
    assert values.min() < -0.99
    assert values.max() > 0.99
    assert abs(values.mean()) < 0.03


@pytest.mark.parametrize("dtype", [DataType.F16, DataType.BF16, DataType.E4M3, DataType.E5M2])
def test_seeded_narrow_floats_are_the_wide_ones_cut_off(dtype: DataType) -> None:
    count = 4096
    wide = seeded_bytes(buffer("x", 4 * count, DataType.F32), 3).view("<f4")
    bits = seeded_bytes(buffer("x", dtype.bytes * count, dtype), 3).view(f"<u{dtype.bytes}")
    layout = FORMATS[dtype]
    for exact, pattern in zip(wide[:600].tolist(), bits[:600].tolist(), strict=True):
        magnitude = pattern & ((1 << (layout.bits - 1)) - 1)
        value = float_value(layout, pattern)
        assert -1 <= value < 1
        assert abs(value) <= abs(exact)
        assert abs(float_value(layout, magnitude + 1)) > abs(exact)
        assert (pattern >> (layout.bits - 1)) == (exact < 0)


@pytest.mark.parametrize("dtype", [None, DataType.U32, DataType.S64, DataType.B8, DataType.BOOL])
def test_seeded_integers_and_bytes_are_zero(dtype: DataType | None) -> None:
    content = seeded_bytes(buffer("x", 80, dtype), 1)
    assert content.shape == (80,)
    assert not content.any()


def test_seeded_bytes_depend_on_seed_and_name_only() -> None:
    one = seeded_bytes(buffer("x", 64, DataType.F32), 1)
    again = seeded_bytes(buffer("x", 64, DataType.F32, index=9), 1)
    other_seed = seeded_bytes(buffer("x", 64, DataType.F32), 2)
    other_name = seeded_bytes(buffer("y", 64, DataType.F32), 1)
    assert one.tobytes() == again.tobytes()
    assert one.tobytes() != other_seed.tobytes()
    assert one.tobytes() != other_name.tobytes()


def test_seeded_bytes_never_change() -> None:
    content = seeded_bytes(buffer("x", 16, DataType.F32), 0)
    assert content.tobytes().hex() == SEEDED_X


SEEDED_X = "8240763f3c3cd6be2c44d9be08f7333f"


def test_an_odd_number_of_elements() -> None:
    assert seeded_bytes(buffer("x", 12, DataType.F32), 0).shape == (12,)
    assert seeded_bytes(buffer("x", 6, DataType.BF16), 0).shape == (6,)


# --- reading -----------------------------------------------------------------------------------


def test_bundled_contents() -> None:
    trace = read_trace(TRACES / "dit.ptx")
    arrays = np.load(TRACES / "dit.npz")
    with open_contents(trace, TRACES) as contents:
        for entry in trace.declared_buffers():
            given = entry.name in arrays
            assert contents.is_given(entry) == given
            content = contents.read(entry)
            assert content.nbytes == entry.bytes
            if given:
                assert content.tobytes() == arrays[entry.name].tobytes()


def test_reference_contents_by_name() -> None:
    trace = read_trace(TRACES / "dit.ptx")
    with open_contents_file(trace, TRACES / "dit.ref.npz") as contents:
        assert [b.name for b in trace.buffers if contents.is_given(b)] == ["result"]


def test_no_resident_record_means_seeded(tmp_path: Path) -> None:
    entry = buffer("x", 64, DataType.F32)
    with open_contents(program(entry, resident=None), tmp_path, seed=5) as contents:
        assert contents.read(entry).tobytes() == seeded_bytes(entry, 5).tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [False, True])
def test_any_type_whose_bytes_fit(tmp_path: Path, order: str, compressed: bool) -> None:
    values = np.asarray(np.arange(24, dtype="<i2").reshape(2, 3, 4), order=order)  # type: ignore[call-overload]
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "data.npz", x=values)
    entry = buffer("x", 48, DataType.F32)
    with open_contents(program(entry), tmp_path) as contents:
        assert contents.read(entry).tobytes() == np.arange(24, dtype="<i2").tobytes()


def test_zero_dimensional_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.float32(2.5))
    entry = buffer("x", 4, DataType.F32)
    with open_contents(program(entry), tmp_path) as contents:
        assert contents.read(entry).view("<f4")[0] == 2.5


def test_missing_file(tmp_path: Path) -> None:
    assert code_of(lambda: open_contents(program(buffer("x", 4)), tmp_path)) == "TSR1181"


def test_links_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "real.npz", x=np.zeros(4, np.uint8))
    (tmp_path / "data.npz").symlink_to(tmp_path / "real.npz")
    wanted = program(buffer("x", 4))
    assert code_of(lambda: open_contents(wanted, tmp_path)) == "TSR1181"
    (tmp_path / "data.npz").unlink()
    (tmp_path / "data.npz").mkdir()
    assert code_of(lambda: open_contents(wanted, tmp_path)) == "TSR1181"
    (tmp_path / "data.npz").rmdir()
    os.mkfifo(tmp_path / "data.npz")
    assert code_of(lambda: open_contents(wanted, tmp_path)) == "TSR1181"


def test_other_endings_are_refused(tmp_path: Path) -> None:
    wanted = program(buffer("x", 4))
    assert code_of(lambda: open_contents_file(wanted, tmp_path / "data.pkl")) == "TSR1181"


@pytest.mark.parametrize("name", ["../data.npz", "/data.npz", "a/data.npz", "a\\data.npz"])
def test_a_program_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    np.savez(tmp_path / "data.npz", x=np.zeros(4, np.uint8))
    assert code_of(lambda: open_contents(program(buffer("x", 4), resident=name), folder)) == (
        "TSR1181"
    )


def test_wrong_size_and_unknown_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros(5, np.uint8), xx=np.zeros(4, np.uint8))
    with pytest.raises(TesseraError) as caught:
        open_contents(program(buffer("x", 4)), tmp_path)
    assert [d.code for d in caught.value.diagnostics] == ["TSR1185", "TSR1185"]
    assert "did you mean `x`?" in (caught.value.diagnostics[1].hint or "")


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return (os.mkdir, ("pickle-was-here",))


def test_pickles_are_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    zipped(tmp_path / "data.npz", x=npy(np.array([Bomb()], dtype=object)))
    assert code_of(lambda: open_contents(program(buffer("x", 8)), tmp_path)) == "TSR1183"
    assert not (tmp_path / "pickle-was-here").exists()


def test_big_endian_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros(2, ">f4"))
    assert code_of(lambda: open_contents(program(buffer("x", 8)), tmp_path)) == "TSR1183"


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_a_bomb_is_refused_before_it_is_decompressed(tmp_path: Path) -> None:
    header = npy(np.zeros(4, np.uint8))[:-4]
    zipped(tmp_path / "data.npz", x=header + bytes(30_000_000))
    assert (tmp_path / "data.npz").stat().st_size < 100_000
    wanted = program(buffer("x", 4))

    def read() -> None:
        assert code_of(lambda: open_contents(wanted, tmp_path)) == "TSR1183"

    assert peak_bytes(read) < 2_000_000


def test_a_bomb_that_lies_about_its_length(tmp_path: Path) -> None:
    header = npy(np.zeros(4, np.uint8))[:-4]
    zipped(tmp_path / "data.npz", x=header + bytes(30_000_000))
    data = (tmp_path / "data.npz").read_bytes()
    true_length = (len(header) + 30_000_000).to_bytes(4, "little")
    assert data.count(true_length) == 2
    (tmp_path / "data.npz").write_bytes(
        data.replace(true_length, (len(header) + 4).to_bytes(4, "little"))
    )
    entry = buffer("x", 4)

    def read() -> None:
        assert code_of(lambda: open_contents(program(entry), tmp_path).read(entry)) == "TSR1183"

    assert peak_bytes(read) < 2_000_000


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    stream = io.BytesIO()
    description = {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(stream, description)
    zipped(tmp_path / "data.npz", x=stream.getvalue() + bytes(10))
    for size in (10, 1 << 40):
        assert code_of(lambda s=size: open_contents(program(buffer("x", s)), tmp_path)) == "TSR1183"  # type: ignore[misc]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a zip file",
        b"PK\x05\x06" + bytes(18),
        b"PK\x03\x04" + bytes(100),
    ],
)
def test_damaged_zip_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "data.npz").write_bytes(data)
    wanted = program(buffer("x", 4))
    if data.startswith(b"PK\x05\x06"):  # an empty archive is a legal one without arrays
        with open_contents(wanted, tmp_path) as contents:
            assert not contents.is_given(wanted.buffers[0])
    else:
        assert code_of(lambda: open_contents(wanted, tmp_path)) == "TSR1183"


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"garbage",
        b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x01\x00" + (30).to_bytes(2, "little") + b"{'descr': __import__('os')}   ",
    ],
)
def test_damaged_members(tmp_path: Path, member: bytes) -> None:
    zipped(tmp_path / "data.npz", x=member)
    assert code_of(lambda: open_contents(program(buffer("x", 4)), tmp_path)) == "TSR1183"


def test_every_truncation_of_a_file_is_refused_or_right(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", x=np.arange(16, dtype=np.uint8))
    whole = (tmp_path / "whole.npz").read_bytes()
    entry = buffer("x", 16)
    for length in range(len(whole)):
        (tmp_path / "data.npz").write_bytes(whole[:length])
        assert code_of(lambda: open_contents(program(entry), tmp_path)) == "TSR1183"


def test_flipped_bytes_never_give_wrong_data(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", x=np.arange(16, dtype=np.uint8))
    whole = (tmp_path / "whole.npz").read_bytes()
    entry = buffer("x", 16)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        (tmp_path / "data.npz").write_bytes(damaged)
        try:
            with open_contents(program(entry), tmp_path) as contents:
                if contents.is_given(entry):
                    assert contents.read(entry).tobytes() == bytes(range(16))
        except TesseraError:
            pass


def test_the_same_array_twice(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("x.npy", npy(np.zeros(4, np.uint8)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", npy(np.ones(4, np.uint8)))
    assert code_of(lambda: open_contents(program(buffer("x", 4)), tmp_path)) == "TSR1183"


def test_members_that_are_not_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert code_of(lambda: open_contents(program(buffer("x", 4)), tmp_path)) == "TSR1183"


# --- safetensors -------------------------------------------------------------------------------


def read_safetensors(folder: Path, data: bytes, entry: Buffer) -> Contents:
    (folder / "data.safetensors").write_bytes(data)
    return open_contents(program(entry, resident="data.safetensors"), folder)


def test_safetensors(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "x": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]},
    }
    entry = buffer("x", 4, DataType.BF16)
    with read_safetensors(tmp_path, safetensors(header, b"abcd"), entry) as contents:
        assert contents.read(entry).tobytes() == b"abcd"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        (1 << 60).to_bytes(8, "little"),
        safetensors(b"[]"),
        safetensors(b"{"),
        safetensors(b"[" * 100_000),
        safetensors(b'{"x":{},"x":{}}'),
        safetensors({"x": 3}),
        safetensors({"x": {"dtype": "U8", "shape": [4]}}),
        safetensors({"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}),
        safetensors({"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 3]}}, b"abcd"),
        safetensors({"x": {"dtype": "U8", "shape": [4], "data_offsets": [-4, 0]}}, b"abcd"),
        safetensors({"x": {"dtype": "U8", "shape": [-2, -2], "data_offsets": [0, 4]}}, b"abcd"),
        safetensors({"x": {"dtype": "Q8", "shape": [4], "data_offsets": [0, 4]}}, b"abcd"),
        safetensors({"x": {"dtype": "U8", "shape": "abcd", "data_offsets": [0, 4]}}, b"abcd"),
    ],
)
def test_damaged_safetensors(tmp_path: Path, data: bytes) -> None:
    assert code_of(lambda: read_safetensors(tmp_path, data, buffer("x", 4))) == "TSR1183"


# --- writing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
@pytest.mark.parametrize("dtype", [None, *DataType])
def test_written_contents_are_read_back(
    tmp_path: Path, ending: str, dtype: DataType | None
) -> None:
    entry = buffer("x", 48, dtype)
    content = np.arange(48, dtype=np.uint8) % 2
    write_contents(tmp_path / f"data{ending}", [(entry, content)])
    with open_contents(program(entry, resident=f"data{ending}"), tmp_path) as contents:
        assert contents.is_given(entry)
        assert contents.read(entry).tobytes() == content.tobytes()


def test_written_arrays_have_their_type_and_shape(tmp_path: Path) -> None:
    entry = Buffer(
        id=BufferId(0), name="x", bytes=24, role=Role.OUTPUT, dtype=DataType.F32, shape=(2, 3)
    )
    content = np.arange(6, dtype="<f4").view(np.uint8)
    write_contents(tmp_path / "out.npz", [(entry, content)])
    array = np.load(tmp_path / "out.npz")["x"]
    assert array.dtype == np.float32
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert as_array(buffer("y", 4, DataType.BF16), content[:4]).dtype == np.uint8


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    entry = buffer("x", 64, DataType.F32)
    for name in ("a.npz", "b.npz"):
        write_contents(tmp_path / name, [(entry, seeded_bytes(entry, 1))])
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_file_that_has_these_bytes_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_PIECE", 16)
    place = tmp_path / "x.safetensors"
    entry, none = buffer("x", 40, DataType.U8), buffer("y", 0, DataType.U8)
    content = np.arange(40, dtype=np.uint8)

    def written(content: npt.NDArray[np.uint8]) -> int:
        parts = [content[:8], content[8:8], content[8:]]
        write_contents(place, [(entry, parts), (none, content[:0])])
        assert place.read_bytes().endswith(content.tobytes())
        return place.stat().st_ino

    first = written(content)
    with place.open("rb"):  # its number is not given to another file
        os.utime(place, (1, 1))
        assert written(content) == first
        assert place.stat().st_mtime > 1
        content[39] += 1
        second = written(content)
        assert second != first
    with place.open("ab") as longer:
        longer.write(b"!")
        longer.flush()
        assert written(content) != second
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "out.npz"
    place.write_bytes(b"old")

    def failing() -> object:
        yield buffer("x", 4), np.zeros(4, np.uint8)
        raise OSError(28, "No space left on device")

    assert code_of(lambda: write_contents(place, failing())) == "TSR1911"  # type: ignore[arg-type]
    assert place.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> object:
        yield buffer("x", 4), np.zeros(4, np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_contents(tmp_path / "out.npz", interrupted())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert code_of(lambda: write_contents(tmp_path / "no" / "out.npz", [])) == "TSR1911"
    assert code_of(lambda: write_contents(tmp_path / "out.txt", [])) == "TSR1181"
