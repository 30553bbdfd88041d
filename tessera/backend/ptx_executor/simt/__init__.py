"""Lanes that run: scheduling, waiting, what warps and CTAs do together.

In: the blocks that `emit` made and a launch. Out: changed memory. Imported by the neighbours in
`ptx_executor` and by the source that `emit` writes.
"""
