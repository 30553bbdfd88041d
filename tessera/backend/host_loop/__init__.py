"""The host's part of running requests, shared by all backends: slots, order, waiting, watchdog."""
