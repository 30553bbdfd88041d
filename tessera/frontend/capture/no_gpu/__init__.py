"""Kernels of a call without a GPU: torch.compile and Triton at work for GPUs that are named.

In: a function that makes a callable and its inputs. Out: a `RawCapture` of launches with PTX.
`record` is the way in; `private_names` stands in for the GPU and its driver, `capture.products`
chooses between kernels, `on_host` computes contents and results. Imported by `driver.trace` and the
neighbours in `capture`.
"""
