"""Attention by kernels of our own, put in place of PyTorch's while a model is compiled.

In: the graph that torch.compile records. Out: the same with calls of `tessera::attention`, and
kernels with PTX. `rewrite` is the way in. Imported by `routes`
and `rewrite`, and by `driver.trace`, which chooses tiles where nothing can be measured.
"""
