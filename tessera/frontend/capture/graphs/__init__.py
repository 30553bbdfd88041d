"""Graphs of a captured call: their nodes, and CUDA graphs to time kernels in.

In: graphs that torch.compile has recorded, or calls of kernels. Out: what a node calls and gets,
and times. `graph_nodes` reads nodes, `into_graph` captures calls, `tuning` chooses by time.
Imported by the neighbours in `capture` and `driver.trace`.
"""
