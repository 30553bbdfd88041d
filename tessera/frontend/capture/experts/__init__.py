"""A kernel of our own for the products of mixtures of experts, in place of PyTorch's.

In: the graph that torch.compile records. Out: the same with calls of `tessera::grouped_product`,
and a kernel with PTX. `rewrite` is the way in. Imported by `frontend.capture.rewrite`,
and by `driver.trace`, which chooses tiles if nothing can be measured.
"""
