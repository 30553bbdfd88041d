"""The report page: one HTML file with everything there is to look at.

In: files of other commands, or records of them (`given`). Out: a `Page`, and one HTML file of it.
`inputs` reads files, `build` makes sections (JSON values, `model`), `render` puts them into a file
with the scripts, styles and fonts of `assets`, and reads them back. Imported by `tessera.cli` and
the neighbours in `report`.
"""
