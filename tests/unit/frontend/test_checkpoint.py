"""Checkpoint folders: what is in them by name, and everything that may be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.contents.checkpoint import Checkpoint, open_checkpoint, weights_of
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import Program
from tests.helpers.checkpoints import INDEX, sharded, write, write_index

TRACE = """//! tessera.trace 1
//! buffer model.embed.weight bytes=64 role=weight dtype=bf16 shape=8x4
//! buffer model.norm.weight bytes=16 role=weight dtype=f32 shape=4
//! buffer x bytes=16 role=input dtype=f32 shape=4
"""
EMBED = ("model.embed.weight", "BF16", (8, 4), bytes(range(64)))
NORM = ("model.norm.weight", "F32", (4,), bytes(range(100, 116)))


def program(text: str = TRACE) -> Program:
    return parse_trace(text, "t.ptx")


def taken(folder: Path, text: str = TRACE, given: tuple[str, ...] = ()) -> dict[str, bytes]:
    checkpoint = open_checkpoint(folder)
    try:
        weights = weights_of(program(text), checkpoint, given)
        return {name: weights.read(name).tobytes() for name in weights.tensor_of}
    finally:
        checkpoint.close()


def refused(folder: Path, text: str = TRACE, given: tuple[str, ...] = ()) -> tuple[str, str]:
    with pytest.raises(TesseraError) as caught:
        taken(folder, text, given)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.code, "\n".join((str(diagnostic.headline), *diagnostic.notes))


@pytest.mark.parametrize("in_one", [True, False])
def test_tensors_go_to_the_buffers_of_their_names(tmp_path: Path, *, in_one: bool) -> None:
    if in_one:
        write(tmp_path / "model.safetensors", EMBED, NORM, metadata={"format": "pt"})
    else:
        sharded(tmp_path, EMBED, NORM)
    assert taken(tmp_path) == {EMBED[0]: EMBED[3], NORM[0]: NORM[3]}


def test_what_the_trace_does_not_have_is_left_alone(tmp_path: Path) -> None:
    other = ("lm_head.weight", "I64", (1,), bytes(8))
    sharded(tmp_path, EMBED, other, NORM)
    assert sorted(taken(tmp_path)) == [EMBED[0], NORM[0]]


@pytest.mark.parametrize(("off", "on"), [("model.", ""), ("", "wrapped.inner.")])
def test_one_prefix_may_be_more_or_less(tmp_path: Path, off: str, on: str) -> None:
    tensors = [(on + t[0].removeprefix(off), *t[1:]) for t in (EMBED, NORM)]
    sharded(tmp_path, *tensors)
    assert taken(tmp_path) == {EMBED[0]: EMBED[3], NORM[0]: NORM[3]}


def test_all_that_is_missing_or_does_not_fit_is_in_one_message(tmp_path: Path) -> None:
    more = TRACE + "//! buffer extra bytes=8 role=weight dtype=f16 shape=2x2\n"
    more += "//! buffer mask bytes=2 role=weight dtype=bool shape=2\n"
    sharded(
        tmp_path,
        ("model.embed.weight", "BF16", (4, 8), bytes(64)),
        ("model.norm.weight", "BF16", (4,), bytes(8)),
        ("mask", "BOOL", (2,), bytes(2)),
    )
    code, text = refused(tmp_path, more)
    assert code == "TSR1187"
    assert "1 of its weights are missing, 2 tensors do not fit" in text
    assert "`model.embed.weight` has the shape [4, 8] in the checkpoint, and [8, 4]" in text
    assert "`model.norm.weight` is BF16 in the checkpoint, and f32 in the trace" in text
    assert "missing: `extra`, f16 of shape [2, 2], 8 bytes" in text
    assert "1 weights are there and fit" in text


def test_what_the_capture_gives_need_not_be_there(tmp_path: Path) -> None:
    sharded(tmp_path, EMBED)
    assert sorted(taken(tmp_path, given=(NORM[0],))) == [EMBED[0]]


def test_rows_that_lie_otherwise_are_refused(tmp_path: Path) -> None:
    """A parameter that was not contiguous has no shape in a trace."""
    sharded(tmp_path, EMBED, NORM)
    loose = TRACE.replace(" shape=8x4", "").replace("dtype=f32 shape=4", "dtype=f32", 1)
    code, text = refused(tmp_path, loose)
    assert code == "TSR1187"
    assert "`model.embed.weight` was not contiguous" in text
    assert "model.norm.weight" not in text


def test_a_shared_tensor_is_found_by_what_the_file_says(tmp_path: Path) -> None:
    kept = ("a.weight", *EMBED[1:])
    write(tmp_path / "model.safetensors", kept, NORM, metadata={EMBED[0]: kept[0]})
    assert taken(tmp_path)[EMBED[0]] == EMBED[3]


@pytest.mark.parametrize("nested", [True, False])
def test_tied_embeddings_are_the_tensor_with_a_row_per_word(
    tmp_path: Path, *, nested: bool
) -> None:
    kept = ("other.name", *EMBED[1:])
    sharded(tmp_path, kept, NORM)
    config: dict[str, object] = {"tie_word_embeddings": True, "vocab_size": 8}
    text = json.dumps({"text_config": config} if nested else config)
    (tmp_path / "config.json").write_text(text)
    assert taken(tmp_path)[EMBED[0]] == EMBED[3]
    (tmp_path / "config.json").write_text(text.replace("true", "false"))
    assert refused(tmp_path)[0] == "TSR1187"


def test_of_two_tensors_with_a_row_per_word_none_is_guessed(tmp_path: Path) -> None:
    sharded(tmp_path, ("a", *EMBED[1:]), ("b", *EMBED[1:]), NORM)
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true, "vocab_size": 8}')
    assert "missing: `model.embed.weight`" in refused(tmp_path)[1]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "it has no safetensors file"),
        ({"pytorch_model.bin": b"x"}, "`pytorch_model.bin` is pickled"),
        ({"a.safetensors": b"", "b.safetensors": b""}, "2 safetensors files and no index"),
        ({"a" + INDEX: b"{}", "b" + INDEX: b"{}"}, "it has 2 indices"),
        ({INDEX: b"{"}, "it is not JSON"),
        ({INDEX: b"[" * 200_000}, "it is not JSON"),
        ({INDEX: b"[]"}, "it has no `weight_map`"),
        ({INDEX: b'{"weight_map": {}}'}, "it has no `weight_map`"),
        ({INDEX: b'{"weight_map": {"a": 1}}'}, "the file of `a` is no plain name"),
        ({INDEX: b'{"weight_map": {"a": "../x.safetensors"}}'}, "is no plain name"),
        ({INDEX: b'{"weight_map": {"a": "x.bin"}}'}, "is no plain name"),
    ],
)
def test_a_folder_that_is_no_checkpoint(tmp_path: Path, files: dict[str, bytes], said: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    code, text = refused(tmp_path)
    assert code == "TSR1187"
    assert said in text


def test_no_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == (
        "TSR1187",
        f"`{tmp_path / 'none'}` is no checkpoint: it cannot be listed: no such file or directory",
    )


def test_a_shard_that_is_not_there(tmp_path: Path) -> None:
    sharded(tmp_path, EMBED, NORM)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    code, text = refused(tmp_path)
    assert code == "TSR1181"
    assert "model-00002-of-00002.safetensors" in text


def test_an_index_that_lies(tmp_path: Path) -> None:
    sharded(tmp_path, EMBED, NORM)
    one, two = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    write_index(tmp_path, {EMBED[0]: one, NORM[0]: one, "z": two})
    code, text = refused(tmp_path)
    assert code == "TSR1187"
    assert f"`{NORM[0]}` is not in `{one}`" in text
    assert f"`z` is not in `{two}`" in text
    write(tmp_path / two, EMBED, NORM)
    write_index(tmp_path, {EMBED[0]: one, NORM[0]: two})
    assert f"`{EMBED[0]}` is in `{one}` and in `{two}`" in refused(tmp_path)[1]


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    sharded(tmp_path, EMBED, NORM)
    place = tmp_path / "model-00001-of-00002.safetensors"
    place.write_bytes(place.read_bytes()[:-3])
    code, text = refused(tmp_path)
    assert code == "TSR1183"
    assert str(place) in text


def test_tensors_are_mapped_and_outlive_the_checkpoint(tmp_path: Path) -> None:
    sharded(tmp_path, EMBED, NORM)
    checkpoint: Checkpoint = open_checkpoint(tmp_path)
    content = checkpoint.read(EMBED[0])
    checkpoint.close()
    assert not content.flags.writeable
    assert not content.flags.owndata
    np.testing.assert_array_equal(content, np.frombuffer(EMBED[3], np.uint8))


def test_links_as_in_caches_of_model_hubs(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    write(blobs / "abc", EMBED, NORM)
    (snapshot / "model.safetensors").symlink_to(blobs / "abc")
    assert refused(snapshot)[0] == "TSR1181"
    checkpoint = open_checkpoint(snapshot, str(tmp_path))
    assert sorted(checkpoint.types) == [EMBED[0], NORM[0]]
    checkpoint.close()


def test_a_capture_does_not_stand_in_for_a_parameter_that_is_missing(tmp_path: Path) -> None:
    """What the model computes when it is made is saved nowhere: that comes from the capture."""
    more = TRACE + "//! buffer model.norm.bias bytes=16 role=weight dtype=f32 shape=4\n"
    more += "//! buffer model.rope.table bytes=16 role=weight dtype=f32 shape=4\n"
    more += "//! buffer model.norm.places bytes=16 role=weight dtype=s64 shape=2\n"
    sharded(tmp_path, EMBED, NORM)
    computed = ("model.rope.table", "model.norm.places")
    whole = (EMBED[0], NORM[0], "model.norm.bias", *computed)
    code, text = refused(tmp_path, more, whole)
    assert code == "TSR1187"
    assert "1 of its weights are missing" in text
    assert "missing: `model.norm.bias`, f32 of shape [4], 16 bytes" in text
    # A capture that has left out what the checkpoint has says so by that.
    assert sorted(taken(tmp_path, more, ("model.norm.bias", *computed))) == [EMBED[0], NORM[0]]
    without = more.replace("model.norm.bias", "model.rope.other")
    assert sorted(taken(tmp_path, without, (*whole, "model.rope.other"))) == [EMBED[0], NORM[0]]
