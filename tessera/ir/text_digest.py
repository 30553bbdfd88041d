"""The digest by which a graph, a plan or a profile refers to its trace or machine."""

from __future__ import annotations

import hashlib


def text_digest(text: str) -> str:
    """The digest of a trace's or machine's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
