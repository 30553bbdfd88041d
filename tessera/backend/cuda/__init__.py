"""Launch programs on GPUs, through cuda-python, which is imported on first use.

In: a `Model`, and the GPU of each device. Out: a `Backend`. `backend` is the entry point, `replica`
loads and allocates, and `enqueue` writes the calls of a request to a `tape`. Imported by
`known_backends`, `backend.hosts`, `driver`, and by `cli` and `report` for `tessc doctor`.
"""
