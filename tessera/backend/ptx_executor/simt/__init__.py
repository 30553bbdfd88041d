"""Execution of lanes: scheduling, waiting, and collective operations of warps and CTAs.

In: the blocks that `emit` made and a launch. Out: changed memory, and the bytes accessed. Imported
by the neighbours in `ptx_executor`, by the source that `emit` writes, by `processes` and
`driver.run`.
"""
