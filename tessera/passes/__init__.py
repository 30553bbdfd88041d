"""Facts about programs and decisions made from them; one idea per file."""
