"""Files of named arrays, in and out: what the buffers of a trace hold.

In: paths (`.npz`, `.npy`, `.safetensors`). Out: arrays by name, and files of them. Imported by
`driver`.
"""
