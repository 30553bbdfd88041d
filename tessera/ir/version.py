"""The version of Tessera. Caches name it in their entries, `tessc --version` prints it.

It stands here, and not in `tessera/__init__.py`, so that readers below need not import upwards.
"""

__version__ = "0.1.0"
