"""Which device runs which step."""
