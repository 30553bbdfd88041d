"""Layers that come again in a recorded graph are compiled once.

In: the graph that torch.compile has recorded. Out: code for the whole of it. `parts` cuts the graph
so that equal parts come several times, `compile` has each different part compiled and calls them in
order. Imported by `routes`.
"""
