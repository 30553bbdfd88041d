"""Tables of records for notebooks.

In: rows. Out: a `pandas.DataFrame`; pandas is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tessera.diagnostics import TesseraError

if TYPE_CHECKING:
    import pandas


def frame_of(rows: Iterable[Mapping[str, object]], columns: tuple[str, ...]) -> pandas.DataFrame:
    """A frame with these columns, even without rows."""
    try:
        import pandas
    except ImportError:
        raise TesseraError.of(
            "TSR1918",
            "`to_frame` needs pandas, which is not installed",
            hint="install it with `pip install pandas`",
        ) from None
    return pandas.DataFrame([[row[name] for name in columns] for row in rows], columns=columns)
