"""Layers that come again in a recorded graph are compiled once.

In: the graph that torch.compile has recorded. Out: code for the whole of it. `sections` cuts the
graph so that equal sections come several times, `compile` has each different section compiled and
calls them in order. Imported by `routes`.
"""
