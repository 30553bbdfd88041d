"""The base of option records: each command has one, and the library takes the same record.

A record checks itself when it is created. An error in a value from a file or a machine has a
diagnostic code (`TesseraError`). `WrongOption` is wrong usage: the command line shows it with its
own spelling of the names, and exits with 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NAME = re.compile(r"\{([a-z_]+)\}")


class WrongOption(ValueError):
    """Invalid options. Names of fields are in braces in `text`; `detail` follows."""

    def __init__(self, text: str, detail: str = "") -> None:
        self._text = text
        self._detail = detail
        super().__init__(self.spelled(lambda name: name))

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message, with every name spelled by `spell`."""
        return _NAME.sub(lambda found: f"`{spell(found[1])}`", self._text) + self._detail
