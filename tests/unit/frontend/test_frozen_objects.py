"""Objects that a program has set aside with `gc.freeze`, as servers do, are found by a capture."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace

import tessera.frontend.capture
from tessera.frontend.capture import ptx_sources


class ObjectCode(SimpleNamespace):
    pass


def test_frozen_objects_are_found() -> None:
    kept = [ObjectCode(), []]
    gc.freeze()
    assert not any(thing is kept for thing in gc.get_objects())
    assert any(thing is kept[0] for thing in ptx_sources._living("ObjectCode"))


def test_whoever_looks_at_all_objects_thaws_them() -> None:
    (folder,) = tessera.frontend.capture.__path__
    texts = {path: path.read_text("utf-8") for path in Path(folder).rglob("*.py")}
    looking = {path for path, text in texts.items() if "gc.get_objects()" in text}
    assert len(looking) >= 6
    assert looking == {path for path, text in texts.items() if "gc.unfreeze()" in text}
