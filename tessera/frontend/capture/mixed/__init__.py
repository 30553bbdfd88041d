"""Mixed steps of models of the transformers library: their own code over a cache in blocks.

In: the config of a model folder. Out: a module to capture, with its inputs. `step` makes it; `seam`
is the attention function that the library calls, and `stored_weights` keeps quantized weights as
they are stored. Imported by `driver.folder`.
"""
