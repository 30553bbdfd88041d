"""The CPU backend: runs PTX itself, SIMT over NumPy lanes, without a GPU."""
