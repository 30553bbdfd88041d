"""Results as text, JSON and pages, for people and programs.

In: what `tessera.driver` gives back. Out: strings. Only `tessera.cli` imports this package, and
`tessera.driver` where a result carries its own text. The report page (one HTML file of trace,
plan, profile and run) belongs here, in `report/page`.
"""
