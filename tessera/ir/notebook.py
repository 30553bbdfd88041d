"""What notebooks do with records: tables for pandas, and pages.

In: rows, or a record. Out: a `pandas.DataFrame`, or HTML. Pages are made above this layer, so they
are found by name; pandas is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from tessera.diagnostics import TesseraError, error

if TYPE_CHECKING:
    import pandas


def frame_of(rows: Iterable[Mapping[str, object]], columns: tuple[str, ...]) -> pandas.DataFrame:
    """A frame with these columns, also where there are no rows."""
    try:
        import pandas
    except ImportError:
        raise TesseraError(
            error(
                "TSR1918",
                "`to_frame` needs pandas, which is not installed",
                hint="install it with `pip install pandas`",
            )
        ) from None
    return pandas.DataFrame([[row[name] for name in columns] for row in rows], columns=columns)


def html_of(record: object) -> str:
    """What a notebook shows of a record: its report page."""
    return cast("str", import_module("tessera.report.notebook").notebook_html(record))
