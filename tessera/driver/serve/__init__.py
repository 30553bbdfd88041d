"""Text generation over the steps of a plan: one scheduler, an engine, a server, a simulation.

In: a plan whose traces are steps of a language model, and what they state of their inputs.
Out: tokens, or when they would come. Imported by `cli`, `report` and `driver.fleet`.
"""
