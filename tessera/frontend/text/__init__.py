"""Bytes to text, text to parsers, faults to diagnostics: what all readers share.

Imported by the other folders of `frontend` and by `driver`.
"""
