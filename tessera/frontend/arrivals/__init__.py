"""Arrival times of requests: recorded by others, or drawn at random.

In: `--arrivals`: a file of Azure, BurstGPT or Mooncake, or `poisson:20/s`. Out: `ir.arrivals`
records; records are also written as Mooncake files. Imported by `simulation`, `driver` and `cli`.
"""
