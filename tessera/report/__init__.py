"""Results as text, JSON and pages, for people and programs.

In: results of `tessera.driver`. Out: strings. Imported by `tessera.cli`. The report page
(one HTML file of trace, plan, profile and run) belongs here, in `report/page`.
"""
