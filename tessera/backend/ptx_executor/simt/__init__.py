"""Lanes that run: scheduling, waiting, what warps and CTAs do together."""
