"""Launch programs on GPUs, through cuda-python. Nothing here imports it before it is needed."""
