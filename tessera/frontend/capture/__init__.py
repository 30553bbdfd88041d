"""From a PyTorch callable on a GPU to what it launches. Imports torch and cuda lazily.

In: a callable and its inputs. Out: raw records (`raw`): graph nodes, memory, PTX. `session` is
the way in. Imported by `driver.trace` and `cli`.
"""
