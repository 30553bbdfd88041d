"""Lanes that run: scheduling, waiting, what warps and CTAs do together.

In: the blocks that `emit` made and a launch. Out: changed memory, and what was accessed. Imported
by the neighbours in `ptx_executor`, by the source that `emit` writes, by `processes` and
`driver.run`.
"""
