"""Tessera: compile one step of a large model into a plan that runs across different GPUs."""

__version__ = "0.1.0"
