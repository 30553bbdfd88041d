"""The version of Tessera. Caches store it in their entries, and `tessc --version` prints it.

It is here, and not in `tessera/__init__.py`, so that lower layers need not import upwards.
"""

__version__ = "0.1.0"
