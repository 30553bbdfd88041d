"""What happens before the command line is there."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from tessera.__main__ import INTERRUPTED, main
from tessera.diagnostics import ExitCode


class _Impatient:
    """Whoever presses Ctrl-C while a module is looked for."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: object = None) -> None:
        if name == "tessera.cli.main":
            raise KeyboardInterrupt


def test_ctrl_c_while_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "tessera.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Impatient(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == INTERRUPTED == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "")
