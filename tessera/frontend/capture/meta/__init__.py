"""A model's operators without a GPU: the call runs on tensors that have shapes and no memory.

In: a callable and its inputs, or the config file of a model. Out: a `RawCapture` of library calls.
`record` is the way in (`capture.stand_in` answers for the GPU), `hf` makes models of config files.
Imported by the neighbours in `capture`, `driver.trace` and `cli`.
"""
