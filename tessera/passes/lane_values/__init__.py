"""Values of many threads at once, exact or as intervals."""
