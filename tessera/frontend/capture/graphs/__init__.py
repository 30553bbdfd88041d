"""Graphs of a captured call: their nodes, and CUDA graphs for timing kernels.

In: graphs that torch.compile has recorded, or calls of kernels. Out: the call and the operands of a
node, and times. `graph_nodes` reads nodes, `into_graph` captures calls, `tuning` chooses by time.
Imported by the neighbours in `capture` and `driver.trace`.
"""
