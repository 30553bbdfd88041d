"""From a placement to launch programs."""
