"""Settings come from the environment, and only `settings.py` reads it."""

import ast
from pathlib import Path

import pytest

import tessera
from tessera.settings import read_settings

PACKAGE = Path(tessera.__file__).parent


@pytest.mark.parametrize("value", ["1", "true", "yes", "anything"])
def test_flag_is_on(value: str) -> None:
    assert read_settings({"TESSERA_TRACEBACK": value}).traceback


@pytest.mark.parametrize("value", ["", "0", "false", "No", "off"])
def test_flag_is_off(value: str) -> None:
    assert not read_settings({"TESSERA_TRACEBACK": value}).traceback


def test_cache_is_used_unless_told_otherwise() -> None:
    assert read_settings({}).use_cache
    assert not read_settings({"TESSERA_NO_CACHE": "1"}).use_cache


def test_cache_folder() -> None:
    assert read_settings({"TESSERA_CACHE_DIR": "/c", "HOME": "/h"}).cache_dir == Path("/c")
    assert read_settings({"XDG_CACHE_HOME": "/x", "HOME": "/h"}).cache_dir == Path("/x/tessera")
    assert read_settings({"XDG_CACHE_HOME": "x", "HOME": "/h"}).cache_dir == Path(
        "/h/.cache/tessera"
    )
    assert read_settings({}).cache_dir is None


def test_no_color_counts_when_not_empty() -> None:
    assert read_settings({"NO_COLOR": "1"}).color is False
    assert read_settings({"NO_COLOR": ""}).color is None


def test_only_settings_reads_the_environment() -> None:
    readers = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "environ" in text or "getenv" in text else ():
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"):
                readers.add(path.relative_to(PACKAGE).as_posix())
    assert readers == {"settings.py"}
