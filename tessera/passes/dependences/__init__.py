"""From launches to buffers: accesses, dependences, cuts."""
