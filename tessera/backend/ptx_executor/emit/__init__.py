"""From PTX to Python source that runs on NumPy lanes."""
