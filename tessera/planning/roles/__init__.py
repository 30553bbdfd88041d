"""Plans whose replicas serve other shares of each trace, and hand sequences over.

In: a `PlanSetting`. Out: candidates with roles, which `choose_best` ranks with the others, and a
bound. Imported by `planning`.
"""
