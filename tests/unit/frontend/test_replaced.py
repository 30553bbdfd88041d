"""Parts of PyTorch's are replaced for as long as a context lasts, if they are there."""

from __future__ import annotations

from types import ModuleType

import pytest

from tessera.frontend.capture.replaced import replaced


class Compiler:
    @classmethod
    def name(cls) -> str:
        return cls.__name__


def test_a_part_comes_back_also_after_an_error() -> None:
    before = vars(Compiler)["name"]

    def louder(old: classmethod[Compiler, [], str]) -> object:
        return classmethod(lambda cls: old.__get__(None, cls)() + "!")

    def fail() -> None:
        with replaced(Compiler, "name", louder):
            raise ValueError(Compiler.name())

    with pytest.raises(ValueError, match="Compiler!"):
        fail()
    assert vars(Compiler)["name"] is before


def test_what_a_version_does_not_have_is_not_put_there() -> None:
    module = ModuleType("guards")
    with replaced(module, "part", lambda old: pytest.fail("it was made of nothing")):
        assert not hasattr(module, "part")
    assert not hasattr(module, "part")
