"""How long steps take on a GPU or a slice of one, alone and beside others."""
