"""Reads and writes files of named arrays: the contents of a trace's buffers.

In: paths (`.npz`, `.npy`, `.safetensors`). Out: arrays by name, and files of them. Imported by
`driver` and `frontend.capture`.
"""
