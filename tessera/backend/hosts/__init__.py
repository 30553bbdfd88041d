"""Launch programs on processes of several hosts."""
