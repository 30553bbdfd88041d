"""Launch programs on GPUs, through cuda-python. Nothing here imports it before it is needed.

In: a `Model` and which GPU stands for which device. Out: a `Backend`. `backend` is the way in,
`replica` loads and allocates, `enqueue` writes what is enqueued to a `tape`. Imported by
`known_backends`, `backend.hosts`, `driver`, and `cli` and `report` for `tessc doctor`.
"""
