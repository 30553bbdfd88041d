"""Programs and plans out to machines."""
