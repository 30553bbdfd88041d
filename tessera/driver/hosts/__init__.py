"""Runs over several hosts: which device is where, and what a process there begins with."""
