"""Attention kernels of our own, which replace PyTorch's while a model is compiled.

In: the graph that torch.compile records. Out: the same with calls of `tessera::attention`, and
kernels with PTX. `rewrite` is the way in. Imported by `routes`
and `rewrite`, and by `driver.trace`, which chooses tiles if nothing can be measured.
"""
