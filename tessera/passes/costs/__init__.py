"""How long steps take on devices."""
