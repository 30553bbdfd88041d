"""Device memory: spaces, checked accesses, what is watched and logged."""
