"""Products of mixtures of experts by a kernel of our own, in place of PyTorch's.

In: the graph that torch.compile records. Out: the same with calls of `tessera::grouped_product`,
and a kernel with PTX. `rewrite` is the way in. Imported by `frontend.capture.rewrite`,
and by `driver.trace`, which chooses tiles where nothing can be measured.
"""
